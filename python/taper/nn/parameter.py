"""Parameter and Buffer: tensors that a Module registers when they are assigned to it."""
from .. import _C


class Parameter(_C.Tensor):
    """A tensor that is learnt: assigning it to a Module adds it to parameters().

    >>> nn.Parameter(taper.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """
    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C._op_functions[""]["zeros"]([0])
        if not isinstance(data, _C.Tensor):
            raise TypeError(f"Parameter needs a Tensor, not {type(data).__name__}")
        if data.layout is not _C.strided:
            raise NotImplementedError("a Parameter that is a sparse tensor is not supported; make its values the Parameter")
        return _C._make_subclass(cls, data.detach(), requires_grad)

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = result
        return result

    def __reduce_ex__(self, proto):
        return _rebuild_parameter, (type(self), self.data, self.requires_grad)


_C._capture_role(Parameter, "polyfill:new_parameter")


def _rebuild_parameter(cls, data, requires_grad):
    return cls(data, requires_grad)


class Buffer(_C.Tensor):
    """A tensor that is state but not learnt: assigning it to a Module adds it to buffers().

    >>> nn.Buffer(taper.ones(2))
    tensor([1., 1.])
    """
    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _C._op_functions[""]["zeros"]([0])
        b = _C._make_subclass(cls, data.detach(), False)
        b.persistent = persistent
        return b


_NO_SHAPE = ("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying to load an "
             "uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing their attributes.")


class _Uninitialized:
    """Has a type and a device, but no shape until materialize() gives it one."""

    def materialize(self, shape, device=None, dtype=None):
        self.data = _C._op_functions[""]["empty"](list(shape), device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError(_NO_SHAPE)

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, proto):
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter of a lazy module that has not seen an input.

    >>> nn.LazyLinear(3).weight.__class__.__name__
    'UninitializedParameter'
    """
    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return _C._make_subclass(cls, _C._op_functions[""]["empty"]([0], device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, _C.Tensor):
    """A buffer of a lazy module that has not seen an input.

    >>> nn.LazyBatchNorm1d().running_mean.__class__.__name__
    'UninitializedBuffer'
    """
    cls_to_become = Buffer

    def __new__(cls, requires_grad=False, device=None, dtype=None):
        b = _C._make_subclass(cls, _C._op_functions[""]["empty"]([0], device=device, dtype=dtype), requires_grad)
        b.persistent = True
        return b


def is_lazy(param):
    return isinstance(param, _Uninitialized)
