"""Results of a graph that share memory go on sharing it, whatever was written before: what follows may write through either."""
import itertools

import taper

VIEWS = {
    "select": lambda y: y[0], "columns": lambda y: y[:, 1:3], "steps": lambda y: y[:, ::2], "t": lambda y: y.t(), "flat": lambda y: y.view(-1),
    "unsqueeze": lambda y: y.unsqueeze(1), "diagonal": lambda y: y.diagonal(), "narrow": lambda y: y.narrow(0, 1, 2),
    "as_strided": lambda y: y.as_strided((2, 2), (3, 1), 1), "permute": lambda y: y.permute(1, 0)[1], "unfold": lambda y: y.unfold(1, 2, 2),
    "of a view": lambda y: y[1][1:], "element": lambda y: y[0, 0], "whole": lambda y: y.view_as(y)}
WRITES = {"none": lambda y, v: None, "view": lambda y, v: v.add_(1), "base": lambda y, v: y.add_(1), "both": lambda y, v: (v.mul_(3), y.add_(1))}


def seen(f, grad):
    x = taper.arange(12.0).reshape(3, 4).requires_grad_(grad)
    out = f(x)
    if grad:
        (out[0].sum() + 2 * out[1].sum()).backward()
    return [t.tolist() for t in out], [t.requires_grad for t in out], x.grad.tolist() if grad else None


def test_writes_before_and_after_a_break():
    for (name, view), (when, write), through, grad in itertools.product(VIEWS.items(), WRITES.items(), (0, 1), (False, True)):
        def f(x):
            y = x * 2
            v = view(y)
            write(y, v)
            taper._dynamo.graph_break()
            (v if through else y).mul_(10)
            return v, y
        want = seen(f, grad)
        for backend in ("aot_eager", "inductor"):
            taper._dynamo.reset()
            assert seen(taper.compile(f, backend=backend), grad) == want, (name, when, through, grad, backend)


def test_three_results_on_one_memory():
    def f(x):
        y = x.exp()
        a, b = y[0], y[:, 1]
        a.zero_()
        b.add_(1)
        return a, b, y
    for backend in ("aot_eager", "inductor"):
        a, b, y = taper.compile(f, backend=backend)(taper.zeros(2, 3))
        assert len({t.untyped_storage().data_ptr() for t in (a, b, y)}) == 1
        b.mul_(7)
        assert a.tolist() == [0, 7, 0] and y.tolist() == [[0, 7, 0], [1, 14, 1]]


def test_weak_references_see_what_a_local_name_still_holds():
    """A local that nobody reads any more goes on holding its object over a break, as in plain execution."""
    import weakref

    def tensor(x):
        v = x * 2
        w = weakref.ref(v)
        return w() * 1

    def thing(x):
        class Box:
            pass
        b = Box()
        b.t = x * 2
        w = weakref.ref(b)
        taper._dynamo.graph_break()
        return w().t * 1
    for f in (tensor, thing):
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            assert taper.compile(f, backend=backend)(taper.ones(2)).tolist() == [2.0, 2.0]
