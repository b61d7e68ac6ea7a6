"""TorchScript's names. There is no TorchScript: `script` and `trace` give back what runs the same in Python, marks for the scripting compiler
change nothing, and files of its own are refused. taper.compile(fn) makes functions fast; taper.export(fn, args) writes files that run without Python."""
import contextlib as _contextlib
import functools as _functools
import types as _types
from typing import Any, Final, Generic, TypeVar  # noqa: F401

from .. import _C
from .._absent import absent_function as _absent
from ..nn.modules.container import ModuleList as _ModuleList
from ..nn.modules.module import Module as _Module

T = TypeVar("T")


def is_scripting():
    return False


def is_tracing():
    return False


def _marks(fn=None, **kwargs):
    """A mark for the scripting compiler: changes nothing."""
    return fn if callable(fn) else lambda f: f


ignore = unused = export = interface = script_if_tracing = _script_if_tracing = _overload = _overload_method = script_method = _marks


def annotate(the_type, the_value):
    return the_value


def isinstance(obj, target_type):
    import builtins
    return builtins.isinstance(obj, target_type)


class Attribute:
    """A value with a type for the scripting compiler; assigning it to a module assigns the value."""

    def __new__(cls, value, type=None):
        return value


class ScriptFunction:
    """What script and trace make of a function: it, with the names that programs ask for.

    >>> isinstance(taper.jit.script(lambda x: x + 1), taper.jit.ScriptFunction)
    False
    """

    def __init__(self, fn):
        _functools.update_wrapper(self, fn)
        self._fn = fn

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)

    def __get__(self, obj, cls=None):
        return self if obj is None else _types.MethodType(self, obj)

    @property
    def code(self):
        import inspect
        return inspect.getsource(self._fn)

    @property
    def graph(self):
        raise NotImplementedError("there is no TorchScript graph; taper.fx.symbolic_trace(fn).graph or taper.export(fn, args) give one")

    save = _absent("taper.jit", "ScriptFunction.save", "there is no TorchScript; taper.export(fn, args, path) writes a file")


class ScriptModule(_Module):
    """A module written for the scripting compiler; it runs as any other.

    >>> isinstance(taper.jit.script(taper.nn.ReLU()), taper.jit.ScriptModule)
    False
    """


class RecursiveScriptModule(ScriptModule):
    """No module is one: script() gives modules back as they are."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """obj, as it runs in Python: a module or a class stays itself, a function becomes callable under the names of a ScriptFunction."""
    import builtins
    if builtins.isinstance(obj, (_Module, type, ScriptFunction)) or not callable(obj):
        return obj
    return obj if builtins.isinstance(obj, _types.MethodType) else _Scripted.of(obj)


class _Scripted:
    @staticmethod
    def of(fn):
        """Plain functions stay plain, so that capture sees through them."""
        return fn


def trace(func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5, strict=True, _force_outplace=False,
          _module_class=None, _compilation_unit=None, example_kwarg_inputs=None, _store_inputs=True):
    """Runs func once on the example inputs, as the original does, and gives it back: it is not frozen to what it did there."""
    if example_inputs is not None:
        args = example_inputs if type(example_inputs) in (tuple, list) else (example_inputs,)
        with _C_no_grad():
            func(*args)
    elif example_kwarg_inputs is not None:
        with _C_no_grad():
            func(**example_kwarg_inputs)
    return func


def _C_no_grad():
    from ..autograd import no_grad
    return no_grad()


def trace_module(mod, inputs, **kwargs):
    return mod


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    return mod


def optimize_for_inference(mod, other_methods=None):
    return mod


def fork(func, *args, **kwargs):
    """Runs now; wait() gives the result."""
    from ..futures import Future
    f = Future()
    try:
        f.set_result(func(*args, **kwargs))
    except Exception as e:
        f.set_exception(e)
    return f


def wait(future):
    return future.wait()


_WHY = "there is no TorchScript; taper.export(fn, args, path) writes a file that runs without Python"
save, load, jit_module_from_flatbuffer, save_jit_module_to_flatbuffer = (_absent("taper.jit", n, _WHY) for n in
                                                                          ("save", "load", "jit_module_from_flatbuffer", "save_jit_module_to_flatbuffer"))


class Error(RuntimeError):
    """An error in scripted code."""


class TracerWarning(Warning):
    """Something that tracing cannot keep."""

    @staticmethod
    def ignore_lib_warnings():
        """There are none."""


@_contextlib.contextmanager
def optimized_execution(should_optimize):
    yield


@_contextlib.contextmanager
def fuser(name):
    yield


@_contextlib.contextmanager
def strict_fusion():
    yield


@_contextlib.contextmanager
def _disable_emit_hooks():
    yield


def set_fusion_strategy(strategy):
    return [("DYNAMIC", 20)]


def enable_onednn_fusion(enabled):
    """There is none."""


def onednn_fusion_enabled():
    return False


def onnx_export_mode():
    return False


class CompilationUnit:
    def __init__(self, lang=None, _frames_up=0):
        if lang is not None:
            raise NotImplementedError("torch.jit.CompilationUnit: there is no TorchScript")


def __getattr__(name):
    if name in ("_script", "_trace", "annotations", "_builtins", "supported_ops", "mobile", "frontend"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
