"""Fake tensors and symbolic sizes that a user keeps longer than the graph they belong to."""
import gc

import taper
import taper._dynamo
from taper._dynamo.backends.common import aot_autograd
from taper._dynamo.comptime import comptime


def kept_from_a_trace():
    kept = []

    @taper.compile(dynamic=True)
    def f(x):
        @comptime
        def _(ctx):
            x = ctx.get_local("x").as_fake()
            kept.extend([x, x.shape[0], x.shape])
        return x * 2
    f(taper.randn(5, 4))
    return kept


def forget():
    """The graph goes, and others take its memory."""
    taper._dynamo.reset()
    gc.collect()
    for n in range(20):
        taper.compile(lambda x: x * 2 + x.shape[0], dynamic=True)(taper.randn(3 + n, 5))
        taper._dynamo.reset()
    gc.collect()


def test_what_was_made_of_them_lives():
    fake = kept_from_a_trace()[0]
    made = [fake.t(), fake.sum(0), fake[0], fake.detach(), fake + 1]
    del fake
    forget()
    assert [repr(t) for t in made] == [f"FakeTensor(..., size={s})" for s in
                                       ("(s1, s0)", "(s1,)", "(s1,)", "(s0, s1)", "(s0, s1)")]
    assert repr((made[0] * 2).reshape(-1)) == "FakeTensor(..., size=(s0*s1,))"
    assert repr(made[0].shape[0] * 2 + 1) == "2*s1 + 1"


def test_inputs_of_a_compiler_live():
    kept = []

    def compiler(g, inputs):
        kept.extend(inputs)
        return g.forward
    f = taper.compile(lambda x: (x * x.shape[0]).sum(), backend=aot_autograd(fw_compiler=compiler), dynamic=True)
    f(taper.randn(5, 4, requires_grad=True)).backward()
    del f
    forget()
    for k in kept:
        repr(k)
        if isinstance(k, taper.Tensor) and k.dim():
            repr(k + 1)


def test_sizes_without_their_graph_have_no_value():
    fake, s, shape = kept_from_a_trace()
    forget()
    for call in (lambda: taper.zeros(s), lambda: taper.ones(6)[:s], lambda: taper.ones(6) * s, lambda: taper.arange(s),
                 lambda: taper.ones(6).expand(s, 6), lambda: taper.full(shape, 1.0), lambda: taper.eye(s),
                 lambda: taper.ones(10).reshape(s, -1), lambda: taper.ones(3).new_zeros(s)):
        try:
            call()
            assert False
        except RuntimeError as e:
            assert "is symbolic: outside of the graph it belongs to it has no value" in str(e), e
    for call in (lambda: int(s), lambda: bool(s == 5), lambda: taper.tensor(s)):
        try:
            call()
            assert False
        except RuntimeError as e:
            assert "guards were already produced" in str(e), e
