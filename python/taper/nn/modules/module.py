"""Module: the base of everything that holds parameters."""
import copy
import itertools
import os
import sys
from collections import OrderedDict, namedtuple

import taper
from ..._C import _module_attr, _module_hooked
from ..._never import never_captured
from ..parameter import Buffer, Parameter

_IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # packages look for it in state dictionaries


class _Incompatible(_IncompatibleKeys):
    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class RemovableHandle:
    """Returned by register_*_hook; remove() takes the hook away again. Also a context manager."""

    _ids = itertools.count()

    def __init__(self, hooks, *extra):
        self.hooks = hooks
        self.extra = extra
        self.id = next(RemovableHandle._ids)

    def remove(self):
        self.hooks.pop(self.id, None)
        for d in self.extra:
            d.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def _indent(text, n):
    lines = text.split("\n")
    if len(lines) == 1:
        return text
    return lines[0] + "\n" + "\n".join(" " * n + line for line in lines[1:])


def _too_early(what, module):
    e = AttributeError(f"cannot assign {what} before Module.__init__() call")
    e.add_note(f"Hint: begin {type(module).__name__}.__init__ with super().__init__().")
    return e


def _running(traced):
    """The module that is being called, as a path from the outermost one: "Net.body.1, a Linear(...)"; None: none is.

    traced: (code, first argument) of the calls of compiled functions, which have no frames of Python; the innermost comes first."""
    codes, calls, frame = (Module.__call__.__code__, Module._call_with_hooks.__code__), [], sys._getframe()
    traced = [first for code, first in traced if code in codes and isinstance(first, Module)]
    while frame is not None:
        if frame.f_code in codes:
            calls.append(frame.f_locals.get("self"))
        frame = frame.f_back
    mixed, calls = bool(traced and calls), list({id(m): m for m in traced + calls}.values())
    if mixed:  # which of both kinds is inside of which is not known, but which module is a part of which
        parts = [{id(m) for m in c.modules()} for c in calls]
        calls.sort(key=lambda m: -sum(id(m) in p for p in parts))
    if not calls:
        return None
    parent = calls.pop()
    path = type(parent).__name__
    for module in reversed(calls):
        found = next((n for n, m in parent.named_modules() if m is module), None)
        path = ".".join([path, *(n for n in found.split(".") if n != "_orig_mod")]) if found else f"{path} > {type(module).__name__}"
        parent = module
    text = repr(parent)
    return f"{path}, {text}" if "\n" not in text and text != path else path


class Module:
    """Base class: assign Parameters, Buffers and Modules as attributes, define forward().

    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    training: bool
    dump_patches = False
    _version = 1  # of the names and meanings of its state, kept in state dicts
    call_super_init = False

    def __init__(self, *args, **kwargs):
        if not self.call_super_init:
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_modules"] = {}
        d["_forward_hooks"] = OrderedDict()
        d["_forward_hooks_with_kwargs"] = OrderedDict()
        d["_forward_pre_hooks"] = OrderedDict()
        d["_forward_pre_hooks_with_kwargs"] = OrderedDict()
        d["_backward_hooks"] = OrderedDict()
        d["_backward_pre_hooks"] = OrderedDict()
        d["_state_dict_hooks"] = OrderedDict()
        d["_state_dict_pre_hooks"] = OrderedDict()
        d["_load_state_dict_pre_hooks"] = OrderedDict()
        d["_load_state_dict_post_hooks"] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # --- calling ------------------------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        if _module_hooked(self) or _global_forward_hooks or _global_forward_pre_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args, kwargs):
        for i, hook in [*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
            if i in self._forward_pre_hooks_with_kwargs:
                r = hook(self, args, kwargs)
                if r is not None:
                    if not (isinstance(r, tuple) and len(r) == 2):
                        raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {r}.")
                    args, kwargs = r
            else:
                r = hook(self, args)
                if r is not None:
                    args = r if isinstance(r, tuple) else (r,)
        bw = None
        if self._backward_hooks or self._backward_pre_hooks:
            bw = _BackwardHook(self)
            args = bw.wrap_inputs(args)
        result = self.forward(*args, **kwargs)
        for i, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
            r = hook(self, args, kwargs, result) if i in self._forward_hooks_with_kwargs else hook(self, args, result)
            if r is not None:
                result = r
        if bw is not None:
            result = bw.wrap_outputs(result)
        return result

    # --- hooks ---------------------------------------------------------------------------------------------
    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """hook(module, args) runs before forward and may return new arguments."""
        h = RemovableHandle(self._forward_pre_hooks, self._forward_pre_hooks_with_kwargs)
        self._forward_pre_hooks[h.id] = hook
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[h.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(h.id, last=False)
        return h

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """hook(module, args, output) runs after forward and may return another output."""
        h = RemovableHandle(self._forward_hooks, self._forward_hooks_with_kwargs)
        self._forward_hooks[h.id] = hook
        if with_kwargs:
            self._forward_hooks_with_kwargs[h.id] = True
        if prepend:
            self._forward_hooks.move_to_end(h.id, last=False)
        return h

    def register_full_backward_hook(self, hook, prepend=False):
        """hook(module, grad_input, grad_output) runs when the gradients of the inputs are ready."""
        h = RemovableHandle(self._backward_hooks)
        self._backward_hooks[h.id] = hook
        if prepend:
            self._backward_hooks.move_to_end(h.id, last=False)
        return h

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """hook(module, grad_output) runs before the module's backward and may return other gradients."""
        h = RemovableHandle(self._backward_pre_hooks)
        self._backward_pre_hooks[h.id] = hook
        if prepend:
            self._backward_pre_hooks.move_to_end(h.id, last=False)
        return h

    def register_state_dict_post_hook(self, hook):
        h = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[h.id] = hook
        return h

    _register_state_dict_hook = register_state_dict_post_hook

    def register_state_dict_pre_hook(self, hook):
        h = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[h.id] = hook
        return h

    def register_load_state_dict_pre_hook(self, hook):
        h = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[h.id] = lambda *a: hook(self, *a)
        return h

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        """The older name; the hook gets the module only where with_module says so."""
        h = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[h.id] = (lambda *a: hook(self, *a)) if with_module else hook
        return h

    def register_load_state_dict_post_hook(self, hook):
        h = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[h.id] = hook
        return h

    # --- attributes ---------------------------------------------------------------------------------------
    def __getattr__(self, name):
        return _module_attr(self, name)

    def __setattr__(self, name, value):
        d = self.__dict__
        params = d.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise _too_early("parameters", self)
            d.pop(name, None)
            d["_buffers"].pop(name, None)
            d["_modules"].pop(name, None)
            d["_non_persistent_buffers_set"].discard(name)
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if params is None:
                raise _too_early("module", self)
            d.pop(name, None)
            params.pop(name, None)
            d["_buffers"].pop(name, None)
            d["_non_persistent_buffers_set"].discard(name)
            d["_modules"][name] = value
        elif params is not None and name in d["_modules"]:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' (torch.nn.Module or None expected)")
            d["_modules"][name] = None
        elif params is not None and (isinstance(value, Buffer) or name in d["_buffers"]):
            if value is not None and not isinstance(value, taper.Tensor):
                raise TypeError(f"cannot assign '{_typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)")
            if isinstance(value, Buffer):
                self.register_buffer(name, value, value.persistent)
            else:
                d["_buffers"][name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name):
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self):
        keys = set(dir(type(self))) | set(self.__dict__) | set(self._parameters) | set(self._modules) | set(self._buffers)
        return sorted(k for k in keys if not k[0].isdigit())

    def _check_name(self, what, name, value, kind):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    def register_parameter(self, name, param):
        self._check_name("parameter", name, param, Parameter)
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"attribute '{name}' already exists")
        if param is None:
            self._parameters[name] = None
        elif not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        elif param.grad_fn is not None:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                             "To express '" + name + "' as a function of another Tensor, compute the value in the forward() method.")
        else:
            self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        self._check_name("buffer", name, tensor, taper.Tensor)
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, taper.Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        if not isinstance(module, Module) and module is not None:
            e = TypeError(f"{_typename(module)} is not a Module subclass")
            if isinstance(module, (list, tuple)):
                e.add_note(f"Hint: {type(self).__name__} takes modules, one after another: {type(self).__name__}(*modules) unpacks a list.")
            elif isinstance(module, type):
                e.add_note(f"Hint: {module.__name__} is the class; {module.__name__}(...) makes a module.")
            raise e
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {_typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = module

    register_module = add_module

    # --- walking ---------------------------------------------------------------------------------------------
    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        if memo is None:
            memo = set()
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            for name, m in self._modules.items():
                if m is not None:
                    yield from m.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self):
        for _, m in self.named_modules():
            yield m

    def named_children(self):
        seen = set()
        for name, m in self._modules.items():
            if m is not None and m not in seen:
                seen.add(m)
                yield name, m

    def children(self):
        for _, m in self.named_children():
            yield m

    def _named_members(self, get, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        mods = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for mp, m in mods:
            for k, v in get(m):
                if v is None or v in seen:
                    continue
                if remove_duplicate:
                    seen.add(v)
                yield mp + ("." if mp else "") + k, v

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def get_submodule(self, target):
        m = self
        if target:
            for part in target.split("."):
                if not hasattr(m, part):
                    raise AttributeError(f"{type(m).__name__} has no attribute `{part}`")
                m = getattr(m, part)
                if not isinstance(m, Module):
                    raise AttributeError(f"`{part}` is not an nn.Module")
        return m

    def get_parameter(self, target):
        path, _, name = target.rpartition(".")
        m = self.get_submodule(path)
        if not hasattr(m, name):
            raise AttributeError(f"{type(m).__name__} has no attribute `{name}`")
        p = getattr(m, name)
        if not isinstance(p, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return p

    def get_buffer(self, target):
        path, _, name = target.rpartition(".")
        m = self.get_submodule(path)
        if name not in m._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return m._buffers[name]

    # --- modes and moves --------------------------------------------------------------------------------------
    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for m in self.children():
            m.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad = taper.zeros_like(p.grad)

    def apply(self, fn):
        for m in self.children():
            m.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        if recurse:
            for m in self.children():
                m._apply(fn)
        for p in self._parameters.values():
            if p is None:
                continue
            with taper.no_grad():
                new = fn(p)
            p.data = new
            if p.grad is not None:
                with taper.no_grad():
                    g = fn(p.grad)
                p.grad.data = g
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def to(self, *args, **kwargs):
        dtype, device = kwargs.get("dtype"), kwargs.get("device")
        for a in args:
            if isinstance(a, taper.dtype):
                dtype = a
            elif isinstance(a, taper.Tensor):
                dtype, device = a.dtype, a.device
            else:
                device = a
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def move(t):
            return t.to(device=device if device is not None else t.device, dtype=dtype if dtype is not None and t.is_floating_point() else t.dtype)

        return self._apply(move)

    def type(self, dtype):
        return self._apply(lambda t: t.to(dtype))

    def float(self):
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self):
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self):
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self):
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cpu(self):
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        return self._apply(lambda t: t.cuda(device))

    def share_memory(self):
        return self

    def compile(self, *args, **kwargs):
        """Compile forward in place; the same keyword arguments as taper.compile."""
        self.forward = taper.compile(self.forward, *args, **kwargs)

    # --- state dicts -------------------------------------------------------------------------------------------
    def get_extra_state(self):
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state):
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + "_extra_state"] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, m in self._modules.items():
            if m is not None:
                m.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            r = hook(self, destination, prefix, local_metadata)
            if r is not None:
                destination = r
        return destination

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        persistent = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        for name, param in itertools.chain(self._parameters.items(), persistent.items()):
            if param is None:
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = state_dict[key]
            if not isinstance(value, taper.Tensor):
                error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but received {type(value)}')
                continue
            if value.shape != param.shape and not (value.dim() == 1 and param.dim() == 0 and len(value) == 1):
                error_msgs.append(f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in current model is {param.shape}.")
                continue
            with taper.no_grad():
                if assign:
                    if isinstance(param, Parameter):
                        value = value if isinstance(value, Parameter) else Parameter(value, param.requires_grad)
                    setattr(self, name, value)
                else:
                    param.copy_(value.reshape(param.shape) if value.shape != param.shape else value)
        extra = prefix + "_extra_state"
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    name = key[len(prefix):].split(".", 1)
                    if name[0] not in self._modules and (len(name) > 1 or name[0] not in self._parameters and name[0] not in persistent):
                        unexpected_keys.append(key)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy values in; strict: keys must match exactly. Returns the missing and unexpected keys."""
        if not hasattr(state_dict, "keys"):
            e = TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
            if isinstance(state_dict, (str, os.PathLike)):
                e.add_note(f"Hint: read the file first: load_state_dict(taper.load({os.fspath(state_dict)!r})).")
            raise e
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module, prefix):
            local = dict((metadata or {}).get(prefix[:-1], {}), assign_to_params_buffers=assign)
            module._load_from_state_dict(state_dict, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    load(child, prefix + name + ".")
            result = _Incompatible(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                hook(module, result)

        load(self, "")
        if strict:
            if unexpected:
                errors.insert(0, "Unexpected key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in unexpected)))
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in missing)))
        if errors:
            e = RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors)))
            if strict and (missing or unexpected):
                e.add_note("Hint: names differ between the file and the model; load_state_dict(..., strict=False) takes those that both have.")
            raise e
        return _Incompatible(missing, unexpected)

    # --- text ---------------------------------------------------------------------------------------------------
    def extra_repr(self):
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        kids = [f"({name}): " + _indent(repr(m), 2) for name, m in self._modules.items()]
        body = lines + kids
        text = self._get_name() + "("
        if body:
            if len(lines) == 1 and not kids:
                text += lines[0]
            else:
                text += "\n  " + "\n  ".join(body) + "\n"
        return text + ")"

    def __getstate__(self):
        state = self.__dict__.copy()
        if isinstance(state.get("forward"), taper._C.CompiledFunction):  # compile() was called: that one runs this module
            if getattr(state["forward"].__wrapped__, "__self__", None) is self:
                del state["forward"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name, value in Module().__dict__.items():  # a file of another version may lack some
            self.__dict__.setdefault(name, value)

    def _replicate_for_data_parallel(self):
        return copy.copy(self)


def _typename(v):
    t = type(v)
    return t.__name__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__name__}"


_global_forward_hooks = OrderedDict()
_global_forward_pre_hooks = OrderedDict()


def register_module_forward_hook(hook):
    """hook(module, args, output) for every module."""
    h = RemovableHandle(_global_forward_hooks)
    _global_forward_hooks[h.id] = hook
    return h


def register_module_forward_pre_hook(hook):
    """hook(module, args) for every module."""
    h = RemovableHandle(_global_forward_pre_hooks)
    _global_forward_pre_hooks[h.id] = hook
    return h


def _natively(fn):
    return never_captured(fn, reason="hooks on the gradients of a module see what other hooks have left while gradients are computed")


class _BackwardHook:
    """Catches the gradients at a module's inputs and outputs with identity nodes on the tape."""

    def __init__(self, module):
        self.module = module
        self.grad_outputs = None
        self.has_inputs = False

    @_natively
    def wrap_inputs(self, args):
        idx = [i for i, a in enumerate(args) if isinstance(a, taper.Tensor) and a.requires_grad]
        if not idx or not taper.is_grad_enabled():
            return args
        self.has_inputs = True
        owner = self

        class _In(taper.autograd.Function):
            @staticmethod
            def forward(ctx, *xs):
                return tuple(x.view_as(x) for x in xs)

            @staticmethod
            def backward(ctx, *grads):
                full = [None] * len(args)
                for i, g in zip(idx, grads):
                    full[i] = g
                full = owner.run(tuple(full))
                return tuple(full[i] for i in idx)

        outs = _In.apply(*[args[i] for i in idx])
        outs = outs if isinstance(outs, tuple) else (outs,)
        new = list(args)
        for i, o in zip(idx, outs):
            new[i] = o
        return tuple(new)

    def run(self, grad_in):
        for hook in self.module._backward_hooks.values():
            r = hook(self.module, grad_in, self.grad_outputs)
            if r is not None:
                grad_in = r if isinstance(r, tuple) else (r,)
        return grad_in

    @_natively
    def wrap_outputs(self, result):
        single = isinstance(result, taper.Tensor)
        outs = (result,) if single else tuple(result) if isinstance(result, (tuple, list)) else None
        if outs is None:
            return result
        idx = [i for i, o in enumerate(outs) if isinstance(o, taper.Tensor) and o.requires_grad]
        if not idx:
            return result
        owner = self

        class _Out(taper.autograd.Function):
            @staticmethod
            def forward(ctx, *xs):
                return tuple(x.view_as(x) for x in xs)

            @staticmethod
            def backward(ctx, *grads):
                full = [None] * len(outs)
                for i, g in zip(idx, grads):
                    full[i] = g
                full = tuple(full)
                for hook in owner.module._backward_pre_hooks.values():
                    r = hook(owner.module, full)
                    if r is not None:
                        full = r if isinstance(r, tuple) else (r,)
                owner.grad_outputs = full
                if not owner.has_inputs:
                    owner.run((None,) * 0)
                return tuple(full[i] for i in idx)

        wrapped = _Out.apply(*[outs[i] for i in idx])
        wrapped = wrapped if isinstance(wrapped, tuple) else (wrapped,)
        new = list(outs)
        for i, o in zip(idx, wrapped):
            new[i] = o
        return new[0] if single else type(result)(new)
