"""x[...] and x[...] = v."""
import taper
from taper import tensor


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def grid():
    return tensor([[[i * 15 + j * 5 + k for k in range(5)] for j in range(3)] for i in range(2)])


def test_views_share_memory():
    x = grid()
    for v in (x[0], x[:, 1], x[..., ::2], x[None], x[0, 1:, -1], x[()], x[...]):
        v.fill_(7)
        assert 7 in v.tolist() or v.flatten().tolist().count(7) == v.numel()
    assert x[0, 0, 0].item() == 7


def test_integer_tensors_copy():
    x = grid()
    assert x[tensor([1, 0]), tensor([2, 0]), tensor([4, 0])].tolist() == [29, 0]
    assert x[:, [0, 2], 1].tolist() == [[1, 11], [16, 26]]
    assert x[[0], :, [1]].shape == (1, 3)  # separated indices go first
    assert x[0, tensor([[0, 1], [1, 2]]), 1:3].shape == (2, 2, 2)
    y = x[[0]]
    y.fill_(9)
    assert x[0, 0, 0].item() == 0


def test_masks():
    x = grid()
    m = tensor([[True, False, True], [True, True, False]])
    assert x[m].shape == (4, 5) and x[m, 0:2].shape == (4, 2) and x[m, 1].tolist() == [1, 11, 16, 21]
    assert x[True].shape == (1, 2, 3, 5) and x[False].shape == (0, 2, 3, 5)
    assert x[m, ..., tensor([0, 1, 2, 3])].tolist() == [0, 11, 17, 23]


def test_assignment():
    x = taper.zeros(2, 3)
    x[0] = 1
    x[1, 1:] = tensor([5., 6.])
    x[:, 0] = tensor([[[8., 9.]]])  # leading ones do not count
    assert x.tolist() == [[8.0, 1.0, 1.0], [9.0, 5.0, 6.0]]
    x[x > 5] = -1
    x[tensor([0, 0]), tensor([1, 2])] = tensor([3., 4.])
    x[..., None] = x[..., None]
    x[False] = 100
    assert x.tolist() == [[-1.0, 3.0, 4.0], [-1.0, 5.0, -1.0]]


def test_errors():
    x = taper.zeros(3)
    raises(IndexError, lambda: x[5], "index 5 is out of bounds for dimension 0 with size 3")
    raises(IndexError, lambda: x[0, 0], "too many indices for tensor of dimension 1")
    raises(IndexError, lambda: x[1.5], "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables")
    raises(IndexError, lambda: x[tensor([1.5])], "tensors used as indices must be long, int, byte or bool tensors")
    raises(IndexError, lambda: x[tensor([True, False])],
           "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [3] at index 0")
    raises(ValueError, lambda: x[::-1], "step must be greater than zero")
    raises(IndexError, lambda: tensor(1)[0], "invalid index of a 0-dim tensor")
    raises(TypeError, lambda: x.__setitem__(0, [1]), "can't assign a list to a taper.FloatTensor")
    raises(RuntimeError, lambda: x.__setitem__(slice(0, 2), taper.ones(3)),
           "The expanded size of the tensor (2) must match the existing size (3) at non-singleton dimension 0")
    raises(TypeError, lambda: x.__delitem__(0), "does not support deleting")
    raises(ValueError, lambda: x[2**70], "Overflow")


def test_iteration():
    x = tensor([[1, 2], [3, 4]])
    assert [r.tolist() for r in x] == [[1, 2], [3, 4]] and len(x) == 2
    a, b = x
    assert a.tolist() == [1, 2] and [int(v) for v in b] == [3, 4]
    raises(TypeError, lambda: iter(tensor(1)), "iteration over a 0-d tensor")
    raises(TypeError, lambda: len(tensor(1)), "len() of a 0-d tensor")


def test_meta_tensors_are_indexed_by_shape():
    x = taper.zeros(4, 3, device="meta")
    assert x[0].shape == (3,) and x[:, [0, 1]].shape == (4, 2) and x[..., None, 1:].shape == (4, 1, 2)
    x[0] = 1
    assert x.is_meta


def test_scatter_reduce_without_self_on_every_type():
    """The neutral element of each type, bool among them."""
    index, n = taper.tensor([0, 0, 2]), 4
    for dt in (taper.bool, taper.uint8, taper.int32, taper.int64, taper.float32):
        src, x = taper.tensor([0, 0, 1]).to(dt), taper.tensor([1, 1, 0, 1]).to(dt)
        for how, want in (("amax", [0, 1, 1, 1]), ("amin", [0, 1, 1, 1]), ("prod", [0, 1, 1, 1]), ("sum", [0, 1, 1, 1])):
            got = x.scatter_reduce(0, index, src, how, include_self=False)
            assert got.to(taper.int64).tolist() == want, (dt, how, got)


def test_where_as_a_method_fills_where_the_condition_is_false():
    x, m = taper.full((3,), -1.0), taper.tensor([True, False, True])
    y = taper.arange(3.0) + 5
    for call in (lambda: x.where(m, y), lambda: x.where(m, other=y), lambda: x.where(condition=m, other=y), lambda: taper.where(m, x, y)):
        assert call().tolist() == [-1, 6, -1]
        assert taper.compile(call, fullgraph=True)().tolist() == [-1, 6, -1]
    assert x.where(m, 2).tolist() == [-1, 2, -1]
