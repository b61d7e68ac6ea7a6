"""Fully sharded parameters: each rank keeps a part of every parameter, of its gradient and of its optimizer state.

A module given to fully_shard() gathers its parameters before its forward and lets go of them after it; backward gathers them
again, and gradients arrive as the mean over ranks, each rank its part. Everything is made of functional collectives, so a
compiled step has them in its graphs."""
import taper

from .... import nn
from ....library import CustomOpDef
from ... import _functional_collectives as fc
from ... import distributed_c10d as c10d

__all__ = ["FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "CPUOffloadPolicy", "ShardedParameter", "ShardedTensor", "fully_shard", "register_fsdp_forward_method"]


class MixedPrecisionPolicy:
    """param_dtype: of parameters in forward and backward; reduce_dtype: in which gradients are joined; output_dtype: of results."""

    def __init__(self, param_dtype=None, reduce_dtype=None, output_dtype=None, cast_forward_inputs=True):
        self.param_dtype, self.reduce_dtype, self.output_dtype, self.cast_forward_inputs = param_dtype, reduce_dtype, output_dtype, cast_forward_inputs


class OffloadPolicy:
    """Parts stay where they are."""


class CPUOffloadPolicy(OffloadPolicy):
    """Parts lie in the memory of the CPU (they do)."""

    def __init__(self, pin_memory=True):
        self.pin_memory = pin_memory


class ShardInfo:
    """Which part of which whole a tensor is: rows [start, start + rows) of shape."""

    def __init__(self, shape, start, rows, group):
        self.shape, self.start, self.rows, self.group = tuple(shape), start, rows, group


class _Sharded:
    __torch_function__ = taper._C._disabled_torch_function_impl  # what operators make of it is a plain tensor

    def to_local(self):
        return taper.Tensor.detach(self)

    def full_tensor(self):
        """The whole, on every rank."""
        n = self._shard.group.size()
        pad = -(-self._shard.shape[0] // n)
        local = taper.Tensor.detach(self)
        if local.shape[0] < pad:
            local = taper.cat([local, local.new_zeros((pad - local.shape[0], *local.shape[1:]))])
        out = local.new_empty((n * pad, *local.shape[1:]))
        c10d.all_gather_into_tensor(out, local, self._shard.group)
        return out[:self._shard.shape[0]].clone()


class ShardedTensor(_Sharded, taper.Tensor):
    """A part of a tensor, without gradient: what state_dict() of a sharded module holds."""


class ShardedParameter(_Sharded, nn.Parameter):
    """This rank's part of a parameter. shape is that of the part; full_tensor() gives the whole."""

    def detach(self):
        t = taper._C._make_subclass(ShardedTensor, taper.Tensor.detach(self), False)
        t._shard = self._shard
        return t


# --- gathering: the gradient is the mean over ranks
def _gather_backward(ctx, grad):
    size, group, reduce = ctx.args
    g = grad.to(getattr(taper, reduce)) if reduce else grad
    return fc.wait_tensor(fc._reduce_scatter(g.contiguous(), "avg", size, group)).to(grad.dtype), None, None, None


def _gather_save(ctx, inputs, output):
    ctx.args = inputs[1:]


def _gather_kernel(input, group_size, group_name, reduce_dtype):
    out = taper.empty((input.shape[0] * group_size,), dtype=input.dtype)
    return fc._keep(out, c10d.all_gather_into_tensor(out, input.contiguous(), c10d._resolve_process_group(group_name), async_op=True))


_gather = CustomOpDef("taper_fsdp::all_gather", "taper_fsdp::all_gather(Tensor input, int group_size, str group_name, str reduce_dtype) -> Tensor",
                      _gather_kernel, effects=True)
_gather.register_fake(lambda x, size, group, reduce: taper.empty((x.shape[0] * size,), dtype=x.dtype, device=x.device))
_gather.register_autograd(_gather_backward, setup_context=_gather_save)


class _Entry:
    def __init__(self, places, param, n, r):
        self.places, self.shape, self.dtype = places, tuple(param.shape), param.dtype
        if not self.shape:
            raise ValueError("fully_shard doesn't support scalar parameters. Change it to a 1D tensor with numel equal to 1.")
        rows = self.shape[0]
        self.pad = -(-rows // n)
        self.start = min(rows, r * self.pad)
        self.rows = min(rows, (r + 1) * self.pad) - self.start
        self.each = param.numel() // rows if rows else 0
        self.length = self.pad * self.each


class _Unit:
    """The parameters of one fully_shard() call."""

    def __init__(self, module, group, reshard, policy, ignored):
        self.group, self.name, self.n, self.r = group, group.group_name, group.size(), group.rank()
        self.reshard, self.policy = reshard, policy
        self.reduce = str(policy.reduce_dtype).split(".")[-1] if policy.reduce_dtype is not None else ""
        self.entries, self.params, self.again, self.live = [], [], None, {}
        places = {}
        for m in _own_modules(module):
            for name, p in m._parameters.items():
                if p is not None and not isinstance(p, ShardedParameter) and id(p) not in ignored:
                    places.setdefault(id(p), (p, []))[1].append((m, name))
        for p, where in places.values():
            e = _Entry(where, p, self.n, self.r)
            whole = p.detach().contiguous().clone()
            c10d.broadcast(whole, group=group, group_src=0)  # rank 0's values count
            part = taper._C._make_subclass(ShardedParameter, whole[e.start:e.start + e.rows].clone(), p.requires_grad)
            part._shard = ShardInfo(e.shape, e.start, e.rows, group)
            for m, name in where:
                m._parameters[name] = part
            self.entries.append(e)
            self.params.append(part)
            if p.requires_grad:
                part.register_post_accumulate_grad_hook(self._let_go)

    def _let_go(self, p):
        self.again = None

    def gather(self, params):
        """The whole parameters, from the parts."""
        by_type = {}
        for i, (e, p) in enumerate(zip(self.entries, params)):
            by_type.setdefault(self.policy.param_dtype or e.dtype, []).append(i)
        out = [None] * len(self.entries)
        for dtype, which in by_type.items():
            flat = []
            for i in which:
                e, part = self.entries[i], params[i].reshape(-1)
                part = part if part.dtype == dtype else part.to(dtype)
                if e.rows * e.each < e.length:
                    part = taper.cat([part, part.new_zeros(e.length - e.rows * e.each)])
                flat.append(part)
            flat = taper.cat(flat) if len(flat) > 1 else flat[0]
            whole = fc.wait_tensor(_gather(flat, self.n, self.name, self.reduce)).view(self.n, -1)
            for i, piece in zip(which, whole.split([self.entries[i].length for i in which], 1)):
                e = self.entries[i]
                out[i] = piece.reshape(self.n * e.pad, *e.shape[1:])[:e.shape[0]]
        return out

    # Saved tensors that are parameters are not kept: backward gathers them again.
    def pack(self, t):
        i = self.live.get(t.untyped_storage().data_ptr())
        return t if i is None else (i, tuple(t.shape), tuple(t.stride()), t.storage_offset())

    def unpack(self, saved):
        if isinstance(saved, taper.Tensor):
            return saved
        i, size, stride, offset = saved
        if self.again is None:
            with taper.no_grad():
                self.again = self.gather([taper.Tensor.detach(p) for p in self.params])
        return self.again[i].as_strided(size, stride, offset)


def _own_modules(module):
    """The modules inside that no other fully_shard() call has taken."""
    yield module
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from _own_modules(child)


def _cast(x, dtype):
    return x.to(dtype) if isinstance(x, taper.Tensor) and x.is_floating_point() and x.dtype != dtype else x


class FSDPModule:
    """What fully_shard() makes of a module's class."""

    def forward(self, *args, **kwargs):
        unit = self._fsdp_unit
        policy = unit.policy
        if policy.param_dtype is not None and policy.cast_forward_inputs:
            args = tuple(_cast(a, policy.param_dtype) for a in args)
            kwargs = {k: _cast(v, policy.param_dtype) for k, v in kwargs.items()}
        whole = unit.gather(unit.params)
        for e, t in zip(unit.entries, whole):
            for m, name in e.places:
                m.__dict__[name] = t
        try:
            if unit.reshard and taper.is_grad_enabled() and not taper.compiler.is_compiling():
                unit.again = None
                unit.live = {t.untyped_storage().data_ptr(): i for i, t in enumerate(whole)}
                with taper.autograd.graph.saved_tensors_hooks(unit.pack, unit.unpack):
                    out = super().forward(*args, **kwargs)
                unit.live = {}
            else:
                out = super().forward(*args, **kwargs)
        finally:
            for e in unit.entries:
                for m, name in e.places:
                    del m.__dict__[name]
        if policy.output_dtype is not None:
            out = taper.utils._pytree.tree_map(lambda x: _cast(x, policy.output_dtype), out)
        return out

    def unshard(self, async_op=False):
        """Here for programs that call it: forward gathers what it needs."""

    def reshard(self):
        self._fsdp_unit.again = None

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        if not requires_gradient_sync:
            raise NotImplementedError("fully_shard: gradients of parts are joined in every backward; add losses up before backward instead")

    def set_is_last_backward(self, is_last_backward):
        pass

    def set_modules_to_forward_prefetch(self, modules):
        pass

    def set_modules_to_backward_prefetch(self, modules):
        pass

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        for m in self.modules() if recurse else [self]:
            if isinstance(m, FSDPModule):
                m._fsdp_unit.reshard = bool(reshard_after_forward)


_classes = {}


def fully_shard(module, *, mesh=None, reshard_after_forward=True, shard_placement_fn=None, mp_policy=None, offload_policy=None, ignored_params=None):
    """Shards the parameters of a module that no fully_shard() call on a module inside it has taken. Call it from the inside out."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)) and type(module).forward is nn.Module.forward:
        raise ValueError(f"fully_shard does not support containers that do not implement forward: {module}")
    if isinstance(module, FSDPModule):
        raise AssertionError("the module is sharded already")
    if mesh is not None and mesh.ndim != 1:
        raise NotImplementedError("fully_shard over a mesh of several dimensions")
    group = mesh.get_group() if mesh is not None else c10d._get_default_group()
    unit = _Unit(module, group, bool(reshard_after_forward), mp_policy or MixedPrecisionPolicy(), {id(p) for p in ignored_params or ()})
    cls = type(module)
    if cls not in _classes:
        _classes[cls] = type("FSDP" + cls.__name__, (FSDPModule, cls), {"__module__": cls.__module__})
    module.__dict__["_fsdp_unit"] = unit
    module.__class__ = _classes[cls]
    return module


def register_fsdp_forward_method(module, method_name):
    raise NotImplementedError("register_fsdp_forward_method: fully_shard gathers parameters for forward() alone")
