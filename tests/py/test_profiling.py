"""taper.profiler: operators, compiled kernels with the user's lines, named ranges, schedules, files for viewers."""
import json
import os
import tempfile

import taper
from taper.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

HERE = os.path.basename(__file__)


def raises(cls, fn, words):
    try:
        fn()
    except cls as e:
        assert words in str(e), e
        return
    raise AssertionError(f"no {cls.__name__}")


def test_operators_and_ranges():
    x = taper.ones(8, 8, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as p:
        with record_function("outer"):
            with record_function("inner"):
                y = (x @ x).relu()
        y.sum().backward()
    rows = {e.key: e for e in p.key_averages()}
    assert {"outer", "inner", "aten::mm", "aten::relu", "aten::sum"} <= set(rows), list(rows)
    assert rows["aten::mm"].count == 3  # one forward, two backward
    outer, inner = rows["outer"], rows["inner"]
    assert outer.cpu_time_total >= inner.cpu_time_total >= rows["aten::relu"].cpu_time_total and outer.self_cpu_time_total <= outer.cpu_time_total
    by = {e.name: e for e in p.events()}
    assert by["inner"].cpu_parent is by["outer"] and by["aten::relu"].cpu_parent is by["inner"] and by["aten::relu"].depth == 2
    assert abs(sum(e.self_cpu_time_total for e in p.events()) - p.self_cpu_time_total) < 1e-6 and p.self_cpu_time_total > 0
    text = p.key_averages().table(sort_by="cpu_time_total", row_limit=2)
    assert "Self CPU time total:" in text and len(text.splitlines()) == 7, text
    raises(ValueError, lambda: p.key_averages().table(sort_by="cpu_time_totl"), "did you mean 'cpu_time_total'?")
    with record_function("nobody listens"):
        taper.ones(1)


def test_compiled_kernels_name_the_line():
    @taper.compile
    def f(x, w):
        with record_function("traced"):
            h = taper.sin(x) * 2 + 1
        return (h @ w).softmax(-1)
    line = f.__wrapped__.__code__.co_firstlineno
    x, w = taper.ones(32, 32), taper.ones(32, 32)
    want = f(x, w)
    before = taper.compiler.metrics() if hasattr(taper.compiler, "metrics") else None
    with profile() as p:
        got = f(x, w)
    assert taper.equal(got, want)
    compiled = [e for e in p.events() if e.kind in ("kernel", "call")]
    places = {e.stack[0].rsplit("/", 1)[-1] for e in compiled}
    assert compiled and places <= {f"{HERE}:{line + k}" for k in range(1, 6)} and f"{HERE}:{line + 3}" in places, (places, line)
    assert not any(e.name.startswith("aten::sin") for e in p.events()), "it must stay compiled"
    assert "Source Location" in p.key_averages().table() and f"{HERE}:{line + 3}" in p.key_averages().table()
    assert before is None or len(taper.compiler.metrics()) == len(before), "profiling must not compile again"


def test_schedules_and_files():
    with tempfile.TemporaryDirectory() as d:
        seen = []

        def ready(p):
            seen.append([e.name for e in p.events() if e.name.startswith("ProfilerStep")])
            tensorboard_trace_handler(d, "me")(p)
        with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as p:
            for _ in range(10):
                taper.ones(4).exp()
                p.step()
        assert seen == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]], seen
        files = sorted(os.listdir(d))
        assert len(files) == 2 and all(f.startswith("me.") and f.endswith(".pt.trace.json") for f in files)
        with open(os.path.join(d, files[0])) as f:
            trace = json.load(f)
        names = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X"]
        assert names.count("aten::exp") == 2 and all(e["dur"] >= 0 and e["ts"] > 0 for e in trace["traceEvents"] if e["ph"] == "X")
        with profile() as p:
            with record_function("a b"):
                taper.ones(2).exp()
        p.export_stacks(os.path.join(d, "stacks"))
        with open(os.path.join(d, "stacks")) as f:
            assert any(line.startswith("a_b;aten::exp ") for line in f)


def test_one_at_a_time_and_after_an_error():
    with profile():
        raises(RuntimeError, profile().start, "already enabled")
    try:
        with profile() as p:
            taper.ones(2).exp()
            raise KeyError("the program's")
    except KeyError:
        pass
    assert any(e.name == "aten::exp" for e in p.events())
    with profile() as q:
        pass
    assert q.events() == [] and q.key_averages().table().endswith("Self CPU time total: 0.000us\n")


def test_memory_is_recorded_where_it_is_asked_for():
    @taper.compile
    def g(x):
        return (taper.sin(x) @ x).sum()
    x = taper.ones(256, 256)
    g(x)
    with profile(profile_memory=True) as p:
        with record_function("kept"):
            y = taper.ones(512, 512)  # one mebibyte
        with record_function("passing"):
            z = y + 1
            del z
        g(x)
    rows = {e.key: e for e in p.key_averages()}
    assert rows["kept"].cpu_memory_usage == 1 << 20 and rows["passing"].cpu_memory_usage == 0, (rows["kept"].cpu_memory_usage, rows["passing"].cpu_memory_usage)
    assert rows["aten::add"].self_cpu_memory_usage == 1 << 20 == rows["aten::add"].cpu_memory_usage
    assert rows["passing"].self_cpu_memory_usage == -(1 << 20)  # given back by the range itself
    text = p.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=3)
    assert "Self CPU Mem" in text and "1.00 Mb" in text and "Self CPU Mem" not in profile_of_nothing(), text
    with tempfile.TemporaryDirectory() as d:
        p.export_chrome_trace(os.path.join(d, "t.json"))
        with open(os.path.join(d, "t.json")) as f:
            counters = [e for e in json.load(f)["traceEvents"] if e["ph"] == "C"]
        p.export_memory_timeline(os.path.join(d, "m.json"))
        with open(os.path.join(d, "m.json")) as f:
            times, held = json.load(f)
        assert len(times) == len(held) == len(counters) and sorted(times) == times and max(held) - held[0] >= 1 << 20
        p.export_memory_timeline(os.path.join(d, "m.html"), device="cpu")
        with open(os.path.join(d, "m.html")) as f:
            assert "<svg" in f.read()
        raises(ValueError, lambda: p.export_memory_timeline(os.path.join(d, "x"), device="cuda:0"), "not of 'cuda:0'")
        with profile() as q:
            x + 1
        raises(RuntimeError, lambda: q.export_memory_timeline(os.path.join(d, "x")), "write profile(profile_memory=True)")


def profile_of_nothing():
    with profile() as p:
        taper.ones(2)
    return p.key_averages().table()


def test_shapes_are_recorded_where_they_are_asked_for():
    with profile(record_shapes=True) as p:
        for n in (2, 3, 3):
            taper.ones(n, 4) + 1
    adds = [e for e in p.key_averages(group_by_input_shape=True) if e.key == "aten::add"]
    assert sorted((e.input_shapes[0], e.count) for e in adds) == [([2, 4], 1), ([3, 4], 2)], adds
    assert len([e for e in p.key_averages() if e.key == "aten::add"]) == 1
    text = p.key_averages(group_by_input_shape=True).table()
    assert "Input Shapes" in text and "[[3, 4]" in text, text
