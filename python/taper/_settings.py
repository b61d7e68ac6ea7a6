"""Settings of the process and small questions: dtypes, seeds, printing, determinism."""
import math as _math
from . import _C

__all__ = ["pi", "e", "inf", "nan", "newaxis", "finfo", "iinfo", "is_tensor", "is_floating_point", "is_complex",
           "is_nonzero", "numel", "can_cast", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state",
           "set_printoptions", "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
           "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode",
           "get_deterministic_debug_mode", "get_num_interop_threads", "set_num_interop_threads",
           "set_float32_matmul_precision", "get_float32_matmul_precision", "set_default_tensor_type",
           "is_storage", "typename", "save", "load", "OutOfMemoryError", "memory_stats"]

pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None


class OutOfMemoryError(RuntimeError):
    """Memory for a tensor could not be had.

    >>> issubclass(taper.OutOfMemoryError, RuntimeError)
    True
    """


def _prefix():
    return repr(_C.float32).split(".")[0]


class _info:
    def __init__(self, dtype):
        self.dtype = repr(dtype).split(".")[1]
        self.bits = 8 * dtype.itemsize


class finfo(_info):
    """Numerical properties of a floating type.

    >>> taper.finfo(taper.float32).eps
    1.1920928955078125e-07
    """

    # digits of resolution, mantissa bits, smallest normal exponent, largest value
    _FACTS = {_C.float64: (1e-15, 52, -1022, (2 - 2.0**-52) * 2.0**1023),
              _C.float32: (1e-6, 23, -126, (2 - 2.0**-23) * 2.0**127),
              _C.float16: (1e-3, 10, -14, 65504.0),
              _C.bfloat16: (1e-2, 7, -126, (2 - 2.0**-7) * 2.0**127),
              _C.float8_e4m3fn: (1.0, 3, -6, 448.0), _C.float8_e5m2: (1.0, 2, -14, 57344.0), _C.float8_e4m3fnuz: (1.0, 3, -7, 240.0),
              _C.float8_e5m2fnuz: (1.0, 3, -15, 57344.0), _C.float8_e8m0fnu: (1.0, 0, -127, 2.0**127)}

    def __init__(self, dtype=None):
        dtype = _C.get_default_dtype() if dtype is None else {_C.complex64: _C.float32, _C.complex128: _C.float64}.get(dtype, dtype)
        if not isinstance(dtype, _C.dtype):
            raise TypeError(f"finfo(): argument 'type' (position 1) must be {_prefix()}.dtype, not {type(dtype).__name__}")
        if dtype not in self._FACTS:
            p = _prefix()
            raise TypeError(f"{p}.finfo() requires a floating point input type. Use {p}.iinfo to handle '{p}.finfo'")
        super().__init__(dtype)
        self.resolution, mant, low, self.max = self._FACTS[dtype]
        self.min, self.eps = -self.max, 2.0**-mant
        self.tiny = self.smallest_normal = 2.0**low

    def __repr__(self):
        g = "{:.6g}".format
        return (f"finfo(resolution={g(self.resolution)}, min={g(self.min)}, max={g(self.max)}, eps={g(self.eps)}, "
                f"smallest_normal={g(self.tiny)}, tiny={g(self.tiny)}, dtype={self.dtype})")


class iinfo(_info):
    """Numerical properties of an integer type.

    >>> taper.iinfo(taper.int8).max
    127
    """

    def __init__(self, dtype):
        p = _prefix()
        if not isinstance(dtype, _C.dtype):
            raise TypeError(f"iinfo(): argument 'type' (position 1) must be {p}.dtype, not {type(dtype).__name__}")
        if dtype.is_floating_point or dtype.is_complex:
            raise TypeError(f"{p}.iinfo() requires an integer input type. Use {p}.finfo to handle '{p}.iinfo'")
        if dtype is _C.bool:
            raise TypeError(f"{p}.bool is not supported by {p}.iinfo")
        super().__init__(dtype)
        signed = dtype.is_signed
        self.min = -(1 << (self.bits - 1)) if signed else 0
        self.max = (1 << (self.bits - signed)) - 1

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def is_tensor(obj):
    """True for tensors.

    >>> taper.is_tensor(taper.ones(2))
    True
    """
    return isinstance(obj, _C.Tensor)


def is_storage(obj):
    """True for storages.

    >>> taper.is_storage(taper.ones(2).untyped_storage())
    True
    """
    return isinstance(obj, _C.UntypedStorage)


def _tensor_arg(fn, input):
    if not isinstance(input, _C.Tensor):
        raise TypeError(f"{fn}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input


def is_floating_point(input):
    """Are the elements floating point numbers?

    >>> taper.is_floating_point(taper.ones(2))
    True
    """
    return _tensor_arg("is_floating_point", input).is_floating_point()


def is_complex(input):
    """Is the element type complex?

    >>> taper.is_complex(taper.ones(2))
    False
    """
    return _tensor_arg("is_complex", input).is_complex()


def is_nonzero(input):
    """The truth of a tensor of one element.

    >>> taper.is_nonzero(taper.tensor([3.0]))
    True
    """
    return _tensor_arg("is_nonzero", input).is_nonzero()


def numel(input):
    """The number of elements.

    >>> taper.numel(taper.ones(2, 3))
    6
    """
    return _tensor_arg("numel", input).numel()


def typename(obj):
    """The name of a tensor's type, or of the class of anything else.

    >>> taper.typename(taper.ones(2))
    'taper.FloatTensor'
    """
    if isinstance(obj, _C.Tensor):
        return obj.type()
    cls = obj if isinstance(obj, type) else type(obj)
    return cls.__qualname__ if cls.__module__ in ("builtins", "") else f"{cls.__module__}.{cls.__qualname__}"


def can_cast(from_, to):
    """May a value of one type be stored in the other without changing its kind?

    >>> taper.can_cast(taper.int32, taper.float32)
    True
    """
    for name, d in (("from_", from_), ("to", to)):
        if not isinstance(d, _C.dtype):
            raise TypeError(f"can_cast(): argument '{name}' must be dtype, not {type(d).__name__}")
    rank = lambda d: 3 if d.is_complex else 2 if d.is_floating_point else 0 if d is _C.bool else 1
    return rank(from_) <= rank(to)


# --- random numbers ---
def manual_seed(seed):
    """Seeds the default generator and returns it.

    >>> g = taper.manual_seed(0)
    >>> a = taper.rand(2)
    >>> g = taper.manual_seed(0)
    >>> bool((taper.rand(2) == a).all())
    True
    """
    try:
        return _C.default_generator.manual_seed(int(seed))
    except RuntimeError as err:
        raise ValueError(str(err)) from None


def seed():
    """A fresh seed from the system.

    >>> isinstance(taper.seed(), int)
    True
    """
    return _C.default_generator.seed()


def initial_seed():
    """The seed that random numbers started with.

    >>> g = taper.manual_seed(7)
    >>> taper.initial_seed()
    7
    """
    return _C.default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator as a uint8 tensor.

    >>> s = taper.get_rng_state()
    >>> a = taper.rand(2)
    >>> taper.set_rng_state(s)
    >>> bool((taper.rand(2) == a).all())
    True
    """
    return _C.default_generator.get_state()


def set_rng_state(new_state):
    """Random numbers go on from a state that get_rng_state returned.

    >>> s = taper.get_rng_state()
    >>> a = taper.rand(2)
    >>> taper.set_rng_state(s)
    >>> bool((taper.rand(2) == a).all())
    True
    """
    _C.default_generator.set_state(new_state)


# --- printing ---
def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """How tensors print; profile is 'default', 'short' or 'full'.

    >>> taper.set_printoptions(precision=2)
    >>> taper.tensor([1.2345])
    tensor([1.23])
    >>> taper.set_printoptions(profile="default")
    """
    if profile is not None:
        profiles = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, inf, 3, 80)}
        if profile not in profiles:
            raise ValueError(f"unknown profile {profile!r}: choose one of {', '.join(profiles)}")
        _C._printoptions(*profiles[profile])
    _C._printoptions(precision, threshold, edgeitems, linewidth, sci_mode)


# --- determinism, threads, precision ---
_warn_only = False


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Every kernel of Taper is deterministic already; the setting is kept for programs that ask.

    >>> taper.use_deterministic_algorithms(True)
    >>> taper.are_deterministic_algorithms_enabled()
    True
    >>> taper.use_deterministic_algorithms(False)
    """
    global _warn_only
    _C._set_deterministic(bool(mode))
    _warn_only = bool(warn_only)


def are_deterministic_algorithms_enabled():
    """Was use_deterministic_algorithms(True) called?

    >>> taper.are_deterministic_algorithms_enabled()
    False
    """
    return _C._deterministic()


def is_deterministic_algorithms_warn_only_enabled():
    """Do operators that are not deterministic warn only?

    >>> taper.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return _warn_only


def set_deterministic_debug_mode(debug_mode):
    """What happens to kernels that are not deterministic: "default" (nothing), "warn" or "error".

    >>> taper.set_deterministic_debug_mode("default")
    """
    names = {"default": 0, "warn": 1, "error": 2}
    mode = names.get(debug_mode, debug_mode)
    if mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected `default`, `warn`, `error`, but got {debug_mode}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode():
    """0, 1 or 2: whether kernels that are not deterministic are let through, warned of or refused.

    >>> taper.get_deterministic_debug_mode()
    0
    """
    return (1 if _warn_only else 2) if are_deterministic_algorithms_enabled() else 0


def get_num_interop_threads():
    """Threads that run operators beside each other: 1, for Taper runs one after another.

    >>> taper.get_num_interop_threads() >= 1
    True
    """
    return 1


def set_num_interop_threads(n):
    """Checked and otherwise ignored: Taper runs one operator after another.

    >>> taper.set_num_interop_threads(1)
    """
    if not isinstance(n, int) or n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")


_matmul_precision = "highest"


def get_float32_matmul_precision():
    """The precision of products of float32.

    >>> taper.get_float32_matmul_precision()
    'highest'
    """
    return _matmul_precision


def set_float32_matmul_precision(precision):
    """"medium": matrix products of float32 on the CPU round their factors to bfloat16 and sum in float32,
    where the machine has units for that (docs/numerics.md). "highest" and "high" compute in float32.

    >>> taper.set_float32_matmul_precision("highest")
    >>> taper.get_float32_matmul_precision()
    'highest'
    """
    global _matmul_precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision!r} is not one of 'highest', 'high' or 'medium'")
    _matmul_precision = precision
    _C._set_rough_products(precision == "medium")


def set_default_tensor_type(t):
    """The default dtype by a tensor class or its name.

    >>> taper.set_default_tensor_type("taper.FloatTensor")
    >>> taper.get_default_dtype()
    taper.float32
    """
    if isinstance(t, str):
        from . import _tensor
        t = getattr(_tensor, t.split(".")[-1], None)
    if not hasattr(t, "dtype"):
        raise TypeError("invalid type object: a tensor class such as taper.DoubleTensor is expected")
    _C.set_default_dtype(t.dtype)


def memory_stats():
    """{'live': bytes of tensor storage now alive, 'peak': the most so far}

    >>> sorted(taper.memory_stats())
    ['live', 'peak']
    """
    live, peak = _C._memory()
    return {"live": live, "peak": peak}


# --- files ---
def save(obj, f, *args, **kwargs):
    """Writes tensors, and any values around them, to a file that taper.load and torch.load read (docs/checkpoints.md).

    >>> import io
    >>> f = io.BytesIO()
    >>> taper.save([taper.ones(2), 3], f)
    >>> _ = f.seek(0)
    >>> taper.load(f)
    [tensor([1., 1.]), 3]
    """
    from ._files import save
    return save(obj, f, *args, **kwargs)


def load(f, *args, **kwargs):
    """Reads a checkpoint of torch.save or taper.save, or a safetensors file, without running anything in it (docs/checkpoints.md).

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.pt")
    >>> taper.save({"w": taper.ones(2)}, path)
    >>> taper.load(path)
    {'w': tensor([1., 1.])}
    """
    from ._files import load
    return load(f, *args, **kwargs)


def _did_you_mean(name, names):
    """"; did you mean 'x'?" for a name that is nearly one of names, else nothing."""
    import difflib
    near = difflib.get_close_matches(str(name), [str(n) for n in names], 1, 0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
