"""How operators are written in ONNX: rules by name, with the arguments of the row in ops.def. A rule gets the writer, a
tensor like the result (or None), and the arguments; it returns a name, or a list of them."""
import math

from ._export import OnnxExporterError, Value
from ._tensors import code_of

RULES = {}
VIEWS = set("view reshape transpose permute t select slice unsqueeze squeeze expand flatten narrow unbind chunk split as_strided "
            "diagonal view_as alias getitem split_with_sizes unflatten swapaxes movedim".split())


def rule(*names):
    def put(fn):
        for n in names:
            RULES[n] = fn
        return fn
    return put


def _taper():
    import taper
    return taper


def _as(w, x, dtype):
    """An operand as a value of this type: numbers become constants."""
    if isinstance(x, Value):
        return w.cast(x, dtype)
    if not isinstance(x, (int, float, bool)):
        return Value(w.cast(Value(w.op("Squeeze", w.size(x), name="size"), _taper().int64, ()), dtype).name, dtype, ())
    kind = bool if dtype is _taper().bool else float if dtype.is_floating_point else int
    return Value(w.const(kind(x), dtype), dtype, ())


def _joint(x, y):
    taper = _taper()
    if isinstance(x, Value) and isinstance(y, Value):
        return taper.result_type(taper.empty(x.shape and [1] * x.dim(), dtype=x.dtype), taper.empty(y.shape and [1] * y.dim(), dtype=y.dtype))
    v, number = (x, y) if isinstance(x, Value) else (y, x)
    return taper.result_type(taper.empty([1] * v.dim(), dtype=v.dtype), number if isinstance(number, (int, float, bool)) else 1)


# ---- elementwise ----
def _two(kind):
    def fn(w, out, x, y, **options):
        return w.op(kind, _as(w, x, out.dtype), _as(w, y, out.dtype))
    return fn


def _scaled(kind):
    def fn(w, out, x, y, alpha=1, **options):
        if alpha != 1:
            y = Value(w.op("Mul", _as(w, y, out.dtype), _as(w, alpha, out.dtype)), out.dtype, ())
        return w.op(kind, _as(w, x, out.dtype), _as(w, y, out.dtype))
    return fn


RULES.update(add=_scaled("Add"), sub=_scaled("Sub"), mul=_two("Mul"), maximum=_two("Max"), minimum=_two("Min"), fmax=_two("Max"), fmin=_two("Min"))
RULES["multiply"], RULES["subtract"] = RULES["mul"], RULES["sub"]


@rule("rsub", "rsubtract")
def _(w, out, x, y, alpha=1):
    return RULES["sub"](w, out, y, x, alpha)


@rule("div", "truediv", "true_divide", "divide")
def _(w, out, x, y, rounding_mode=None):
    q = w.op("Div", _as(w, x, out.dtype), _as(w, y, out.dtype))
    if rounding_mode is None or rounding_mode == "trunc" and not out.dtype.is_floating_point:
        return q
    if not out.dtype.is_floating_point:
        return _floor_int(w, out, x, y)
    if rounding_mode == "floor":
        return w.op("Floor", q)
    value = Value(q, out.dtype, ())
    return w.op("Mul", w.op("Sign", value), w.op("Floor", w.op("Abs", value)))


def _floor_int(w, out, x, y):
    """x // y of integers: what is left over after Mod, which has the sign of y, divides evenly."""
    x, y = _as(w, x, out.dtype), _as(w, y, out.dtype)
    return w.op("Div", w.op("Sub", x, w.op("Mod", x, y)), y)


@rule("floor_divide", "floordiv")
def _(w, out, x, y):
    if out.dtype.is_floating_point:
        return w.op("Floor", w.op("Div", _as(w, x, out.dtype), _as(w, y, out.dtype)))
    return _floor_int(w, out, x, y)


@rule("remainder", "mod")
def _(w, out, x, y):
    x, y = _as(w, x, out.dtype), _as(w, y, out.dtype)
    if not out.dtype.is_floating_point:
        return w.op("Mod", x, y)
    return w.op("Sub", x, w.op("Mul", w.op("Floor", w.op("Div", x, y)), y))


@rule("fmod")
def _(w, out, x, y):
    return w.op("Mod", _as(w, x, out.dtype), _as(w, y, out.dtype), fmod=1)


@rule("pow")
def _(w, out, x, y):
    if isinstance(x, Value) and isinstance(y, (int, float)):
        if y == 2:
            v = _as(w, x, out.dtype)
            return w.op("Mul", v, v)
        if y == 0.5:
            return w.op("Sqrt", _as(w, x, out.dtype))
    return w.op("Pow", _as(w, x, out.dtype), _as(w, y, out.dtype))


def _compared(kind, negated=False):
    def fn(w, out, x, y):
        dtype = _joint(x, y)
        x, y = _as(w, x, dtype), _as(w, y, dtype)
        if dtype is _taper().bool and kind != "Equal":
            x, y = w.cast(x, _taper().int32), w.cast(y, _taper().int32)
        got = w.op(kind, x, y)
        return w.op("Not", got) if negated else got
    return fn


RULES.update(eq=_compared("Equal"), ne=_compared("Equal", True), lt=_compared("Less"), le=_compared("LessOrEqual"), gt=_compared("Greater"),
             ge=_compared("GreaterOrEqual"), equal=_compared("Equal"), not_equal=_compared("Equal", True))


def _logical(kind):
    def fn(w, out, x, y):
        return w.op(kind, _as(w, x, _taper().bool), _as(w, y, _taper().bool))
    return fn


RULES.update(logical_and=_logical("And"), logical_or=_logical("Or"), logical_xor=_logical("Xor"))


def _bitwise(kind, on_bools):
    def fn(w, out, x, y):
        if out.dtype is _taper().bool:
            return w.op(on_bools, _as(w, x, out.dtype), _as(w, y, out.dtype))
        if w.opset < 18:
            raise OnnxExporterError(f"{kind} needs opset_version=18 or later")
        return w.op(kind, _as(w, x, out.dtype), _as(w, y, out.dtype))
    return fn


for _names, _kind, _bools in ((("bitwise_and", "and", "and_"), "BitwiseAnd", "And"), (("bitwise_or", "or", "or_"), "BitwiseOr", "Or"), (("bitwise_xor", "xor"), "BitwiseXor", "Xor")):
    for _n in _names:
        RULES[_n] = _bitwise(_kind, _bools)


@rule("logical_not", "bitwise_not", "invert")
def _(w, out, x):
    if x.dtype is _taper().bool or out.dtype is _taper().bool:
        return w.op("Not", w.cast(x, _taper().bool))
    return w.op("BitwiseNot", x)


for _name, _kind in dict(abs="Abs", neg="Neg", floor="Floor", ceil="Ceil", round="Round", sqrt="Sqrt", exp="Exp", log="Log", erf="Erf", sign="Sign",
                         reciprocal="Reciprocal", sin="Sin", cos="Cos", tan="Tan", asin="Asin", acos="Acos", atan="Atan", sinh="Sinh", cosh="Cosh",
                         tanh="Tanh", asinh="Asinh", acosh="Acosh", atanh="Atanh", relu="Relu", sigmoid="Sigmoid", isnan="IsNaN", isinf="IsInf",
                         softsign="Softsign", mish="Mish", negative="Neg", absolute="Abs", det="Det").items():
    def _one(w, out, x, *, _kind=_kind):
        if _kind == "Mish" and w.opset < 18:
            return w.op("Mul", x, w.op("Tanh", w.op("Softplus", x)))
        if _kind not in ("IsNaN", "IsInf") and out is not None:
            x = w.cast(x, out.dtype)
        return w.op(_kind, x)
    RULES[_name] = _one


def _const(w, v, like):
    return w.const(float(v) if like.dtype.is_floating_point else int(v), like.dtype)


@rule("rsqrt")
def _(w, out, x):
    return w.op("Reciprocal", w.op("Sqrt", x))


@rule("square")
def _(w, out, x):
    return w.op("Mul", x, x)


@rule("expm1")
def _(w, out, x):
    return w.op("Sub", w.op("Exp", x), _const(w, 1, out))


@rule("log1p")
def _(w, out, x):
    return w.op("Log", w.op("Add", x, _const(w, 1, out)))


@rule("exp2")
def _(w, out, x):
    return w.op("Pow", _const(w, 2, out), x)


def _log_of(base):
    return lambda w, out, x: w.op("Div", w.op("Log", x), w.const(math.log(base), out.dtype))


RULES["log2"], RULES["log10"] = _log_of(2), _log_of(10)


@rule("trunc")
def _(w, out, x):
    return w.op("Mul", w.op("Sign", x), w.op("Floor", w.op("Abs", x)))


@rule("erfc")
def _(w, out, x):
    return w.op("Sub", _const(w, 1, out), w.op("Erf", x))


@rule("silu")
def _(w, out, x):
    return w.op("Mul", x, w.op("Sigmoid", x))


@rule("logsigmoid", "log_sigmoid")
def _(w, out, x):
    return w.op("Neg", w.op("Softplus", w.op("Neg", x)))


@rule("softplus")
def _(w, out, x, beta=1, threshold=20):
    if beta == 1:
        return w.op("Softplus", x)
    return w.op("Div", w.op("Softplus", w.op("Mul", x, _const(w, beta, out))), _const(w, beta, out))


@rule("gelu")
def _(w, out, x, approximate="none"):
    if w.opset >= 20:
        return w.op("Gelu", x, approximate=approximate)
    half, one = _const(w, 0.5, out), _const(w, 1, out)
    if approximate == "tanh":
        cube = w.op("Mul", w.op("Mul", w.op("Mul", x, x), x), _const(w, 0.044715, out))
        inner = w.op("Tanh", w.op("Mul", w.op("Add", x, cube), _const(w, math.sqrt(2 / math.pi), out)))
    else:
        inner = w.op("Erf", w.op("Mul", x, _const(w, math.sqrt(0.5), out)))
    return w.op("Mul", w.op("Mul", x, half), w.op("Add", inner, one))


@rule("leaky_relu")
def _(w, out, x, negative_slope=0.01):
    return w.op("LeakyRelu", x, alpha=float(negative_slope))


@rule("elu")
def _(w, out, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if scale != 1 or input_scale != 1:
        raise OnnxExporterError("elu with scales has no form in ONNX")
    return w.op("Elu", x, alpha=float(alpha))


@rule("celu")
def _(w, out, x, alpha=1.0):
    return w.op("Celu", x, alpha=float(alpha))


@rule("selu")
def _(w, out, x):
    return w.op("Selu", x)


@rule("hardswish")
def _(w, out, x):
    return w.op("HardSwish", x) if w.opset >= 14 else w.op("Mul", x, RULES["hardsigmoid"](w, out, x))


@rule("hardsigmoid")
def _(w, out, x):
    return w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@rule("relu6")
def _(w, out, x):
    return w.op("Clip", x, _const(w, 0, out), _const(w, 6, out))


@rule("hardtanh")
def _(w, out, x, min_val=-1, max_val=1):
    return w.op("Clip", x, _const(w, min_val, out), _const(w, max_val, out))


@rule("clamp", "clip")
def _(w, out, x, min=None, max=None):
    x = w.cast(x, out.dtype)
    for limit, kind in ((min, "Max"), (max, "Min")):
        if limit is not None:
            x = Value(w.op(kind, x, _as(w, limit, out.dtype)), out.dtype, x.shape)
    return x


@rule("clamp_min")
def _(w, out, x, min):
    return w.op("Max", w.cast(x, out.dtype), _as(w, min, out.dtype))


@rule("clamp_max")
def _(w, out, x, max):
    return w.op("Min", w.cast(x, out.dtype), _as(w, max, out.dtype))


@rule("prelu")
def _(w, out, x, weight):
    shape = weight.shape
    if x.dim() > 1 and shape != [1]:
        weight = w.op("Reshape", weight, w.ints([1, shape[0]] + [1] * (x.dim() - 2)))
    return w.op("PRelu", x, weight)


@rule("where")
def _(w, out, cond, x, y):
    return w.op("Where", w.cast(cond, _taper().bool), _as(w, x, out.dtype), _as(w, y, out.dtype))


@rule("masked_fill")
def _(w, out, x, mask, value):
    return w.op("Where", w.cast(mask, _taper().bool), _as(w, value, out.dtype), w.cast(x, out.dtype))


@rule("addcmul")
def _(w, out, x, a, b, value=1):
    p = w.op("Mul", a, b)
    return w.op("Add", x, p if value == 1 else w.op("Mul", p, _const(w, value, out)))


@rule("addcdiv")
def _(w, out, x, a, b, value=1):
    p = w.op("Div", a, b)
    return w.op("Add", x, p if value == 1 else w.op("Mul", p, _const(w, value, out)))


@rule("lerp")
def _(w, out, x, y, weight):
    return w.op("Add", x, w.op("Mul", w.op("Sub", y, x), _as(w, weight, out.dtype)))


@rule("fill")
def _(w, out, x, value):
    return w.op("Expand", _as(w, value, out.dtype), w.ints(out.shape))


# ---- types and copies ----
@rule("to", "_to_copy", "type_as", "float", "double", "half", "long", "int", "bool", "bfloat16", "to_dtype")
def _(w, out, x, *args, **options):
    return w.cast(x, out.dtype)


@rule("clone", "contiguous", "detach", "alias", "lift_fresh", "detach_copy", "positive")
def _(w, out, x, *args, **options):
    return x


@rule("dropout", "feature_dropout", "alpha_dropout")
def _(w, out, x, p=0.5, train=False):
    if train and p:
        raise OnnxExporterError("dropout of a model that is trained cannot be exported; call model.eval() first")
    return x


# ---- reductions ----
def _reduced(kind, w, out, x, axes, keep):
    axes = None if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
    if axes is None:
        keep = False
    if w.opset >= 18 or kind == "ReduceSum":
        return w.op(kind, x, w.ints(axes) if axes else None, keepdims=int(keep))
    return w.op(kind, x, axes=axes, keepdims=int(keep))


def _reduction(kind):
    def fn(w, out, x, dim=None, keepdim=False, dtype=None):
        return _reduced(kind, w, out, w.cast(x, out.dtype), dim, keepdim)
    return fn


RULES.update(sum=_reduction("ReduceSum"), mean=_reduction("ReduceMean"), amax=_reduction("ReduceMax"), amin=_reduction("ReduceMin"), prod=_reduction("ReduceProd"),
             logsumexp=_reduction("ReduceLogSumExp"))


def _extreme(kind, arg):
    def fn(w, out, x, dim=None, keepdim=False):
        if isinstance(dim, Value):
            return w.op("Max" if kind == "ReduceMax" else "Min", x, dim)
        if dim is None:
            return _reduced(kind, w, out, x, None, False)
        return [_reduced(kind, w, out, x, [dim], keepdim), w.op(arg, x, axis=dim, keepdims=int(keepdim))]
    return fn


RULES.update(max=_extreme("ReduceMax", "ArgMax"), min=_extreme("ReduceMin", "ArgMin"))


def _place(kind):
    def fn(w, out, x, dim=None, keepdim=False):
        if dim is None:
            return w.op(kind, w.op("Reshape", x, w.ints([-1])), axis=0, keepdims=0)
        return w.op(kind, x, axis=dim, keepdims=int(keepdim))
    return fn


RULES.update(argmax=_place("ArgMax"), argmin=_place("ArgMin"))


def _truth(kind):
    def fn(w, out, x, dim=None, keepdim=False):
        taper = _taper()
        x = w.cast(w.cast(x, taper.bool), taper.int32)
        return w.op("Cast", _reduced(kind, w, out, x, dim, keepdim), to=code_of(taper.bool))
    return fn


RULES.update(any=_truth("ReduceMax"), all=_truth("ReduceMin"))


def _variance(w, out, x, dim, correction, keepdim):
    axes = list(range(x.dim())) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    mean = _reduced("ReduceMean", w, out, x, axes, True)
    d = w.op("Sub", x, mean)
    square = w.op("Mul", d, d)
    if not correction:
        return _reduced("ReduceMean", w, out, square, axes, keepdim)
    total = _reduced("ReduceSum", w, out, square, axes, keepdim)
    count = 1
    for a in axes:
        count = count * x.shape[a]
    return w.op("Div", total, _as(w, count - correction, x.dtype))


def _correction(args, options):
    args = list(args)
    if args and isinstance(args[0], bool):  # var(x, unbiased)
        return None, int(args[0]), False
    dim = args[0] if args else options.get("dim")
    if len(args) > 1 and isinstance(args[1], bool):  # var(x, dim, unbiased, keepdim)
        return dim, int(args[1]), args[2] if len(args) > 2 else options.get("keepdim", False)
    c = options.get("correction", options.get("unbiased", 1))
    return dim, 1 if c is None else c, options.get("keepdim", False)


@rule("var")
def _(w, out, x, *args, **options):
    dim, c, keep = _correction(args, options)
    return _variance(w, out, x, dim, c, keep)


@rule("std")
def _(w, out, x, *args, **options):
    dim, c, keep = _correction(args, options)
    return w.op("Sqrt", _variance(w, out, x, dim, c, keep))


@rule("cumsum")
def _(w, out, x, dim, dtype=None):
    return w.op("CumSum", w.cast(x, out.dtype), w.const(dim, _taper().int64))


@rule("topk")
def _(w, out, x, k, dim=-1, largest=True, sorted=True):
    return w.op("TopK", x, w.ints([k]), axis=dim, largest=int(largest), sorted=int(sorted), outputs=2)


@rule("sort")
def _(w, out, x, dim=-1, descending=False, stable=None):
    return w.op("TopK", x, w.ints([x.shape[dim]]), axis=dim, largest=int(descending), sorted=1, outputs=2)


@rule("norm", "linalg_vector_norm", "vector_norm")
def _(w, out, x, p=2, dim=None, keepdim=False, dtype=None):
    p = 2 if p is None or p == "fro" else p
    if p not in (1, 2):
        raise OnnxExporterError(f"a norm of order {p} has no form in ONNX")
    return _reduced("ReduceL1" if p == 1 else "ReduceL2", w, out, x, dim, keepdim)


# ---- shapes ----
@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as")
def _(w, out, x, *args, **options):
    return w.op("Reshape", x, w.shape(out.shape), allowzero=1 if 0 in out.shape and w.opset >= 14 else None)


@rule("squeeze")
def _(w, out, x, dim=None):
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [d % x.dim() for d in dims if x.dim()]
    dims = [d for d in dims if isinstance(x.shape[d], int) and x.shape[d] == 1]
    return w.op("Squeeze", x, w.ints(dims)) if dims else x


@rule("unsqueeze")
def _(w, out, x, dim):
    return w.op("Unsqueeze", x, w.ints([dim % (x.dim() + 1)]))


@rule("permute")
def _(w, out, x, dims):
    return w.op("Transpose", x, perm=[d % x.dim() for d in dims])


def _swapped(w, x, a, b):
    if not x.dim():
        return x
    perm = list(range(x.dim()))
    a, b = a % x.dim(), b % x.dim()
    perm[a], perm[b] = b, a
    return w.op("Transpose", x, perm=perm)


@rule("transpose", "swapaxes", "swapdims")
def _(w, out, x, a, b):
    return _swapped(w, x, a, b)


@rule("t", "mT", "numpy_T")
def _(w, out, x):
    return x if x.dim() < 2 else _swapped(w, x, x.dim() - 2, x.dim() - 1)


@rule("expand", "expand_as", "broadcast_to")
def _(w, out, x, *args, **options):
    return w.op("Expand", x, w.ints(out.shape))


@rule("repeat", "tile")
def _(w, out, x, repeats):
    more = len(out.shape) - x.dim()
    v = x if not more else w.op("Unsqueeze", x, w.ints(range(more)))
    return w.op("Tile", v, w.ints([1] * (len(out.shape) - len(repeats)) + list(repeats)))


@rule("cat", "concat", "concatenate")
def _(w, out, values, dim=0):
    values = [v for v in values if v.shape != [0]]
    return w.op("Concat", *[w.cast(v, out.dtype) for v in values], axis=dim)


@rule("stack")
def _(w, out, values, dim=0):
    rank = len(out.shape)
    at = w.ints([dim % rank])
    return w.op("Concat", *[w.op("Unsqueeze", w.cast(v, out.dtype), at) for v in values], axis=dim % rank)


def _parts(w, x, sizes, dim):
    got = w.op("Split", x, w.ints(sizes), axis=dim, outputs=len(sizes))
    return [got] if isinstance(got, str) else got


def _even(n, each):
    return [min(each, n - i) for i in range(0, n, each)]


@rule("chunk")
def _(w, out, x, chunks, dim=0):
    n = x.shape[dim]
    return _parts(w, x, _even(n, -(-n // chunks)), dim)


@rule("split", "split_with_sizes")
def _(w, out, x, size, dim=0):
    return _parts(w, x, _even(x.shape[dim], size) if isinstance(size, int) else size, dim)


@rule("unbind")
def _(w, out, x, dim=0):
    at = w.ints([dim % x.dim()])
    return [w.op("Squeeze", p, at) for p in _parts(w, x, [1] * x.shape[dim], dim)]


@rule("slice", "narrow")
def _(w, out, x, dim=0, start=None, end=None, step=1):
    return w.op("Slice", x, w.ints([0 if start is None else start]), w.ints([2 ** 62 if end is None else end]), w.ints([dim % x.dim()]), w.ints([step]))


def _narrow(w, out, x, dim, start, length):
    return RULES["slice"](w, out, x, dim, start, start + length)


RULES["narrow"] = _narrow


@rule("select")
def _(w, out, x, dim, index):
    taper = _taper()
    at = w.const(index, taper.int64) if isinstance(index, int) else w.op("Squeeze", w.size(index))
    return w.op("Gather", x, at, axis=dim % x.dim())


@rule("flip")
def _(w, out, x, dims):
    for d in dims:
        x = w.op("Slice", x, w.ints([-1]), w.ints([-2 ** 62]), w.ints([d % len(out.shape)]), w.ints([-1]))
    return x


@rule("roll")
def _(w, out, x, shifts, dims=()):
    if not dims:
        raise OnnxExporterError("roll over all elements has no form in ONNX")
    for s, d in zip(shifts, dims):
        n = out.shape[d]
        cut = (-s) % n
        if cut:
            a = w.op("Slice", x, w.ints([cut]), w.ints([2 ** 62]), w.ints([d % len(out.shape)]))
            x = w.op("Concat", a, w.op("Slice", x, w.ints([0]), w.ints([cut]), w.ints([d % len(out.shape)])), axis=d)
    return x


for _name, _upper in (("tril", 0), ("triu", 1)):
    def _tri(w, out, x, diagonal=0, *, _upper=_upper):
        if w.opset < 14:
            raise OnnxExporterError("tril and triu need opset_version=14 or later")
        return w.op("Trilu", x, w.const(diagonal, _taper().int64), upper=_upper)
    RULES[_name] = _tri


# ---- by index ----
@rule("embedding")
def _(w, out, weight, indices, *args, **options):
    return w.op("Gather", weight, indices, axis=0)


@rule("index_select")
def _(w, out, x, dim, index):
    return w.op("Gather", x, index, axis=dim % x.dim())


@rule("gather", "take_along_dim")
def _(w, out, x, dim, index, **options):
    if isinstance(dim, Value):
        dim, index = index, dim
    return w.op("GatherElements", x, index, axis=dim % x.dim())


@rule("scatter")
def _(w, out, x, dim, index, src, **options):
    if not isinstance(src, Value):
        src = w.op("Expand", _as(w, src, x.dtype), w.op("Shape", index))
    return w.op("ScatterElements", x, index, src, axis=dim % x.dim())


@rule("scatter_add")
def _(w, out, x, dim, index, src):
    if w.opset < 16:
        raise OnnxExporterError("scatter_add needs opset_version=16 or later")
    return w.op("ScatterElements", x, index, src, axis=dim % x.dim(), reduction="add")


@rule("index")
def _(w, out, x, indices):
    taper = _taper()
    given = [i for i, v in enumerate(indices) if v is not None]
    if any(indices[i].dtype is taper.bool for i in given):
        if len(given) == 1 and given[0] == 0:
            return w.op("GatherND", x, w.op("Transpose", w.op("NonZero", indices[0]), perm=[1, 0]))
        raise OnnxExporterError("an index by a mask behind other axes has no form in ONNX")
    if len(given) == 1:
        return w.op("Gather", x, indices[given[0]], axis=given[0])
    if given != list(range(len(given))):
        raise OnnxExporterError("an index by tensors that are not on the first axes has no form in ONNX")
    shape = taper.broadcast_shapes(*[tuple(indices[i].shape) for i in given])
    at = w.ints([len(shape)])
    spread = [w.op("Unsqueeze", w.op("Expand", indices[i], w.ints(shape)), at) for i in given]
    return w.op("GatherND", x, w.op("Concat", *spread, axis=-1))


@rule("nonzero")
def _(w, out, x):
    return w.op("Transpose", w.op("NonZero", x), perm=[1, 0])


@rule("one_hot")
def _(w, out, x, num_classes=-1):
    return w.op("OneHot", x, w.ints([out.shape[-1]]), w.const([0, 1], _taper().int64))


# ---- making ----
def _filled(value):
    def fn(w, out, *args, **options):
        v = value if value is not None else args[1]
        return w.op("Expand", _as(w, v, out.dtype), w.ints(out.shape))
    return fn


for _name, _v in dict(zeros=0, ones=1, zeros_like=0, ones_like=1, new_zeros=0, new_ones=1, empty=0, empty_like=0, new_empty=0, full=None, full_like=None).items():
    RULES[_name] = _filled(_v)


@rule("new_full")
def _(w, out, x, size, value, **options):
    return w.op("Expand", _as(w, value, out.dtype), w.ints(out.shape))


@rule("scalar_tensor")
def _(w, out, value, **options):
    return w.op("Identity", _as(w, value, out.dtype))


@rule("arange")
def _(w, out, *args, **options):
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args[:3]
    return w.op("Range", *[_as(w, v, out.dtype) for v in (start, end, step)])


# ---- products ----
@rule("matmul", "bmm", "mm", "mv", "dot")
def _(w, out, x, y):
    return w.op("MatMul", x, y)


@rule("linear")
def _(w, out, x, weight, bias=None):
    if x.dim() == 2:
        return w.op("Gemm", x, weight, bias, transB=1)
    y = w.op("MatMul", x, w.op("Transpose", weight, perm=[1, 0]) if weight.dim() == 2 else weight)
    return y if bias is None else w.op("Add", y, bias)


@rule("addmm")
def _(w, out, c, a, b, beta=1, alpha=1):
    return w.op("Gemm", a, b, c, alpha=float(alpha), beta=float(beta))


@rule("baddbmm", "addbmm")
def _(w, out, c, a, b, beta=1, alpha=1):
    y = w.op("MatMul", a, b)
    y = y if alpha == 1 else w.op("Mul", y, _const(w, alpha, out))
    return w.op("Add", y, c if beta == 1 else w.op("Mul", c, _const(w, beta, out)))


@rule("einsum")
def _(w, out, equation, values, *args, **options):
    return w.op("Einsum", *values, equation=equation)


@rule("scaled_dot_product_attention")
def _(w, out, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    taper = _taper()
    if dropout_p or enable_gqa:
        raise OnnxExporterError("attention with dropout or groups of queries has no form in ONNX here")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = w.op("MatMul", w.op("Mul", q, w.const(scale, q.dtype)), _swapped(w, k, -2, -1))
    low = w.const(-math.inf, q.dtype)
    if is_causal:
        ones = w.op("Expand", w.const(1, taper.int32), w.ints([q.shape[-2], k.shape[-2]]))
        keep = w.op("Cast", w.op("Trilu", ones, upper=0), to=code_of(taper.bool))
        scores = w.op("Where", keep, scores, low)
    if attn_mask is not None:
        scores = w.op("Where", attn_mask, scores, low) if attn_mask.dtype is taper.bool else w.op("Add", scores, attn_mask)
    return w.op("MatMul", w.op("Softmax", scores, axis=-1), v)


@rule("softmax", "_softmax")
def _(w, out, x, dim, *args, **options):
    return w.op("Softmax", w.cast(x, out.dtype), axis=dim)


@rule("log_softmax", "_log_softmax")
def _(w, out, x, dim, *args, **options):
    return w.op("LogSoftmax", w.cast(x, out.dtype), axis=dim)


@rule("glu")
def _(w, out, x, dim=-1):
    n = x.shape[dim] // 2
    a, b = _parts(w, x, [n, n], dim)
    return w.op("Mul", a, w.op("Sigmoid", b))


# ---- convolutions and pools ----
def _list(v, n):
    return [v] * n if isinstance(v, int) else list(v) * n if len(v) == 1 else list(v)


def _conv(n):
    def fn(w, out, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        attrs = {"strides": _list(stride, n), "dilations": _list(dilation, n), "group": groups, "kernel_shape": list(weight.shape[2:])}
        if isinstance(padding, str):
            total = [(k - 1) * d for k, d in zip(weight.shape[2:], attrs["dilations"])] if padding == "same" else [0] * n
            attrs["pads"] = [t // 2 for t in total] + [t - t // 2 for t in total]
        else:
            attrs["pads"] = _list(padding, n) * 2
        return w.op("Conv", x, weight, bias, **attrs)
    return fn


def _conv_transpose(n):
    def fn(w, out, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return w.op("ConvTranspose", x, weight, bias, strides=_list(stride, n), pads=_list(padding, n) * 2, group=groups,
                    output_padding=_list(output_padding, n), dilations=_list(dilation, n), kernel_shape=list(weight.shape[2:]))
    return fn


def _batched(n, fn):
    """Pools take one image without a batch; ONNX does not."""
    def call(w, out, x, *args, **options):
        if x.dim() == n + 2:
            return fn(w, out, x, *args, **options)
        one = Value(w.op("Unsqueeze", x, w.ints([0])), x.dtype, [1, *x.shape])
        return w.op("Squeeze", fn(w, out, one, *args, **options), w.ints([0]))
    return call


def _max_pool(n):
    def fn(w, out, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        kernel = _list(kernel, n)
        return w.op("MaxPool", x, kernel_shape=kernel, strides=_list(stride, n) if stride not in ((), []) else kernel, pads=_list(padding, n) * 2,
                    dilations=_list(dilation, n), ceil_mode=int(ceil_mode))
    return fn


def _avg_pool(n):
    def fn(w, out, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if divisor_override:
            raise OnnxExporterError("avg_pool with divisor_override has no form in ONNX")
        kernel = _list(kernel, n)
        return w.op("AveragePool", x, kernel_shape=kernel, strides=_list(stride, n) if stride not in ((), []) else kernel, pads=_list(padding, n) * 2,
                    ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))
    return fn


def _adaptive(n, kind, whole):
    def fn(w, out, x, size, *args):
        size = _list(size, n)
        if all(s == 1 for s in size):
            return w.op(whole, x)
        if any(not isinstance(m, int) or m % s for m, s in zip(x.shape[-n:], size)):
            raise OnnxExporterError("adaptive pooling to sizes that do not divide those of the input has no form in ONNX")
        kernel = [m // s for m, s in zip(x.shape[-n:], size)]
        return w.op(kind, x, kernel_shape=kernel, strides=kernel)
    return fn


for _n in (1, 2, 3):
    RULES[f"conv{_n}d"], RULES[f"conv_transpose{_n}d"] = _conv(_n), _conv_transpose(_n)
    RULES[f"max_pool{_n}d"], RULES[f"avg_pool{_n}d"] = _batched(_n, _max_pool(_n)), _batched(_n, _avg_pool(_n))
    RULES[f"adaptive_avg_pool{_n}d"] = _batched(_n, _adaptive(_n, "AveragePool", "GlobalAveragePool"))
    RULES[f"adaptive_max_pool{_n}d"] = _batched(_n, _adaptive(_n, "MaxPool", "GlobalMaxPool"))
RULES["conv_transpose2d_input"] = RULES["conv_transpose2d"]


@rule("constant_pad_nd", "pad")
def _(w, out, x, pad, mode="constant", value=0):
    if isinstance(mode, (int, float)):
        mode, value = "constant", mode
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    n = x.dim()
    before, after = [0] * n, [0] * n
    for i in range(len(pad) // 2):
        before[n - 1 - i], after[n - 1 - i] = pad[2 * i], pad[2 * i + 1]
    fill = w.const(0 if value is None else value, x.dtype) if mode == "constant" else None
    return w.op("Pad", x, w.ints(before + after), fill, mode=kinds[mode])


for _n in (1, 2, 3):
    for _name, _mode in ((f"reflection_pad{_n}d", "reflect"), (f"replication_pad{_n}d", "replicate")):
        RULES[_name] = lambda w, out, x, pad, _mode=_mode: RULES["pad"](w, out, x, pad, _mode)


def _resize(mode):
    def fn(w, out, x, size, *args, **options):
        n = x.dim() - 2
        corners = mode != "nearest" and bool(args[0] if args and isinstance(args[0], bool) else options.get("align_corners", False))
        scales = [s for s in args if isinstance(s, float)]
        where = "align_corners" if corners else "asymmetric" if mode == "nearest" else "pytorch_half_pixel"
        near = "floor" if mode == "nearest" else None
        if len(scales) == n and not corners:
            return w.op("Resize", x, None, w.const([1.0, 1.0] + scales, _taper().float32), mode=mode, coordinate_transformation_mode=where,
                        nearest_mode=near, cubic_coeff_a=-0.75 if mode == "cubic" else None)
        return w.op("Resize", x, None, None, w.ints(out.shape), mode=mode, coordinate_transformation_mode=where, nearest_mode=near,
                    cubic_coeff_a=-0.75 if mode == "cubic" else None)
    return fn


for _n in (1, 2, 3):
    RULES[f"upsample_nearest{_n}d"] = _resize("nearest")
RULES["upsample_linear1d"] = RULES["upsample_bilinear2d"] = RULES["upsample_trilinear3d"] = _resize("linear")
RULES["upsample_bicubic2d"] = _resize("cubic")


@rule("pixel_shuffle")
def _(w, out, x, factor):
    return w.op("DepthToSpace", x, blocksize=factor, mode="CRD")


# ---- normalisations ----
@rule("batch_norm", "native_batch_norm")
def _(w, out, x, weight, bias, mean, var, training, momentum, eps, *args):
    if training or mean is None:
        raise OnnxExporterError("batch norm that uses the statistics of the batch cannot be exported; call model.eval() first")
    n = mean.shape[0]
    weight = weight if weight is not None else w.const([1.0] * n, x.dtype)
    bias = bias if bias is not None else w.const([0.0] * n, x.dtype)
    return w.op("BatchNormalization", x, weight, bias, mean, var, epsilon=float(eps))


def _normalised(w, x, axes, eps):
    mean = _reduced("ReduceMean", w, None, x, axes, True)
    d = w.op("Sub", x, mean)
    var = _reduced("ReduceMean", w, None, w.op("Mul", d, d), axes, True)
    return w.op("Div", d, w.op("Sqrt", w.op("Add", var, w.const(float(eps), x.dtype))))


@rule("layer_norm")
def _(w, out, x, shape, weight=None, bias=None, eps=1e-5, *args):
    n = len(shape)
    if w.opset >= 17:
        if weight is None:
            weight = w.op("Expand", w.const(1.0, x.dtype), w.ints(shape))
        return w.op("LayerNormalization", x, weight, bias, axis=-n, epsilon=float(eps))
    y = _normalised(w, x, list(range(-n, 0)), eps)
    y = y if weight is None else w.op("Mul", y, weight)
    return y if bias is None else w.op("Add", y, bias)


@rule("rms_norm")
def _(w, out, x, shape, weight=None, eps=None):
    axes = list(range(-len(shape), 0))
    eps = _taper().finfo(x.dtype).eps if eps is None else eps
    mean = _reduced("ReduceMean", w, None, w.op("Mul", x, x), axes, True)
    y = w.op("Div", x, w.op("Sqrt", w.op("Add", mean, w.const(float(eps), x.dtype))))
    return y if weight is None else w.op("Mul", y, weight)


@rule("group_norm")
def _(w, out, x, groups, weight=None, bias=None, eps=1e-5, *args):
    inner = Value(w.op("Reshape", x, w.shape([x.shape[0], groups, -1])), x.dtype, [x.shape[0], groups, -1])
    if not isinstance(x.shape[0], int):
        inner.name = w.op("Reshape", x, w.ints([0, groups, -1]))
    y = w.op("Reshape", _normalised(w, inner, [2], eps), w.shape(out.shape))
    wide = w.ints([x.shape[1]] + [1] * (x.dim() - 2))
    y = y if weight is None else w.op("Mul", y, w.op("Reshape", weight, wide))
    return y if bias is None else w.op("Add", y, w.op("Reshape", bias, wide))


@rule("instance_norm")
def _(w, out, x, weight=None, bias=None, mean=None, var=None, use_input_stats=True, momentum=0.1, eps=1e-5, *args):
    n = x.shape[1]
    weight = weight if weight is not None else w.const([1.0] * n, x.dtype)
    bias = bias if bias is not None else w.const([0.0] * n, x.dtype)
    if not use_input_stats:
        return w.op("BatchNormalization", x, weight, bias, mean, var, epsilon=float(eps))
    return w.op("InstanceNormalization", x, weight, bias, epsilon=float(eps))


@rule("normalize")
def _(w, out, x, p=2, dim=1, eps=1e-12):
    norm = _reduced("ReduceL2", w, out, x, [dim], True)
    return w.op("Div", x, w.op("Max", norm, w.const(float(eps), x.dtype)))
