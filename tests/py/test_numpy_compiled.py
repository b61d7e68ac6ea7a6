"""NumPy inside compiled functions: arrays that share memory with traced tensors are part of the graph, with NumPy's rules."""
import unittest

import taper
from taper._dynamo.utils import counters

try:
    import numpy as np
except ImportError:
    raise unittest.SkipTest("NumPy is not installed")

A = taper.arange(6).view(2, 3).float() * 0.3 + 0.1
IN = {"f32": A, "f64": A.double() - 0.7, "i64": taper.arange(6).view(2, 3) - 2, "i32": (taper.arange(6).view(2, 3) * 3 - 5).int(),
      "b": taper.tensor([[True, False, True], [False, False, True]])}


def shown(v):
    return repr(parts_of(v))  # NaN is no other than NaN


def parts_of(v):
    if isinstance(v, (np.ndarray, np.generic)):
        return type(v), v.dtype, v.shape, np.round(np.asarray(v, dtype=np.float64), 4).tolist()
    if isinstance(v, taper.Tensor):
        return "tensor", v.dtype, tuple(v.shape), np.round(v.detach().double().numpy(), 4).tolist()
    if isinstance(v, (tuple, list)):
        return type(v), [parts_of(i) for i in v]
    return type(v), v


def outcome(f, x):
    x = x.clone()
    try:
        with np.errstate(all="ignore"):
            r = f(x)
    except (TypeError, ValueError, IndexError) as e:
        return type(e), None, shown(x)
    parts = r if isinstance(r, (tuple, list)) else [r]
    return shown(r), [np.shares_memory(p, x.numpy()) for p in parts if isinstance(p, np.ndarray)], shown(x)


def same(f, kinds=IN, graphs=1, backends=("eager", "aot_eager", "inductor"), dynamic=None):
    """As eager in value, type, shape and memory; kinds: inputs, of which those in `whole` are one graph."""
    for k in kinds:
        want = outcome(f, IN[k])
        for backend in backends:
            taper._dynamo.reset()
            counters.clear()
            got = outcome(taper.compile(f, backend=backend, dynamic=dynamic), IN[k])
            assert want == got, (k, backend, want, got)
            assert graphs is None or (counters["stats"]["unique_graphs"], len(counters["graph_break"])) == (graphs, 0), \
                (k, backend, dict(counters["graph_break"]))


FLOATS = ("f32", "f64")
NUMBERS = ("f32", "f64", "i64", "i32")


def test_functions_of_one_array():
    for name in ("sin", "cos", "exp", "tanh", "floor", "ceil", "arctan", "isnan", "isfinite", "sqrt", "log", "expm1"):
        fn = getattr(np, name)
        same(lambda x: fn(x.numpy()), ("f32", "f64"), backends=("aot_eager",))
        same(lambda x: fn(x.numpy()), ("i64", "i32", "b"), graphs=None, backends=("aot_eager",))
    for name in ("abs", "negative", "copy", "ravel", "zeros_like", "ones_like"):
        fn = getattr(np, name)
        same(lambda x: fn(x.numpy()), NUMBERS, backends=("aot_eager",))
        same(lambda x: fn(x.numpy()), ("b",), graphs=None, backends=("aot_eager",))


def test_operators():
    for f in (lambda a: a + 1, lambda a: 2 - a, lambda a: a * 2.5, lambda a: a / 4, lambda a: 1 / (a + 10), lambda a: a ** 2, lambda a: a > 0, lambda a: a == 1,
              lambda a: a + a[0], lambda a: a - a.mean(), lambda a: a * np.float64(2), lambda a: a * np.float32(2), lambda a: a + np.int64(3),
              lambda a: -a, lambda a: (a > 0) & (a < 1), lambda a: (a > 0) | ~(a < 1), lambda a: a @ a.T, lambda a: a != a[:, :1]):
        same(lambda x: f(x.numpy()), FLOATS, backends=("aot_eager",))
        same(lambda x: f(x.numpy()), ("i64", "i32", "b"), graphs=None, backends=("aot_eager",))
    for f in (lambda a: a // 2, lambda a: a % 2, lambda a: a ** -1, lambda a: a << 1, lambda a: divmod(a, 2), lambda a: a * 2j, lambda a: 2 ** a):
        same(lambda x: f(x.numpy()), graphs=None, backends=("aot_eager",))


def test_reductions():
    for name in ("sum", "mean", "std", "var", "max", "min", "argmax", "argmin", "prod", "cumsum", "any", "all"):
        for how in ((), (0,), (1,), (-1,)):
            same(lambda x: getattr(np, name)(x.numpy(), *how), FLOATS, backends=("aot_eager",))
            same(lambda x: getattr(x.numpy(), name)(*how), ("i64", "i32", "b"), graphs=None, backends=("aot_eager",))
    same(lambda x: x.numpy().sum(axis=(0, 1), keepdims=True), FLOATS)
    same(lambda x: x.numpy().std(axis=0, ddof=1), FLOATS)
    same(lambda x: np.linalg.norm(x.numpy(), axis=1), FLOATS)
    same(lambda x: x.numpy().max() + np.min(x.numpy()), NUMBERS)


def test_shapes_and_parts():
    for f in (lambda a: a.reshape(3, 2), lambda a: a.T, lambda a: a.transpose(1, 0), lambda a: a[0], lambda a: a[:, 1:], lambda a: a[1, 2], lambda a: a[:, None],
              lambda a: a[..., 0], lambda a: a[:, ::2], lambda a: np.concatenate([a, a], axis=1), lambda a: np.stack([a, a + a]), lambda a: a.flatten(),
              lambda a: np.expand_dims(a, 0), lambda a: a.copy(), lambda a: a.squeeze(), lambda a: np.swapaxes(a, 0, 1), lambda a: a[[1, 0]],
              lambda a: np.where(a > 0, a, 0), lambda a: [r.sum() for r in a], lambda a: a[-1],
              lambda a: np.maximum(a, 1), lambda a: np.clip(a, 0, 1), lambda a: np.asarray(a), lambda a: np.array(a), lambda a: np.tril(a)):
        same(lambda x: f(x.numpy()), NUMBERS, backends=("aot_eager",))
    for f in (lambda a: a[::-1], lambda a: a[a > 0], lambda a: a[:, [True, False, True]], lambda a: np.flip(a), lambda a: np.unique(a), lambda a: a.astype("int64"),
              lambda a: a.astype(np.float32), lambda a: a[5], lambda a: a.reshape(7), lambda a: np.sort(a), lambda a: a[...], lambda a: np.add(a, 1, out=a),
              lambda a: str(a), lambda a: type(a), lambda a: isinstance(a, np.ndarray), lambda a: a.dtype, lambda a: a.tolist(), lambda a: np.fft.fft(a).real,
              lambda a: a.strides, lambda a: a.astype(bool), lambda a: (a.shape, a.ndim, a.size, len(a)), lambda a: (a.mean, a + 1)[0](dtype='float64')):
        same(lambda x: f(x.numpy()), graphs=None, backends=("aot_eager",))


def test_memory_is_shared():
    def add(x):
        a = x.numpy()
        a += 1
        a[0] = 7
        return a, x * 2

    def part(x):
        a = x.numpy()[:, 1]
        a *= 2
        return x + 0

    def back(x):
        t = taper.from_numpy(x.numpy())
        t.add_(1)
        return t, x * 2, taper.as_tensor(x.numpy()), taper.tensor(x.numpy())
    for f in (add, part, back):
        same(f, FLOATS)
        same(f, ("i64",), graphs=None)

    def wrong(x):
        a = x.numpy()
        a += 0.5
        return x
    same(wrong, graphs=None)


def test_in_between_operators_with_gradients():
    def f(x, w):
        mask = x.detach().numpy() > 0.5
        scale = np.sqrt(2.0) * np.float32(3)
        return x * w * taper.from_numpy(mask.astype(np.float32)) * scale + taper.from_numpy(np.arange(3))
    res = []
    for fn in (f, taper.compile(f, fullgraph=True)):
        x, w = A.clone().requires_grad_(), taper.ones(3, requires_grad=True)
        y = fn(x, w)
        y.sum().backward()
        res.append((shown(y), shown(x.grad), shown(w.grad)))
    assert res[0] == res[1]
    try:
        taper.compile(lambda x: x.numpy())(taper.ones(2, requires_grad=True))
        assert False
    except RuntimeError as e:
        assert "requires grad" in str(e)


def test_sizes_that_change():
    f = lambda x: np.exp(x.numpy()).sum(axis=0) * x.shape[0] + x.numpy().reshape(-1)[: x.shape[1]]
    for backend in ("aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend, dynamic=True, fullgraph=True)
        for n in (2, 5, 7):
            x = taper.arange(n * 3).view(n, 3).float() / 9
            assert shown(f(x)) == shown(c(x))


def test_scalars_from_outside():
    class M(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = np.sqrt(4.0)

        def forward(self, x, s):
            return x * self.k + s
    m = M()
    c = taper.compile(m)
    for k in (2.0, 3.0, 0.0, float("nan"), -0.0, 3.0):
        m.k = np.float64(k)
        for s in (np.float32(1.5), np.float32(0.5), np.int64(2), 2):
            assert shown(c(A, s)) == shown(m(A, s))


def test_arrays_from_outside():
    table = np.arange(3.0)
    f = lambda x, a: taper.from_numpy(a * table) + x
    c = taper.compile(f)
    for k in range(3):
        a = np.full(3, k + 1.0)
        table[0] = k
        assert shown(f(A, a)) == shown(c(A, a))


def test_results_of_numpy_alone():
    for f in (lambda x: x + taper.from_numpy(np.zeros((2, 3), dtype=np.float32)), lambda x: x.view(int(np.prod(x.shape))), lambda x: x * np.pi * np.sqrt(3.0),
              lambda x: (np.float64(2) * 3, np.arange(4), np.linspace(0, 1, 3)), lambda x: x + taper.tensor(np.eye(3)[:2])):
        same(f, ("f32",))
    same(lambda x: x + np.random.rand() * 0, ("f32",), graphs=None)
