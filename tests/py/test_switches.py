"""Environment variables and settings that change what a program's compile() calls do, each in a process of its own."""
import os
import subprocess
import sys
import tempfile

import taper

HERE = os.path.dirname(os.path.abspath(__file__))


def run(code, **env):
    p = subprocess.run([sys.executable, "-c", "import taper\n" + code], capture_output=True, text=True, timeout=60,
                       env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(taper.__file__)), "TAPER_CACHE": "0", **env})
    return p.stdout, p.stderr, p.returncode


TWO = """
def f(x): return x.sin() + 1
def g(x): return x.cos() * 2
F, G = taper.compile(f), taper.compile(g)
a, b = F(taper.ones(4)), G(taper.ones(4))
assert taper.allclose(a, f(taper.ones(4))) and taper.allclose(b, g(taper.ones(4)))
"""


def test_disable_makes_compile_return_its_argument():
    for name in ("TAPER_DISABLE", "TORCHDYNAMO_DISABLE"):
        out, err, rc = run("f = lambda x: x\nprint(taper.compile(f) is f, taper.compile()(f) is f)", **{name: "1"})
        assert out == "True True\n", (out, err)
    assert run("f = lambda x: x\nprint(taper.compile(f) is f)", TAPER_DISABLE="0")[0] == "False\n"


def test_automatic_dynamic_shapes_can_be_turned_off():
    code = """
from taper._dynamo.testing import CompileCounter
c = CompileCounter()
f = taper.compile(lambda x: x + 1, backend=c)
for n in (3, 4, 5): f(taper.ones(n))
print(c.frame_count)
"""
    assert run(code)[0] == "2\n" and run(code, TAPER_AUTOMATIC_DYNAMIC_SHAPES="0")[0] == "3\n"


def test_backends_by_frame():
    text = "print([r['kernel_count'] for r in taper.compiler.metrics()['compiles']])"
    plain = run(TWO + text)[0]
    assert plain == "[1, 1]\n", plain
    for rule, want in (("0:eager", "[0, 1]\n"), (">0:eager", "[1, 0]\n"), ("5,1:eager;0:aot_eager", "[0, 0]\n"), ("0-1:eager", "[0, 0]\n"), (">=7:eager;<=8:inductor", "[1, 1]\n")):
        out, err, rc = run(TWO + text, TAPER_COMPILE_OVERRIDE_BACKENDS=rule)
        assert out.replace("None", "0") == want, (rule, out, err)


def test_bad_rules_are_said():
    for rule, words in (("0", "'0' is not filter:value"), ("x:eager", "is no filter"), ("0:nothing", "Invalid backend: 'nothing'")):
        out, err, rc = run(TWO, TAPER_COMPILE_OVERRIDE_BACKENDS=rule)
        assert rc != 0 and words in err, (rule, err)
    out, err, rc = run(TWO, TAPER_COMPILE_OVERRIDE_INDUCTOR_CONFIGS="0:emitter")
    assert rc != 0 and "is not key=value" in err, err
    out, err, rc = run(TWO, TAPER_COMPILE_OVERRIDE_INDUCTOR_CONFIGS="0:nothing=1")
    assert rc != 0 and "nothing" in err, err


def test_options_by_frame():
    log = {"TAPER_LOGS": "output_code"}
    out, err, rc = run(TWO, TAPER_COMPILE_OVERRIDE_INDUCTOR_CONFIGS="1:emitter=interpreter", **log)
    assert rc == 0, err
    with taper._dynamo.config.patch(debug_inductor_config_override="0-999:emitter=interpreter"):
        from taper._dynamo.eval_frame import _override
        assert _override(3)[1]["resolved"]["emitter"] == "interpreter" and _override(1000) == (None, None)


def test_rewrites_up_to_a_number():
    code = """
def f(x): return x.softmax(-1) + 1
F = taper.compile(f)
assert taper.allclose(F(taper.ones(8, 40)), f(taper.ones(8, 40)))
print(taper.compiler.metrics()['kernels'])
"""
    one, many = run(code)[0], run(code, TAPER_BISECT_SUBSYSTEM="fuse", TAPER_BISECT_MAX="-1")[0]
    assert int(many) > int(one) >= 1, (one, many)
    some = run(code, TAPER_BISECT_SUBSYSTEM="fuse", TAPER_BISECT_MAX="0", TAPER_LOGS="+debug")
    assert int(one) <= int(some[0]) <= int(many) and "rewrite 0 of kind fuse" in some[1] and "left out" in some[1], some
    assert run(code, TAPER_BISECT_SUBSYSTEM="fuse")[0] == one
    out, err, rc = run(code, TAPER_BISECT_SUBSYSTEM="nothing")
    assert out == one and err.count("is no kind of rewrite; there are dce, cse") == 1, err


def test_backend_for_every_compile():
    code = "f = taper.compile(lambda x: x.sin() + 1)\nf(taper.ones(3))\nprint(taper.compiler.metrics()['kernels'])"
    assert run(code)[0] == "1\n"
    for name in ("TAPER_BISECT_BACKEND", "TAPER_COMPILE_BACKEND", "TORCH_COMPILE_BACKEND"):
        assert run(code, **{name: "eager"})[0] == "0\n"


def test_ids_in_metrics_have_a_prefix():
    code = "f = taper.compile(lambda x: x + 1)\nf(taper.ones(3))\nm = taper.compiler.metrics()\nprint(m['compiles'][0]['compile_id'], m['regions'][0]['compile_id'])"
    assert run(code)[0] == "0/0 0/0\n" and run(code, TAPER_COMPILE_ID_PREFIX="job7:")[0] == "job7:0/0 job7:0/0\n"


def test_a_folder_for_every_graph():
    code = """
f = taper.compile(lambda x, w: (x @ w).relu().softmax(-1).sum())
w = taper.randn(4, 4, requires_grad=True)
f(taper.randn(3, 4), w).backward()
"""
    with tempfile.TemporaryDirectory() as d:
        out, err, rc = run(code, TAPER_COMPILE_DEBUG="1", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc == 0 and out == "" and err == "", (out, err)
        found = {}
        for top, _, names in os.walk(d):
            for n in names:
                with open(os.path.join(top, n)) as f:
                    found[os.path.join(os.path.relpath(top, d), n).split("/", 2)[2]] = f.read()
        assert "Step 1: capture starts" in found["dynamo/debug.log"] and "TREE_GUARD_MANAGER" in found["dynamo/debug.log"]
        graph = next(k for k in found if k.startswith("dynamo/__compiled_fn") and k.endswith("fx_graph_readable.py"))
        assert "taper.softmax" in found[graph]
        for part in ("forward.1", "backward.2"):
            for n in ("fx_graph_readable.py", "fx_graph_runnable.py", "fx_graph_transformed.py", "ir_pre_fusion.txt", "ir_post_fusion.txt", "fusion.txt", "schedule.txt", "output_code.c"):
                assert found[f"inductor/{part}/{n}"].strip(), (part, n)
        assert found["inductor/forward.1/output_code.c"].startswith("/*")
        assert not any(k.endswith(".safetensors") for k in found)
        runnable = os.path.join(d, "taper_compile_debug", os.listdir(os.path.join(d, "taper_compile_debug"))[0], graph.replace("readable", "runnable"))
        with open(runnable) as f:
            text = f.read()
        assert run(f"exec(compile({text!r}, 'r.py', 'exec'), {{'__name__': '__main__'}})")[2] == 0
    with tempfile.TemporaryDirectory() as d:
        run(code, TAPER_COMPILE_DEBUG="1", TAPER_COMPILE_DEBUG_DIR=d, TAPER_COMPILE_DEBUG_SAVE_REAL="1")
        assert any("inputs.safetensors" in names for _, _, names in os.walk(d))


def test_a_folder_that_cannot_be_made_is_said_once():
    out, err, rc = run("f = taper.compile(lambda x: x + 1)\nprint(f(taper.ones(2)).tolist())\nprint(f(taper.ones(2, 2)).tolist())", TAPER_COMPILE_DEBUG="1",
                       TAPER_COMPILE_DEBUG_DIR="/proc/nothing")
    assert out == "[2.0, 2.0]\n[[2.0, 2.0], [2.0, 2.0]]\n" and err.count("artefacts are not written") == 1, err


def test_every_variable_that_is_documented_is_read():
    import re
    root = os.path.dirname(os.path.dirname(HERE))
    text = ""
    for top in ("src", "python"):
        for where, _, names in os.walk(os.path.join(root, top)):
            for n in names:
                if n.endswith((".c", ".h", ".py")):
                    with open(os.path.join(where, n), encoding="utf-8") as f:
                        text += f.read()
    with open(os.path.join(root, "src/base/envvars.def"), encoding="utf-8") as f:
        rows = re.findall(r'^ENV\((\w+),\s*"(\w+)"', f.read(), re.M)
    words = set(re.findall(r"\w+", text))
    assert len(rows) > 30 and not [name for i, name in rows if f"ENV_{i}" not in words and name not in words]


def test_rewrites_of_many_kinds_are_asked_for_and_may_be_refused():
    code = """
def f(x, w):
    a = (x @ w + 0).exp()
    b = x.detach() * 2 + x.detach() * 2
    return a.softmax(-1).sum() + b.sin().sum(0).cos().sum() + (x.relu() * 2).tanh().mean(0).sum()
F = taper.compile(f)
x, w = taper.linspace(0, 1, 64 * 300).view(64, 300), taper.linspace(0, .01, 300 * 40).view(300, 40).requires_grad_()
want, got = f(x, w), F(x, w)
assert taper.allclose(got, want, rtol=1e-4), (got, want)
got.backward()
"""
    for kind in ("cse", "decomp", "recompute", "range", "fuse", "inplace", "vector", "thread"):
        out, err, rc = run(code, TAPER_BISECT_SUBSYSTEM=kind, TAPER_BISECT_MAX="-1", TAPER_LOGS="+debug")
        assert rc == 0 and f"rewrite 0 of kind {kind}" in err, (kind, err[-600:])


def test_numbers_that_are_none_are_complained_about_once():
    names = ("TAPER_NUM_THREADS", "TAPER_CACHE_SIZE", "TAPER_REPRO_LEVEL", "TAPER_BISECT_MAX", "RANK")
    code = "import taper; taper.compile(lambda x: x + 1)(taper.ones(2)); print(taper.get_num_threads() > 0)"
    for value in ("abc", "1e3", "3 threads", "-7", "99999999999999999999"):
        env = {**os.environ, **dict.fromkeys(names, value)}
        r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert r.returncode == 0 and r.stdout == "True\n", r.stderr
        for name in names:
            assert r.stderr.count(f"{name}={value} is ignored: it must be a whole number from ") == 1, r.stderr
    for value in ("2", "1", ""):
        env = {**os.environ, **dict.fromkeys(names, value)}
        r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert "is ignored" not in r.stderr, r.stderr


def test_words_that_mean_nothing_are_complained_about_once():
    code = "import taper; print(taper.compile(lambda x: x + 1)(taper.ones(2)).tolist())"
    said = {("TAPER_ISA", "AVX2"): "ignored", ("TAPER_PRODUCTS", "mkl"): "ignored", ("TAPER_CACHE", "maybe"): "taken for 1", ("TAPER_VERBOSE", "2"): "taken for 1"}
    for (name, value), how in said.items():
        r = subprocess.run([sys.executable, "-c", code], env={**os.environ, name: value}, capture_output=True, text=True)
        assert r.returncode == 0 and r.stdout == "[2.0, 2.0]\n" and r.stderr.count(f"{name}={value} is {how}: it must be one of: ") == 1, r.stderr
    for name, value in (("TAPER_ISA", "avx2"), ("TAPER_PRODUCTS", "blas"), ("TAPER_CACHE", "0"), ("TAPER_VERBOSE", "True"), ("TAPER_CACHE", "")):
        r = subprocess.run([sys.executable, "-c", code], env={**os.environ, name: value}, capture_output=True, text=True)
        assert "it must be" not in r.stderr, r.stderr
