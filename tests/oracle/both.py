"""Evaluates the same expressions with PyTorch and with Taper and compares what a user sees."""
import re, unittest, warnings

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper

warnings.simplefilter("ignore")


def norm(text):
    return re.sub(r'"\w+" not implemented for', "not implemented for", text.replace("taper.", "torch."))  # kernel names differ


def seen(expr, mod, env):
    """What evaluating expr shows: the text of the value and its strides, or the error's class and text."""
    scope = dict(env(mod), T=mod)
    try:
        v = eval(expr, scope)
    except Exception as e:
        return f"{type(e).__name__}: {norm(str(e))}"
    return norm(repr(v)) + (f" strides {v.stride()}" if isinstance(v, mod.Tensor) else "")


def compare(exprs, env=lambda T: {}, same=lambda want, got: want == got):
    bad = []
    for e in filter(None, (l.strip() for l in exprs.splitlines())):
        want, got = seen(e, torch, env), seen(e, taper, env)
        if not same(want, got):
            bad.append(f"{e}\n  PyTorch: {want[:400]}\n  Taper:   {got[:400]}")
    assert not bad, f"{len(bad)} differ:\n" + "\n".join(bad)
