"""Whole programs, as people write them, give the same plainly and compiled: state that changes between calls, classes
patched while they are in use, models with their configuration, containers shared and written.

A program is a function p_*(compile) in programs/*.py. Each run gets the module anew, so nothing is left from the last."""
import glob
import os
import sys
import types

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw
import taper._dynamo as dynamo
from capture_util import same

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {"eager": {"backend": "eager"}, "inductor": {"backend": "inductor"}, "dynamic": {"backend": "eager", "dynamic": True},
        "fixed": {"backend": "inductor", "dynamic": False}}


def close(a, b):
    """Equal, but for the last digits of floats."""
    if isinstance(a, taper.Tensor) and isinstance(b, taper.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(taper.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)) if a.dtype.is_floating_point else a.tolist() == b.tolist()
    if isinstance(a, (list, tuple)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return list(map(str, a)) == list(map(str, b)) and all(map(close, a.values(), b.values()))
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b) or abs(a - b) < 1e-5
    return same(a, b)


def load(path):
    name = "programs_" + os.path.basename(path)[:-3]
    mod = types.ModuleType(name)
    mod.__file__ = path
    sys.modules[name] = mod
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), mod.__dict__)
    return mod


def outcome(path, name, compile):
    mod = load(path)
    taper.manual_seed(0)
    try:
        return getattr(mod, name)(compile)
    except Exception as e:
        return "raised", type(e).__name__, str(e)


def plain(fn=None, **kw):
    return (lambda f: f) if fn is None else fn


def check(path, name):
    want = outcome(path, name, plain)
    assert not (isinstance(want, tuple) and want and want[0] == "raised"), (name, want)
    for way, kw in WAYS.items():
        def compiled(fn=None, **own):
            return (lambda f: taper.compile(f, **{**kw, **own})) if fn is None else taper.compile(fn, **{**kw, **own})
        dynamo.reset()
        got = outcome(path, name, compiled)
        assert close(got, want), f"{name} {way}:\n got {got!r}\nwant {want!r}"[:3000]
    dynamo.reset()


def tests():
    for path in sorted(glob.glob(os.path.join(HERE, "programs", "*.py"))):
        for name in vars(load(path)):
            if name.startswith("p_"):
                def test(path=path, name=name):
                    check(path, name)
                yield f"test_{os.path.basename(path)[:-3]}_{name[2:]}", test


globals().update(tests())
