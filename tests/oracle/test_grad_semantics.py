"""The same small programs with PyTorch and with Taper: views and in-place writes, modes, hooks, errors."""
import unittest
import warnings

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable: the tape is not compared with it")
import taper

warnings.simplefilter("ignore")


def leaf(T, *values):
    return T.tensor(list(values), dtype=T.float64, requires_grad=True)


def name(t):
    return t.grad_fn.name() if t.grad_fn is not None else None


# Each program returns something printable. T is the module.
def base_written_through_view(T):
    w, b = leaf(T, 1., 2.), T.zeros(3, 2, dtype=T.float64)
    v = b[1]
    v.mul_(w)
    v.add_(w)
    (b * b).sum().backward()
    return name(b), name(v), w.grad.tolist(), v.requires_grad, v._base is b


def view_after_base_changes(T):
    w = leaf(T, 1., 2.)
    b = w * 3
    v = b[0:1]
    b.mul_(w)
    (v * 2).sum().backward()
    return w.grad.tolist(), name(v), name(b)


def chain_of_views(T):
    x = leaf(T, 1., 2., 3., 4.)
    y = (x * 2).view(2, 2)
    y.t()[0].mul_(3)
    y[:, 1].add_(x[2:])
    (y * y).sum().backward()
    return x.grad.tolist(), name(y)


def copy_into_slice(T):
    x, y = leaf(T, 1., 2., 3.), leaf(T, 5.)
    z = x * 1
    z[1:2] = y
    z[0] = 7.0
    (z * z).sum().backward()
    return x.grad.tolist(), y.grad.tolist(), name(z)


def fill_and_zero(T):
    x = leaf(T, 1., 2., 3.)
    z = x * 2
    z[1].zero_()
    z[2:].fill_(4.)
    (z * x).sum().backward()
    return x.grad.tolist()


def masked_assignment(T):
    x = leaf(T, 1., -2., 3.)
    z = x * 2
    z[x < 0] = 0.5
    (z * z).sum().backward()
    return x.grad.tolist(), name(z)


def leaf_in_place(T):
    leaf(T, 1.).add_(1)


def view_of_leaf_in_place(T):
    leaf(T, 1., 2.)[0].add_(1)


def unbind_in_place(T):
    a, b = (leaf(T, 1., 2.) * 2).unbind()
    a.mul_(2)


def no_grad_view_in_place(T):
    x = leaf(T, 1., 2.) * 2
    with T.no_grad():
        v = x[0]
    v.mul_(leaf(T, 3.)[0])


def no_grad_view_base_written(T):
    w, b = leaf(T, 1., 2.), T.zeros(2, 2, dtype=T.float64)
    with T.no_grad():
        v = b[0]
    b.mul_(w)
    v.grad_fn


def leaf_changed_under_no_grad(T):
    x = leaf(T, 1., 2.)
    with T.no_grad():
        x.mul_(3)
    (x * x).sum().backward()
    return x.grad.tolist(), x._version, x.is_leaf


def saved_then_changed(T):
    x = leaf(T, 1., 2.)
    y = x * 2
    z = y * y
    y.add_(1)
    z.sum().backward()


def leaf_saved_then_changed(T):
    x = leaf(T, 1., 2.)
    z = x * x
    with T.no_grad():
        x.add_(1)
    z.sum().backward()


def data_change_is_not_seen(T):
    x = leaf(T, 1., 2.)
    z = x * x
    x.data.add_(1)
    z.sum().backward()
    return x.grad.tolist(), x._version


def detach_shares(T):
    x = leaf(T, 1., 2.)
    d = x.detach()
    d.add_(5)
    return x.tolist(), x._version, d.requires_grad, d._base is None, d.is_leaf


def set_data(T):
    x = leaf(T, 1., 2.)
    x.data = T.tensor([3., 4., 5.], dtype=T.float64)
    (x * x).sum().backward()
    return x.tolist(), x.grad.tolist()


def accumulate_twice(T):
    x = leaf(T, 1., 2.)
    (x * 3).sum().backward()
    g = x.grad
    (x * x).sum().backward()
    return x.grad is g, g.tolist()


def create_graph_accumulates(T):
    x = leaf(T, 2.)
    (x ** 3).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    return g.tolist(), x.grad.tolist(), g.requires_grad


def twice_without_retain(T):
    x = leaf(T, 2.)
    y = (x * x).sum()
    y.backward()
    y.backward()


def twice_when_nothing_saved(T):
    x = leaf(T, 2., 1.)
    y = (x + x).sum()
    y.backward()
    y.backward()
    return x.grad.tolist()


def not_scalar(T):
    (leaf(T, 1., 2.) * 2).backward()


def no_grad_fn(T):
    T.ones(2).sum().backward()


def wrong_shape(T):
    (leaf(T, 1., 2.) * 2).backward(T.ones(3, dtype=T.float64))


def unused(T):
    T.autograd.grad(leaf(T, 1.).sum(), [leaf(T, 1.)])


def not_required(T):
    T.autograd.grad(leaf(T, 1.).sum(), [T.ones(1)])


def integer_requires_grad(T):
    T.ones(2, dtype=T.int64).requires_grad_()


def unset_on_non_leaf(T):
    (leaf(T, 1.) * 2).requires_grad_(False)


def wrong_grad_size(T):
    leaf(T, 1.).grad = T.ones(2, dtype=T.float64)


def wrong_grad_type(T):
    leaf(T, 1.).grad = 3


def retain_without_grad(T):
    T.ones(1).retain_grad()


def hook_without_grad(T):
    T.ones(1).register_hook(print)


def post_hook_on_non_leaf(T):
    (leaf(T, 1.) * 2).register_post_accumulate_grad_hook(print)


def inference_saved(T):
    with T.inference_mode():
        a = T.ones(1, dtype=T.float64)
    leaf(T, 1.) * a


def inference_requires_grad(T):
    with T.inference_mode():
        a = T.ones(1)
    a.requires_grad_()


def hooks_in_order(T):
    x, seen = leaf(T, 1., 2.), []
    y = x * 2
    y.register_hook(lambda g: seen.append(("y", g.tolist())) or g * 2)
    y.register_hook(lambda g: seen.append(("y2", g.tolist())))
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("post", p.grad.tolist())))
    y.sum().backward()
    return seen


def hook_then_in_place(T):
    x, seen = leaf(T, 1., 2.), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.retain_grad()
    (y * y).sum().backward()
    return seen, y.grad.tolist()


def retain_follows_in_place(T):
    x = leaf(T, 1., 2.)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * 5).sum().backward()
    return y.grad.tolist(), y.retains_grad, x.retains_grad


def hook_bad_size(T):
    y = leaf(T, 1.) * 2

    def wrong(g):
        return T.ones(3)
    y.register_hook(wrong)
    y.sum().backward()


def hook_bad_type(T):
    y = leaf(T, 1.) * 2
    y.register_hook(lambda g: 5)
    y.sum().backward()


def next_functions(T):
    x, w = leaf(T, 1.), T.ones(1, dtype=T.float64)
    y = T.cat([x * 2, w, x])[0] + w
    out = []

    def walk(fn, depth):
        out.append((depth, fn.name() if fn else None))
        for f, nr in fn.next_functions if fn else ():
            walk(f, depth + 1)
    walk(y.grad_fn, 0)
    return out


def index_next(T):
    x = leaf(T, 1., 2.)
    return [f and f.name() for f, _ in x[T.tensor([0, 1])].grad_fn.next_functions]


def mixed_dtypes(T):
    a = T.tensor([1., 2.], requires_grad=True)
    b = leaf(T, 3., 4.)
    (a * b).sum().backward()
    return str(a.grad.dtype)[6:], a.grad.tolist(), str(b.grad.dtype)[6:]


def half_gradient_dtype(T):
    a = T.tensor([1., 2.], requires_grad=True)
    (a.to(T.float16) * 2).sum().backward()
    return a.grad.tolist(), str(a.grad.dtype)[6:]


def grad_layout(T):
    x = T.zeros(3, 2, dtype=T.float64).t().requires_grad_()
    (x * 2).sum().backward()
    y = T.zeros(2, 3, dtype=T.float64, requires_grad=True)
    y.t().sum().backward()
    return x.grad.stride(), y.grad.stride()


def shared_gradient_is_copied(T):
    a, b = leaf(T, 1., 2.), leaf(T, 1., 2.)
    (a + b).sum().backward()
    a.grad.add_(1)
    return a.grad.tolist(), b.grad.tolist()


def shared_through_view(T):
    a, b = leaf(T, 1., 2.), leaf(T, 1., 2.)
    (a.view(2) + b).backward(T.ones(2, dtype=T.float64))
    a.grad.add_(1)
    return a.grad.tolist(), b.grad.tolist()


def expanded_in_place(T):
    T.zeros(1, 3).expand(2, 3).add_(1)


def set_grad_enabled_now(T):
    T.set_grad_enabled(False)
    try:
        a = (leaf(T, 1.) * 2).requires_grad
    finally:
        T.set_grad_enabled(True)
    return a, (leaf(T, 1.) * 2).requires_grad


def detach_in_place_view(T):
    (leaf(T, 1., 2.) * 2)[0].detach_()


def grad_of_int_index(T):
    x = leaf(T, 1., 2., 3.)
    x[T.tensor([0, 0, 2])].sum().backward()
    return x.grad.tolist()


def where_nan(T):
    x = leaf(T, 0., 4.)
    T.where(x > 0, x.sqrt(), T.zeros_like(x)).sum().backward()
    return [str(v) for v in x.grad.tolist()]


def extreme_ties(T):
    x = leaf(T, 1., 3., 3.)
    x.max().backward()
    y = leaf(T, 1., 3., 3.)
    y.max(0)[0].backward()
    z = leaf(T, 2., 2.)
    T.maximum(z, z.detach()).sum().backward()
    return x.grad.tolist(), y.grad.tolist(), z.grad.tolist()


def norm_at_zero(T):
    x = leaf(T, 0., 0.)
    x.norm().backward()
    return x.grad.tolist()


def kinks(T):
    x = leaf(T, -1., 0., 1.)
    f = T.nn.functional
    for fn in (f.relu, f.relu6, f.hardtanh, T.abs, T.sgn, lambda v: v.clamp(0, 1), lambda v: v.clamp(min=0.)):
        fn(x).sum().backward()
    return x.grad.tolist()


def custom(T):
    class Mul(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b if ctx.needs_input_grad[0] else None, g * a if ctx.needs_input_grad[1] else None
    x, y = leaf(T, 2.), leaf(T, 3.)
    z = Mul.apply(x, y)
    g, = T.autograd.grad(z.sum(), x, create_graph=True)
    gg, = T.autograd.grad(g.sum(), y)
    w = Mul.apply(x, y.detach())
    w.sum().backward()
    return name(z), g.tolist(), gg.tolist(), x.grad.tolist(), y.grad


def custom_too_few(T):
    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g
    F.apply(leaf(T, 1.), leaf(T, 1.)).sum().backward()


def custom_not_none(T):
    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, k):
            return a * k

        @staticmethod
        def backward(ctx, g):
            return g, g
    F.apply(leaf(T, 1.), 3).sum().backward()


def custom_bad_shape(T):
    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return T.ones(5, dtype=T.float64)
    F.apply(leaf(T, 1., 2.)).sum().backward()


def functional(T):
    x = leaf(T, 1., 2.)
    F = T.autograd.functional

    def f(v):
        return (v ** 3).sum() * v[0]
    return (F.jacobian(lambda v: v ** 2, x).tolist(), F.hessian(f, x).tolist(),
            [t.tolist() for t in F.vjp(f, x)], [t.tolist() for t in F.jvp(lambda v: v ** 2, x, T.ones(2, dtype=T.float64))],
            [t.tolist() for t in F.vhp(f, x, T.ones(2, dtype=T.float64))])


def batched_grads(T):
    x = leaf(T, 1., 2.)
    g, = T.autograd.grad(x ** 2, x, T.eye(2, dtype=T.float64), is_grads_batched=True)
    return g.tolist()


def anomaly(T):
    x = leaf(T, 0.)
    with T.autograd.set_detect_anomaly(True):
        (x / x).sum().backward()


def multi_grad_hook(T):
    x, y, got = leaf(T, 1.), leaf(T, 2.), []
    T.autograd.graph.register_multi_grad_hook([x, y], lambda gs: got.append([g.tolist() for g in gs]))
    (x * y).sum().backward()
    return got


# Texts that differ on purpose.
ONLY_CLASS = {"saved_then_changed", "leaf_saved_then_changed", "unbind_in_place", "anomaly", "detach_in_place_view",
              "wrong_shape", "expanded_in_place"}


def run(fn, T):
    try:
        return repr(fn(T)).replace("torch::autograd::", "")
    except Exception as e:
        return f"{type(e).__name__}: " + ("" if fn.__name__ in ONLY_CLASS else str(e).replace("taper.", "torch."))


def test_same_as_pytorch():
    bad, n = [], 0
    for key, fn in list(globals().items()):
        if not callable(fn) or getattr(fn, "__module__", "") != __name__ or key in ("leaf", "name", "run") or \
                key.startswith("test_"):
            continue
        a, b = run(fn, taper), run(fn, torch)
        n += 1
        if a != b:
            bad.append(f"{key}:\n  Taper   {a}\n  PyTorch {b}")
    assert n > 60, n
    assert not bad, f"{len(bad)} of {n}:\n" + "\n".join(bad)
