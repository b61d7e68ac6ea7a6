"""Tensor methods that are written in Python: copying, pickling; and the legacy tensor classes."""
import copy as _copy
from . import _C

Tensor = _C.Tensor


def _requires_grad(t):
    return bool(getattr(t, "requires_grad", False))


def _rebuild(cls, storage, dtype, offset, size, stride, requires_grad, state):
    t = _C._tensor_on(storage, dtype, offset, size, stride)
    if cls is not Tensor:
        t = Tensor._make_subclass(cls, t)
    if requires_grad:
        t.requires_grad = True
    if state:
        t.__dict__.update(state)
    return t


def _check_leaf(t, what):
    if not getattr(t, "is_leaf", True):
        raise RuntimeError(f"Only Tensors created explicitly by the user (graph leaves) support the {what} protocol at "
                           "the moment.  Detach the tensor first, or copy what it was computed from.")


def __deepcopy__(self, memo):
    _check_leaf(self, "deepcopy")
    if id(self) in memo:
        return memo[id(self)]
    if self._is_fake():
        new = self.detach().clone()
        new = new if type(self) is Tensor else Tensor._make_subclass(type(self), new)
        if _requires_grad(self):
            new.requires_grad = True
    else:
        storage = _copy.deepcopy(self.untyped_storage(), memo)
        new = _rebuild(type(self), storage, self.dtype, self.storage_offset(), tuple(self.shape), self.stride(),
                       _requires_grad(self), None)
    memo[id(self)] = new
    grad = getattr(self, "grad", None)
    if grad is not None:
        new.grad = grad.__deepcopy__(memo)
    if self.__dict__:
        new.__dict__.update(_copy.deepcopy(self.__dict__, memo))
    return new


def __reduce_ex__(self, protocol):
    if not getattr(self, "is_leaf", True):
        raise RuntimeError("Only tensors that are leaves of the graph can be pickled; detach() the tensor first.")
    args = (type(self), self.untyped_storage(), self.dtype, self.storage_offset(), tuple(self.shape), self.stride(),
            _requires_grad(self), dict(self.__dict__) or None)
    return _rebuild, args


def __copy__(self):
    """The same memory in another tensor; of a computed one a leaf, as in PyTorch."""
    if type(self).__reduce_ex__ is not Tensor.__reduce_ex__:  # a class with a way of its own
        f, args = self.__reduce_ex__(2)
        return f(*args)
    return _rebuild(type(self), self.untyped_storage(), self.dtype, self.storage_offset(), tuple(self.shape), self.stride(), _requires_grad(self),
                    dict(self.__dict__) or None)


def _meet(a, b):
    """Tensor op ndarray: two tensors, of the type that NumPy's rules give (in PyTorch such an operation is NumPy's)."""
    pair = [x if isinstance(x, Tensor) else _C.tensor(x.copy() if any(s < 0 for s in x.strides) else x) for x in (a, b)]
    kinds = {t.dtype for t in pair}
    if len(kinds) == 2 and _C.bfloat16 not in kinds:
        import numpy
        to = getattr(_C, str(numpy.result_type(*(str(t.dtype).split(".")[-1] for t in pair))))
        pair = [t.to(to) for t in pair]
    return tuple(pair)


_C._meet = _meet


def __array_wrap__(self, array, context=None, return_scalar=False):
    """What NumPy's functions make of a tensor is a tensor again."""
    return _C.tensor(array)


def new(self, *args, **kwargs):
    """An uninitialised tensor of the same type, or one with the given contents."""
    return _C._legacy_new(self.dtype, args)


# --- calls that a subclass takes over (taper.overrides) ---------------------------------------------------------
class _Off:
    def __enter__(self):
        _C._overrides_off(self._all, 1)
        return self

    def __exit__(self, *exc):
        _C._overrides_off(self._all, -1)


class DisableTorchFunctionSubclass(_Off):
    """with DisableTorchFunctionSubclass(): tensors of all classes are ordinary ones; modes go on."""
    _all = False


class DisableTorchFunction(_Off):
    """with DisableTorchFunction(): neither classes nor modes take calls over."""
    _all = True


_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction = DisableTorchFunctionSubclass, DisableTorchFunction
_nowrap = {getattr(Tensor, n) for n in ("_base", "grad", "_grad")}


def _is_getter(func):
    return type(func) is type(Tensor._base)


def _convert(r, cls):
    if isinstance(r, Tensor) and not isinstance(r, cls):
        return r.as_subclass(cls)
    if isinstance(r, (tuple, list)):
        new = [_convert(x, cls) for x in r]
        if all(a is b for a, b in zip(new, r)):
            return r
        return new if isinstance(r, list) else tuple(new) if type(r) is tuple else type(r)(new)
    return r


def _foreign(func):
    """A function of PyTorch itself that was given one of our tensors: it cannot take it, and we cannot run it."""
    if _C.Tensor.__module__.startswith("torch"):
        return False  # under the alias the name is ours
    owner = getattr(func, "__objclass__", None) or func
    return str(getattr(owner, "__module__", "")).split(".")[0] == "torch"


@classmethod
def __torch_function__(cls, func, types, args=(), kwargs=None):
    """A subclass that says nothing else: the call runs as it would, and tensors come back as that subclass."""
    if not all(issubclass(cls, t) for t in types) or _foreign(func):
        return NotImplemented
    r = _C._disabled_torch_function_impl(func, types, args, kwargs)
    return r if _is_getter(func) and func in _nowrap else _convert(r, cls)


_C._tensor_set("__torch_function__", __torch_function__)

for _f in (__deepcopy__, __reduce_ex__, __copy__, __array_wrap__, new):
    _C._tensor_set(_f.__name__, _f)


# --- sparse tensors: the methods that dense ones have (taper.sparse is loaded when one is called) -------------------
def _to_sparse(name):
    def method(self, *args, **kwargs):
        from .sparse import _tensor
        return _tensor._outside(getattr(_tensor, name))(self, *args, **kwargs)
    method.__name__, method.__qualname__ = name, "Tensor." + name
    return method


def _only_sparse(name):
    def method(self, *args):
        raise RuntimeError(f"{name} expected sparse tensor layout but got Strided")
    method.__name__, method.__qualname__ = name, "Tensor." + name
    return method


for _n in ("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_coo", "to_dense", "sparse_mask"):
    _C._tensor_set(_n, _to_sparse(_n))
for _n in ("indices", "values", "_indices", "_values", "coalesce", "is_coalesced", "_nnz", "crow_indices", "col_indices", "ccol_indices", "row_indices"):
    _C._tensor_set(_n, _only_sparse(_n))
_C._tensor_set("sparse_dim", lambda self: 0)
_C._tensor_set("dense_dim", lambda self: self.dim())


_C._capture_role(_C._legacy_new, "polyfill:legacy_new")
_C._capture_role(Tensor, "polyfill:legacy_tensor")


class _TypedMeta(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor) and obj.dtype is cls.dtype


def _typed(name, dtype):
    def __new__(cls, *args, **kwargs):
        return _C._legacy_new(dtype, args)

    return _TypedMeta(name, (), {"__new__": __new__, "dtype": dtype, "__module__": "taper", "is_cuda": False,
                                 "__doc__": f"{name}(sizes or sequence): a tensor of {dtype}.\n\n>>> taper.{name}([1, 0]).dtype\n{dtype}\n"})


FloatTensor, DoubleTensor = _typed("FloatTensor", _C.float32), _typed("DoubleTensor", _C.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", _C.float16), _typed("BFloat16Tensor", _C.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", _C.int64), _typed("IntTensor", _C.int32)
ShortTensor, CharTensor = _typed("ShortTensor", _C.int16), _typed("CharTensor", _C.int8)
ByteTensor, BoolTensor = _typed("ByteTensor", _C.uint8), _typed("BoolTensor", _C.bool)
