// What happened around an interval of idle time, as sentences: since when nothing was queued, what the CPU did and whose
// code that was, when the next work was launched, and what ended the waiting.

import { formatDuration } from './format.js';
import { endOf, linked, lowerBound, stackOf, trackOf } from './store.js';

// Sentences on idle time, each with the event at its end, if any; none for other events.
export function idleStory(store, words, curves, event) {
  if (event < 0 || trackOf(store, event).family !== 'idle') return [];
  const group = trackOf(store, event).group;
  const gap = wholeGap(store, event);
  const next = workFrom(store, group, gap.end);
  const launch = next < 0 ? -1 : linked(store, next).source;
  return [emptiness(store, curves, group, gap), ...hostSentences(store, words, event), launchSentence(store, gap, launch), endSentence(store, gap, next)].filter(Boolean);
}

// From the end of the device's work before to the start of that after: idle time of several causes in a row.
function wholeGap(store, event) {
  const row = store.rows.find(({ first, count }) => event >= first && event < first + count);
  let [first, last] = [event, event];
  while (first > row.first && endOf(store, first - 1) === store.start[first]) first -= 1;
  while (last + 1 < row.first + row.count && store.start[last + 1] === endOf(store, last)) last += 1;
  return { start: store.start[first], end: endOf(store, last), first, last };
}

// The activity of a device that starts at a time; -1 if none does.
function workFrom(store, group, time) {
  for (const row of store.rows) {
    const track = store.tracks[row.track];
    if (track.group !== group || track.family !== 'stream') continue;
    const event = lowerBound(store.start, time, row.first, row.first + row.count);
    if (event < row.first + row.count && store.start[event] === time) return event;
  }
  return -1;
}

function emptiness(store, curves, group, gap) {
  const queue = curves.find(({ kind, place }) => kind === 'queue' && place === group.split(' · ')[0]);
  if (!queue) return null;
  const step = lowerBound(queue.time, gap.start + 1, 0, queue.time.length) - 1;
  if (step >= 0 && queue.value[step] > 0) return { text: `${queue.value[step]} launched ${queue.value[step] === 1 ? 'activity was' : 'activities were'} queued when the device stopped: it waited for something else than a launch.` };
  const since = step < 0 ? null : gap.start - queue.time[step];
  return { text: since === null ? 'Nothing had been launched before.' : since === 0 ? 'The queue ran empty at that instant.' : `The queue had been empty for ${formatDuration(since)} when the device ran out of work.` };
}

function hostSentences(store, words, event) {
  const host = store.link[event];
  const cause = store.name_values[store.name[event]];
  if (host < 0) return [{ text: `Cause: ${words[cause] ?? cause}. No event of the CPU is recorded for it.` }];
  const stack = stackOf(store, host);
  const family = (open) => trackOf(store, open).family;
  const module = stack.findLast((open) => family(open) === 'modules');
  const frames = [...stack, host].filter((open) => family(open) === 'python');
  const own = frames.findLast((open) => isOwn(store, open)) ?? frames.at(-1);
  return [
    { text: `Cause: ${words[cause] ?? cause}. The CPU was in`, event: host },
    own !== undefined && own !== host ? { text: 'called from', event: own } : null,
    module !== undefined ? { text: 'inside of module', event: module } : null,
  ].filter(Boolean);
}

// Whether a Python frame is neither of an installed package nor of Python itself.
function isOwn(store, event) {
  return store.own?.has(store.kind_values[store.kind[event]]) ?? false;
}

function launchSentence(store, gap, launch) {
  if (launch < 0) return null;
  const [begin, end] = [store.start[launch] - gap.start, endOf(store, launch) - gap.start];
  const when = begin < 0 && end <= 0 ? `${formatDuration(-end)} before the device ran out of work` : begin < 0 ? 'while the device ran out of work' : `${formatDuration(begin)} after the device ran out of work`;
  return { text: `The next work was launched ${when}, by`, event: launch };
}

function endSentence(store, gap, next) {
  const length = formatDuration(gap.end - gap.start);
  return next < 0 ? { text: `The device was idle for ${length} in all.` } : { text: `After ${length} in all the waiting ended with`, event: next };
}
