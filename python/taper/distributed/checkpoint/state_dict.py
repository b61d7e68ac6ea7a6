"""State dicts of models and optimizers with names that do not depend on wrappers or on the number of ranks."""
import dataclasses

import taper

from .. import distributed_c10d as c10d


@dataclasses.dataclass
class StateDictOptions:
    full_state_dict: bool = False  # whole tensors instead of parts
    cpu_offload: bool = False  # (whole tensors) at rank 0 alone
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False


def _clean(name):
    return ".".join(p for p in name.split(".") if p not in ("module", "_orig_mod")) if name else name


def _names(model):
    from ...nn.parallel.distributed import DistributedDataParallel
    wrapped = any(isinstance(m, DistributedDataParallel) for m in model.modules()) or any("_orig_mod" in n for n, _ in model.named_modules())
    return {n: (_clean(n) if wrapped else n) for n in model.state_dict()}


def _whole(v):
    return v.full_tensor() if hasattr(v, "full_tensor") else v


def get_model_state_dict(model, *, submodules=None, options=None):
    o = options or StateDictOptions()
    names = _names(model)
    out = {names[k]: (_whole(v) if o.full_state_dict else v) for k, v in model.state_dict().items()}
    return {} if o.full_state_dict and o.cpu_offload and c10d.is_initialized() and c10d.get_rank() else out


def _assign(target, value):
    """Into a tensor in place: a part of a whole where the target is a part."""
    info = getattr(target, "_shard", None)
    with taper.no_grad():
        if info is not None and tuple(value.shape) != tuple(target.shape):
            value = value[info.start:info.start + info.rows]
        taper.Tensor.detach(target).copy_(value)


def set_model_state_dict(model, model_state_dict, *, options=None):
    from ...nn.modules.module import _IncompatibleKeys
    o = options or StateDictOptions()
    names = _names(model)
    own = model.state_dict(keep_vars=True)
    missing = [names[k] for k in own if names[k] not in model_state_dict]
    unexpected = [k for k in model_state_dict if k not in set(names.values())]
    if o.strict and (missing or unexpected):
        raise RuntimeError(f"Missing key(s) in state_dict: {missing}; unexpected key(s): {unexpected}")
    for k, t in own.items():
        if names[k] in model_state_dict:
            _assign(t, model_state_dict[names[k]])
    return _IncompatibleKeys(missing, unexpected)


def _marked(state, p):
    """State of a part is a part of the whole's state."""
    if hasattr(p, "_shard") and isinstance(state, taper.Tensor) and state.shape == p.shape and state.ndim:
        from ..fsdp._fully_shard import ShardedTensor
        t = taper._C._make_subclass(ShardedTensor, state.detach(), False)
        t._shard = p._shard
        return t
    return state


def _of(model, optimizer):
    names = _names(model)
    by_id = {id(p): names.get(n, n) for n, p in model.named_parameters()}
    return by_id


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """{"state": {parameter's name: {...}}, "param_groups": [...]} with names in place of numbers. Makes the state where there is none yet."""
    o = options or StateDictOptions()
    optimizers = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
    out = {"state": {}, "param_groups": []}
    for opt in optimizers:
        by_id = _of(model, opt)
        _make_state(opt)
        for g in opt.param_groups:
            out["param_groups"].append({**{k: v for k, v in g.items() if k != "params"}, "params": [by_id[id(p)] for p in g["params"]]})
            for p in g["params"]:
                if p in opt.state:
                    out["state"][by_id[id(p)]] = {k: (_whole(_marked(v, p)) if o.full_state_dict else _marked(v, p)) for k, v in opt.state[p].items()}
    return out


def _make_state(opt):
    """An optimizer makes its state at its first step: a step that changes nothing, so that there is something to load into."""
    if opt.state or not any(p.requires_grad for g in opt.param_groups for p in g["params"]):
        return
    kept = [(p, p.grad, taper.Tensor.detach(p).clone()) for g in opt.param_groups for p in g["params"]]
    rates = [g.get("lr") for g in opt.param_groups]
    for p, _, _ in kept:
        if p.requires_grad:
            p.grad = taper.zeros_like(taper.Tensor.detach(p))
    for g in opt.param_groups:
        g["lr"] = 0.0
    opt.step()
    with taper.no_grad():
        for p, grad, value in kept:
            taper.Tensor.detach(p).copy_(value)
            p.grad = grad
    for g, lr in zip(opt.param_groups, rates):
        g["lr"] = lr


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    optimizers = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
    groups = list(optim_state_dict["param_groups"])
    for opt in optimizers:
        by_id = _of(model, opt)
        _make_state(opt)
        for g in opt.param_groups:
            mine = [by_id[id(p)] for p in g["params"]]
            saved = next((s for s in groups if s["params"] == mine), None)
            if saved is not None:
                g.update({k: v for k, v in saved.items() if k != "params"})
            for p in g["params"]:
                for k, v in optim_state_dict["state"].get(by_id[id(p)], {}).items():
                    old = opt.state[p].get(k)
                    if isinstance(old, taper.Tensor) and isinstance(v, taper.Tensor):
                        _assign(_marked(old, p), v)
                    else:
                        opt.state[p][k] = v


def get_state_dict(model, optimizers, *, submodules=None, options=None):
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
