"""Faults planted in generated code, by the original's switches; TAPER_INJECT can do more."""
from .. import _C

_KINDS = ("compile_error", "runtime_error", "accuracy")


class _Switch:
    """cpp.inject_<op>_bug_TESTING_ONLY = "accuracy": the fault op:accuracy@gen."""

    def __init__(self, op, kinds):
        self.op, self.kinds = op, kinds

    def _rest(self):
        spec = [s for s in (_C._injected() or "").split(",") if s]
        mine = [s for s in spec if s.startswith(self.op + ":") and s.endswith("@gen")]
        return mine, [s for s in spec if s not in mine]

    def __get__(self, obj, cls=None):
        mine = self._rest()[0]
        return mine[0].split(":")[1].split("@")[0] if mine else None

    def __set__(self, obj, value):
        if value is not None and value not in self.kinds:
            raise AssertionError(f"inject_{self.op}_bug_TESTING_ONLY is one of {', '.join(self.kinds)} or None, not {value!r}")
        spec = self._rest()[1] + ([f"{self.op}:{value}@gen"] if value is not None else [])
        _C._inject(",".join(spec) or None)


class _Cpp:
    inject_relu_bug_TESTING_ONLY = _Switch("relu", _KINDS)
    inject_log1p_bug_TESTING_ONLY = _Switch("log1p", _KINDS[2:])

    def __setattr__(self, name, value):
        if not hasattr(type(self), name):
            raise AttributeError(f"taper._inductor.config.cpp.{name} does not exist")
        super().__setattr__(name, value)


cpp = _Cpp()
