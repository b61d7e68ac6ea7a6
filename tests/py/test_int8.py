"""Linear layers with int8 weights: rows and channels as documented, compiled and eager alike, errors reported."""
import os
import subprocess
import sys

import taper
from taper import nn


def reference(x, w, scale, bias):
    """As documented, in float64 and integers."""
    top = x.abs().amax(-1, keepdim=True)
    by = taper.where(top > 0, 127 / top, taper.zeros_like(top))
    q = (x * by).round().long()
    y = (q @ w.long().t()).double() * (top / 127).double() * scale.double()
    return y + bias.double() if bias is not None else y


def test_against_integers():
    taper.manual_seed(0)
    for m, k, n in ((1, 8, 3), (5, 33, 17), (16, 64, 32), (40, 130, 70), (64, 512, 96), (3, 1100, 40)):
        x, w = taper.randn(m, k), taper.randint(-127, 128, (n, k)).to(taper.int8)
        scale, bias = taper.rand(n) + 0.1, taper.randn(n)
        for b in (None, bias):
            got = taper.linear_dynamic_int8(x, w, scale, b)
            want = reference(x, w, scale, b)
            assert (got.double() - want).abs().max().item() <= 1e-5 * want.abs().max().item()
            assert taper.equal(taper.compile(lambda: taper.linear_dynamic_int8(x, w, scale, b) + 0)(), got)
        y = taper.linear_dynamic_int8(x.to(taper.bfloat16), w, scale, bias)
        assert y.dtype == taper.bfloat16 and y.shape == (m, n)


def test_rows_that_have_no_largest_element():
    w, scale = taper.ones(4, 64, dtype=taper.int8), taper.ones(4)
    x = taper.ones(4, 64)
    x[1] = 0
    x[2, 5] = float("nan")
    x[3, 7] = float("inf")
    y = taper.linear_dynamic_int8(x, w, scale)
    assert (y[0] - 64).abs().max().item() < 1e-4 and (y[1] == 0).all() and y[2].isnan().all() and not y[3].isfinite().any()


def test_wrong_arguments():
    x, w, s = taper.randn(2, 8), taper.ones(3, 8, dtype=taper.int8), taper.ones(3)
    for args in ((x.double(), w, s), (x, w.float(), s), (x, w[:, :7], s), (x, w, s[:2]), (x, w, s, taper.ones(2))):
        try:
            taper.linear_dynamic_int8(*args)
        except RuntimeError as e:
            assert "linear_dynamic_int8" in str(e)
        else:
            raise AssertionError("accepted")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(64, 128), nn.Linear(128, 10, bias=False), nn.LayerNorm(128)

    def forward(self, x):
        return self.b(self.norm(taper.relu(self.a(x))))


def test_quantize_dynamic_and_its_report():
    taper.manual_seed(1)
    net, x = Net().eval(), taper.randn(32, 64)
    small = taper.quantize_dynamic(net)
    assert type(net.a) is nn.Linear and type(small.a).__name__ == "DynamicLinear" and small.a.weight.dtype == taper.int8
    want, got = net(x), small(x)
    assert (got - want).abs().max().item() < 0.05 * want.abs().max().item()
    with taper.no_grad():
        assert (taper.compile(small)(x) - got).abs().max().item() < 0.02 * got.abs().max().item()
    report = taper.quantization_report(net, small, x)
    assert [r[0] for r in report.rows] == ["a", "b", "result"]
    assert all(0 < r[1] < 0.03 and 0 < r[2] < 0.05 for r in report.rows)
    assert "own error" in str(report) and "float" in str(report)
    only = taper.quantize_dynamic(net, {"b"})
    assert type(only.a) is nn.Linear and type(only.b).__name__ == "DynamicLinear"
    loaded = taper.quantize_dynamic(Net().eval())
    loaded.load_state_dict(small.state_dict())
    assert taper.equal(loaded(x), got)


def test_a_layer_that_loses_more_is_named():
    taper.manual_seed(2)
    net, x = Net().eval(), taper.randn(32, 64)
    before = {r[0]: r[1] for r in taper.quantization_report(net, taper.quantize_dynamic(net), x).rows}
    with taper.no_grad():
        net.norm.weight[0], net.b.weight[:, 0] = 2000.0, 0.0  # an outlier that counts for nothing
        net.norm.bias[0] = 5000.0
    after = {r[0]: r[1] for r in taper.quantization_report(net, taper.quantize_dynamic(net), x).rows}
    assert abs(after["a"] - before["a"]) < 1e-9 and after["b"] > 10 * before["b"]


def test_plain_loops_give_the_same_bits():
    program = """if True:
        import taper
        taper.manual_seed(3)
        x, w = taper.randn(20, 96), taper.randint(-127, 128, (33, 96)).to(taper.int8)
        y = taper.linear_dynamic_int8(x, w, taper.rand(33), taper.randn(33))
        print(y.view(taper.int32).tolist())
    """
    outs = {subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env={**os.environ, **env}).stdout
            for env in ({}, {"TAPER_UNITS": "none"}, {"TAPER_PRODUCTS": "blas"}, {"TAPER_NUM_THREADS": "3"})}
    assert len(outs) == 1
