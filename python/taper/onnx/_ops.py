"""Elementwise, comparison and reduction operators of ONNX with Taper's functions. An operator is the function of its name;
attributes are its keyword arguments, inputs that are left out are None, and several outputs are a tuple."""
import math
import operator

from ._known import Known, number, numbers, one, pairs, row, tensor, wider


def _taper():
    import taper
    return taper


def _float(dtype):
    return dtype.is_floating_point


# ---- two operands ----
def _scalar(v, other):
    """What stands for v beside a tensor: Python's number where that means the same, or a tensor."""
    if not isinstance(v, Known):
        return v
    if len(v.data) == 1 and len(v.shape) <= other.dim() and _float(v.dtype) <= _float(other.dtype):
        return v.data[0]
    return tensor(v, other)


def _binary(on_numbers, on_tensors, result=None):
    def op(a, b):
        if isinstance(a, Known) and isinstance(b, Known):
            both = pairs(a, b)
            if both is not None:
                return Known([on_numbers(x, y) for x, y in both], wider(a, b), result() if result else a.dtype)
            a, b = tensor(a), tensor(b)
        elif isinstance(a, Known):
            a = _scalar(a, b)
        elif isinstance(b, Known):
            b = _scalar(b, a)
        return on_tensors(a, b)
    return op


def _bool():
    return _taper().bool


def _truncated(x, y):
    if isinstance(x, float) or isinstance(y, float):
        return x / y if y else math.copysign(math.inf, x) if x else math.nan
    return x // y if (x >= 0) == (y > 0) else -(-x // y)


def _divide(a, b):
    taper = _taper()
    ints = not any(_float(v.dtype) if isinstance(v, taper.Tensor) else isinstance(v, float) for v in (a, b))
    return taper.div(_two(a, b)[0], b, rounding_mode="trunc") if ints else a / b


def _two(a, b):
    """The first operand as a tensor, for functions that take no number there."""
    taper = _taper()
    return (a, b) if isinstance(a, taper.Tensor) else (taper.full((), a, dtype=b.dtype, device=b.device), b)


def _tensors(name):
    def call(a, b):
        taper = _taper()
        a, b = _two(a, b)
        if not isinstance(b, taper.Tensor):
            b = taper.full((), b, dtype=a.dtype, device=a.device)
        return getattr(taper, name)(a, b)
    return call


Add = _binary(operator.add, operator.add)
Sub = _binary(operator.sub, operator.sub)
Mul = _binary(operator.mul, operator.mul)
Div = _binary(_truncated, _divide)
Equal = _binary(operator.eq, operator.eq, _bool)
Less = _binary(operator.lt, operator.lt, _bool)
LessOrEqual = _binary(operator.le, operator.le, _bool)
Greater = _binary(operator.gt, operator.gt, _bool)
GreaterOrEqual = _binary(operator.ge, operator.ge, _bool)
And = _binary(lambda x, y: bool(x and y), _tensors("logical_and"), _bool)
Or = _binary(lambda x, y: bool(x or y), _tensors("logical_or"), _bool)
Xor = _binary(lambda x, y: bool(x) != bool(y), _tensors("logical_xor"), _bool)
BitwiseAnd = _binary(operator.and_, _tensors("bitwise_and"))
BitwiseOr = _binary(operator.or_, _tensors("bitwise_or"))
BitwiseXor = _binary(operator.xor, _tensors("bitwise_xor"))
_max2 = _binary(max, _tensors("maximum"))
_min2 = _binary(min, _tensors("minimum"))
_left = _binary(operator.lshift, _tensors("bitwise_left_shift"))
_right = _binary(operator.rshift, _tensors("bitwise_right_shift"))


def _floating_power(a, b):
    taper = _taper()
    if isinstance(a, taper.Tensor):
        return taper.pow(a, b).to(a.dtype)
    return taper.pow(a, b)


Pow = _binary(operator.pow, _floating_power)


def Mod(a, b, *, fmod=0):
    if fmod:
        return _binary(math.fmod, lambda x, y: _taper().fmod(_two(x, y)[0], y))(a, b)
    return _binary(operator.mod, lambda x, y: _taper().remainder(x, y))(a, b)


def BitShift(a, b, *, direction):
    return (_left if direction == "LEFT" else _right)(a, b)


def _folded(two):
    def op(first, *rest):
        for v in rest:
            first = two(first, v)
        return first
    return op


Max, Min, Sum = _folded(_max2), _folded(_min2), _folded(Add)


def Mean(*values):
    return Sum(*values) / len(values)


# ---- one operand ----
def _unary(name, on_numbers=None):
    def op(x):
        if isinstance(x, Known):
            if on_numbers:
                return Known([on_numbers(v) for v in x.data], x.shape, x.dtype)
            x = tensor(x)
        return getattr(_taper(), name)(x)
    return op


def _even(v):
    return v if isinstance(v, int) else float(round(v)) if math.isfinite(v) else v


Abs, Neg = _unary("abs", abs), _unary("neg", operator.neg)
Floor = _unary("floor", lambda v: float(math.floor(v)) if isinstance(v, float) else v)
Ceil = _unary("ceil", lambda v: float(math.ceil(v)) if isinstance(v, float) else v)
Round = _unary("round", _even)
Sqrt = _unary("sqrt", lambda v: math.sqrt(v) if v >= 0 else math.nan)
Exp, Log, Erf, Sign, Reciprocal = map(_unary, ("exp", "log", "erf", "sign", "reciprocal"))
Sin, Cos, Tan, Asin, Acos, Atan = map(_unary, ("sin", "cos", "tan", "asin", "acos", "atan"))
Sinh, Cosh, Tanh, Asinh, Acosh, Atanh = map(_unary, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
Relu, Sigmoid, Det = map(_unary, ("relu", "sigmoid", "det"))
IsNaN, BitwiseNot = map(_unary, ("isnan", "bitwise_not"))


def Not(x):
    if isinstance(x, Known):
        return Known([not v for v in x.data], x.shape, x.dtype)
    return _taper().logical_not(x)


def IsInf(x, *, detect_negative=1, detect_positive=1):
    taper = _taper()
    both = taper.isinf(x)
    return both & (x > 0) if not detect_negative else both & (x < 0) if not detect_positive else both


def Identity(x):
    return x


def Cast(x, *, to, saturate=1, round_mode="up"):
    from ._tensors import dtype_of
    dtype = dtype_of(to, "the result of Cast")
    if isinstance(x, Known):
        kind = bool if dtype is _taper().bool else float if _float(dtype) else int
        if kind is int and all(isinstance(v, bool) or not isinstance(v, float) for v in x.data) and dtype is not _taper().bool:
            return Known([v + 0 for v in x.data], x.shape, dtype)  # sizes may be symbols, which int() would fix
        if all(isinstance(v, (int, float)) for v in x.data):
            return Known([kind(v) for v in x.data], x.shape, dtype)
        x = tensor(x)
    return x.to(dtype)


def CastLike(x, like, *, saturate=1, round_mode="up"):
    return tensor(x, like).to(like.dtype)


def Clip(x, low=None, high=None, *, min=None, max=None):
    low, high = min if low is None else low, max if high is None else high
    if isinstance(x, Known):
        x = tensor(x)
    low, high = (None if v is None else _scalar(v, x) if isinstance(v, Known) else v for v in (low, high))
    taper = _taper()
    for limit, two in ((low, "maximum"), (high, "minimum")):
        if isinstance(limit, taper.Tensor):
            x = getattr(taper, two)(x, limit)
        elif limit is not None:
            x = x.clamp(min=limit) if two == "maximum" else x.clamp(max=limit)
    return x


def Where(cond, a, b):
    if all(isinstance(v, Known) for v in (cond, a, b)):
        n = max(len(cond.data), len(a.data), len(b.data))
        if all(len(v.data) in (1, n) for v in (cond, a, b)):
            at = [v.data * n if len(v.data) == 1 else v.data for v in (cond, a, b)]
            return Known([x if c else y for c, x, y in zip(*at)], (n,) if cond.shape or a.shape or b.shape else (), a.dtype)
    some = next((v for v in (cond, a, b) if not isinstance(v, Known)), None)
    cond, a, b = (tensor(v, some) for v in (cond, a, b))
    return _taper().where(cond.bool(), a, b)


# ---- activations ----
def _functional(name):
    return getattr(_taper().nn.functional, name)


def LeakyRelu(x, *, alpha=0.01):
    return _functional("leaky_relu")(x, alpha)


def Elu(x, *, alpha=1.0):
    return _functional("elu")(x, alpha)


def Celu(x, *, alpha=1.0):
    return _functional("celu")(x, alpha)


def Selu(x, *, alpha=1.6732632423543772, gamma=1.0507009873554805):
    taper = _taper()
    return gamma * taper.where(x > 0, x, alpha * taper.expm1(x))


def PRelu(x, slope):
    taper = _taper()
    return taper.where(x > 0, x, x * tensor(slope, x))


def Gelu(x, *, approximate="none"):
    return _functional("gelu")(x, approximate=approximate)


def HardSigmoid(x, *, alpha=0.2, beta=0.5):
    return (x * alpha + beta).clamp(0, 1)


def HardSwish(x):
    return _functional("hardswish")(x)


def Mish(x):
    return _functional("mish")(x)


def Softplus(x):
    return _functional("softplus")(x)


def Softsign(x):
    return _functional("softsign")(x)


def Swish(x, *, alpha=1.0):
    return x * _taper().sigmoid(alpha * x)


def ThresholdedRelu(x, *, alpha=1.0):
    taper = _taper()
    return taper.where(x > alpha, x, taper.zeros_like(x))


def Shrink(x, *, bias=0.0, lambd=0.5):
    taper = _taper()
    return taper.where(x < -lambd, x + bias, taper.where(x > lambd, x - bias, taper.zeros_like(x)))


def _by_rows(fn, x, axis, opset):
    """Before opset 13 everything from axis on is one row."""
    axis = (-1 if opset >= 13 else 1) if axis is None else axis
    if opset >= 13:
        return fn(x, axis)
    axis %= x.dim()
    return fn(x.reshape(math.prod(x.shape[:axis]), -1), 1).reshape(x.shape)


def Softmax(x, *, axis=None, opset=13):
    return _by_rows(_taper().softmax, x, axis, opset)


def LogSoftmax(x, *, axis=None, opset=13):
    return _by_rows(_taper().log_softmax, x, axis, opset)


def Hardmax(x, *, axis=None, opset=13):
    def rows(x, axis):
        first = x.argmax(axis, keepdim=True)
        return _taper().zeros_like(x).scatter(axis, first, 1)
    return _by_rows(rows, x, axis, opset)


# ---- reductions ----
def _axes(x, axes, noop):
    axes = numbers(axes)
    if axes:
        return [int(a) for a in axes]
    return None if noop else list(range(x.dim()))


def _reduction(fn, on_numbers=None):
    def op(x, axes=None, *, axes_=None, keepdims=1, noop_with_empty_axes=0):
        axes = axes_ if axes is None else axes
        if isinstance(x, Known):
            if on_numbers and x.data:
                v = on_numbers(x.data)
                return row([v], x.dtype) if keepdims and x.shape else one(v, x.dtype)
            x = tensor(x)
        axes = _axes(x, axes, noop_with_empty_axes)
        return x if axes is None or not x.dim() else fn(x, axes, bool(keepdims))
    return op


def _product(x, axes, keep):
    for a in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(a, keepdim=keep)
    return x


def _extreme(x, axes, keep, name):
    taper = _taper()
    axes = [a % x.dim() for a in axes]
    if all(x.shape[a] != 0 for a in axes):
        return getattr(taper, name)(x, axes, keepdim=keep)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]  # of nothing: what changes no other
    if x.dtype is taper.bool:
        return taper.full(shape, name == "amin", dtype=x.dtype, device=x.device)
    limits = taper.finfo(x.dtype) if _float(x.dtype) else taper.iinfo(x.dtype)
    worst = math.inf if _float(x.dtype) else limits.max
    return taper.full(shape, worst if name == "amin" else -worst if _float(x.dtype) else limits.min, dtype=x.dtype, device=x.device)


def _same_type(x, y):
    return y.to(x.dtype)


ReduceSum = _reduction(lambda x, a, k: _same_type(x, x.sum(a, keepdim=k)), sum)
ReduceMean = _reduction(lambda x, a, k: x.mean(a, keepdim=k) if _float(x.dtype) else _same_type(x, x.double().mean(a, keepdim=k)))
ReduceMax = _reduction(lambda x, a, k: _extreme(x, a, k, "amax"), max)
ReduceMin = _reduction(lambda x, a, k: _extreme(x, a, k, "amin"), min)
ReduceProd = _reduction(lambda x, a, k: _same_type(x, _product(x, a, k)), math.prod)
ReduceL1 = _reduction(lambda x, a, k: _same_type(x, x.abs().sum(a, keepdim=k)))
ReduceL2 = _reduction(lambda x, a, k: (x * x).sum(a, keepdim=k).sqrt())
ReduceSumSquare = _reduction(lambda x, a, k: _same_type(x, (x * x).sum(a, keepdim=k)))
ReduceLogSum = _reduction(lambda x, a, k: x.sum(a, keepdim=k).log())
ReduceLogSumExp = _reduction(lambda x, a, k: _taper().logsumexp(x, a, keepdim=k))


def _arg(name):
    def op(x, *, axis=0, keepdims=1, select_last_index=0):
        x = tensor(x)
        if select_last_index:
            y = getattr(x.flip(axis), name)(axis, keepdim=bool(keepdims))
            return x.shape[axis] - 1 - y
        return getattr(x, name)(axis, keepdim=bool(keepdims))
    return op


ArgMax, ArgMin = _arg("argmax"), _arg("argmin")


def CumSum(x, axis, *, exclusive=0, reverse=0):
    x, axis = tensor(x), int(number(axis))
    y = x.flip(axis) if reverse else x
    total = y.cumsum(axis).to(x.dtype)
    if exclusive:
        total = total - y
    return total.flip(axis) if reverse else total


def TopK(x, k, *, axis=-1, largest=1, sorted=1):
    x = tensor(x)
    values, places = _taper().topk(x, int(number(k)), axis, bool(largest), bool(sorted))
    return values, places
