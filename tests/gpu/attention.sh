#!/bin/bash
# Attention on the GPU of this machine: kernels against sums in double, operators against the CPU and PyTorch, models of the bench. Two minutes
# at most; builds nothing.
cd "$(dirname "$0")/../.." || exit 1
export PYTHONPATH=$PWD/python
git log --oneline | head -1
[ -x build/taper_gputest ] && timeout 25 build/taper_gputest --flash | tail -60
timeout 55 python3 tests/gpu/attention.py --torch 2>&1 | tail -80
for m in GPT-2 ViT Llama; do
    timeout 13 python3 bench/cuda.py --only "$m" --modes eager,reduce-overhead 2>&1 | grep -v H200 | cut -c 1-400
done
