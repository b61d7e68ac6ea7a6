"""Options and modes of the last backend: names, values, and what a mode means."""
from .. import _C
from .._settings import _did_you_mean

MODES = {
    "default": {},
    "reduce-overhead": {"reuse_outputs": True, "cudagraphs": True, "trust_guards": True},
    "max-autotune": {"max_autotune": True, "reuse_outputs": True, "cudagraphs": True, "trust_guards": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
    "lite": {"unroll": "1"},
}


def _words(values):
    return ["False", "True"] if values == "bool" else values.split("|")


def list_options():
    """Names of everything that options= may contain.

    >>> "max_autotune" in taper.compiler.list_options()
    True
    """
    return [name for name, *_ in _C._options()]


def list_mode_options(mode=None, dynamic=None):
    """What each mode sets, or what one of them sets.

    >>> "default" in taper.compiler.list_mode_options()
    True
    """
    if mode is None:
        return {m: dict(o) for m, o in MODES.items()}
    if mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}{_did_you_mean(mode, MODES)}")
    return dict(MODES[mode])


def resolve(mode, options):
    """{name: word} as the core takes it; raises for what is not there."""
    if mode is not None:
        options = list_mode_options(mode)
    elif not isinstance(options, dict):
        raise TypeError(f"options must be a dictionary, not {type(options).__name__}")
    rows = {name: _words(values) for name, _, values, _ in _C._options()}
    out = {}
    for name, value in options.items():
        key = name.replace("-", "_") if isinstance(name, str) else name
        if key not in rows:
            raise RuntimeError(f"Unexpected optimization option {name}, known options are {list(rows)}{_did_you_mean(name, rows)}")
        words = rows[key]
        if words == ["False", "True"]:
            if not isinstance(value, bool):
                raise RuntimeError(f"Unexpected type of attr {name}, got {type(value).__name__} should be bool")
            word = str(value)
        else:
            word = str(value)
            if not isinstance(value, (str, int, float)) or isinstance(value, bool) or word not in words:
                raise RuntimeError(f"option {name} cannot be {value!r}; it is one of: {', '.join(words)}")
        out[key] = word
    return out
