"""Compares rows of the op table with PyTorch's ATen operators of the same name: values, dtypes, sizes, strides,
error classes."""
import ctypes, math, unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper, warnings

warnings.simplefilter("ignore")

DT = {torch.float64: "float64", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
      torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
      torch.bool: "bool"}
BACK = {v: k for k, v in DT.items()}
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = FLOATS + INTS + [torch.bool]
TOL = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def name_of(dtype):
    return str(dtype).split(".")[-1]


def to_taper(t):
    """The same bytes, sizes, strides and offset."""
    n = t.untyped_storage().nbytes() // t.element_size()
    flat = taper.zeros([n], dtype=getattr(taper, DT[t.dtype]))
    if n:
        ctypes.memmove(flat.data_ptr(), t.untyped_storage().data_ptr(), n * t.element_size())
    return flat.as_strided(list(t.shape), list(t.stride()), t.storage_offset())


def to_torch(t):
    """A contiguous copy."""
    dt = BACK[name_of(t.dtype)]
    c = t.contiguous()
    r = torch.empty(tuple(c.shape), dtype=dt)
    if r.numel():
        ctypes.memmove(r.data_ptr(), c.data_ptr(), r.numel() * r.element_size())
    return r


def conv(a):
    if isinstance(a, torch.Tensor):
        return to_taper(a)
    if isinstance(a, torch.dtype):
        return getattr(taper, DT[a])
    if isinstance(a, torch.memory_format):
        return getattr(taper, str(a).split(".")[-1])
    if isinstance(a, (list, tuple)):
        return [conv(x) for x in a]
    return a


def same(got, want, what, tol=None, strides=True, values=True):
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), f"{what}: {len(got)} results, not {len(want)}"
        for i, (g, w) in enumerate(zip(got, want)):
            same(g, w, f"{what}[{i}]", tol, strides, values)
        return
    if want is None:
        return
    if not isinstance(want, torch.Tensor):
        assert got == want, f"{what}: {got} != {want}"
        return
    assert name_of(got.dtype) == DT[want.dtype], f"{what}: dtype {got.dtype}, not {want.dtype}"
    assert tuple(got.shape) == tuple(want.shape), f"{what}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
    if strides and want.numel() > 1:
        g = [s for s, n in zip(got.stride(), want.shape) if n > 1]
        w = [s for s, n in zip(want.stride(), want.shape) if n > 1]
        assert g == w, f"{what}: strides {got.stride()}, not {want.stride()} (shape {tuple(want.shape)})"
    if not values:
        return
    g = to_torch(got)
    if want.dtype.is_floating_point:
        t = tol if tol is not None else TOL[want.dtype]
        ok = torch.allclose(g.double(), want.double(), rtol=t, atol=t, equal_nan=True)
    else:
        ok = torch.equal(g, want)
    if not ok:
        d = (g.double() - want.double()).abs()
        raise AssertionError(f"{what}: values differ by up to {d[~d.isnan()].max() if d.numel() else 0}\n{g}\n{want}")


def show(a):
    if isinstance(a, torch.Tensor):
        return f"{DT[a.dtype]}{list(a.shape)}" + ("" if a.is_contiguous() else f"/{a.stride()}")
    if isinstance(a, (list, tuple)):
        return "[" + ", ".join(show(x) for x in a) + "]"
    return repr(a)


def aten(name):
    base, _, over = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), over or "default")


def check(name, *args, tol=None, strides=True, values=True, text=False, **kw):
    """One call on both sides. name: 'add.Tensor'. text: error messages must be equal too."""
    what = f"{name}({', '.join([show(a) for a in args] + [f'{k}={show(v)}' for k, v in kw.items()])})"
    targs = [conv(a) for a in args]
    tkw = {k: conv(v) for k, v in kw.items()}
    want = bad = None
    try:
        want = aten(name)(*args, **kw)
    except Exception as e:
        bad = e
    try:
        got = taper._C._call(name, *targs, **tkw)
    except Exception as e:
        assert bad is not None, f"{what}: {type(e).__name__}: {e}"
        cls = type(bad).__name__
        assert type(e).__name__ == cls or isinstance(e, NotImplementedError) and cls == "RuntimeError" or \
            cls in ("NotImplementedError",) and isinstance(e, RuntimeError), \
            f"{what}: {type(e).__name__}({e}), not {cls}({bad})"
        if text:
            assert str(e).split("\n")[0] == str(bad).split("\n")[0], f"{what}:\n  {e}\n  {bad}"
        return None
    if isinstance(bad, NotImplementedError) and "not implemented for" in str(bad):
        return got # a dtype PyTorch has no kernel for: more is fine
    assert bad is None, f"{what}: no error, but PyTorch says {type(bad).__name__}: {str(bad)[:200]}"
    same(got, want, what, tol, strides, values)
    for a, t in zip(args, targs): # in-place operators wrote their first argument
        if isinstance(a, torch.Tensor) and name.partition(".")[0].endswith("_"):
            same(t, a, what + " (argument)", tol, strides, values)
            break
    return got


def rand(*shape, dtype=torch.float32, lo=-3, hi=4):
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape) * (hi - lo) + lo).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else lo, hi, shape).to(dtype)


def layouts(t):
    """t in several memory layouts."""
    yield t
    if t.dim() >= 2:
        yield t.transpose(0, -1).contiguous().transpose(0, -1)
        wide = torch.zeros([2 * n for n in t.shape], dtype=t.dtype)
        v = wide[tuple(slice(0, None, 2) for _ in t.shape)]
        v.copy_(t)
        yield v
    if t.dim() == 4:
        yield t.contiguous(memory_format=torch.channels_last)


class Tally:
    """Collects failures so that one run shows them all."""
    def __init__(self):
        self.n, self.bad = 0, []

    def __call__(self, name, *args, **kw):
        self.n += 1
        try:
            return check(name, *args, **kw)
        except AssertionError as e:
            self.bad.append(str(e))

    def end(self, least=1):
        assert self.n >= least
        assert not self.bad, f"{len(self.bad)} of {self.n} differ:\n" + "\n".join(self.bad[:25])
