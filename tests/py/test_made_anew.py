"""What a compiled function makes is made at every call; attributes are where Python keeps them."""
import taper
import taper._dynamo
from same_results import check


def test_new_tensor_is_new():
    def f(x):
        return x.new_tensor([1, 2]), x.new_tensor(3, dtype=taper.int64), x + 1
    check(f, lambda: (taper.ones(2),))
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend)
        first = c(taper.ones(2))
        first[0].fill_(9)
        assert c(taper.ones(2))[0].tolist() == [1.0, 2.0], backend
        assert first[0] is not c(taper.ones(2))[0]


def test_dict_of_a_tensor():
    def written(x):
        x.tag = "a"
        y = x + 1
        y.tag = 2
        return x.__dict__.get("tag"), vars(x)["tag"], y.__dict__["tag"], y

    def through_the_dict(x):
        x.__dict__["tag"] = 5
        return x.tag, x + 1
    for f in (written, through_the_dict):
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            x = taper.ones(2)
            r, want = taper.compile(f, backend=backend)(x), f(taper.ones(2))
            assert [v for v in r if not isinstance(v, taper.Tensor)] == [v for v in want if not isinstance(v, taper.Tensor)], (f, r)
            assert x.tag == want[0]


def test_results_whose_size_data_decides_in_inference_mode():
    x = taper.tensor([1.0, 0.0, 2.0])
    calls = (lambda: x.nonzero(), lambda: taper.where(x > 0)[0], lambda: x.unique(), lambda: taper.unique_consecutive(x), lambda: taper.bincount(x.long()), lambda: x[x > 0],
             lambda: x.masked_select(x > 0), lambda: taper.tensor(1.0).nonzero(), lambda: x * 2)
    with taper.inference_mode():
        assert all(f().is_inference() for f in calls)
        x.add_(1)
    assert not any(f().is_inference() for f in calls) and not x.is_inference()


def test_lists_of_results_are_tuples():
    x = [taper.ones(2), taper.ones(3)]
    for r in (taper._foreach_mul(x, 2), taper._foreach_norm(x), taper._foreach_maximum(x, 2.0)):
        assert type(r) is tuple, type(r)


def test_gradients_that_are_none_or_refused():
    a = taper.ones(2, requires_grad=True)
    taper.norm(a, p=0).backward()
    assert a.grad is None
    z = taper.zeros(1, requires_grad=True)
    taper.polar(z, z).angle().sum().backward()
    assert z.grad.tolist() == [0.0]
    b = a * 1
    b.set_()
    try:
        taper.autograd.grad(b.sum(), a, allow_unused=True)
    except RuntimeError as e:
        assert "derivative for set_ is not implemented" in str(e)
    else:
        raise AssertionError("set_ has no derivative")


def test_indices_of_nothing():
    for f, kind, text in ((lambda: taper.take_along_dim(taper.tensor(1.0), taper.tensor(0), 0), IndexError, "tensor has no dimensions"),
                          (lambda: taper.index_select(taper.ones(0, 2), 0, taper.tensor(0)), RuntimeError, "self indexing axis dim should be positive")):
        try:
            f()
        except kind as e:
            assert text in str(e)
        else:
            raise AssertionError(text)


def test_writes_to_data_do_not_count():
    for f in (lambda x: x.data.add_(1), lambda x: taper.sin(x.data, out=x.data), lambda x: taper.add(x, 1, out=x.data)):
        x = taper.ones(2)
        f(x)
        assert x._version == 0 and x.tolist() != [1.0, 1.0]
