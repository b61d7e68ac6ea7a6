"""What programs ask of TorchScript."""
import taper


def test_questions_and_marks():
    assert taper.jit.is_scripting() is False and taper.jit.is_tracing() is False
    assert taper.jit.ignore(abs) is abs and taper.jit.unused()(abs) is abs and not isinstance(abs, taper.jit.ScriptFunction)


def test_scripting_says_what_to_do_instead():
    for name in ("script", "trace", "load"):
        try:
            getattr(taper.jit, name)(abs)
        except NotImplementedError as e:
            assert "taper.compile(fn)" in str(e)
        else:
            raise AssertionError(name)
