"""Comparing results: same, same_two_models and the helpers around them."""
import copy
import math

import taper
import taper.nn as nn
from taper import _dynamo as dynamo
from taper._dynamo import config, debug_utils, testing
from taper._dynamo.utils import bitwise_same, clone_inputs, same

T = taper.tensor


def said(*args, **kw):
    """The answer and what was logged."""
    out = []
    ok = same(*args, log_error=lambda msg, *a: out.append(msg % a if a else msg), **kw)
    return ok, out


def raises(kind, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except kind as e:
        return str(e)
    raise AssertionError(f"no {kind.__name__}")


def test_containers():
    a, b = T([1.0, 2.0]), T([1.0, 3.0])
    assert same([a, (b, None)], (a, [b, None]))
    assert said([a], [a, b]) == (False, ["Length mismatch"])
    assert not same([a, b], [a, a])
    raises(AssertionError, same, [a], a)
    ok, log = said({"x": a, "y": b}, {"x": a, "y": a})
    assert not ok and log[-1] == "Accuracy failed for key name y"
    assert "keys mismatch" in raises(AssertionError, same, {"x": a}, {"y": a})
    assert same({1, 2}, {2, 1})
    raises(AssertionError, same, {1}, {2})
    assert said(3, 4)[1] == ["Accuracy failed (<class 'int'>): 3 != 4"] and same(3, 4, ignore_non_fp=True)
    assert not same("a", "b") and not same(None, 1) and same(None, None)

    class QuestionAnsweringModelOutput:
        def __init__(self, loss, rest):
            self.loss, self.rest = loss, rest

    class MaskedLMOutput:
        def __init__(self, logits):
            self.logits = logits
    assert same(QuestionAnsweringModelOutput(a, a), QuestionAnsweringModelOutput(a, b))
    assert same(MaskedLMOutput(a), MaskedLMOutput(a)) and not same(MaskedLMOutput(a), MaskedLMOutput(b))
    assert "unsupported type: object" in raises(RuntimeError, same, object(), object())


def test_numbers_on_both_sides_of_each_threshold():
    one = taper.ones(4, dtype=taper.float64)
    assert same(one, one + 1.9e-4) and not same(one, one + 2.1e-4) and same(one, one + 2.1e-4, tol=2e-4)
    assert same(1.0, 1.0 + 1e-5) and not same(1.0, 1.1)
    nan = one * math.nan
    assert not same(nan, nan) and same(nan, nan, equal_nan=True)
    assert said(one, one.float())[1] == ["dtype mismatch float64, float32"]
    assert same(one, one.float(), exact_dtype=False)
    yes, no = T([True, True]), T([True, False])
    assert said(yes, no)[1] == ["Accuracy failed: uint8 tensor did not match"]
    assert same(yes, no, ignore_non_fp=True)
    many = taper.ones(100, dtype=taper.bool)
    miss = many.clone()
    miss[0] = False
    assert same(many, miss, use_iou_for_bool=True) and not same(many, miss, use_iou_for_bool=True, iou_threshold=0.995)
    assert same(yes & False, yes & False, use_iou_for_bool=True)
    # a result that is nearer to float64 than eager is, passes with the reference and fails without
    assert same(T([1.01]), T([1.0]), T([1.0], dtype=taper.float64)) and not same(T([1.01]), T([1.0]))
    ok, log = said(T([1.0]), T([1.5]), T([1.0], dtype=taper.float64))
    assert not ok and log[0].startswith("RMSE (res-fp64): 0.50000, (ref-fp64): 0.00000 and shape=[1]. res.dtype: float32, multiplier: 3")
    assert "element [0] is 1.5, eager 1, float64 1" in log[0]
    big = taper.ones(2000)
    assert same(big * 1.01, big * 0.985, big.double(), use_larger_multiplier_for_smaller_tensor=True)  # multiplier 2: 0.015 <= 2 * 0.01
    assert not same(big * 1.01, big * 0.96, big.double()) and same(big * 1.01, big * 0.96, big.double(), force_max_multiplier=True)
    x = taper.arange(1, 9).float()
    assert not same(x, x * 1.1) and same(x, x * 1.1, cos_similarity=True) and not same(x, -x, cos_similarity=True)
    # no float64 reference: floats count even where non-floats do not
    assert not same(T([1.0]), T([2.0]), ignore_non_fp=True)
    assert bitwise_same(x, x.clone()) and not bitwise_same(x, x + 1e-6)
    with taper.no_grad():
        assert raises(AssertionError, same, taper.ones(2, device="meta"), taper.ones(2, device="meta"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("steps", T([0]))

    def forward(self, x):
        self.steps += 1
        return self.fc(x).relu()


def test_run_leaves_inputs_alone_and_collects_everything():
    net, x = Net(), taper.randn(4, 3, requires_grad=True)
    before = x.detach().clone()
    first, second = (debug_utils.run_fwd_maybe_bwd(net, [x]) for _ in range(2))
    pred, loss, grads, params, buffers, xgrad = first
    assert loss is None and x.grad is None and taper.equal(x, before) and net.fc.weight.grad is None and net.steps.item() == 0
    assert sorted(grads) == ["fc.bias.grad", "fc.weight.grad"] and sorted(params) == ["fc.bias", "fc.weight"] and buffers["steps"].item() == 1
    assert xgrad.shape == x.shape and same(first, second)  # gradients start from zero each time
    assert taper.is_tensor(debug_utils.run_fwd_maybe_bwd(net, [x], only_fwd=True))

    def boxed(args):
        y = args[0] * 2
        args.clear()
        return [y]
    boxed._boxed_call = True
    args = [x]
    assert taper.equal(debug_utils.run_fwd_maybe_bwd(boxed, args, only_fwd=True)[0], x * 2) and len(args) == 1

    def write(x):
        return x.add_(1)
    y = taper.zeros(2)
    debug_utils.run_fwd_maybe_bwd(write, [y], only_fwd=True)
    assert y.tolist() == [0, 0]
    debug_utils.run_fwd_maybe_bwd(write, [y], only_fwd=True, disable_clone=True)
    assert y.tolist() == [1, 1]


def test_clones_keep_strides_alignment_and_gradness():
    base = taper.randn(40)
    for x in (taper.randn(3, 4).t(), base[1:33], base[3:].as_strided((3, 2), (8, 2), 3), taper.randn(2).requires_grad_(), T([1, 2]),
              taper.ones(1).expand(4)):
        (c,) = debug_utils.clone_inputs_retaining_gradness([x])
        assert same(x.detach(), c.detach()) and c.requires_grad == x.requires_grad
        if x.stride() != (0,):
            assert c.stride() == x.stride() and (c.data_ptr() - x.data_ptr()) % 32 == 0
        with taper.no_grad():
            c.add_(1)
        assert not taper.equal(c, x)
    hidden = (taper.randn(2, requires_grad=True) * 2)
    (c,) = debug_utils.clone_inputs_retaining_gradness([hidden])
    assert c.requires_grad and c.is_leaf
    assert clone_inputs({"a": [base, 3]})["a"][1] == 3


def test_cast_to_fp64():
    net, ins = debug_utils.cast_to_fp64(Net(), [taper.ones(2), T([1, 2]), 3])
    assert net.fc.weight.dtype == taper.float64 and net.steps.dtype == taper.int64
    assert ins[0].dtype == taper.float64 and ins[1].dtype == taper.int64 and ins[2] == 3
    gms = []

    def keep(gm, inputs):
        gms.append(gm)
        return gm.forward
    taper.compile(lambda x: x.to(taper.float32) + taper.zeros(2, dtype=taper.float32), backend=keep)(taper.ones(2, dtype=taper.float16))
    gm, ins = debug_utils.cast_to_fp64(copy.deepcopy(gms[0]), [taper.ones(2, dtype=taper.float16)])
    assert gm(*ins)[0].dtype == taper.float64 and "float32" not in gm.code


def test_scalar_loss_by_type():
    x = taper.arange(4).float()
    loss = testing.reduce_to_scalar_loss
    assert loss(x).item() == 1.5 and loss(T([1, 2])).item() == 1.5
    assert loss([x, x + 1]).item() == 2 and loss({"a": x, "b": x + 2}).item() == 2.5

    class MaskedLMOutput:
        logits = x

    class SquashedNormal:
        mean = x
    assert loss(MaskedLMOutput()).item() == 1.5 and loss(SquashedNormal()).item() == 6
    assert "Don't know how to reduce" in raises(NotImplementedError, loss, "text")
    need = testing.requires_bwd_pass
    assert need([x, x.clone().requires_grad_()]) and not need((x, None, 3))
    raises(NotImplementedError, need, "text")


def test_two_models():
    net, x = Net(), taper.randn(4, 3)
    assert dynamo.same_two_models(net, net, [x])
    other = copy.deepcopy(net)
    with taper.no_grad():
        other.fc.weight[0, 0] += 1
    assert not dynamo.same_two_models(net, other, [x])

    def fails(x):
        raise ValueError("unrelated")
    assert dynamo.same_two_models(net, fails, [x])  # its own run reports it

    def single(x):
        if x.dtype == taper.float64:
            raise TypeError("float32 only")
        return x + 0.01
    assert not dynamo.same_two_models(single, lambda x: x + 0.02, [x], only_fwd=True)
    assert "fp64" in raises(RuntimeError, dynamo.same_two_models, single, single, [x], True, require_fp64=True)
    # eager is off by 0.01, the compiled one is right: fine with a float64 reference, a failure without

    def sloppy(x):
        return x + (0.01 if x.dtype == taper.float32 else 0)
    assert dynamo.same_two_models(sloppy, lambda x: x + 0, [x], only_fwd=True)
    with config.patch(same_two_models_use_fp64=False):
        assert not dynamo.same_two_models(sloppy, lambda x: x + 0, [x], only_fwd=True)
    flips = [lambda x: x > 0, lambda x: x <= 0]
    assert not dynamo.same_two_models(*flips, [x], only_fwd=True)
    assert dynamo.same_two_models(*flips, [x], only_fwd=True, ignore_non_fp=True)
