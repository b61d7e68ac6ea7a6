"""taper.func: derivatives of functions, batches of calls, modules as functions."""
import math

import taper
from taper.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap


def test_derivatives():
    x = taper.tensor(0.7)
    assert math.isclose(grad(taper.sin)(x).item(), math.cos(0.7), rel_tol=1e-6)
    assert math.isclose(grad(grad(taper.sin))(x).item(), -math.sin(0.7), rel_tol=1e-6)
    assert math.isclose(grad(grad(grad(taper.sin)))(x).item(), -math.cos(0.7), rel_tol=1e-6)
    g = grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(taper.ones(3), taper.arange(3.0))
    assert g[0].tolist() == [0, 1, 2] and g[1].tolist() == [1, 1, 1] and not g[0].requires_grad
    d = grad(lambda p: (p["w"] ** 2).sum() + p["b"])({"w": taper.tensor([3.0]), "b": taper.tensor(1.0)})
    assert d["w"].tolist() == [6.0] and d["b"].item() == 1.0
    g, (v, aux) = grad_and_value(lambda a: (a.sum(), a * 2), has_aux=True)(taper.ones(2))
    assert g.tolist() == [1, 1] and v.item() == 2 and aux.tolist() == [2, 2] and not v.requires_grad
    assert grad(lambda a, b: b.sum())(taper.ones(2), taper.ones(2)).tolist() == [0, 0]
    try:
        grad(lambda a: a * 2)(taper.ones(3))
    except RuntimeError as e:
        assert "scalar tensor, got tensor with 1 dims" in str(e)
    else:
        raise AssertionError("a vector has no gradient")


def test_what_lies_outside_keeps_its_graph():
    w = taper.tensor(3.0, requires_grad=True)
    g = grad(lambda x: w * x * x)(taper.tensor(2.0))
    assert g.requires_grad
    g.backward()
    assert w.grad.item() == 4.0
    with taper.no_grad():
        assert grad(lambda x: x * x)(taper.tensor(2.0)).item() == 4.0


def test_products_with_jacobians():
    x, v = taper.tensor([0.5, 1.0]), taper.tensor([1.0, 2.0])
    out, pull = vjp(lambda t: (t.sin(), t.sum()), x)
    (g,) = pull((v, taper.tensor(1.0)))
    assert taper.allclose(g, x.cos() * v + 1) and not out[0].requires_grad
    out, t = jvp(lambda a: a ** 3, (x,), (v,))
    assert taper.allclose(t, 3 * x ** 2 * v) and taper.allclose(out, x ** 3) and not t.requires_grad
    out, push = linearize(taper.sin, x)
    assert taper.allclose(push(v), x.cos() * v)
    j = jacrev(lambda a: taper.stack([a.sum(), (a * a).sum()]))(x)
    assert j.tolist() == [[1, 1], [1, 2]] and taper.equal(j, jacfwd(lambda a: taper.stack([a.sum(), (a * a).sum()]))(x))
    h = hessian(lambda a: (a ** 3).sum())(x)
    assert taper.allclose(h, taper.diag(6 * x))


def test_batches():
    x, y = taper.randn(4, 3), taper.randn(4, 3)
    assert taper.allclose(vmap(taper.dot)(x, y), (x * y).sum(1))
    assert taper.allclose(vmap(taper.mv, in_dims=(None, 0))(taper.ones(2, 3), x), x @ taper.ones(3, 2))
    assert vmap(lambda a: a, in_dims=1, out_dims=1)(x).equal(x)
    a, b = vmap(lambda d: (d["k"].sum(), d["k"] * 2), in_dims=({"k": 0},))({"k": x})
    assert a.shape == (4,) and b.equal(x * 2)
    per = vmap(grad(lambda w, r: (w * r).sum() ** 2), in_dims=(None, 0))(taper.ones(3), x)
    assert taper.allclose(per, 2 * x.sum(1, keepdim=True) * x, atol=1e-5)
    for fn, args in ((taper.add, (x, taper.ones(3, 3))), (taper.sum, ()), (taper.sin, (taper.tensor(1.0),))):
        try:
            vmap(fn)(*args)
        except ValueError:
            continue
        raise AssertionError(fn)


def test_random_numbers_in_batches():
    x = taper.zeros(5)
    try:
        vmap(lambda a: a + taper.rand(()))(x)
    except RuntimeError as e:
        assert "randomness error mode" in str(e)
    else:
        raise AssertionError("a draw was let through")
    same = vmap(lambda a: a + taper.rand(()), randomness="same")(x)
    assert len(set(same.tolist())) == 1
    assert len(set(vmap(lambda a: a + taper.rand(()), randomness="different")(x).tolist())) == 5


def test_modules_as_functions():
    nets = [taper.nn.Sequential(taper.nn.Linear(3, 4), taper.nn.BatchNorm1d(4)).eval() for _ in range(3)]
    x = taper.randn(2, 3)
    params, buffers = stack_module_state(nets)
    assert params["0.weight"].shape == (3, 4, 3) and params["0.weight"].requires_grad and buffers["1.running_mean"].shape == (3, 4)
    got = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(params, buffers)
    assert taper.allclose(got, taper.stack([n(x) for n in nets]), atol=1e-6)
    net = nets[0]
    before = net[0].weight
    loss = lambda p: functional_call(net, p, (x,)).sum()
    g = grad(loss)({k: v.detach() for k, v in net.named_parameters()})
    loss(dict(net.named_parameters())).backward()
    assert net[0].weight is before and taper.allclose(g["0.weight"], before.grad)
    tied = taper.nn.ModuleDict({"a": taper.nn.Linear(2, 2, bias=False)})
    tied["b"] = taper.nn.Linear(2, 2, bias=False)
    tied["b"].weight = tied["a"].weight
    tied.forward = lambda t: tied["b"](tied["a"](t))
    assert functional_call(tied, {"a.weight": taper.eye(2) * 2}, taper.ones(1, 2)).tolist() == [[4, 4]]


def test_rarer_optimisers_reach_the_bottom():
    for make in (lambda p: taper.optim.Rprop(p), lambda p: taper.optim.ASGD(p, lr=0.1), lambda p: taper.optim.Adafactor(p, lr=0.2)):
        w = taper.tensor([[3.0, -2.0], [1.0, 0.5]], requires_grad=True)
        opt = make([w])
        first = (w ** 2).sum().item()
        for _ in range(150):
            opt.zero_grad()
            (w ** 2).sum().backward()
            opt.step()
        assert (w ** 2).sum().item() < 0.05 * first, type(opt)
        again = make([w])
        again.load_state_dict(opt.state_dict())
        assert again.state_dict()["state"][0].keys() == opt.state_dict()["state"][0].keys()


def test_twins_and_names():
    x = taper.ones(2, 3)
    assert x.addr_(taper.ones(2), taper.ones(3)) is x and x.tolist() == [[2.0] * 3] * 2
    assert math.isclose(x.renorm_(2, 0, 1.0).norm(dim=1)[0].item(), 1, rel_tol=1e-5)
    assert taper.ones(2, 2).addbmm_(taper.ones(3, 2, 2), taper.ones(3, 2, 2)).tolist() == [[7.0] * 2] * 2
    assert math.isclose(taper.special.multigammaln(taper.tensor([4.0]), 1).item(), math.lgamma(4), rel_tol=1e-6)
    assert taper.special.expit(taper.tensor(0.0)).item() == 0.5 and taper.vmap is vmap


def test_how_things_print():
    assert str(taper.nn.LayerNorm(4, bias=False)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=False)"
    taper.set_printoptions(sci_mode=False)
    try:
        assert str(taper.tensor([1.0, -1e-9])) == "tensor([ 1.0000, -0.0000])"
    finally:
        taper.set_printoptions(sci_mode=None)
    try:
        taper.mvlgamma(taper.ones(1), 0)
    except RuntimeError as e:
        assert str(e) == "p has to be greater than or equal to 1"
    else:
        raise AssertionError("p of zero was taken")


def test_vmap_of_a_function_that_breaks_the_graph():
    def g(x):
        taper._dynamo.graph_break()
        return x.sin()
    f = taper.compile(lambda x: taper.vmap(g)(x), backend="aot_eager")
    x = taper.randn(2, 3)
    for _ in range(3):
        assert taper.allclose(f(x), x.sin())
        taper.rand(1)
    for h in (lambda x: taper.vmap(lambda r: r + taper.rand(3))(x), taper.compile(lambda x: taper.vmap(lambda r: r + taper.rand(3))(x), backend="eager")):
        try:
            h(x)
        except RuntimeError as e:
            assert "random" in str(e)
        else:
            raise AssertionError("no error")


def test_vmap_over_nothing():
    x = taper.zeros(0, 3, requires_grad=True)
    y = taper.vmap(lambda q: q.sin().sum())(x)
    assert y.shape == (0,) and y.requires_grad
    y.sum().backward()
    assert x.grad.shape == (0, 3)
    a, b = taper.vmap(lambda q, r: (q @ r, q), in_dims=(1, None), out_dims=(0, 1))(taper.zeros(2, 0), taper.ones(2, 4))
    assert a.shape == (0, 4) and b.shape == (2, 0)
    assert taper.vmap(taper.vmap(lambda q: q))(taper.zeros(1, 0)).shape == (1, 0)
    assert taper.compile(taper.vmap(lambda q: q * 2))(taper.zeros(0, 3)).shape == (0, 3)


def test_derivatives_in_every_mode():
    x = taper.ones(3, requires_grad=True)
    takes = (lambda: taper.func.grad(lambda q: (q ** 3).sum())(x), lambda: taper.func.vjp(lambda q: q ** 3, x)[1](taper.ones(3))[0],
             lambda: taper.func.jvp(lambda q: q ** 3, (x,), (taper.ones(3),))[1], lambda: taper.func.jacrev(lambda q: q ** 3)(x).sum(0))
    for take in takes:
        assert take().tolist() == [3, 3, 3] and take().requires_grad
        for mode in (taper.no_grad, taper.inference_mode):
            with mode():
                assert take().tolist() == [3, 3, 3] and not take().requires_grad


def test_integers_have_no_derivatives():
    i = taper.arange(3)
    for take, kind in ((lambda: taper.func.grad(lambda q: q.sum())(i), RuntimeError), (lambda: taper.func.vjp(lambda q: q * 2, i), RuntimeError), (lambda: taper.func.jacrev(lambda q: q * 2)(i), RuntimeError),
                       (lambda: taper.func.jacfwd(lambda q: q * 2)(i), ValueError), (lambda: taper.func.jvp(lambda q: q * 2, (i,), (i,)), ValueError), (lambda: taper.func.hessian(lambda q: q.sum())(i), ValueError)):
        try:
            take()
            raise AssertionError("a derivative of integers")
        except kind as e:
            assert "floating point" in str(e)
