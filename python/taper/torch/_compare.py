"""Results of a backend against eager PyTorch and float64."""
import torch

TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.float16: 1e-2, torch.bfloat16: 2e-2}


def tolerance(dtype):
    return TOLERANCE.get(dtype, 1e-3)


def _plain(t):
    t = t.detach()
    if t.is_sparse or t.layout is not torch.strided:
        t = t.to_dense()
    return t.to(torch.complex128) if t.is_complex() else t.to(torch.float64)


def _error(a, exact, where):
    d = (a - exact).abs()[where]
    return float(d.max()) if d.numel() else 0.0


def differs(got, want, exact=None):
    """None, or a sentence on the first difference between a result and eager's. exact: the same from float64, or None."""
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"{len(got) if isinstance(got, (list, tuple)) else 'one'} result(s) instead of {len(want)}"
        for i, w in enumerate(want):
            e = exact[i] if isinstance(exact, (list, tuple)) and len(exact) == len(want) else None
            why = differs(got[i], w, e)
            if why:
                return f"result {i}: {why}"
        return None
    if not isinstance(want, torch.Tensor):
        if isinstance(want, float) and isinstance(got, float):
            return None if got == want or abs(got - want) <= 1e-3 * max(1.0, abs(want)) or (got != got and want != want) else f"{got} instead of {want}"
        return None if isinstance(got, torch.Tensor) is False and got == want else f"{got!r} instead of {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"{got!r} instead of a tensor"
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"{got.dtype} instead of {want.dtype}"
    if want.is_quantized or want.numel() == 0 or want.device.type == "meta":
        return None
    a, b = _plain(got), _plain(want)
    e = _plain(exact) if isinstance(exact, torch.Tensor) and exact.shape == want.shape else None
    whole = not (want.is_floating_point() or want.is_complex())
    if whole:
        bad = a != b
        if not bad.any() or (e is not None and not (a != e).any()):
            return None
        return _say(a, b, e, bad)
    scale = b[torch.isfinite(b)].abs().max().item() if torch.isfinite(b).any() else 1.0
    tol = tolerance(want.dtype)
    close = torch.isclose(a, b, rtol=tol, atol=tol * min(1.0, scale) + 1e-30, equal_nan=True)
    if close.all():
        return None
    if e is not None:
        odd = ~close & ~(torch.isfinite(b) & torch.isfinite(a))
        if odd.any():  # NaN or infinity on one side only: float64 decides
            wrong = odd & ~torch.isclose(a, e, rtol=tol, atol=tol * min(1.0, scale), equal_nan=True) & torch.isfinite(e)
            wrong |= odd & torch.isfinite(a) & torch.isnan(e)
            if wrong.any():
                return _say(a, b, e, wrong)
        fine = torch.isfinite(a) & torch.isfinite(b) & torch.isfinite(e)
        eps = torch.finfo(want.dtype).eps
        if _error(a, e, fine) <= 4 * _error(b, e, fine) + 16 * eps * min(1.0, scale):
            return None
        return _say(a, b, e, ~close & (fine | odd)) if (~close & fine).any() else None
    return _say(a, b, e, ~close)


def _say(a, b, e, bad):
    d = torch.where(bad, (a - b).abs().nan_to_num(float("inf"), float("inf")), -1.0)
    at = int(d.flatten().argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(at), d.shape)] if d.dim() else []
    n = int(bad.sum())
    pick = lambda t: t.flatten()[at].item()
    num = lambda v: f"{v:.7g}" if isinstance(v, float) else str(v)
    more = f", float64 gives {num(pick(e))}" if e is not None else ""
    return f"{n} of {bad.numel()} elements differ; at {where}: compiled {num(pick(a))}, eager {num(pick(b))}{more}"
