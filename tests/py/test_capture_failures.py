"""verify_correctness, records of failed captures, suppress_errors."""
import contextlib
import glob
import io
import json
import os
import subprocess
import sys
import tempfile

import taper
from taper._dynamo import config

helper_scale = 3.0


def helper(x):
    return x * helper_scale


def failing(x, n, flag=True):
    y = helper(x) + n
    taper._dynamo.graph_break()
    return y


def wrong(gm, inputs):
    """A backend that computes something else."""
    return lambda *a: tuple(r + 1 for r in gm.forward(*a))


def test_verify_correctness_finds_a_wrong_backend_and_passes_right_ones():
    with config.patch(verify_correctness=True):
        taper._dynamo.reset()
        try:
            taper.compile(lambda x: x + 1, backend=wrong)(taper.ones(3))
        except RuntimeError as e:
            assert "incorrect results of backend wrong" in str(e), e
        else:
            raise AssertionError("accepted")
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            x = taper.ones(3, requires_grad=True)

            def fn(x, buf):
                buf.add_(1)
                return (x.sin() * buf).sum() + taper.rand(1).sum() * 0
            buf = taper.zeros(3)
            state = taper.random.get_rng_state()
            taper.compile(fn, backend=backend)(x, buf).backward()
            assert buf.tolist() == [1.0] * 3, "the check itself must change nothing"
            assert x.grad is not None
            taper.random.set_rng_state(state)
    taper._dynamo.reset()
    taper.compile(lambda x: x + 1, backend=wrong)(taper.ones(3))  # off by default


def test_records_of_failed_captures_can_be_replayed():
    with tempfile.TemporaryDirectory() as d, config.patch(replay_record_enabled=True, debug_dir_root=d):
        taper._dynamo.reset()
        try:
            taper.compile(failing, fullgraph=True)(taper.ones(3), 2)
        except taper._dynamo.exc.Unsupported as e:
            path, first = e.exec_record, str(e)
        (found,) = glob.glob(os.path.join(d, "*", "error_recordings", "*.rec"))
        assert path == found and os.path.basename(path).startswith("failing_Unsupported_"), path
        with open(path) as f:
            assert "pickle" not in f.read()
        taper._dynamo.reset()
        config.replay_record_enabled = False
        try:
            taper._dynamo.replay(path)
        except taper._dynamo.exc.Unsupported as e:
            assert str(e).splitlines()[0] == first.splitlines()[0], e
        else:
            raise AssertionError("the failure did not come back")


class Scaled(taper.nn.Module):
    def __init__(self, owner):
        super().__init__()
        self.inner = taper.nn.Sequential(taper.nn.Linear(3, 3), taper.nn.ReLU())
        self.register_buffer("offset", taper.full((3,), 2.0))
        self.owner = owner

    def forward(self, x):
        y = self.inner(x) * self.owner.factor + self.offset
        if y.sum() > 0:
            taper._dynamo.graph_break()
        return self.owner.twice(y)


def test_records_hold_modules_objects_and_their_classes():
    class Owner:
        def __init__(self):
            self.factor, self.me = taper.tensor([1.0, 2.0, 3.0]), self

        def twice(self, y):
            return y * TWO
    m = Scaled(Owner())
    with tempfile.TemporaryDirectory() as d, config.patch(replay_record_enabled=True, debug_dir_root=d):
        taper._dynamo.reset()
        try:
            taper.compile(m, fullgraph=True)(taper.ones(2, 3))
        except taper._dynamo.exc.Unsupported as e:
            path, first = e.exec_record, str(e)
        prog = ("import sys, taper\n"
                "try:\n    taper._dynamo.replay(sys.argv[1])\n"
                "except taper._dynamo.exc.Unsupported as e:\n    print(str(e).splitlines()[0])\n")
        p = subprocess.run([sys.executable, "-c", prog, path], cwd=d, env=dict(os.environ, TAPER_COMPILE_REPLAY_RECORD="0"),
                           capture_output=True, text=True, timeout=60)
        assert p.stdout.splitlines()[:1] == first.splitlines()[:1], (p.stdout, p.stderr, first)
        from taper._dynamo import replay_record
        with open(path) as f:
            record = json.load(f)
        r = replay_record._Reader(record, taper.safetensors.load_file(path + ".safetensors"))
        (again,) = [v for v in (r.value(x) for x in record["locals"].values()) if isinstance(v, taper.nn.Module)][:1]
        assert type(again) is not Scaled and again.owner.me is again.owner and type(again.inner[0].weight) is taper.nn.Parameter
        assert taper.equal(again(taper.ones(2, 3)), m(taper.ones(2, 3)))


TWO = 2


def test_nothing_is_recorded_by_default():
    with tempfile.TemporaryDirectory() as d, config.patch(debug_dir_root=d):
        taper._dynamo.reset()
        with contextlib.suppress(taper._dynamo.exc.Unsupported):
            taper.compile(failing, fullgraph=True)(taper.ones(3), 2)
        assert not os.listdir(d)


def crash(gm, inputs):
    raise ValueError("the compiler crashed")


def test_suppress_errors_goes_on_natively_and_runs_nothing_twice():
    seen = []

    def fn(x):
        seen.append("start")
        x = x + 1
        print("between")
        return x * 2
    with config.patch(suppress_errors=True):
        taper._dynamo.reset()
        f = taper.compile(fn, backend=crash)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            for _ in range(2):
                assert taper.equal(f(taper.ones(2)), taper.full((2,), 4.0))
        assert seen == ["start"] * 2 and out.getvalue() == "between\n" * 2, (seen, out.getvalue())
    taper._dynamo.reset()
    try:
        taper.compile(fn, backend=crash)(taper.ones(2))
    except taper._dynamo.exc.BackendCompilerFailed as e:
        assert "the compiler crashed" in str(e)
    else:
        raise AssertionError("hidden although nobody asked for it")


def test_suppress_errors_tries_again_later():
    state = {"fail": True}

    def sometimes(gm, inputs):
        if state["fail"]:
            raise ValueError("not now")
        state["compiled"] = True
        return gm.forward
    with config.patch(suppress_errors=True):
        taper._dynamo.reset()
        f = taper.compile(lambda x: x + 1, backend=sometimes)
        f(taper.ones(2))
        state["fail"] = False
        f(taper.ones(2))
        assert state.get("compiled")


def test_suppress_errors_hides_neither_the_programs_errors_nor_what_must_be_said():
    def bad(x):
        x = x + 1
        raise KeyError("mine")
    with config.patch(suppress_errors=True):
        taper._dynamo.reset()
        for fn, kw, exc in ((bad, {}, KeyError), (failing, {"fullgraph": True}, taper._dynamo.exc.Unsupported)):
            try:
                taper.compile(lambda x: fn(x) if fn is bad else fn(x, 1), **kw)(taper.ones(2))
            except exc:
                continue
            raise AssertionError(fn)
        with taper._dynamo.error_on_graph_break(True):
            try:
                taper.compile(lambda x: failing(x, 1))(taper.ones(2))
            except taper._dynamo.exc.Unsupported:
                return
        raise AssertionError("a break under error_on_graph_break was hidden")
