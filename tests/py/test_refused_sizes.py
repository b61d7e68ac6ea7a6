"""Sizes and types that an operator refuses: the class of the error and its words are PyTorch's, eager and compiled."""
import taper

F = taper.nn.functional
z = taper.zeros

CASES = (
    (lambda: taper.baddbmm(z(1), z(1), z(1)), IndexError, "Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
    (lambda: taper.baddbmm(z(1), z(1, 1, 1), z(1)), IndexError, "but got 2"),
    (lambda: taper.baddbmm(z(1), z(1, 1), z(1, 1, 1)), RuntimeError, "batch1 must be a 3D tensor"),
    (lambda: taper.cdist(z(1), z(1)), RuntimeError, "cdist only supports at least 2D tensors, X1 got: 1D"),
    (lambda: taper.cdist(z(1, 1), z(1)), RuntimeError, "X2 got: 1D"),
    (lambda: taper.cdist(z(2, 3).long(), z(2, 3).long()), RuntimeError, "cdist only supports floating-point dtypes, X1 got: Long"),
    (lambda: F.group_norm(z(1, 1), 1), ValueError, "Expected more than 1 value per channel when training, got input size [1, 1]"),
    (lambda: F.instance_norm(z(1, 1, 1)), ValueError, "Expected more than 1 spatial element when training"),
    (lambda: F.batch_norm(z(1, 2), None, None, training=True), ValueError, "Expected more than 1 value per channel when training"),
    (lambda: F.embedding(taper.tensor(0), z(0, 1)), RuntimeError, "index_select(): self indexing axis dim should be positive"),
    (lambda: F.conv1d(z(1, 1, 0), taper.ones(1, 1, 1), padding=1), RuntimeError, "Only zero batch or zero channel inputs are supported"),
    (lambda: z(3).bool().positive(), RuntimeError, "The `+` operator, on a bool tensor is not supported."),
    (lambda: +z(3).bool(), RuntimeError, "The `+` operator, on a bool tensor is not supported."),
    (lambda: z(3).mH, RuntimeError, "tensor.mH is only supported on matrices"),
    (lambda: taper.unique(taper.ones(2, requires_grad=True)).sum().backward(), NotImplementedError, "the derivative for '_unique2' is not implemented."))


def test_errors():
    for f, kind, words in CASES:
        for g in (f, taper.compile(f)):
            taper._dynamo.reset()
            try:
                g()
            except kind as e:
                assert type(e) is kind and words in str(e), e
            else:
                raise AssertionError(words)


def test_what_is_not_refused():
    a = taper.tensor(2.0)
    assert a.mH.shape == a.mT.shape == () and a.mH.item() == 2.0
    assert F.group_norm(taper.ones(2, 2, 2), 2).shape == (2, 2, 2) and F.embedding(z(0).long(), z(0, 1)).shape == (0, 1)
    assert a.positive() is a and taper.positive(a) is a and +a is a
    x = z(0, 2)
    assert x.index_fill_(0, taper.tensor(0), 1.0) is x
