#!/usr/bin/env bash
# Compare BEFORE with AFTER, write the Markdown to the job's summary, and comment it on PULL_REQUEST.
# Exits with the code of `analyze compare`. Needs `analyze`; to comment, `gh` with GH_TOKEN.
# Inputs are environment variables, so that no input is run as a command.
set -uo pipefail

report=$(mktemp "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/compare.XXXXXX")
marker='<!-- trace-analyzer: compare -->'
gates=()
while IFS= read -r bound; do
  [ -n "$bound" ] && gates+=(--fail-if-slower "$bound")
done <<<"${FAIL_IF_SLOWER:-}"
[ -n "${FAIL_IF_MORE_IDLE:-}" ] && gates+=(--fail-if-more-idle "$FAIL_IF_MORE_IDLE")

messages=$(analyze compare --format markdown --output "$report" ${gates[@]+"${gates[@]}"} -- "$BEFORE" "$AFTER" 2>&1)
code=$?
printf '%s\n' "$messages" >&2
body="$report.body"
{
  printf '%s\n' "$marker"
  if [ -s "$report" ]; then cat "$report"; fi
  printf '\n```text\n%s\n```\n' "${messages//\`\`\`/}"
} >"$body"

[ -n "${GITHUB_STEP_SUMMARY:-}" ] && cat "$body" >>"$GITHUB_STEP_SUMMARY"
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  printf 'report=%s\nexit-code=%s\n' "$body" "$code" >>"$GITHUB_OUTPUT"
fi
if [ "${COMMENT:-false}" = true ] && [ -n "${PULL_REQUEST:-}" ]; then
  # Anyone can begin a comment with the marker: only a comment that this token wrote is replaced.
  id=$(gh api graphql --paginate -f "owner=${GITHUB_REPOSITORY%%/*}" -f "name=${GITHUB_REPOSITORY#*/}" \
    -F "number=$PULL_REQUEST" -f query='query($owner: String!, $name: String!, $number: Int!, $endCursor: String) {
      repository(owner: $owner, name: $name) { pullRequest(number: $number) { comments(first: 100, after: $endCursor) {
        nodes { id body viewerDidAuthor } pageInfo { hasNextPage endCursor } } } } }' \
    --jq ".data.repository.pullRequest.comments.nodes[]
      | select(.viewerDidAuthor and (.body | startswith(\"$marker\"))) | .id" 2>/dev/null | head -n 1)
  if [ -n "$id" ]; then
    gh api graphql -f "id=$id" -F "body=@$body" -f query='mutation($id: ID!, $body: String!) {
      updateIssueComment(input: {id: $id, body: $body}) { clientMutationId } }' >/dev/null || echo "analyze: the comment was not changed" >&2
  else
    gh pr comment "$PULL_REQUEST" --body-file "$body" >/dev/null || echo "analyze: no comment was made" >&2
  fi
fi
exit "$code"
