"""Parameter and Buffer: tensors that a Module registers when they are assigned to it."""
from .. import _C


class Parameter(_C.Tensor):
    """A tensor that is learnt: assigning it to a Module adds it to parameters()."""

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C._op_functions[""]["zeros"]([0])
        if not isinstance(data, _C.Tensor):
            raise TypeError(f"Parameter needs a Tensor, not {type(data).__name__}")
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


def _rebuild_parameter(cls, data, requires_grad):
    return cls(data, requires_grad)


class Buffer(_C.Tensor):
    """A tensor that is state but not learnt: assigning it to a Module adds it to buffers()."""

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _C._op_functions[""]["zeros"]([0])
        b = _C._make_subclass(cls, data.detach(), False)
        b.persistent = persistent
        return b


class UninitializedParameter(Parameter):
    """Named for programs that test for it; lazy modules are not provided."""
