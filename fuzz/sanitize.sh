#!/usr/bin/env bash
# Build the compiled code with AddressSanitizer and UBSan, run the reader's tests on it, then fuzz the whole program.
#
#     fuzz/sanitize.sh [SECONDS]        600 by default; PYTHON=... names the interpreter of an environment with the `dev` extra
#
# Works on a copy, needs gcc with libasan and libubsan, and stops at the first error.
set -euo pipefail

seconds=${1:-600}
python=$(realpath -s "$(command -v "${PYTHON:-python}")")
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git -C "$root" ls-files -z --cached --others --exclude-standard | tar -C "$root" --null --ignore-failed-read -T - -cf - | tar -C "$copy" -xf -
cd "$copy"
export PYTHONPATH=$copy PYTHONDONTWRITEBYTECODE=1 POLARS_MAX_THREADS=2
# With assertions of Cython off and on alike, an index out of bounds is an error of the sanitizer.
CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
    LDFLAGS="-fsanitize=address,undefined" "$python" setup.py -q build_ext --inplace

# The interpreter itself is not sanitized: it must load the runtime first, and keeps memory until it ends.
LD_PRELOAD="$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)"
export LD_PRELOAD
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
"$python" -c 'from trace_analyzer.ingest import fast; assert fast.IS_COMPILED; print("sanitized:", fast._scanner.__file__)'
"$python" -m pytest -q -x -p no:cacheprovider tests/test_scanner.py tests/test_fast_reader.py
"$python" fuzz/fuzz_program.py --seconds "$seconds"
