"""Backends of PyTorch's that are wrong on purpose, for test_torch_debug.py: importable by other processes."""
import os
import signal
import time

import torch


def _change(gm, fn):
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and "relu" in str(node.target):
            node.target, node.args, node.kwargs = fn, node.args[:1], {}
    gm.recompile()
    return gm


def relu_wrong(gm, examples):
    return _change(gm, lambda x: x + 1).forward


def relu_raises(gm, examples):
    def raises(x):
        raise RuntimeError("relu of 5 elements is broken")
    return _change(gm, raises).forward


def relu_does_not_compile(gm, examples):
    if any("relu" in str(n.target) for n in gm.graph.nodes):
        raise NotImplementedError("no 'relu' here")
    if sum(n.op == "call_function" for n in gm.graph.nodes) == 0:
        raise ValueError("an empty graph")
    return gm.forward


def relu_crashes(gm, examples):
    return _change(gm, lambda x: os.kill(os.getpid(), signal.SIGSEGV) or x).forward


def relu_hangs(gm, examples):
    return _change(gm, lambda x: time.sleep(60) or x).forward


_turn = [0]


def _every_other(x):
    _turn[0] += 1
    return x.relu() * (1 + (_turn[0] % 2 == 0))


def relu_comes_and_goes(gm, examples):
    return _change(gm, _every_other).forward


def _aot_compiler(gm, examples):
    from torch._functorch.aot_autograd import make_boxed_func
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.threshold_backward.default:
            node.args = (node.args[0], node.args[1], 1.0)
    gm.recompile()
    return make_boxed_func(gm.forward)


def relu_gradient_wrong(gm, examples):
    from torch._dynamo.backends.common import aot_autograd
    return aot_autograd(fw_compiler=_aot_compiler)(gm, examples)
