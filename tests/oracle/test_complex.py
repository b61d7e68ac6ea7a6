"""Complex tensors against PyTorch: its operator samples of complex types with gradients, transforms, layouts, printing, types."""
import itertools
import warnings

import opinfo
from opinfo import torch, taper  # raises SkipTest without PyTorch

from torch.testing._internal.common_methods_invocations import op_db

warnings.simplefilter("ignore")
TYPES = {"complex64": 2e-4, "complex128": 1e-8}
# Random numbers and uninitialised memory; conjugates and negatives as a bit of the tensor; results that are not unique; a name
# that counts bytes of the peer's.
SKIP = opinfo.RANDOM | {"resolve_conj", "_refs", "to_sparse", "empty", "linalg.eig", "linalg.eigvals", "linalg.svd", "svd", "linalg.qr", "qr",
                        "linalg.eigh", "is_conj"}
# PyTorch's gradients are wrong or NaN there: what as_strided_scatter overwrites has no part in the result, and renorm of the largest
# element is 0 / 0.
WRONG_THERE = {"as_strided_scatter", "renorm"}


def leaves(v):
    if isinstance(v, (torch.Tensor, taper.Tensor)):
        return [v]
    if isinstance(v, dict):
        v = list(v.values())
    return [t for x in v for t in leaves(x)] if isinstance(v, (tuple, list)) else []


def numpy_of(t):
    return t.detach().resolve_conj().numpy() if isinstance(t, torch.Tensor) else t.detach().numpy()


def differ(a, b, tol):
    """What is wrong with ours (b), or None."""
    import numpy as np
    x, y = numpy_of(a), numpy_of(b)
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{x.dtype}{x.shape} there, {y.dtype}{y.shape} here"
    if not np.allclose(x, y, rtol=tol, atol=tol, equal_nan=True):
        return f"values differ by {np.nanmax(np.abs(x.astype(complex) - y.astype(complex)))}"
    return None


def one(op, fn, sample, tol, grads):
    """None when equal, a string when wrong; raises what ours raises where PyTorch does not."""
    memo = {}
    args = opinfo.ours((sample.input, *sample.args), memo)
    kwargs = opinfo.ours(sample.kwargs, memo)
    theirs = leaves(op(sample.input, *sample.args, **sample.kwargs))
    mine = leaves(fn(*args, **kwargs))
    if len(theirs) != len(mine):
        return f"{len(theirs)} results there, {len(mine)} here"
    for a, b in zip(theirs, mine):
        if bad := differ(a, b, tol):
            return bad
    if not grads:
        return None
    ins = [v for v in leaves([sample.input, *sample.args, sample.kwargs]) if v.requires_grad]
    outs = [(a, b) for a, b in zip(theirs, mine) if a.requires_grad]
    if not ins or not outs:
        return None
    torch.manual_seed(0)
    gs = [torch.randn(a.shape, dtype=a.dtype) for a, b in outs]
    want = torch.autograd.grad([a for a, b in outs], ins, gs, allow_unused=True)
    got = taper.autograd.grad([b for a, b in outs], [memo[id(v)][1] for v in ins], [opinfo.ours(g, {}) for g in gs], allow_unused=True)
    for i, (a, b) in enumerate(zip(want, got)):
        if (a is None) != (b is None):
            if a is not None and not a.count_nonzero() or b is not None and not b.count_nonzero().item():
                continue
            return f"gradient {i}: {a is not None} there, {b is not None} here"
        if a is not None and (bad := differ(a, b, 10 * tol)):
            return f"gradient {i}: {bad}"
    return None


def sweep(dt, ops=None, most=6):
    """(wrong, refused, ran): by operator."""
    wrong, refused, ran = {}, {}, {}
    for op in op_db:
        fn = opinfo.function_for(op.name, op.variant_test_name)
        if op.name in SKIP or (ops and op.name not in ops) or getattr(torch, dt) not in op.dtypes:
            continue
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if fn is None:
            refused[name] = "no such name"
            continue
        grads = op.name not in WRONG_THERE and op.supports_autograd and getattr(torch, dt) in op.supported_backward_dtypes("cpu")
        torch.manual_seed(1)
        for sample in itertools.islice(op.sample_inputs("cpu", getattr(torch, dt), requires_grad=grads), most):
            try:
                bad = one(op, fn, sample, TYPES[dt], grads)
            except opinfo.Unsupported:
                continue
            except (NotImplementedError, RuntimeError, TypeError, AttributeError, ValueError, IndexError) as e:
                refused.setdefault(name, f"{type(e).__name__}: {str(e)[:150]}")
                continue
            ran[name] = ran.get(name, 0) + 1
            if bad:
                wrong.setdefault(name, bad)
    return wrong, refused, ran


def test_operators_agree_with_their_gradients():
    for dt in TYPES:
        wrong, refused, ran = sweep(dt)
        assert not wrong, "\n".join(f"{dt} {k}: {v}" for k, v in wrong.items())
        assert len(ran) > 250, len(ran)
        missing = {"fft.fft", "fft.irfftn", "fft.hfft2", "fft.ihfftn", "istft", "matmul", "view_as_real", "polar", "angle", "pow", "addmm", "index_put"} - set(ran)
        assert missing <= {"fft.ihfftn", "polar"}, missing  # those of real inputs


def test_transforms_of_real_signals():
    wrong, refused, ran = {}, {}, 0
    for op in op_db:
        if not (op.name.startswith("fft.") or op.name in ("stft", "istft", "polar", "complex", "view_as_complex")):
            continue
        fn = opinfo.function_for(op.name, op.variant_test_name)
        for dt, tol in (("float32", 2e-4), ("float64", 1e-8)):
            if getattr(torch, dt) not in op.dtypes:
                continue
            for sample in itertools.islice(op.sample_inputs("cpu", getattr(torch, dt), requires_grad=True), 12):
                ran += 1
                if bad := one(op, fn, sample, tol, True):
                    wrong.setdefault(op.name + " " + dt, bad)
    assert ran > 300 and not wrong, (ran, wrong)


def test_types_of_results():
    names = ["bool", "uint8", "int64", "bfloat16", "float32", "float64", "complex64", "complex128"]
    for a, b in itertools.product(names, names):
        for sa, sb in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            x, y = torch.ones(sa, dtype=getattr(torch, a)), torch.ones(sb, dtype=getattr(torch, b))
            want = str((x * y).dtype).split(".")[1]
            got = str((taper.ones(sa, dtype=getattr(taper, a)) * taper.ones(sb, dtype=getattr(taper, b))).dtype).split(".")[1]
            assert want == got, (a, sa, b, sb, want, got)
        assert str(torch.promote_types(getattr(torch, a), getattr(torch, b))).split(".")[1] == \
            str(taper.promote_types(getattr(taper, a), getattr(taper, b))).split(".")[1]
    for a in names[1:3] + names[4:]:
        x, y = torch.ones(2, dtype=getattr(torch, a)), taper.ones(2, dtype=getattr(taper, a))
        for f in (lambda v: v * 1j, lambda v: 2j - v, lambda v: v / (1 + 1j), lambda v: v == 1j, lambda v: v**1j):
            assert str(f(x).dtype).split(".")[1] == str(f(y).dtype).split(".")[1], a


def test_printing():
    torch.manual_seed(0)
    for values in ([1 + 2j, -3.5 - 1j], [1e-5 + 1e5j, 1], [complex("nan+1j"), complex("inf-infj"), 3], torch.randn(3, 4, dtype=torch.complex64),
                   torch.randn(40, dtype=torch.complex128) * 1000, torch.randn(2000, dtype=torch.complex64), torch.zeros(2, 0, dtype=torch.complex64), 1j):
        t = values if isinstance(values, torch.Tensor) else torch.tensor(values)
        mine = taper.tensor(t.numpy()) if t.numel() else taper.zeros(tuple(t.shape), dtype=taper.complex64)
        assert repr(t) == repr(mine).replace("taper.", "torch."), (repr(t), repr(mine))


def test_memory_and_files_go_both_ways():
    import io
    import numpy as np
    z = torch.randn(3, 4, dtype=torch.complex64)
    mine = taper.from_dlpack(z.t())
    assert mine.tolist() == z.t().tolist() and mine.stride() == (1, 4) and torch.from_dlpack(mine).data_ptr() == z.data_ptr()
    assert taper.from_numpy(z.numpy()).numpy().dtype == np.complex64 and (taper.tensor([1j]) * np.complex64(2)).tolist() == [2j]
    for dt in ("complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"):
        t = torch.tensor([1.0, 2.0, 3.5]).to(getattr(torch, dt))
        f, g = io.BytesIO(), io.BytesIO()
        torch.save({"t": t}, f)
        f.seek(0)
        mine = taper.load(f)["t"]
        assert str(mine.dtype).split(".")[1] == dt and mine.tolist() == t.tolist(), dt
        taper.save({"t": mine}, g)
        g.seek(0)
        back = torch.load(g, weights_only=True)["t"]
        assert back.dtype == t.dtype and back.tolist() == t.tolist(), dt


def test_eight_bit_floats_round_as_there():
    x = torch.cat([torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float(), torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).float(),
                   torch.randn(3000) * 100, torch.randn(3000) * 1e-3, torch.tensor([448., 464., 465., 480., 57344., 61440., 61441., 1e9, -1e9])])
    for dt in ("float8_e4m3fn", "float8_e5m2"):
        want = x.to(getattr(torch, dt)).view(torch.uint8).tolist()
        got = taper.tensor(x.numpy()).to(getattr(taper, dt)).view(taper.uint8).tolist()
        nan = [i for i, v in enumerate(x.tolist()) if v != v]
        assert [(i, a, b) for i, (a, b) in enumerate(zip(want, got)) if a != b and i not in nan] == [], dt


if __name__ == "__main__":
    import sys
    w, r, n = sweep(sys.argv[1] if len(sys.argv) > 1 else "complex64", set(sys.argv[2:]) or None)
    for k, v in w.items():
        print("WRONG", k, v)
    for k, v in r.items():
        print("refused", k, v)
    print(len(n), "operators ran,", sum(n.values()), "samples;", len(w), "wrong,", len(r), "refused")
