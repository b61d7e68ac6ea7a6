"""A whole training step in one compiled function: zero_grad, forward, backward and the optimiser are one graph."""
import os
import sys

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw
from taper import nn
from taper._dynamo.utils import counters

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import models  # noqa: E402

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]
OPTIMISERS = {
    "sgd": lambda p: taper.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: taper.optim.Adam(p, lr=1e-3),
    "adamw": lambda p: taper.optim.AdamW(p, lr=1e-3, weight_decay=0.05),
}


def fresh():
    taper._dynamo.reset()
    counters.clear()


def graphs():
    return counters["stats"].get("unique_graphs", 0)


def breaks():
    return list(counters["graph_break"])


def train(name, opt, backend, dtype, steps):
    """Losses, state and gradients after some steps."""
    fresh()
    taper.manual_seed(1)
    model, args, target, loss_fn = models.build(name, taper, small=True)
    model = model.to(dtype)
    args = [a.to(dtype) if a.is_floating_point() else a for a in args]
    target = target.to(dtype) if target.is_floating_point() else target
    optimiser = OPTIMISERS[opt](model.parameters())

    def step():
        return models.train_step(model, args, target, loss_fn, optimiser)

    f = taper.compile(step, backend=backend, fullgraph=True) if backend else step
    taper.manual_seed(5)
    losses = [f().detach().clone() for _ in range(steps)]
    if backend:
        assert graphs() <= 2 and not breaks(), (name, opt, backend, graphs(), breaks())
    grads = [p.grad for p in model.parameters()]
    assert all(g is not None and g.stride() == p.stride() for g, p in zip(grads, model.parameters()))
    return losses + [v.detach() for v in model.state_dict().values()] + grads


def same_training(name, opt):
    want = train(name, opt, None, taper.float64, 20)
    for backend in BACKENDS:
        got = train(name, opt, backend, taper.float64, 20)
        for i, (g, w) in enumerate(zip(got, want)):
            if backend in ("eager", "aot_eager"):
                assert taper.equal(g, w), f"{name} {opt} {backend}: value {i} is not bit-equal"
            else:
                d = (g.double() - w.double()).abs().max().item()
                assert d <= 1e-9 * (1 + w.double().abs().max().item()), f"{name} {opt} {backend}: value {i}: {d}"


def _make(name, opt):
    return lambda: same_training(name, opt)


for _n in models.NAMES:
    for _o in OPTIMISERS:
        globals()[f"test_{_n}_{_o}"] = _make(_n, _o)


def step_of(make, schedule=None, compiled=None):
    """Losses and parameters after some steps, and how many graphs they took."""
    fresh()
    m, (x, y) = net(), data()
    opt = make(m.parameters())
    lr = schedule(opt) if schedule else None

    def step():
        opt.zero_grad()
        loss = ((m(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    f = taper.compile(step, backend=compiled, fullgraph=True) if compiled else step
    losses = []
    for _ in range(9):
        losses.append(f().item())
        if lr:
            lr.step(*[losses[-1]] if isinstance(lr, taper.optim.lr_scheduler.ReduceLROnPlateau) else [])
    return losses, [p.detach() for p in m.parameters()], graphs()


SETTINGS = {"SGD": [{}, dict(momentum=0.9, nesterov=True, weight_decay=0.1)], "Adam": [{}, dict(amsgrad=True)], "AdamW": [{}], "Adamax": [dict(weight_decay=0.1)],
            "NAdam": [{}, dict(weight_decay=0.1), dict(weight_decay=0.1, decoupled_weight_decay=True)],
            "RAdam": [{}, dict(weight_decay=0.1), dict(betas=(0.9, 0.9))], "RMSprop": [{}, dict(momentum=0.9, centered=True)],
            "Adagrad": [dict(lr_decay=0.1)], "Adadelta": [{}]}


def test_every_optimiser_takes_two_graphs():
    """The first step has no state and no gradients, later ones do; how many steps were taken does not matter."""
    for name, settings in SETTINGS.items():
        for kw in settings:
            for lr in (0.01, taper.tensor(0.01, dtype=taper.float64)):
                def make(p):
                    return getattr(taper.optim, name)(p, lr=lr, **kw)
                a, p, _ = step_of(make)
                b, q, n = step_of(make, compiled="aot_eager")
                assert a == b and all(taper.equal(s, t) for s, t in zip(p, q)), (name, kw, lr, a, b)
                assert n <= 2, (name, kw, lr, n)


def test_every_schedule_of_a_tensor_takes_two_graphs():
    L = taper.optim.lr_scheduler
    schedules = [lambda o: L.LambdaLR(o, lambda e: 0.95 ** e), lambda o: L.StepLR(o, 3), lambda o: L.MultiStepLR(o, [2, 5]), lambda o: L.ExponentialLR(o, 0.9),
                 lambda o: L.LinearLR(o), lambda o: L.CosineAnnealingLR(o, 10), lambda o: L.CosineAnnealingWarmRestarts(o, 5),
                 lambda o: L.OneCycleLR(o, 0.1, total_steps=30, cycle_momentum=False), lambda o: L.ReduceLROnPlateau(o, patience=1, threshold=0.5),
                 lambda o: L.SequentialLR(o, [L.LinearLR(o), L.StepLR(o, 2)], [4]), lambda o: L.ChainedScheduler([L.LinearLR(o), L.ExponentialLR(o, 0.9)])]
    for i, schedule in enumerate(schedules):
        for name in ("SGD", "Adam", "NAdam"):
            def make(p):
                return getattr(taper.optim, name)(p, lr=taper.tensor(0.01, dtype=taper.float64))
            a, p, _ = step_of(make, schedule)
            b, q, n = step_of(make, schedule, "aot_eager")
            assert a == b and all(taper.equal(s, t) for s, t in zip(p, q)), (i, name, a, b)
            assert n <= 2, (i, name, n)


def test_lbfgs_steps_outside_the_graph():
    def run(compiled):
        fresh()
        m, (x, y) = net(), data()
        opt = taper.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4)

        def closure():
            opt.zero_grad()
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            return loss

        def step(k):
            return opt.step(closure) * k

        f = taper.compile(step, backend="aot_eager") if compiled else step
        return [f(taper.tensor(2.0)).item() for _ in range(10)]

    assert run(False) == run(True)
    assert graphs() <= 2 and any("LBFGS" in b for b in breaks()), (graphs(), breaks())


# ---- what a step may do ----
def net(bias=True):
    taper.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=bias), nn.Tanh(), nn.Linear(6, 1, bias=bias)).double()


def data():
    taper.manual_seed(3)
    return taper.randn(5, 4, dtype=taper.float64), taper.randn(5, 1, dtype=taper.float64)


def compare(make, calls=3, max_graphs=2, want_breaks=(), backends=BACKENDS, tol=1e-12):
    """make() gives (function, args, what to look at afterwards); plain and compiled runs must leave the same."""
    fn, args, look = make()
    want_out = [fn(*args) for _ in range(calls)]
    want = [None if v is None else v.detach().clone() for v in look()]
    for b in backends:
        fresh()
        fn, args, look = make()
        c = taper.compile(fn, backend=b)
        out = [c(*args) for _ in range(calls)]
        assert [o.requires_grad for o in out] == [w.requires_grad for w in want_out], (b, out, want_out)
        for o, w in list(zip(out, want_out)) + list(zip(look(), want)):
            if w is None:
                assert o is None
                continue
            assert o.shape == w.shape and (o - w).abs().max().item() <= tol, (b, o, w)
        assert graphs() <= max_graphs, (b, graphs())
        assert len(breaks()) == len(want_breaks), (b, breaks())
        for text in want_breaks:
            assert any(text in r for r in breaks()), (b, text, breaks())
    return out


def grads_of(m):
    return lambda: [p.grad for p in m.parameters()] + list(m.parameters())


def test_gradients_accumulate_into_the_tensor_that_is_there():
    def make():
        m, (x, y) = net(), data()

        def f(x, y):
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            return loss

        return f, (x, y), grads_of(m)

    compare(make)
    m, (x, y) = net(), data()
    f = taper.compile(lambda: ((m(x) - y) ** 2).mean().backward(), backend="aot_eager")
    f()
    g = m[0].weight.grad
    before = g.clone()
    f()
    assert m[0].weight.grad is g and taper.equal(g, before * 2)


def test_zero_grad_without_none():
    def make():
        m, (x, y) = net(), data()
        opt = taper.optim.SGD(m.parameters(), lr=0.1)

        def f(x, y):
            opt.zero_grad(set_to_none=False)
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss

        return f, (x, y), grads_of(m)

    compare(make)


def test_autograd_grad_inside():
    def make():
        m, (x, y) = net(), data()

        def f(x, y):
            loss = ((m(x) - y) ** 2).mean()
            gs = taper.autograd.grad(loss, list(m.parameters()))
            with taper.no_grad():
                for p, g in zip(m.parameters(), gs):
                    p -= 0.1 * g
            return loss.detach()

        return f, (x, y), grads_of(m)

    compare(make, max_graphs=1)


def test_gradient_penalty_differentiates_twice():
    def make():
        m, (x, y) = net(), data()
        x.requires_grad_()

        def f(x, y):
            out = m(x)
            gx, = taper.autograd.grad(out.sum(), x, create_graph=True)
            loss = ((out - y) ** 2).mean() + (gx ** 2).sum()
            loss.backward()
            return loss

        return f, (x, y), lambda: grads_of(m)() + [x.grad]

    compare(make)


def test_gradient_and_inputs_arguments():
    def make():
        m, (x, y) = net(), data()

        def f(x, y):
            out = m(x)
            out.backward(y, inputs=[m[0].weight])
            return out

        return f, (x, y), grads_of(m)

    compare(make)


def test_unused_parameter_keeps_no_gradient():
    def make():
        m, (x, y) = net(), data()
        other = taper.ones(3, dtype=taper.float64, requires_grad=True)
        opt = taper.optim.Adam(list(m.parameters()) + [other], lr=0.1)

        def f(x, y):
            opt.zero_grad()
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss

        return f, (x, y), lambda: grads_of(m)() + [other.grad, other]

    compare(make)


def test_equal_gradients_do_not_share_memory():
    a = taper.ones(3, requires_grad=True)
    b = taper.ones(3, requires_grad=True)

    @taper.compile(backend="aot_eager")
    def f():
        (a + b).backward(taper.ones(3))

    f()
    a.grad.add_(1)
    assert b.grad.tolist() == [1, 1, 1] and a.grad.tolist() == [2, 2, 2]


def test_loss_is_what_it_is_after_backward():
    for b in BACKENDS:
        m, (x, y) = net(), data()

        def f(x, y):
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            return loss

        loss = taper.compile(f, backend=b)(x, y)
        assert loss.requires_grad and loss.grad_fn.name() == "MeanBackward0"
        plain = f(x, y)
        errors = []
        for v in (plain, loss):
            try:
                v.backward()
            except RuntimeError as e:
                errors.append(str(e))
        assert len(errors) == 2 and errors[0] == errors[1], errors
        fresh()


def test_second_backward_inside_is_the_same_error():
    m, (x, y) = net(), data()

    def f(x, y):
        loss = ((m(x) - y) ** 2).mean()
        loss.backward()
        loss.backward()

    texts = []
    for g in (f, taper.compile(f, backend="aot_eager")):
        try:
            g(x, y)
        except RuntimeError as e:
            texts.append(str(e))
    assert len(texts) == 2 and texts[0] == texts[1] and "a second time" in texts[0]


def test_retain_graph_inside():
    def make():
        m, (x, y) = net(), data()

        def f(x, y):
            loss = ((m(x) - y) ** 2).mean()
            loss.backward(retain_graph=True)
            loss.backward()
            return loss.detach()

        return f, (x, y), grads_of(m)

    compare(make)


def test_a_result_that_can_still_be_differentiated():
    def make():
        m, (x, y) = net(), data()
        x.requires_grad_()

        def f(x, y):
            ((m(x.detach()) - y) ** 2).mean().backward()
            return x * 2

        return f, (x, y), grads_of(m)

    out = compare(make)
    out[0].sum().backward()


def test_hooks_break_with_a_reason_and_run():
    seen = []

    def make():
        m, (x, y) = net(), data()
        m[0].weight.register_hook(lambda g: seen.append(1) or g * 2)

        def f(x, y):
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            return loss

        return f, (x, y), grads_of(m)

    compare(make, max_graphs=4, want_breaks=["has hooks"])
    assert len(seen) == 3 * (1 + len(BACKENDS))


def test_a_hook_added_later_is_noticed():
    fresh()
    m, (x, y) = net(), data()

    @taper.compile(backend="aot_eager")
    def f():
        m.zero_grad()
        ((m(x) - y) ** 2).mean().backward()

    f()
    f()
    want = m[0].weight.grad.clone()
    h = m[0].weight.register_hook(lambda g: g * 2)
    f()
    assert taper.equal(m[0].weight.grad, want * 2)
    h.remove()
    f()
    assert taper.equal(m[0].weight.grad, want)
    m[0].weight.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(3)] and None)
    f()
    assert taper.equal(m[0].weight.grad, want * 3)


def test_gradients_that_flow_out_of_the_graph_break():
    w = taper.ones(3, requires_grad=True)

    def make():
        w.grad = None
        h = w * 2

        def f(h):
            (h * h).sum().backward(retain_graph=True)
            return h.detach()

        return f, (h,), lambda: [w.grad]

    compare(make, max_graphs=4, want_breaks=["before this graph"])


def test_break_behind_backward():
    def make():
        m, (x, y) = net(), data()
        opt = taper.optim.SGD(m.parameters(), lr=0.1)

        def f(x, y):
            opt.zero_grad()
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            taper._dynamo.graph_break()
            opt.step()
            return loss

        return f, (x, y), grads_of(m)

    compare(make, max_graphs=4, want_breaks=["graph_break"])


def test_parameter_frozen_half_way_recompiles_with_a_reason():
    fresh()
    m, (x, y) = net(), data()
    reasons = []

    def f(x, y):
        m.zero_grad()
        ((m(x) - y) ** 2).mean().backward()

    c = taper._dynamo.optimize("aot_eager", guard_fail_fn=reasons.append)(f)
    c(x, y)
    c(x, y)
    n = len(reasons)
    m[0].weight.requires_grad_(False)
    c(x, y)
    assert m[0].weight.grad is None and m[2].weight.grad is not None
    assert len(reasons) > n and "requires_grad" in reasons[-1], reasons


def test_nothing_to_differentiate_is_the_same_error():
    def f(x):
        x.sum().backward()

    texts = []
    for g in (f, taper.compile(f, backend="aot_eager")):
        try:
            g(taper.ones(3))
        except RuntimeError as e:
            texts.append(str(e))
    assert texts == ["element 0 of tensors does not require grad and does not have a grad_fn"] * 2, texts


def test_learning_rate_schedule_recompiles_and_its_fix_does_not():
    def run(lr):
        fresh()
        m, (x, y) = net(), data()
        opt = taper.optim.Adam(m.parameters(), lr=lr)
        sched = taper.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)

        @taper.compile(backend="aot_eager", fullgraph=True)
        def step():
            opt.zero_grad()
            ((m(x) - y) ** 2).mean().backward()
            opt.step()
            return 0

        for _ in range(5):
            step()
            sched.step()
        return graphs(), [p.detach().clone() for p in m.parameters()]

    n, slow = run(0.01)
    assert n == 5, n
    n, fast = run(taper.tensor(0.01, dtype=taper.float64))
    assert n == 2, n
    for a, b in zip(slow, fast):
        assert (a - b).abs().max().item() < 1e-12
