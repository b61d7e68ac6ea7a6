"""Pointwise, reduction, scan, ordering and creation rows against PyTorch over dtypes and layouts."""
from aten import *

SHAPES = ((3, 4), (2, 3, 5), (5,), (), (0, 3), (2, 1, 3, 4))


def each(dtypes, shapes=SHAPES, **kw):
    torch.manual_seed(0)
    for dt in dtypes:
        for shape in shapes:
            yield from layouts(rand(*shape, dtype=dt, **kw))


UNARY = ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
         "atanh erf erfc erfinv lgamma digamma sigmoid sinc i0 deg2rad rad2deg abs sign sgn floor ceil trunc frac square neg "
         "round bitwise_not logical_not nan_to_num isnan isinf isfinite isposinf isneginf signbit relu gelu silu mish "
         "softplus hardswish hardsigmoid logit elu leaky_relu hardtanh").split()
BINARY = ("add.Tensor sub.Tensor mul.Tensor div.Tensor floor_divide remainder.Tensor fmod.Tensor pow.Tensor_Tensor maximum "
          "minimum fmax fmin atan2 hypot copysign.Tensor logaddexp xlogy.Tensor heaviside eq.Tensor ne.Tensor lt.Tensor "
          "le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor bitwise_and.Tensor bitwise_or.Tensor "
          "bitwise_xor.Tensor gcd").split()


def test_unary():
    c = Tally()
    for x in each(ALL, SHAPES[:4]):
        for n in UNARY:
            c(n, x)
    c.end(20)


def test_binary_promotes_and_broadcasts():
    c = Tally()
    torch.manual_seed(1)
    pairs = [(a, b) for a in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool)
             for b in (torch.float64, torch.bfloat16, torch.float32, torch.int32, torch.int8, torch.bool)]
    for a, b in pairs:
        for s, t in (((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((2, 3), ()), ((2,), (3,))):
            x, y = rand(*s, dtype=a), rand(*t, dtype=b, lo=1)
            for n in BINARY:
                c(n, x, y, strides=False, tol=3e-2 if torch.bfloat16 in (a, b) or torch.float16 in (a, b) else None)
    c.end(20)


def test_strides_follow_the_inputs():
    c = Tally()
    for x in each((torch.float32, torch.int64)):
        for y in layouts(rand(*x.shape, dtype=torch.float32)):
            c("add.Tensor", x, y)
            c("where.self", x > 0, x, y)
    c.end(20)


REDUCE = "sum mean prod amax amin any all argmax argmin".split()


def test_reductions():
    c = Tally()
    for x in each(ALL):
        for n in REDUCE:
            c(n, x, tol={torch.float16: 1e-2, torch.bfloat16: 0.1}.get(x.dtype))  # products round at every step there
        for d in (0, -1, 1, 4):
            for keep in (False, True):
                for n in ("sum.dim_IntList", "mean.dim", "amax", "amin"):
                    c(n, x, [d], keep, tol=1e-2 if x.dtype == torch.float16 else None)
                for n in ("any.dim", "all.dim", "argmax", "argmin", "prod.dim_int"):
                    c(n, x, d, keep, tol=1e-2 if x.dtype == torch.float16 else None)
                for n in ("max.dim", "min.dim"):
                    c(n, x, d, keep)
                if x.dim() > max(d, 0) and x.shape[d] > 1:
                    c("var.correction", x, [d], correction=1, keepdim=keep)
                c("linalg_vector_norm", x, 2, [d], keep)
    c.end(20)


def test_scans_and_softmax():
    c = Tally()
    for x in each((torch.float32, torch.float64, torch.int64, torch.bool)):
        for d in (0, -1, 1, 3):
            for n in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
                if x.numel() or n not in ("cummax", "cummin"):  # cummax of nothing does not look at dim there
                    c(n, x, d)
            for n in ("_softmax", "_log_softmax"):
                c(n, x, d, False, strides=False)
    c.end(20)


def test_order():
    c = Tally()
    for x in each((torch.float32, torch.float64, torch.int64, torch.int8, torch.bool)):
        for d in (0, -1, 1, 3):
            for down in (False, True):
                c("sort.stable", x, stable=True, dim=d, descending=down)
    c("nonzero", rand(3, 4, dtype=torch.bool)), c("bincount", rand(9, dtype=torch.int64, lo=0))
    x = rand(50, dtype=torch.int64)
    c("_unique2", x, True, True, True), c("unique_consecutive", x, True, True)
    c("searchsorted.Tensor", torch.sort(rand(20))[0], rand(3, 4)), c("isin.Tensor_Tensor", x, x[:3])
    c.end(20)


def test_creation():
    c = Tally()
    for args in ((5,), (1, 6), (1, 7, 2), (7, 1, -2), (0, 1, 0.3), (3, 1), (0, 1, 0)):
        c(("arange", "arange.start", "arange.start_step")[len(args) - 1], *args, text=True)
    for dt in (torch.float32, torch.float64, torch.int64):
        c("linspace", 0, 10, 5, dtype=dt), c("eye.m", 2, 3, dtype=dt), c("full", [2, 3], 3, dtype=dt)
    c("full", [2], 300, dtype=torch.uint8, text=True), c("tril_indices", 3, 4, -1), c("triu_indices", 3, 4, 1)
    for x in each((torch.float32,)):
        c("zeros_like", x), c("ones_like", x), c("full_like", x, 2)
    c.end(20)
