"""Counting the multiplications and additions of products, convolutions and attention, by module."""
from collections import defaultdict
from math import prod

from ._python_dispatch import TorchDispatchMode


def _mm(a, b, *rest, **kw):
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def _addmm(bias, a, b, *rest, **kw):
    return _mm(a, b)


def _bmm(a, b, *rest, **kw):
    return 2 * a.shape[0] * a.shape[1] * a.shape[2] * b.shape[2]


def _baddbmm(bias, a, b, *rest, **kw):
    return _bmm(a, b)


def _conv(x, w, bias, stride, padding, dilation, transposed, *rest, out, **kw):
    spatial = x.shape[2:] if transposed else out.shape[2:]
    return 2 * x.shape[0] * prod(spatial) * prod(w.shape)


def _conv_backward(dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask, *rest, out, **kw):
    one = 2 * x.shape[0] * prod(x.shape[2:] if transposed else dy.shape[2:]) * prod(w.shape)
    return one * (bool(mask[0]) + bool(mask[1]))


def _attention(q, k, v, *rest, **kw):
    b = prod(q.shape[:-2])
    return 2 * b * q.shape[-2] * k.shape[-2] * (q.shape[-1] + v.shape[-1])


_COUNTS = {"mm": _mm, "addmm": _addmm, "bmm": _bmm, "baddbmm": _baddbmm, "convolution": _conv, "convolution_backward": _conv_backward,
           "scaled_dot_product_attention": _attention}


class FlopCounterMode(TorchDispatchMode):
    """with FlopCounterMode(): counts; get_total_flops(), get_flop_counts() by module and operator; display prints a table at the end."""

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.depth, self.display, self.custom = depth, display, dict(custom_mapping or {})
        self._clear()

    def _clear(self):
        self.counts, self.parents = defaultdict(lambda: defaultdict(int)), ["Global"]

    def get_total_flops(self):
        return sum(self.counts["Global"].values())

    def get_flop_counts(self):
        return {k: dict(v) for k, v in self.counts.items()}

    def __enter__(self):
        from ..nn.modules import module as m
        self._clear()
        self._hooks = [m.register_module_forward_pre_hook(self._in), m.register_module_forward_hook(self._out)]
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        for h in self._hooks:
            h.remove()
        if self.display:
            print(self.get_table(self.depth))

    def _in(self, mod, args):
        self.parents.append(f"{self.parents[-1]}.{type(mod).__name__}" if len(self.parents) > 1 else type(mod).__name__)

    def _out(self, mod, args, out):
        self.parents.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        count = self.custom.get(func, self.custom.get(func.overloadpacket))
        if count is not None:
            n = count(*args, **kwargs, out_val=out)
        else:
            count = _COUNTS.get(func._opname)
            n = count(*args, **{**kwargs, "out": out[0] if isinstance(out, (tuple, list)) else out}) if count else 0
        if n:
            for p in set(self.parents):
                self.counts[p][func.overloadpacket] += n
        return out

    def get_table(self, depth=None):
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = []
        for name in sorted(self.counts, key=lambda k: (k != "Global", k)):
            level = 0 if name == "Global" else name.count(".") + 1
            if level > depth:
                continue
            n = sum(self.counts[name].values())
            rows.append((" " * level + name.split(".")[-1], _short(n), f"{100 * n / total:.2f}%"))
            rows += [(" " * level + f" - {op}", _short(k), f"{100 * k / total:.2f}%") for op, k in self.counts[name].items()]
        head = ("Module", "FLOP", "% Total")
        w = [max(len(r[i]) for r in [head, *rows]) for i in range(3)]
        line = lambda r: "  ".join((r[0].ljust(w[0]), r[1].rjust(w[1]), r[2].rjust(w[2])))  # noqa: E731
        return "\n".join([line(head), "  ".join("-" * k for k in w), *map(line, rows)])


def _short(n):
    for unit in ("", "K", "M", "B", "T"):
        if n < 1000:
            return f"{n:.3f}{unit}" if unit else str(n)
        n /= 1000
    return f"{n:.3f}P"
