"""The command line of saved failures: run, minify, minifier-query, analyze, get_args."""
import argparse
import inspect
import os
import re
import resource
import select
import signal
import sys
import textwrap

from ... import _C
from .. import config, exc
from .reader import InputReader, NopInputReader


def graph_text(mod):
    """The graph inside class Repro, as text: the same text that logs show and `taper graph` reads."""
    try:
        lines = inspect.getsource(type(mod)).splitlines()
    except (OSError, TypeError):
        return None
    body = textwrap.dedent("\n".join(lines[1:]))
    return body.split("\ndef __init__(", 1)[0] + "\n"


def captured(mod, args):
    """The graph of mod where its text cannot be read: capture it."""
    found = []

    def keep(gm, inputs):
        found.append((gm._capsule, list(inputs)))
        return gm.forward
    from ..eval_frame import _make, _wrap, reset
    reset()
    _wrap(mod, _make(keep, None, True, None))(*args)
    reset()
    return found[0]


class _Run:
    def __init__(self, mod, load_args, inner, o, random):
        self.o, self.mod = o, mod
        if getattr(load_args, "_version", 0) > 0:
            print("taper: this script was written by a newer version", file=sys.stderr)
        load_args(NopInputReader())
        reader = InputReader(o.save_dir)
        load_args(reader)
        self.args = reader.args
        self.inner, self.random = inner, random
        for name, p in mod.named_parameters():
            raise AssertionError(f"the module of a script has no parameters, but this one has {name}: inputs carry all data")

    def repro(self):
        o, args = self.o, self.args
        accuracy = o.accuracy != ""
        graph = graph_text(self.mod)
        if graph is None:
            graph, args = captured(self.mod, args)
        for name, value in self.mod.named_buffers() if isinstance(graph, str) else ():  # a script without data: the module has some
            kind = re.search(rf'^ *\w+: ("[^"]*") = self\.{re.escape(name)}$', graph, re.M)
            if kind and f"# const: {name}:" not in graph:
                graph = f"# const: {name}: {kind.group(1)} = {value.flatten().tolist()}\n" + graph
        if o.tracing_mode in ("real", "fake") and isinstance(graph, str):
            graph = re.sub(r"^ *# (symbol|guard):.*\n", "", graph, flags=re.M) if "# symbol:" not in graph else graph
        strict = o.accuracy == "strict_accuracy"
        from .. import backends
        fn = backends._registry.get(o.backend)
        setup = None if fn is None else backend_lines(o.backend, fn)
        with config.patch(repro_ignore_non_fp=accuracy and (config.repro_ignore_non_fp or not strict and o.command not in ("run", "analyze"))):
            r = _C._repro_new(graph, list(args), o.backend, self.inner, accuracy, o.only_fwd, o.save_dir, *self.random, setup)
        return r


def _raise(sig):
    kind, message = sig["kind"], sig["message"]
    if kind == "accuracy":
        raise exc.AccuracyError("Bad accuracy detected: " + message)
    if kind == "compile error":
        inner = _class_of(sig["type"])(message)
        e = exc.BackendCompilerFailed(message if isinstance(inner, exc.BackendCompilerFailed) else f"{type(inner).__name__}: {message}")
        e.inner_exception = inner
        raise e from inner
    raise _class_of(sig["type"])(message)


def _class_of(name):
    import builtins
    last = name.rsplit(".", 1)[-1]
    return getattr(builtins, last, None) or getattr(exc, last, None) or RuntimeError


def fails(sig, check_str=None):
    """Whether a trial counts as the failure."""
    return sig["kind"] not in ("passes", "cannot run") and (not check_str or check_str in sig["type"] + ": " + sig["message"])


def python_backend(name):
    """A backend that is a Python function, or None: the extension knows the others."""
    from .. import backends
    try:
        return backends._lookup(name)
    except exc.InvalidBackend:
        raise RuntimeError(f"the compiler of this failure, {name!r}, is not registered here: add an import of the module that registers it "
                           "(taper._dynamo.register_backend) at the top of this script, or choose another one with --backend") from None


def message_of(e):
    """Its text; a KeyError quotes the key, and so would the one that is raised again."""
    return str(e.args[0]) if isinstance(e, KeyError) and len(e.args) == 1 else str(e)


def backend_lines(name, fn):
    """Lines of a script that make a backend written in Python known by its name, or say what to add."""
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    module, place, code = getattr(fn, "__module__", None), getattr(fn, "__qualname__", type(fn).__name__), getattr(fn, "__code__", None)
    file = getattr(sys.modules.get(module), "__file__", None)
    if module not in (None, "__main__", "builtins") and file and "<" not in place:
        top = os.path.dirname(os.path.abspath(file))
        for _ in range(module.count(".") + (os.path.basename(file) == "__init__.py")):
            top = os.path.dirname(top)
        path = [] if "site-packages" in top else ["import sys", f"sys.path.insert(0, {top!r})"]
        return "\n".join(path + [f"import {module}", f"taper._dynamo.repro.backend({name!r}, {module}.{place})"])
    where = f" of {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return (f"# The backend {name!r} is the function '{place}'{where}. Define or import it here; then:\n"
            f"# taper._dynamo.repro.backend({name!r}, {place})")


def apart(fn, seconds):
    """fn() in a forked child with limits: what it returns (text or None), or how the child ended."""
    r, w = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            text = fn()
            os.write(w, b"." if text is None else b"!" + text.encode(errors="replace")[:4000])
        finally:
            os._exit(0)
    os.close(w)
    try:
        ready = select.select([r], [], [], seconds)[0]
        got = os.read(r, 8192) if ready else b""
    except BaseException:  # Ctrl-C
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(r)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if not ready:
        return "TimeoutError: no answer in time"
    if not got:
        return f"RuntimeError: killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "RuntimeError: the process ended early"
    return None if got[:1] == b"." else got[1:].decode(errors="replace")


def python_trial(fn, repro, accuracy):
    """What a Python backend makes of a graph: None, or what went wrong."""
    from ...fx import GraphModule
    from ..debug_utils import run_fwd_maybe_bwd, same_two_models
    capsule, args = _C._repro_parts(repro)
    gm = GraphModule._from_capture(capsule)
    try:
        compiled = fn(gm, list(args))
        run_fwd_maybe_bwd(compiled, args)
    except Exception as e:
        return f"{type(e).__name__}: {message_of(e)}"
    if accuracy and not same_two_models(GraphModule._from_capture(capsule), compiled, args, ignore_non_fp=config.repro_ignore_non_fp):
        return "AccuracyError: Bad accuracy detected"
    return None


class Bar:
    """Lines on stderr; on a terminal those about progress become one that changes."""

    def __init__(self, ops):
        self.ops, self.tty = ops, sys.stderr.isatty()

    def say(self, line):
        m = re.match(r"(\d+) operators, .* left after (\d+) trials", line)
        if self.tty and m:
            left = min(int(m[1]), self.ops)
            done = 30 * (self.ops - left) // max(self.ops, 1)
            print(f"\r\x1b[K[{'#' * done}{'.' * (30 - done)}] {left} of {self.ops} operators left, {m[2]} trials", end="", file=sys.stderr, flush=True)
        else:
            print(("\r\x1b[K" if self.tty else "") + line, file=sys.stderr, flush=True)

    def detail(self, line):
        if not self.tty:
            self.say(line)


def _minify(run):
    o, r = run.o, run.repro()
    where = o.save_dir if o.save_dir and os.access(o.save_dir, os.W_OK) else os.getcwd()
    points = os.path.join(where, "checkpoints")
    os.makedirs(points, exist_ok=True)
    seen = {}

    bar = Bar(_C._repro_info(r)[1])

    def say(line):
        bar.say(line)

    def best(small):
        nodes = _C._repro_info(small)[0]
        data = os.path.join(points, str(nodes))
        _C._repro_save(small, seen.get("sig"), data)
        with open(data + ".py", "w") as f:
            f.write(_C._repro_script(small, seen.get("sig"), "run", data, o.tracing_mode, o.check_str, None, False))
        seen["best"] = data + ".py"
        bar.detail(f"Writing checkpoint with {nodes} nodes to {data}.py")
    fn = python_backend(o.backend)
    def tester(small):
        def trial():
            return python_trial(fn, small, o.accuracy != "")
        return apart(trial, o.timeout) if o.isolate else trial()
    tester = tester if fn is not None else None
    values = None
    if o.offload_to_disk:
        if not o.save_dir:
            raise RuntimeError("--offload-to-disk needs a directory: give --save-dir")
        values = os.path.join(points, "tensors", "eager")
        os.makedirs(values, exist_ok=True)
    if not o.skip_sanity:
        seen["sig"] = _C._repro_trial(r, o.isolate, o.timeout) if fn is None else {"kind": "exception", "message": tester(r) or ""}
    small, st = _C._repro_minify(r, o.timeout, o.isolate, o.check_str, os.path.join(where, "memo"), say, best, tester, o.max_granularity or 0,
                                 o.skip_sanity, values, o.skip_saving_eager_intermediates)
    sig = st["signature"]
    minimal = os.path.join(where, "minimal")
    _C._repro_save(small, sig, minimal)
    text = _C._repro_script(small, sig, "run", minimal, o.tracing_mode, o.check_str, None, False)
    files = [minimal]
    for name, content in (("repro.py", text), ("repro.c", _C._repro_c(small, sig) if sig["kind"] != "compile error" else None)):
        if content is None:
            continue
        for d in {minimal, os.getcwd()}:
            try:
                with open(os.path.join(d, name), "w") as f:
                    f.write(content)
            except OSError:
                say(f"No write permissions for {os.path.join(d, name)}")
        files.append(os.path.join(os.getcwd(), name))
    say(f"Made {st['trials']} queries")
    say("Wrote minimal repro out to repro.py")
    print(f"{st['before']} operators before, {st['after']} after; {st['trials']} trials ({st['hits']} answered from memory), {st['seconds']:.1f} s; "
          f"{'interrupted: the best so far' if st['stopped'] else 'verified 3 times' if fn and not _known(text) else 'verified %d times in fresh processes' % _verify(minimal, fn)}")
    print("Attach to a report: " + ", ".join(files))


def _known(script):
    """Does the script itself make its backend known?"""
    return "\ntaper._dynamo.repro.backend(" in script


def _verify(bundle, fn=None):
    """Fresh processes in which the minimal failure shows again."""
    import subprocess
    if fn is not None:
        cmd = [sys.executable, os.path.join(bundle, "repro.py"), "minifier-query"]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        return sum(subprocess.call(cmd, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env) == 1 for _ in range(3))
    code = f"import sys; from taper import _C; from taper._dynamo.repro import run; sys.exit(run.fails(_C._repro_trial(_C._repro_load({bundle!r}), True, 60.0)))"
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    ps = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=env) for _ in range(3)]
    return sum(p.wait() == 1 for p in ps)


def parser(baked):
    p = argparse.ArgumentParser(description="Runs, minifies or analyses a saved failure.", epilog=f"Without a command: {baked['command']}.")
    sub = p.add_subparsers(dest="command", metavar="{run,minify,analyze}")

    def common(q):
        g = q.add_mutually_exclusive_group()
        g.add_argument("--no-accuracy", dest="accuracy", action="store_const", const="", default=baked["accuracy"], help="errors only")
        g.add_argument("--accuracy", dest="accuracy", action="store_const", const="accuracy", help="compare floats with eager and float64")
        g.add_argument("--strict-accuracy", dest="accuracy", action="store_const", const="strict_accuracy", help="compare everything, bools and integers too")
        g = q.add_mutually_exclusive_group()
        g.add_argument("--save-dir", default=baked["save_dir"], metavar="DIR", help="where the inputs' bytes are")
        g.add_argument("--no-save-dir", dest="save_dir", action="store_const", const=None, help="random inputs")
        q.add_argument("--tracing-mode", choices=("real", "fake", "symbolic"), default=baked["tracing_mode"], help="how the graph is made again")
        q.add_argument("--backend", default=baked["backend"], metavar="NAME")
        q.add_argument("--autocast", dest="autocast", action="store_true", default=False)
        q.add_argument("--no-autocast", dest="autocast", action="store_false")
        q.add_argument("--only-fwd", action="store_true", default=baked["only_fwd"], help="no backward pass")
        q.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS", help="for one trial")
        q.add_argument("--isolate", dest="isolate", action="store_true", default=True, help="a child process for each trial (default)")
        q.add_argument("--no-isolate", dest="isolate", action="store_false", help="trials in this process")

    def check(q):
        q.add_argument("--check-str", default=baked["check_str"], metavar="S", help="text the exception must contain")
    common(sub.add_parser("run", help="run it once"))
    q = sub.add_parser("minify", help="find the smallest graph that still fails")
    common(q)
    check(q)
    q.add_argument("--skip-saving-eager-intermediates", action="store_true", help="with --offload-to-disk: use what is there already")
    q.add_argument("--offload-to-disk", action="store_true", help="keep values that stand in for nodes in DIR/checkpoints/tensors, not in memory")
    q.add_argument("--skip-sanity", action="store_true", help="do not check first that the graph fails: the first failure that shows is kept")
    q.add_argument("--max-granularity", type=int, default=None, metavar="N", help="take away at most N nodes in one step; a power of two")
    q = sub.add_parser("minifier-query")
    common(q)
    check(q)
    q = sub.add_parser("analyze", help="name every node that differs")
    common(q)
    for name in ("skip-saving-inductor-intermediates", "skip-saving-float64-intermediates", "skip-check-deterministic", "stable-hash"):
        q.add_argument("--" + name, action="store_true")
    common(sub.add_parser("get_args"))
    return p


def run_repro(mod, load_args, *, inner, command="run", accuracy="", save_dir=None, tracing_mode=None, check_str=None, backend="inductor",
              only_fwd=False, random=(0, 0), argv=None, **kwargs):
    for k in kwargs:
        print(f"taper: run_repro() does not know {k!r}; it may be from another version", file=sys.stderr)
    accuracy = {True: "accuracy", False: ""}.get(accuracy, accuracy) if not isinstance(accuracy, str) else accuracy
    if accuracy == "accuracy" and command in ("run", "minify"):
        accuracy = "strict_accuracy" if not config.repro_ignore_non_fp else "accuracy"  # a failure saved at level 4 counts everything
    baked = dict(command=command, accuracy=accuracy, save_dir=save_dir, tracing_mode=tracing_mode or "real", check_str=check_str, backend=backend,
                 only_fwd=only_fwd)
    if backend is None:
        raise RuntimeError("the compiler of this failure has no name: import it, register it with taper._dynamo.register_backend, and put "
                           "its name into the backend= argument at the end of this script")
    argv = sys.argv[1:] if argv is None else argv
    p = parser(baked)
    if argv and argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        argv = [command] + argv
    o = p.parse_args(argv if argv and command != "get_args" else [command])
    if o.save_dir and not os.path.isdir(o.save_dir):
        beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0] or ".")), os.path.basename(o.save_dir))
        o.save_dir = beside if os.path.isdir(beside) else o.save_dir
    if getattr(o, "max_granularity", None) is not None and (o.max_granularity < 1 or o.max_granularity & (o.max_granularity - 1)):
        raise RuntimeError(f"max_granularity {o.max_granularity} not power of two")
    o.check_str = getattr(o, "check_str", None)
    run = _Run(mod, load_args, inner, o, random)
    if o.command == "get_args":
        return mod, run.args
    if o.command == "minify":
        return _minify(run)
    r = run.repro()
    fn = python_backend(o.backend)
    if fn is not None:
        def trial():
            return python_trial(fn, r, o.accuracy != "")
        wrong = apart(trial, o.timeout) if o.isolate and o.command == "minifier-query" else trial()
        if o.command == "minifier-query":
            sys.exit(1 if wrong and (not o.check_str or o.check_str in wrong) else 0)
        if wrong:
            name, _, message = wrong.partition(": ")
            raise _class_of(name)(message)
        print("it does not fail here")
        return None
    if o.command == "minifier-query":
        sys.exit(1 if fails(_C._repro_trial(r, o.isolate, o.timeout), o.check_str) else 0)
    if o.command == "analyze":
        lines = _C._repro_analyze(r, o.skip_check_deterministic)
        print(lines if lines else "no node differs", end="" if lines else "\n")
        return None
    sig = _C._repro_trial(r, False, 0.0)
    if sig["kind"] == "cannot run":
        raise RuntimeError("the graph does not run without a compiler either: " + sig["message"])
    if sig["kind"] != "passes":
        if sig["kind"] == "accuracy":
            at = _C._repro_diverge(r)
            if at is not None:
                sig["message"] += "\n" + at[1]
        _raise(sig)
    print("it does not fail here")
    return None
