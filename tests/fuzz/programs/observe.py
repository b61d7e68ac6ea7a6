"""The harness around a generated program: runs its text one way and writes down everything that can be seen.

What is seen is a list of records, one for each call, show() and grads(): structure, identity of objects, and of every tensor
its dtype, sizes, strides, offset, flags, whether it was written to, the storage it lies in, and its values."""
import contextlib
import gc
import io
import linecache
import sys
import traceback

MOST = 200  # values of a tensor that are written down


class Watcher:
    """Numbers tensors and storages by their first appearance; holds them, so that no address is used twice."""

    def __init__(self, torch):
        self.torch, self.objects, self.storages, self.held, self.versions = torch, {}, {}, [], {}

    def tensor(self, t, new=True):
        """A tensor; one that is not new by itself (a gradient, which may be there or not) gets no numbers of its own."""
        torch = self.torch
        number = self.objects.setdefault(id(t), len(self.objects)) if new else self.objects.get(id(t))
        self.held.append(t)
        out = {"is": number, "type": type(t).__name__, "dtype": str(t.dtype).split(".")[-1], "shape": list(t.shape), "stride": list(t.stride()), "offset": t.storage_offset(),
               "requires_grad": t.requires_grad, "leaf": t.is_leaf, "inference": t.is_inference(), "fn": t.grad_fn is not None}
        store = t.untyped_storage()
        if t.numel() and store.data_ptr():
            out["storage"] = self.storages.setdefault(store.data_ptr(), len(self.storages)) if new else self.storages.get(store.data_ptr())
            self.held.append(store)
        if id(t) in self.versions and not t.is_inference():  # of a new tensor the count says nothing
            out["written"] = t._version > self.versions[id(t)]
            self.versions[id(t)] = t._version
        with torch.no_grad():
            flat = t.detach().reshape(-1)[:MOST]
            out["values"] = flat.to(torch.float64).tolist() if t.is_floating_point() else flat.tolist()
        if (t.is_leaf or t.retains_grad) and t.grad is not None:
            out["grad"] = self.tensor(t.grad, False) if t.grad is not t else "itself"
        return out

    def thing(self, x, depth=0):
        torch = self.torch
        if isinstance(x, torch.Tensor):
            return self.tensor(x)
        if x is None or isinstance(x, (bool, int, str)):
            return x if type(x) in (type(None), bool, int, str) else [type(x).__name__, str(x)]
        if isinstance(x, float):
            return {"float": x}
        if depth > 5:
            return "..."
        if isinstance(x, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return str(x)
        extra = {}
        if isinstance(x, dict):
            extra["items"] = [[self.thing(k, depth + 1), self.thing(v, depth + 1)] for k, v in list(x.items())]
        elif isinstance(x, (set, frozenset)):
            extra["items"] = sorted(map(repr, x)) if all(isinstance(i, (int, str)) for i in x) else len(x)
        elif isinstance(x, (list, tuple)):
            extra["items"] = [self.thing(v, depth + 1) for v in list.__iter__(x)] if isinstance(x, list) else [self.thing(v, depth + 1) for v in tuple.__iter__(x)]
        elif callable(x) and type(x).__module__ != "program" and not isinstance(x, torch.nn.Module):
            return "callable"
        fields = getattr(x, "__dict__", None)
        if id(x) in self.objects:
            return {"again": self.objects[id(x)]} if not extra else {"kind": type(x).__name__, **extra}
        if not isinstance(x, (tuple, list, dict, set)) or type(x).__module__ == "program":
            self.objects[id(x)] = len(self.objects)
            self.held.append(x)
        if isinstance(x, torch.nn.Module):
            fields = {**dict(x.named_parameters()), **dict(x.named_buffers()), **{k: v for k, v in fields.items() if k in ("calls", "last", "training")}}
        if fields is None and hasattr(type(x), "__slots__"):
            fields = {k: getattr(x, k) for k in type(x).__slots__ if hasattr(x, k) and isinstance(k, str)}
        if fields:
            extra["fields"] = {k: self.thing(v, depth + 1) for k, v in list(fields.items()) if not k.startswith("__")}
        return {"kind": type(x).__name__, **extra}

    def before(self, x):
        """Versions of a call's tensors, to see which were written to."""
        for t in self.leaves(x, objects=True):
            if not t.is_inference():
                self.versions[id(t)] = t._version
                self.held.append(t)

    def leaves(self, x, depth=0, objects=False):
        """The tensors in a result, in order."""
        if isinstance(x, self.torch.Tensor):
            return [x]
        if depth > 4:
            return []
        if objects and getattr(x, "__dict__", None) and not callable(x):
            x = [dict(x.__dict__), list(x.items())] if isinstance(x, dict) else dict(x.__dict__)
        if isinstance(x, dict):
            x = list(x.values())
        if isinstance(x, (list, tuple)):
            return [t for v in x for t in self.leaves(v, depth + 1, objects)]
        return []


def where(e, path):
    """The line of the program at which an exception was raised, innermost."""
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == path]
    return lines[-1] if lines else None


def run(torch, text, path, wrap):
    """Run the program; wrap(f, **options) is what its compile() does. Returns the list of records."""
    seen, watch = [], Watcher(torch)

    def failed(e):
        seen.append({"exception": type(e).__name__, "mro": [k.__name__ for k in type(e).__mro__], "message": str(e), "line": where(e, path)})

    def call(f, *args, **kwargs):
        watch.before(args)
        try:
            r = f(*args, **kwargs)
        except Exception as e:
            failed(e)
            return None
        return r

    def show(**things):
        out = {}
        for k, v in things.items():
            try:
                out[k] = watch.thing(v)
            except Exception as e:
                out[k] = {"unshown": type(e).__name__ + ": " + str(e)[:200]}
        seen.append({"show": out})

    def grads(r, leaves, double=False):
        with torch.enable_grad():
            backward(r, leaves, double)

    def backward(r, leaves, double):
        try:
            leaves = [t for t in leaves if t.requires_grad and t.is_leaf]
            outs = [t for t in watch.leaves(r) if t.requires_grad and t.is_floating_point()]
            if not outs or not leaves:
                return
            loss = 0
            for i, t in enumerate(outs):
                loss = loss + (t.to(torch.float64) * (i + 1)).sum()
            if double:
                first = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
                seen.append({"show": {"first": watch.thing([g.detach() if g is not None else None for g in first])}})
                first = [g for g in first if g is not None and g.requires_grad]
                if first:
                    second = torch.autograd.grad(sum((g.to(torch.float64) * g).sum() for g in first), leaves, allow_unused=True)
                    seen.append({"show": {"second": watch.thing(list(second))}})
            else:
                loss.backward()
                seen.append({"show": {"grads": watch.thing([t.grad for t in leaves])}})
        except Exception as e:
            failed(e)

    def poke(x):
        """Write into the first tensor: what shares its memory shows it."""
        try:
            with torch.no_grad():
                for t in watch.leaves(x)[:1]:
                    t.detach().reshape(-1)[:1].fill_(7) if not t.is_inference() else None
        except Exception as e:
            failed(e)

    def lies(t):
        return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []

    out = io.StringIO()
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    names = {"__name__": "program", "__file__": path, "compile": wrap, "call": call, "show": show, "grads": grads, "poke": poke, "lies": lies}
    import types
    module = types.ModuleType("program")
    module.__dict__.update(names)
    sys.modules["program"] = module
    torch.manual_seed(7)
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(text, path, "exec"), module.__dict__)
        except Exception as e:
            failed(e)
    state = {"grad": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(), "autocast": torch.is_autocast_enabled("cpu")}
    seen.append({"state": state})
    seen.append({"printed": out.getvalue()})
    torch.set_grad_enabled(True)
    sys.modules.pop("program", None)
    gc.collect(0)
    return seen
