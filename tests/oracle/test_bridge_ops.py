"""PyTorch's operator database through taper.torch, forward and backward: one sample of every sixteenth operator; all with
TAPER_OPINFO=all (bridge_ops.py prints the whole table)."""
import os

import bridge_ops
import torch

FULL = os.environ.get("TAPER_OPINFO") == "all"


def test_samples_agree_with_eager_pytorch():
    torch.set_num_threads(1)
    kinds = {}
    for name, rows in bridge_ops.sweep(bridge_ops.op_db[::1 if FULL else 16], torch.float32, 0 if FULL else 1):
        for kind, text, _ in rows:
            kinds.setdefault(kind, []).append(f"{name}: {text}")
    assert not kinds.get("wrong") and not kinds.get("error"), (kinds.get("wrong"), kinds.get("error"))
    assert len(kinds["native"]) > 10 * len(kinds.get("opaque", [])), {k: len(v) for k, v in kinds.items()}
