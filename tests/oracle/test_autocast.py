"""Autocast: every operator of PyTorch's database computes in the type it computes in there."""
import warnings

import opinfo
from opinfo import torch, taper  # raises SkipTest without PyTorch

from torch.testing._internal.common_methods_invocations import op_db

warnings.simplefilter("ignore")


# Vectors: a product of matrices here, a dot product there. pinv is one kernel here, and products in the lower type there.
# linear_cross_entropy: PyTorch's type depends on how it cuts the work, not on the arguments' types alone.
KNOWN = {"inner", "tensordot", "linalg.pinv", "masked.prod", "nn.functional.linear_cross_entropy"}


def types_of(v):
    if isinstance(v, (torch.Tensor, taper.Tensor)):
        return [str(v.dtype).split(".")[1]]
    return [t for x in v for t in types_of(x)] if isinstance(v, (tuple, list)) else []


def results(op, fn, sample, lower):
    memo = {}
    with torch.autocast("cpu", dtype=getattr(torch, lower)):
        theirs = types_of(op(sample.input, *sample.args, **sample.kwargs))
    args = opinfo.ours((sample.input, *sample.args), memo), opinfo.ours(sample.kwargs, memo)
    with taper.autocast("cpu", dtype=getattr(taper, lower)):
        return theirs, types_of(fn(*args[0], **args[1]))


def check(types, lower):
    wrong, seen = {}, 0
    for op in op_db:
        fn = opinfo.function_for(op.name, op.variant_test_name)
        if fn is None or op.name in opinfo.RANDOM or op.name in KNOWN:
            continue
        for dt in types:
            if getattr(torch, dt) not in op.dtypes:
                continue
            for sample in list(op.sample_inputs("cpu", getattr(torch, dt)))[:2]:
                try:
                    theirs, mine = results(op, fn, sample, lower)
                except Exception:
                    continue  # refused, or of a type Taper does not have: other tests compare that
                seen += 1
                if theirs != mine:
                    wrong.setdefault(op.name + " " + dt, (theirs, mine))
    return wrong, seen


def test_results_have_the_types_that_pytorch_gives_them():
    for lower, given in (("bfloat16", ["float32", "bfloat16"]), ("float16", ["float32"])):
        wrong, seen = check(given, lower)
        assert seen > 500, seen
        assert not wrong, "\n".join(f"{k}: PyTorch {a}, Taper {b}" for k, (a, b) in wrong.items())
