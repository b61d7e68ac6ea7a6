"""assert_close and make_tensor; for compiled code CompileCounter, same and TestCase."""
import math as _math
from .. import _C

_TOLERANCES = {_C.float16: (1e-3, 1e-5), _C.bfloat16: (1.6e-2, 1e-5), _C.float32: (1.3e-6, 1e-5), _C.float64: (1e-7, 1e-7)}


def _default(dtypes, rtol, atol):
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol must both be specified or both be unspecified, but got "
                         f"rtol={rtol} and atol={atol}.")
    if rtol is not None:
        return rtol, atol
    pairs = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


class _Mismatch(Exception):
    def __init__(self, cls, text, where=()):
        super().__init__(text)
        self.cls, self.where = cls, where


def _numbers(actual, expected, rtol, atol, equal_nan):
    a, e = float(actual), float(expected)
    kinds = [_C.float64 if isinstance(v, float) else _C.int64 for v in (actual, expected)]
    rtol, atol = _default(kinds, rtol, atol)
    if a == e or (equal_nan and a != a and e != e) or abs(a - e) <= atol + rtol * abs(e):
        return
    diff = abs(a - e)
    if not rtol and not atol:
        raise _Mismatch(AssertionError, f"Scalars are not equal!\n\nExpected {expected} but got {actual}.\n"
                        f"Absolute difference: {diff}\nRelative difference: {diff / abs(e) if e else _math.inf}")
    raise _Mismatch(AssertionError, f"Scalars are not close!\n\nExpected {expected} but got {actual}.\n"
                    f"Absolute difference: {diff} (up to {atol} allowed)\n"
                    f"Relative difference: {diff / abs(e) if e else _math.inf} (up to {rtol} allowed)")


def _index(flat, shape):
    at = []
    for n in reversed(shape):
        at.append(flat % n)
        flat //= n
    return tuple(reversed(at))


def _tensors(a, e, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride):
    def differ(what, x, y):
        raise _Mismatch(AssertionError, f"The values for attribute '{what}' do not match: {x} != {y}.")

    if a.shape != e.shape:
        differ("shape", a.shape, e.shape)
    if check_device and a.device != e.device:
        differ("device", a.device, e.device)
    if check_dtype and a.dtype != e.dtype:
        differ("dtype", a.dtype, e.dtype)
    if check_stride and a.stride() != e.stride():
        differ("stride()", a.stride(), e.stride())
    rtol, atol = _default([a.dtype, e.dtype], rtol, atol)
    if a.device.type == "meta" or a.numel() == 0:
        return
    x, y = a.detach().double().reshape(-1), e.detach().double().reshape(-1)
    exact = not a.dtype.is_floating_point and not e.dtype.is_floating_point and not rtol and not atol
    if exact:
        x, y = a.reshape(-1).long(), e.reshape(-1).long()
    diff = (x - y).abs()
    same = x == y
    if not exact:
        same = same | (diff <= atol + rtol * y.abs())
        same = same & ~(x.isinf() ^ y.isinf())
        if equal_nan:
            same = same | (x.isnan() & y.isnan())
    if bool(same.all()):
        return
    bad = int((~same).sum())
    if exact or (not rtol and not atol):
        kind, allowed = "equal", ("", "")
    else:
        kind, allowed = "close", (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    masked = diff.double().masked_fill(same, 0.0).nan_to_num(_math.inf)
    rel = (masked / y.double().abs()).nan_to_num(0.0)
    i, j = int(masked.argmax()), int(rel.argmax())
    head = "Scalars" if a.ndim == 0 else "Tensor-likes"
    text = f"{head} are not {kind}!\n\n"
    if a.ndim:
        text += f"Mismatched elements: {bad} / {a.numel()} ({100 * bad / a.numel():.1f}%)\n"
        text += f"Greatest absolute difference: {masked[i].item()} at index {_index(i, a.shape)}{allowed[0]}\n"
        text += f"Greatest relative difference: {rel[j].item()} at index {_index(j, a.shape)}{allowed[1]}"
    else:
        text += f"Expected {e.item()} but got {a.item()}.\nAbsolute difference: {masked[0].item()}{allowed[0]}\n"
        text += f"Relative difference: {rel[0].item()}{allowed[1]}"
    raise _Mismatch(AssertionError, text)


def _pair(a, e, where, **kw):
    try:
        if isinstance(a, _C.Tensor) and isinstance(e, _C.Tensor):
            return _tensors(a, e, **kw)
        if isinstance(a, (list, tuple)) and isinstance(e, (list, tuple)):
            if len(a) != len(e):
                raise _Mismatch(AssertionError, f"The length of the sequences mismatch: {len(a)} != {len(e)}")
            for i, (x, y) in enumerate(zip(a, e)):
                _pair(x, y, where + (i,), **kw)
            return
        if isinstance(a, dict) and isinstance(e, dict):
            if set(a) != set(e):
                missing, extra = sorted(map(str, set(e) - set(a))), sorted(map(str, set(a) - set(e)))
                raise _Mismatch(AssertionError, "The keys of the mappings do not match:\n"
                                f"Missing keys in the actual mapping: {missing}\n"
                                f"Additional keys in the actual mapping: {extra}")
            for k in a:
                _pair(a[k], e[k], where + (k,), **kw)
            return
        if isinstance(a, (int, float)) and isinstance(e, (int, float)):
            return _numbers(a, e, kw["rtol"], kw["atol"], kw["equal_nan"])
        if a is None and e is None:
            return
        if type(a) is not type(e) and not (hasattr(a, "__array__") or hasattr(e, "__array__")):
            raise _Mismatch(AssertionError, f"Except for scalars, type equality is required, but got {type(a)} and {type(e)} instead.")
        return _tensors(_C.as_tensor(a), _C.as_tensor(e), **kw)
    except _Mismatch as m:
        m.where = m.where or where
        raise


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Raises AssertionError unless the values agree within the tolerances of their types."""
    try:
        _pair(actual, expected, (), rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device,
              check_dtype=check_dtype, check_layout=check_layout, check_stride=check_stride)
    except _Mismatch as m:
        text = str(m)
        if m.where:
            at = "".join(f"[{k!r}]" for k in m.where)
            text += f"\n\nThe failure occurred for item {at}"
        if msg is not None:
            text = msg(text) if callable(msg) else msg
        raise m.cls(text) from None


def make_tensor(*shape, dtype, device="cpu", low=None, high=None, requires_grad=False, noncontiguous=False,
                exclude_zero=False, memory_format=None):
    """A tensor of random values in [low, high)."""
    import taper
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if noncontiguous and shape:
        shape, strided = shape[:-1] + (shape[-1] * 2,), True
    else:
        strided = False
    if dtype is taper.bool:
        t = taper.randint(0, 2, shape).to(dtype)
    elif dtype.is_floating_point:
        lo, hi = -9 if low is None else low, 9 if high is None else high
        t = (taper.rand(shape) * (hi - lo) + lo).to(dtype)
    else:
        lo, hi = (0 if dtype is taper.uint8 else -9) if low is None else low, 10 if high is None else high
        t = taper.randint(int(lo), int(hi), shape).to(dtype)
    if exclude_zero:
        t = taper.where(t == 0, taper.ones_like(t), t)
    if strided:
        t = t[..., ::2]
    if requires_grad:
        t.requires_grad_()
    return t


def __getattr__(name):
    if name in ("CompileCounter", "CompileCounterWithBackend", "TestCase", "same"):
        from . import compiled
        return getattr(compiled, name)
    raise AttributeError(f"module 'taper.testing' has no attribute '{name}'")
