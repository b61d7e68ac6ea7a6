"""Linear algebra against PyTorch."""
from aten import *

NUM = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
LOOSE = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-4, torch.float64: 1e-9}


def tol(dt):
    return LOOSE.get(dt)


def test_products():
    torch.manual_seed(2)
    c = Tally()
    for dt in NUM:
        t = tol(dt)
        for a in layouts(rand(3, 4, dtype=dt, lo=-2, hi=3)):
            for b in layouts(rand(4, 5, dtype=dt, lo=-2, hi=3)):
                c("mm", a, b, tol=t)
                for s in (rand(3, 5, dtype=dt), rand(5, dtype=dt), rand(1, 1, dtype=dt), rand(3, 1, dtype=dt)):
                    c("addmm", s, a, b, tol=t), c("addmm", s, a, b, beta=2, alpha=3, tol=t), c("addmm", s, a, b, beta=0, tol=t)
            v = rand(8, dtype=dt)[::2]
            c("mv", a, v, tol=t), c("addmv", rand(3, dtype=dt), a, v, tol=t), c("addmv", rand(1, dtype=dt), a, v, beta=2, alpha=3, tol=t)
        for a in layouts(rand(2, 3, 4, dtype=dt, lo=-2, hi=3)):
            for b in layouts(rand(2, 4, 5, dtype=dt, lo=-2, hi=3)):
                c("bmm", a, b, tol=t), c("baddbmm", rand(3, 5, dtype=dt), a, b, tol=t), c("baddbmm", rand(2, 1, 5, dtype=dt), a, b, beta=2, alpha=2, tol=t)
                c("addbmm", rand(3, 5, dtype=dt), a, b, beta=2, alpha=2, tol=max(t, 0.1) if t else None, values=dt not in (torch.float16, torch.bfloat16))
        x = rand(6, dtype=dt)
        c("dot", x, x, tol=t), c("dot", x[::2], rand(3, dtype=dt), tol=t), c("vdot", x, x, tol=t), c("inner", x, x, tol=t), c("outer", x, x[:3], tol=t)
        c("addr", rand(6, 3, dtype=dt), x, x[:3], beta=2, alpha=3, tol=t), c("trace", rand(3, 4, dtype=dt), tol=t)
        c("kron", rand(2, 3, dtype=dt), rand(3, dtype=dt), tol=t), c("kron", torch.tensor(2).to(dt), x, tol=t)
        c("cross", rand(2, 3, dtype=dt), rand(2, 3, dtype=dt), tol=t), c("linalg_cross", rand(3, 2, dtype=dt), rand(3, 2, dtype=dt), dim=0, tol=t)
        for s1, s2 in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 3), (5, 3, 4)),
                       ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((5, 2, 0), (0, 3)), ((), (3,)), ((2, 3), (4, 2)), ((2, 2, 3), (3, 3, 2))):
            for a in layouts(rand(*s1, dtype=dt, lo=-2, hi=3)):
                c("matmul", a, rand(*s2, dtype=dt, lo=-2, hi=3), tol=t)
        for s in ((4, 3), (2, 4, 3), (2, 2, 4, 3), (3,)):
            for x in layouts(rand(*s, dtype=dt)):
                c("linear", x, rand(5, 3, dtype=dt), tol=t), c("linear", x, rand(5, 3, dtype=dt), rand(5, dtype=dt), tol=t)
        if dt.is_floating_point:
            c("bilinear", rand(2, 4, 3, dtype=dt, lo=-1, hi=1), rand(2, 4, 2, dtype=dt, lo=-1, hi=1), rand(5, 3, 2, dtype=dt, lo=-1, hi=1), rand(5, dtype=dt), tol=t)
        c("matrix_power", rand(3, 3, dtype=dt, lo=-1, hi=2), 3, tol=t), c("matrix_power", rand(2, 3, 3, dtype=dt), 0)
    x = rand(3, 4)
    w = dict(text=True)
    c("mm", x, x, **w), c("mm", x, rand(4), **w), c("mm", rand(4), x, **w), c("mm", x, rand(4, 2).double(), **w), c("addmm", rand(7), x, rand(4, 2)), c("mm", x.bool(), x.t().bool())
    c("bmm", x, x, **w), c("bmm", rand(2, 3, 4), rand(3, 4, 5), **w), c("mv", x, x), c("mv", x, rand(3)), c("dot", x, x, **w), c("dot", rand(3), rand(4), **w), c("dot", rand(3), rand(3).double(), **w)
    c("outer", x, x, **w), c("trace", rand(3), **w), c("inner", x, rand(3, 5), **w), c("linalg_multi_dot", [x, rand(4, 5), rand(5)]), c("chain_matmul", [x, rand(4, 5), rand(5, 2)])
    c("linalg_vecdot", x, x), c("cross", x, x, **w), c("addmm_", rand(3, 2), x, rand(4, 2))
    c.end(1000)


def test_einsum_and_tensordot():
    c = Tally()
    a, b, d = rand(3, 4), rand(4, 5), rand(2, 3, 4)
    for eq, ops in (("ij,jk->ik", [a, b]), ("ij,jk", [a, b]), ("ij->ji", [a]), ("ij->", [a]), ("ij->j", [a]), ("ii->i", [rand(3, 3)]), ("ii", [rand(3, 3)]), ("i,j->ij", [rand(3), rand(4)]),
                    ("bij,bjk->bik", [d, rand(2, 4, 5)]), ("bij,jk->bik", [d, b]), ("...ij,...jk->...ik", [d, b]), ("...ij->...ji", [d]), ("bhid,bhjd->bhij", [rand(2, 2, 3, 4), rand(2, 2, 5, 4)]),
                    ("ij,jk,kl->il", [a, b, rand(5, 2)]), ("ij,ij->", [a, a]), ("ij,ij->ij", [a, a]), ("i,i", [rand(3), rand(3)]), ("bn,anm,bm->ba", [rand(2, 5), rand(3, 5, 4), rand(2, 4)]),
                    (" i j , j k -> i k ", [a, b]), ("ij,kl->ijkl", [a, b]), ("iij->ij", [rand(3, 3, 2)]), ("...,...", [d, d]), ("i...->...", [d]), ("bij,bij->b", [d, d]), ("abc,cd->abd", [d, b]),
                    ("ij,jk->ki", [a, b]), ("A,B->BA", [rand(2), rand(3)]), ("...a,a", [d, rand(4)]),
                    ("ij,jk->ii", [a, b]), ("ij,jk->iz", [a, b]), ("ij", [a, b]), ("ij,jk", [a]), ("ijk", [a]), ("i1", [a]), ("ij,jk", [a, a]), ("ii", [a]), ("i.j", [a])):
        c("einsum", eq, ops)
    for p, q, x, y in (([1], [0], a, b), ([-1], [0], a, b), ([0, 1], [0, 1], a, a), ([], [], a, b), ([1, 2], [0, 1], d, rand(3, 4, 2)), ([0], [0], a, b), ([0], [0, 1], a, b)):
        c("tensordot", x, y, p, q)
    c.end()


def test_factorisations():
    c = Tally()
    torch.manual_seed(3)
    for dt in (torch.float32, torch.float64):
        t = 1e-3 if dt == torch.float32 else 1e-8
        for shape in ((3, 3), (2, 3, 3), (2, 0, 3, 3), (1, 1), (0, 0), (2, 0, 0), (6, 6)):
            a = rand(*shape, dtype=dt, lo=-1, hi=1)
            spd = a @ a.mT + 2 * torch.eye(shape[-1], dtype=dt)
            for x in (spd, spd.mT.contiguous().mT):
                c("linalg_inv_ex", x, tol=t), c("linalg_inv", x, tol=t), c("_linalg_det", x, tol=t), c("_linalg_slogdet", x, tol=t), c("linalg_det", a, tol=t), c("linalg_slogdet", a, tol=t)
                c("linalg_cholesky_ex", x, tol=t), c("linalg_cholesky", x, upper=True, tol=t), c("linalg_lu_factor_ex", x, tol=t)
                c("linalg_eigvalsh", x, tol=t), c("_linalg_eigh", x, "U", False, tol=t), c("linalg_svdvals", x, tol=t), c("cholesky_inverse", spd.tril(), tol=t), c("cholesky_inverse", spd.triu(), True, tol=t)
                n = shape[-1]
                for rhs in ([n, 2], list(shape[:-1]), [n], list(shape[:-2]) + [n, 4]):
                    b = rand(*rhs, dtype=dt)
                    c("_linalg_solve_ex", x, b, tol=t), c("linalg_solve", x, b, tol=t)
                    if len(rhs) >= 2 and rhs[-2] == n:
                        for up in (True, False):
                            tri = x.triu() if up else x.tril()
                            c("linalg_solve_triangular", tri, b, upper=up, tol=t), c("linalg_solve_triangular", tri, b.mT, upper=up, left=False, tol=t), c("linalg_solve_triangular", tri, b, upper=up, unitriangular=True, tol=t)
                        c("_linalg_solve_ex", x, b.mT, left=False, tol=t)
                        c("cholesky_solve", b, spd.tril(), tol=t), c("cholesky_solve", b, spd.triu(), True, tol=t)
                        if n:
                            lu, piv = torch.linalg.lu_factor(x)
                            for l, r in ((True, b), (False, b.mT)):
                                for adj in (True, False):
                                    c("linalg_lu_solve", lu, piv, r, left=l, adjoint=adj, tol=t)
        for shape in ((4, 3), (3, 4), (2, 5, 3), (0, 3), (2, 3, 0)):
            a = rand(*shape, dtype=dt)
            for mode in ("reduced", "complete", "r"):
                c("linalg_qr", a, mode, tol=t)
            c("linalg_svdvals", a, tol=t), c("_linalg_svd", a, False, False, tol=t)
            for full in (True, False):
                c("_linalg_svd", a, full, values=False)
            if min(shape) > 0:
                for drv in (None, "gelsd"):
                    c("linalg_lstsq", a, rand(*shape[:-1], 2, dtype=dt), driver=drv, tol=t), c("linalg_lstsq", a, rand(*shape[:-1], dtype=dt), driver=drv, tol=t)
    c.end(300)


def test_factors_multiply_back():
    for dt in (torch.float32, torch.float64):
        for shape in ((4, 3), (3, 4), (2, 5, 3), (2, 3, 3)):
            a = rand(*shape, dtype=dt)
            for full in (True, False):
                u, s, v = [to_torch(x) for x in taper._C._call("linalg_svd", to_taper(a), full)]
                k = min(shape[-2:])
                back = u[..., :, :k] @ torch.diag_embed(s) @ v[..., :k, :]
                assert torch.allclose(back, a, atol=1e-4), (shape, full)
                assert torch.allclose(u.mT @ u, torch.eye(u.shape[-1], dtype=dt), atol=1e-4)
        b = rand(2, 4, 4, dtype=dt)
        b = b + b.mT
        w, v = [to_torch(x) for x in taper._C._call("linalg_eigh", to_taper(b))]
        assert torch.allclose(v @ torch.diag_embed(w) @ v.mT, b, atol=1e-4)


def test_errors():
    c = Tally()
    s, m, e = torch.zeros(3, 3), rand(4, 3), torch.eye(3)
    w = dict(text=True)

    def lin(name, *a, **k): # LinAlgError is _LinAlgError there
        try:
            taper._C._call(name, *[conv(x) for x in a], **k)
            got = None
        except RuntimeError as x:
            got = str(x)
        try:
            aten(name)(*a, **k)
            want = None
        except RuntimeError as x:
            want = str(x).split("\n")[0]
        assert got == want, f"{name}:\n  {got}\n  {want}"
    for name, *a in (("linalg_inv", s), ("linalg_inv", torch.stack([e, s])), ("linalg_solve", s, torch.ones(3)), ("linalg_cholesky", -e), ("linalg_cholesky", torch.stack([e, -e])),
                     ("linalg_svd", torch.full((2, 2), float("nan"))), ("linalg_lu_factor", s)):
        lin(name, *a)
    for x in (m, m[0], s.half(), s.long()):
        c("linalg_inv", x, **w), c("linalg_det", x), c("linalg_eigh", x)
    c("linalg_solve", e, torch.ones(5), **w), c("linalg_qr", m, "x", **w), c("linalg_eigh", e, "Q", **w), c("linalg_solve_triangular", e, m, upper=True, **w), c("cholesky_solve", m, e, **w), c("linalg_solve", e, e.double(), **w)
    c.end()


def test_norms_rank_and_inverse():
    c = Tally()
    for dt in (torch.float32, torch.float64):
        t = 1e-3 if dt == torch.float32 else 1e-8
        for shape in ((3, 4), (2, 4, 3), (3, 3), (2, 0, 3)):
            a = rand(*shape, dtype=dt)
            for o in (1, -1, 2, -2, float("inf"), -float("inf"), 3):
                if 0 not in shape:
                    c("linalg_matrix_norm", a, o, tol=t), c("linalg_matrix_norm", a, o, [-1, 0], True, tol=t), c("linalg_norm", a, o, [0, 1], tol=t)
                c("linalg_norm", a, o, [0], True, tol=t)
            for o in ("fro", "nuc", "what"):
                c("linalg_matrix_norm.str_ord", a, o, tol=t), c("linalg_norm.ord_str", a, o, [-2, -1], True, tol=t)
            c("linalg_norm", a, tol=t), c("linalg_norm", a, None, [1], tol=t), c("linalg_norm", a, 2, tol=t)
            c("linalg_matrix_rank.atol_rtol_float", a), c("linalg_matrix_rank", a, 0.5), c("linalg_pinv.atol_rtol_float", a, tol=t, strides=False), c("linalg_pinv", a, 1e-3, tol=t, strides=False), c("pinverse", a, tol=t, strides=False)
            if shape[-1] == shape[-2]:
                for p in (None, 1, 2, -2, float("inf")):
                    c("linalg_cond", a, p, tol=t)
                c("linalg_cond.p_str", a, "fro", tol=t), c("logdet", a, tol=t), c("linalg_cond", a * 0, 1), c("linalg_pinv.atol_rtol_float", a + a.mT, hermitian=True, tol=t, strides=False)
                c("linalg_matrix_rank.atol_rtol_float", a @ a.mT, hermitian=True)
        low = rand(4, 2, dtype=dt) @ rand(2, 5, dtype=dt)
        c("linalg_matrix_rank.atol_rtol_float", low), c("linalg_pinv.atol_rtol_float", low, rtol=1e-3, tol=t * 10, strides=False), c("linalg_matrix_rank.atol_rtol_float", low, atol=1e-3)
    c("linalg_matrix_norm", rand(3), 1), c("linalg_norm", rand(2, 3, 4), 2), c("linalg_matrix_rank.atol_rtol_float", rand(3))
    c.end(100)
