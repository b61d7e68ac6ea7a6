"""The recompilation profiler lists every graph break and every guard failure."""
import taper
from taper._dynamo import config
from taper._dynamo.utils import CompilationProfiler, CompileProfiler


def fn(x, k):
    y = x * k
    print(end="")
    return y + 1


def test_report_lists_breaks_and_failures():
    taper._dynamo.reset()
    limit = config.cache_size_limit
    with CompilationProfiler() as prof:
        f = taper.compile(fn, backend=prof, dynamic=False)
        for n in range(1, 13):  # more than the limit
            f(taper.ones(n), 2.0)
        f(taper.ones(3), 5.0)
        text = prof.report()
    assert config.cache_size_limit == limit
    assert text.startswith("Torchdynamo Profiler Report\n===========================\n"), text
    assert "Graph Break Reason" in text and "builtin: print" in text, text
    assert "'fn' (test_profiler.py:7)" in text and "Recompile Reasons" in text, text
    for n in range(2, 13):
        assert f"size mismatch at index 0. expected {n - 1}, actual {n}" in text, (n, text)
    assert "L['k'] == 2.0" in text, text
    assert "config.cache_size_limit to 13" in text, text
    assert prof.frame_count == 25 and prof.op_count == 25, (prof.frame_count, prof.op_count)


def test_nothing_to_report():
    taper._dynamo.reset()
    prof = CompileProfiler()
    with taper._dynamo.optimize(prof):
        taper.ones(3)
    f = taper._dynamo.optimize(prof)(lambda x: x + 1)
    assert f(taper.ones(3)).tolist() == [2, 2, 2] and f(taper.ones(3)).tolist() == [2, 2, 2]
    text = prof.report()
    prof.close()
    assert "No graph breaks detected." in text and "No recompilation detected." in text, text
