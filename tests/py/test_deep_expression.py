"""(sanitize: skip, frames are larger than the stack allows for) Thousands of pointwise operators in a row: one expression would be too deep to compile."""
import taper


def test_long_chains_compile():
    def f(x):
        for i in range(1500):
            x = taper.sin(x) * 1.1 if i % 3 else x + 0.01
        return taper.relu(x), x.sum()
    x = taper.linspace(-1, 1, 40)
    want, got = f(x), taper.compile(f, backend="inductor")(x)
    assert taper.allclose(want[0], got[0], atol=1e-4) and taper.allclose(want[1], got[1], atol=1e-3)
    x.requires_grad_()
    f(x)[1].backward()
    want, x.grad = x.grad, None
    taper.compile(f, backend="inductor")(x)[1].backward()
    assert taper.allclose(want, x.grad, atol=1e-3)
