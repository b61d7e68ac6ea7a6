"""explain and survey."""
import copy

import taper


def broken(x):
    x = x + 1
    y = copy.deepcopy(x)
    x = y * 2
    if x.sum() > 0:
        return x.sin()
    return x.cos()


def test_explain_contents():
    out = taper._dynamo.explain(broken)(taper.ones(3))
    assert out.graph_count == 3 and out.graph_break_count == 2 and len(out.break_reasons) == 2, out
    assert out.op_count == sum(len(o) for o in out.ops_per_graph) == 5, out.ops_per_graph
    assert any(g["name"] == "L['x']" and g["create_fn"] == "TENSOR_MATCH" for g in out.out_guards), out.out_guards
    assert "graph 1:" in out.compile_times and "ms" in out.compile_times
    text = str(out)
    for head in ("Graph Count: 3", "Graph Break Count: 2", "Op Count: 5", "Break Reasons:", "  Break Reason 1:", "    Reason: copy.deepcopy TensorVariable()",
                 "    User Stack:", "Ops per Graph:", "  Ops 1:", "Out Guards:", "Compile Times:"):
        assert head in text, (head, text)
    assert taper._dynamo.explain(broken, taper.ones(3)).graph_count == 3  # the older calling form
    clean = taper._dynamo.explain(lambda x: x + 1)(taper.ones(3))
    assert clean.graph_count == 1 and clean.graph_break_count == 0 and not clean.break_reasons


counter = {"calls": 0}


def messy(x, scale, flag, items):
    counter["calls"] += 1
    y = x * scale
    print("hello")
    if flag:
        y = y + 1
    z = copy.deepcopy(y)
    if y.sum() > 0:
        z = z + items[0]
    items.append(z)
    return z.item() if z.numel() == 1 else z


def test_survey_lists_everything_of_one_call_with_a_fix_each():
    s = taper.compiler.survey(messy)(taper.ones(2), 0.5, True, [taper.ones(2)])
    breaks = [f.what for f in s.breaks]
    assert any("print" in b for b in breaks) and any("deepcopy" in b for b in breaks) and any("TB0001" in b for b in breaks), breaks
    assert all("test_reports.py:" in f.where for f in s.breaks), s.breaks
    rec = " ".join(f.what for f in s.recompilations)
    assert "float L['scale']" in rec and "flag L['flag']" in rec and "sizes of L['x'] are fixed ([2])" in rec, rec
    assert any("taper.tensor(value)" in f.fix for f in s.recompilations)
    effects = " ".join(f.what for f in s.side_effects)
    assert "G['counter']" in effects and "L['items']" in effects, effects
    assert all(f.fix for f in s.findings)
    assert taper.equal(s.result, taper.full((2,), 2.5)), s.result
    text = str(s)
    assert "kind" in text.splitlines()[2] and "fix" in text.splitlines()[2], text
    for word in ("graph break", "recompilation", "side effect"):
        assert word in text, text


def test_survey_of_a_clean_function():
    s = taper.compiler.survey(lambda x: x + 1)(taper.ones(()))
    assert s.graph_count == 1 and not s.findings and "Nothing stands in the way" in str(s), s


def test_survey_names_skipped_frames():
    def helper(n):
        return [i for i in range(n)]

    @taper.compiler.disable
    def native(x):
        return helper(3), x

    def fn(x):
        native(x)
        return x + 1
    s = taper.compiler.survey(fn)(taper.ones(2))
    assert any("disable" in f.what for f in s.breaks), s


def test_built_in_backends_called_from_python():
    for name in ("aot_eager", "inductor"):
        taper._dynamo.reset()
        backend = taper._dynamo.lookup_backend(name)
        x = taper.ones(3, requires_grad=True)
        f = taper.compile(lambda x: (x.sin() * 2).sum(), backend=lambda gm, inputs: backend(gm, inputs))
        f(x).backward()
        assert taper.allclose(x.grad, 2 * taper.ones(3).cos()), name
