"""Parameters with some of their elements held at zero by a mask."""
import abc as _abc

import taper


class BasePruningMethod(_abc.ABC):
    PRUNING_TYPE = "unstructured"

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @_abc.abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask of t: 1 keeps."""

    def apply_mask(self, module):
        mask, orig = getattr(module, self._tensor_name + "_mask"), getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """module.name becomes name_orig times name_mask, computed before each forward."""
        old = [(k, h) for k, h in module._forward_pre_hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        orig = getattr(module, name)
        scores = importance_scores if importance_scores is not None else orig
        if scores.shape != orig.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        if old:
            for k, h in old:
                del module._forward_pre_hooks[k]
            default = getattr(module, name + "_mask").detach().clone()
            container = old[0][1] if isinstance(old[0][1], PruningContainer) else PruningContainer(old[0][1])
            container._tensor_name = name
            container.add_pruning_method(method)
            method = container
        else:
            default = taper.ones_like(orig)
            module.register_parameter(name + "_orig", orig)
            del module._parameters[name]
        mask = method.compute_mask(scores, default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        scores = importance_scores if importance_scores is not None else t
        return t * self.compute_mask(scores, default_mask if default_mask is not None else taper.ones_like(t))

    def remove(self, module):
        value = self.apply_mask(module)
        orig = module._parameters[self._tensor_name + "_orig"]
        module.__dict__.pop(self._tensor_name, None)
        orig.data = value.data
        del module._parameters[self._tensor_name + "_orig"]
        del module._buffers[self._tensor_name + "_mask"]
        module.register_parameter(self._tensor_name, orig)


class PruningContainer(BasePruningMethod):
    """Methods one after the other."""

    def __init__(self, *args):
        self._pruning_methods = tuple(args)
        if args:
            self._tensor_name = args[0]._tensor_name

    def add_pruning_method(self, method):
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, i):
        return self._pruning_methods[i]

    def compute_mask(self, t, default_mask):
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            where = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            d = method.dim % t.dim()
            left = default_mask.sum([i for i in range(t.dim()) if i != d]) != 0
            where = [slice(None)] * t.dim()
            where[d] = left
            where = tuple(where)
        else:
            where = tuple([slice(None)] * t.dim())
        mask = mask.clone()
        mask[where] = method.compute_mask(t[where], default_mask[where])
        return mask


def _count(amount, size):
    """How many of size: a number, or a fraction."""
    if isinstance(amount, int):
        if amount < 0 or amount > size:
            raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return amount
    if not 0.0 <= amount <= 1.0:
        raise ValueError(f"amount={amount} should be a float in the range [0, 1]")
    return round(amount * size)


class Identity(BasePruningMethod):
    def compute_mask(self, t, default_mask):
        return default_mask


class RandomUnstructured(BasePruningMethod):
    def __init__(self, amount):
        self.amount = amount

    def compute_mask(self, t, default_mask):
        n, mask = _count(self.amount, t.nelement()), default_mask.clone()
        if n:
            mask.view(-1)[taper.topk(taper.rand_like(t).view(-1), n).indices] = 0
        return mask


class L1Unstructured(BasePruningMethod):
    def __init__(self, amount):
        self.amount = amount

    def compute_mask(self, t, default_mask):
        n, mask = _count(self.amount, t.nelement()), default_mask.clone()
        if n:
            mask.view(-1)[taper.topk(taper.abs(t).view(-1), n, largest=False).indices] = 0
        return mask


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"

    def compute_mask(self, t, default_mask):
        n, mask = _count(self.amount, t.shape[self.dim]), default_mask.clone()
        if n:
            at = [slice(None)] * t.dim()
            at[self.dim] = taper.topk(self.scores(t), n, largest=False).indices
            mask[tuple(at)] = 0
        return mask


class RandomStructured(_Structured):
    def __init__(self, amount, dim=-1):
        self.amount, self.dim = amount, dim

    def scores(self, t):
        return taper.rand(t.shape[self.dim])


class LnStructured(_Structured):
    def __init__(self, amount, n, dim=-1):
        self.amount, self.n, self.dim = amount, n, dim

    def scores(self, t):
        d = self.dim % t.dim()
        return taper.linalg.vector_norm(t, self.n, dim=[i for i in range(t.dim()) if i != d])


class CustomFromMask(BasePruningMethod):
    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module, name):
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """One choice over all parameters together."""
    parameters, scores = list(parameters), importance_scores or {}
    flat = taper.nn.utils.parameters_to_vector([scores.get((m, n), getattr(m, n)) for m, n in parameters])
    default = taper.nn.utils.parameters_to_vector([getattr(m, n + "_mask", taper.ones_like(getattr(m, n))) for m, n in parameters])
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container = PruningContainer(method)
    mask, at = container.compute_mask(flat, default), 0
    for m, n in parameters:
        k = getattr(m, n).numel()
        custom_from_mask(m, n, mask[at:at + k].view_as(getattr(m, n)))
        at += k


def remove(module, name):
    """The parameter becomes an ordinary one, with the value it has now."""
    for k, h in list(module._forward_pre_hooks.items()):
        if isinstance(h, BasePruningMethod) and h._tensor_name == name:
            h.remove(module)
            del module._forward_pre_hooks[k]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    return any(isinstance(h, BasePruningMethod) for _, m in module.named_modules() for h in m._forward_pre_hooks.values())
