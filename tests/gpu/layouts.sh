#!/bin/bash
# Convolutions, products and rows on a GPU: values against eager calls and the CPU, then times. Builds nothing; ends within two minutes.
# PyTorch is run beside it where it is importable.
cd "$(dirname "$0")/../.." || exit 1
export PYTHONPATH="$PWD/python:$PWD/bench"
TAPER_CACHE_DIR="$(mktemp -d)" && export TAPER_CACHE_DIR
timeout -k 5 115 python3 tests/gpu/layouts.py "$@"
status=$?
rm -rf "$TAPER_CACHE_DIR"
exit $status
