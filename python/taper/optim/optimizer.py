"""The base of all optimisers. Plain Python over tensor operators, so that capture can trace a step."""
import copy
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

import taper


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


class Optimizer:
    """What all optimizers share: groups of parameters with options, state, zero_grad, step, state_dict.

    >>> taper.optim.SGD([nn.Parameter(taper.ones(2))], lr=0.1).param_groups[0]["lr"]
    0.1
    """
    def __init__(self, params, defaults):
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._step_pre_hooks, self._step_post_hooks = {}, {}
        if isinstance(params, taper.Tensor):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {taper.typename(params)}")
        if not isinstance(params, Iterable):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {taper.typename(params)}"
                            + ("; give it model.parameters()" if hasattr(params, "parameters") else ""))
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for g in groups:
            self.add_param_group(g)

    def add_param_group(self, group):
        if not isinstance(group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(group)}")
        params = group["params"]
        if isinstance(params, taper.Tensor):
            group["params"] = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change between runs. Please use a list instead.")
        else:
            group["params"] = list(params)
        group["params"] = [p[1] if isinstance(p, tuple) else p for p in group["params"]]
        for p in group["params"]:
            if not isinstance(p, taper.Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {taper.typename(p)}")
            if not (p.is_leaf or p.requires_grad is False):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        ids = [id(p) for p in group["params"]]
        if len(ids) != len(set(ids)):
            import warnings
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error", stacklevel=3)
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        if not seen.isdisjoint(ids):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if set_to_none:
                        p.grad = None
                    else:
                        p.grad = taper.zeros_like(p.grad)

    def step(self, closure=None):
        """One update; closure() recomputes the loss and returns it."""
        loss = None
        if closure is not None:
            with taper.enable_grad():
                loss = closure()
        for hook in self._step_pre_hooks.values():
            hook(self, (), {})
        with taper.no_grad():
            for group in self.param_groups:
                self._update(group)
        for hook in self._step_post_hooks.values():
            hook(self, (), {})
        return loss

    sparse = False  # may gradients be sparse?
    like = ()  # names of the state's tensors that are laid out like the parameter and begin as zeros

    def _begin(self, group, p):
        """The state of a parameter before its first step."""
        state = {"step": taper.zeros((), dtype=taper.float32)}
        for name in self.like:
            state[name] = taper.zeros_like(p)
        return state

    def _update(self, group):
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse and not self.sparse:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead")
            state = self.state.get(p)
            if not state:
                state = self._begin(group, p)
                if state:
                    self.state[p] = state
            self._move(group, p, -g if group.get("maximize") else g, state)

    def _move(self, group, p, g, state):
        """One step of one parameter."""
        raise NotImplementedError

    def register_step_pre_hook(self, hook):
        from ..nn.modules.module import RemovableHandle
        h = RemovableHandle(self._step_pre_hooks)
        self._step_pre_hooks[h.id] = hook
        return h

    def register_step_post_hook(self, hook):
        from ..nn.modules.module import RemovableHandle
        h = RemovableHandle(self._step_post_hooks)
        self._step_post_hooks[h.id] = hook
        return h

    def state_dict(self):
        index, groups = {}, []
        for g in self.param_groups:
            d = {k: v for k, v in g.items() if k != "params"}
            for p in g["params"]:
                index.setdefault(id(p), len(index))
            d["params"] = [index[id(p)] for p in g["params"]]
            groups.append(d)
        state = {(index[id(p)] if isinstance(p, taper.Tensor) else p): v for p, v in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict):
        groups = copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        by_id = dict(zip(chain.from_iterable(g["params"] for g in groups), chain.from_iterable(g["params"] for g in self.param_groups)))

        def cast(param, value, key=None):
            if isinstance(value, taper.Tensor):
                if key == "step":
                    return value.clone()
                return value.to(param.dtype).clone() if param.is_floating_point() else value.clone()
            if isinstance(value, dict):
                return {k: cast(param, v, k) for k, v in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(cast(param, v) for v in value)
            return value

        self.state = defaultdict(dict)
        for k, v in state_dict["state"].items():
            if k in by_id:
                self.state[by_id[k]] = cast(by_id[k], v)
            else:
                self.state[k] = v
        for old, new in zip(self.param_groups, groups):
            new["params"] = old["params"]
            old.update(new)

    def __repr__(self):
        s = type(self).__name__ + " ("
        for i, g in enumerate(self.param_groups):
            s += f"\nParameter Group {i}\n"
            for k in sorted(g):
                if k != "params":
                    s += f"    {k}: {g[k]}\n"
        return s + ")"

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._step_pre_hooks, self._step_post_hooks = {}, {}


def _check(name, value, ok, text=None):
    if isinstance(value, taper.Tensor):
        if value.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        return
    if not ok:
        raise ValueError(f"Invalid {text or name}: {value}")
