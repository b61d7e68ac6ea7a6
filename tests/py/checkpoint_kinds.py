"""Ten kinds of checkpoints, made with PyTorch or with Taper: kinds(module) -> {name: value}. Run with PyTorch it writes tests/data/checkpoints."""
import collections
import os

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


def _model(t):
    m = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2), t.nn.Linear(2, 1))
    with t.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_((t.arange(p.numel(), dtype=t.float32).view(p.shape) + i) / 8)
    return m


def _training(t):
    m = t.nn.Linear(3, 1)  # trained by what both compute to the same last bits, or nearly
    with t.no_grad():
        m.weight.fill_(0.5), m.bias.fill_(0.25)
    o = t.optim.Adam(m.parameters(), lr=0.5)
    s = t.optim.lr_scheduler.StepLR(o, 2)
    for i in range(3):
        o.zero_grad()
        m(t.arange(12, dtype=t.float32).view(4, 3) + i).pow(2).mean().backward()
        o.step()
        s.step()
    return {"epoch": 3, "model": m.state_dict(), "optimizer": o.state_dict(), "scheduler": s.state_dict(), "best": float("inf")}


def kinds(t):
    x = t.arange(12, dtype=t.float32).view(3, 4)
    marked = t.ones(2)
    marked.note = "an attribute"
    owned = t.nn.Parameter(t.arange(3.0), requires_grad=False)
    owned.rank = 7
    own = collections.OrderedDict(z=1, a=[2])
    own.kept = {"b": 3}
    return {
        "state_dict": _model(t).state_dict(),
        "training": _training(t),
        "dtypes": {d: t.tensor([0, 1, 1, 0]).to(getattr(t, d)) for d in DTYPES},
        "views": {"x": x, "row": x[1], "part": x[1:, ::2], "turned": x.t(), "again": x, "wide": t.ones(1).expand(5), "list": [x, (x[2:],)]},
        "values": {"i": 1, "big": 2 ** 90, "neg": -3, "f": 0.1, "inf": -float("inf"), "s": "ü\n", "n": None, "b": True, "by": b"\x00\xff", "ba": bytearray(b"xy"),
                   "c": 1 + 2j, "l": [1, (2, 3), [], ()], "d": {1: {2.5: "k", (1, "a"): 2, None: 0}}, "set": {1, 2}, "o": own,
                   "count": collections.Counter("aab")},
        "parameters": [t.nn.Parameter(t.ones(2)), owned, t.ones(2, requires_grad=True), t.nn.ParameterList([t.nn.Parameter(t.zeros(1))]).state_dict()],
        "names": {"size": x.shape, "dtypes": [getattr(t, d) for d in DTYPES], "device": [t.device("cpu"), t.device("cuda", 1)], "layout": t.strided},
        "shapes": [t.tensor(1.5), t.zeros(0), t.zeros(2, 0, 3), t.zeros((1,) * 12), x.view(1, 3, 2, 2).contiguous(memory_format=t.channels_last)],
        "attributes": {"marked": marked, "meta": t.empty(2, 3, device="meta", dtype=t.float64)},
        "tensor": x[:, 1:3],
    }


if __name__ == "__main__":
    import torch
    where = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "checkpoints")
    for name, value in kinds(torch).items():
        torch.save(value, os.path.join(where, name + ".pt"))
        torch.save(value, os.path.join(where, name + ".old.pt"), _use_new_zipfile_serialization=False)
