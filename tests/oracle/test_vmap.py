"""vmap against PyTorch's, over the examples of all operators: values, shapes and types for each choice of arguments and dimensions."""
import re
import warnings

import taper
import torch
import torch.func
from taper._op_examples import EXAMPLES

RANDOM = ("rand", "normal", "dropout", "bernoulli", "uniform", "exponential", "cauchy", "geometric", "multinomial", "poisson", "rrelu", "empty")
# What PyTorch's rules make of these is not what its own calls on each element give, or is not what it says of them.
OTHERWISE = {
    "as_strided": "counts in the memory of the batch there", "as_strided_": "the same", "as_strided_scatter": "the same", "view_as_complex": "the same",
    "histc": "a value between two bins is rounded otherwise, without vmap, too", "ctc_loss": "torch.ctc_loss has another default for reduction",
}


def leaves(o):
    return [o] if hasattr(o, "shape") else [t for e in o for t in leaves(e)] if isinstance(o, (tuple, list)) else []


def as_torch(t):
    return torch.tensor(t.tolist(), dtype=getattr(torch, str(t.dtype).split(".")[-1])).reshape(tuple(t.shape))


def varied(t, k):
    return t * (1 - 0.07 * k) + 0.013 * k if t.is_floating_point() or t.is_complex() else t.clone()


def test_the_same_values():
    wrong, compared, only_here = [], 0, set()
    for name, text in EXAMPLES.items():
        short = name.split(".")[-1]
        if any(s in name for s in RANDOM) or short in OTHERWISE:
            continue
        lines = [s[4:] for s in text.split("\n") if s.startswith(">>> ")]
        env = {"taper": taper}
        try:
            for s in lines[:-1]:
                exec(s, env)
        except Exception:
            continue
        tensors = {k: v for k, v in env.items() if isinstance(v, taper.Tensor) and re.search(rf"\b{k}\b", lines[-1])}
        for some in [list(tensors)] + ([[k] for k in tensors] if len(tensors) > 1 else []):
            for dim in (0, -1):
                if not some:
                    continue
                batch = [taper.stack([varied(tensors[k], i) for i in range(3)], dim) for k in some]

                def one(T, word, *ts):
                    rest = {k: (v.clone() if T is taper else as_torch(v)) for k, v in tensors.items() if k not in some}
                    return eval(re.sub(r"\btaper\b", word, lines[-1]), {word: T, **rest, **dict(zip(some, ts))})
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        want = leaves(torch.vmap(lambda *ts: one(torch, "torch", *ts), in_dims=dim)(*map(as_torch, batch)))
                except Exception:  # PyTorch has no such name, or refuses
                    only_here.add(short)
                    continue
                try:
                    got = leaves(taper.vmap(lambda *ts: one(taper, "taper", *ts), in_dims=dim)(*batch))
                except RuntimeError as e:
                    wrong.append((name, some, dim, str(e)[:100]))
                    continue
                compared += 1
                same = len(got) == len(want) and all(tuple(g.shape) == tuple(w.shape) and str(g.dtype).split(".")[-1] == str(w.dtype).split(".")[-1]
                                                     and torch.allclose(as_torch(g), w.resolve_conj(), rtol=1e-3, atol=1e-4, equal_nan=True) for g, w in zip(got, want))
                if not same:
                    wrong.append((name, some, dim, [tuple(g.shape) for g in got], [tuple(w.shape) for w in want]))
    print(compared, "compared;", len(only_here), "names that PyTorch does not have or refuses")
    assert not wrong, wrong
    assert compared > 1200, compared


def test_gradients_of_each_sample_and_jacobians():
    x, w = [[0.3, -1.2, 0.8], [1.1, 0.4, -0.6]], [[0.5, -0.1], [0.2, 0.7], [-0.4, 0.9]]
    for make in (lambda T: T.vmap(T.func.grad(lambda p, r: (r @ p).tanh().sum()), in_dims=(None, 0)), lambda T: T.vmap(T.func.jacrev(lambda p, r: (r @ p).tanh()), in_dims=(None, 0)),
                 lambda T: T.vmap(T.func.hessian(lambda p, r: (r @ p).tanh().sum()), in_dims=(None, 0)), lambda T: T.func.jacrev(T.vmap(lambda p, r: (r * p[:, 0]).sin().sum(), in_dims=(None, 0)), chunk_size=1),
                 lambda T: T.vmap(lambda p, r: T.vmap(lambda c: c @ r, in_dims=1)(p), in_dims=(None, 0), out_dims=1, chunk_size=1)):
        got, want = make(taper)(taper.tensor(w), taper.tensor(x)), make(torch)(torch.tensor(w), torch.tensor(x))
        assert tuple(got.shape) == tuple(want.shape) and torch.allclose(as_torch(got), want, atol=1e-5)


def test_the_same_refusals():
    x = [[0.3, -1.2, 0.8], [1.1, 0.4, -0.6]]
    for call in (lambda T: T.vmap(T.sin, in_dims=3)(T.tensor(x)), lambda T: T.vmap(T.sin, in_dims="x")(T.tensor(x)), lambda T: T.vmap(T.sin)(), lambda T: T.vmap(T.add)(T.tensor(x), T.ones(3)),
                 lambda T: T.vmap(T.add, in_dims=(0, 0))(T.tensor(x), 2.0), lambda T: T.vmap(lambda a: 3)(T.tensor(x)), lambda T: T.vmap(lambda a: a + T.rand(3))(T.tensor(x)), lambda T: T.vmap(T.sin, chunk_size=0)(T.tensor(x)),
                 lambda T: T.vmap(lambda a: T.ones(3).add_(a))(T.tensor(x)), lambda T: T.vmap(T.sin, randomness="some")(T.tensor(x)), lambda T: T.vmap(lambda a: a, out_dims=None)(T.tensor(x))):
        kinds = []
        for T in (taper, torch):
            try:
                call(T)
                kinds.append(None)
            except Exception as e:
                kinds.append(type(e).__name__)
        assert kinds[0] == kinds[1] and kinds[0], kinds
