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


def on_arrays(f, make, backends=("eager", "inductor"), full=True, n=1):
    """f of arrays that are made anew: as eager in results, in which of them share memory or are inputs, and in what the inputs hold then."""
    def outcome(g):
        args = make()
        out = []
        for _ in range(n):
            r = g(*args)
            parts = list(r) if isinstance(r, (tuple, list)) else [r]
            out.append((parts_of(r), [[p is a for a in args] + [np.shares_memory(p, a) for a in args if isinstance(a, np.ndarray)] for p in parts
                                      if isinstance(p, np.ndarray)], parts_of(args)))
        return repr(out)
    want = outcome(f)
    for b in backends:
        taper._dynamo.reset()
        counters.clear()
        assert outcome(taper.compile(f, backend=b, fullgraph=full)) == want, (b, want)
        if full:
            assert counters["stats"]["unique_graphs"] <= 1


def arrays(*more):
    return (np.arange(6.0).reshape(2, 3) - 2, np.ones((2, 3), dtype=np.float32)) + more


def test_arrays_that_are_given():
    def both(a, b):
        c = a * 2 + b
        c[0] = 7
        return c, a, a.T, a.sum(axis=1), a.max(), a.shape, isinstance(a, np.ndarray), a.dtype == np.float64, type(a.sum()) is np.float64

    def written(a, b):
        a += b
        b[1] = 0
        a[a > 3] = -1
        return a, b + 1, np.where(a > 0, a, b)

    def mixed(a, b):
        t = taper.from_numpy(a) * taper.tensor(b)
        t2 = taper.as_tensor(a)
        t2.add_(1)
        return t, a, taper.tensor(a, dtype=taper.float32), taper.ones(3)[np.array([0, 2])], taper.as_tensor(b, dtype=taper.float64), taper.ones(3) * b
    for f in (both, written, mixed):
        on_arrays(f, arrays)
        on_arrays(f, arrays, n=3, backends=("eager",))
    on_arrays(lambda a, b, k: [x * 2 for x in k] + [np.stack(k)], lambda: arrays([np.ones(2), np.zeros(2)]))
    on_arrays(lambda a, b, k: (a is k, a is b, a + k), lambda: (lambda a, b: (a, b, a))(*arrays()))
    on_arrays(lambda a, b, k: taper.ones(2) * k + a.shape[0] * np.float32(0.0), lambda: arrays(np.float64(0.0)))
    on_arrays(lambda a, b, k: (k.copy(), a), lambda: arrays(np.array([None, 1])), full=False)
    on_arrays(lambda a, b, k: (k + 1, a), lambda: arrays(np.arange(5.0)[::-1]), full=False)

    def fixed(a, b):
        a.flags.writeable = False
        try:
            a[0] = 1
        except ValueError:
            return b
        return a
    on_arrays(fixed, arrays, full=False)


def test_arrays_on_one_memory():
    def f(a, b):
        a[:2] += 1
        return a * b
    for make in (lambda: (lambda a: (a[:3], a[1:]))(np.arange(4.0)), lambda: (lambda a: (a, a.copy()))(np.arange(3.0)),
                 lambda: (lambda a: (a, taper.from_numpy(a)))(np.arange(3.0))):
        on_arrays(f, make, full=False)
    cf = taper.compile(f)
    for _ in range(2):  # what was compiled for arrays apart is not used for others
        for make in (lambda: (lambda a: (a[:3], a[3:]))(np.arange(6.0)), lambda: (lambda a: (a[:3], a[1:]))(np.arange(4.0))):
            x, y = make(), make()
            assert shown(f(*x)) == shown(cf(*y)) and shown(x) == shown(y)


def test_other_arrays_than_before():
    def f(a):
        return np.sum(a * 2, axis=0)
    taper._dynamo.reset()
    cf = taper.compile(f, fullgraph=True)
    for a in (np.ones((2, 3)), np.ones((4, 3)), np.ones((9, 3)), np.ones((2, 3), dtype=np.int64), np.ones((3, 2)).T, np.ones((0, 3)), np.ones((2, 3, 2))):
        assert shown(cf(a)) == shown(f(a)), a
    table = np.arange(4.0)

    def g(x):
        return x * taper.from_numpy(table)
    cg = taper.compile(g, fullgraph=True)
    for _ in range(2):
        assert cg(taper.ones(4)).tolist() == g(taper.ones(4)).tolist()
        table = table + 1


def test_functions_made_for_tensors():
    f = taper.compiler.wrap_numpy(lambda a, k, b: (np.sum(a * k["s"], axis=0), [b + 1]))
    for g in (f, taper.compile(f, fullgraph=True)):
        r = g(taper.ones(3, 2), {"s": 2}, taper.arange(2))
        assert r[0].tolist() == [6.0, 6.0] and r[1][0].tolist() == [1, 2] and isinstance(r[0], taper.Tensor)


def test_tensors_of_arrays():
    assert taper.Tensor(np.arange(6).reshape(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]] and taper.Tensor(np.ones((0, 3))).shape == (0, 3)
    assert taper.Tensor(np.array(3)).shape == (3,) and taper.Tensor(np.ones(2)).dtype is taper.float32


def test_many_functions():
    a = np.arange(12.0).reshape(3, 4) * 0.37 - 1.3
    for text in ("np.sort(a[:, [2, 0, 1]])", "np.tile(a, (2, 1))", "np.outer(a[0], a[1])", "np.meshgrid(a[0], a[1])", "np.vstack([a, a[:1]])",
                 "np.hstack([a, a])", "np.dstack([a, a])", "np.column_stack([a[:, 0], a])", "np.split(a, 2, axis=1)", "np.array_split(a, 2)", "np.roll(a, 1, axis=0)",
                 "np.diff(a)", "np.median(a, axis=1)", "np.percentile(a, 30)", "np.average(a, weights=a * a)", "np.ptp(a)", "np.nansum(a)", "np.round(a, 1)",
                 "np.where(a > 0)", "np.argwhere(a > 0)", "a[a > 0]", "np.unique(np.sign(a))", "np.count_nonzero(a > 0)", "np.take(a, 1, axis=1)",
                 "np.take_along_axis(a, np.argsort(a, axis=1), axis=1)", "np.arctan2(a, a + 1)", "np.copysign(a, -1.0)", "a // 0.5", "divmod(a, 2.0)",
                 "np.atleast_2d(a[0])", "np.diag(a[0])", "np.kron(a[0], a[1])", "np.tensordot(a, a.T, 1)", "np.cross(a[0, :3], a[1, :3])",
                 "np.linalg.solve(a[:3, :3] + 3 * np.eye(3), a[:, 0])", "np.abs(np.fft.rfft(a))", "a.astype(int)", "np.array([[a[0, 0], 1], [2, 3]])",
                 "np.array([a[0], a[1]], dtype=np.float32)", "np.pad(a, ((1, 0), (0, 1)))", "np.append(a, a)", "np.repeat(a, 2, axis=1)", "np.searchsorted(a[0], [0.0, 0.5])",
                 "np.isclose(a, a + 1e-12)", "np.nan_to_num(a)", "np.select([a > 0, a < -1], [a, -a])", "a[0, [1, 2]]", "a[[0, 1], [1, 2]]", "a.repeat(2)",
                 "np.full_like(a, 3)", "np.full((2,), 1.5)", "np.tril_indices(3)", "np.array(2.0) + a", "np.cov(a)", "np.sin(taper.ones(2))", "np.stack([taper.ones(2)] * 2)",
                 "a.dtype.name", "np.dtype('f4')", "np.issubdtype(a.dtype, np.floating)", "np.sum(a, axis=0, dtype=np.float32)", "a.item(0, 1)", "a.nbytes",
                 "a ** 2 @ a.T", "2 ** a", "np.clip(a, None, a[0])", "~(a > 0) ^ (a < 1)", "a.cumprod(axis=1)", "np.unravel_index(5, (3, 4))"):
        on_arrays(eval("lambda a: " + text, {"np": np, "taper": taper}), lambda: (a.copy(),), backends=("eager",))
    for text in ("a[::-1]", "np.flip(a)", "np.broadcast_to(a[0], (2, 4))", "np.diag(a)", "a.strides", "np.histogram(a, 3)", "np.sum(a, where=a > 0)", "np.add(a, 1, dtype='f4')",
                 "a[0, :, None][:, [0]]", "a[0, :][a[0] > 0]", "a.sum(initial=2)", "max(a[0])", "np.delete(a, 0, axis=0)"):
        on_arrays(eval("lambda a: " + text, {"np": np, "taper": taper}), lambda: (a.copy(),), backends=("eager",), full=False)


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
