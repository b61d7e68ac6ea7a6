"""Parametrisation: a parameter computed from others each time it is read."""
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter


class ParametrizationList(ModuleList):
    def __init__(self, modules, original):
        super().__init__(modules)
        new = original
        for m in reversed(self):
            if hasattr(m, "right_inverse"):
                new = m.right_inverse(new)
        self.ntensors = 1
        if isinstance(new, (tuple, list)):
            self.ntensors = len(new)
            for i, t in enumerate(new):
                setattr(self, f"original{i}", t if isinstance(t, Parameter) else Parameter(t))
        elif new is original:
            self.original = original
        else:
            self.original = Parameter(new, requires_grad=original.requires_grad)

    def forward(self):
        first = self[0]
        if self.ntensors > 1:
            x = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        else:
            x = first(self.original)
        for m in list(self)[1:]:
            x = m(x)
        return x


def is_parametrized(module, tensor_name=None):
    p = module._modules.get("parametrizations")
    return p is not None and (tensor_name is None or tensor_name in p)


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    if is_parametrized(module, tensor_name):
        plist = module.parametrizations[tensor_name]
        plist.append(parametrization)
        return module
    if tensor_name not in module._parameters:
        raise ValueError(f"Module '{module}' does not have a parameter with name '{tensor_name}'")
    original = module._parameters.pop(tensor_name)
    if not is_parametrized(module):
        cls = type(module)
        module.__class__ = type("Parametrized" + cls.__name__, (cls,), {"_parametrized_class": cls})
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = ParametrizationList([parametrization], original)

    def read(self, _name=tensor_name):
        return self.parametrizations[_name]()

    setattr(type(module), tensor_name, property(read))
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    plist = module.parametrizations[tensor_name]
    value = Parameter(plist().detach()) if leave_parametrized or plist.ntensors > 1 else plist.original
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if len(module.parametrizations) == 0:
        del module._modules["parametrizations"]
        module.__class__ = type(module)._parametrized_class
    module.register_parameter(tensor_name, value)
    return module


class cached:
    """Named for programs that use it; values are computed at each read."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations", "Module"]
