#!/bin/sh
# Builds and runs taper_gputest: with CMake where there is one, else with one call of the C compiler. Arguments go to the program.
# Ends with 0 where there is no GPU, after saying so.
set -e
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build-gpu}
CC=${CC:-$(command -v cc || command -v gcc || command -v clang || true)}
if [ -z "$CC" ]; then
    echo "gpu-test: no C compiler (cc, gcc, clang) on this machine" >&2
    exit 1
fi
mkdir -p "$BUILD"
if command -v cmake >/dev/null 2>&1; then
    cmake -S . -B "$BUILD" -DTAPER_PYTHON=OFF -DCMAKE_C_COMPILER="$CC" >"$BUILD/configure.log"
    cmake --build "$BUILD" --target taper_gputest -j"$(nproc)" >"$BUILD/build.log" || { tail -20 "$BUILD/build.log"; exit 1; }
else
    # shellcheck disable=SC2046
    "$CC" -std=gnu11 -O2 -DNDEBUG -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-strict-aliasing -Isrc -Iinclude -Itests/c -Itests/gpu \
        tests/gpu/gputest.c tests/gpu/gpu_flash.c tests/c/gen_fuzz.c tests/c/ptx_cases.c tests/c/flash_cases.c $(ls src/target/cuda/*.c) src/vir/*.c src/vir/math/*.c \
        src/base/*.c src/ir/place.c -o "$BUILD/taper_gputest" -lm -ldl -lpthread
fi
rc=0
"$BUILD/taper_gputest" "$@" || rc=$?
[ $rc -ne 77 ] || { echo "gpu-test: skipped, there is no GPU"; rc=0; }
exit $rc
