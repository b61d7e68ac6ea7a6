"""vmap: one call for all elements of a batch, against the same function called for each element."""
import re

import taper
import taper.utils.checkpoint
from taper._op_examples import EXAMPLES
from taper.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from taper.utils import _pytree as pytree

RANDOM = ("rand", "normal", "dropout", "bernoulli", "uniform", "exponential", "cauchy", "geometric", "multinomial", "poisson", "rrelu", "empty")
# Sizes and strides of the memory are part of the call: elements of a batch lie there otherwise than alone.
OF_MEMORY = ("as_strided", "as_strided_", "as_strided_scatter", "view_as_complex")


def raises(kind, words, f):
    try:
        f()
    except kind as e:
        assert words in str(e), str(e)
        return
    raise AssertionError("no error")


def loop(f, *args, dims=None):
    """f for each element along the first dimension (or where dims says), its results stacked."""
    dims = dims or (0,) * len(args)
    n = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    outs = [pytree.tree_flatten(f(*[a if d is None else a.select(d, i) for a, d in zip(args, dims)])) for i in range(n)]
    return pytree.tree_unflatten([taper.stack(list(c)) for c in zip(*[o[0] for o in outs])], outs[0][1])


def close(a, b, tol=1e-4):
    a, b = pytree.tree_leaves(a), pytree.tree_leaves(b)
    assert len(a) == len(b)
    for p, q in zip(a, b):
        if p.shape != q.shape or p.dtype != q.dtype:
            return False
        if p.is_complex():
            p, q = taper.view_as_real(p.resolve_conj()), taper.view_as_real(q.resolve_conj())
        if not taper.allclose(p.double(), q.double(), rtol=tol, atol=tol / 10, equal_nan=True):
            return False
    return True


def calls():
    """(name, expression, its tensors by name) of the examples of all operators whose results are tensors."""
    for name, text in EXAMPLES.items():
        lines = [s[4:] for s in text.split("\n") if s.startswith(">>> ")]
        env = {"taper": taper}
        for s in lines[:-1]:
            exec(s, env)
        tensors = {k: v for k, v in env.items() if isinstance(v, taper.Tensor) and re.search(rf"\b{k}\b", lines[-1])}
        try:
            out = pytree.tree_leaves(eval(lines[-1], dict(env, **{k: v.clone() for k, v in tensors.items()})))
        except Exception:  # examples of errors
            continue
        if tensors and out and all(isinstance(t, taper.Tensor) for t in out):
            yield name.split(".")[-1], lines[-1], tensors


def varied(t, k):
    return t * (1 - 0.07 * k) + 0.013 * k if t.is_floating_point() or t.is_complex() else t.clone()


def test_every_operator_takes_a_batch():
    wrong, compared, refused = [], 0, set()
    for name, text, tensors in calls():
        if name in OF_MEMORY:
            continue
        for some in [list(tensors)] + ([[k] for k in tensors] if len(tensors) > 1 else []):
            one = lambda *ts: eval(text, {"taper": taper, **{k: v.clone() for k, v in tensors.items()}, **dict(zip(some, ts))})
            alone = [[varied(tensors[k], i) for k in some] for i in range(3)]
            try:
                want = [one(*[t.clone() for t in ts]) for ts in alone]
            except Exception:
                continue
            for dim in (0, -1):
                batch = [taper.stack([ts[i] for ts in alone], dim) for i in range(len(some))]
                try:
                    got = vmap(one, in_dims=dim, randomness="different")(*batch)
                except RuntimeError as e:
                    assert "the same for all" in str(e) or "depends on" in str(e), (name, some, dim, str(e))
                    refused.add(name)
                    continue
                compared += 1
                for i in range(3):
                    mine = pytree.tree_map(lambda t: t[i], got)
                    same = [t.shape for t in pytree.tree_leaves(mine)] == [t.shape for t in pytree.tree_leaves(want[i])] if any(s in name for s in RANDOM) else close(mine, want[i])
                    if not same:
                        wrong.append((name, some, dim))
    assert not wrong, wrong
    assert compared > 1800, compared
    assert all(n.endswith("_") or n in ("masked_select", "one_hot") for n in refused), refused


def differentiable():
    for name, text, tensors in calls():
        if "x" not in tensors or not tensors["x"].is_floating_point() or name.endswith("_") or name in OF_MEMORY or any(s in name for s in RANDOM):
            continue
        rest = {k: v for k, v in tensors.items() if k != "x"}
        def total(x, text=text, rest=rest):
            out = [t for t in pytree.tree_leaves(eval(text, {"taper": taper, **rest, "x": x})) if t.is_floating_point()]
            return sum((t * t).sum() for t in out)
        batch = taper.stack([varied(tensors["x"], i) for i in range(3)])
        try:
            want = loop(grad(total), batch)
        except Exception:  # no derivative
            continue
        yield name, total, batch, want


def test_gradients_inside_and_outside_of_every_operator():
    wrong, n = [], 0
    for name, total, batch, want in differentiable():
        n += 1
        if not close(vmap(grad(total))(batch), want):
            wrong.append((name, "inside"))
        x = batch.clone().requires_grad_()
        out = vmap(total)(x)
        if out.requires_grad:
            out.sum().backward()
        if not close(taper.zeros_like(x) if x.grad is None else x.grad, want):
            wrong.append((name, "outside"))
    assert not wrong, wrong
    assert n > 300, n


def test_compiled():
    x, w = taper.randn(5, 4), taper.randn(4, 3)
    net = taper.nn.Sequential(taper.nn.Conv2d(1, 4, 3), taper.nn.ReLU(), taper.nn.MaxPool2d(2), taper.nn.Flatten(), taper.nn.Linear(4, 2))
    params = {k: v.detach() for k, v in net.named_parameters()}
    images = taper.randn(6, 1, 1, 5, 5)
    for f, args in ((lambda a: vmap(lambda r: r.softmax(0) @ r)(a), (x,)), (lambda a: vmap(vmap(taper.sin))(a), (x,)),
                    (lambda a: vmap(lambda r: (r @ w).tanh(), out_dims=1)(a), (x,)), (lambda a: vmap(hessian(lambda r: (r ** 3).sum()))(a), (x,)),
                    (lambda a: jacrev(lambda r: r.cumsum(0).sin())(a[0]), (x,)), (lambda a: vmap(lambda r, q: r[q.argmax()] + q)(a, a), (x,)),
                    (lambda a: vmap(grad(lambda p, q: functional_call(net, p, (q,)).square().sum()), in_dims=(None, 0))(params, a)["0.weight"], (images,))):
        want = f(*args)
        for backend in ("eager", "aot_eager", "inductor"):
            c = taper.compile(f, backend=backend, fullgraph=True)
            for _ in range(2):
                assert close(c(*args), want), backend


def test_compiled_sizes_change():
    c = taper.compile(lambda a: vmap(lambda r: (r * r).sum() + r)(a), fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x = taper.randn(n, 4)
        assert close(c(x), (x * x).sum(1, keepdim=True) + x)


def test_one_call_for_all():
    seen = []
    def f(a):
        seen.append(tuple(a.shape))
        return a.sin()
    x = taper.randn(1000, 3)
    assert close(vmap(f)(x), x.sin()) and seen == [(3,)]
    del seen[:]
    assert close(vmap(f, chunk_size=300)(x), x.sin()) and len(seen) == 4
    assert close(vmap(f, chunk_size=300, out_dims=1)(x), x.sin().t())
    y = taper.compile(lambda a: vmap(taper.sin)(a))(x)
    assert close(y, x.sin())


def test_dimensions_and_trees():
    x, y = taper.randn(2, 3, 4), taper.randn(4, 5)
    assert vmap(lambda a: a, in_dims=2, out_dims=1)(x).equal(x.permute(0, 2, 1))
    assert vmap(lambda a: a, in_dims=-1, out_dims=-1)(x).equal(x)
    a, (b, c) = vmap(lambda d, k: (d["p"] + d["q"][0], (k, d["p"].sum())), in_dims=({"p": 0, "q": [None]}, None), out_dims=(1, (None, 0)))({"p": x, "q": [taper.ones(4)]}, y)
    assert a.shape == (3, 2, 4) and b is not None and b.equal(y) and c.shape == (2,)
    assert vmap(lambda r: taper.ones(2))(x).equal(taper.ones(2, 2))
    assert close(vmap(vmap(lambda r, q: r @ q, in_dims=(0, None)), in_dims=(0, None))(x, y), x @ y)
    assert close(vmap(lambda r: vmap(lambda q: (r * q).sum())(x[0]))(x[1]), x[1] @ x[0].t())
    raises(ValueError, "out_dim is None", lambda: vmap(lambda r: r, out_dims=None)(x))
    raises(ValueError, "must only return Tensors", lambda: vmap(lambda r: r.shape[0])(x))
    raises(ValueError, "chunk_size", lambda: vmap(taper.sin, chunk_size=0))
    raises(ValueError, "chunk_size", lambda: jacrev(taper.sin, chunk_size=0))


def test_views_of_elements():
    x = taper.randn(5, 4, 6)
    for f in (lambda a: a.t(), lambda a: a[1:, ::2], lambda a: a[2], lambda a: a.reshape(2, 12)[1], lambda a: a.unsqueeze(1).expand(4, 3, 6), lambda a: a.diagonal(), lambda a: a.unfold(1, 3, 2),
              lambda a: a.t().reshape(-1), lambda a: a.view(24)[3:9], lambda a: a.flatten().view(3, 8).t(), lambda a: a.chunk(2)[1], lambda a: a.movedim(0, 1)[..., None].squeeze(-1)):
        assert close(vmap(f)(x), loop(f, x))
        p, q = x.clone().requires_grad_(), x.clone().requires_grad_()
        vmap(f)(p).square().sum().backward()
        loop(f, q).square().sum().backward()
        assert close(p.grad, q.grad)
        assert close(taper.compile(lambda t: vmap(f)(t).square(), fullgraph=True)(x), loop(f, x).square())


def test_writes():
    def f(a):
        b = a.clone()
        b[0] = 5
        b[1:].mul_(2).add_(a[:2])
        b.t().index_add_(0, taper.tensor([0]), taper.ones(1))if b.dim() == 2 else b.add_(1)
        return b
    x = taper.randn(4, 3)
    assert close(vmap(f)(x), loop(f, x))
    y = x.clone()
    vmap(lambda a: a.zero_(), in_dims=1)(y)
    assert y.count_nonzero() == 0
    z = x.clone().requires_grad_()
    vmap(f)(z).square().sum().backward()
    w = x.clone().requires_grad_()
    loop(f, w).square().sum().backward()
    assert close(z.grad, w.grad)
    t = taper.zeros(3)
    raises(RuntimeError, "the same for all of them", lambda: vmap(lambda a: t.add_(a))(x))
    raises(RuntimeError, "the same for all of them", lambda: vmap(lambda a: t.copy_(a))(x))


def test_gradients_of_each_sample():
    net = taper.nn.Sequential(taper.nn.Linear(6, 8), taper.nn.LayerNorm(8), taper.nn.GELU(), taper.nn.Linear(8, 3))
    p = {k: v.detach() for k, v in net.named_parameters()}
    x, y = taper.randn(7, 6), taper.randint(0, 3, (7,))
    loss = lambda p, a, b: taper.nn.functional.cross_entropy(functional_call(net, p, (a[None],)), b[None])
    got = vmap(grad(loss), in_dims=(None, 0, 0))(p, x, y)
    for i in range(7):
        net.zero_grad()
        taper.nn.functional.cross_entropy(net(x[i:i + 1]), y[i:i + 1]).backward()
        assert all(close(got[k][i], v.grad) for k, v in net.named_parameters())
    assert not any(g.requires_grad for g in got.values())


def test_outside_and_inside_together():
    x, w = taper.randn(5, 3), taper.randn(3, requires_grad=True)
    def penalty(w):
        g = vmap(grad(lambda a: (a * w).sin().sum()))(x)
        return g.square().sum()
    penalty(w).backward()
    want, = taper.autograd.grad(((x * w).cos() * w).square().sum(), w)
    assert close(w.grad, want)
    assert close(jacrev(lambda w: vmap(lambda a: (a * w).sum())(x))(w.detach()), x)
    assert close(vmap(lambda a: vjp(taper.sin, a)[1](taper.ones(3))[0])(x), x.cos())
    assert close(vmap(lambda a: jvp(taper.sin, (a,), (a,))[1])(x), x.cos() * x)
    assert close(vmap(jacfwd(taper.sin))(x), taper.diag_embed(x.cos()))
    assert close(vmap(grad(lambda a: grad(lambda b: (b ** 3).sum())(a).sum()))(x), 6 * x)
    assert close(jacrev(lambda a: a.sin().cumsum(0), chunk_size=2)(x[0]), jacrev(lambda a: a.sin().cumsum(0))(x[0]))
    with taper.no_grad():
        assert not vmap(lambda a: a * w)(x).requires_grad


def test_random_numbers():
    x = taper.zeros(6)
    for draw in (lambda a: a + taper.rand(()), lambda a: a + taper.randn(2)[0], lambda a: a + taper.rand_like(a), lambda a: a.clone().uniform_(), lambda a: taper.nn.functional.dropout(a + 1, 0.5) + taper.rand(()),
                 lambda a: a + taper.randperm(1000)[0], lambda a: a + taper.normal(a, 1.0), lambda a: a + taper.bernoulli(a + 0.5) + taper.rand(())):
        raises(RuntimeError, "randomness error mode", lambda: vmap(draw)(x))
        assert len(set(vmap(draw, randomness="different")(x).tolist())) > 1
    for draw in (lambda a: a + taper.rand(()), lambda a: a + taper.rand_like(a), lambda a: a.clone().uniform_(), lambda a: a + taper.randperm(1000)[0]):
        assert len(set(vmap(draw, randomness="same")(x).tolist())) == 1
    raises(RuntimeError, "randomness='different'", lambda: vmap(lambda a: taper.normal(a, 1.0), randomness="same")(x))
    t = taper.zeros(3)
    raises(RuntimeError, "the same for all elements", lambda: vmap(lambda a: t.uniform_() + a, randomness="different")(x))
    same = taper.vmap(lambda a: vmap(lambda b: taper.rand(()) + 0 * b, randomness="same")(taper.zeros(4)) + 0 * a, randomness="different")(x)
    assert all(len(set(r)) == 1 for r in same.tolist()) and len({r[0] for r in same.tolist()}) > 1


def test_a_function_that_reads_data_runs_for_each_element():
    x = taper.randn(6, 3)
    def rows():
        return [r for r in taper.compiler.ledger() if (r.reason or '').startswith('vmap, once for each element')]
    before = len(rows())
    f = lambda a: a if a.sum() > 0 else -a
    assert close(vmap(f)(x), loop(f, x))
    assert close(vmap(lambda a: a * a[0].item())(x), x * x[:, :1])
    assert close(vmap(lambda a: a.nonzero().sum() + a)(taper.ones(2, 3)), taper.full((2, 3), 4.0))
    assert close(vmap(lambda a: vmap(lambda b: b * float(b))(a))(x), x * x)
    found = rows()[before:]
    assert len(found) == 5 and all(r.file == __file__ and r.native_runs in (2, 6, 18) for r in found), found
    assert "item()" in found[1].reason and "nonzero" in found[2].reason and taper._C._batch_level() == 0
    vmap(lambda a: taper.histc(a, 3))(x)
    assert [r.native_runs for r in rows() if r.function == "histc"][0] >= 6
    raises(ZeroDivisionError, "division", lambda: vmap(lambda a: a * (1 // 0))(x))
    assert taper._C._batch_level() == 0


def test_a_compiled_function_inside():
    c = taper.compile(lambda a: (a.sin() * a).sum())
    x = taper.randn(4, 3)
    assert close(vmap(c)(x), (x.sin() * x).sum(1))
    c(x[0])
    assert close(vmap(c)(x), (x.sin() * x).sum(1))
    assert close(vmap(grad(c))(x), x.sin() + x * x.cos())


def test_how_an_element_prints():
    seen = []
    vmap(lambda a: (seen.append(repr(a)), a)[1])(taper.ones(2, 3))
    assert seen[0].startswith("BatchedTensor(") and "(3,)" in seen[0], seen


class Cubed(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 5 * x  # not the derivative of forward: it can be seen which one was taken


def test_functions_with_a_backward_of_their_own():
    x = taper.randn(4, 3)
    assert close(vmap(Cubed.apply)(x), x * x)
    assert close(vmap(grad(lambda a: Cubed.apply(a).sum()))(x), 5 * x)
    for f in (lambda a: vmap(Cubed.apply)(a), taper.compile(lambda a: vmap(Cubed.apply)(a))):
        y = x.clone().requires_grad_()
        f(y).sum().backward()
        assert close(y.grad, 5 * x)


@taper.library.custom_op("vmaptests::twice", mutates_args=())
def twice(x: taper.Tensor) -> taper.Tensor:
    return taper.from_numpy(x.numpy() * 2)


@twice.register_fake
def _(x):
    return taper.empty_like(x)


def test_what_only_knows_arrays():
    x = taper.randn(4, 3)
    assert close(vmap(lambda a: twice(a) + 1)(x), x * 2 + 1)
    assert close(vmap(lambda a: taper.from_numpy(a.numpy() * 2))(x), x * 2)
    assert close(vmap(lambda a: taper.utils.checkpoint.checkpoint(taper.sin, a, use_reentrant=False))(x), x.sin())
    y = x.clone().requires_grad_()
    vmap(lambda a: taper.utils.checkpoint.checkpoint(lambda b: b.sin() * b, a, use_reentrant=False))(y).sum().backward()
    assert close(y.grad, x.sin() + x * x.cos())


def test_named_results_are_containers():
    x = taper.randn(4, 3)
    r = taper.utils._pytree.tree_map(lambda t: t + 1, x.max(0))
    assert type(r).__name__ == "max" and r.indices.equal(x.max(0).indices + 1)
    for f in (lambda a: a.max(0), lambda a: a.sort(descending=True), lambda a: taper.linalg.slogdet(a.diag() + taper.eye(3)), lambda a: taper.aminmax(a)):
        got, want = vmap(f)(x), [f(r) for r in x]
        assert type(got) is type(want[0])
        assert all(close(list(g[i] for g in got), list(w)) for i, w in enumerate(want))
    got = taper.compile(lambda a: vmap(lambda r: r.topk(2))(a), fullgraph=True)(x)
    assert got.values.equal(x.topk(2).values)


def test_products():
    a, b, v, u = taper.randn(4, 5, 3), taper.randn(4, 3, 6), taper.randn(4, 3), taper.randn(4, 1, 6)
    one = taper.randn(4, 5, 1)
    for dt, tol in ((taper.float32, 1e-4), (taper.float64, 1e-6), (taper.bfloat16, 0.3)):
        to = lambda *ts: [t.to(dt) for t in ts]
        for f, args in ((taper.mm, (a, b)), (taper.mm, (one, u)), (taper.mv, (a, v)), (taper.dot, (v, v)), (taper.matmul, (a, v)), (taper.outer, (v, v)),
                        (lambda p, q: taper.addmm(q.sum(0), p, q), (a, b)), (lambda p, q: taper.addmm(q[:1], p, q, beta=2, alpha=0.5), (a, b)), (lambda p, q: taper.addmv(p.sum(1), p, q), (a, v))):
            args = to(*args)
            for dims in ((0, 0), (0, None), (None, 0)):
                some = [t if d == 0 else t[0] for t, d in zip(args, dims)]
                assert close(vmap(f, in_dims=dims)(*some), loop(f, *some, dims=dims), tol), (f, dims, dt)


def test_elements_stay_within_their_memory():
    x = taper.arange(12.0).view(4, 3)
    assert vmap(lambda a: a.as_strided((2,), (2,)))(x).tolist() == [[0, 2], [3, 5], [6, 8], [9, 11]]
    for f in (lambda a: a.as_strided((12,), (1,)), lambda a: a.as_strided((2,), (1,), 2), lambda a: a.clone().resize_(100), lambda a: a.clone().resize_as_(taper.ones(50))):
        raises(RuntimeError, "", lambda: vmap(f)(x))
    assert vmap(lambda a: a.clone().resize_(2))(x).equal(x[:, :2])
    assert vmap(lambda a: a.as_strided((3,), (1,)), in_dims=1)(taper.arange(12.0).view(3, 4)).shape == (4, 3)
    assert vmap(lambda a: a.expand(2, 3).clone())(x.expand(4, 3)).shape == (4, 2, 3)
    assert vmap(lambda a: a.sum())(taper.ones(1, 3).expand(5, 3)).tolist() == [3] * 5
