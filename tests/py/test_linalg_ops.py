"""Linear algebra: facts that need no other library."""
import taper

call = taper._C._call


def mat(*rows):
    return taper.stack([taper.cat([taper.full([1], float(v)) for v in r]) for r in rows])


def near(a, b, tol=1e-5):
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y, tol) for x, y in zip(a, b))
    return abs(a - b) <= tol


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


A = mat([1, 2], [3, 4])


def test_products():
    assert (A @ A).tolist() == [[7, 10], [15, 22]]
    assert A.mm(A.t()).tolist() == [[5, 11], [11, 25]]
    assert (A @ A[0] if hasattr(A, "__getitem__") else A.mv(A.select(0, 0))).tolist() == [5, 11]
    assert A.select(0, 0).dot(A.select(0, 1)).item() == 11
    assert taper.addmm(A, A, A, beta=2, alpha=-1).tolist() == [[-5, -6], [-9, -14]]
    assert taper.bmm(taper.stack([A, A]), taper.stack([A, A])).tolist() == [[[7, 10], [15, 22]]] * 2
    assert taper.zeros([2, 0]).mm(taper.zeros([0, 3])).tolist() == [[0, 0, 0], [0, 0, 0]]
    raises(RuntimeError, lambda: A.mm(taper.zeros([3, 2])), "mat1 and mat2 shapes cannot be multiplied (2x2 and 3x2)")


def test_einsum():
    assert call("einsum", "ij,jk->ik", [A, A]).tolist() == [[7, 10], [15, 22]]
    assert call("einsum", "ii->i", [A]).tolist() == [1, 4] and call("einsum", "ij->", [A]).item() == 10
    assert call("einsum", "...ij,jk", [taper.stack([A, A]), A]).tolist() == [[[7, 10], [15, 22]]] * 2
    raises(RuntimeError, lambda: call("einsum", "ij,jk->iz", [A, A]), "output subscript z does not appear")


def test_solvers():
    assert near(taper.inverse(A).tolist(), [[-2, 1], [1.5, -0.5]])
    assert near(taper.det(A).item(), -2)
    assert near((call("linalg_solve", A, A)).tolist(), [[1, 0], [0, 1]])
    q, r = call("linalg_qr", A)
    assert near((q @ r).tolist(), A.tolist())
    u, s, v = call("linalg_svd", A)
    assert near((u @ s.diag() @ v).tolist(), A.tolist())
    sym = A @ A.t()
    w, v = call("linalg_eigh", sym)
    assert near((v @ w.diag() @ v.t()).tolist(), sym.tolist(), 1e-4)
    l = call("linalg_cholesky", sym)
    assert near((l @ l.t()).tolist(), sym.tolist(), 1e-4)
    raises(RuntimeError, lambda: taper.inverse(taper.zeros([2, 2])), "the input matrix is singular")
    raises(RuntimeError, lambda: taper.inverse(taper.zeros([2, 3])), "A must be batches of square matrices, but they are 2 by 3 matrices")
