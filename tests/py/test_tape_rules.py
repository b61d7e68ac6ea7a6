"""What the tape allows, refuses and hands out, as PyTorch does: views, writes, sizes, zero gradients; compiled as eager."""
import taper

from same_results import check


def leaf(*size):
    return taper.ones(*size, requires_grad=True)


def refused(f, words):
    try:
        f()
    except RuntimeError as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"not refused: {words}")


def test_gradient_of_mean_is_dense():
    for f in (lambda a: a.mean(), lambda a: a.mean(0).sum(), lambda a: a.mean((0, 1))):
        a = leaf(3, 2)
        (g,) = taper.autograd.grad(f(a), a)
        assert g.stride() == (2, 1)
        g.add_(1)


def test_views_of_one_of_several_views_are_not_written():
    def write(of):
        v = (leaf(4) * 1).chunk(2)[0]
        of(v)

    for of in (lambda v: v.add_(1), lambda v: v[:1].add_(1), lambda v: v.view(-1)[0].zero_()):
        refused(lambda: write(of), "is a view and is being modified inplace")


def test_views_under_no_grad_are_leaves():
    for view in (lambda a: a.chunk(2), lambda a: a.split(1), lambda a: a.unbind(0), lambda a: [a[0]], lambda a: [a.t()], lambda a: [a.flatten()]):
        a = leaf(4, 2) * 1
        with taper.no_grad():
            views = view(a)
        for v in views:
            assert v.requires_grad and v.is_leaf and v.grad_fn is None
            (v * v).sum().backward()
            assert v.grad is None


def test_sizes_of_what_requires_a_gradient_stay():
    for a in (leaf(2), leaf(2) * 1):
        refused(lambda: a.resize_(1), "cannot resize variables that require grad")
        with taper.no_grad():
            refused(lambda: a.resize_as_(taper.ones(3)), "cannot resize variables that require grad")
    refused(lambda: leaf(2).set_(taper.zeros(2)), "a leaf Variable that requires grad")


def test_overwritten_values_get_zeros():
    for write in (lambda a: a.copy_(taper.arange(3)), lambda a: a.copy_(taper.ones(3)), lambda a: a.fill_(2), lambda a: a.zero_(), lambda a: a.copy_(1)):
        a = leaf(3)
        b = a * 1
        write(b)
        b.sum().backward()
        assert a.grad.tolist() == [0, 0, 0]


def test_floor_divide_has_no_derivative():
    for f in (lambda a, b: a // b, lambda a, b: taper.floor_divide(a, b), lambda a, b: a // 2, lambda a, b: 7 // b):
        for backend in (None, "aot_eager", "inductor"):
            g = taper.compile(f, backend=backend) if backend else f
            r = g(leaf(2), leaf(2))
            assert r.requires_grad
            refused(lambda: r.sum().backward(), "floor_divide")
    a, b = leaf(2), leaf(2)
    taper.div(a, b, rounding_mode="floor").sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [0, 0]


def test_elements_that_share_memory_are_not_assigned():
    for assign in (slice(None), slice(None, None, 1), Ellipsis):
        refused(lambda: taper.ones(1).expand(2).__setitem__(assign, 1), "more than one element")
    assert taper.ones(1).expand(2).fill_(2).tolist() == [2, 2]


def row_of_expanded(a):
    a[0].add_(1)
    return a


def filled_stride_0(a):
    return taper.empty_strided((2, 3), (0, 1)).fill_(1) + a


def test_writes_to_expanded_memory():
    check(row_of_expanded, lambda: [taper.ones(1, 3).expand(2, 3)])
    check(filled_stride_0, lambda: [taper.ones(2, 3)])


def masked(a):
    a[a > 0] = 5
    return a


def selected(a):
    return a[a > 0]


def of_rows(a):
    b = taper.ones(2, 3)
    b[a > 0] = 9
    return b, b[a < 0], b[None, a > 0]


def test_masks_without_dimensions():
    for v in (-1.0, 1.0):
        for f in (masked, selected, of_rows):
            check(f, lambda: [taper.tensor(v)])


def flagged_late(a):
    a[a > 0] = 0.5
    a.requires_grad_()


def flagged_after_add(a):
    a.add_(1)
    a.requires_grad = True
    return a * 2


def data_then_flag(a):
    a.data.add_(1)
    b = a.requires_grad_()
    b.sum().backward()
    return a


def test_requires_grad_after_a_write():
    for f in (flagged_late, flagged_after_add, data_then_flag):
        check(f, lambda: [taper.ones(2, 3)])


def through_data(x):
    out = x * x
    x.data.mul_(2)
    return out


def test_writes_through_data_are_not_counted():
    check(through_data, lambda: [taper.arange(3.0).requires_grad_()], grads=False)


def test_saved_tensors_hooks_see_what_compiled_functions_save():
    hooks = taper.autograd.graph.saved_tensors_hooks
    for f in (lambda x, y: x * y, lambda x, y: (x * y).sin() * x, lambda x, y: (x @ y.t()).relu()):
        for backend in ("aot_eager", "inductor"):
            taper._dynamo.reset()
            x, y, packed, kept = leaf(2, 3), taper.ones(2, 3), [], []

            def pack(t):
                packed.append(t)
                return t.clone()

            with hooks(pack, lambda t: kept.append(t) or t):
                r = taper.compile(f, backend=backend)(x, y).sum()
            r.backward()
            assert len(packed) == len(kept) > 0
            z = leaf(2, 3)
            f(z, y).sum().backward()
            assert taper.allclose(x.grad, z.grad)
    for backend in ("aot_eager", "inductor"):
        for bad in (lambda t: t.double(), lambda t: t[:1]):
            x = leaf(2, 3)
            with hooks(lambda t: t, bad):
                r = taper.compile(lambda x, y: x * y, backend=backend)(x, taper.ones(2, 3)).sum()
            refused(r.backward, "unpack hook")


def test_inference_tensors_are_kept_where_eager_keeps_what_is_made_of_them():
    def made():
        with taper.inference_mode():
            return taper.tensor([1.0, 2.0])

    assert made().is_inference() and taper.as_tensor([1.0]).is_inference() is False
    for f in (lambda c, w: c.relu() * w, lambda c, w: (c * 2).sin() * w, lambda c, w: w.sin() + c, lambda c, w: w / c.lgamma(), lambda c, w: c * w):
        check(f, lambda: [made(), leaf(2)], grads=False)
        check(f, lambda: [taper.ones(2), leaf(2)])


def test_offsets_of_inputs():
    b = taper.arange(12.0).reshape(4, 3)
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        f = taper.compile(lambda x: (x.storage_offset(), x[1:].storage_offset(), (x * 2)[1:].storage_offset()), backend=backend)
        for at in (2, 1, 0):
            assert f(b[at : at + 2]) == (3 * at, 3 * at + 3, 3)


def test_gradients_begin_at_their_own_memory():
    for backend in (None, "aot_eager", "inductor"):
        a = taper.arange(6.0)[2:].requires_grad_()
        f = lambda a: a[...]
        (taper.compile(f, backend=backend) if backend else f)(a).sum().backward()
        assert a.grad.storage_offset() == 0 and a.grad.tolist() == [1, 1, 1, 1]


def test_views_of_memory_that_an_operator_made_are_no_views():
    """stack() joins and then looks at the result in pieces: nobody else sees that memory. Views of arguments are views."""
    def stack(a):
        s = taper.stack([a])
        s.detach_()
        return s, taper.stack([a, a], 1)

    def view(a):
        return taper.broadcast_to(a, (2, *a.shape)), taper.atleast_2d(a)

    for f in (stack, view):
        for grad in (True, False):
            with taper.set_grad_enabled(grad):
                check(f, lambda: (taper.arange(3.0).requires_grad_(),), grads=False)
    a = taper.arange(3.0).requires_grad_()
    assert taper.stack([a])._base is None and taper.stack([a, a])._base is None and taper.atleast_2d(a)._base is a


def test_what_no_guard_knows_of_inputs_is_read_from_them():
    """Is it a view, which result of its step is it, does it keep its gradient: the same with an operator beside it."""
    def kinds():
        p = leaf(2, 3)
        kept = p * 2
        kept.retain_grad()
        with taper.no_grad():
            quiet = kept[0]
        return [taper.ones(2, 3), taper.ones(6).view(2, 3), p, p * 1, kept, kept[1], (p * 2).unbind(0)[1], p.split(1)[1], p.detach(), quiet, taper.ones(3, 1).expand(3, 2)]

    for name in ("_is_view()", "output_nr", "retains_grad", "is_leaf", "storage_offset()", "_base is None", "requires_grad", "grad_fn is None", "is_inference()", "_version"):
        f = eval(f"lambda x: (x.{name}, x.abs())")
        for order in (1, -1):
            taper._dynamo.reset()
            c = taper.compile(f, backend="eager")
            for x in kinds()[::order]:
                assert f(x)[0] == c(x)[0], (name, x)


def test_views_of_a_leaf_whose_elements_share_memory():
    """A write to one is refused after a break as before it; a view that is returned stays one."""
    def write(a):
        a[0, 0].mul_(2)

    def hand_out(a):
        return a[0, 0], a * 2

    for backend in (None, "eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        compiled = lambda f: taper.compile(f, backend=backend) if backend else f
        for a in (taper.ones(2, 1).expand(2, 2), taper.ones(1).expand(2, 2)):
            a.requires_grad_()
            refused(lambda: compiled(write)(a), "leaf Variable that requires grad is being used in an in-place")
            assert a.tolist() == [[1, 1], [1, 1]]
            v, y = compiled(hand_out)(a)
            assert v._is_view() and v.requires_grad
            refused(lambda: v.mul_(3), "leaf Variable that requires grad is being used in an in-place")
            assert y.tolist() == [[2, 2], [2, 2]]


def test_memory_formats_of_to():
    """to() hands out the tensor itself where its strides look like the format, dense or not."""
    t, image = taper.ones(2, 3).t(), taper.ones(2, 3, 4, 4)
    last = image.to(memory_format=taper.channels_last)
    for f in (lambda x, m: x.to(memory_format=m), lambda x, m: x.float(memory_format=m), lambda x, m: x.to("cpu", memory_format=m)):
        for c in (f, taper.compile(f)):
            assert c(t, taper.contiguous_format) is t and c(image, taper.contiguous_format) is image
            assert c(last, taper.channels_last) is last and c(last, taper.contiguous_format).stride() == image.stride()
            part = last[:, :2]
            assert c(part, taper.channels_last) is part and c(image, taper.channels_last).stride() == last.stride()
    assert t.contiguous().stride() == (2, 1)


def test_memory_seen_as_another_type_is_no_view():
    """Nothing of the tape passes through, not even where the type stays; compiled as eager."""
    for to in (taper.int32, taper.float32):
        f = lambda a: (a.view(to), a * 2)
        for c in (f, taper.compile(f, backend="aot_eager"), taper.compile(f)):
            for a in (leaf(2), leaf(2) * 1):
                v, _ = c(a)
                assert v.data_ptr() == a.data_ptr() and not v.requires_grad and v.grad_fn is None and not v._is_view(), (to, a)


def test_other_memory_has_no_derivative():
    for set_ in (lambda a: a.set_(), lambda a: a.set_(taper.ones(3)), lambda a: a.set_(taper.ones(4).untyped_storage(), 0, (2,))):
        a = leaf(2) * 1
        set_(a)
        assert a.requires_grad
        refused(lambda: a.sum().backward(), "derivative for set_ is not implemented")
        a = leaf(2)
        refused(lambda: set_(a), "a leaf Variable that requires grad")
        with taper.no_grad():
            b = leaf(2) * 1
            set_(b)
        assert set_(taper.ones(2)).grad_fn is None


def test_writes_to_what_was_detached_end_there():
    """A detached result is no view: a write with a history reaches neither the input's nor its fellow's tape."""
    for f in (lambda a: (a.detach(), a * 2), lambda a: (a.data, a + 1), lambda a: (lambda y: (y.detach(), y))(a * 2), lambda a: (a.view(taper.float32), a * 2)):
        seen = []
        for backend in (None, "eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            for need in (False, True):
                a, w = taper.ones(2, requires_grad=need), taper.full((2,), 3.0, requires_grad=True)
                out = (taper.compile(f, backend=backend) if backend else f)(a)
                out[0].mul_(w)
                assert not out[0]._is_view() and a.requires_grad == need
                (out[0].sum() + out[1].sum()).backward()
                seen.append([[t.tolist() for t in (*out, a, w.grad)], out[1].requires_grad, a.grad is None or a.grad.tolist()])
        for i, s in enumerate(seen):
            assert s == seen[i % 2], (i, s, seen[i % 2])


def test_sizes_may_change_in_inference_mode():
    a = leaf(3)
    with taper.inference_mode():
        assert a.resize_(2).shape == (2,)
    refused(lambda: a.resize_(1), "cannot resize variables that require grad")


def test_materialized_gradients_have_the_layout_of_their_inputs():
    x = taper.arange(6.0).reshape(2, 3).t().requires_grad_()
    (g,) = taper.autograd.grad(leaf(1).sum(), x, materialize_grads=True)
    assert g.stride() == x.stride() and not g.requires_grad


def test_gradients_where_a_formula_overflows():
    """What one side of a choice makes of numbers meant for the other does not reach the gradients."""
    F, inf = taper.nn.functional, float("inf")
    for f in (F.elu, F.selu, F.celu):
        x = taper.tensor([1e4, 100.0, inf, -3.0, -inf], requires_grad=True)
        (g,) = taper.autograd.grad(f(x).sum(), x, create_graph=True)
        (h,) = taper.autograd.grad(g.sum(), x)
        assert h[:3].tolist() == [0, 0, 0] and h[3] > 0 and h[4] == 0, (f, h)
    for f, low in ((taper.logaddexp, 0.0), (taper.logaddexp2, 0.0)):
        x = taper.tensor([inf, -inf, 0.0, 1e30], requires_grad=True)
        (g,) = taper.autograd.grad(f(x, taper.zeros(())).sum(), x)
        assert g.tolist() == [1, low, 0.5, 1], (f, g)
    x = taper.tensor([0.0, 1e-30, 1e-25], requires_grad=True)
    assert taper.autograd.grad(taper.sinc(x).sum(), x)[0].tolist() == [0, 0, 0]


def test_writes_to_results_on_one_memory():
    """One result is a view of the other: a write with a history to one of them is in the gradients of both."""
    pairs = (lambda y: (y.view(-1), y), lambda y: (y, y.view(-1)), lambda y: (y.view(2, 1), y.view(1, 2)), lambda y: (y, y[:1]), lambda y: (y.detach(), y.view(-1)))
    for pair in pairs:
        seen = []
        for backend in (None, "eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            for which in (0, 1):
                for again in range(2):
                    w = taper.full((1,), 3.0, requires_grad=True)
                    out = (taper.compile(lambda a: pair(a * 2), backend=backend) if backend else lambda a: pair(a * 2))(taper.ones(2))
                    out[which].mul_(w)
                    sum(t.sum() for t in out).backward()
                    seen.append(([t.tolist() for t in out], [t.requires_grad for t in out], w.grad.tolist()))
        for i, s in enumerate(seen):
            assert s == seen[i % 4], (pairs.index(pair), i, s, seen[i % 4])


def test_gradients_of_inputs_that_depend_on_each_other():
    a = leaf(2)
    for f in (lambda p, q: taper.autograd.grad(q.sum(), [q, p], retain_graph=True, allow_unused=True), lambda p, q: taper.autograd.grad((p * q).sum(), [p, q], retain_graph=True)):
        for p, q in ((a, a.view(2)), (a, a * 3), (a * 2, (a * 2).exp())):
            q = p.exp() if q.grad_fn is not None and p is not a else q
            want = [g.tolist() for g in f(p, q)]
            for backend in ("eager", "aot_eager", "inductor"):
                taper._dynamo.reset()
                assert [g.tolist() for g in taper.compile(f, backend=backend)(p, q)] == want, (backend, want)


def test_writes_to_memory_seen_as_another_type():
    def whole(x): y = x.view(taper.int32); y.add_(1); return x
    def own(x): z = x * 1; y = z.view(taper.int32); y.add_(1); return z
    def part(x): y = x.view(taper.int32)[1:]; y.add_(1); return x
    def smaller(x): y = x.view(taper.int16); y.add_(1); return x * 1
    def bytes_(x): y = x.view(taper.uint8); y[0] = 1; return x * 1
    def above(x): y = x.view(taper.int32); x.mul_(2); return y + 0, y
    def as_complex(x): y = taper.view_as_complex(x.view(2, 2)); y.mul_(2); return x

    for f in (whole, own, part, smaller, bytes_, above, as_complex):
        check(f, lambda: [taper.ones(4)], what=f.__name__)


def test_views_taken_before_requires_grad():
    """Whether they require a gradient, too, depends on whether the input is a view itself."""
    def f(a):
        v, w = a.squeeze(), a[0]
        a.requires_grad_()
        return v, w, v * 2

    for make in (lambda: taper.arange(4.0), lambda: taper.arange(4.0).reshape(2, 2), lambda: taper.arange(6.0)[1:5]):
        want = [t.requires_grad for t in f(make())]
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            a = make()
            assert [t.requires_grad for t in taper.compile(f, backend=backend)(a)] == want and a.requires_grad, (backend, want)


def test_views_that_show_an_element_twice_after_a_write_to_their_base():
    for view, want in ((lambda a: a.expand(2, 3), [2, 2, 2]), (lambda a: a.as_strided((2, 2), (1, 1)), [1, 2, 1]), (lambda a: a.unfold(0, 2, 1), [1, 2, 1])):
        a = leaf(3)
        v = view(a)
        a.detach().add_(1)
        assert "AsStrided" in v.grad_fn.name()
        v.sum().backward()
        assert a.grad.tolist() == want, want


def test_an_input_that_no_gradient_reaches_gets_none():
    """A result without a gradient must not send zeros: hooks, and .grad, would show them."""
    def apart(a, b):
        return a * 2, b * 3

    def written(a, b):
        a.mul_(2)
        return b * 3
    for f in (apart, written):
        for backend in (None, "eager", "aot_eager", "inductor"):
            a, b, seen = leaf(2), leaf(2), []
            part = a * 1
            part.register_hook(lambda g: seen.append(g) or g + 1)
            taper._dynamo.reset()
            out = (taper.compile(f, backend=backend) if backend else f)(part, b)
            (out[1] if f is apart else out).sum().backward()
            assert a.grad is None and not seen and b.grad.tolist() == [3, 3], (f.__name__, backend)


def test_a_written_view_that_results_are_made_of():
    def f(b):
        b[0] *= 2
        return b.sum()
    for backend in (None, "eager", "aot_eager", "inductor"):
        a, seen = leaf(2), []
        b = (a * 1).view(2)
        taper._dynamo.reset()
        r = (taper.compile(f, backend=backend) if backend else f)(b)
        b.register_hook(lambda g: seen.append(g.tolist()))
        assert taper.autograd.grad(r, b, allow_unused=True, retain_graph=True)[0].tolist() == [1, 1], backend
        r.backward()
        assert a.grad.tolist() == [2, 1] and seen == [[1, 1]] * 2, (backend, seen)


def test_hooks_pack_what_a_write_reads():
    """An argument in the memory that is written is packed before the write."""
    for write, want in ((lambda v: v.mul_(v), [6, 4]), (lambda v: v.mul_(v.detach()), [3, 2]), (lambda v: v.div_(v.view(-1)), [0, 0]), (lambda v: v[:1].mul_(v[:1]), [6, 1])):
        for backend in (None, "eager"):
            a = taper.tensor([3.0, 2.0], requires_grad=True)
            def f(a):
                v = a * 1
                write(v)
                return v
            with taper.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
                r = (taper.compile(f, backend=backend) if backend else f)(a)
            r.sum().backward()
            assert a.grad.tolist() == want, (backend, want, a.grad)


def test_roots_without_a_history():
    with taper.no_grad():
        v = leaf(2).view(-1)
        refused(lambda: taper.autograd.grad(v[0], v), "element 0 of tensors does not require grad and does not have a grad_fn")
        assert taper.autograd.functional.jacobian(lambda q: q, taper.ones(2)).tolist() == [[1, 0], [0, 1]]


def test_rows_of_unique_values_have_no_derivative_and_say_so():
    for f in (taper.unique, taper.unique_consecutive, lambda a: taper.unique(a, dim=0)):
        def once(a):
            return f(a)
        for backend in (None, "eager", "aot_eager", "inductor"):
            r = (taper.compile(once, backend=backend) if backend else once)(taper.tensor([1.0, 1.0, 2.0], requires_grad=True))
            assert r.requires_grad and r.tolist() == [1, 2]
            refused(r.sum().backward, "is not implemented")


def test_library_code_that_takes_gradients_is_not_cut_in_pieces():
    def f(a): return taper.func.grad(lambda q: (q * q).sum())(a)
    def h(a): return taper.autograd.functional.jacobian(lambda q: q * q, a)
    for fn in (f, h):
        want = fn(leaf(2))
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            with taper.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                got = taper.compile(fn, backend=backend)(leaf(2))
            assert got.tolist() == want.tolist() and got.requires_grad == want.requires_grad, (fn.__name__, backend, got)


class Same(taper.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        return q

    @staticmethod
    def backward(ctx, g):
        return g


class Part(taper.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        return q.view_as(q)[:1]

    @staticmethod
    def backward(ctx, g):
        return taper.cat([g, g])


def test_views_that_a_custom_function_returns_are_views():
    for fn in (Same, Part):
        a = leaf(2) * 1
        v = fn.apply(a)
        assert v._base is a and v.requires_grad and not v.is_leaf
        refused(lambda: v.mul_(2), "is a view and is being modified inplace. This view was created inside a custom Function")
        w = fn.apply(a)
        a.mul_(2)
        refused(lambda: w.grad_fn, "its base or another view of its base has been modified inplace")


def test_a_tensor_counts_its_writes_over_other_memory():
    w = taper.ones(2)
    w.add_(1)
    w.data = taper.zeros(2)
    assert w._version == 1
    w.add_(1)
    assert w._version == 2 and w[:1]._version == 2
    source = taper.ones(2)
    w.set_(source)
    assert w._version == 3 and source._version == 0
    for replace in (lambda t: t.set_(taper.ones(2)), lambda t: t.set_(taper.ones(3))):
        a, w = leaf(2), taper.ones(2)
        y = a * w
        replace(w)
        refused(lambda: y.sum().backward(), "modified by an inplace operation")
    a, w = leaf(2), taper.ones(2)
    y = a * w
    w.data = taper.full((2,), 5.0)
    y.sum().backward()
    assert a.grad.tolist() == [5.0, 5.0]

    def f(m, o):
        m.add_(1)
        m.data = o * 2
        m.add_(1)
        return m * 1
    for g in (f, *(taper.compile(f, backend=b) for b in ("eager", "aot_eager", "inductor"))):
        m, o = taper.ones(2), taper.ones(2)
        g(m, o)
        assert (m._version, o._version, m.tolist()) == (2, 0, [3.0, 3.0])


def test_inference_tensors_take_no_results_outside_of_their_mode():
    with taper.inference_mode():
        a = taper.zeros(2)
    refused(lambda: taper.add(taper.ones(2), 1, out=a), "Inplace update to inference tensor outside InferenceMode")
    assert a.tolist() == [0.0, 0.0]
