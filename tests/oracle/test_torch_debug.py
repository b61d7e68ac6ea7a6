"""taper.torch.debug, minify, survey and doctor: the debugger for backends of real PyTorch."""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = HERE + os.pathsep + os.environ.get("PYTHONPATH", "")
import taper.torch
import torch_backends as wrong
from taper.torch import _bisect, _case, _compare, _graph, _minify, _prints
from taper.torch._trial import Trials

torch.set_num_threads(1)
F = torch.nn.functional


def model(x, w):
    h = torch.tanh(x @ w) * 2
    h = F.relu(h - 0.25)
    return h.softmax(-1).sum(0) + 1


def arguments(grad=False):
    torch.manual_seed(0)
    return torch.randn(5, 8), torch.randn(8, 6, requires_grad=grad)


def fail(backend, out, level=4, after="dynamo", grad=False):
    """The folder that is saved for model() with a backend."""
    torch._dynamo.reset()
    before = len(taper.torch.saved())
    try:
        y = torch.compile(model, backend=taper.torch.debug(backend, level=level, after=after, out=out))(*arguments(grad))
        if grad:
            (y * torch.arange(6)).sum().backward()
    except Exception as e:
        inner = getattr(e, "inner_exception", e)
        assert any("taper minify" in n for n in getattr(inner, "__notes__", [])), e
    new = taper.torch.saved()[before:]
    assert len(new) == 1, new
    return new[0]


def minified(folder, **kw):
    """(exit status, text, case, outcome) of the answer."""
    text = io.StringIO()
    with tempfile.TemporaryFile("w+") as f:
        keep = os.dup(1)
        sys.stdout.flush()
        os.dup2(f.fileno(), 1)
        try:
            status = _minify.minify(folder, stream=text, **kw)
        finally:
            sys.stdout.flush()
            os.dup2(keep, 1)
            os.close(keep)
        f.seek(0)
        said = f.read()
    return status, said, *_case.read(os.path.join(folder, "minimal"))


@contextlib.contextmanager
def folder():
    d = tempfile.mkdtemp(prefix="torch-debug-")
    try:
        yield d
    finally:
        shutil.rmtree(d, ignore_errors=True)


def test_text_reads_back():
    seen = []

    def keep(gm, examples):
        seen.append(_graph.from_fx(gm)[0])
        return gm.forward

    def f(x):
        a, b = x[:, 1:3], x.view(2, -1).to(torch.float64)
        c = torch.full((2,), float("inf"), dtype=torch.float32)
        return F.gelu(a, approximate="tanh").sum(), b.chunk(2, 1)[0], torch.where(c > 0, -1.5, c)
    torch._dynamo.reset()
    torch.compile(f, backend=keep)(torch.randn(4, 6))
    text = _graph.function(seen[0])
    assert _graph.function(_graph.parse(text)) == text and "test_torch_debug.py" in text
    x = torch.randn(4, 6)
    assert not _compare.differs(list(_graph.make(_graph.parse(text))(x)), list(f(x)))
    for bad in ("def f(x):\n    y = builtins.eval('1')\n    return (y,)", "def f(x):\n    y = os.system('true')\n    return (y,)", "def f(x):\n    return (z,)",
                "import os", "def f(x):\n    y = [a for a in x]\n    return (y,)"):
        try:
            _graph.parse(bad)
            raise AssertionError(bad)
        except _graph.NoName:
            pass


def test_rules_of_comparison():
    t = torch.tensor
    assert _compare.differs(t([1.0, 2.0]), t([1.0, 2.0])) is None
    assert "at [1]" in _compare.differs(t([1.0, 2.1]), t([1.0, 2.0]))
    assert _compare.differs(t([1.0, 2.1]), t([1.0, 2.0]), t([1.0, 2.09])) is None  # nearer to float64 than eager
    assert _compare.differs(t([1e-5, 3e-5]), t([1e-5, 2e-5]))  # small values count by their own size
    assert "shape" in _compare.differs(t([1.0]), t([[1.0]])) and "int64" in _compare.differs(t([1]), t([1.0]))
    assert _compare.differs(t([float("nan")]), t([float("nan")])) is None and _compare.differs(t([float("nan")]), t([1.0]))
    assert _compare.differs([t([1])], [t([1]), None]) and _compare.differs(t([True]), t([False]))


def test_wrong_result_becomes_one_operator_and_a_script():
    with folder() as d:
        saved = fail(wrong.relu_wrong, d)
        status, said, case, outcome = minified(saved)
        assert status == 0 and case.size == 1 and "relu" in case.graph.ops[0].target, said
        assert outcome.kind == "wrong result" and "shows it in a fresh process" in said and "does not" not in said, said
        script = open(os.path.join(saved, "minimal", "repro.py")).read()
        assert "import taper" not in script and "torch_backends.relu_wrong" in script and "torch.ones(1" in script, script
        assert "test_torch_debug.py" in script  # the user's line
        trials = Trials(60)
        assert "torch_backends:relu_wrong" in _bisect.bisect(case, trials).stage


def test_every_kind_of_failure():
    with folder() as d:
        for backend, kind, kw in ((wrong.relu_does_not_compile, "compile error", {}), (wrong.relu_raises, "exception", {}),
                                  (wrong.relu_comes_and_goes, "comes and goes", {}), (wrong.relu_gradient_wrong, "wrong result", {"grad": True})):
            case, outcome = _case.read(fail(backend, os.path.join(d, kind.replace(" ", "_")), **kw))
            assert outcome.kind == kind, (kind, outcome)
            trials = Trials(60)
            m = _minify.Minifier(case, trials.one(case), trials)
            assert m.wanted.kind in (kind, "wrong result"), (kind, m.wanted)
            best = m.run()
            assert best.size == 1 and "relu" in best.graph.ops[0].target and best.grad == bool(kw), (kind, _graph.function(best.graph))


def test_the_graph_behind_autograd():
    with folder() as d:
        case, outcome = _case.read(fail(wrong.relu_gradient_wrong, d, after="aot", grad=True))
        assert outcome.kind == "wrong result" and any("threshold_backward" in op.target for op in case.graph.ops), _graph.function(case.graph)


def test_a_process_that_dies_or_hangs():
    with folder() as d:
        for backend, kind in (("relu_crashes", "signal"), ("relu_hangs", "time-out")):
            out = os.path.join(d, backend)
            pid = os.fork()
            if pid == 0:  # a child that has PyTorch already
                try:
                    torch._dynamo.reset()
                    torch.compile(model, backend=taper.torch.debug(getattr(wrong, backend), level=4 if kind == "signal" else 3, out=out))(*arguments())
                finally:
                    os._exit(0)
            for _ in range(100 if kind == "time-out" else 600):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    break
                if kind == "time-out" and any("failure.json" in f for _, _, f in os.walk(out)):
                    break
                time.sleep(0.1)
            else:
                assert kind == "time-out"
            if kind == "time-out":
                time.sleep(1)
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            left = [b for b, _, files in os.walk(out) if "failure.json" in files]
            assert len(left) == 1, left
            case, _ = _case.read(left[0])
            trials = Trials(3 if kind == "time-out" else 60)
            now = trials.one(case)
            assert now.kind == kind, now
            if kind == "signal":
                best = _minify.Minifier(case, now, trials).run()
                assert now.identity == "SIGSEGV" and best.size == 1, _graph.function(best.graph)


def test_a_run_that_is_ended_says_where_it_was():
    from taper.torch._doctor import Doctor, Run
    err = '''noise
Fatal Python error: Aborted

Thread 0x1 (most recent call first):
  File "/usr/lib/python3/threading.py", line 3 in wait

Current thread 0x2 (most recent call first):
  File "/usr/lib/python3/threading.py", line 320 in wait
  File "/opt/site-packages/torch/_inductor/pad.py", line 12 in pad_all
  File "/home/me/train.py", line 7 in step
'''
    d = Doctor(["prog.py"], tempfile.gettempdir(), 10, True)
    d.stuck(Run("as it is", -6, "", err, 10.0, True, {}))
    assert d.found["stuck"] == "`pad_all` (/opt/site-packages/torch/_inductor/pad.py:12), called from `step` (/home/me/train.py:7)", d.found
    assert "pad.py:12 in pad_all" in d.notes[0]
    d = Doctor(["prog.py"], tempfile.gettempdir(), 10, True)
    d.stuck(Run("as it is", -9, "", "killed", 10.0, True, {}))
    assert not d.found and not d.notes


def test_a_minifier_ends_in_time():
    class Never:
        count = 0

        def first(self, cases, wanted):
            raise AssertionError("a trial more")
    case = types.SimpleNamespace(size=1, graph=types.SimpleNamespace(outputs=["x"]))
    m = _minify.Minifier(case, None, Never())
    m.until = time.monotonic() - 1
    assert m.attempt([m.best]) is None


def test_failures_are_told_apart():
    error = lambda text: _case.identity(RuntimeError(text))
    assert error("size 5 at /a/b.py:3 of 'x'") == error("size 17 at /c/d.py:9 of 'yy'") != error("shape 5")
    compiler = lambda text: torch._inductor.exc.CppCompileError(["c++"], "a.cpp:1:2: error: " + text)
    first, other = compiler("no member"), compiler("no type")
    first.__cause__ = other.__cause__ = subprocess.CalledProcessError(1, "c++")  # says nothing
    assert _case.identity(first) == "CppCompileError: no member" != _case.identity(other)
    with folder() as d:
        case, outcome = _case.read(fail(wrong.relu_does_not_compile, d))
        trials = Trials(60)
        best = _minify.Minifier(case, trials.one(case), trials).run()  # an empty graph raises something else
        assert "relu" in best.graph.ops[-1].target


def test_damage_is_refused_by_name():
    with folder() as d:
        saved = fail(wrong.relu_wrong, d)
        for name, text, said in (("graph.py", "def f(x):\n    return (x,)\n", "digest"), ("failure.json", "{", "damaged"), ("inputs.pt", "", "inputs.pt")):
            copy = os.path.join(d, "copy")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(saved, copy)
            open(os.path.join(copy, name), "w").write(text)
            try:
                _case.read(copy)
                raise AssertionError(name)
            except ValueError as e:
                assert said in str(e), e


def test_what_is_right_leaves_nothing():
    with folder() as d:
        for backend in ("eager", "aot_eager", "taper"):
            for after in ("dynamo", "aot"):
                torch._dynamo.reset()
                x, w = arguments(True)
                y = torch.compile(model, backend=taper.torch.debug(backend, after=after, out=d))(x, w)
                y.sum().backward()
                assert torch.allclose(y, model(x, w)) and w.grad is not None
        assert not os.path.exists(os.path.join(d, "taper_compile_debug")), os.listdir(d)
    for bad in ({"level": 5}, {"after": "never"}):
        try:
            taper.torch.debug(**bad)
            raise AssertionError(bad)
        except ValueError:
            pass


def test_prints():
    same = _prints.compare
    assert same("loss 0.1234\n", "loss 0.1234\n", "loss 0.1235\n") is None
    assert "line 1" in same("loss 0.1234\n", "loss 0.1234\n", "loss 0.2234\n")
    assert same("took 3.2 ms\n", "took 3.4 ms\n", "took 90 ms\n") is None
    assert same("r 0.5\n", "r 0.7\n", "r 0.9\n") is None  # the two plain runs do not agree
    assert same("a\nb\n", "a\nb\n", "a\n") and same("n 3\n", "n 3\n", "n 4\n") and same("a\n", "a\n", "b\n")


def test_survey():
    def f(x, n):
        y = x.sin()
        print(end="")
        if y.sum() > 0:
            y = y + n
        return y * y.max().item()
    s = taper.torch.survey(f, calls=[(torch.randn(4), 2.5), (torch.randn(2, 2), 2.5)])(torch.randn(3), 1.5)
    text = str(s)
    assert len(s.breaks) >= 3 and len(s.recompilations) >= 1, text
    assert "torch.where" in text and "reorderable_logging" in text and "capture_scalar_outputs" in text and "test_torch_debug.py" in text, text
    assert all(f.fix and f.where != "?" for f in s.findings), text
    clean = taper.torch.survey(lambda x: x.sin() + 1)(torch.randn(3))
    assert not clean.findings and clean.graph_count == 1 and "Nothing stands in the way" in str(clean)


class _Settings:
    scale = 0


def test_recompilations_that_differ_in_a_constant_are_one_storm():
    from taper.torch._survey import watch

    def by_name(x, name):
        return x * len(name)

    def by_setting(x):
        return x * _Settings.scale
    for fn, calls, helps in ((by_name, [(torch.ones(2), "ab"[i % 2] * i) for i in range(6)], "part of the compiled code"),
                             (by_setting, [(torch.ones(2),)] * 6, "pass it as an argument")):
        torch._dynamo.reset()
        with watch() as w:
            compiled = torch.compile(fn, backend="eager")
            for i, args in enumerate(calls):
                _Settings.scale = i
                compiled(*args)
        again = [f for f in w.findings if f.kind == "recompilation"]
        assert len(again) <= 2 and max(w.count(f) for f in again) >= 4, [(f, w.count(f)) for f in again]
        assert all(helps in f.fix for f in again), again


def test_doctor():
    def doctor(text):
        with folder() as d:
            path = os.path.join(d, "program.py")
            open(path, "w").write(text)
            p = subprocess.run([sys.executable, "-m", "taper.torch", "doctor", "--json", "--out", os.path.join(d, "out"), path], stdout=subprocess.PIPE, cwd=d)
            found = json.loads(p.stdout)
            found["report_text"] = open(found["report"]).read()
            return p.returncode, found
    status, found = doctor("import torch, torch_backends\n@torch.compile(backend=torch_backends.relu_wrong)\ndef f(x):\n    return torch.relu(x * 2).sum()\n"
                           "print('sum', f(torch.arange(-3.0, 4.0)))\n")
    assert status == 1 and found["status"] == "fault found", found
    assert "relu" in found["operators"] and "program.py:4" in found["line"] and "torch_backends" in found["stage"], found
    assert found["workaround"] and "relu" in found["verdict"] and "sum" in found["prints"], found
    status, found = doctor("raise SystemExit(3)\n")
    assert status == 2 and "also fails without the compiler" in found["verdict"], found
