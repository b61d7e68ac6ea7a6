"""Failures of pure forward and backward graphs: the wrapper around a compiler, the script writer, and the script's end."""
import copy
import functools
import io
import itertools
import logging
import os

from ... import _C
from .. import backends, config
from ..debug_utils import minifier_dir
from ..exc import AccuracyError
from . import run as _run

log = logging.getLogger("taper._dynamo.repro.after_aot")
_numbers = itertools.count()
REFUSAL = "Repro is not generated due to existence of BackwardState in graph input"


def run_repro(mod, load_args, *, command="run", accuracy="", save_dir=None, tracing_mode=None, check_str=None, **kwargs):
    return _run.run_repro(mod, load_args, inner=True, command=command, accuracy=accuracy, save_dir=save_dir, tracing_mode=tracing_mode,
                          check_str=check_str, **kwargs)


# --- a graph module as the core's graph ---------------------------------------------------------------------------
_SHORT = {"bool": "b8", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16", "bfloat16": "bf16",
          "float32": "f32", "float64": "f64"}


def _type_of(x):
    if not isinstance(x, _C.Tensor):
        return None
    return f'"{_SHORT[str(x.dtype).split(".")[-1]]}[{", ".join(map(str, x.shape))}][{", ".join(map(str, x.stride()))}]cpu"'


def _graph(gm, args):
    """What _repro_new takes: the captured graph, or its text where it was edited."""
    if gm._capsule is not None and gm._state() == gm._mark:
        return gm._capsule
    from ...fx.graph import _show
    params, lines, k = [], [], 0
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            t = _type_of(args[k])
            params.append(f"{n.name}: {t}" if t else n.name)
            k += 1
        elif n.op == "output":
            a = n.args[0]
            lines.append("    return (" + "".join(_show(x) + ", " for x in (a if isinstance(a, (tuple, list)) else (a,))) + ")")
        elif n.op == "call_function":
            rows = getattr(n.target, "_rows", None)
            args_text = ", ".join([_show(a) for a in n.args] + [f"{key} = {_show(v)}" for key, v in n.kwargs.items()])
            name = repr(n.target) if hasattr(n.target, "full") else f"taper.{n.target.__name__}"
            if n.target.__module__ == "_operator":
                sign = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "matmul": "@", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==",
                        "ne": "!="}.get(n.target.__name__)
                if n.target.__name__ == "getitem":
                    lines.append(f"    {n.name} = {_show(n.args[0])}[{_show(n.args[1])}]")
                    continue
                if n.target.__name__ == "neg":
                    lines.append(f"    {n.name} = -{_show(n.args[0])}")
                    continue
                if sign and hasattr(n.args[0], "users"):
                    lines.append(f"    {n.name} = {_show(n.args[0])} {sign} {_show(n.args[1])}")
                    continue
                from ...fx.graph import function_of
                name, back = function_of(n)
                name = "taper." + name
                args_text = ", ".join(_show(a) for a in (reversed(n.args) if back else n.args))
            elif rows is not None and not hasattr(n.target, "full") and "nn.functional" in (getattr(n.target, "__module__", "") or ""):
                name = f"taper.nn.functional.{n.target.__name__}"
            if "." in name and hasattr(n.target, "full") and name.count(".") == 3:
                name += ".default"
            lines.append(f"    {n.name} = {name}({args_text})")
        else:
            raise NotImplementedError(f"a graph with a node of kind {n.op} cannot be saved")
    return f"def forward(self, {', '.join(params)}):\n" + "\n".join(lines) + "\n"


def _signature(e, stage, kind=None):
    name = type(e).__name__
    return {"kind": kind or ("exception" if stage == "run" else "compile error"), "stage": stage, "type": name, "message": _run.message_of(e).split("\n")[0]}


def _repro(gm, args, compiler_name, accuracy, inner, setup=None):
    name = (compiler_name or "unnamed").replace("_accuracy", "")
    args = list(args)
    return _C._repro_new(_graph(gm, args), args, name, inner, accuracy, False, None, 0, 0, setup)


def _dump(gm, args, compiler_name, sig, launcher=False, graph=False, accuracy=False, inner=True, setup=None):
    """Saves; the script's path, or None after a warning."""
    try:
        r = _repro(gm, args, compiler_name, accuracy, inner, setup)
    except Exception as e:
        log.warning("the failure could not be saved: %s", e)
        return None
    return _C._repro_dump(r, sig, graph, launcher, compiler_name)


def _note(e, path):
    e.minifier_path = path
    if path and hasattr(e, "add_note"):
        e.add_note(f"Minifier script written to {path}. Run this script to find the smallest traced graph which reproduces this error."
                   if path.endswith("minifier_launcher.py") else
                   f"The graph is saved as {path}. Run this script to see the error again; with the word 'minify' behind it, it finds the smallest "
                   "graph which reproduces this error.")


def _refused(args):
    return any(type(a).__name__ == "BackwardState" for a in args)


# --- writing scripts ------------------------------------------------------------------------------------------------
def save_graph_repro(fd, gm, args, compiler_name, *, stable_output=False, save_dir=None, command="run", accuracy=None, tracing_mode=None,
                     check_str=None, stable_hash=False):
    """Writes the script of a graph to fd."""
    if _refused(args):
        fd.write(REFUSAL)
        return
    if accuracy is None:
        accuracy = "_accuracy" in (compiler_name or "")
    r = _repro(gm, args, compiler_name, bool(accuracy), True)
    if save_dir is not None:
        _C._repro_save(r, None, save_dir)
    fd.write(_C._repro_script(r, None, command, save_dir, tracing_mode, check_str, compiler_name, stable_output))


def _refuse_into(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(REFUSAL)
    return path


def dump_compiler_graph_state(gm, args, compiler_name, *, accuracy=None):
    """checkpoints/<n>.py, and a copy repro.py in the working directory."""
    if _refused(args):
        return _refuse_into(os.path.join(minifier_dir(), "checkpoints", f"{len(gm.graph.nodes)}.py"))
    accuracy = "_accuracy" in compiler_name if accuracy is None else accuracy
    return _dump(gm, args, compiler_name, None, graph=True, accuracy=bool(accuracy))


def dump_to_minify(gm, args, compiler_name):
    """minifier_launcher.py."""
    if _refused(args):
        return _refuse_into(os.path.join(minifier_dir(), "minifier_launcher.py"))
    return _dump(gm, args, compiler_name, None, launcher=True, accuracy="_accuracy" in compiler_name)


# --- the wrapper ------------------------------------------------------------------------------------------------------
def wrap_compiler_debug(unconfigured_compiler_fn, compiler_name):
    """A compiler of graphs with its failures saved, by taper._dynamo.config.repro_after == "aot" and repro_level."""
    @functools.wraps(unconfigured_compiler_fn)
    def debug_wrapper(gm, example_inputs, **kwargs):
        from ..debug_utils import same_two_models
        compiler_fn = functools.partial(unconfigured_compiler_fn, **kwargs)
        name = f"model__{next(_numbers)}"
        original = copy.deepcopy(gm)
        if config.repro_after not in ("dynamo", "aot", None, ""):
            raise AssertionError(f"repro_after must be 'dynamo', 'aot' or unset, not {config.repro_after!r}")
        level = config.repro_level
        setup = None if compiler_name in backends._NATIVE else _run.backend_lines(compiler_name, unconfigured_compiler_fn)
        if config.repro_after == "aot" and level == 3:  # a compiler that kills the process leaves this behind
            _dump(original, example_inputs, compiler_name, None, launcher=True, setup=setup)
        try:
            compiled = compiler_fn(gm, example_inputs)
        except Exception as e:
            if config.repro_after == "aot":
                log.error("CompilerError")
                _note(e, _dump(original, example_inputs, compiler_name, _signature(e, "compile"), launcher=level != 1, graph=level == 1, setup=setup))
            raise
        if config.repro_after != "aot":
            return compiled

        def call(args):
            return compiled(args) if getattr(compiled, "_boxed_call", False) else compiled(*args)

        def deferred(real_inputs):
            if config.repro_after != "aot":
                return call(real_inputs)
            with config.patch(repro_after=None):
                level, kept = config.repro_level, list(real_inputs)  # the compiled function may empty the list
                if level == 3:
                    _dump(original, kept, compiler_name, None, launcher=True, setup=setup)
                if level == 4 and not same_two_models(original, compiled, kept, only_fwd=True, ignore_non_fp=config.repro_ignore_non_fp):
                    log.warning("Accuracy failed for the AOT Autograd graph %s", name)
                    e = AccuracyError("Bad accuracy detected")
                    _note(e, _dump(original, kept, f"{compiler_name}_accuracy", _signature(e, "compare", "accuracy"), launcher=True, graph=True, accuracy=True,
                                   setup=setup))
                    raise e
                try:
                    out = call(real_inputs)
                    _C._sync()  # what the device finds late is this graph's
                    return out
                except Exception as e:
                    _note(e, _dump(original, kept, compiler_name, _signature(e, "run"), launcher=level != 1, graph=level == 1, setup=setup))
                    raise
        deferred._boxed_call = True
        return deferred
    return debug_wrapper


def repro_text(gm, args, compiler_name="inductor", **kwargs):
    """The script as a string."""
    out = io.StringIO()
    save_graph_repro(out, gm, args, compiler_name, **kwargs)
    return out.getvalue()
