"""A program with two custom operators, one whose shape function is wrong and one without any; read by several tests."""
import taper


@taper.library.custom_op("play::twice", mutates_args=())
def twice(x: taper.Tensor) -> taper.Tensor:
    return taper.cat([x, x])


@twice.register_fake
def _(x):
    return taper.empty_like(x)


@taper.library.custom_op("play::bare", mutates_args=())
def bare(x: taper.Tensor) -> taper.Tensor:
    return x + 1


try:
    taper.compile(lambda x: twice(x) + 1)(taper.ones(3))
except RuntimeError as e:
    assert "its shape function says" in str(e), e
taper.compile(lambda x: bare(x) * 2)(taper.ones(3))
