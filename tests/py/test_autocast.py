"""taper.autocast: operators choose the type they compute in; compiled functions do as eager does, across breaks too."""
import warnings

import taper
import taper.nn as nn
import taper.nn.functional as F
from taper._dynamo.testing import CompileCounter


def types(*ts):
    return [str(t.dtype).split(".")[1] for t in ts]


def model():
    taper.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))


def test_products_in_the_lower_type_losses_in_float32_the_rest_as_given():
    x, w = taper.randn(4, 8), taper.randn(8, 8)
    with taper.autocast("cpu", dtype=taper.bfloat16):
        y = x @ w
        assert types(y, F.linear(x, w), taper.einsum("ij,jk->ik", x, w), x + x, y + y) == [
            "bfloat16", "bfloat16", "bfloat16", "float32", "bfloat16"]
        assert types(F.mse_loss(y, y), taper.cat([x, y]), taper.cat([y, y])) == ["float32", "float32", "bfloat16"]
        assert types(x.double() @ w.double(), F.softmax(y, 0)) == ["float64", "bfloat16"]
        out = taper.empty(4, 8)
        assert types(taper.mm(x, w, out=out)) == ["float32"]
        assert out.equal(x.mm(w).float()) is False  # out= computes in the type it has
    assert types(x @ w) == ["float32"]
    with taper.autocast("cpu", dtype=taper.float16):
        assert types(x @ w) == ["float16"]
        with taper.autocast("cpu", enabled=False):
            assert types(x @ w) == ["float32"]
        assert types(x @ w) == ["float16"]


def test_what_it_asks_and_sets():
    assert not taper.is_autocast_cpu_enabled() and taper.get_autocast_dtype("cpu") is taper.bfloat16
    with taper.autocast("cpu", dtype=taper.float16):
        assert taper.is_autocast_enabled("cpu") and not taper.is_autocast_enabled()
        assert taper.get_autocast_cpu_dtype() is taper.float16
    assert taper.get_autocast_dtype("cpu") is taper.bfloat16
    for bad, what in ((3, ValueError), ("tpu", RuntimeError)):
        try:
            taper.autocast(bad)
        except what as e:
            assert "device" in str(e)
        else:
            raise AssertionError(bad)
    for args in (("cuda",), ("cpu", taper.float64)):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            with taper.autocast(*args):
                assert types(taper.ones(2, 2) @ taper.ones(2, 2)) == ["float32"]
        assert "Disabling" in str(w[0].message)


def test_gradients_come_in_the_type_of_the_parameters():
    m = model()
    x = taper.randn(5, 8)
    with taper.autocast("cpu"):
        loss = F.cross_entropy(m(x), taper.tensor([0, 1, 2, 3, 0]))
    assert types(loss) == ["float32"]
    loss.backward()
    grads = [p.grad.clone() for p in m.parameters()]
    assert set(types(*grads)) == {"float32"}
    m.zero_grad()
    F.cross_entropy(m(x), taper.tensor([0, 1, 2, 3, 0])).backward()
    for a, p in zip(grads, m.parameters()):
        assert taper.allclose(a, p.grad, atol=2e-2, rtol=5e-2)


def test_compiled_as_eager_forward_and_backward():
    def f(m, x):
        with taper.autocast("cpu", dtype=taper.bfloat16):
            y = m(x)
            loss = F.mse_loss(y, taper.zeros_like(y))
        return y, loss, x @ x.t()

    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        a, b = model(), model()
        x = taper.randn(6, 8)
        want, got = f(a, x), taper.compile(f, backend=backend, fullgraph=True)(b, x)
        assert types(*got) == types(*want) == ["bfloat16", "float32", "float32"]
        want[1].backward()
        got[1].backward()
        for p, q in zip(a.parameters(), b.parameters()):
            assert taper.allclose(p.grad, q.grad, atol=1e-2, rtol=2e-2), backend


def test_the_mode_outlives_a_break_and_ends_where_it_should():
    seen = []

    def f(x):
        with taper.autocast("cpu", dtype=taper.float16):
            y = x @ x
            taper._dynamo.graph_break()
            seen.append(taper.is_autocast_cpu_enabled())
            z = x @ x
        return y, z, x @ x

    c = CompileCounter()
    g = taper.compile(f, backend=c)
    for _ in range(3):
        assert types(*g(taper.ones(2, 2))) == ["float16", "float16", "float32"]
        assert not taper.is_autocast_cpu_enabled()
    assert seen == [True] * 3 and c.frame_count == 2


def test_a_call_under_another_mode_is_another_graph():
    c = CompileCounter()
    g = taper.compile(lambda x: x @ x, backend=c)
    x = taper.ones(2, 2)
    assert types(g(x)) == ["float32"]
    for _ in range(2):
        with taper.autocast("cpu"):
            assert types(g(x)) == ["bfloat16"]
        assert types(g(x)) == ["float32"]
    assert c.frame_count == 2
    inner = taper.compile(lambda x: taper.autocast("cpu", enabled=False)(taper.mm)(x, x), backend="eager")
    with taper.autocast("cpu"):
        assert types(inner(x)) == ["float32"]


def test_function_with_custom_forward():
    class Mul(taper.autograd.Function):
        @staticmethod
        @taper.amp.custom_fwd(device_type="cpu", cast_inputs=taper.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @taper.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.t(), a.t() @ g

    x = taper.ones(2, 2, requires_grad=True)
    with taper.autocast("cpu"):
        y = Mul.apply(x.bfloat16(), x)
    assert types(y) == ["float32"]
    y.sum().backward()
    assert x.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_scaler_leaves_out_steps_that_are_not_finite():
    w = taper.ones(2, requires_grad=True)
    opt = taper.optim.SGD([w], lr=1.0)
    s = taper.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    s.scale((w * 2).sum()).backward()
    assert w.grad.tolist() == [16.0, 16.0]
    s.step(opt)
    s.update()
    assert w.tolist() == [-1.0, -1.0] and s.get_scale() == 8.0
    opt.zero_grad()
    s.scale((w * float("inf")).sum()).backward()
    s.step(opt)
    s.update()
    assert w.tolist() == [-1.0, -1.0] and s.get_scale() == 4.0
    fresh = taper.amp.GradScaler("cpu")
    fresh.load_state_dict(s.state_dict())
    assert fresh.get_scale() == 4.0


def test_programs_that_ask_for_a_gpu_go_on_without():
    if taper.cuda.is_available():
        print("SKIP: this machine has a GPU")
        return
    assert taper.cuda.device_count() == 0
    assert not taper.backends.mps.is_available()
    taper.backends.cudnn.benchmark = True
    taper.cuda.manual_seed_all(1)
    try:
        taper.cuda.current_device()
    except AssertionError as e:
        assert "no CUDA device" in str(e)
    else:
        raise AssertionError("a device")
    assert taper.cpu.device_count() == 1
    with taper.cpu.amp.autocast():
        assert types(taper.ones(2, 2) @ taper.ones(2, 2)) == ["bfloat16"]
