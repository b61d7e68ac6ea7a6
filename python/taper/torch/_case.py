"""A graph with its inputs and the backend that fails on it: running, judging, saving and reading one."""
import ast
import contextlib
import hashlib
import importlib
import json
import os
import platform
import re
import runpy
import sys
import time

import torch
from . import _compare, _graph

FORMAT = 1
CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config", "torch.fx.experimental._config")
# What decides where and how fast something is compiled, or what the debugger itself does: not part of a failure.
_OWN = ("repro_after", "repro_level", "compile_threads", "fx_graph_cache", "enable_autograd_cache", "force_disable_caches", "worker_start_method",
        "disable", "suppress_errors", "unlift_effect_tokens", "fake_tensor_allow_unsafe_data_ptr_access", "selective_decompose")


class Outcome:
    """How a trial ended. kind: pass, compile error, exception, wrong result, comes and goes, signal, time-out, out of memory, cannot run."""
    __slots__ = ("kind", "message", "identity", "asked")

    def __init__(self, kind, message="", identity="", asked=()):
        self.kind, self.message, self.identity, self.asked = kind, message, identity, list(asked)

    def same(self, other):
        return self.kind == other.kind and self.identity == other.identity

    def __repr__(self):
        return f"{self.kind}: {self.message}" if self.message else self.kind


def identity(error):
    """An exception without what changes from run to run: the innermost class and its message without numbers, quoted names and paths."""
    inner = error
    while type(inner).__name__ != "CppCompileError":  # its cause says only that a process failed
        nxt = getattr(inner, "inner_exception", None) or (inner.__cause__ if type(inner).__module__.startswith(("torch._dynamo", "torch._inductor")) else None)
        if nxt is None or nxt is inner:
            break
        inner = nxt
    said = str(inner)
    compiler = re.search(r"\berror: ([^\n]*)", said) if "CppCompileError" in said + type(inner).__name__ else None
    first = compiler[1] if compiler else next((l for l in said.splitlines() if l.strip()), "")
    first = re.sub(r"'[^']*'|\"[^\"]*\"|‘[^’]*’|/\S+|0x[0-9a-f]+|[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "_", first)
    name = "CppCompileError" if compiler else type(inner).__name__
    return f"{name}: {first.strip()}"[:200]


def describe(error):
    inner = getattr(error, "inner_exception", None) or error
    said = str(inner)
    m = re.search(r"[^\n]*\berror: [^\n]*", said) if "CppCompileError" in said + type(inner).__name__ else None
    line = m[0] if m else next((l for l in said.splitlines() if l.strip()), "")
    return f"{type(inner).__name__}: {line.strip()}"[:400]


# ---- the backend ----
def backend_name(backend):
    """A name by which another process finds the backend."""
    if isinstance(backend, str):
        return backend
    module, name = getattr(backend, "__module__", None), getattr(backend, "__qualname__", None)
    if module and name and module != "__main__" and "<" not in name:
        return f"{module}:{name}"
    return f"__main__:{getattr(backend, '__name__', type(backend).__name__)}"


def find_backend(name):
    if not isinstance(name, str):
        return name
    if ":" in name:
        module, attr = name.split(":", 1)
        if module == "__main__" and os.environ.get("TAPER_TORCH_SCRIPT"):
            return _of_script(os.environ["TAPER_TORCH_SCRIPT"], attr)
        if module == "__main__":
            raise LookupError(f"the backend '{attr}' stands in the program itself; move it to a module of its own, which other processes can import")
        obj = importlib.import_module(module)
        for p in attr.split("."):
            obj = getattr(obj, p)
        return obj
    if name == "taper":
        from ._backend import backend
        return backend
    return name


_scripts = {}


def _of_script(path, attr):
    """A function that a program defines: it is run once more, uncompiled, in silence. Only doctor does this, which runs the program anyway."""
    if path not in _scripts:
        compile, torch.compile = torch.compile, lambda model=None, **kw: model if model is not None else lambda m: m
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
                _scripts[path] = runpy.run_path(path, run_name="__taper__")
        except BaseException as e:
            raise LookupError(f"the backend '{attr}' stands in {path}, which cannot be run for it: {describe(e)}") from None
        finally:
            torch.compile = compile
    if attr not in _scripts[path]:
        raise LookupError(f"{path} has no '{attr}' unless it is the main program; move the backend to a module of its own")
    return _scripts[path][attr]


def changed_settings():
    """Settings of PyTorch's compiler that are not at their defaults, as assignments."""
    out = []
    for name in CONFIGS:
        try:
            module = importlib.import_module(name)
            lines = module.codegen_config().splitlines()
        except Exception:  # not in this version
            continue
        for line in lines:
            key, _, value = line.partition("=")
            key = key.strip()[len(name) + 1:]
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):  # a function: a part of the program
                continue
            entry = getattr(module, "_config", {}).get(key)
            if key.split(".")[-1] not in _OWN and (entry is None or getattr(entry, "default", None) != value):
                out.append(line)
    return out


def apply_settings(lines):
    for line in lines:
        path, _, value = line.partition("=")
        owner, _, key = path.strip().rpartition(".")
        if not owner.startswith("torch.") or ".config" not in owner and not owner.endswith("_config"):
            raise ValueError(f"not a setting of PyTorch's: {line!r}")
        m = re.match(r"(torch[\w.]*?config)(?:\.(.*))?$", owner)
        obj = importlib.import_module(m[1])
        full = f"{m[2]}.{key}" if m[2] else key
        _set(obj, full, ast.literal_eval(value.strip()))


def _set(obj, dotted, value):
    *path, last = dotted.split(".")
    for p in path:
        obj = getattr(obj, p)
    setattr(obj, last, value)


class Case:
    """graph, inputs (tensors and numbers), grad (compare gradients, too), and how: backend, dynamic, settings, threads, draws."""
    __slots__ = ("graph", "inputs", "grad", "how")

    def __init__(self, graph, inputs, grad, how):
        self.graph, self.inputs, self.grad, self.how = graph, list(inputs), grad, how

    def but(self, **kw):
        return Case(kw.get("graph", self.graph), kw.get("inputs", self.inputs), kw.get("grad", self.grad), kw.get("how", self.how))

    def key(self):
        h = hashlib.sha256(_graph.function(self.graph).encode())
        h.update(repr((self.grad, sorted((k, str(v)) for k, v in self.how.items()))).encode())
        for x in self.inputs:
            h.update(repr((x.data_ptr(), x._version, tuple(x.shape), x.stride(), x.dtype, x.requires_grad) if isinstance(x, torch.Tensor) else x).encode())
        return h.digest()

    @property
    def size(self):
        return sum(op.kind != "graph" for op in self.graph.ops)


def new_how(backend="inductor", **kw):
    return {"backend": backend_name(backend), "dynamic": None, "mode": None, "options": None, "settings": changed_settings(),
            "threads": torch.get_num_threads(), "fallback_random": False, "seed": 0, **kw}


# ---- running ----
def fresh(inputs, double=False):
    """Copies of inputs; those that share memory share it again."""
    stores, out = {}, []
    for x in inputs:
        if not isinstance(x, torch.Tensor):
            out.append(x)
            continue
        if double or x.layout is not torch.strided or type(x) not in (torch.Tensor, torch.nn.Parameter) or x.is_quantized:
            y = x.detach().clone()
            y = _graph.double(y) if double else y
        else:
            s = x.untyped_storage()
            if s._cdata not in stores:
                stores[s._cdata] = s.clone()
            y = torch.empty(0, dtype=x.dtype, device=x.device).set_(stores[s._cdata], x.storage_offset(), x.shape, x.stride())
        out.append(y.requires_grad_(x.requires_grad) if x.requires_grad else y)
    return out


def weights(t):
    """What the gradients of a result are multiplied by: not all alike, so that nothing cancels."""
    w = torch.cos(torch.arange(t.numel(), dtype=torch.float64, device=t.device)).reshape(t.shape) + 1.5
    return w.to(t.dtype)


def execute(fn, inputs, grad, seed=0, double=False):
    """[results, gradients, inputs as they are afterwards], from fresh copies of the inputs."""
    xs = fresh(inputs, double)
    torch.manual_seed(seed)
    grad = grad and any(isinstance(x, torch.Tensor) and x.requires_grad for x in xs)
    with torch.set_grad_enabled(grad):
        leaves = [x for x in xs if isinstance(x, torch.Tensor) and x.requires_grad]
        out = fn(*xs)
        flat = torch.utils._pytree.tree_leaves(out)
        roots = [o for o in flat if isinstance(o, torch.Tensor) and o.requires_grad and o.grad_fn is not None] if grad else []
        grads = torch.autograd.grad(roots, leaves, [weights(o) for o in roots], allow_unused=True) if roots and leaves else ()
    plain = lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v
    return [[plain(o) for o in flat], [plain(g) for g in grads], [plain(x) for x in xs if isinstance(x, torch.Tensor)]]


def no_caches():
    """Settings under which compiling happens here and now, whatever was compiled before."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor
    inductor.compile_threads, inductor.fx_graph_cache = 1, False
    for name in ("enable_autograd_cache", "strict_autograd_cache"):
        if hasattr(functorch, name):
            setattr(functorch, name, False)
    os.environ["TAPER_CACHE"] = "0"


def judge(case, repeat=2):
    """Runs a case in this process: an Outcome. Only a child should do this."""
    asked = []
    if case.how.get("refuse"):
        from ._bisect import install
        install(case.how["refuse"], asked)
    o = _judge(case, repeat)
    o.asked = asked
    return o


def _judge(case, repeat):
    how, fn = case.how, _graph.make(case.graph)
    try:
        want = execute(fn, case.inputs, case.grad, how["seed"])
    except Exception as e:
        return Outcome("cannot run", describe(e))
    try:
        exact = execute(_graph.make(_graph.in_double(case.graph)), case.inputs, case.grad, how["seed"], double=True)
    except Exception:  # an operator without float64
        exact = None
    apply_settings(how["settings"])
    import torch._inductor.config as inductor
    inductor.fallback_random = inductor.fallback_random or how["fallback_random"]
    torch._dynamo.config.suppress_errors = False
    no_caches()
    torch._dynamo.reset()
    phase = {"compiling": 0}
    inner = find_backend(how["backend"])
    kw = {k: how[k] for k in ("mode", "options") if how.get(k)}
    if isinstance(inner, str) and inner != "inductor":
        inner = torch._dynamo.backends.registry.lookup_backend(inner)
    if not isinstance(inner, str):
        call, more = inner, kw

        def inner(gm, examples):
            phase["compiling"] += 1
            run = call(gm, examples, **more)
            phase["compiling"] -= 1
            return run
        kw = {}
    compiled = torch.compile(_graph.make(case.graph), backend=inner, dynamic=how["dynamic"], **kw)
    runs = []
    try:
        for _ in range(repeat):
            runs.append(execute(compiled, case.inputs, case.grad, how["seed"]))
    except Exception as e:
        memory = isinstance(e, MemoryError) or "allocate memory" in str(e) or "out of memory" in str(e)
        if memory:
            return Outcome("out of memory", describe(e))
        compiling = phase["compiling"] or type(e).__module__ in ("torch._dynamo.exc", "torch._inductor.exc")
        return Outcome("compile error" if compiling else "exception", describe(e), identity(e))
    why = _compare.differs(runs[0], want, exact)
    if why:
        odd = any(bool(torch.isnan(t).any()) for t in torch.utils._pytree.tree_leaves(want) if isinstance(t, torch.Tensor) and t.is_floating_point())
        return Outcome("wrong result", _plain_place(why, want), "eager gives NaN" if odd else "")
    for r in runs[1:]:
        why = _compare.differs(r, want, exact)
        if why:
            return Outcome("comes and goes", "two runs of the compiled graph on the same inputs give other values: " + _plain_place(why, want))
    return Outcome("pass")


def _plain_place(why, want):
    m = re.match(r"result (\d): result (\d+): (.*)", why, re.S)
    if not m:
        return why
    return f"{('result', 'gradient', 'input afterwards')[int(m[1])]} {m[2]}: {m[3]}"


# ---- on disk ----
def versions():
    return {"torch": torch.__version__, "git": getattr(torch.version, "git_version", ""), "python": platform.python_version(), "machine": platform.machine(),
            "system": platform.system(), "cuda": getattr(torch.version, "cuda", None)}


def run_folder(root=None):
    base = root or os.environ.get("TAPER_COMPILE_DEBUG_DIR") or os.getcwd()
    global _run
    if _run is None or _run[0] != (base, os.getpid()):
        _run = ((base, os.getpid()), os.path.join(base, "taper_compile_debug", time.strftime("run_%Y_%m_%d_%H_%M_%S") + f"-pid_{os.getpid()}"))
    return _run[1]


_run = None


def save(folder, case, outcome, name=""):
    """graph.py, inputs.pt, failure.json."""
    os.makedirs(folder, exist_ok=True)
    source = _graph.function(case.graph) + "\n"
    with open(os.path.join(folder, "graph.py"), "w", encoding="utf-8") as f:
        f.write(source)
    torch.save([x.detach() if isinstance(x, torch.nn.Parameter) else x for x in _cpu(case.inputs)], os.path.join(folder, "inputs.pt"))
    facts = {"format": FORMAT, "subject": "torch", "name": name, "how": case.how, "grad": case.grad,
             "requires_grad": [isinstance(x, torch.Tensor) and x.requires_grad for x in case.inputs],
             "failure": {"kind": outcome.kind, "message": outcome.message, "identity": outcome.identity}, "operators": case.size,
             "versions": versions(), "graph_sha256": hashlib.sha256(source.encode()).hexdigest()}
    with open(os.path.join(folder, "failure.json"), "w", encoding="utf-8") as f:
        json.dump(facts, f, indent=1)
        f.write("\n")
    return folder


def _cpu(inputs):
    return [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]


def read(folder):
    """(case, recorded outcome). ValueError names what is damaged."""
    def want(name):
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise ValueError(f"{folder} is no saved failure of a PyTorch backend: {name} is missing")
        return path

    try:
        with open(want("failure.json"), encoding="utf-8") as f:
            facts = json.load(f)
    except json.JSONDecodeError as e:
        raise ValueError(f"failure.json is damaged: {e}") from None
    if facts.get("subject") != "torch" or facts.get("format") != FORMAT:
        raise ValueError(f"{folder}: the failure is not one of a PyTorch backend, or of another version")
    with open(want("graph.py"), encoding="utf-8") as f:
        source = f.read()
    if hashlib.sha256(source.encode()).hexdigest() != facts["graph_sha256"]:
        raise ValueError("graph.py is not the graph that was saved (its digest differs)")
    try:
        graph = _graph.parse(source)
        inputs = torch.load(want("inputs.pt"), weights_only=True)
    except (_graph.NoName, SyntaxError) as e:
        raise ValueError(f"graph.py: {e}") from None
    except (RuntimeError, EOFError, OSError) as e:
        raise ValueError(f"inputs.pt is damaged: {e}") from None
    if len(inputs) != len(graph.inputs):
        raise ValueError(f"inputs.pt holds {len(inputs)} inputs, the graph has {len(graph.inputs)}")
    inputs = [x.requires_grad_() if g else x for x, g in zip(inputs, facts["requires_grad"])]
    f = facts["failure"]
    return Case(graph, inputs, facts["grad"], facts["how"]), Outcome(f["kind"], f["message"], f["identity"])
