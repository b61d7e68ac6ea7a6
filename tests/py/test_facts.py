"""Facts recorded from PyTorch (tests/facts/ops.json, made by tools/genfacts.py): calls of operators with their
arguments and results. Values, dtypes, sizes and strides must be the same here, without PyTorch."""
import base64
import json
import math
import os

import taper
import taper.nn.functional
from taper import _C

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "facts", "ops.json")
TOL = {"complex128": 1e-7, "complex64": 2e-5, "float64": 1e-7, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
F = taper.nn.functional
# Names under which the samples call something else than the function of that name.
ADAPT = {
    "where": lambda self, condition, other: taper.where(condition, self, other),
    "polygamma": lambda x, n: taper.polygamma(n, x),
    "special.polygamma": lambda x, n: taper.special.polygamma(n, x),
    "nn.functional.embedding": lambda weight, idx, **k: F.embedding(idx, weight, **k),
    "nn.functional.embedding_bag": lambda weight, idx, *a, **k: F.embedding_bag(idx, weight, *a, **k),
    "einsum": lambda tensors, equation: taper.einsum(equation, tensors),
    "zero_": lambda x: x.clone().zero_(),
}
# Names whose recorded calls are not held to, with the reason.
EXEMPT = {"aten.log_sigmoid_backward": "Taper's row needs no buffer",
          "aten.unique_dim": "PyTorch gives places and counts that were not asked for",
          "aten._linalg_solve_ex": "complex systems are solved as real ones: the factors are of those"}
# Names that refuse complex tensors, with and without "aten.".
NO_COMPLEX = set("""
    _linalg_det _linalg_slogdet cholesky cholesky_inverse cholesky_solve ldexp ldexp.Tensor linalg.cholesky linalg.cholesky_ex linalg.cond linalg.det
    linalg.eig linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lu
    linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_rank linalg.pinv linalg.slogdet linalg.solve linalg.solve_ex
    linalg.solve_triangular linalg.tensorsolve linalg_cholesky_ex linalg_householder_product linalg_ldl_factor_ex linalg_ldl_solve linalg_lu
    linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv.atol_rtol_tensor linalg_solve_triangular logaddexp logcumsumexp logdet logsumexp
    lu lu_solve lu_unpack masked.logsumexp matrix_exp nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
    nn.functional.conv_transpose2d nn.functional.rms_norm ormqr pinverse silu std_mean std_mean.correction triangular_solve var_mean
    var_mean.correction
""".split())


def unpack(v):
    if isinstance(v, list):
        return [unpack(x) for x in v]
    if not isinstance(v, dict):
        return v
    if "f" in v:
        return float(v["f"])
    if "c" in v:
        return complex(*unpack(v["c"]))
    if "d" in v:
        return getattr(taper, v["d"])
    if "m" in v:
        return getattr(taper, v["m"])
    t = dense(v)
    if "st" not in v:
        return t
    n = 1 + sum((s - 1) * st for s, st in zip(v["s"], v["st"])) if all(v["s"]) else 1
    r = taper.as_strided(taper.zeros([n], dtype=t.dtype), v["s"], v["st"])
    if any(s > 1 and st == 0 for s, st in zip(v["s"], v["st"])):  # expanded: write through the part that has memory
        at = tuple(slice(0, 1) if st == 0 else slice(None) for st in v["st"])
        r[at].copy_(t[at])
    else:
        r.copy_(t)
    return r


def dense(v):
    size = tuple(v["s"])
    return _C._tensor_on(_C._storage_from_bytes(base64.b64decode(v["b"])), getattr(taper, v["t"]), 0, size,
                         tuple(math.prod(size[i + 1:]) if all(size) else max(1, math.prod(max(s, 1) for s in size[i + 1:]))
                               for i in range(len(size))))


def function(name):
    if name in ADAPT:
        return ADAPT[name]
    if name.startswith("aten."):
        base, _, over = name[5:].partition(".")
        return getattr(getattr(taper.ops.aten, base), over or "default")
    at = taper
    for part in name.split("."):
        at = getattr(at, part, None)
    if callable(at):
        return at
    m = getattr(taper.Tensor, name, None)
    return m if callable(m) or m is None else (lambda x: getattr(x, name))


def close(a, b, tol):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b, [tol] * len(a)))
    return a == b or a != a and b != b or abs(a - b) <= tol + tol * abs(a)


def differs(want, got):
    if want is None and not isinstance(got, taper.Tensor):
        return None
    if isinstance(want, list):
        if not isinstance(got, (tuple, list)) or len(got) != len(want):
            return f"{type(got).__name__} instead of {len(want)} results"
        return next((d for d in map(differs, want, got) if d), None)
    if not isinstance(want, dict) or "t" not in want:
        want = unpack(want)
        return None if want == got or isinstance(want, float) and close(want, got, 1e-6) else f"{got} instead of {want}"
    if not isinstance(got, taper.Tensor):
        return f"{type(got).__name__}, not a tensor"
    if str(got.dtype).split(".")[1] != want["t"] or list(got.shape) != want["s"]:
        return f"{got.dtype} {list(got.shape)} instead of {want['t']} {want['s']}"
    if "b" not in want:  # of random results the type
        stride = want.get("st")
        return None if not stride or all(n == 1 or a == b for n, a, b in zip(want["s"], stride, got.stride())) else f"strides {list(got.stride())}"
    w = dense(want)
    stride = want.get("st", list(w.stride()))
    if w.numel() > 1 and any(n != 1 and a != b for n, a, b in zip(want["s"], stride, got.stride())):
        return f"strides {list(got.stride())} instead of {stride}"
    wide = taper.complex128 if want["t"].startswith("complex") else taper.float64
    a, b = w.to(wide).tolist(), got.detach().to(wide).tolist()
    if want["t"] not in TOL:
        return None if w.tolist() == got.tolist() else f"{got.tolist()} instead of {w.tolist()}"
    return None if close(a, b, TOL[want["t"]]) else f"{b} instead of {a}"


def facts():
    with open(PATH) as f:
        return json.load(f)


def judge():
    """(facts that hold, [difference], names)"""
    held, wrong, names = 0, [], set()
    for name, args, kwargs, want in facts():
        fn = function(name)
        if fn is None or hasattr(fn, "_refused"):  # not there, or there to say why
            continue
        names.add(name)
        try:
            got = fn(*unpack(args), **{k: unpack(v) for k, v in kwargs.items()})
            d = differs(want, got)
        except Exception as e:
            d = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        if d:
            wrong.append((name, d))
        else:
            held += 1
    return held, wrong, names


def test_recorded_facts():
    held, wrong, names = judge()
    refused = {n.removeprefix("aten.") for n, d in wrong if d.startswith("NotImplementedError")}
    bad = [f"{n}: {d[:300]}" for n, d in wrong if n not in EXEMPT and not (n.removeprefix("aten.") in NO_COMPLEX and d.startswith("NotImplementedError"))]
    assert not bad, f"{len(bad)} of {held + len(wrong)} facts do not hold:\n" + "\n".join(bad[:60])
    idle = [n for n in EXEMPT if n not in {w for w, _ in wrong}]
    assert not idle, f"exempt, but all their facts hold: {idle}"
    assert refused >= NO_COMPLEX, f"said to refuse complex tensors, but do not: {sorted(NO_COMPLEX - refused)}"
    assert held > 1500, held


# Rows that PyTorch does not have, or that give nothing to record.
OURS = {"_check_scalar", "as_strided_backward", "_lu_permutation", "_max_pool2d_with_offsets", "_max_pool2d_offsets_backward",
        "_fractional_places", "_philox_uniform", "_philox_normal", "_philox_int", "_check_probability", "_rng_reserve", "_bmm_wide", "_cum_extreme", "_cum_place",
        "linear_dynamic_int8", "_conv_forward", "_conv_grad_input", "_conv_grad_weight",
        "_flash_attention", "_flash_grad_query", "_flash_grad_key"}


def test_rows_have_facts():
    """Every row that PyTorch has is covered."""
    names = {n[5:] for n, *_ in facts() if n.startswith("aten.")}
    missing = {r[0] for r in _C._schemas()} - names - OURS
    assert not missing, f"no facts about {sorted(missing)}: run tools/genfacts.py"
