"""Names of the original's C module that packages touch, put into ours."""
import contextlib as _contextlib
import enum as _enum

from . import _C
from ._absent import absent_class as _absent_class


class DispatchKey(_enum.Enum):
    """Where a call could be taken over; here the order is fixed."""
    (Undefined, Dense, FPGA, CPU, CUDA, Meta, MPS, XPU, BackendSelect, Python, Functionalize, ADInplaceOrView, AutogradOther, AutogradFunctionality, Autograd,
     AutogradCPU, AutogradCUDA, AutogradMeta, AutogradXPU, Tracer, AutocastCPU, AutocastXPU, AutocastCUDA, AutocastMPS, PythonTLSSnapshot, PreDispatch,
     CompositeExplicitAutograd, CompositeImplicitAutograd, CompositeImplicitAutogradNestedTensor, CompositeExplicitAutogradNonFunctional, QuantizedCPU,
     SparseCPU, SparseCUDA, NestedTensorCPU, FuncTorchBatched, FuncTorchVmapMode, Batched, PrivateUse1, Sparse, Conjugate, Negative, ZeroTensor) = range(42)


class Tag(_enum.Enum):
    """What is known of an operator."""
    (core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace_view, maybe_aliasing_or_mutating,
     needs_contiguous_strides, needs_exact_strides, needs_fixed_stride_order, nondeterministic_bitwise, nondeterministic_seeded, out, pointwise,
     pt2_compliant_tag, reduction, view_copy) = range(18)


class DispatchKeySet:
    def __init__(self, *keys):
        self.keys = set()
        for k in keys:
            self.keys |= k.keys if isinstance(k, DispatchKeySet) else {k}

    def has(self, k):
        return k in self.keys

    def add(self, k):
        return DispatchKeySet(self, k)

    def remove(self, k):
        out = DispatchKeySet(self)
        out.keys.discard(k)
        return out

    def __or__(self, other):
        return DispatchKeySet(self, other)

    def __and__(self, other):
        out = DispatchKeySet()
        out.keys = self.keys & other.keys
        return out

    def __sub__(self, other):
        out = DispatchKeySet()
        out.keys = self.keys - other.keys
        return out

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and self.keys == other.keys

    def __hash__(self):
        return hash(frozenset(self.keys))

    def __repr__(self):
        return f"DispatchKeySet({', '.join(sorted(k.name for k in self.keys))})"


@_contextlib.contextmanager
def _ExcludeDispatchKeyGuard(keys):
    """Inside, autocast is off where its keys are named: that is the one of these that can be left out."""
    if any(k.name.startswith("Autocast") for k in keys.keys):
        from .amp import autocast
        with autocast("cpu", enabled=False):
            yield
    else:
        yield


def _log_api_usage_once(name):
    """Nothing is counted."""


def _get_tracing_state():
    return None


def _get_accelerator():
    return _C.device("cpu")


def _parse_to(*args, **kwargs):
    """(device, dtype, non_blocking, memory_format) of the arguments of Tensor.to or Module.to."""
    device = dtype = None
    rest = list(args)
    if rest and isinstance(rest[0], _C.Tensor):
        t = rest.pop(0)
        device, dtype = t.device, t.dtype
    else:
        if rest and isinstance(rest[0], (str, _C.device)) or rest and rest[0] is None:
            d = rest.pop(0)
            device = _C.device(d) if isinstance(d, str) else d
        if rest and isinstance(rest[0], _C.dtype):
            dtype = rest.pop(0)
    if kwargs.get("device") is not None:
        device = _C.device(kwargs["device"]) if isinstance(kwargs["device"], str) else kwargs["device"]
    dtype = kwargs.get("dtype") or dtype
    return device, dtype, kwargs.get("non_blocking", bool(rest and rest[0])), kwargs.get("memory_format")


def _nothing(*args):
    return False


def _install():
    scope = globals()
    for n in ("DispatchKey", "DispatchKeySet", "_ExcludeDispatchKeyGuard", "_log_api_usage_once", "_get_tracing_state", "_get_accelerator"):
        setattr(_C, n, scope[n])
    for n in ("_jit_set_profiling_executor", "_jit_set_profiling_mode", "_jit_override_can_fuse_on_cpu", "_jit_override_can_fuse_on_gpu", "_jit_can_fuse_on_cpu",
              "_jit_can_fuse_on_gpu", "_jit_set_texpr_fuser_enabled", "_jit_set_nvfuser_enabled", "_jit_set_nvfuser_guard_mode", "_is_torch_function_mode_enabled",
              "_are_functorch_transforms_active", "_set_math_sdp_allow_fp16_bf16_reduction"):
        if not hasattr(_C, n):
            setattr(_C, n, _nothing)
    import types
    _C._nn = types.SimpleNamespace(_parse_to=_parse_to)
    for n in ("Graph", "Value", "Node", "ScriptFunction", "ScriptModule"):
        if not hasattr(_C, n):
            setattr(_C, n, _absent_class("taper._C", n, "there is no TorchScript"))
    _C.Tag = Tag
    for n in ("_TensorBase", "TensorBase"):
        setattr(_C, n, _C.Tensor)
    _C._TensorMeta = type(_C.Tensor)
    _C._get_default_device = lambda: str(_C.get_default_device())
    _C._get_privateuse1_backend_name = lambda: "privateuseone"


_install()
