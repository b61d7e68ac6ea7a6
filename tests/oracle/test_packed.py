"""Packed sequences, padding and recurrent layers over them beside PyTorch's."""
import unittest

import taper

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")


def both(fn):
    return fn(taper), fn(torch)


def test_layers_over_packed_sequences():
    torch.manual_seed(0)
    data = [torch.randn(n, 3) for n in (4, 6, 1, 4)]
    for name, kw in (("LSTM", {}), ("GRU", {"num_layers": 2, "bidirectional": True}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 2, "bidirectional": True})):
        theirs = getattr(torch.nn, name)(3, 5, **kw)
        ours = getattr(taper.nn, name)(3, 5, **kw)
        ours.load_state_dict({k: taper.tensor(v.tolist()) for k, v in theirs.state_dict().items()})
        out = []
        for lib, net in ((taper, ours), (torch, theirs)):
            rnn = lib.nn.utils.rnn
            pk = rnn.pack_sequence([lib.tensor(d.tolist()) for d in data], enforce_sorted=False)
            y, h = net(pk)
            y.data.pow(2).sum().backward()
            padded, n = rnn.pad_packed_sequence(y, padding_value=0.5, total_length=7)
            hs = h if isinstance(h, tuple) else (h,)
            out.append([pk.batch_sizes.tolist(), pk.sorted_indices.tolist(), n.tolist()] + [x.detach().flatten().tolist() for x in (padded, *hs)]
                       + [p.grad.flatten().tolist() for p in net.parameters()])
        for a, b in zip(*out):
            assert len(a) == len(b) and all(abs(x - y) < 1e-4 for x, y in zip(a, b)), name
