"""Neural-network operators: facts that need no other library."""
import math
import taper

call = taper._C._call


def seq(*shape):
    n = math.prod(shape)
    return taper.arange(n, dtype=taper.float32).reshape(list(shape))


def near(a, b, tol=1e-5):
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y, tol) for x, y in zip(a, b))
    return abs(a - b) <= tol


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_convolution():
    x, w = seq(1, 1, 3, 3), taper.ones(1, 1, 2, 2)
    assert taper.conv2d(x, w).tolist() == [[[[8, 12], [20, 24]]]]
    assert taper.conv2d(x, w, stride=2, padding=1).tolist() == [[[[0, 3], [9, 24]]]]
    assert taper.conv2d(x, w, padding="same").tolist() == [[[[8, 12, 7], [20, 24, 13], [13, 15, 8]]]]
    assert taper.conv2d(x[0], w, taper.ones(1)).tolist() == [[[9, 13], [21, 25]]]
    assert taper.conv_transpose2d(taper.ones(1, 1, 2, 2), w).tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]
    assert taper.conv1d(seq(1, 2, 4), taper.ones(2, 1, 2), groups=2).tolist() == [[[1, 3, 5], [9, 11, 13]]]
    dx, dw, db = call("convolution_backward", taper.ones(1, 1, 2, 2), x, w, [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True])
    assert dx.tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]] and dw.tolist() == [[[[8, 12], [20, 24]]]] and db.tolist() == [4]
    raises(RuntimeError, lambda: taper.conv2d(x, taper.ones(1, 2, 2, 2)), "expected input[1, 1, 3, 3] to have 2 channels, but got 1 channels instead")


def test_pooling():
    x = seq(1, 4, 4)
    v, i = call("max_pool2d_with_indices", x, [2, 2])
    assert v.tolist() == [[[5, 7], [13, 15]]] and i.tolist() == [[[5, 7], [13, 15]]]
    assert taper.avg_pool2d(x, 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert taper.avg_pool2d(x, 2, padding=1, count_include_pad=False).tolist()[0][0] == [0, 1.5, 3]
    assert call("adaptive_avg_pool2d", x, [1, 1]).tolist() == [[[7.5]]]
    raises(RuntimeError, lambda: taper.max_pool2d(x, 5), "Output size is too small")


def test_normalisation():
    x = seq(2, 4)
    y = taper.layer_norm(x, [4])
    assert near(y.mean(1).tolist(), [0, 0]) and near((y * y).mean(1).tolist(), [1, 1], 1e-4)
    m, v = taper.zeros(4), taper.ones(4)
    y = taper.batch_norm(x, None, None, m, v, True, 0.5, 1e-5, False)
    assert near(y.tolist(), [[-1] * 4, [1] * 4], 1e-4)
    assert near(m.tolist(), [1, 1.5, 2, 2.5]) and near(v.tolist(), [4.5] * 4)
    assert near(taper.rms_norm(taper.full([2], 3.0), [2]).tolist(), [1, 1])
    raises(RuntimeError, lambda: taper.layer_norm(x, [3]), "Given normalized_shape=[3], expected input with shape [*, 3], but got input of size[2, 4]")


def test_losses():
    x, t = taper.zeros(2, 4), taper.arange(2)
    assert near(call("cross_entropy_loss", x, t).item(), math.log(4))
    assert near(call("cross_entropy_loss", x, t, None, 2).item(), 2 * math.log(4))
    assert near(call("mse_loss", x, x + 2, 1).item(), 4) and near(call("huber_loss", x, x + 2, 1, 1.0).item(), 1.5)
    assert near(call("binary_cross_entropy_with_logits", x, x).item(), math.log(2))
    raises(IndexError, lambda: call("cross_entropy_loss", x, t + 3), "Target 4 is out of bounds.")


def test_interpolation():
    x = seq(1, 1, 2)
    assert call("upsample_nearest1d", x, [4]).tolist() == [[[0, 0, 1, 1]]]
    assert call("upsample_linear1d", x, [4], False).tolist() == [[[0, 0.25, 0.75, 1]]]
    assert near(call("upsample_linear1d", x, [4], True).tolist(), [[[0, 1 / 3, 2 / 3, 1]]])


def test_attention():
    q = taper.zeros(1, 3, 2)
    v = seq(1, 3, 2)
    assert near(taper.scaled_dot_product_attention(q, q, v).tolist(), [[[2, 3]] * 3])
    assert near(taper.scaled_dot_product_attention(q, q, v, is_causal=True).tolist(), [[[0, 1], [1, 2], [2, 3]]])


def test_dropout_keeps_the_mean_and_follows_the_seed():
    x = taper.ones(10000)
    taper.manual_seed(3)
    a = taper.dropout(x, 0.25, True)
    taper.manual_seed(3)
    assert (a - taper.dropout(x, 0.25, True)).abs().sum().item() == 0
    assert abs(a.mean().item() - 1) < 0.05
    assert taper.dropout(x, 0.25, False) is x


def _max_pool_by_hand(rows, k, s, p, d, out):
    """One plane as lists -> values and places; NaN wins, the last of several; ties go to the first."""
    vals, places = [], []
    for b in range(out[0]):
        for c in range(out[1]):
            best, at = -math.inf, None
            for i in range(k):
                for j in range(k):
                    h, w = b * s - p + i * d, c * s - p + j * d
                    if not (0 <= h < len(rows) and 0 <= w < len(rows[0])):
                        continue
                    v = rows[h][w]
                    at = h * len(rows[0]) + w if at is None else at
                    if v > best or v != v:
                        best, at = v, h * len(rows[0]) + w
            vals.append(best)
            places.append(at)
    return vals, places


def test_max_pool_of_every_width_and_edge():
    taper.manual_seed(0)
    for width in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40):
        for k, s, p, d, ceil in ((2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 1, 1, 1, False), (2, 1, 0, 2, False), (3, 3, 1, 1, True),
                                 (2, 2, 1, 1, True), (3, 2, 0, 1, True)):
            if (k - 1) * d + 1 > min(width, 6) + 2 * p:
                continue
            x = taper.randn(6, width).mul(2).round()  # many equal values
            if width > 3:
                x[2, 3] = math.nan
                x[3, 1] = -math.inf
            y, ix = taper.nn.functional.max_pool2d(x[None, None], k, s, p, d, ceil, return_indices=True)
            vals, places = _max_pool_by_hand(x.tolist(), k, s, p, d, y.shape[2:])
            got = y.flatten().tolist()
            assert all(a == b or (a != a and b != b) for a, b in zip(got, vals)), (width, k, s, p, d, ceil)
            assert ix.flatten().tolist() == places, (width, k, s, p, d, ceil)


def test_interpolate_refuses_what_it_cannot_do():
    F = taper.nn.functional
    for shape, kw, kind, word in (((1, 1, 2, 2, 2, 2), {}, NotImplementedError, "got 6D"), ((2, 2), {}, NotImplementedError, "got 2D"),
                                  ((1, 2, 2), {"mode": "bilinear"}, NotImplementedError, "needs 4D"),
                                  ((1, 1, 4, 4), {"antialias": True}, ValueError, "restricted to bilinear")):
        try:
            F.interpolate(taper.zeros(*shape), scale_factor=2, **kw)
        except kind as e:
            assert word in str(e), e
        else:
            raise AssertionError(f"{shape} {kw}")


def test_batch_norm_of_nothing_leaves_the_statistics():
    for shape in ((0, 3, 4, 4), (2, 3, 0)):
        for wrap in (lambda f: f, taper.compile):
            x, w = taper.zeros(shape, requires_grad=True), taper.ones(3, requires_grad=True)
            m, v = taper.ones(3), taper.full((3,), 2.0)
            y = wrap(lambda x, m, v, w: taper.nn.functional.batch_norm(x, m, v, w, training=True))(x, m, v, w)
            y.sum().backward()
            assert y.shape == x.shape and m.tolist() == [1] * 3 and v.tolist() == [2] * 3 and w.grad.tolist() == [0] * 3
    try:
        taper.native_batch_norm(taper.zeros(0, 3, 2), None, None, None, None, True, 0.1, 1e-5)
        raise AssertionError("no error")
    except RuntimeError as e:
        assert "must have at least one element, but got input_sizes = [0, 3, 2]" in str(e), e
