"""symbolic_trace, FlopCounterMode and __torch_function__ beside PyTorch's."""
import os
import sys
import unittest

import taper
import taper.fx
import taper.utils.flop_counter

try:
    import torch
    import torch.fx
    import torch.utils.flop_counter
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import models  # noqa: E402

NAMES = ("mlp", "convnet", "resnet", "lstm", "autoencoder", "unet")


def shape_of(gm):
    out = []
    for n in gm.graph.nodes:
        target = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
        out.append((n.op, n.name, target, [str(a) for a in n.all_input_nodes]))
    return out


def test_symbolic_traces_are_the_same():
    for name in NAMES:
        ours, theirs = (models.build(name, lib)[0] for lib in (taper, torch))
        try:
            want = shape_of(torch.fx.symbolic_trace(theirs))
        except Exception as e:  # what the original cannot follow, this cannot either
            try:
                taper.fx.symbolic_trace(ours)
            except Exception:
                continue
            raise AssertionError(f"{name}: PyTorch says {e}")
        got = shape_of(taper.fx.symbolic_trace(ours))
        assert got == want, [(a, b) for a, b in zip(got, want) if a != b][:3]


def test_flops_are_the_same():
    for name in NAMES:  # attention is counted from its products here, by its own formula there
        total = []
        for lib in (taper, torch):
            model, args, target, loss = models.build(name, lib)
            counter = lib.utils.flop_counter.FlopCounterMode(display=False)
            with counter:
                loss(model(*args), target).backward()
            total.append(counter.get_total_flops())
        assert total[0] == total[1], (name, total)


def test_calls_that_a_subclass_sees():
    def seen(lib):
        log = []

        class T(lib.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs)
        a = lib.ones(2, 3).as_subclass(T)
        b = a + 1
        kinds = [type(x) is T for x in (b, a @ a.t(), lib.sum(a, 0), a[0], a.max(1)[0], lib.cat([a, lib.ones(1, 3)]), a.float(), lib.nn.functional.relu(a))]
        return log, kinds
    a, b = seen(taper), seen(torch)
    assert a == b, (a, b)
