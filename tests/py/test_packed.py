"""taper.nn.utils.rnn: padding, packing, and recurrent layers over packed sequences."""
import taper
from taper import nn
from taper.nn.utils import rnn


def raises(cls, fn):
    try:
        fn()
    except cls as e:
        return str(e)
    raise AssertionError(f"no {cls.__name__}")


SEQS = [taper.arange(n * 2, dtype=taper.float32).view(n, 2) + 10 * n for n in (3, 5, 1)]


def test_padding():
    p = rnn.pad_sequence(SEQS, batch_first=True, padding_value=-1)
    assert p.shape == (3, 5, 2) and p[2, 1:].eq(-1).all() and taper.equal(p[1], SEQS[1])
    assert rnn.pad_sequence(SEQS).shape == (5, 3, 2)
    left = rnn.pad_sequence(SEQS, True, 0, "left")
    assert taper.equal(left[0, 2:], SEQS[0]) and left[0, :2].eq(0).all()
    for a, b in zip(rnn.unpad_sequence(p, taper.tensor([3, 5, 1]), True), SEQS):
        assert taper.equal(a, b)
    assert "padding_side" in raises(ValueError, lambda: rnn.pad_sequence(SEQS, padding_side="up"))


def test_packing_and_back():
    pk = rnn.pack_sequence(SEQS, enforce_sorted=False)
    assert pk.batch_sizes.tolist() == [3, 2, 2, 1, 1] and pk.data.shape == (9, 2) and pk.sorted_indices.tolist() == [1, 0, 2]
    p, n = rnn.pad_packed_sequence(pk, batch_first=True)
    assert n.tolist() == [3, 5, 1] and taper.equal(p, rnn.pad_sequence(SEQS, True))
    assert rnn.pad_packed_sequence(pk, total_length=7)[0].shape == (7, 3, 2)
    for a, b in zip(rnn.unpack_sequence(pk), SEQS):
        assert taper.equal(a, b)
    assert pk.double().data.dtype is taper.float64
    pad = rnn.pad_sequence(SEQS)
    assert "sorted in decreasing order" in raises(RuntimeError, lambda: rnn.pack_padded_sequence(pad, [3, 5, 1]))
    assert "greater than 0" in raises(RuntimeError, lambda: rnn.pack_padded_sequence(pad, [5, 3, 0]))
    assert "batch_size" in raises(RuntimeError, lambda: rnn.pack_padded_sequence(pad, [5, 3]))
    assert "at most 5" in raises(RuntimeError, lambda: rnn.pack_padded_sequence(pad, [6, 3, 1]))
    assert "total_length" in raises(ValueError, lambda: rnn.pad_packed_sequence(pk, total_length=2))


def test_layers_over_packed_sequences_equal_one_by_one():
    taper.manual_seed(1)
    for cls, kw in ((nn.LSTM, {}), (nn.GRU, {}), (nn.RNN, {}), (nn.LSTM, {"proj_size": 2}), (nn.GRU, {"bidirectional": True, "num_layers": 2}),
                    (nn.LSTM, {"bidirectional": True, "num_layers": 2})):
        net = cls(2, 4, **kw)
        out, h = net(rnn.pack_sequence(SEQS, enforce_sorted=False))
        padded, n = rnn.pad_packed_sequence(out, batch_first=True)
        for i, s in enumerate(SEQS):
            want, hw = net(s.unsqueeze(1))
            assert taper.allclose(padded[i, :len(s)], want.squeeze(1), atol=1e-6), cls
            for a, b in zip(h if isinstance(h, tuple) else (h,), hw if isinstance(hw, tuple) else (hw,)):
                assert taper.allclose(a[:, i], b[:, 0], atol=1e-6), cls
        out.data.sum().backward()
        assert all(p.grad is not None for p in net.parameters())


def test_initial_states_follow_the_order():
    taper.manual_seed(2)
    net, h0 = nn.GRU(2, 4), taper.randn(1, 3, 4)
    _, h = net(rnn.pack_sequence(SEQS, enforce_sorted=False), h0)
    for i, s in enumerate(SEQS):
        assert taper.allclose(h[:, i], net(s.unsqueeze(1), h0[:, i:i + 1])[1][:, 0], atol=1e-6)
    assert "Expected hidden size" in raises(RuntimeError, lambda: net(rnn.pack_sequence(SEQS, False), taper.zeros(1, 2, 4)))
