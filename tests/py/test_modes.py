"""Modes and options of taper.compile: what they do, and what is said about wrong ones."""
import os
import sys

import taper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")


def raised(kind, fn):
    try:
        fn()
    except kind as e:
        return str(e)
    raise AssertionError(f"no {kind.__name__}")


def test_lists():
    names = taper.compiler.list_options()
    assert names[:2] == ["emitter", "isa"] and {"unroll", "reuse_outputs", "trust_guards", "max_autotune", "autotune_seconds", "disk_cache"} <= set(names)
    modes = taper.compiler.list_mode_options()
    assert tuple(modes) == MODES and modes["default"] == {} and all(set(o) <= set(names) for o in modes.values())
    assert taper.compiler.list_mode_options("reduce-overhead") == modes["reduce-overhead"]


def test_wrong_modes_and_options_are_named():
    def f(x):
        return x + 1
    assert raised(RuntimeError, lambda: taper.compile(f, mode="fast")) == "Unrecognized mode=fast, should be one of: " + ", ".join(MODES)
    assert raised(RuntimeError, lambda: taper.compiler.list_mode_options("fast")).startswith("Unrecognized mode=fast")
    text = raised(RuntimeError, lambda: taper.compile(f, options={"emiter": "c"}))
    assert text.startswith("Unexpected optimization option emiter, known options are ['emitter', ")
    assert raised(RuntimeError, lambda: taper.compile(f, options={"emitter": "cuda"})) == \
        "option emitter cannot be 'cuda'; it is one of: auto, x64, c, interpreter"
    assert "got str should be bool" in raised(RuntimeError, lambda: taper.compile(f, options={"max_autotune": "yes"}))
    assert "must be a dictionary, not list" in raised(TypeError, lambda: taper.compile(f, options=["emitter"]))
    assert "both can't be specified" in raised(RuntimeError, lambda: taper.compile(f, mode="default", options={"unroll": 2}))
    assert taper.compile(f, options={})(taper.zeros(2)).tolist() == [1.0, 1.0]


def test_every_mode_and_option_computes_the_same():
    def f(x, w):
        return (taper.sin(x) @ w).relu().sum(1), taper.softmax(x, 1) * w.mean()

    taper.manual_seed(0)
    x, w = taper.randn(16, 16), taper.randn(16, 16)

    def run(g):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = g(a, b)
        (y[0].sum() + y[1].sum()).backward()
        return [y[0].detach(), y[1].detach(), a.grad, b.grad]
    want = run(f)
    ways = [{"mode": m} for m in MODES] + [{"options": {"unroll": n}} for n in (1, 2, 4)] + [{"options": {"isa": "avx2"}}]
    for kw in ways:
        taper._dynamo.reset()
        g = taper.compile(f, **kw)
        for _ in range(3):
            for a, b in zip(run(g), want):
                assert taper.allclose(a, b, atol=1e-4), kw


def test_reduce_overhead_reuses_only_what_nobody_holds():
    f = taper.compile(lambda x: x + 1, mode="reduce-overhead")
    x = taper.zeros(1000)
    y = f(x)
    at = y.data_ptr()
    del y
    y = f(x)
    assert y.data_ptr() == at
    z = f(x + 1)
    assert z.data_ptr() != at and y[0].item() == 1 and z[0].item() == 2
    part = y[10:20]
    del y
    w = f(x + 5)
    assert part[0].item() == 1 and w[0].item() == 6
    kept = [f(x + i) for i in range(5)]
    assert [k[0].item() for k in kept] == [1, 2, 3, 4, 5]

    def g(a):
        return (a * a).sin()
    c = taper.compile(g, mode="reduce-overhead")
    for i in range(4):  # what backward needs is held, too
        a, b = (taper.full((7,), 0.3 * i).requires_grad_() for _ in range(2))
        c(a).sum().backward()
        g(b).sum().backward()
        assert taper.allclose(a.grad, b.grad)


def test_random_numbers_are_not_used_up_by_tuning():
    def draws(mode):
        taper._dynamo.reset()
        taper.manual_seed(5)
        return taper.compile(lambda x: x + taper.rand(4), mode=mode)(taper.zeros(4)).tolist()
    assert draws("max-autotune") == draws("default")


def test_the_page_of_options_is_up_to_date():
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import gendocs_options
    with open(os.path.join(ROOT, "docs", "options.md")) as f:
        assert f.read() == gendocs_options.page(), "run make docs"


def test_a_graph_that_fails_inside_a_block_leaves_the_modes_as_they_were():
    def under_no_grad(a):
        b = a * 2
        with taper.no_grad():
            b.index_add_(0, taper.tensor([0]), b[:1])
        return b

    def under_inference(a):
        b = a * 2
        with taper.inference_mode():
            c = a * 2
            c.index_add_(0, taper.tensor([0]), c[:1])
        return b + 1

    for f in (under_no_grad, under_inference):
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            try:
                taper.compile(f, backend=backend)(taper.ones(2))
            except RuntimeError:
                pass
            assert taper.is_grad_enabled() and not taper.is_inference_mode_enabled(), (f.__name__, backend)


def test_inference_tensors_have_no_version():
    with taper.inference_mode():
        x = taper.ones(2)
    try:
        x._version
    except RuntimeError as e:
        assert str(e) == "Inference tensors do not track version counter."
    else:
        assert False
