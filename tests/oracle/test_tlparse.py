"""The real trace reader (`pip install tlparse`) accepts our traces in its strict mode and renders its pages."""
import json, os, re, shutil, subprocess, sys, tempfile, unittest

EXE = os.environ.get("TLPARSE") or shutil.which("tlparse") or shutil.which("tlparse", path=os.path.dirname(sys.executable))
HEAD = "import taper\n"
PROGRAMS = {
    "one graph": """
@taper.compile
def fn(x):
    return x.sin() + 1
fn(taper.ones(3))
""",
    "symbolic sizes": """
@taper.compile(dynamic=True)
def fn(x, y):
    if x.shape[0] > 2:
        return (x + y).sin()
    return x - y
for n in (3, 5, 2):
    fn(taper.ones(n, 4), taper.ones(n, 4))
""",
    "training": """
net = taper.nn.Sequential(taper.nn.Linear(4, 8), taper.nn.ReLU(), taper.nn.Linear(8, 2))
opt = taper.optim.SGD(net.parameters(), lr=0.1)
step = taper.compile(lambda x: net(x).pow(2).mean())
for _ in range(3):
    opt.zero_grad()
    step(taper.ones(5, 4)).backward()
    opt.step()
""",
    "no gradients": """
net = taper.compile(taper.nn.Linear(4, 8))
with taper.no_grad():
    net(taper.ones(5, 4))
""",
    "break by print": """
@taper.compile
def fn(x):
    y = x + 1
    print('between')
    return y * 2
fn(taper.ones(3))
""",
    "break by data": """
@taper.compile
def fn(x):
    y = x * 2
    if y.sum() > 0:
        y = y - 1
    return y * 3
fn(taper.ones(3)); fn(-taper.ones(3))
""",
    "recompiles": """
@taper.compile(dynamic=False)
def fn(x, k):
    return x * k
for n in (3, 4, 5):
    fn(taper.ones(n), 2.0)
fn(taper.ones(3), 3.0)
fn(taper.ones(3, dtype=taper.float64), 3.0)
""",
    "recompile limit": """
@taper.compile(dynamic=False)
def fn(x):
    return x + 1
for n in range(1, 14):
    fn(taper.ones(n))
""",
    "graph break under fullgraph": """
@taper.compile(fullgraph=True)
def fn(x):
    print('no')
    return x + 1
try:
    fn(taper.ones(3))
except Exception as e:
    print(type(e).__name__)
""",
    "backend fails": """
def bad(gm, inputs):
    raise RuntimeError("cannot do <this> & \\"that\\"")
fn = taper.compile(lambda x: x + 1, backend=bad)
try:
    fn(taper.ones(3))
except Exception as e:
    print(type(e).__name__)
""",
    "the program fails": """
@taper.compile
def fn(x, i):
    return x[i] + 1
for i in (0, 7):
    try:
        fn(taper.ones(3), i)
    except Exception as e:
        print(type(e).__name__)
""",
    "two threads": """
import threading
def work(k):
    taper.compile(lambda x: x * k + k)(taper.ones(3))
ts = [threading.Thread(target=work, args=(k,)) for k in (2, 3)]
for t in ts:
    t.start()
for t in ts:
    t.join()
""",
    "custom operators": open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "custom_operators.py")).read(),
    "odd names": """
exec("def f_\\u00e9\\u00e8(x):\\n    return x + 1")
taper.compile(f_\u00e9\u00e8)(taper.ones(3))
""",
}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py"))
import test_trace_names  # programs that write every record there is
PROGRAMS.update((f"names: {name}", program) for name, program in test_trace_names.PROGRAMS.items() if name != "saved")


def trace(program, var="TAPER_TRACE", **env):
    """-> (directory of everything, path of the trace)"""
    if not EXE:
        raise unittest.SkipTest("tlparse is not installed")
    d = tempfile.mkdtemp()
    script = os.path.join(d, "play.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(HEAD + program)
    p = subprocess.run([sys.executable, script], env=dict(os.environ, **{var: os.path.join(d, "trace")}, **env), timeout=120,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, p.stdout
    (log,) = os.listdir(os.path.join(d, "trace"))
    return d, os.path.join(d, "trace", log)


def read(d, log):
    out = os.path.join(d, "out")
    p = subprocess.run([EXE, "--strict", "--no-browser", "-o", out, log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert p.returncode == 0, p.stdout
    assert not re.search(r"fail_\w+: [1-9]", p.stdout), p.stdout
    files = {os.path.relpath(os.path.join(r, f), out) for r, _, fs in os.walk(out) for f in fs}
    with open(os.path.join(out, "index.html"), encoding="utf-8") as f:
        return files, f.read(), out


def pages(name, **env):
    d, log = trace(PROGRAMS[name], **env)
    try:
        files, index, out = read(d, log)
        extra = {}
        for f in ("failures_and_restarts.html", "chromium_events.json"):
            path = os.path.join(out, f)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as h:
                    extra[f] = h.read()
        return files, index, extra
    finally:
        shutil.rmtree(d)


def stems(files, where="-_0_0_0/"):
    return {re.sub(r"_\d+\.\w+$", "", f[len(where):]) for f in files if f.startswith(where)}


def test_strict_reading_of_every_program():
    for name in PROGRAMS:
        for var in ("TAPER_TRACE", "TAPER_DTRACE"):
            files, index, _ = pages(name, var=var)
            assert any("dynamo_output_graph" in f for f in files) or "fullgraph" in name, (name, files)
            assert any("compilation_metrics" in f for f in files), (name, files)
            assert "play.py" in index, name


def test_pages_of_a_training_step():
    files, index, extra = pages("training")
    want = {"dynamo_output_graph", "dynamo_guards", "aot_joint_graph", "aot_forward_graph", "aot_backward_graph",
            "inductor_output_code___compiled_fn_1_forward", "inductor_output_code___compiled_fn_1_backward", "compilation_metrics",
            "bwd_compilation_metrics", "fx_graph_cache_miss", "fusion"}
    assert want <= stems(files), want - stems(files)
    events = json.loads(extra["chromium_events.json"])
    names = {e["name"] for e in events}
    assert {"entire_frame_compile", "bytecode_tracing", "backend_compile", "create_aot_dispatcher_function", "code_gen"} <= names, names
    depth = 0
    for e in events:
        depth += {"B": 1, "E": -1}[e["ph"]]
        assert depth >= 0, events
    assert depth == 0, "every phase that begins ends"
    assert 'class="status-ok"' in index, "compiled whole: green"


def test_colours():
    _, index, _ = pages("break by print")
    assert 'class="status-break"' in index, index[:3000]
    _, index, extra = pages("backend fails")
    assert 'class="status-error"' in index
    assert "BackendCompilerFailed" in extra["failures_and_restarts.html"]
    _, _, extra = pages("graph break under fullgraph")
    assert "Unsupported" in extra["failures_and_restarts.html"] and "play.py" in extra["failures_and_restarts.html"]


def test_recompiles_are_told():
    files, _, _ = pages("recompiles")
    assert {"recompile_reasons", "compilation_metrics"} <= stems(files, "-_0_1_0/"), files


def test_rank():
    d, log = trace(PROGRAMS["one graph"], RANK="3")
    try:
        assert os.path.basename(log).startswith("dedicated_log_taper_trace_rank_3_"), log
        with open(log) as f:
            assert '"rank": 3' in f.readline()
        read(d, log)
    finally:
        shutil.rmtree(d)


def test_all_ranks_in_one_page():
    """Under the torch alias traces have the names that the reader looks for."""
    if not EXE:
        raise unittest.SkipTest("tlparse is not installed")
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "play.py"), "w") as f:
            f.write("import torch\n@torch.compile\ndef f(x):\n    return x.sin() + 1\nf(torch.ones(3))\nf(torch.ones(4))\n")
        for rank in "01":
            subprocess.run([sys.executable, "-m", "taper", os.path.join(d, "play.py")], env=dict(os.environ, TORCH_TRACE=os.path.join(d, "t"), RANK=rank), check=True)
        out = os.path.join(d, "out")
        p = subprocess.run([EXE, "--all-ranks-html", "--strict", "--no-browser", "-o", out, os.path.join(d, "t")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert p.returncode == 0 and {"index.html", "rank_0", "rank_1"} <= set(os.listdir(out)), p.stdout
        with open(os.path.join(out, "index.html"), encoding="utf-8") as f:
            assert "execution order: consistent across ranks" in f.read()


def test_traces_of_pytorch_are_reported():
    """`taper report` understands every line of what PyTorch itself writes: breaks, recompiles, errors, symbols."""
    program = """
import torch
@torch.compile(backend="aot_eager")
def f(x, k):
    y = x * k
    print("between")
    return y + 1
for n, k in ((3, 2.0), (4, 2.0), (4, 3.0)):
    f(torch.ones(n), k)
@torch.compile(fullgraph=True, backend="aot_eager")
def g(x):
    print("no")
    return x
try:
    g(torch.ones(3))
except Exception:
    pass
"""
    with tempfile.TemporaryDirectory() as d:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER")}
        p = subprocess.run([sys.executable, "-c", program], env=dict(env, TORCH_TRACE=os.path.join(d, "t")), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert p.returncode == 0, p.stdout
        taper = os.path.join(os.environ.get("TAPER_BUILD") or os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "build"), "taper")
        p = subprocess.run([taper, "report", os.path.join(d, "t"), "--json"], stdout=subprocess.PIPE, text=True)
        j = json.loads(p.stdout)
        assert j["problems"] == 0 and j["records"] > 50, j
        assert j["graph_breaks"] == 1 and j["errors"] == 1 and j["recompiles"] >= 2 and j["compiles"] >= 5, j
        subprocess.run([taper, "report", os.path.join(d, "t"), "--no-browser", "-o", os.path.join(d, "o.html")], stdout=subprocess.DEVNULL, check=True)
        with open(os.path.join(d, "o.html"), encoding="utf-8") as f:
            page = f.read()
        assert "size mismatch at index 0</span>" in page and "builtin" in page.split('id="breaks"')[1], page[:2000]
