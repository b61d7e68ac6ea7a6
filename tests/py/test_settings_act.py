"""Settings and marks do what they say, or say that they do nothing."""
import warnings

import taper
from taper._dynamo import config, exc


def graphs_of(f, *calls, dynamic=None, **settings):
    sizes = []

    def backend(gm, inputs):
        sizes.append([n.meta["val"].shape for n in gm.graph.nodes if n.op == "placeholder" and hasattr(n.meta["val"], "shape")])
        return gm.forward
    taper._dynamo.reset()
    with config.patch(settings):
        c = taper.compile(f, backend=backend, dynamic=dynamic)
        for args in calls:
            c(*args)
    return sizes


def raises(cls, f, *args):
    try:
        f(*args)
    except cls as e:
        return str(e)
    raise AssertionError("no " + cls.__name__)


def test_disallow_in_graph():
    def backend(gm, inputs):
        n.append(sum("call" in k.op for k in gm.graph.nodes))
        return gm.forward
    try:
        taper._dynamo.disallow_in_graph(taper.sub)
        for f in (lambda a: taper.add(taper.sub(taper.add(a, 1), 1), 1), lambda a: taper.sub(taper.add(a, 1), 1) * 2):
            n = []
            assert taper.compile(f, backend=backend)(taper.zeros(3)).tolist() == f(taper.zeros(3)).tolist() and n == [1, 1]
    finally:
        taper._C._capture_role(taper.sub, None)


def test_recompile_limit_under_both_names():
    for name in ("fail_on_cache_limit_hit", "fail_on_recompile_limit_hit"):
        taper._dynamo.reset()
        with config.patch({"cache_size_limit": 1, name: True}):
            f = taper.compile(lambda b, a: b * 2 if a else b + 1, backend="eager")
            f(taper.ones(5), True)
            raises(exc.FailOnRecompileLimitHit, f, taper.ones(5), False)
            assert getattr(config, name) is True


def test_ranges_of_mark_dynamic():
    f = taper.compile(lambda x: x.sin(), backend="eager")
    for size, low, high, fits in ((8, 2, 5, False), (1, 2, None, False), (4, 2, 5, True), (9, None, 8, False), (5, None, 5, True)):
        x = taper.ones(size, 3)
        taper._dynamo.mark_dynamic(x, 0, min=low, max=high)
        taper._dynamo.reset()
        if fits:
            f(x)
        else:
            assert "not in range" in raises(exc.ConstraintViolationError, f, x)


def test_what_automatic_dynamic_sizes_become():
    add, sizes = lambda x: x + 1, [(taper.ones(n),) for n in (3, 4, 5)]
    assert [str(g[0][0])[0] for g in graphs_of(add, *sizes)] == ["3", "s"]
    assert [str(g[0][0])[0] for g in graphs_of(add, *sizes, automatic_dynamic_shapes_mark_as="unbacked")] == ["3", "u"]
    assert [str(g[0][0])[0] for g in graphs_of(add, *sizes, automatic_dynamic_shapes_mark_as="oblivious")] == ["3", "s"]
    assert "unbacked" in raises(ValueError, lambda: config.patch(automatic_dynamic_shapes_mark_as="other").__enter__())


def test_sizes_of_parameters():
    calls = [(taper.nn.Parameter(taper.ones(n)),) for n in (3, 4, 5)]
    assert len(graphs_of(lambda p: p + 1, *calls)) == 3
    assert len(graphs_of(lambda p: p + 1, *calls, force_parameter_static_shapes=False)) == 2


def test_settings_without_effect_say_so():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with config.patch(optimize_ddp=False):
            pass
        with config.patch(cache_size_limit=3, optimize_ddp=True):
            pass
    assert [str(w.message) for w in seen] == ["config.optimize_ddp has no effect here"]


def test_disable_captures_nothing_new():
    graphs = []

    def backend(gm, example):
        graphs.append(gm)
        return gm.forward
    f = taper.compile(lambda x: x + 1, backend=backend)
    with taper._dynamo.config.patch(disable=True):
        assert f(taper.ones(2)).tolist() == [2, 2] and not graphs
    assert f(taper.ones(2)).tolist() == [2, 2] and len(graphs) == 1
