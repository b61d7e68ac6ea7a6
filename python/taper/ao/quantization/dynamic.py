"""Linear layers with weights of eight bits: every channel of the weight has its own scale, every row of the input is
rounded to bytes when the layer runs, and the products are exact (`taper.linear_dynamic_int8`).

    small = taper.quantize_dynamic(model)
    print(taper.quantization_report(model, small, x))
"""
import copy

import taper
from ... import nn


def _to_bytes(weight):
    """-> (int8 of the same shape, float32 scale of each row)."""
    w = weight.detach().float()
    top = w.abs().amax(dim=1)
    scale = taper.where(top > 0, top / 127, taper.ones_like(top))
    return (w / scale.unsqueeze(1)).round().clamp(-127, 127).to(taper.int8).contiguous(), scale


class DynamicLinear(nn.Module):
    """A Linear whose weight is int8; for inference. Made by `quantize_dynamic`."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scale = _to_bytes(linear.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        self.training = False

    def forward(self, input):
        return taper.linear_dynamic_int8(input, self.weight, self.scale, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, dtype=int8"


def _wanted(name, module, spec):
    if type(module) is not nn.Linear:
        return False
    return spec is None or nn.Linear in spec or name in spec


def quantize_dynamic(model, qconfig_spec=None, dtype=None, mapping=None, inplace=False):
    """A copy of the model whose Linear layers have int8 weights. qconfig_spec: a set of module types or of names of
    modules; None: every Linear. Classes derived from Linear, and layers whose weight another module reads itself
    (attention), keep their floats. dtype: int8.

    >>> model = taper.nn.Sequential(taper.nn.Linear(4, 2))
    >>> taper.quantize_dynamic(model)(taper.ones(1, 4)).shape
    taper.Size([1, 2])
    """
    if dtype not in (None, taper.int8, getattr(taper, "qint8", taper.int8)):
        raise ValueError(f"quantize_dynamic: weights of {dtype} are not supported, only int8")
    if mapping is not None:
        raise ValueError("quantize_dynamic: mapping is not supported")
    if not inplace:
        model = copy.deepcopy(model)
    if _wanted("", model, qconfig_spec):
        return DynamicLinear(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer)):
            continue  # those read the weights of their layers themselves
        for child, layer in list(module.named_children()):
            if _wanted(f"{name}.{child}" if name else child, layer, qconfig_spec):
                setattr(module, child, DynamicLinear(layer))
    return model


class QuantizationReport:
    """Rows (name, relative root mean square error of the layer on the inputs that it has in the float model, the same
    of what arrives there in the quantized model, worst element of the latter as the debugger says it)."""

    def __init__(self, rows):
        self.rows = rows

    def __str__(self):
        wide = max([len(r[0]) for r in self.rows] + [5])
        lines = [f"{'layer':{wide}s}  {'own error':>10s}  {'with inputs':>11s}  worst element"]
        lines += [f"{n:{wide}s}  {a:10.2e}  {b:11.2e}  {w}" for n, a, b, w in self.rows]
        return "\n".join(lines)


def _error(got, want):
    size = want.double().pow(2).mean().sqrt().item()
    return (got.double() - want.double()).pow(2).mean().sqrt().item() / (size if size > 0 else 1.0)


def _watch(model, names, inputs):
    seen, hooks = {}, []
    for name, module in model.named_modules():
        if name in names:
            def hook(m, args, out, name=name):
                seen.setdefault(name, (args, out))
            hooks.append(module.register_forward_hook(hook))
    try:
        with taper.no_grad():
            out = model(*inputs)
    finally:
        for h in hooks:
            h.remove()
    return seen, out


def quantization_report(model, quantized, *inputs):
    """Which layer loses how much: runs both models on the inputs and compares every quantized layer with its float
    one, by itself and with the errors that came before it, then the results. Returns a QuantizationReport.

    >>> model = taper.nn.Sequential(taper.nn.Linear(4, 2))
    >>> report = taper.quantization_report(model, taper.quantize_dynamic(model), taper.ones(1, 4))
    >>> type(report).__name__
    'QuantizationReport'
    """
    names = {n for n, m in quantized.named_modules() if isinstance(m, DynamicLinear)}
    floats, want = _watch(model, names, inputs)
    bytes_, got = _watch(quantized, names, inputs)
    layers = dict(quantized.named_modules())
    rows = []
    for name in (n for n, _ in model.named_modules()):
        if name in floats and name in bytes_:
            args, out = floats[name]
            with taper.no_grad():
                own = layers[name](*args)
            rows.append((name or "model", _error(own, out), _error(bytes_[name][1], out), _worst(out, bytes_[name][1])))
    if taper.is_tensor(want):
        rows.append(("result", _error(got, want), _error(got, want), _worst(want, got)))
    return QuantizationReport(rows)


def _worst(want, got):
    d = (got.double() - want.double()).abs().reshape(-1)
    at = int(d.argmax().item())
    place, left = [], at
    for n in reversed(want.shape):
        place.append(left % n)
        left //= n
    return f"{list(reversed(place))} is {got.reshape(-1)[at].item():.6g}, float {want.reshape(-1)[at].item():.6g}"
