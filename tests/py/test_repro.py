"""(sanitize: skip, sanitizers catch the crashes that are planted) Failures are saved by level, as scripts that fail the same way elsewhere."""
import ast
import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import taper
from taper import _dynamo as dynamo
from taper._dynamo import config
from taper._dynamo.repro import after_aot, after_dynamo

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROG = """
import taper
@taper.compile(backend="%s")
def f(x, w):
    h = taper.sin(x @ w)
    y = taper.relu(h) * 2
    return (y + 1).sum(1)
x = taper.arange(48).reshape(4, 12).float().sin()
w = taper.arange(36).reshape(12, 3).float().cos().requires_grad_()
f(x, w).sum().backward()
print("finished")
"""


def run(code, cwd, *args, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    cmd = [sys.executable] + ([code, *args] if code.endswith(".py") else ["-c", code])
    p = subprocess.run(cmd, cwd=cwd, capture_output=True, text=True, timeout=120, env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    return p.returncode, p.stdout, p.stderr


def found(cwd, name):
    return glob.glob(os.path.join(cwd, "taper_compile_debug", "run_*-pid_*", "minifier", name))


class Dir(tempfile.TemporaryDirectory):
    pass


def test_the_recipe():
    """Run the bad program, find the launcher, minify, run repro.py: the same error, and only relu is left."""
    for fault, level, error in (("relu:compile_error@gen", "2", "BackendCompilerFailed"), ("relu:runtime_error@gen", "2", "RuntimeError"),
                                ("relu:accuracy@fuse", "4", "AccuracyError"), ("relu:segv@gen", "3", None)):
        for after in ("aot",) if "runtime" in fault else ("dynamo",):
            with Dir() as d:
                rc, out, err = run(PROG % "inductor", d, TAPER_INJECT=fault, TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level)
                assert rc != 0 and "finished" not in out and (error is None or error in err), (fault, err)
                (launcher,) = found(d, "minifier_launcher.py")
                if error:
                    assert re.search(r"Writing minified repro to:\n.*\] (.*)", err).group(1) == launcher and f"Minifier script written to {launcher}" in err
                rc, out, err = run(launcher, d, "minify")
                assert rc == 0, (fault, after, err)
                assert "Wrote minimal repro out to repro.py" in err and "verified 3 times in fresh processes" in out, out + err
                rc, out, err = run(os.path.join(d, "repro.py"), d)
                assert rc != 0 and (rc == -11 if error is None else error in err), (fault, after, rc, err)
                with open(os.path.join(d, "repro.py")) as f:
                    text = f.read()
                assert len(text.splitlines()) < 100, text
                body = text.split("def forward")[1].split("return")[0]
                most = 2 if "fuse" in fault else 1
                assert len(re.findall(r"^ {8}\w+: .* = ", body, re.M)) == most and "taper.relu(" in body, text
                imports = {a.name.split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}
                assert imports <= {"taper", "os"}, imports
                if error and "compile" not in fault:
                    exe = os.path.join(d, "a.out")
                    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-ffp-contract=off", os.path.join(d, "repro.c"), "-lm", "-o", exe], check=True)
                    p = subprocess.run([exe], capture_output=True, text=True)
                    assert p.returncode == 1 and ("eager gives" in p.stdout or "planted fault" in p.stderr), p
    for level in "124":
        with Dir() as d:
            rc, out, err = run(PROG % "inductor", d, TAPER_REPRO_AFTER="aot", TAPER_REPRO_LEVEL=level)
            assert rc == 0 and out == "finished\n" and not os.listdir(d)  # no fault, no files


def test_files_by_level():
    for after in ("dynamo", "aot"):
        for fault in ("relu:compile_error@gen", "relu:runtime_error@gen"):
            for level in "14" if (after == "dynamo") == ("compile" in fault) else "2":
                with Dir() as d:
                    rc, out, err = run(PROG % "inductor", d, TAPER_INJECT=fault, TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level)
                    assert rc == 1 and "planted fault" in err
                    points, launcher = found(d, "checkpoints/*.py"), found(d, "minifier_launcher.py")
                    if level == "1":
                        (point,) = points
                        nodes = int(os.path.basename(point)[:-3])
                        assert f"Writing checkpoint with {nodes} nodes to {point}" in err and f"Copying repro file for convenience to {d}/repro.py" in err
                        with open(point) as f, open(os.path.join(d, "repro.py")) as g:
                            assert f.read() == g.read()
                        assert not launcher
                    else:
                        assert len(launcher) == 1 and not points and os.path.isdir(found(d, "checkpoints")[0]) and "command='minify'" in open(launcher[0]).read()
                    bundle = os.path.dirname((found(d, "failure.json") + found(d, "checkpoints/*/failure.json"))[0])
                    with open(os.path.join(bundle, "failure.json")) as f:
                        saved = json.load(f)
                    assert saved["stages"].startswith("captured:") and ("forward:" in saved["stages"]) == (after == "dynamo"), saved
                    assert saved["after"] == after and saved["kind"] == ("compile error" if "compile" in fault else "exception"), saved


def test_backward_graphs_are_saved_too():
    for fault, level in (("cos:runtime_error@gen", "2"), ("cos:accuracy@gen", "4"), ("cos:compile_error@gen", "2")):
        with Dir() as d:
            rc, out, err = run(PROG % "inductor", d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="aot", TAPER_REPRO_LEVEL=level)
            assert rc == 1, err
            if level == "4":
                assert re.search(r"Accuracy failed for the AOT Autograd graph model__0_backward_\d", err), err
            (graph,) = found(d, "graph.py")
            text = open(graph).read()
            assert "tangents_1" in text and "cos" in text, text
    with Dir() as d:  # after capture the backward pass is tried at once
        rc, out, err = run(PROG % "inductor", d, TAPER_INJECT="cos:runtime_error@gen", TAPER_REPRO_AFTER="dynamo")
        assert rc == 1 and "Compiled Fx GraphModule failed. Creating script to minify the error." in err and found(d, "minifier_launcher.py"), err


def test_a_compiler_that_kills_the_process():
    for after in ("dynamo", "aot"):
        with Dir() as d:
            rc, out, err = run(PROG % "inductor", d, TAPER_INJECT="relu:segv@lower", TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL="3")
            assert rc == -11, (rc, err)
            (launcher,) = found(d, "minifier_launcher.py")
            rc, out, err = run(launcher, d, "minify")
            assert rc == 0 and "1 after" in out, out + err


def test_command_line_of_scripts():
    with Dir() as d:
        env = dict(TAPER_INJECT="relu:accuracy@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
        run(PROG % "inductor", d, **env)
        script = os.path.join(d, "repro.py")
        assert run(script, d, "minifier-query")[0] == 1 and run(script, d, "minifier-query", "--no-accuracy")[0] == 0
        assert run(script, d, "run", "--strict-accuracy")[0] == 1 and run(script, d, "run", "--no-accuracy")[0] == 0
        assert run(script, d, "minifier-query", "--backend", "aot_eager")[0] == 0
        assert run(script, d, "run", "--accuracy", "--no-accuracy")[0] == 2  # exclude each other
        rc, out, err = run(script, d, "analyze")
        assert rc == 0 and out.startswith("DIVERGED at ") and "relu" in open(script).read(), out
        rc, out, err = run(script, d, "run", "--no-save-dir")
        assert rc == 1
        rc, out, err = run(script, d, "minify", "--max-granularity", "3")
        assert rc == 1 and "not power of two" in err
        assert run(script, d, "minify", "--no-isolate")[0] == 0
        code = f"""
import sys, runpy
g = runpy.run_path({script!r})
from taper._dynamo.repro.after_dynamo import run_repro
mod, args = run_repro(g['mod'], g['load_args'], command='get_args')
print([tuple(a.shape) for a in args], len(mod(*args)))
"""
        rc, out, err = run(code, d)
        assert rc == 0 and out == "[(4, 12), (12, 3)] 1\n" or "(1, 1)" in out, out + err
    with Dir() as d:
        run(PROG % "inductor", d, TAPER_INJECT="relu:runtime_error@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="1")
        script = os.path.join(d, "repro.py")
        assert run(script, d, "minifier-query", "--check-str", "planted fault")[0] == 1
        assert run(script, d, "minifier-query", "--check-str", "something else")[0] == 0


def test_settings_are_checked_and_heeded():
    with Dir() as d:
        rc, out, err = run(PROG % "inductor", d, TAPER_REPRO_AFTER="nonsense")
        assert rc == 1 and "repro_after must be 'dynamo', 'aot' or unset, not 'nonsense'" in err
        bools = PROG.replace("return (y + 1).sum(1)", "return y > 1").replace("f(x, w).sum().backward()", "f(x, w)") % "inductor"
        env = dict(TAPER_INJECT="relu:accuracy@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
        assert "uint8 tensor did not match" in run(bools, d, **env)[2]
        assert run(bools, d, TAPER_REPRO_IGNORE_NON_FP="1", **env)[0] == 0
        env["TAPER_INJECT"] = "cos:accuracy@gen"
        assert "gradient of input" in run(PROG % "inductor", d, **env)[2]
        assert run(PROG % "inductor", d, TAPER_REPRO_FORWARD_ONLY="1", **env)[0] == 0
        where = os.path.join(d, "elsewhere")
        env["TAPER_INJECT"] = "relu:accuracy@gen"
        run(PROG % "inductor", d, TAPER_COMPILE_DEBUG_DIR=where, **env)
        assert os.listdir(os.path.join(where, "taper_compile_debug"))
        code = "import taper._dynamo.config as c; c.repro_after = 'dynamo'; c.debug_dir_root = %r\n" % os.path.join(d, "root") + PROG % "inductor"
        assert run(code, d, TAPER_INJECT="relu:runtime_error@gen")[0] == 1 and os.listdir(os.path.join(d, "root"))


def test_unwritable_directory_is_one_warning():
    with Dir() as d:
        target = os.path.join(d, "file")
        open(target, "w").close()  # a directory cannot be made below a file
        code = PROG.replace("f(x, w).sum().backward()", "for _ in range(3):\n    f(x, w)") % "inductor"
        rc, out, err = run(code, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3", TAPER_COMPILE_DEBUG_DIR=target)
        assert rc == 0 and out == "finished\n" and err.count("could not be saved") == 1, err
        if os.path.exists("/dev/full"):
            os.symlink("/proc", os.path.join(d, "proc"))
            rc, out, err = run(code, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3", TAPER_COMPILE_DEBUG_DIR=os.path.join(d, "proc"))
            assert rc == 0 and err.count("could not be saved") == 1, err


def test_a_full_disk_is_one_warning():
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))\n"  # no file may become longer
    with Dir() as d:
        for level, rc_want in (("2", 1), ("3", 1), ("4", 1)):
            fault = "relu:accuracy@gen" if level == "4" else "relu:runtime_error@gen"
            rc, out, err = run(full + PROG % "inductor", d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
            assert rc == 1 and ("AccuracyError" if level == "4" else "planted fault: 'relu' failed at run time") in err, (level, err)
            assert err.count("could not be saved") == 1 and "TAPER_COMPILE_DEBUG_DIR=DIR saves elsewhere" in err, (level, err)
            assert not found(d, "failure.json") and "Minifier script written" not in err, (level, err)
        rc, out, err = run(full + PROG % "inductor", d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3")
        assert rc == 0 and out == "finished\n" and err.count("could not be saved") == 1, err


def test_errors_name_the_node_that_failed():
    """Also where its kernel runs on the rows of a product."""
    line = PROG[:PROG.index("taper.relu(h)")].count("\n") + 1
    for dynamic in ("", ", dynamic=True"):
        with Dir() as d:
            rc, out, err = run(PROG % ("inductor\"%s, mode=\"default" % dynamic), d, TAPER_INJECT="relu:runtime_error@gen")
            assert rc == 1 and re.search(r"planted fault: 'relu' failed at run time\n  \(in node 'relu', \S+:%d\)" % line, err), err


NESTED = """
import taper
class Block(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = taper.nn.Linear(4, 4)
    def forward(self, x):
        %s
        return x + taper.relu(self.fc(x))
class Net(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = taper.nn.ModuleList([Block() for _ in range(4)])
    def forward(self, x):
        for i in range(4):
            x = self.blocks[i](x)
        return taper.tanh(x)
taper.manual_seed(0)
taper.compile(Net())(taper.randn(2, 4))
"""


def test_the_graph_that_failed_is_saved_not_one_of_its_callees():
    """When a graph fails its instructions are executed; the functions they call are not compiled and judged once more."""
    for inside, relus in (("pass", 4), ("taper._dynamo.graph_break()", 1)):
        for level, fault in (("4", "relu:accuracy@gen"), ("2", "relu:late@gen")):
            with Dir() as d:
                rc, out, err = run(NESTED % inside, d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
                assert rc == 1 and err.count("Writing minified repro to:") == 1, (inside, level, err)
                (graph,) = found(d, "graph.py")
                with open(graph) as f:
                    text = f.read()
                assert len(re.findall(r"taper\.relu\(", text)) >= relus and ("tanh" in text) == (relus == 4), (inside, level, text)


def test_nothing_secret_is_saved():
    with Dir() as d:
        run(PROG % "inductor", d, TAPER_INJECT="relu:accuracy@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", MY_SECRET="hunter2",
            TORCH_HUB_TOKEN="hunter2", TAPER_NUM_THREADS="1")
        seen = 0
        for folder, _, files in os.walk(d):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    data = f.read()
                assert b"hunter2" not in data and b"MY_SECRET" not in data, name
                seen += 1
        assert seen >= 8
        (state,) = found(d, "state.json")
        with open(state) as f:
            s = json.load(f)
        assert s["environment"]["TAPER_NUM_THREADS"] == "1" and s["taper"] == taper.__version__ and s["python"] and s["cpu"] and s["system"]
        text = open(os.path.join(d, "repro.py")).read()
        assert "os.environ['TAPER_NUM_THREADS'] = '1'" in text and "TAPER_REPRO" not in text  # a script does not debug itself
        assert re.search(r"^# taper .*python 3.*threads$", text, re.M)


def test_testing_backends():
    for name, level, error in (("relu_compile_error_TESTING_ONLY", "2", "ReluCompileError"), ("relu_runtime_error_TESTING_ONLY", "2", "ReluRuntimeError"),
                               ("relu_accuracy_error_TESTING_ONLY", "4", "AccuracyError")):
        with Dir() as d:
            rc, out, err = run(PROG % name, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
            assert rc == 1 and error in err, err
            (launcher,) = found(d, "minifier_launcher.py")
            if "accuracy" not in name:
                assert run(launcher, d, "minifier-query")[0] == 1
                continue
            assert run(launcher, d)[0] == 0
            rc, out, err = run(os.path.join(d, "repro.py"), d)
            assert rc == 1 and error in err, err
            body = open(os.path.join(d, "repro.py")).read().split("def forward")[1].split("return")[0]
            assert body.count(" = taper.") == 1 and "taper.relu(" in body
    with Dir() as d:
        code = (PROG % "non_leaf_compile_error_TESTING_ONLY").replace(".requires_grad_()", ".requires_grad_() * 1")
        rc, out, err = run(code, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="1")
        assert rc == 1 and "TestingOnlyCompileError" in err, err
        rc, out, err = run(os.path.join(d, "repro.py"), d)
        assert rc == 1 and "TestingOnlyCompileError" in err, err  # being no leaf survives the script
        assert run(PROG % "non_leaf_compile_error_TESTING_ONLY", d)[0] == 0
    assert "relu_accuracy_error_TESTING_ONLY" in dynamo.list_backends(exclude_tags=()) and "relu_accuracy_error_TESTING_ONLY" not in dynamo.list_backends()


# --- the Python names --------------------------------------------------------------------------------------------------
def graph_of(fn, *args):
    found = []

    def keep(gm, inputs):
        found.append((gm, list(inputs)))
        return gm.forward
    dynamo.reset()
    taper.compile(fn, backend=keep)(*args)
    dynamo.reset()
    return found[0]


def test_script_writer_options():
    gm, args = graph_of(lambda x: (x.relu() + 1).sum(1), taper.randn(3, 100))
    text = after_aot.repro_text
    plain = text(gm, args)
    ast.parse(plain)
    assert "command='run'" in plain and "accuracy=False" in plain and "tracing_mode='real'" in plain and "check_str=None" in plain
    assert "command='minify'" in text(gm, args, command="minify") and "accuracy=True" in text(gm, args, "inductor_accuracy")
    assert "accuracy=False" in text(gm, args, "inductor_accuracy", accuracy=False)
    assert "tracing_mode='symbolic'" in text(gm, args, tracing_mode="symbolic") and "check_str='boom'" in text(gm, args, check_str="boom")
    stable = text(gm, args, stable_output=True)
    assert stable == text(gm, args, stable_output=True) and "threads" not in stable and "stable output" in stable
    with Dir() as d:
        with_dir = text(gm, args, save_dir=d)
        assert f"save_dir={d!r}" in with_dir and os.path.exists(os.path.join(d, "inputs.safetensors"))
        path = os.path.join(d, "script.py")
        with open(path, "w") as f:
            f.write(with_dir)
        assert run(path, d) == (0, "it does not fail here\n", "")

    class BackwardState:
        pass
    assert text(gm, [BackwardState()]) == "Repro is not generated due to existence of BackwardState in graph input"


def test_every_graph_is_valid_python():
    from bench_models import models
    for name, fn, args in models():
        gm, ins = graph_of(fn, *args)
        for text in (after_aot.repro_text(gm, ins), after_aot.repro_text(gm, ins, "inductor_accuracy", command="minify", check_str="'\"\\\n")):
            compile(text, name, "exec")
    gm, ins = graph_of(taper.compile(lambda x: (x[1:] + taper.full((x.shape[0] - 1,), float("inf"))).clamp(max=3.0), dynamic=True), taper.ones(6))
    compile(after_aot.repro_text(gm, ins), "dynamic", "exec")


def failing(gm, inputs, **kwargs):
    raise ValueError("no such luck")


def test_wrappers_in_python():
    gm, args = graph_of(lambda x: x.relu() + 1, taper.randn(3))
    seen = {}

    def compiler(gm, inputs, **kwargs):
        seen.update(kwargs)
        for n in list(gm.graph.nodes):  # a compiler may change its graph
            if n.op == "call_function" and n.target.__name__ == "relu":
                n.target = taper.sin
        return lambda args: [args.pop() * 0]
    wrap = after_aot.wrap_compiler_debug
    with Dir() as d, config.patch(debug_dir_root=d, repro_after=None):
        cwd = os.getcwd()
        os.chdir(d)
        try:
            compiled = wrap(compiler, "inductor")(copy.deepcopy(gm), args, is_inference=True, cudagraphs=3)
            assert seen == {"is_inference": True, "cudagraphs": 3} and not hasattr(compiled, "_boxed_call")
            with config.patch(repro_after="nonsense"):
                try:
                    wrap(compiler, "inductor")(copy.deepcopy(gm), args)
                    raise SystemError("not refused")
                except AssertionError as e:
                    assert "nonsense" in str(e)
            with config.patch(repro_after="aot", repro_level=1):
                try:
                    wrap(failing, "inductor")(gm, args)
                    raise SystemError("no error")
                except ValueError:
                    pass
                assert os.path.exists("repro.py") and "taper.relu(" in open("repro.py").read()
                os.remove("repro.py")

                def mutates_and_fails(gm, inputs):
                    compiler(gm, inputs)

                    def fail(args):
                        args.clear()
                        raise ValueError("at run time")
                    fail._boxed_call = True
                    return fail
                bad = wrap(mutates_and_fails, "inductor")(copy.deepcopy(gm), args)
                assert bad._boxed_call
                try:
                    bad([taper.ones(3)])
                    raise SystemError("no error")
                except ValueError as e:
                    assert e.minifier_path.endswith(".py") and "The graph is saved as" in e.__notes__[0]
                text = open("repro.py").read()
                assert "taper.relu(" in text and "(3,)" in text  # the graph before, and inputs although the list was emptied
            with config.patch(repro_after="aot", repro_level=3):  # before a compiler that may kill the process
                for f in glob.glob(d + "/**/minifier_launcher.py", recursive=True):
                    os.remove(f)
                wrap(lambda gm, a: seen.update(there=glob.glob(d + "/**/minifier_launcher.py", recursive=True)) or (lambda *args: args), "inductor")(gm, args)
                assert len(seen["there"]) == 1
            with config.patch(repro_after="aot", repro_level=2):  # what the device finds late is this graph's
                late, was = [RuntimeError("late")], taper._C._sync
                taper._C._sync = lambda: (_ for _ in ()).throw(late.pop()) if late else None
                try:
                    wrap(lambda gm, a: lambda *args: [args[0]], "inductor")(gm, args)([taper.ones(3)])
                    raise SystemError("no error")
                except RuntimeError as e:
                    assert str(e) == "late" and e.minifier_path.endswith("minifier_launcher.py")
                finally:
                    taper._C._sync = was
            with config.patch(repro_after="aot", repro_level=4):
                boxed = wrap(lambda gm, a: lambda *args: [args[0] * 0], "inductor")(copy.deepcopy(gm), args)
                try:
                    boxed([taper.ones(3)])
                    raise SystemError("no error")
                except dynamo.exc.AccuracyError as e:
                    assert str(e) == "Bad accuracy detected"
                assert "accuracy=True" in open("repro.py").read()
            with config.patch(repro_after="dynamo", repro_level=2):
                try:
                    after_dynamo.wrap_backend_debug(failing, "mine")(gm, args)
                    raise SystemError("no error")
                except ValueError as e:
                    assert e.minifier_path.endswith("minifier_launcher.py")
            path = after_aot.dump_to_minify(gm, args, "inductor")
            assert path.endswith("minifier_launcher.py") and "command='minify'" in open(path).read()
            path = after_aot.dump_compiler_graph_state(gm, args, "inductor_accuracy")
            assert re.search(r"checkpoints/\d+\.py$", path) and "accuracy=True" in open(path).read()
        finally:
            os.chdir(cwd)


def test_backends_written_in_python():
    code = """
import taper
from taper._dynamo import register_backend

@register_backend(name="picky")
def picky(gm, inputs):
    if any(n.op == "call_function" and "relu" in str(n.target) for n in gm.graph.nodes):
        raise NotImplementedError("relu is beyond me")
    return gm.forward
"""
    with Dir() as d:
        rc, out, err = run(code + PROG % "picky", d, TAPER_REPRO_AFTER="dynamo")
        assert rc == 1 and "relu is beyond me" in err, err
        (launcher,) = found(d, "minifier_launcher.py")
        assert "backend='picky'" in open(launcher).read()
        rc, out, err = run(launcher, d)  # the script cannot know where the backend comes from
        assert rc == 1 and "the compiler of this failure, 'picky', is not registered here: add an import" in err, err
        with open(launcher) as f:
            text = f.read()
        with open(launcher, "w") as f:
            f.write(text.replace("\n\nclass Repro", code + "\n\nclass Repro", 1))
        rc, out, err = run(launcher, d)
        assert rc == 0 and "1 after" in out, out + err
        body = open(os.path.join(d, "repro.py")).read().split("def forward")[1].split("return")[0]
        assert body.count(" = taper.") == 1 and "taper.relu(" in body, body


def test_inputs_keep_strides_offsets_and_sharing():
    base = taper.arange(40).float()
    a, b, c = base[2:14].view(3, 4), base[8:20].view(4, 3).t(), taper.ones(1).expand(5)

    def f(a, b, c):
        a.add_(1)
        return b * 2, c.sum()
    with Dir() as d:
        gm, args = graph_of(f, a, b, c)
        r = taper._C._repro_new(gm._capsule, args, "inductor", False, True, False, None, 0, 0)
        taper._C._repro_save(r, None, d)
        with open(os.path.join(d, "failure.json")) as fh:
            ins = json.load(fh)["inputs"]
        assert ins[0]["shares"] == ins[1]["shares"] != ins[2]["shares"] and ins[1]["stride"] == [1, 3] and ins[2]["stride"] == [0]
        assert ins[1]["offset"] - ins[0]["offset"] == 6
        again = taper._C._repro_load(d)
        text = taper._C._repro_script(again, None, "run", None, None, None, None, True)
        assert text.count("reader.storage(") == 2 and text.count("reader.tensor(buf0") == 2 and "(0,)" in text, text


def test_level_4_follows_a_training_loop():
    """The first step at which compiled and eager part is the one that is reported."""
    code = """
import taper, taper.nn as nn
taper.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
step = taper.compile(net)
opt = taper.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    print("step", i, flush=True)
    if i == 2:
        taper._dynamo.reset()
        taper._dynamo.repro.inject("relu:accuracy@gen")
    opt.zero_grad()
    step(taper.randn(16, 4)).sum().backward()
    opt.step()
"""
    with Dir() as d:
        rc, out, err = run(code, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
        assert rc == 1 and out.split("\n")[-2] == "step 2" and "first diverging node: 'input_3' (<string>:13)" in err, err


def test_switches_of_the_original():
    code = "import taper._inductor.config as c\nc.cpp.inject_relu_bug_TESTING_ONLY = 'accuracy'\n" + PROG % "inductor"
    with Dir() as d:
        assert "AccuracyError" in run(code, d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")[2]
        assert run(code.replace("'accuracy'", "None"), d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")[0] == 0
        assert "is one of compile_error, runtime_error, accuracy or None, not 'nonsense'" in run(code.replace("'accuracy'", "'nonsense'"), d)[2]
        rc, out, err = run("import taper._inductor.config as c\nc.cpp.inject_relu_bug_TESTING_ONLY = 'accuracy'\n"
                           "c.cpp.inject_log1p_bug_TESTING_ONLY = 'accuracy'\nprint(c.cpp.inject_relu_bug_TESTING_ONLY)\n"
                           "c.cpp.inject_relu_bug_TESTING_ONLY = None\nimport taper\nprint(taper._C._injected())", d)
        assert out == "accuracy\nlog1p:accuracy@gen\n", out + err


def test_a_bundle_tells_what_the_compiler_did():
    """`events` in the bundle is a trace of the compile, up to the error."""
    taper_bin = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
    for fault, level, has in (("relu:compile_error@gen", "2", "aot_forward_graph"), ("relu:accuracy@gen", "4", "inductor_output_code")):
        with Dir() as d:
            run(PROG % "inductor", d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
            (events,) = found(d, "events")
            assert not found(d, "events.tmp")
            with open(events) as f:
                text = f.read()
            assert f'"{has}"' in text and '"dynamo_output_graph"' in text and '"compilation_metrics"' in text, text[:2000]
            p = subprocess.run([taper_bin, "report", events, "--json"], capture_output=True, text=True, timeout=60)
            j = json.loads(p.stdout)
            assert j["compiles"] == 1 and j["problems"] == 0 and j["compile_ids"][0]["status"] == ("error" if "compile" in fault else "ok"), p.stdout


def test_options_of_the_search():
    with Dir() as d:
        run(PROG % "inductor", d, TAPER_INJECT="relu:runtime_error@gen", TAPER_REPRO_AFTER="aot", TAPER_REPRO_LEVEL="2")
        (launcher,) = found(d, "minifier_launcher.py")
        trials = {}
        for name, args in {"plain": (), "small steps": ("--max-granularity", "1"), "unchecked": ("--skip-sanity",), "on disk": ("--offload-to-disk",)}.items():
            rc, out, err = run(launcher, d, "minify", *args)
            m = re.search(r"(\d+) operators before, 1 after; (\d+) trials", out)
            assert rc == 0 and m, (name, out, err)
            trials[name] = int(m[2])
            assert ("the failure is" in err) == (name != "unchecked"), (name, err)
            values = glob.glob(os.path.join(os.path.dirname(launcher), "checkpoints", "tensors", "eager", "*"))
            assert bool(values) == (name == "on disk"), (name, values)
        assert trials["unchecked"] < trials["plain"], trials
        rc, out, err = run(launcher, d, "minify", "--max-granularity", "3")
        assert rc != 0 and "max_granularity 3 not power of two" in err
        rc, out, err = run(launcher, d, "minify", "--offload-to-disk", "--no-save-dir")
        assert rc != 0 and "--offload-to-disk needs a directory" in err, err
        rc, out, err = run(launcher, d, "minify", "--skip-sanity", "--backend", "eager")
        assert rc != 0 and "Input graph did not fail the tester" in err, err


def test_a_fault_of_capture_is_its_failure():
    """Not a graph break: the stage says that it failed; suppress_errors goes on without it."""
    with Dir() as d:
        for kind in ("compile_error", "runtime_error"):
            rc, out, err = run(PROG % "eager", d, TAPER_INJECT=f"relu:{kind}@capture")
            assert rc == 1 and "InternalTorchDynamoError: RuntimeError: planted fault: capture cannot take 'relu'" in err, err
        rc, out, err = run(PROG % "eager", d, TAPER_INJECT="relu:compile_error@capture", TAPER_SUPPRESS_ERRORS="1")
        assert rc == 0 and "finished" in out and "planted fault" in err, err
