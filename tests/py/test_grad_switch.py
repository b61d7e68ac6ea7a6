"""Grad mode switched inside a compiled training function: the autograd stage obeys it."""
import os
import subprocess
import sys

import taper

BACKENDS = ("eager", "aot_eager", "inductor")


def part(x, w):
    y = x * w
    with taper.no_grad():
        s = y.sum() * w
    return (y * s).sum()


def two_results(x, w):
    with taper.no_grad():
        a = w * 2
    return a, w * 2


def back_on(x, w):
    with taper.no_grad():
        a = w * 3
        with taper.enable_grad():
            b = w * x
        c = a * w
    return (a * b + c * w).sum()


def target(x, w):
    with taper.no_grad():
        t = taper.sigmoid(x * w)
    return ((taper.sigmoid(x * w) - 0.5 * t) ** 2).mean()


def run(f):
    x, w = taper.arange(4.0), taper.full((4,), 2.0, requires_grad=True)
    got = f(x, w)
    got = got if isinstance(got, tuple) else (got,)
    sum(g.sum() for g in got if g.requires_grad).backward()
    return [g.requires_grad for g in got], [[round(v, 5) for v in g.reshape(-1).tolist()] for g in (*got, w.grad)]


def test_gradients_are_those_of_the_plain_function():
    for f in (part, two_results, back_on, target):
        for b in BACKENDS:
            assert run(taper.compile(f, backend=b)) == run(f), (f.__name__, b)
            assert taper.is_grad_enabled()


def logged(body, logs):
    p = subprocess.run([sys.executable, "-c", "import taper\n" + body], capture_output=True, text=True,
                       env=dict(os.environ, TAPER_LOGS=logs, PYTHONPATH=os.path.dirname(os.path.dirname(taper.__file__))))
    assert p.returncode == 0, p.stderr
    return p.stderr


def test_the_backend_really_runs():
    said = logged("""
def f(x, w):
    with taper.no_grad():
        s = w * x
    return (w * s).sum()
taper.compile(f, backend="aot_eager")(taper.ones(3), taper.ones(3, requires_grad=True)).backward()
""", "aot_graphs")
    assert "Backward graph" in said and "set_grad_enabled" not in said, said


def test_a_graph_that_stays_eager_says_so():
    body = """
def f(x, w):
    with taper.enable_grad():
        a = w * x
    return a
with taper.no_grad():
    r = taper.compile(f, backend="aot_eager")(taper.ones(3), taper.ones(3, requires_grad=True))
assert r.requires_grad
"""
    assert "runs with backend 'eager'" in logged(body, "")


def test_results_made_in_inference_mode_are_marked():
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        f = taper.compile(lambda x: (taper.sin(x) * 2, x, x.view(-1)), backend=backend)
        x = taper.ones(3)
        assert not f(x)[0].is_inference()
        with taper.inference_mode():
            y, same, view = f(x)
            assert f(y)[0].is_inference()
        assert y.is_inference() and same is x and not x.is_inference() and not view.is_inference(), backend
        w = taper.ones(3, requires_grad=True)
        try:
            w * y
            assert False, backend
        except RuntimeError as e:
            assert "Inference tensors cannot be saved for backward" in str(e), e
        assert not f(x)[0].is_inference()


def test_the_mode_after_a_break_inside_a_block_is_the_one_outside():
    """The block ends behind the break, and gradients are taken in the same graph: they are on again, then and for the caller."""
    import contextlib

    def one(a):
        with taper.no_grad():
            taper._dynamo.graph_break()
        return taper.autograd.grad((a * a).sum(), a)[0]

    def stacked(a):
        with contextlib.ExitStack() as stack:
            stack.enter_context(taper.no_grad())
            if a.sum() > 100:
                pass
        return taper.autograd.grad((a * a).sum(), a)[0]

    def off_again(a):
        with taper.enable_grad():
            taper._dynamo.graph_break()
            b = a * a
        return b, a * 3
    for backend in ("eager", "aot_eager", "inductor"):
        for f in (one, stacked):
            taper._dynamo.reset()
            c = taper.compile(f, backend=backend)
            for _ in range(3):
                assert c(taper.tensor([1.0, 2.0], requires_grad=True)).tolist() == [2.0, 4.0] and taper.is_grad_enabled()
        taper._dynamo.reset()
        c = taper.compile(off_again, backend=backend)
        for _ in range(2):
            with taper.no_grad():
                b, d = c(taper.ones(2, requires_grad=True))
                assert b.requires_grad and not d.requires_grad and not taper.is_grad_enabled()
