#!/bin/sh
# usage: sanitize.sh SANITIZERS BUILD_DIR - build with them, run the C tests and tests/py under them.
set -eu
san=$1 dir=$2
gen=""; command -v ninja >/dev/null 2>&1 && gen="-G Ninja"
[ -f "$dir/CMakeCache.txt" ] || cmake -S . -B "$dir" $gen -DCMAKE_BUILD_TYPE=Debug -DTAPER_SANITIZE="$san" \
    -DPython3_EXECUTABLE="$(command -v python3)"
cmake --build "$dir" -j"$(nproc)"
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
# A report of undefined behaviour fails the run, also where it only ended a child whose failure somebody expected.
"$dir/taper_ctest" >"$dir/ctest.log" 2>&1 && rc=0 || rc=$?
cat "$dir/ctest.log"
# As with the Python tests: one that fails and then passes alone is named, and does not decide.
if [ $rc != 0 ] && [ -n "${TAPER_TEST_AGAIN:-}" ]; then
    rc=0 failed=$(sed -n 's/^FAIL \([a-z0-9_]*\) .*/\1/p' "$dir/ctest.log")
    [ -n "$failed" ] || rc=1
    for t in $failed; do
        "$dir/taper_ctest" "$t" >>"$dir/ctest.log" 2>&1 && echo "UNSTEADY $t: failed, and passed when it ran once more" || rc=1
    done
fi
! grep -q "runtime error: " "$dir/ctest.log" || rc=1
[ $rc = 0 ] || exit $rc
# Python itself leaks by design, so leaks are only looked for in the C tests.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
preload=""
case "$san" in *address*) preload=$(gcc -print-file-name=libasan.so) ;; esac
for f in python/taper/*; do
    b=$(basename "$f")
    case "$b" in _C.*) ;; *) ln -sfn "$PWD/$f" "$dir/pysan/taper/$b" ;; esac
done
LD_PRELOAD=$preload TAPER_SANITIZED=1 PYTHONPATH="$PWD/$dir/pysan" python3 tests/run.py --build "$dir" --sanitized tests/py
# Random programs (tests/fuzz/programs), where their number is given: TAPER_FUZZ_PROGRAMS=2000.
if [ -n "${TAPER_FUZZ_PROGRAMS:-}" ]; then
    LD_PRELOAD=$preload TAPER_SANITIZED=1 PYTHONPATH="$PWD/$dir/pysan" \
        python3 tests/fuzz/programs/fuzz.py --fixed --torch no --count "$TAPER_FUZZ_PROGRAMS" --seed "${TAPER_FUZZ_SEED:-1}" --out "$dir/fuzz-programs"
fi
