"""Shape, gather and index operators: facts that need no other library."""
import taper

call = taper._C._call


def seq(*shape, dtype=taper.int64):
    n = 1
    for s in shape:
        n *= s
    if n == 0:
        return taper.zeros(list(shape), dtype=dtype)
    return call("repeat_interleave.Tensor", taper.ones([n], dtype=taper.int64)).reshape(list(shape)).add(taper.zeros([1], dtype=dtype))


def vec(*v):
    return call("cat", [taper.full([1], x) for x in v])


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_views_share_memory():
    x = taper.zeros([2, 3])
    x.t().select(0, 1).fill_(5)
    assert x.tolist() == [[0, 5, 0], [0, 5, 0]]
    x.reshape(6).narrow(0, 4, 2).fill_(7)
    assert x.tolist() == [[0, 5, 0], [0, 7, 7]]
    assert x.t().reshape(6).data_ptr() != x.data_ptr()
    x.split(1)[0].fill_(1)
    x.diagonal().fill_(9)
    assert x.tolist() == [[9, 1, 1], [0, 9, 7]]


def test_splitting_and_joining():
    x = seq(5)
    assert [p.tolist() for p in x.split(2)] == [[0, 1], [2, 3], [4]]
    assert [p.tolist() for p in x.chunk(3)] == [[0, 1], [2, 3], [4]]
    assert [p.tolist() for p in x.tensor_split(3)] == [[0, 1], [2, 3], [4]]
    assert [p.tolist() for p in x.tensor_split([1, 3])] == [[0], [1, 2], [3, 4]]
    assert taper.cat([x, x.add(5)]).tolist() == list(range(10))
    assert taper.stack([seq(2), seq(2)], 1).tolist() == [[0, 0], [1, 1]]
    assert x.unfold(0, 2, 2).tolist() == [[0, 1], [2, 3]]
    raises(RuntimeError, lambda: x.split(0), "split_size can only be 0 if dimension size is 0, but got dimension size of 5")
    raises(ValueError, lambda: taper.cat([]), "expected a non-empty list of Tensors")


def test_rearranging():
    x = seq(2, 3)
    assert x.flip([1]).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert x.roll(1).tolist() == [[5, 0, 1], [2, 3, 4]]
    assert x.rot90().tolist() == [[2, 5], [1, 4], [0, 3]]
    assert x.repeat(1, 2).tolist() == [[0, 1, 2] * 2, [3, 4, 5] * 2]
    assert x.repeat_interleave(2, 0).tolist() == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2
    assert x.tril().tolist() == [[0, 0, 0], [3, 4, 0]] and x.triu(1).tolist() == [[0, 1, 2], [0, 0, 5]]
    assert seq(3).diag().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 2]]
    assert [g.tolist() for g in taper.meshgrid([seq(2), seq(3)], indexing="ij")] == [[[0] * 3, [1] * 3], [[0, 1, 2]] * 2]


def test_padding():
    x = seq(1, 4).add(1)
    p = lambda mode: call("pad", x, [2, 1], mode).tolist()
    assert p("constant") == [[0, 0, 1, 2, 3, 4, 0]]
    assert p("reflect") == [[3, 2, 1, 2, 3, 4, 3]]
    assert p("replicate") == [[1, 1, 1, 2, 3, 4, 4]]
    assert p("circular") == [[3, 4, 1, 2, 3, 4, 1]]
    raises(NotImplementedError, lambda: p("mirror"), "Unrecognised padding mode mirror")


def test_gather_and_scatter():
    x = seq(2, 3)
    ix = taper.stack([vec(2, 0, 0), vec(1, 1, 2)])
    assert x.gather(1, ix).tolist() == [[2, 0, 0], [4, 4, 5]]
    assert taper.zeros([2, 3], dtype=taper.int64).scatter_add(1, ix, x.add(1)).tolist() == [[5, 0, 1], [0, 9, 6]]
    assert x.index_select(1, vec(2, 2)).tolist() == [[2, 2], [5, 5]]
    assert x.index_add(0, vec(1, 1), x).tolist() == [[0, 1, 2], [6, 9, 12]]
    assert x.take(vec(-1, 0)).tolist() == [5, 0]
    raises(RuntimeError, lambda: x.gather(1, vec(0)), "Index tensor must have the same number of dimensions as input tensor")
    raises(RuntimeError, lambda: x.gather(0, ix.add(7)), "is out of bounds for dimension 0 with size 2")
    raises(IndexError, lambda: x.index_select(0, vec(2)), "index out of range in self")


def test_indexing_by_tensors():
    x = seq(3, 4)
    at = lambda *ix: call("index.Tensor", x, list(ix)).tolist()
    assert at(vec(0, -1)) == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert at(None, vec(1, 1)) == [[1, 1], [5, 5], [9, 9]]
    assert at(vec(0, 2), vec(1, 3)) == [1, 11]
    assert at(x.gt(9)) == [10, 11]
    assert x.index_put([x.gt(1)], taper.zeros([], dtype=taper.int64)).tolist() == [[0, 1, 0, 0], [0] * 4, [0] * 4]
    assert x.masked_select(x.gt(9)).tolist() == [10, 11]
    raises(IndexError, lambda: at(vec(5)), "index 5 is out of bounds for dimension 0 with size 3")
    raises(IndexError, lambda: at(vec(0, 1), vec(0, 1, 2)), "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]")


def test_in_place_headers():
    x = taper.zeros([2, 1, 3])
    assert x.squeeze_() is x and x.shape == (2, 3) and x.t_().shape == (3, 2) and x.unsqueeze_(0).shape == (1, 3, 2)
    x.resize_([5])
    assert x.shape == (5,) and x.tolist() == [0] * 5


def test_channels_last_survives_where_pytorch_keeps_it():
    x = taper.arange(120, dtype=taper.float32).reshape(2, 3, 4, 5).contiguous(memory_format=taper.channels_last)
    stacked = [(120, 60, 1, 15, 3), (120, 3, 1, 30, 6), (120, 1, 60, 15, 3), (120, 1, 30, 15, 3), (120, 40, 10, 2, 1)]
    F = taper.nn.functional
    cases = [(lambda x, d=d: taper.stack([x, x], d), s) for d, s in enumerate(stacked)] + [
        (lambda x: taper.roll(x, (1, 2), (0, 3)), (60, 1, 15, 3)), (lambda x: taper.roll(x, 4, 2), (60, 20, 5, 1)),
        (lambda x: taper.roll(x, 1), (60, 20, 5, 1)), (lambda x: x.masked_fill(x > 3, 0.0), (60, 20, 5, 1)),
        (lambda x: F.pixel_shuffle(x, 1), (60, 1, 15, 3)), (lambda x: F.channel_shuffle(x, 3), (60, 1, 15, 3)),
        (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), (6, 3, 3, 1))]
    for i, (f, stride) in enumerate(cases):
        plain, got, fused = f(x.contiguous()), f(x), taper.compile(f)(x)
        assert got.stride() == fused.stride() == stride, (i, got.stride(), fused.stride())
        assert taper.equal(got, plain) and taper.equal(fused, plain), i


def test_any_and_all_over_no_dimension_reduce_none():
    x = taper.tensor([[0.0, 1.0], [0.0, 2.0]])
    for f in (lambda x: taper.any(x, dim=[]), lambda x: x.all(dim=(), keepdim=True)):
        for g in (f, taper.compile(f)):
            assert g(x).tolist() == [[False, True], [False, True]]
    for f, want in ((taper.any, True), (taper.all, False)):
        assert f(x).item() is want and taper.compile(lambda x: f(x))(x).item() is want
    assert taper.sum(x, dim=[]).item() == 3.0


def test_chain_matmul_of_one_matrix_is_a_copy():
    x = taper.ones(2, 3)
    y = taper.chain_matmul(x)
    y += 1
    assert x.sum().item() == 6
