"""Every derivative rule of the op table against central differences, in float64.

The table is walked: a row with a rule is called with arguments made from its schema, over several layouts, with
broadcasting, without elements, in place, and once more for the second derivative. Rows whose arguments cannot be
made from the schema alone are listed with examples in CASES; a row that is in neither way tested is a failure."""
import re

import taper
from taper import _C
from taper.autograd import GradcheckError, gradcheck, gradgradcheck

F64 = taper.float64
PW, INP, VIEW, COMP, MUT, NODIFF, RAND = 1 << 2, 1 << 0, 1 << 3, 1 << 7, 1 << 9, 1 << 10, 1 << 4
gen = taper.Generator()


def rnd(*shape, lo=-2.0, hi=2.0):
    """Uniform between lo and hi, not near 0 when both signs are possible."""
    u = taper.randn(list(shape), dtype=F64, generator=gen)
    u = taper.sigmoid(1.7 * u)
    t = u * (hi - lo) + lo
    if lo < 0 < hi:
        t = t + 0.05 * t.sign()
    return t.detach().requires_grad_()


def cplx(*shape):
    return taper.complex(rnd(*shape).detach(), rnd(*shape).detach()).requires_grad_()


def ints(*values, shape=None):
    t = taper.tensor(values, dtype=taper.int64)
    return t.view(shape) if shape else t


def square(*shape):
    """Well conditioned."""
    n = shape[-1]
    return (rnd(*shape, n) * 0.3 + taper.diag(taper.ones([n], dtype=F64)) * 2).detach().requires_grad_()


def lu(n):
    """A factorisation to differentiate by, and its pivots."""
    f, pivots = taper.linalg.lu_factor(square(n).detach())
    return f.requires_grad_(), pivots


def mask(*shape):
    return taper.randn(list(shape), dtype=F64, generator=gen) > 0


# Where an operator is smooth: (lo, hi) for its inputs.
DOMAIN = {
    "log": (0.3, 3), "log2": (0.3, 3), "log10": (0.3, 3), "log1p": (-0.6, 3), "sqrt": (0.3, 3), "rsqrt": (0.3, 3),
    "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "acosh": (1.3, 3), "atanh": (-0.8, 0.8), "erfinv": (-0.8, 0.8),
    "lgamma": (0.3, 3), "digamma": (0.3, 3), "special_ndtri": (0.1, 0.9), "special_entr": (0.2, 3),
    "logit": (0.15, 0.85), "pow.Tensor_Tensor": (0.3, 2), "xlogy.Tensor": (0.3, 3), "special_xlog1py": (0.3, 3),
    "tan": (-1.2, 1.2), "div.Tensor": (0.4, 3), "addcdiv": (0.4, 3), "reciprocal": (0.3, 3), "prod": (0.4, 2),
    "cumprod": (0.4, 2), "floor": (0.1, 0.9), "ceil": (0.1, 0.9), "trunc": (0.1, 0.9), "round": (0.1, 0.4),
    "frac": (0.1, 0.9), "special_erfcx": (-1, 2), "polygamma": (0.5, 3), "std.correction": (-2, 2),
}


NOT_EMPTY = {"max", "min", "median", "nanmedian"}

# row -> list of functions that make positional arguments.
CASES = {
    "pow.Tensor_Scalar": [lambda: (rnd(2, 3, lo=0.3, hi=2), 3), lambda: (rnd(2, lo=0.3, hi=2), 2.5),
                          lambda: (rnd(2), 2), lambda: (rnd(2), 0), lambda: (rnd(2, lo=.3, hi=2), -1.5)],
    "pow.Tensor_Tensor": [lambda: (2.0, rnd(3)), lambda: (rnd(3, lo=.3, hi=2), 2.0),
                          lambda: (rnd(2, 1, lo=.3, hi=2), rnd(3))],
    "div.Tensor_mode": [lambda: (rnd(3, lo=1.1, hi=1.9), rnd(3, lo=.8, hi=1.0), None)],
    "fmod.Tensor": [lambda: (rnd(3, lo=2.2, hi=2.7), rnd(3, lo=.9, hi=1.05))],
    "remainder.Tensor": [lambda: (rnd(3, lo=2.2, hi=2.7), rnd(3, lo=.9, hi=1.05))],
    "floor_divide": [lambda: (rnd(3, lo=2.2, hi=2.7), rnd(3, lo=.9, hi=1.05))],
    "round.decimals": [], "fill.Scalar": [lambda: (rnd(2), 3.0)],
    "linspace.Tensor_Tensor": [lambda: (rnd(), rnd(), 4, F64)], "linspace.Tensor_Scalar": [lambda: (rnd(), 2.0, 4, F64)],
    "linspace.Scalar_Tensor": [lambda: (1.0, rnd(), 4, F64)],
    "logspace.Tensor_Tensor": [lambda: (rnd(lo=0, hi=1), rnd(lo=0, hi=1), 4, 3.0, F64)],
    "logspace.Tensor_Scalar": [lambda: (rnd(lo=0, hi=1), 2.0, 4, 3.0, F64)],
    "logspace.Scalar_Tensor": [lambda: (1.0, rnd(lo=0, hi=1), 4, 3.0, F64)],
    "polygamma": [lambda: (1, rnd(3, lo=.5, hi=3)), lambda: (2, rnd(3, lo=.5, hi=3))],
    "special_zeta": [lambda: (3.5, rnd(3, lo=.5, hi=3))],
    "clamp": [lambda: (rnd(2, 3), -0.7, 0.9), lambda: (rnd(2, 3), None, 0.9), lambda: (rnd(2, 3), 0.3, None)],
    "clamp.Tensor": [lambda: (rnd(4), rnd(4, lo=-1.5, hi=-.5), rnd(4, lo=.5, hi=1.5)),
                     lambda: (rnd(4), rnd(1, lo=-1.5, hi=-.5), None), lambda: (rnd(4), None, rnd(4))],
    "clamp_min": [lambda: (rnd(2, 3), 0.2)], "clamp_max": [lambda: (rnd(2, 3), 0.2)],
    "where.self": [lambda: (mask(2, 3), rnd(2, 3), rnd(3)), lambda: (mask(2, 3), rnd(2, 3), 1.5)],
    "masked_fill.Scalar": [lambda: (rnd(2, 3), mask(2, 3), 2.0), lambda: (rnd(2, 3), mask(3), 2.0)],
    "masked_fill.Tensor": [lambda: (rnd(2, 3), mask(2, 3), rnd())],
    "lerp.Scalar": [lambda: (rnd(2, 3), rnd(3), 0.3)],
    "threshold": [lambda: (rnd(2, 3), 0.1, 5.0)],
    "logit": [lambda: (rnd(3, lo=.15, hi=.85), None), lambda: (rnd(3, lo=.15, hi=.85), 0.2)],
    "logit_backward": [],
    "threshold_backward": [lambda: (rnd(2, 3), rnd(2, 3), 0.1)],
    "leaky_relu_backward": [lambda: (rnd(2, 3), rnd(2, 3), 0.1, False)],
    "hardtanh_backward": [lambda: (rnd(2, 3), rnd(2, 3), -0.3, 0.4)],
    "hardshrink_backward": [lambda: (rnd(2, 3), rnd(2, 3), 0.2)],
    "softshrink_backward": [lambda: (rnd(2, 3), rnd(2, 3), 0.2)],
    "gelu": [lambda: (rnd(2, 3), "none"), lambda: (rnd(2, 3), "tanh")],
    "frexp.Tensor": [lambda: (rnd(2, 3),)],
    "copysign.Tensor": [lambda: (rnd(2, 3), rnd(3))],
    "nan_to_num": [lambda: (rnd(3),)],
    # shape
    "view": [lambda: (rnd(2, 3), [3, 2]), lambda: (rnd(0, 3), [3, 0])],
    "expand": [lambda: (rnd(2, 1), [4, 2, 3]), lambda: (rnd(), [2])],
    "permute": [lambda: (rnd(2, 3, 4), [2, 0, -2])],
    "transpose.int": [lambda: (rnd(2, 3, 2), 0, -1)],
    "squeeze": [lambda: (rnd(1, 2, 1),)], "squeeze.dim": [lambda: (rnd(1, 2), 0), lambda: (rnd(1, 2), 1)],
    "squeeze.dims": [lambda: (rnd(1, 2, 1), [0, 2])], "unsqueeze": [lambda: (rnd(2, 3), -1)],
    "t": [lambda: (rnd(2, 3),), lambda: (rnd(2),)],
    "select.int": [lambda: (rnd(2, 3), 1, -1)],
    "slice.Tensor": [lambda: (rnd(5, 2), 0, 1, 4, 2), lambda: (rnd(5), 0, None, None, 1), lambda: (rnd(5), 0, -3, 99, 1)],
    "narrow": [lambda: (rnd(5, 2), 0, 1, 3), lambda: (rnd(5, 2), 0, -2, 2)],
    "masked_scatter_backward": [lambda: (rnd(2, 3), taper.tensor([[True, False, True], [False, True, False]]), [4])],
    "split.Tensor": [lambda: (rnd(5, 2), 2, 0)], "split_with_sizes": [lambda: (rnd(5, 2), [1, 4], 0)],
    "unbind.int": [lambda: (rnd(2, 3), 1)],
    "as_strided": [lambda: (rnd(6), [2, 2], [3, 1], 1), lambda: (rnd(4), [3, 2], [1, 1], 0),  # other layouts: the oracle
                   lambda: (rnd(3, 4).detach().t().requires_grad_(), [2, 2], [1, 2])],
    "diagonal": [lambda: (rnd(3, 4), 1, 0, 1)], "unfold": [lambda: (rnd(7), 0, 3, 2), lambda: (rnd(5, 2), 0, 2, 1)],
    "repeat": [lambda: (rnd(2, 3), [2, 1, 2])], "roll": [lambda: (rnd(4), [1], [0]), lambda: (rnd(2, 3), [2], [])],
    "flip": [lambda: (rnd(2, 3), [0, 1])], "tril": [lambda: (rnd(3, 3), -1)], "triu": [lambda: (rnd(3, 3), 1)],
    "diag_embed": [lambda: (rnd(2, 3), 1, 0, 2)],
    "constant_pad_nd": [lambda: (rnd(2, 3), [1, 2, 0, 1], 3.0), lambda: (rnd(2, 4), [-1, 1], 0.0)],
    "cat": [lambda: ([rnd(2, 3), rnd(1, 3)], 0), lambda: ([rnd(2, 1), rnd(2, 2)], -1)],
    "select_scatter": [lambda: (rnd(2, 3), rnd(2), 1, 0)],
    "slice_scatter": [lambda: (rnd(5, 2), rnd(2, 2), 0, 1, 4, 2)],
    "diagonal_scatter": [lambda: (rnd(3, 3), rnd(3), 0, 0, 1)],
    "as_strided_scatter": [lambda: (rnd(6), rnd(2, 2), [2, 2], [3, 1], 1), lambda: (rnd(2, 3), rnd(2, 2), [2, 2], [3, 1]),
                           lambda: (rnd(3, 2).detach().t().requires_grad_(), rnd(2, 2), [2, 2], [3, 1], 1)],
    "select_backward": [lambda: (rnd(2), [2, 3], 1, 2)],
    "slice_backward": [lambda: (rnd(2, 2), [5, 2], 0, 1, 4, 2)],
    "diagonal_backward": [lambda: (rnd(3), [3, 4], 1, 0, 1)],
    "unfold_backward": [lambda: (rnd(3, 3), [7], 0, 3, 2)],
    "as_strided_backward": [lambda: (rnd(2, 2), [6], [2, 2], [3, 1], 1)],
    "_to_copy": [lambda: (rnd(2, 3),)], "clone": [lambda: (rnd(2, 3),)], "alias": [lambda: (rnd(2, 3),)],
    "positive": [lambda: (rnd(2, 3),)],
    # complex
    "view_as_real": [lambda: (cplx(2, 3),), lambda: (cplx(3, 2).detach().t().requires_grad_(),), lambda: (cplx(0, 3),), lambda: (cplx(),)],
    "view_as_complex": [lambda: (rnd(2, 3, 2),), lambda: (rnd(3, 2, 2).detach().transpose(0, 1).requires_grad_(),), lambda: (rnd(0, 2),),
                        lambda: (rnd(2),)],
    "conj_physical": [lambda: (rnd(2, 3),), lambda: (cplx(2, 3),)],
    "_fft_c2c": [lambda n=n, f=f: (cplx(2, 3), [0, 1], n, f) for n in (0, 1, 2) for f in (True, False)] + [lambda: (cplx(3, 2), [0], 0, True)],
    "_fft_r2c": [lambda n=n, o=o: (rnd(2, n), [0, 1], 0, o) for n in (3, 4) for o in (True, False)],
    "_fft_c2r": [lambda n=n: (cplx(2, 3), [0, 1], 2, n) for n in (4, 5)],
    # index
    "gather": [lambda: (rnd(2, 3), 1, ints(0, 2, 2, 1, shape=[2, 2]))],
    "scatter.src": [lambda: (rnd(2, 3), 1, ints(0, 2, 1, 0, shape=[2, 2]), rnd(2, 2))],
    "scatter.value": [lambda: (rnd(2, 3), 1, ints(0, 2, 1, 0, shape=[2, 2]), 3.0)],
    "scatter_add": [lambda: (rnd(2, 3), 1, ints(0, 0, 1, 0, shape=[2, 2]), rnd(2, 2))],
    "scatter_reduce.two": [lambda r=r, s=s: (rnd(4, lo=.5, hi=2), 0, ints(0, 0, 1), rnd(3, lo=.5, hi=2), r, s)
                           for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)
                           if not (r == "prod" and not s)],
    "scatter.reduce": [lambda r=r: (rnd(3, 2, lo=.5, hi=2), 0, ints(0, 0, 1, 0, 2, 0, shape=[3, 2]), rnd(3, 2, lo=.5, hi=2), r)
                       for r in ("add", "multiply")],
    "scatter.value_reduce": [lambda r=r: (rnd(3), 0, ints(0, 0, 1), 2.5, r) for r in ("add", "multiply")],
    "index_reduce": [lambda r=r, s=s: (rnd(4, 2, lo=.5, hi=2), 0, ints(0, 0, 1), rnd(3, 2, lo=.5, hi=2), r, s)
                     for r in ("prod", "mean", "amax", "amin") for s in (True, False) if not (r == "prod" and not s)],
    "index_select": [lambda: (rnd(3, 2), 0, ints(2, 0, 2))],
    "index_add": [lambda: (rnd(3, 2), 0, ints(2, 0, 2), rnd(3, 2), 2)],
    "index_copy": [lambda: (rnd(3, 2), 0, ints(2, 0), rnd(2, 2))],
    "index_fill.int_Scalar": [lambda: (rnd(3, 2), 0, ints(2, 0), 1.5)],
    "index_fill.int_Tensor": [lambda: (rnd(3, 2), 0, ints(2, 0), rnd())],
    "index.Tensor": [lambda: (rnd(3, 4), [ints(2, 0, 2)]), lambda: (rnd(3, 4), [None, ints(1, 1)]),
                     lambda: (rnd(3, 4), [ints(0, 1), ints(2, 2)])],
    "index_put": [lambda: (rnd(3, 4), [ints(0, 1), ints(2, 3)], rnd(2), False),
                  lambda: (rnd(3, 4), [ints(0, 0)], rnd(2, 4), True)],
    "take": [lambda: (rnd(2, 3), ints(0, 5, 5))], "put": [lambda: (rnd(2, 3), ints(0, 5), rnd(2), False),
                                                          lambda: (rnd(2, 3), ints(0, 0), rnd(2), True)],
    "masked_scatter": [lambda: (rnd(2, 3), taper.tensor([[True, False, True], [False, True, False]]), rnd(4))],
    "embedding": [lambda: (rnd(4, 2), ints(0, 3, 3), -1, False, False)],
    "embedding_dense_backward": [lambda: (rnd(3, 2), ints(0, 3, 3), 4, -1, False),
                                 lambda: (rnd(3, 2), ints(0, 3, 3), 4, 3, False)],
    # reductions
    "sum.dim_IntList": [lambda: (rnd(2, 3), [1], False), lambda: (rnd(2, 3), [0, 1], True), lambda: (rnd(2, 3), None, False),
                        lambda: (rnd(0, 3), [0], False)],
    "mean.dim": [lambda: (rnd(2, 3), [1], False), lambda: (rnd(2, 3), [-1], True)],
    "prod.dim_int": [lambda: (rnd(2, 3), 1, False), lambda: (rnd(2, 3), 0, True),
                     lambda: ((rnd(3) * taper.tensor([1., 0., 1.], dtype=F64)).detach().requires_grad_(), 0, False)],
    "prod": [lambda: (rnd(2, 3),), lambda: (rnd(2),), lambda: (rnd(),)],
    "nansum": [lambda: (rnd(2, 3), [1], False)], "nanmean": [lambda: (rnd(2, 3), [1], False)],
    "amax": [lambda: (rnd(2, 3), [1], False), lambda: (rnd(2, 3), [], False)],
    "amin": [lambda: (rnd(2, 3), [1], True)],
    "aminmax": [lambda: (rnd(2, 3), 1, False), lambda: (rnd(2, 3), None, False)],
    "max.dim": [lambda: (rnd(2, 3), 1, False), lambda: (rnd(2, 3), 0, True)], "min.dim": [lambda: (rnd(2, 3), 1, False)],
    "median.dim": [lambda: (rnd(2, 3), 1, False)], "nanmedian.dim": [lambda: (rnd(2, 3), 1, False)],
    "mode": [lambda: (rnd(2, 3), 1, False)], "kthvalue": [lambda: (rnd(2, 3), 2, 1, False)],
    "sort": [lambda: (rnd(2, 3), 1, True)], "sort.stable": [lambda: (rnd(2, 3), True, 1, False)],
    "topk": [lambda: (rnd(2, 4), 2, 1, True, True)],
    "var.correction": [lambda: (rnd(2, 3), [1], 1, False), lambda: (rnd(2, 3), None, 0, True)],
    "std.correction": [lambda: (rnd(2, 3), [1], 1, False), lambda: (rnd(2, 3), None, 0, False)],
    "var_mean.correction": [lambda: (rnd(2, 3), [1], 1, False)],
    "std_mean.correction": [lambda: (rnd(2, 3), [0], 0, True)],
    "linalg_vector_norm": [lambda p=p: (rnd(2, 3), p, [1], False) for p in (1, 2, 3.5, float("inf"), float("-inf"), 0)]
    + [lambda: (rnd(2, 3), 2, None, True)],
    "_softmax": [lambda: (rnd(2, 3), 1, False)], "_log_softmax": [lambda: (rnd(2, 3), 0, False)],
    "_softmax_backward_data": [], "_log_softmax_backward_data": [],
    "cumsum": [lambda: (rnd(2, 3), 1)], "logcumsumexp": [lambda: (rnd(2, 3), 1), lambda: ((rnd(2, 3).detach() - 2000).requires_grad_(), 0)],
    "cumprod": [lambda: (rnd(2, 3), 1),
                lambda: ((rnd(4) * taper.tensor([1., 0., 1., 1.], dtype=F64)).detach().requires_grad_(), 0)],
    "cummax": [lambda: (rnd(2, 3), 1)], "cummin": [lambda: (rnd(2, 3), 0)],
    "bmm": [lambda: (rnd(2, 2, 3), rnd(2, 3, 2))], "_bmm_wide": [lambda: (rnd(2, 2, 3), rnd(2, 3, 2))], "dot": [lambda: (rnd(3), rnd(3))],
    "addmm": [lambda: (rnd(3, 2), rnd(3, 2), rnd(2, 2), 1, 1), lambda: (rnd(2), rnd(3, 2), rnd(2, 2), 0.5, 2)],
    "baddbmm": [lambda: (rnd(2, 2, 2), rnd(2, 2, 3), rnd(2, 3, 2), 1, 1),
                lambda: (rnd(2, 2), rnd(2, 2, 3), rnd(2, 3, 2), 0.5, 2)],
    "mv": [lambda: (rnd(2, 3), rnd(3))], "addmv": [lambda: (rnd(2), rnd(2, 3), rnd(3), 0.5, 2)],
    "linalg_inv_ex": [lambda: (square(3),)], "_linalg_det": [lambda: (square(3),), lambda: (square(2, 2),)],
    "_linalg_slogdet": [lambda: (square(2, 3),)],
    "_linalg_solve_ex": [lambda: (square(3), rnd(3, 2), True), lambda: (square(3), rnd(3), True),
                         lambda: (square(2, 3), rnd(2, 3, 1), True), lambda: (square(3), rnd(2, 3), False)],
    "linalg_lu_factor_ex": [lambda: (square(3),), lambda: (square(2, 2),), lambda: (rnd(4, 2),), lambda: (rnd(2, 4),)],
    "linalg_lu_solve": [lambda f=f, a=a: (*lu(3), rnd(3, 2) if f else rnd(2, 3), f, a) for f in (True, False) for a in (True, False)],
    "_ctc_loss": [],  # a gradient only behind log_softmax: test_composites
    "igamma": [lambda: (taper.tensor([0.5, 1, 3, 8], dtype=F64), rnd(4, lo=.4, hi=6))],
    "igammac": [lambda: (taper.tensor([0.5, 1, 3, 8], dtype=F64), rnd(4, lo=.4, hi=6))],
    "linalg_matrix_exp": [lambda: (square(3),), lambda: (square(2, 2),)],
    "linalg_lstsq": [lambda: (rnd(4, 2), rnd(4, 3)), lambda: (square(2), rnd(2, 1)), lambda: (rnd(4, 2), rnd(4, 2), None, "gelsd")],
    "linalg_pinv.atol_rtol_tensor": [lambda: (rnd(3, 2),), lambda: (rnd(2, 3),), lambda: (square(2, 2),)],
    "linalg_qr": [lambda: (square(3), "reduced"), lambda: (rnd(4, 2), "reduced")],
    "linalg_solve_triangular": [lambda u=u, w=w: (square(3), rnd(3, 2) if w else rnd(2, 3), u, w, False)
                                for u in (True, False) for w in (True, False)]
    + [lambda: (square(2), rnd(2, 2), True, True, True)],
    "cholesky_solve": [lambda: (rnd(3, 2), square(3).detach().tril().requires_grad_(), False),
                       lambda: (rnd(3, 2), square(3).detach().triu().requires_grad_(), True)],
    "cholesky_inverse": [lambda: (square(3).detach().tril().requires_grad_(), False),
                         lambda: (square(3).detach().triu().requires_grad_(), True)],
    "linalg_cholesky_ex": [], "_linalg_eigh": [], "_linalg_svd": [],  # see test_factorisations
    "mm": [lambda: (rnd(2, 3), rnd(3, 2)), lambda: (rnd(2, 0), rnd(0, 2))],
}
CASES.update({
    "grid_sampler_2d": [lambda m=m, p=p, c=c: (rnd(1, 2, 4, 5), rnd(1, 3, 2, 2, lo=-1.3, hi=1.3), m, p, c)
                        for m in (0, 1, 2) for p in (0, 1, 2) for c in (True, False)],
    "grid_sampler_3d": [lambda m=m, p=p, c=c: (rnd(1, 2, 3, 4, 3), rnd(1, 2, 2, 2, 3, lo=-1.3, hi=1.3), m, p, c)
                        for m in (0, 1) for p in (0, 1, 2) for c in (True, False)],
})
RED = (0, 1, 2)  # none, mean, sum
CASES.update({
    "_flash_attention": [lambda: (rnd(1, 2, 3, 2), rnd(1, 1, 4, 2), rnd(1, 1, 4, 2), None, None, 0.0, True, 0.7),
                         lambda: (rnd(1, 2, 3, 2), rnd(1, 2, 4, 2), rnd(1, 2, 4, 2), rnd(1, 2, 3, 4), taper.tensor([3, 5]), 0.25, False, 0.7)],
    "convolution": [
        lambda: (rnd(2, 2, 5), rnd(3, 2, 3), rnd(3), [1], [1], [1], False, [0], 1),
        lambda: (rnd(1, 2, 4, 4), rnd(2, 1, 3, 2), None, [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
        lambda: (rnd(1, 2, 3, 3), rnd(2, 2, 2, 2), rnd(2), [2, 1], [0, 1], [1, 1], True, [1, 0], 1),
        lambda: (rnd(1, 1, 2, 3, 2), rnd(1, 1, 2, 2, 1), rnd(1), [1, 1, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1)],
    "convolution_backward": [
        lambda: (rnd(1, 2, 3), rnd(1, 2, 3), rnd(2, 2, 3), [2], [1], [1], [1], False, [0], 1, [True, True, True])],
    "im2col": [lambda: (rnd(1, 1, 3, 4), [2, 2], [1, 1], [1, 0], [1, 2])],
    "col2im": [lambda: (rnd(1, 4, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1])],
    "max_pool2d_with_indices": [lambda: (rnd(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False),
                                lambda: (rnd(2, 3, 3), [2, 2], [1, 1], [1, 1], [1, 1], False)],
    "max_pool3d_with_indices": [lambda: (rnd(1, 1, 2, 4, 2), [2, 2, 1], [1, 2, 1], [0, 0, 0], [1, 1, 1], False)],
    "adaptive_max_pool2d": [lambda: (rnd(1, 2, 4, 3), [2, 2])],
    "adaptive_max_pool3d": [lambda: (rnd(1, 1, 2, 3, 2), [1, 2, 2])],
    "avg_pool2d": [lambda: (rnd(1, 2, 4, 4), [2, 2], [2, 1], [1, 0], False, True, None),
                   lambda: (rnd(2, 3, 3), [2, 2], [], [1, 1], True, False, None)],
    "avg_pool2d_backward": [lambda: (rnd(1, 1, 2, 2), rnd(1, 1, 4, 4).detach(), [2, 2], [2, 2], [0, 0], False, True, None)],
    "avg_pool3d": [lambda: (rnd(1, 1, 2, 3, 2), [2, 2, 1], [1, 1, 1], [0, 0, 0], False, True, None)],
    "avg_pool3d_backward": [lambda: (rnd(1, 1, 1, 2, 2), rnd(1, 1, 2, 3, 2).detach(), [2, 2, 1], [1, 1, 1], [0, 0, 0], False,
                                     True, None)],
    "_adaptive_avg_pool2d": [lambda: (rnd(1, 2, 4, 3), [2, 2])],
    "_adaptive_avg_pool2d_backward": [lambda: (rnd(1, 1, 2, 2), rnd(1, 1, 4, 3).detach())],
    "_adaptive_avg_pool3d": [lambda: (rnd(1, 1, 2, 3, 2), [1, 2, 2])],
    "_adaptive_avg_pool3d_backward": [lambda: (rnd(1, 1, 1, 2, 2), rnd(1, 1, 2, 3, 2).detach())],
    "native_layer_norm": [lambda: (rnd(2, 3, 2), [3, 2], rnd(3, 2), rnd(3, 2), 1e-3), lambda: (rnd(3, 4), [4], None, None, 1e-5)],
    "native_group_norm": [lambda: (rnd(2, 4, 3), rnd(4), rnd(4), 2, 4, 3, 2, 1e-3),
                          lambda: (rnd(2, 4, 3), None, None, 2, 4, 3, 4, 1e-3)],
    "native_batch_norm": [
        lambda: (rnd(3, 2, 2), rnd(2), rnd(2), None, None, True, 0.1, 1e-3),
        lambda: (rnd(3, 2), None, None, None, None, True, 0.1, 1e-3),
        lambda: (rnd(3, 2, 2), rnd(2), rnd(2), rnd(2).detach(), rnd(2, lo=.5, hi=2).detach(), False, 0.1, 1e-3)],
    "_native_batch_norm_legit_functional": [
        lambda: (rnd(3, 2, 2), rnd(2), rnd(2), rnd(2).detach(), rnd(2, lo=.5, hi=2).detach(), True, 0.1, 1e-3)],
    "nll_loss_forward": [lambda r=r: (rnd(3, 4), ints(1, 0, 3), w, r, 0)
                         for r in RED for w in (None, taper.tensor([1., 2., 3., .5], dtype=F64))],
    "nll_loss_backward": [lambda: (rnd(3), rnd(3, 4).detach(), ints(1, 0, 3), None, 0, -100,
                                   taper.tensor(3., dtype=F64))],
    "nll_loss2d_forward": [lambda r=r: (rnd(2, 3, 1, 2), ints(0, 1, 2, 1, shape=[2, 1, 2]), None, r, -100) for r in RED],
    "nll_loss2d_backward": [lambda: (rnd(2, 1, 2), rnd(2, 3, 1, 2).detach(), ints(0, 1, 2, 1, shape=[2, 1, 2]), None, 0,
                                     -100, taper.tensor(4., dtype=F64))],
    "binary_cross_entropy": [lambda r=r: (rnd(2, 3, lo=.2, hi=.8), rnd(2, 3, lo=.2, hi=.8), None, r) for r in RED]
    + [lambda: (rnd(2, 3, lo=.2, hi=.8), rnd(2, 3, lo=.2, hi=.8), rnd(3).detach(), 1)],
})
for n, (k, tail) in {"upsample_nearest1d": (1, ()), "_upsample_nearest_exact1d": (1, ()), "upsample_nearest2d": (2, ()),
                     "_upsample_nearest_exact2d": (2, ()), "upsample_nearest3d": (3, ()),
                     "_upsample_nearest_exact3d": (3, ()), "upsample_linear1d": (1, (False,)),
                     "upsample_bilinear2d": (2, (True,)), "upsample_trilinear3d": (3, (False,)),
                     "upsample_bicubic2d": (2, (False,)), "_upsample_bilinear2d_aa": (2, (False,)),
                     "_upsample_bicubic2d_aa": (2, (True,))}.items():
    CASES[n] = [lambda k=k, tail=tail: (rnd(1, 2, *[2] * k), [3, 4, 3][:k], *tail, *[None] * k)]
    CASES[n + "_backward"] = [lambda k=k, tail=tail: (rnd(1, 2, *[3, 4, 3][:k]), [3, 4, 3][:k], [1, 2] + [2] * k, *tail,
                                                      *[None] * k)]
for k in (1, 2, 3):
    shape, pad = [2] + [3] * k, [1] * (2 * k)
    for kind in ("reflection", "replication"):
        CASES[f"{kind}_pad{k}d"] = [lambda s=shape, p=pad: (rnd(*s), p)]
        CASES[f"{kind}_pad{k}d_backward"] = [lambda s=shape, p=pad: (rnd(2, *[n + 2 for n in s[1:]]), rnd(*s).detach(), p)]

# Rows whose second derivative is not written, or does not exist.
NO_SECOND = {"grid_sampler_2d", "grid_sampler_3d", "_ctc_loss"}  # PyTorch has none either
SKIP = {"copy_", "fill_.Scalar", "fill_.Tensor"}  # writes: tested in test_autograd.py and below


def params(schema):
    text = schema[schema.index("(") + 1:schema.rindex(") ->")]
    text = re.sub(r"\([a-z][^)]*\)", "", text)  # alias marks
    out, kwonly = [], False
    for p in re.split(r",\s*(?![^\[]*\])", text):
        p = p.strip()
        if p == "*":
            kwonly = True
        if not p or p == "*":
            continue
        m = re.match(r"([A-Za-z]+)(\[\d*\])?(\?)?(\[\d*\])?(\?)?\s+(\w+)(=.*)?$", p)
        out.append((m.group(1) + (m.group(2) or m.group(4) or ""), m.group(6), m.group(7), kwonly))
    return out


def layouts(n, full, flags):
    """Arguments for rows whose required parameters are tensors only."""
    lo, hi = DOMAIN.get(full, (-2, 2))
    make = lambda *s: rnd(*s, lo=lo, hi=hi)  # noqa: E731
    yield tuple(make(2, 3) for _ in range(n))
    yield tuple(make(3, 2).detach().t().requires_grad_() for _ in range(n))
    yield tuple(make(4, 3).detach().as_strided([2, 2], [6, 1]).requires_grad_() for _ in range(n))
    if full not in NOT_EMPTY:
        yield tuple(make(0, 3) for _ in range(n))
    yield tuple(make() for _ in range(n))
    if n > 1 and flags & PW:
        yield tuple(make(*s) for s in ([2, 1], [3], [1, 1])[:n])
        yield (make(2, 3),) + tuple(make() for _ in range(n - 1))


def examples(row):
    full, schema, _, flags = row[:4]
    if full in CASES:
        return [c() for c in CASES[full]]
    needed = [t for t, _, default, _ in params(schema) if default is None]
    if all(t == "Tensor" for t in needed):
        return list(layouts(len(needed), full, flags))
    return None


def call_of(full, schema, row=_C._call):
    names = [(name, kwonly) for _, name, _, kwonly in params(schema)]

    def call(*args):
        pos = [a for a, (_, kwonly) in zip(args, names) if not kwonly]
        return row(full, *pos, **{name: a for a, (name, kwonly) in zip(args, names) if kwonly})
    call.__name__ = full
    return call


def flat(args):
    """Tensor lists are spread so that gradcheck sees each tensor."""
    for i, a in enumerate(args):
        if isinstance(a, list) and a and isinstance(a[0], taper.Tensor) and a[0].requires_grad:
            return tuple(a), lambda *ts, i=i: args[:i] + (list(ts),) + args[i + 1:]
    return args, lambda *ts: ts


def rows_with_rules():
    for row in _C._schemas():
        full, flags, vjp = row[0], row[3], row[5]
        if vjp not in ("none", "constant") and not flags & (COMP | NODIFF | RAND) and full not in SKIP:
            yield row


def test_first_derivatives():
    gen.manual_seed(1)
    missing, bad, n = [], [], 0
    for row in rows_with_rules():
        if row[3] & MUT:
            continue
        cases = examples(row)
        if cases is None:
            missing.append(row[0])
            continue
        for args in cases:
            inputs, back = flat(args)
            fn = call_of(row[0], row[1])
            n += 1
            try:
                gradcheck(lambda *ts: fn(*back(*ts)), inputs)
            except (GradcheckError, RuntimeError, TypeError) as e:
                bad.append(f"{row[0]}{[tuple(a.shape) if isinstance(a, taper.Tensor) else a for a in args]}: {e}")
    assert not bad, f"{len(bad)} of {n}:\n" + "\n".join(bad)
    assert not missing, f"rows with a rule but no arguments: {missing}"
    assert n > 200


# Rows that take tensors and have no rule. Backward forms are used only where no derivative of them is asked for.
HOLES = {"floor_divide", "heaviside", "resize_", "resize_as_", "geqrf", "linalg_ldl_factor_ex", "linalg_ldl_solve"}
HOLES |= {"_unique2", "unique_consecutive", "unique_dim"}
HOLES |= {"special_" + n for n in (  # PyTorch has no derivative of these either
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    *(s + "chebyshev_polynomial_" + k for s in ("", "shifted_") for k in "tuvw"))}


def test_holes_are_known():
    holes = {row[0] for row in _C._schemas() if row[5] == "none" and not row[3] & (COMP | NODIFF | RAND)
             and "Tensor" in row[1].split("->")[0] and "_backward" not in row[0]}
    assert holes == HOLES, f"rows without a derivative: {sorted(holes ^ HOLES)}"
    x = rnd(3)
    y = taper.heaviside(x, x.detach()) if x.numel() else None
    assert y.grad_fn.name() == "HeavisideBackward0"
    try:
        y.sum().backward()
    except RuntimeError as e:
        assert "the derivative for 'heaviside' is not implemented." in str(e)
    else:
        raise AssertionError("no error")
    for z in (taper.zeros_like(x), x.new_ones(2), taper.rand_like(x)):
        assert not z.requires_grad and z.grad_fn is None


def test_second_derivatives():
    gen.manual_seed(2)
    bad = []
    for row in rows_with_rules():
        if row[3] & MUT or row[0] in NO_SECOND:
            continue
        for args in (examples(row) or [])[:1]:
            inputs, back = flat(args)
            fn = call_of(row[0], row[1])
            try:
                gradgradcheck(lambda *ts: fn(*back(*ts)), inputs)
            except (GradcheckError, RuntimeError, TypeError) as e:
                bad.append(f"{row[0]}: {e}")
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad)


def test_in_place_twins():
    gen.manual_seed(3)
    bad = []
    for row in rows_with_rules():
        if not row[3] & INP:
            continue
        name, dot, overload = row[0].partition(".")
        for args in (examples(row) or [])[:1]:
            if not isinstance(args[0], taper.Tensor) or args[0].dtype != F64 or not args[0].requires_grad:
                continue
            twin = call_of(name + "_" + dot + overload, row[1])
            try:
                gradcheck(lambda x, *rest: twin(x * 1, *rest), args)
            except (GradcheckError, RuntimeError, TypeError) as e:
                bad.append(f"{row[0]}: {e}")
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad)


def test_composites():
    """Operators made of others whose derivative is easily lost on the way."""
    gen.manual_seed(5)
    q = taper.tensor([0.1, 0.55, 0.9], dtype=F64, requires_grad=True)
    assert gradcheck(lambda x, q: taper.quantile(x, q, 1), (rnd(2, 5), q))
    assert gradcheck(lambda x, q: taper.quantile(x, q, 0, True), (rnd(4, 2, 2), q))
    for how in ("midpoint", "nearest", "lower", "higher"):
        assert gradcheck(lambda x: taper.quantile(x, 0.4, None, interpolation=how), (rnd(2, 3),))
    assert gradcheck(lambda x: taper.nanquantile(taper.where(x > 1, float("nan"), x), 0.3, 1), (rnd(3, 6, lo=-2, hi=1.5),))
    assert gradcheck(lambda x, t: taper.linalg.householder_product(x, t), (rnd(4, 3), rnd(3)))
    assert gradcheck(lambda x, t, o: taper.ormqr(x, t, o, False, True), (rnd(3, 2), rnd(2), rnd(2, 3)))
    assert gradcheck(lambda x: taper.linalg.lu(x)[1:], (square(3),))
    assert gradcheck(lambda x: taper.linalg.tensorinv(x.reshape(2, 2, 4), 2), (square(4),))
    assert gradcheck(lambda x, y: taper.linalg.tensorsolve(x.reshape(2, 2, 4), y), (square(4), rnd(2, 2)))
    assert gradcheck(lambda x: taper.linalg.vander(x), (rnd(2, 3),))
    ctc = taper.nn.functional.ctc_loss
    for how in ("none", "mean", "sum"):
        assert gradcheck(lambda x: ctc(x.log_softmax(-1), ints(1, 2, 2, 2, shape=(2, 2)), [4, 3], [2, 1], reduction=how), (rnd(4, 2, 3),))
        assert gradcheck(lambda x: ctc(x.log_softmax(-1), ints(3, 1, 1, 2), ints(5, 5), ints(1, 3), 0, how, True), (rnd(5, 2, 4),))
    F = taper.nn.functional
    for how in ("none", "mean", "sum"):
        assert gradcheck(lambda x: F.multi_margin_loss(x, ints(1, 0), 2, reduction=how), (rnd(2, 3),))
        assert gradcheck(lambda x: F.multilabel_margin_loss(x, ints(1, 0, -1, 2, -1, 0, shape=(2, 3)), reduction=how), (rnd(2, 3),))
    at = F.max_pool2d(rnd(1, 2, 4, 4), 2, return_indices=True)[1]
    assert gradcheck(lambda x: F.max_unpool2d(x, at, 2), (rnd(1, 2, 2, 2),))
    assert gradcheck(lambda x: F.fractional_max_pool2d(x, 2, 3, _random_samples=taper.full((1, 2, 2), 0.3, dtype=F64)), (rnd(1, 2, 5, 6),))


def test_writes():
    gen.manual_seed(4)
    assert gradcheck(lambda x, y: (x * 1).copy_(y) * x, (rnd(2, 3), rnd(3)))
    assert gradcheck(lambda x: (x * 1).fill_(2.0) * x, (rnd(2, 3),))
    assert gradcheck(lambda x: (x * 1).t_() * 2, (rnd(2, 3),))
    assert gradcheck(lambda x: (x * 1).unsqueeze_(1) * 2, (rnd(2, 3),))
    assert gradcheck(lambda x: (x * 1).squeeze_() * 2, (rnd(1, 3),))
    assert gradcheck(lambda x: (x * 1).fill_diagonal_(3.0) * x, (rnd(3, 3),))

    def through_views(w):
        b = (w * 2).view(1, 4).repeat(3, 1)
        b.select(0, 1).mul_(w)
        c = b.select(0, 2)
        c.mul_(b.select(0, 1).clone())
        return b * c
    w = rnd(4)
    assert gradcheck(through_views, (w,)) and gradgradcheck(through_views, (w,))


def test_factorisations():
    """Where only some of the input or of the result counts, or signs are free, through a function that fixes it."""
    gen.manual_seed(5)
    a, tall, wide = square(3), rnd(4, 2), rnd(2, 4)
    assert gradcheck(lambda x: taper.linalg.cholesky(x @ x.t()), (a,))
    assert gradcheck(lambda x: taper.linalg.cholesky(x @ x.t(), upper=True), (a,))
    assert gradgradcheck(lambda x: taper.linalg.cholesky(x @ x.t()), (a,))
    assert gradcheck(lambda x: taper.linalg.eigvalsh(x + x.t()), (a,))

    def vectors(x):
        _, v = taper.linalg.eigh(x + x.t())
        return v * v
    assert gradcheck(vectors, (a,))
    for x in (a, tall, wide):
        assert gradcheck(taper.linalg.svdvals, (x,))

        def uv(x):
            u, s, vh = taper.linalg.svd(x, full_matrices=False)
            return u @ vh, s, u * u, vh * vh
        assert gradcheck(uv, (x,)) and gradgradcheck(uv, (x,), atol=1e-4)
    b = rnd(3, 2)
    assert gradcheck(lambda x, y: taper.linalg.solve(x, y), (a, b))
    assert gradcheck(lambda x: taper.linalg.det(x), (a,))
    assert gradcheck(lambda x, y: _C._call("einsum", "ij,kj->ik", [x, y]), (a, square(3)))
    assert gradcheck(lambda x, y: taper.matmul(x, y), (rnd(2, 1, 2, 3), rnd(3, 3, 2)))
