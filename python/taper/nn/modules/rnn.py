"""Recurrent layers, written over tensor operators step by step."""
import math

import taper
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module


class RNNBase(Module):
    """What RNN, GRU and LSTM share.

    >>> issubclass(nn.LSTM, nn.RNNBase)
    True
    """
    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0,
                 device=None, dtype=None):
        super().__init__()
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional, self.proj_size = bias, batch_first, float(dropout), bidirectional, proj_size
        gates = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}[mode] * hidden_size
        out = proj_size or hidden_size
        self._names = []
        for layer in range(num_layers):
            for d in range(2 if bidirectional else 1):
                width = input_size if layer == 0 else out * (2 if bidirectional else 1)
                sfx = f"_l{layer}" + ("_reverse" if d else "")
                setattr(self, "weight_ih" + sfx, Parameter(taper.empty((gates, width), device=device, dtype=dtype)))
                setattr(self, "weight_hh" + sfx, Parameter(taper.empty((gates, out), device=device, dtype=dtype)))
                if bias:
                    setattr(self, "bias_ih" + sfx, Parameter(taper.empty((gates,), device=device, dtype=dtype)))
                    setattr(self, "bias_hh" + sfx, Parameter(taper.empty((gates,), device=device, dtype=dtype)))
                if proj_size:
                    setattr(self, "weight_hr" + sfx, Parameter(taper.empty((proj_size, hidden_size), device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self):
        k = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -k, k)

    def flatten_parameters(self):
        pass

    def extra_repr(self):
        s = f"{self.input_size}, {self.hidden_size}"
        if getattr(self, "proj_size", 0):
            s += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            s += f", num_layers={self.num_layers}"
        if not self.bias:
            s += f", bias={self.bias}"
        if self.batch_first:
            s += f", batch_first={self.batch_first}"
        if self.dropout:
            s += f", dropout={self.dropout}"
        if self.bidirectional:
            s += f", bidirectional={self.bidirectional}"
        return s

    def _cell(self, gi, h, c, w_hh, b_hh):
        gh = F.linear(h, w_hh, b_hh)
        if self.mode == "LSTM":
            i, f, g, o = (gi + gh).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c
        if self.mode == "GRU":
            ir, iz, in_ = gi.chunk(3, 1)
            hr, hz, hn = gh.chunk(3, 1)
            r = (ir + hr).sigmoid()
            z = (iz + hz).sigmoid()
            n = (in_ + r * hn).tanh()
            return n + z * (h - n), c
        x = gi + gh
        return (x.tanh() if self.mode == "RNN_TANH" else F.relu(x)), c

    def _direction(self, x, layer, d, h, c):
        sfx = f"_l{layer}" + ("_reverse" if d else "")
        w_hh = getattr(self, "weight_hh" + sfx)
        b_hh = getattr(self, "bias_hh" + sfx) if self.bias else None
        gi = F.linear(x, getattr(self, "weight_ih" + sfx), getattr(self, "bias_ih" + sfx) if self.bias else None)
        steps = gi.unbind(0)
        outs = []
        for g in reversed(steps) if d else steps:
            h, c = self._cell(g, h, c, w_hh, b_hh)
            if self.proj_size:
                h = F.linear(h, getattr(self, "weight_hr" + sfx))
            outs.append(h)
        if d:
            outs.reverse()
        return taper.stack(outs), h, c

    def _packed_direction(self, x, sizes, layer, d, h0, c0):
        """One layer over a packed sequence: each step has the rows of the sequences that are that long."""
        sfx = f"_l{layer}" + ("_reverse" if d else "")
        w_hh, b_hh = getattr(self, "weight_hh" + sfx), getattr(self, "bias_hh" + sfx) if self.bias else None
        gi = F.linear(x, getattr(self, "weight_ih" + sfx), getattr(self, "bias_ih" + sfx) if self.bias else None)
        steps = list(zip(gi.split(sizes), sizes))
        h, c = h0[:sizes[-1]] if d else h0, c0[:sizes[-1]] if d else c0
        outs, hs, cs = [], [], []
        for g, n in reversed(steps) if d else steps:
            have = h.shape[0]
            if n < have:  # some have ended
                hs.append(h[n:])
                cs.append(c[n:])
                h, c = h[:n], c[:n]
            elif n > have:  # backwards, longer ones come in
                h, c = taper.cat([h, h0[have:n]]), taper.cat([c, c0[have:n]])
            h, c = self._cell(g, h, c, w_hh, b_hh)
            if self.proj_size:
                h = F.linear(h, getattr(self, "weight_hr" + sfx))
            outs.append(h)
        if d:
            outs.reverse()
        hs.append(h)
        cs.append(c)
        return taper.cat(outs), taper.cat(hs[::-1]), taper.cat(cs[::-1])

    def _layers(self, x, h0, c0, sizes=None):
        """All layers over x, or over the packed steps of these sizes."""
        nd, hs, cs = 2 if self.bidirectional else 1, [], []
        for layer in range(self.num_layers):
            outs = []
            for d in range(nd):
                k = layer * nd + d
                y, h, c = self._direction(x, layer, d, h0[k], c0[k]) if sizes is None else self._packed_direction(x, sizes, layer, d, h0[k], c0[k])
                outs.append(y)
                hs.append(h)
                cs.append(c)
            x = outs[0] if nd == 1 else taper.cat(outs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, taper.stack(hs), taper.stack(cs)

    def _run_packed(self, input, h0, c0):
        sizes, nd = input.batch_sizes.tolist(), 2 if self.bidirectional else 1
        if input.data.size(-1) != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.data.size(-1)}")
        shape = (self.num_layers * nd, sizes[0])
        order, back = input.sorted_indices, input.unsorted_indices
        for t in (h0, c0):
            if t is not None and tuple(t.shape[:2]) != shape:
                raise RuntimeError(f"Expected hidden size ({shape[0]}, {shape[1]}, {self.proj_size or self.hidden_size}), got {list(t.shape)}")
        if h0 is None:
            h0 = taper.zeros(*shape, self.proj_size or self.hidden_size, dtype=input.data.dtype, device=input.data.device)
        elif order is not None:
            h0 = h0.index_select(1, order)
        if c0 is None:
            c0 = taper.zeros(*shape, self.hidden_size, dtype=input.data.dtype, device=input.data.device)
        elif order is not None:
            c0 = c0.index_select(1, order)
        x, h, c = self._layers(input.data, h0, c0, sizes)
        if back is not None:
            h, c = h.index_select(1, back), c.index_select(1, back)
        return input._with(x), h, c

    def _run(self, input, h0, c0):
        if isinstance(input, tuple) and hasattr(input, "batch_sizes"):
            return self._run_packed(input, h0, c0)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self.mode.split('_')[0]}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(1)
            h0 = h0.unsqueeze(1) if h0 is not None else None
            c0 = c0.unsqueeze(1) if c0 is not None else None
        elif self.batch_first:
            input = input.transpose(0, 1)
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")
        nd = 2 if self.bidirectional else 1
        batch = input.size(1)
        if h0 is None:
            h0 = taper.zeros(self.num_layers * nd, batch, self.proj_size or self.hidden_size, dtype=input.dtype, device=input.device)
        elif tuple(h0.shape) != (self.num_layers * nd, batch, self.proj_size or self.hidden_size):
            raise RuntimeError(f"Expected hidden size ({self.num_layers * nd}, {batch}, {self.proj_size or self.hidden_size}), got {list(h0.shape)}")
        if c0 is None:
            c0 = taper.zeros(self.num_layers * nd, batch, self.hidden_size, dtype=input.dtype, device=input.device)
        x, h, c = self._layers(input, h0, c0)
        if not batched:
            return x.squeeze(1), h.squeeze(1), c.squeeze(1)
        return (x.transpose(0, 1) if self.batch_first else x), h, c


class RNN(RNNBase):
    """h = tanh(W x + V h + b) over a sequence; returns all states of the last layer and the last state of each layer.

    >>> nn.RNN(3, 5, batch_first=True)(taper.ones(2, 7, 3))[0].shape
    taper.Size([2, 7, 5])
    """
    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0, bidirectional=False,
                 device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        y, h, _ = self._run(input, hx, None)
        return y, h


class GRU(RNNBase):
    """Gated recurrent units over a sequence; returns all states of the last layer and the last state of each layer.

    >>> nn.GRU(3, 5, batch_first=True)(taper.ones(2, 7, 3))[0].shape
    taper.Size([2, 7, 5])
    """
    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, device=None, dtype=None):
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)

    def forward(self, input, hx=None):
        y, h, _ = self._run(input, hx, None)
        return y, h


class LSTM(RNNBase):
    """Long short-term memory over a sequence; returns all states of the last layer, and (h, c) of each layer.

    >>> nn.LSTM(3, 5, num_layers=2, batch_first=True)(taper.ones(2, 7, 3))[0].shape
    taper.Size([2, 7, 5])
    """
    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0,
                 device=None, dtype=None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)

    def forward(self, input, hx=None):
        h0, c0 = hx if hx is not None else (None, None)
        y, h, c = self._run(input, h0, c0)
        return y, (h, c)


class _CellBase(Module):
    """What the cells have in common.

    >>> isinstance(nn.GRUCell(2, 3), nn.RNNCellBase)
    True
    """

    def __init__(self, input_size, hidden_size, bias, chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_ih = Parameter(taper.empty((chunks * hidden_size, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(taper.empty((chunks * hidden_size, hidden_size), device=device, dtype=dtype))
        if bias:
            self.bias_ih = Parameter(taper.empty((chunks * hidden_size,), device=device, dtype=dtype))
            self.bias_hh = Parameter(taper.empty((chunks * hidden_size,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        k = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0
        for p in self.parameters():
            init.uniform_(p, -k, k)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")

    def _zeros(self, x):
        return taper.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)

    def _gates(self, x, h):
        return F.linear(x, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)


RNNCellBase = _CellBase


class RNNCell(_CellBase):
    """One step of a recurrent network: tanh(W x + V h + b).

    >>> nn.RNNCell(3, 5)(taper.ones(2, 3)).shape
    taper.Size([2, 5])
    """
    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        a, b = self._gates(input, hx if hx is not None else self._zeros(input))
        return (a + b).tanh() if self.nonlinearity == "tanh" else F.relu(a + b)


class LSTMCell(_CellBase):
    """One step of a long short-term memory; returns (h, c).

    >>> nn.LSTMCell(3, 5)(taper.ones(2, 3))[0].shape
    taper.Size([2, 5])
    """
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        h, c = hx if hx is not None else (self._zeros(input), self._zeros(input))
        a, b = self._gates(input, h)
        i, f, g, o = (a + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(_CellBase):
    """One step of a gated recurrent unit.

    >>> nn.GRUCell(3, 5)(taper.ones(2, 3)).shape
    taper.Size([2, 5])
    """
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        h = hx if hx is not None else self._zeros(input)
        a, b = self._gates(input, h)
        ir, iz, in_ = a.chunk(3, -1)
        hr, hz, hn = b.chunk(3, -1)
        r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
        n = (in_ + r * hn).tanh()
        return n + z * (h - n)
