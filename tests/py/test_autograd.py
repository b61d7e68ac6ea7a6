"""The tape from Python: gradients, modes, hooks, custom functions, errors."""
import gc
import warnings
import weakref

import taper
from taper import autograd


def leaf(values, dtype=None):
    t = taper.zeros([len(values)], dtype=dtype or taper.float64)
    for i, v in enumerate(values):
        t.permute([0])  # a view made and dropped must not matter
    return (t + taper.ones([len(values)], dtype=dtype or taper.float64) * values[0]).detach().requires_grad_()


def raises(kind, text, fn, *args):
    try:
        fn(*args)
    except kind as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def test_gradients_and_grad_fn():
    x = leaf([2.0, 2.0])
    y = (x * x).sin()
    assert y.grad_fn.name() == "SinBackward0" and type(y.grad_fn).__name__ == "SinBackward0"
    mul = y.grad_fn.next_functions[0][0]
    assert mul.name() == "MulBackward0" and mul is y.grad_fn.next_functions[0][0]
    acc = mul.next_functions[0][0]
    assert acc.name() == "AccumulateGrad" and acc.variable is x
    assert not y.is_leaf and x.is_leaf and x.grad_fn is None
    y.sum().backward()
    import math
    assert abs(x.grad.tolist()[0] - 4 * math.cos(4)) < 1e-12
    assert x.grad.requires_grad is False


def test_accumulation_and_set_to_none():
    x = leaf([1.0])
    (x * 3).sum().backward()
    g = x.grad
    (x * 3).sum().backward()
    assert x.grad is g and g.tolist() == [6.0]
    x.grad = None
    assert x.grad is None
    raises(RuntimeError, "of size '[2]'", setattr, x, "grad", taper.ones([2], dtype=taper.float64))
    raises(TypeError, "expected to be a Tensor or None", setattr, x, "grad", 3)


def test_autograd_grad_leaves_grad_alone():
    x, w = leaf([3.0]), leaf([4.0])
    y = (x * x * w).sum()
    gx, gw = autograd.grad(y, [x, w], create_graph=True)
    assert gx.tolist() == [24.0] and gw.tolist() == [9.0] and x.grad is None
    ggx, = autograd.grad(gx.sum(), x)
    assert ggx.tolist() == [8.0]
    z = leaf([1.0])
    raises(RuntimeError, "appears to not have been used", autograd.grad, (x * 2).sum(), z)
    assert autograd.grad((x * 2).sum(), z, allow_unused=True) == (None,)
    assert autograd.grad((x * 2).sum(), z, materialize_grads=True)[0].tolist() == [0.0]
    mid = x * 2
    g, = autograd.grad((mid * mid).sum(), mid)
    assert g.tolist() == [12.0]


def test_backward_inputs():
    x, w = leaf([3.0]), leaf([4.0])
    (x * w).sum().backward(inputs=[x])
    assert x.grad.tolist() == [4.0] and w.grad is None


def test_modes():
    x = leaf([1.0])
    with taper.no_grad():
        assert not taper.is_grad_enabled() and not (x * 2).requires_grad
        with taper.enable_grad():
            assert (x * 2).requires_grad
    assert taper.is_grad_enabled()

    @taper.no_grad()
    def f(a):
        return a * 2

    @taper.no_grad
    def g(a):
        yield a * 2
        yield taper.is_grad_enabled()
    assert not f(x).requires_grad
    it = g(x)
    assert not next(it).requires_grad and taper.is_grad_enabled() and next(it) is False
    with taper.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    with taper.inference_mode():
        t = taper.ones([2])
        assert taper.is_inference_mode_enabled() and t.is_inference()
    raises(RuntimeError, "Inplace update to inference tensor", t.add_, 1)
    raises(RuntimeError, "Inference tensors cannot be saved", lambda: leaf([1.0]) * t)


def test_hooks():
    x = leaf([1.0])
    seen = []
    h = x.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    y.sum().backward()
    assert seen == [[6.0]] and x.grad.tolist() == [60.0] and y.grad.tolist() == [3.0]
    h.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] and len(seen) == 1
    done = []
    with x.register_post_accumulate_grad_hook(lambda p: done.append(p is x)):
        (x * 2).sum().backward()
    assert done == [True]
    bad = x * 2
    bad.register_hook(lambda g: taper.ones([5], dtype=taper.float64))
    raises(RuntimeError, "has changed the size of value", bad.sum().backward)
    raises(RuntimeError, "doesn't require gradient", taper.ones([2]).register_hook, print)

    def fail(g):
        raise KeyError("mine")
    worse = x * 2
    worse.register_hook(fail)
    raises(KeyError, "mine", worse.sum().backward)


def test_node_hooks():
    x = leaf([1.0])
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 5,))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] + go[0], gi[1]))
    y.sum().backward()
    assert x.grad.tolist() == [15.0]


def test_inplace_and_views():
    x = leaf([1.0, 1.0, 1.0])
    raises(RuntimeError, "a leaf Variable that requires grad is being used in an in-place", x.add_, 1)
    raises(RuntimeError, "a view of a leaf Variable", x.view(3, 1).add_, 1)
    y = x * 2
    y.mul_(x)
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
    a = x.exp()
    a.add_(1)
    raises(RuntimeError, "[DoubleTensor [3]], which is output 0 of ExpBackward0, is at version 1; expected version 0",
           a.sum().backward)
    with taper.no_grad():
        v = x.view(3, 1)
    raises(RuntimeError, "A view was created in no_grad mode", v.mul_, x.view(3, 1))
    d = x.detach()
    assert d._base is None and d.data_ptr() == x.data_ptr() and not d.requires_grad
    z = x * 1
    zz = z.detach_()
    assert zz is z and z.is_leaf and not z.requires_grad
    p = x * x
    x.data.add_(1)  # not counted
    p.sum().backward()


class Cube(autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = x * x * x
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return y * scale

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return g * 3 * x * x * ctx.scale, None


def test_function():
    x = leaf([2.0])
    y = Cube.apply(x, 5)
    assert y.grad_fn.name() == "CubeBackward"
    y.sum().backward()
    assert x.grad.tolist() == [60.0]
    raises(RuntimeError, "second time", y.sum().backward)
    y = Cube.apply(x, 1).sum()
    g, = autograd.grad(y, x, create_graph=True)
    gg, = autograd.grad(g.sum(), x)
    assert gg.tolist() == [12.0]
    assert Cube.apply(x.detach(), 1).requires_grad is False
    raises(RuntimeError, "should not be instantiated", Cube)


def test_function_forms():
    class Setup(autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2, x * 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, a, b):
            x, = ctx.saved_tensors
            assert b.tolist() == [0.0]
            return a * 2
    x = leaf([1.0])
    a, b = Setup.apply(x)
    assert a.requires_grad and not b.requires_grad
    a.sum().backward()
    assert x.grad.tolist() == [2.0]

    class Two(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            assert b is None
            return a * 2
    Two.apply(x)[0].sum().backward()

    class Dirty(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7
    x.grad = None
    y = x * 1
    z = Dirty.apply(y)
    assert z is y and z.grad_fn.name() == "DirtyBackward"
    z.sum().backward()
    assert x.grad.tolist() == [7.0]

    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g
    raises(RuntimeError, "incorrect number of gradients (expected 2, got 1)", Wrong.apply(x, x).sum().backward)

    class Once(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g
    g, = autograd.grad(Once.apply(x), x, leaf([1.0]), create_graph=True)
    raises(RuntimeError, "once_differentiable", g.sum().backward)


def test_graph_is_freed():
    class Node:
        pass
    x = leaf([1.0])
    y = x * 2
    mark = Node()
    y.register_hook(lambda g, mark=mark: None)
    r = weakref.ref(mark)
    del mark
    s = (y * y).sum()
    del y
    assert r() is not None
    del s
    gc.collect()
    assert r() is None


def test_anomaly_names_the_forward_line():
    x = leaf([0.0])
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        with autograd.detect_anomaly():
            y = x / x  # the forward line
            raises(RuntimeError, "Function 'DivBackward0' returned nan values in its 1th output.", y.sum().backward)
    text = "".join(str(w.message) for w in got)
    assert "Error detected in DivBackward0" in text and "the forward line" in text
    assert not taper.autograd._C.is_anomaly_enabled()


def test_saved_tensor_hooks():
    x = leaf([3.0])
    packed = []
    with autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or len(packed) - 1, lambda i: packed[i] * 1):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [6.0] and len(packed) == 2
    with autograd.graph.disable_saved_tensors_hooks("not here"):
        raises(RuntimeError, "not here", autograd.graph.saved_tensors_hooks(None, None).__enter__)


def test_errors():
    x = leaf([1.0, 2.0])
    raises(RuntimeError, "grad can be implicitly created only for scalar outputs", (x * 2).backward)
    raises(RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn",
           taper.ones([1]).backward)
    raises(RuntimeError, "Mismatch in shape: grad_output[0] has a shape of", (x * 2).backward, taper.ones([3]))
    raises(RuntimeError, "only Tensors of floating point dtype", taper.ones([1], dtype=taper.int64).requires_grad_)
    raises(RuntimeError, "only Tensors of floating point and complex dtype", lambda: setattr(taper.ones([1], dtype=taper.int64), "requires_grad", True))
    y = x * 2
    raises(RuntimeError, "you can only change requires_grad flags of leaf variables", setattr, y, "requires_grad",
           False)
    raises(TypeError, "gradients can be either Tensors or None", y.backward, 3)
    raises(RuntimeError, "can't retain_grad", taper.ones([1]).retain_grad)


def test_long_chain():
    x = leaf([1.0])
    y = x
    for _ in range(200000):
        y = y + x
    y.sum().backward()
    assert x.grad.tolist() == [200001.0]
    del y


def test_backward_inside_a_hook():
    x = leaf([2.0])
    inner = (x * x).sum()
    y = x * 3
    y.register_hook(lambda g: inner.backward())
    y.sum().backward()
    assert x.grad.tolist() == [7.0]


def test_a_gradient_becomes_grad_without_a_copy():
    w, x = taper.randn(64, 64, requires_grad=True), taper.randn(8, 64)
    size = 64 * 64 * 4
    for f in (lambda: x @ w, lambda: taper.nn.functional.linear(x, w)):
        w.grad, y = None, f()
        g = taper.ones(8, 64)
        live = taper._C._memory(True)[0]
        y.backward(g)
        assert size <= taper._C._memory()[1] - live < size + 4096
    # but never what somebody else can see
    a, b = taper.ones(3, requires_grad=True), taper.ones(3, requires_grad=True)
    g = taper.ones(3)
    (a + b).backward(g)
    a.grad.mul_(5)
    assert b.grad.tolist() == [1, 1, 1] and g.tolist() == [1, 1, 1]
    c = taper.ones(3, requires_grad=True)
    kept = []
    c.register_hook(kept.append)
    (c * 2).backward(g)
    c.grad.mul_(5)
    assert kept[0].tolist() == [2, 2, 2]
    (u, v) = taper.ones(2, requires_grad=True), taper.ones(2, requires_grad=True)
    (taper.cat([u, v]) * 2).sum().backward()
    u.grad.mul_(5)
    assert v.grad.tolist() == [2, 2]


def test_gradients_of_the_gradient_of_as_strided_wherever_they_lie():
    """as_strided counts in the memory of its argument: a gradient that is expanded, or a part of another, is laid out first."""
    for into, want in ((lambda g: g.sum(), [[1, 1], [1, 1]]),
                       (lambda g: taper.cat([taper.ones(3), g]).mul(taper.arange(9.)).sum(), [[4, 5], [7, 8]])):
        w, x = taper.ones(2, 2, requires_grad=True), taper.arange(6.).requires_grad_()
        (g,) = taper.autograd.grad((x.as_strided((2, 2), (3, 1), 1) * w).sum(), x, create_graph=True)
        into(g).backward()
        assert g.tolist() == [0, 1, 1, 0, 1, 1] and w.grad.tolist() == want, (g, w.grad)
