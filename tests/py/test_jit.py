"""What programs ask of TorchScript."""
import taper
from taper import nn


def test_questions_and_marks():
    assert taper.jit.is_scripting() is False and taper.jit.is_tracing() is False
    assert taper.jit.ignore(abs) is abs and taper.jit.unused()(abs) is abs and not isinstance(abs, taper.jit.ScriptFunction)


def test_scripting_runs_in_python():
    f = taper.jit.script(lambda x: x + 1)
    assert f(1) == 2 and taper.jit.trace(f, (taper.ones(2),))(1) == 2
    m = nn.Linear(2, 2)
    assert taper.jit.script(m) is m and taper.jit.freeze(m) is m

    class S(taper.jit.ScriptModule):
        @taper.jit.script_method
        def forward(self, x):
            return x * 2
    assert S()(3) == 6 and taper.jit.fork(lambda x: x + 1, 2).wait() == 3


def test_files_of_scripts_are_refused():
    for name in ("save", "load"):
        try:
            getattr(taper.jit, name)("x")
        except NotImplementedError as e:
            assert f"jit.{name}" in str(e) and "taper.export" in str(e), e
        else:
            raise AssertionError(name)
