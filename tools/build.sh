#!/bin/sh
# Configures where that is needed, and builds; `make build` calls it with PYTHON, CMAKE, BUILD, JOBS, CONFIGURED and V set.
# Prints one line, and on failure the messages of the compiler; everything is in BUILD/build.log.
set -u
mkdir -p "$BUILD"
log=$BUILD/build.log
t0=$(date +%s)
failed() {
    grep -A3 -iE 'error|undefined reference' "$log" | head -60 >&2
    echo "the build failed; all of its output is in $log" >&2
    exit 1
}
if [ "$(cat "$BUILD/configured" 2>/dev/null)" != "$CONFIGURED" ]; then
    rm -rf "$BUILD/CMakeCache.txt" "$BUILD/CMakeFiles" "$BUILD/configured"
    "$CMAKE" -S . -B "$BUILD" -DPython3_EXECUTABLE="$PYTHON" "$@" >"$log" 2>&1 || failed
    echo "$CONFIGURED" >"$BUILD/configured"
fi
if [ -n "$V" ]; then
    "$CMAKE" --build "$BUILD" -j"$JOBS" --verbose || exit 1
else
    "$CMAKE" --build "$BUILD" -j"$JOBS" >"$log" 2>&1 || failed
    grep -A3 'warning:' "$log" >&2
fi
here=$(cd "$(dirname "$BUILD/.")" && pwd)
root=$(pwd)
cat >"$BUILD/env.sh" <<END
# . $here/env.sh: this shell finds \`import taper\` and the program \`taper\`.
export PYTHONPATH="$root/python\${PYTHONPATH:+:\$PYTHONPATH}"
export PATH="$here:\$PATH"
END
# Bytecode, also where interpreters are told not to leave any: the tests start hundreds of them.
"$PYTHON" -m compileall -q python/taper >/dev/null 2>&1
n=$(grep -c 'Building C object' "$log")
[ "$n" = 0 ] || echo "built: $n files in $(($(date +%s) - t0)) s"
exit 0
