"""Out of memory for storage: every row of the op table is called with its first allocation failing, then its second,
and so on until a call needs no more. Each failure is an ordinary error; nothing is leaked and inputs stay what they
were. In-place and out= forms, forward with backward, and compiled functions likewise."""
import gc

import taper
import test_grad_table as table
from taper import _C, nn
from test_grad_table import INP, MUT, call_of, cplx, ints, mask, params, rnd, square

i64 = lambda *s: taper.randint(0, 2, s)  # noqa: E731
M = [True, True, True]
CTC = ints(1, 2, 1, 1, shape=[2, 2]), [5, 5], [2, 2]  # targets, lengths
ctc = lambda: taper.log_softmax(rnd(5, 2, 3), -1)  # noqa: E731
SELF = {  # rows whose arguments cannot be guessed from the schema
    "count_nonzero.dim_IntList": lambda: (rnd(2, 3), [0, 1]), "item": lambda: (rnd(),), "_local_scalar_dense": lambda: (rnd(),),
    "squeeze_.dims": lambda: (rnd(1, 3), [0]), "unflatten.int": lambda: (rnd(6), 0, [2, 3]),
    "movedim.intlist": lambda: (rnd(2, 3), [0, 1], [1, 0]), "split.sizes": lambda: (rnd(4, 2), [1, 3]),
    "meshgrid.indexing": lambda: ([rnd(2), rnd(3)], "xy"),
    "scatter.reduce": lambda: (rnd(2, 3), 0, i64(2, 3), rnd(2, 3), "add"),
    "scatter.value_reduce": lambda: (rnd(2, 3), 0, i64(2, 3), 2.0, "multiply"),
    "index_reduce": lambda: (rnd(2, 3), 0, i64(2), rnd(2, 3), "mean"),
    "addbmm": lambda: (rnd(2, 3), rnd(4, 2, 5), rnd(4, 5, 3)), "bilinear": lambda: (rnd(2, 3), rnd(2, 4), rnd(5, 3, 4)),
    "einsum": lambda: ("ij,jk->ik", [rnd(2, 3), rnd(3, 4)]), "tensordot": lambda: (rnd(2, 3), rnd(3, 2), [1], [0]),
    "linalg_lu_solve": lambda: (*taper.linalg.lu_factor(square(3).detach()), rnd(3, 2)),
    "linalg_ldl_solve": lambda: (*taper.linalg.ldl_factor(square(3).detach()), rnd(3, 2)),
    "narrow.Tensor": lambda: (rnd(4), 0, taper.tensor(1), 2),
    "linalg_norm.ord_str": lambda: (rnd(2, 3), "nuc"), "linalg_cond.p_str": lambda: (square(3), "fro"),
    "conv_transpose1d": lambda: (rnd(1, 2, 4), rnd(2, 3, 2)), "conv2d": lambda: (rnd(1, 2, 4, 4), rnd(3, 2, 2, 2)),
    "conv2d.padding": lambda: (rnd(1, 2, 4, 4), rnd(3, 2, 3, 3), None, 1, "same"),
    "conv_transpose2d.input": lambda: (rnd(1, 2, 3, 3), rnd(2, 3, 2, 2)),
    "conv3d": lambda: (rnd(1, 2, 3, 3, 3), rnd(3, 2, 2, 2, 2)),
    "conv3d.padding": lambda: (rnd(1, 2, 3, 3, 3), rnd(3, 2, 3, 3, 3), None, 1, "same"),
    "conv_transpose3d.input": lambda: (rnd(1, 2, 2, 2, 2), rnd(2, 3, 2, 2, 2)),
    "_flash_attention": lambda: (rnd(1, 2, 3, 4), rnd(1, 1, 5, 4), rnd(1, 1, 5, 4), None, None, 0.0, True, 0.5),
    "_flash_grad_query": lambda: (*(rnd(1, 1, 3, 4) for _ in range(4)), None, None, 0.0, True, 0.5, rnd(2, 1, 1, 3), rnd(1, 1, 3, 4)),
    "_flash_grad_key": lambda: (*(rnd(1, 1, 3, 4) for _ in range(4)), None, None, 0.0, True, 0.5, rnd(2, 1, 1, 3), rnd(1, 1, 3, 2)),
    "_conv_forward": lambda: (rnd(1, 2, 4, 4), rnd(3, 2, 2, 2), [1, 1], [0, 0], [1, 1], 1),
    "_conv_grad_input": lambda: (rnd(1, 3, 3, 3), rnd(3, 2, 2, 2), [1, 2, 4, 4], [1, 1], [0, 0], [1, 1], 1),
    "_conv_grad_weight": lambda: (rnd(1, 3, 3, 3), rnd(1, 2, 4, 4), [3, 2, 2, 2], [1, 1], [0, 0], [1, 1], 1),
    "max_pool3d": lambda: (rnd(1, 2, 4, 4, 4), [2, 2, 2]),
    "_rng_reserve": lambda: (3,), "_bmm_wide": lambda: (rnd(2, 3, 4), rnd(2, 4, 3)),
    "_philox_uniform": lambda: (i64(2), [2, 3], taper.float32), "_philox_normal": lambda: (i64(2), [2, 3], taper.float64),
    "_philox_int": lambda: (i64(2), [2, 3], 1, 5, 0, taper.int64),
    "_check_probability": lambda: (rnd(2, 3).sigmoid(),),
    "_assert_async": lambda: (taper.tensor(True),), "imag": lambda: (cplx(2, 3),),
    "linear_dynamic_int8": lambda: (taper.randn(2, 8), i64(3, 8).to(taper.int8), taper.rand(3)),
    "_cum_extreme": lambda: (rnd(2, 3), 1, True), "_cum_place": lambda: (rnd(2, 3), 0, False),
    "_max_pool2d_with_offsets": lambda: (rnd(1, 2, 4, 4), [2, 2]),
    "_max_pool2d_offsets_backward": lambda: (rnd(1, 2, 2, 2), i64(1, 2, 2, 2).to(taper.int8), [1, 2, 4, 4], [2, 2]),
    "max_pool2d_with_indices_backward": lambda: (rnd(1, 2, 2, 2), rnd(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False,
                                                 i64(1, 2, 2, 2)),
    "max_pool3d_with_indices_backward": lambda: (rnd(1, 2, 2, 2, 2), rnd(1, 2, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, [1] * 3,
                                                 False, taper.tensor([0, 2, 8, 10, 32, 34, 40, 42]).view(1, 1, 2, 2, 2).expand(1, 2, 2, 2, 2).clone()),
    "adaptive_avg_pool2d": lambda: (rnd(1, 2, 4, 4), [2, 2]), "adaptive_avg_pool3d": lambda: (rnd(1, 2, 4, 4, 4), [2, 2, 2]),
    "adaptive_max_pool2d_backward": lambda: (rnd(1, 2, 2, 2), rnd(1, 2, 4, 4), i64(1, 2, 2, 2)),
    "adaptive_max_pool3d_backward": lambda: (rnd(1, 2, 2, 2, 2), rnd(1, 2, 4, 4, 4), i64(1, 2, 2, 2, 2)),
    "native_layer_norm_backward": lambda: (rnd(2, 3), rnd(2, 3), [3], rnd(2, 1), rnd(2, 1), rnd(3), rnd(3), M),
    "native_group_norm_backward": lambda: (rnd(2, 4, 3), rnd(2, 4, 3), rnd(2, 2), rnd(2, 2), rnd(4), 2, 4, 3, 2, M),
    "native_batch_norm_backward": lambda: (rnd(2, 3, 4), rnd(2, 3, 4), rnd(3), rnd(3), rnd(3, lo=.5, hi=1), rnd(3), rnd(3),
                                           True, 1e-5, M),
    "batch_norm": lambda: (rnd(2, 3, 4), rnd(3), rnd(3), rnd(3).detach(), rnd(3).detach(), True, 0.1, 1e-5, False),
    "instance_norm": lambda: (rnd(2, 3, 4), rnd(3), rnd(3), rnd(3).detach(), rnd(3).detach(), True, 0.1, 1e-5, False),
    "grid_sampler_2d": lambda: (rnd(1, 2, 3, 3), rnd(1, 2, 2, 2), 0, 0, False),
    "grid_sampler": lambda: (rnd(1, 2, 3, 3), rnd(1, 2, 2, 2), 0, 0, False),
    "grid_sampler_2d_backward": lambda: (rnd(1, 2, 2, 2), rnd(1, 2, 3, 3), rnd(1, 2, 2, 2), 0, 0, False, [True, True]),
    "affine_grid_generator": lambda: (rnd(1, 2, 3), [1, 2, 3, 3], False),
    "nll_loss": lambda: (rnd(3, 2), i64(3)), "nll_loss2d": lambda: (rnd(2, 2, 3, 3), i64(2, 3, 3)),
    "nll_loss_nd": lambda: (rnd(3, 2), i64(3)),
    "binary_cross_entropy_backward": lambda: (rnd(), rnd(2, 3, lo=.2, hi=.8), rnd(2, 3, lo=.2, hi=.8)),
    "prelu": lambda: (rnd(2, 3), rnd(3)), "empty_permuted": lambda: ([2, 3], [1, 0]), "fill_.Tensor": lambda: (rnd(2), rnd()),
    "randint.low": lambda: (0, 5, [3]), "randint_like.low_dtype": lambda: (rnd(2), 0, 5),
    "_lu_permutation": lambda: (taper.linalg.lu_factor(square(3).detach())[1], 3),
    "lu_unpack": lambda: taper.linalg.lu_factor(square(3).detach()),
    "lu_solve": lambda: (rnd(3, 2), *taper.linalg.lu_factor(square(3).detach())),
    "linalg_householder_product": lambda: (rnd(4, 2), rnd(2)), "orgqr": lambda: (rnd(4, 2), rnd(2)),
    "ormqr": lambda: (rnd(4, 2), rnd(2), rnd(4, 3)), "linalg_tensorinv": lambda: (square(4).view(2, 2, 4), 2),
    "linalg_tensorsolve": lambda: (square(4).view(2, 2, 4), rnd(2, 2)),
    "linalg_pinv.rcond_tensor": lambda: (rnd(3, 2), rnd(lo=.001, hi=.01)),
    "grid_sampler_3d_backward": lambda: (rnd(1, 2, 2, 2, 2), rnd(1, 2, 3, 3, 3), rnd(1, 2, 2, 2, 3), 0, 0, False, [True, True]),
    "multi_margin_loss": lambda: (rnd(3, 2), i64(3)),
    "_ctc_loss": lambda: (ctc(), *CTC),
    "_ctc_loss_backward": lambda: (rnd(2), ctc(), *CTC, *taper._C._call("_ctc_loss", ctc(), *CTC), 0),
    "ctc_loss.IntList": lambda: (ctc(), *CTC), "ctc_loss.Tensor": lambda: (ctc(), CTC[0], ints(5, 5), ints(2, 2)),
    "max_unpool2d": lambda: (rnd(1, 2, 2, 2), ints(0, 3, 8, 11, 0, 3, 8, 11, shape=[1, 2, 2, 2]), [4, 4]),
    "max_unpool3d": lambda: (rnd(1, 1, 1, 2, 2), ints(0, 3, 8, 11, shape=[1, 1, 1, 2, 2]), [2, 4, 4], [2, 2, 2], [0, 0, 0]),
    "_fractional_places": lambda: (rnd(1, 2, 5, 5), [2, 2], [2, 2], rnd(1, 2, 2, lo=.1, hi=.9)),
    "fractional_max_pool2d": lambda: (rnd(1, 2, 5, 5), [2, 2], [2, 2], rnd(1, 2, 2, lo=.1, hi=.9)),
    "fractional_max_pool3d": lambda: (rnd(1, 2, 5, 5, 5), [2, 2, 2], [2, 2, 2], rnd(1, 2, 3, lo=.1, hi=.9)),
    "cosine_embedding_loss": lambda: (rnd(2, 3), rnd(2, 3), ints(1, -1)),
    "quantile": lambda: (rnd(3, 4), rnd(2, lo=.1, hi=.9), 1), "nanquantile": lambda: (rnd(3, 4), rnd(2, lo=.1, hi=.9), 1), "multinomial": lambda: (rnd(2, 3, lo=.1, hi=.9), 2),
    "bernoulli": lambda: (rnd(3, lo=.1, hi=.9),), "random_.from": lambda: (rnd(3), 0, 5),
}
GUESS = {"Scalar": 2, "float": 0.5, "bool": False, "str": "sum", "int[]": [2, 3], "SymInt[]": [2, 3], "int[1]": [1],
         "SymInt[1]": [2], "int[2]": [1, 1], "ScalarType": taper.float64}
TENSORS = [lambda: rnd(2, 3), lambda: ints(1, 0, 1, 1, 1, 0, shape=[2, 3]), lambda: mask(1, 3), lambda: square(3),
           lambda: rnd(3), lambda: ints(1, 0, 1), lambda: rnd(2, 3, 4)]


def detached(a):
    if isinstance(a, list):
        return [detached(v) for v in a]
    return a.detach().clone() if isinstance(a, taper.Tensor) else a


def guesses(schema):
    needed = [p for p in params(schema) if p[2] is None]
    for tensor in TENSORS:
        for number in (1, 0, 2):
            def one(t, tensor=tensor, number=number):
                return (tensor() if t == "Tensor" else [tensor(), tensor()] if t == "Tensor[]" else number
                        if t in ("int", "SymInt") else GUESS[t] if t in GUESS else [1] if t.startswith(("int[", "SymInt["))
                        else None)
            yield lambda one=one: tuple(one(p[0]) for p in needed)


def samples(row):
    """Pairs of a function that makes arguments for the row and the call that takes them."""
    full, schema = row[:2]
    call = call_of(full, schema)
    needed = {p[1] for p in params(schema) if p[2] is None}
    short = call_of(full, "f(" + ", ".join(("*, " if p[3] and i == first_kw(schema) else "") + f"{p[0]} {p[1]}"
                                           for i, p in enumerate(p for p in params(schema) if p[1] in needed)) + ") -> x")
    if full in SELF:
        return [(SELF[full], call)]
    found = []
    for make, fn in [(lambda c=c: c, call) for c in (table.examples(row) or [])[:4]] + [(g, short) for g in guesses(schema)]:
        if fn is short and found:
            break
        try:
            args = make()
            fn(*detached(list(args)))
            found.append((lambda args=args: args, fn))
            if fn is short:
                break
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
    return found


def first_kw(schema):
    needed = [p for p in params(schema) if p[2] is None]
    return next((i for i, p in enumerate(needed) if p[3]), -1)


def tensors(args):
    for a in args:
        if isinstance(a, taper.Tensor):
            yield a
        elif isinstance(a, list):
            yield from tensors(a)


def image(t):
    return tuple(t.shape), t.stride(), t.dtype, repr(t.tolist())


def sweep(name, make, call, writes=False, most=400):
    """How many allocations the call makes; each of them made to fail once."""
    for n in range(1, most):
        args = make()
        given = list(tensors(args))
        before = [image(t) for t in given]
        gc.collect(0)
        live = _C._memory()[0]
        _C._fail_allocation(n)
        failed = None
        try:
            out = call(*args)
        except (RuntimeError, SystemError) as e:
            failed = f"{type(e).__name__}: {e}"
        finally:
            left = _C._fail_allocation(0)
        if failed is None:
            out = None  # noqa: F841
            if left:
                return n - 1
        else:
            assert "not enough memory: you tried to allocate" in failed, f"{name}, allocation {n}: {failed}"
            assert not left, f"{name}: failed before the allocation did: {failed}"
        now = [image(t) for t in given]
        if not writes:
            assert now == before, f"{name}, allocation {n}: an input changed"
            assert _C._memory()[0] == live, f"{name}, allocation {n}: {_C._memory()[0] - live} bytes leaked"
        out = args = given = None
    raise AssertionError(f"{name} never ended")


def test_every_row():
    table.gen.manual_seed(5)
    missing, bad, total, rows = [], [], 0, 0
    for row in _C._schemas():
        found = samples(row)
        if not found:
            missing.append(row[0])
        writes = bool(row[3] & MUT) or row[0].split(".")[0].endswith("_") or row[0] in ("batch_norm", "instance_norm")
        for make, call in found:
            fixed = detached(list(make()))
            try:
                total += sweep(row[0], (lambda: detached(fixed)) if writes else (lambda: fixed), call, writes)
            except AssertionError as e:
                bad.append(str(e))
        rows += 1
    assert not missing, missing
    assert not bad, "\n".join(bad)
    assert rows > 600 and total > 900, (rows, total)


def test_in_place_twins():
    table.gen.manual_seed(6)
    n = 0
    for row in _C._schemas():
        if not row[3] & INP:
            continue
        name, dot, overload = row[0].partition(".")
        args = detached(list(samples(row)[0][0]()))
        names = [(p[1], p[3]) for p in params(row[1])]

        def twin(*a):
            pos = [v for v, (_, kw) in zip(a, names) if not kw]
            return _C._call(name + "_" + dot + overload, *pos, **{k: v for v, (k, kw) in zip(a, names) if kw})
        try:
            twin(*detached(args))
        except (RuntimeError, TypeError, IndexError):
            continue
        before = [tuple(t.shape) for t in tensors(args)]
        kept = detached(args)
        sweep(name + "_", lambda: (kept.clear(), kept.extend(detached(args)), kept)[2], twin, writes=True)
        assert [tuple(t.shape) for t in tensors(kept)] == before
        n += 1
    assert n > 100, n


def test_nothing_leaks_in_place():
    x, y = rnd(4, 4).detach(), rnd(4, 4).detach()
    for call in (lambda: x.add_(y.t()), lambda: x.copy_(x.t()), lambda: x.index_put_((ints(0, 1),), y[:2]),
                 lambda: x.__setitem__(x > 0, 1.0), lambda: x.scatter_(0, ints(0, 1, shape=[1, 2]), y),
                 lambda: taper.mm(x, y, out=x.new_empty(0)), lambda: taper.sort(x, out=(x.new_empty(0), ints(0)))):
        sweep("in place", lambda: (), call)


def test_forward_and_backward():
    taper.manual_seed(0)
    x = taper.randn(2, 3, 8, 8)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    att = nn.MultiheadAttention(8, 2)
    rnn = nn.LSTM(4, 5)
    s = taper.randn(3, 2, 8)

    def conv():
        nn.functional.cross_entropy(net(x), ints(0, 1)).backward()

    def attention():
        att(s, s, s)[0].square().mean().backward()

    def loop():
        rnn(s[:, :, :4])[0].sum().backward()

    def second():
        a = taper.ones(3, requires_grad=True)
        g, = taper.autograd.grad((a ** 3).sum(), a, create_graph=True)
        g.sum().backward()
    for name, fn, module in (("conv", conv, net), ("attention", attention, att), ("loop", loop, rnn), ("second", second, None)):
        def call():
            if module:
                module.zero_grad()
            fn()
        call()
        if module:
            module.zero_grad()
        live = _C._memory()[0]
        n = sweep(name, lambda: (), call, writes=True)
        if module:
            module.zero_grad()
        gc.collect()
        assert _C._memory()[0] == live, (name, _C._memory()[0] - live)
        assert n > 5, (name, n)
        call()  # still works


def test_compiled():
    x = taper.randn(4, 5, requires_grad=True)

    @taper.compile
    def f(x):
        return (taper.softmax(x.sin() * 2, -1) @ x.t()).sum()
    f(x).backward()
    x.grad = None
    gc.collect()
    live = _C._memory()[0]

    def call():
        x.grad = None
        f(x).backward()
    assert sweep("compiled", lambda: (), call, writes=True) > 2
    x.grad = None
    gc.collect()
    assert _C._memory()[0] == live


if __name__ == "__main__":
    test_every_row()
