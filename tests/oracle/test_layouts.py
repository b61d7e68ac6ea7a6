"""Strides of results, exactly: also of dimensions with one element or none, which reach no memory but are seen by stride()."""
import random

from aten import *

F, TF = torch.nn.functional, taper.nn.functional
OPS = {"neg": lambda m, f, a, b: -a, "scaled": lambda m, f, a, b: a * 2, "from one": lambda m, f, a, b: 1 - a, "sum": lambda m, f, a, b: a + b, "quotient": lambda m, f, a, b: a / b,
       "one over": lambda m, f, a, b: 1 / a, "compare": lambda m, f, a, b: a > 0, "square": lambda m, f, a, b: a ** 2, "power": lambda m, f, a, b: a ** b, "power of two": lambda m, f, a, b: 2 ** a,
       "clamp": lambda m, f, a, b: a.clamp(0), "where": lambda m, f, a, b: m.where(a > 0, a, b), "where number": lambda m, f, a, b: m.where(b > 0, a, 1.0), "addcmul": lambda m, f, a, b: m.addcmul(a, a, b),
       "lerp": lambda m, f, a, b: m.lerp(a, b, 0.5), "convert": lambda m, f, a, b: a.double(), "clone": lambda m, f, a, b: a.clone(), "like": lambda m, f, a, b: m.empty_like(a), "flip": lambda m, f, a, b: a.flip(0),
       "masked": lambda m, f, a, b: a.masked_fill(b > 0, 1), "floor": lambda m, f, a, b: a // 2, "0-d": lambda m, f, a, b: a * m.tensor(2.), "gelu": lambda m, f, a, b: f.gelu(a), "silu": lambda m, f, a, b: f.silu(a),
       "alpha": lambda m, f, a, b: m.add(a, 1, alpha=2), "softmax": lambda m, f, a, b: a.softmax(0), "cumsum": lambda m, f, a, b: a.cumsum(0), "numbers": lambda m, f, a, b: m.nan_to_num(a),
       "roll": lambda m, f, a, b: a.roll(1), "sort": lambda m, f, a, b: a.sort(0)[0], "tril": lambda m, f, a, b: a.tril(), "spread": lambda m, f, a, b: a.expand(2, *a.shape) * 2, "complex": lambda m, f, a, b: m.complex(a, a), "polar": lambda m, f, a, b: m.polar(a, a), "two tensors": lambda m, f, a, b: m.maximum(a, b)}


def layout(rng, size=None):
    """A function that makes a tensor of a random layout, for either package."""
    nd = rng.choice((2, 3, 3, 4, 4)) if size is None else len(size)
    size = size or [rng.choice((0, 1, 1, 2, 3)) for _ in range(nd)]
    perm = rng.sample(range(nd), nd)
    how = rng.randrange(6)
    if how == 0:
        return lambda m: m.zeros([s + 1 for s in size])[tuple(slice(0, s) for s in size)]
    if how == 1 and nd == 4:
        return lambda m: m.zeros(size).to(memory_format=m.channels_last)
    if how == 2:
        return lambda m: m.zeros(size)
    return lambda m: m.zeros([size[p] for p in perm]).permute([perm.index(i) for i in range(nd)])


def test_strides_of_random_layouts():
    rng, seen = random.Random(11), 0
    for _ in range(400):
        first = layout(rng)
        second = layout(rng, list(first(torch).shape) if rng.random() < 0.8 else None)
        for name in rng.sample(sorted(OPS), 6):
            try:
                want = OPS[name](torch, F, first(torch), second(torch)).stride()
            except (RuntimeError, IndexError):
                continue
            a, b = first(taper), second(taper)
            got = OPS[name](taper, TF, a, b).stride()
            seen += 1
            assert got == want, f"{name} of {tuple(a.shape)} {a.stride()} and {tuple(b.shape)} {b.stride()}: strides {got}, not {want}"
    assert seen > 1500, seen
