"""Every backend gives what eager gives: values, gradients, writes, aliases."""
import taper
from taper.testing.compiled import counted_draws

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref", "inductor"]


def close(a, b, tol=1e-5):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
    d = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
    assert d <= tol * (1 + (b.double().abs().max().item() if b.numel() else 0)), d


def check(fn, *shapes, grads=True, seed=0, tol=1e-5):
    taper.manual_seed(seed)
    base = [taper.randn(*s) for s in shapes]

    def run(f):
        xs = [b.clone().requires_grad_(grads) for b in base]
        out = f(*xs)
        outs = out if isinstance(out, tuple) else (out,)
        if grads:
            sum((o * (i + 1)).sum() for i, o in enumerate(outs)).backward()
        return outs, xs

    want, wx = run(fn)
    for b in BACKENDS:
        got, gx = run(taper.compile(fn, backend=b))
        for g, w in zip(got, want):
            close(g, w, tol)
        for g, w in zip(gx, wx):
            close(g, w, tol)
            if grads and w.grad is not None:
                close(g.grad, w.grad, tol)
        taper._dynamo.reset()


def test_pointwise_chain():
    check(lambda x, y: taper.tanh(x * y + taper.sin(x)) / (1 + y * y), (5, 7), (7,))


def test_softmax_by_hand():
    def f(x):
        e = taper.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    check(f, (6, 33))


def test_variance_over_outer_dimension():
    def f(x):
        m = x.mean(0)
        return ((x - m) ** 2).sum(0)

    check(f, (9, 20))


def test_transpose_and_reshape():
    check(lambda x: (x.view(3, 4, 2).transpose(0, 1).reshape(4, 6) * 2).sin(), (3, 8))


def test_matmul_bias_relu():
    check(lambda x, w, b: taper.relu(x @ w + b), (4, 6), (6, 5), (5,))


def test_cat_and_slices():
    check(lambda x, y: taper.cat([x[:, 1:], y * 2], 1)[:, ::2], (3, 5), (3, 4))


def test_in_place_on_a_view():
    def f(x):
        y = x * 2
        y[:, 1] = 7
        y[0].add_(x[1])
        return y.exp()

    check(f, (3, 4))


def test_inputs_are_written_back():
    def f(x, y):
        x.add_(y)
        return x * 2

    check(f, (4,), (4,), grads=False)


def test_result_that_is_a_view_of_an_input_aliases_it():
    for b in BACKENDS:
        x = taper.randn(2, 3)
        y = taper.compile(lambda t: t.t(), backend=b)(x)
        y[0, 0] = 42.0
        assert x[0, 0].item() == 42.0, b
        taper._dynamo.reset()


def test_unused_and_integer_inputs():
    def f(x, n):
        return x[n].sum() + x.mean()

    x = taper.randn(4, 3)
    idx = taper.tensor([0, 2])
    for b in BACKENDS:
        close(taper.compile(f, backend=b)(x, idx), f(x, idx))
        taper._dynamo.reset()


def test_batch_norm_writes_its_statistics():
    """The row with hidden writes, and the public function: one value a channel and momentum 1 give what eager gives."""
    def rows(x, m, v):
        return taper.native_batch_norm(x, None, None, m, v, True, 1.0, 1e-5)[0] * 2 + m.view(1, 3, 1)

    def public(x, m, v):
        return taper.nn.functional.batch_norm(x, m, v, training=True, momentum=0.25) + v.view(1, 3, 1)

    for f, shape in ((rows, (4, 3, 2)), (rows, (1, 3, 1)), (public, (4, 3, 2))):
        for b in [None] + BACKENDS:
            taper._dynamo.reset()
            taper.manual_seed(0)
            x, m, v = taper.randn(*shape, requires_grad=True), taper.zeros(3), taper.ones(3)
            out = (taper.compile(f, backend=b) if b else f)(x, m, v)
            out.sin().sum().backward()
            now = [out, m, v, x.grad]
            if b is None:
                want = now
            for p, q in zip(now, want):
                assert taper.allclose(p, q, atol=3e-4, equal_nan=True), (f, shape, b, p, q)


def test_batch_norm_statistics_of_sizes_that_change():
    bn = taper.nn.BatchNorm1d(3)
    ref = taper.nn.BatchNorm1d(3)
    for b in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(bn, backend=b, dynamic=True)
        for n in (9, 2, 5):
            x = taper.randn(n, 3)
            assert taper.allclose(f(x), ref(x), atol=1e-5) and taper.allclose(bn.running_var, ref.running_var, atol=1e-6), (b, n)


def test_requires_grad_that_changes_nothing_is_no_break():
    x = taper.ones(2, requires_grad=True)
    f = taper.compile(lambda x: x.requires_grad_().sin().requires_grad_(True) * 2, fullgraph=True, backend="aot_eager")
    assert f(x).requires_grad


def test_dynamic_sizes_share_one_compile():
    for b in BACKENDS:
        f = taper.compile(lambda x: (x * 2).sum(-1) + 1, backend=b, dynamic=True)
        for n in (3, 8, 17, 33):
            x = taper.randn(n, 5)
            close(f(x), (x * 2).sum(-1) + 1)
        taper._dynamo.reset()


@counted_draws()
def test_a_differentiable_backward_runs_the_graph_again():
    def f(x, w):
        return taper.nn.functional.dropout((x * w).tanh(), 0.5).pow(3).sum() + (w * w * w).sum()

    def second(g):
        taper.manual_seed(3)
        x, w = taper.randn(4, 5, dtype=taper.float64).requires_grad_(), taper.randn(5, dtype=taper.float64).requires_grad_()
        taper.manual_seed(4)
        out = g(x * 2, w)
        gx, gw = taper.autograd.grad(out, [x, w], create_graph=True)
        (gx.pow(2).sum() + gw.sin().sum()).backward()
        return out.detach(), gx.detach(), gw.detach(), x.grad, w.grad, taper.rand(1)

    want = second(f)
    for b in BACKENDS:
        taper._dynamo.reset()
        for g, w in zip(second(taper.compile(f, backend=b)), want):
            close(g, w, 1e-10)


def test_a_differentiable_backward_says_why_it_cannot_be():
    def f(x, b):
        b.add_(1)
        return (x * x).sum()

    taper._dynamo.reset()
    x = taper.ones(3, requires_grad=True)
    y = taper.compile(f, backend="aot_eager")(x, taper.zeros(3))
    try:
        taper.autograd.grad(y, x, create_graph=True)
    except RuntimeError as e:
        assert "create_graph=True" in str(e) and "writes to its inputs" in str(e), e
    else:
        raise AssertionError


def test_views_made_by_a_call_keep_their_base_alive():
    def f(x):
        a, b, c = (x * 2).split(2)
        return a.sin().sum() + (b * b).sum() * 2

    check(f, (5, 2))
    check(lambda x: (x * 2).unbind(1)[1].sin().sum() + (x * 3).unbind(1)[0].exp().sum(), (5, 2))


def test_as_strided_counts_from_its_own_value():
    def f(x, s):
        k = s.sin()
        k = (k / (2 + k * k)).sum()
        o = (x * (1 + k)).as_strided([2, 2], [3, 1], 1)
        return (o / (2 + o * o)).sum() + k

    check(f, (6,), (3,))


def test_empty_values_behind_a_reduction():
    check(lambda x, a: (a * (1 + (x / (2 + x * x)).sum())).sum() + x.sum(), (0, 3), (2, 0))
    check(lambda x, a, b: ((a * (1 + x.sum())) @ b).sum(), (0, 3), (2, 0), (0, 2))
    check(lambda x: x.reshape(0, 6).sin().sum() + x.exp().sum(), (3, 0))


def test_numbers_and_dims_in_derivative_rules():
    check(lambda x: taper.pow(x * x + 1, taper.tensor(2.0)).sum() + taper.ops.aten.pow.Tensor_Tensor(x * x + 1, 2.0).sum(), (3,))
    check(lambda x: sum(v.sum() for v in taper.aminmax(x, dim=1)), (2, 3))


@counted_draws()
def test_compiling_draws_no_random_numbers():
    F = taper.nn.functional
    for f in (lambda x: F.dropout(x, 0.5), lambda x: x + taper.rand_like(x), lambda x: F.dropout(x, 0.3) * taper.bernoulli(x * 0 + 0.5)):
        for grad in (False, True):
            for b in BACKENDS:
                taper._dynamo.reset()
                x, c = taper.ones(20).requires_grad_(grad), taper.compile(f, backend=b)
                seen = []
                for g in (f, c, c):
                    taper.manual_seed(4)
                    y = g(x)
                    if grad:
                        x.grad = None
                        y.sum().backward()
                    seen.append((y.tolist(), x.grad.tolist() if grad else None, taper.rand(1).item()))
                assert seen[0] == seen[1] == seen[2], (b, grad)


def test_strides_of_one_element_say_nothing_about_sizes():
    def f(x):
        return x.reshape(x.shape[0], -1).sum(1) / x.numel(), x * x.shape[1]
    row = taper.arange(7.).reshape(7, 1).permute(1, 0)  # [1, 7] with strides (1, 1): contiguous, as one would say (7, 1)
    image = taper.arange(6.).reshape(1, 6, 1, 1).contiguous(memory_format=taper.channels_last)
    for x in (row, image, image.as_strided((1, 6, 1, 1), (6, 1, 1, 3))):
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            x = x.detach().requires_grad_()
            want, got = f(x), taper.compile(f, backend=backend, dynamic=True)(x)
            assert all(taper.equal(a, b) for a, b in zip(want, got)), (backend, want, got)
            assert taper.equal(taper.autograd.grad(got[0].sum() + got[1].sum(), x)[0], taper.autograd.grad(want[0].sum() + want[1].sum(), x)[0])


def test_returned_pieces_of_one_value_that_are_as_long_as_each_other():
    pieces = (lambda y: (y, y[0:3:3], y[2]), lambda y: (y[0:1], y[2:3], y[1]), lambda y: (y[0:2], y[::2][:2], y[1:3]),
              lambda y: (y[:2].reshape(2, 1), y[1:3]))
    for cut in pieces:
        def f(x):
            return cut(x.exp())
        for backend in ("aot_eager", "inductor"):
            for dynamic in (False, True):
                taper._dynamo.reset()
                grads = []
                for g in (f, taper.compile(f, backend=backend, dynamic=dynamic)):
                    x = taper.arange(5.).requires_grad_()
                    out = g(x)
                    sum((o * (i + 2)).sum() for i, o in enumerate(out)).backward()
                    grads.append((out, x.grad))
                assert all(taper.allclose(a, b) for a, b in zip(grads[0][0], grads[1][0])) and taper.allclose(grads[0][1], grads[1][1]), (backend, grads)


def test_views_of_nothing_of_what_was_written():
    """They are made again from the new value, perhaps with other strides, which say nothing about no elements."""
    def pieces(x):
        x.clamp_(0, 2)
        return x, taper.minimum(x, taper.tensor_split(x, 3, 1)[1])

    def converted(x):
        part = taper.tensor_split(x, 3, 0)[1]
        x.copy_(x * 2)
        return part.to(taper.bool), x + part
    for backend in ("inductor", "aot_eager"):
        for f, make in ((pieces, lambda: taper.arange(7).to(taper.uint8).view(1, 1, 7).permute(2, 1, 0)), (converted, lambda: taper.tensor([1, 2, 3])[1::2])):
            taper._dynamo.reset()
            a, b = make(), make()
            for want, got in zip(f(a), taper.compile(f, backend=backend, fullgraph=True)(b)):
                assert want.shape == got.shape and taper.equal(want, got)


def test_a_size_that_only_a_dimension_of_one_would_tell_reaches_backward():
    for backend in ("inductor", "aot_eager"):
        taper._dynamo.reset()
        x = taper.arange(3.).view(3, 1, 1).permute(2, 1, 0).requires_grad_()
        taper.compile(lambda x: x.unfold(-1, 2, 1) * taper.sin(x.unfold(-1, 2, 1)), backend=backend, dynamic=True)(x).sum().backward()
        y = x.detach().clone().requires_grad_()
        (y.unfold(-1, 2, 1) * taper.sin(y.unfold(-1, 2, 1))).sum().backward()
        assert taper.allclose(x.grad, y.grad), (x.grad, y.grad)


def raises(kind, f, *text):
    try:
        f()
    except kind as e:
        assert all(t in str(e) for t in text), e
        return
    raise AssertionError(f"no {kind.__name__}")


def test_a_backend_whose_function_returns_something_else():
    x = taper.ones(2)
    for bad, name in ((1, "int"), (None, "None"), ("x", "str"), ([x], "list"), (1.5, "float")):
        for f in (lambda x: x.sin() + 1, lambda x: (x.sin(), [x + 1])):
            taper._dynamo.reset()
            n = 1 if not isinstance(f(x), tuple) else 2
            g = taper.compile(f, backend=lambda gm, ins: lambda *a: tuple([x] * (n - 1) + [bad]))
            raises(TypeError, lambda: g(x), f"result {n - 1} of the backend's function is", name, "the graph returns a Tensor")
    taper._dynamo.reset()
    was, taper._dynamo.config.capture_scalar_outputs = taper._dynamo.config.capture_scalar_outputs, True
    try:  # a number that the graph computes is read from a tensor of one element
        number = taper.compile(lambda x: x.sum().item(), backend=lambda gm, ins: lambda *a: [taper.ones(0)] * 1, fullgraph=True)
        raises(TypeError, lambda: number(x), "a Tensor of 0 elements")
    finally:
        taper._dynamo.config.capture_scalar_outputs = was


def test_compiled_graphs_check_their_inputs():
    """lookup_backend(name)(gm, inputs) has no guards: its inputs are looked at."""
    from taper._dynamo import lookup_backend
    for name in ("eager", "aot_eager", "inductor"):
        for dynamic in (False, True):
            taper._dynamo.reset()
            made = []
            def keep(gm, ins):
                made.append(lookup_backend(name)(gm, ins))
                return made[-1]
            x = taper.arange(12.).reshape(3, 4)
            f = taper.compile(lambda x, y: x * 2 + y, backend=keep, dynamic=dynamic)
            f(x, x + 1)
            call = made[0]
            assert taper.equal(call(x, x + 1)[0], x * 3 + 1)
            assert not dynamic or taper.equal(call(x[:2], x[:2])[0], x[:2] * 3)
            raises(TypeError, lambda: call(x.t().contiguous().t(), x), "input 'l_x_': expected f32[")
            raises(TypeError, lambda: call(x, x.double()), "input 'l_y_'", "f64[3, 4]")
            raises(TypeError, lambda: call(x, taper.ones(5, 4)), "input 'l_y_'", "f32[5, 4]")
