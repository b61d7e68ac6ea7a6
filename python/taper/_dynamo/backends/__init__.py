"""Backends by name. A backend is a callable (gm, example_inputs) -> callable."""
from ... import _C
from ..exc import InvalidBackend

_registry = {}
_tags = {}
_NATIVE = ("eager", "aot_eager", "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref", "inductor")
_DEBUG = ("relu_compile_error_TESTING_ONLY", "relu_runtime_error_TESTING_ONLY", "relu_accuracy_error_TESTING_ONLY",
          "non_leaf_compile_error_TESTING_ONLY")  # they fail on purpose


def register_backend(fn=None, name=None, tags=()):
    """Register a backend under a name; usable as a decorator."""
    if fn is None:
        return lambda f: register_backend(f, name, tags)
    if not callable(fn):
        raise TypeError(f"a backend must be callable, not {type(fn).__name__}")
    name = name or fn.__name__
    if name in _registry or name == "eager":
        raise AssertionError(f"duplicate backend name: {name}")
    _registry[name] = fn
    _tags[name] = tuple(tags)
    return fn


def list_backends(exclude_tags=("debug", "experimental")):
    """Names for taper.compile(backend=...); those with one of these tags are left out.

    >>> "inductor" in taper.compiler.list_backends()
    True
    """
    from . import debugging  # noqa: F401
    no = set(exclude_tags or ())
    native = [n for n in _NATIVE if n == "inductor" or "debug" not in no] + ([] if "debug" in no else list(_DEBUG))
    return sorted(native + [n for n in _registry if not no & set(_tags[n])])


def lookup_backend(backend):
    if callable(backend):
        return backend
    found = _lookup(backend)
    return found if found is not None else _Native(backend)


class _Native:
    """A backend that runs inside the extension."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, gm, example_inputs):
        if gm._capsule is None or gm._state() != gm._mark:
            return gm.forward  # edited in Python: node by node
        return _C._graph_compile(gm._capsule, self.__name__, list(example_inputs))


def check(backend):
    if isinstance(backend, str):
        _lookup(backend)
    elif not callable(backend):
        raise TypeError(f"backend must be a name or a callable, not {type(backend).__name__}")


def _lookup(name):
    if name in _registry:
        return _registry[name]
    if name in _NATIVE + _DEBUG:
        return None
    from . import debugging  # noqa: F401
    if name in _registry:
        return _registry[name]
    raise InvalidBackend(name)


def _call_backend(fn, capsule, example_inputs, options):
    from ...fx import GraphModule
    gm = GraphModule._from_capture(capsule)
    kw = {}
    if isinstance(options, dict) and options.get("options") and getattr(fn, "_takes_options", False):
        kw["options"] = options["options"]
    from .. import config
    if config.repro_after:  # failures are saved; the script can run what is registered by name
        from ..repro.after_dynamo import wrap_backend_debug
        fn = wrap_backend_debug(fn, next((n for n, f in _registry.items() if f is fn), getattr(fn, "__name__", None)))
    out = fn(gm, example_inputs, **kw)
    if out is None or not callable(out):
        raise TypeError(f"the backend returned {type(out).__name__}, which cannot be called")
    return out
