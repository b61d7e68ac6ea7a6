"""Writes into tensors whose elements, or whose arguments, share memory: allowed and refused as in PyTorch, compiled as eager."""
import taper
from taper.nn import functional as F


def expanded():
    return taper.arange(3.0).expand(2, 3)


FIRST, ROW = taper.tensor([0]), taper.tensor([[0, 0, 0]])
SOME = taper.tensor([[True, False, True], [False, False, False]])
LAST_STAYS = {
    "masked_fill_": (lambda a: a.masked_fill_(a > 0, 0.5), [0, 0.5, 0.5]),
    "masked_fill_ one row": (lambda a: a.masked_fill_(SOME, 7.0), [7, 1, 7]),
    "index_fill_": (lambda a: a.index_fill_(0, FIRST, 1.0), [1, 1, 1]),
    "index_fill_ column": (lambda a: a.index_fill_(1, FIRST, 4.0), [4, 1, 2]),
    "index_put_": (lambda a: a.index_put_((FIRST,), taper.tensor(5.0)), [5, 5, 5]),
    "index_put_ adds": (lambda a: a.index_put_((FIRST,), taper.tensor(5.0), accumulate=True), [5, 6, 7]),
    "mask": (lambda a: a.__setitem__(a > 0, 5.0), [0, 5, 5]),
    "tril_": (lambda a: a.tril_(), [0, 0, 0]),
    "copy_ of itself": (lambda a: a.copy_(a), [0, 1, 2]),
}
REFUSED = {
    "add_": lambda a: a.add_(1),
    "fill_ with a tensor": lambda a: a.fill_(taper.tensor(1.0)),
    "copy_": lambda a: a.copy_(taper.ones(2, 3)),
    "index_add_": lambda a: a.index_add_(0, FIRST, taper.ones(1, 3)),
    "scatter_": lambda a: a.scatter_(0, ROW, 1.0),
}
EVERY = taper.arange(6)
ALIASED = {
    "index_add_": lambda a: a.index_add_(0, EVERY, a),
    "index_copy_": lambda a: a.index_copy_(0, EVERY, a),
    "index_put_": lambda a: a.index_put_((EVERY,), a),
    "scatter_": lambda a: a.scatter_(0, EVERY, a),
    "scatter_add_": lambda a: a.scatter_add_(0, EVERY, a),
    "scatter_reduce_": lambda a: a.scatter_reduce_(0, EVERY, a, "sum"),
    "index_reduce_": lambda a: a.index_reduce_(0, EVERY, a, "prod"),
}


def raises(f, a):
    try:
        f(a)
    except RuntimeError as e:
        return "to a single memory location" in str(e)
    return False


def test_expanded_tensors_may_be_filled():
    for name, (f, want) in LAST_STAYS.items():
        for way in (lambda f: f, lambda f: taper.compile(f, backend="eager"), lambda f: taper.compile(f, backend="aot_eager"), taper.compile):
            taper._dynamo.reset()
            a = expanded()
            way(f)(a)
            assert a.tolist() == [want, want], (name, a)
            assert a.stride() == (0, 1)


def test_expanded_intermediates_may_be_filled():
    def inside(f):
        def g(x):
            y = x * 1
            a = y.expand(2, 3)
            f(a)
            return y, a, a * 2
        return g
    for name, (f, _) in LAST_STAYS.items():
        want = inside(f)(taper.arange(3.0))
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            got = taper.compile(inside(f), backend=backend)(taper.arange(3.0))
            assert [t.tolist() for t in got] == [t.tolist() for t in want], (name, backend, got, want)


def test_other_writes_into_expanded_tensors_are_refused():
    for name, f in REFUSED.items():
        assert raises(f, expanded()), name


def test_indexed_writes_refuse_their_own_tensor():
    for name, f in ALIASED.items():
        assert raises(f, taper.arange(6.0)), name
    index = taper.arange(6)
    for f in (lambda b: b.scatter_(0, b, 1), lambda b: b.index_fill_(0, b, 1), lambda b: b.index_put_((b,), taper.tensor(1))):
        assert raises(f, index)
    a = taper.arange(6.0)
    assert a.masked_fill_(a > 2, a[3]).tolist() == [0, 1, 2, 3, 3, 3]
    assert a.index_fill_(0, taper.tensor([1]), a[3]).tolist() == [0, 3, 2, 3, 3, 3]


def test_second_derivatives_of_pieces_of_lines_are_zeros():
    for f in (F.relu, F.leaky_relu, F.hardtanh, F.hardsigmoid, F.hardshrink, F.softshrink, lambda x: F.threshold(x, 0.25, 0.0), taper.abs):
        x = taper.tensor([-1.5, 0.5, 2.0], requires_grad=True)
        first, = taper.autograd.grad(f(x).sum(), x, create_graph=True)
        assert first.requires_grad, f
        second, = taper.autograd.grad(first.sum(), x)
        assert second.tolist() == [0, 0, 0], f
        w = taper.tensor([1.0, 2.0, 3.0], requires_grad=True)
        first, = taper.autograd.grad((f(x) * w).sum(), x, create_graph=True)
        plain, = taper.autograd.grad(f(x).sum(), x)
        assert taper.autograd.grad(first.sum(), w)[0].tolist() == plain.tolist()


def test_writes_through_data_and_through_reshape_count_once():
    def both(a):
        a.data.mul_(2)
        a.reshape(1).mul_(2)

    def data(a):
        a.data.mul_(2)
        a.data.detach().add_(1)
        a.data[0].detach().mul_(2)
    for backend in ("eager", "aot_eager", "inductor"):
        for f, counts in ((both, True), (data, False)):
            a = taper.ones(1)
            before = a._version
            taper.compile(f, backend=backend)(a)
            assert (a._version > before) == counts, (backend, f)


def test_results_of_inference_mode_with_views_of_them():
    def f(x):
        v = x.sin()
        return v, v.detach(), v.view(-1), v, x, x[:1]
    for backend in ("eager", "aot_eager", "inductor"):
        x = taper.ones(2)
        with taper.inference_mode():
            want = [t.is_inference() for t in f(x)]
            assert [t.is_inference() for t in taper.compile(f, backend=backend)(x)] == want, backend


def test_func_grad_of_an_inference_tensor():
    with taper.inference_mode():
        a = taper.arange(3.0)
    assert taper.func.grad(lambda q: (q * q).sum())(a).tolist() == [0, 2, 4]


def test_logsigmoid_is_exact_and_contiguous():
    x = taper.tensor([[-25.0, 30.0], [-21.0, 0.0]], dtype=taper.float64).t()
    y = F.logsigmoid(x)
    assert y.is_contiguous()
    assert y[0, 1].item() == -21.000000000758256 and abs(y[1, 0].item() / -9.357622968839737e-14 - 1) < 1e-12


def test_values_for_a_mask_are_counted_when_the_graph_runs():
    def put(x, b, y):
        x = x.clone()
        x[b] = y
        return x
    b = taper.tensor([True, False, True, False])
    for backend in ("eager", "aot_eager", "inductor"):
        for dynamic in (None, True):
            f = taper.compile(put, fullgraph=True, backend=backend, dynamic=dynamic)
            assert f(taper.zeros(4), b, taper.tensor([1.0, 2.0])).tolist() == [1, 0, 2, 0]
            try:
                f(taper.zeros(4), ~b & (taper.arange(4) > 1), taper.tensor([1.0, 2.0]))
                raise AssertionError("two values went into one place")
            except RuntimeError as e:
                assert "shape mismatch" in str(e)


def test_memory_of_a_tensor_that_requires_grad_is_shown_without_gradients():
    x = taper.ones(2, requires_grad=True)
    for mode in (taper.no_grad, taper.inference_mode):
        with mode():
            assert memoryview(x).tolist() == [1, 1]
    try:
        memoryview(x)
        raise AssertionError
    except BufferError:
        pass


def test_enable_grad_inside_inference_mode_records_nothing():
    def f(x):
        with taper.enable_grad():
            y = x * 2
            x.add_(1)
            return y, y.requires_grad, y.is_inference(), taper.is_grad_enabled(), x.view(-1).requires_grad
    for way in (lambda f: f, lambda f: taper.compile(f, backend="eager"), lambda f: taper.compile(f, backend="aot_eager"), taper.compile):
        x = taper.ones(2, requires_grad=True)
        with taper.inference_mode():
            y, *seen = way(f)(x)
        assert seen == [False, True, True, True] and y.grad_fn is None and x.tolist() == [2, 2]


def test_leaves_made_in_inference_mode():
    def f(x):
        return taper.ones(2, requires_grad=True), taper.ones(2).requires_grad_(), x * 2
    for way in (lambda f: f, lambda f: taper.compile(f, backend="aot_eager"), taper.compile):
        with taper.inference_mode():
            assert all(t.is_inference() for t in way(f)(taper.ones(2)))
    with taper.inference_mode():
        assert taper.nn.Parameter(taper.ones(2)).is_inference()


def test_detach_of_a_view_in_place_in_inference_mode():
    v = taper.arange(4.0)[1:]
    with taper.inference_mode():
        assert v.detach_() is v


def test_data_of_inference_mode_makes_an_inference_tensor():
    b = taper.tensor(1.0)
    with taper.inference_mode():
        b.data = b.data * 1
    assert b.is_inference()


def test_second_slope_of_elu_where_it_breaks():
    for f in (F.elu, F.celu, F.selu):
        x = taper.tensor([0.0, 1.0], requires_grad=True)
        first, = taper.autograd.grad(f(x).sum(), x, create_graph=True)
        assert taper.autograd.grad(first.sum(), x)[0].tolist() == [0, 0]


def test_parts_of_an_input_that_is_written_later():
    def split(a):
        v = a.split(1)[0]
        a += 1
        return v, a

    def unbind(a):
        v = a.unbind(0)[0]
        a.mul_(2)
        return v, a
    for f in (split, unbind):
        for backend in ("eager", "aot_eager", "inductor"):
            want = f(taper.ones(2, requires_grad=True) * 1)
            got = taper.compile(f, backend=backend)(taper.ones(2, requires_grad=True) * 1)
            assert [t.tolist() for t in got] == [t.tolist() for t in want], (backend, got)
            assert [t.requires_grad for t in got] == [t.requires_grad for t in want], (backend, got)
            assert got[0].data_ptr() == got[1].data_ptr()


def test_a_step_that_has_run_is_not_run_again():
    def f(b):
        def parts():
            yield b
        for y in parts():
            v = y * 1
        v.backward()
        return v
    for backend in ("eager", "aot_eager", "inductor"):
        b = taper.ones(1).requires_grad_()
        with taper.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            r = taper.compile(f, backend=backend)(b)
        try:
            taper.autograd.grad(r.sum(), [b], create_graph=True)
        except RuntimeError as e:
            assert "a second time" in str(e)


def test_another_type_of_memory_that_begins_between_two_elements():
    def f(x):
        return x.view(taper.int32)
    for backend in (None, "eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend) if backend else f
        b = taper.arange(8, dtype=taper.bfloat16)
        for at in (0, 1, 2, 3):
            try:
                assert c(b[at:at + 4]).tolist() == b.view(taper.int32)[at // 2:at // 2 + 2].tolist() and at % 2 == 0
            except RuntimeError as e:
                assert at % 2 and "self.storage_offset() must be divisible by 2 to view BFloat16 as Int" in str(e), (backend, at, e)
