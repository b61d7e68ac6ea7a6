#!/bin/sh
# usage: run.sh [SECONDS] [BUILD] - fuzz the graph reader with libFuzzer (clang) for so long, from tests/fuzz/graph and
# the golden graphs. A find is left in BUILD/crash-*; put it into tests/fuzz/graph once it is fixed.
set -eu
secs=${1:-60} dir=${2:-build-fuzz}
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v clang >/dev/null || { echo "clang is not installed"; exit 77; }
mkdir -p "$dir/corpus"
cmake -S "$root" -B "$dir" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DTAPER_PYTHON=OFF -DTAPER_TESTS=OFF \
    -DTAPER_FUZZ=ON -DTAPER_SANITIZE=fuzzer-no-link,address,signed-integer-overflow,shift,bounds,null,alignment,vla-bound,bool >/dev/null
cmake --build "$dir" --target taper_fuzz_graph -j2 >/dev/null
cd "$dir"
./taper_fuzz_graph -max_total_time="$secs" -max_len=4096 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -dict="$root/tests/fuzz/graph.dict" corpus "$root/tests/fuzz/graph" "$root/tests/golden/graph"
