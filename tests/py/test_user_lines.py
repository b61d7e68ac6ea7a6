"""Where one place of the program is named, it is in the user's code: not in the Taper functions that it called. Each program is a file of its
own, whose lines are found by the marks in their comments."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import taper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
NET = """
import taper
import taper.nn as nn
import taper.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 16)
    def forward(self, idx):
        x = self.emb(idx)  # EMB
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)  # QKV
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)  # ATTEND
        x = self.drop(x)  # DROP
        return F.cross_entropy(self.head(x).view(-1, 16), idx.view(-1))  # LOSS
"""
TRAIN = NET + """
taper.manual_seed(0)
net = Net()
step = taper.compile(net)
for n in (6, 6, 7):
    step(taper.arange(2 * n).reshape(2, n) % 16).backward()
"""
MARKS = ("EMB", "QKV", "ATTEND", "DROP", "LOSS")
LIBRARY = re.compile(r"\b(functional|linear|module|norm|dropout|rnn)\.py\b|python/taper/")


def run(source, name="model.py", before=(), directory="", **env):
    """(return code, output and errors, the program's file, the folder it ran in)"""
    d = tempfile.mkdtemp()
    file = os.path.join(d, directory, name)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "w") as f:
        f.write(source)
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    base.update(PYTHONPATH=os.environ.get("PYTHONPATH", os.path.join(ROOT, "python")), TAPER_CACHE_DIR=os.path.join(d, "cache"))
    p = subprocess.run([sys.executable, *before, file], cwd=d, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=dict(base, **env))
    return p.returncode, p.stdout, file, d


def line(source, mark):
    return next(i for i, s in enumerate(source.split("\n"), 1) if s.endswith("# " + mark))


def text_at(source, mark):
    """As the logs write it: model.py:17 x = self.emb(idx)  # EMB"""
    k = line(source, mark)
    return f"model.py:{k} {source.split(chr(10))[k - 1].strip()}"


def logs(source, names, **kw):
    rc, out, file, _ = run(source, TAPER_LOGS=names, **kw)
    assert rc == 0, out
    return out, file


def test_graphs_in_logs():
    out, file = logs(TRAIN, "graph_code,aot_graphs,aot_joint_graph")
    assert not LIBRARY.search(out), LIBRARY.search(out)
    for m in MARKS:
        k = line(TRAIN, m)
        assert f"# File: {file}:{k} in forward, code: {TRAIN.split(chr(10))[k - 1].strip()}\n" in out, (m, out)


def test_generated_code_and_hints():
    out, file = logs(TRAIN, "output_code,kernel_code,schedule,fusion,perf_hints")
    assert not LIBRARY.search(out), LIBRARY.search(out)
    for m in ("QKV", "ATTEND", "LOSS"):
        assert " *       from " + text_at(TRAIN, m) in out, (m, out)
    assert "/* " + text_at(TRAIN, "DROP") + " */" in out, out
    assert re.search(r"\[__perf_hints\].* at " + re.escape(text_at(TRAIN, "EMB")), out), out
    assert re.search(r"\[__kernel_code\].*  # " + re.escape(os.path.dirname(file) + "/" + text_at(TRAIN, "QKV")), out), out


def test_guards_and_symbols():
    out, file = logs(TRAIN, "guards,+dynamic")
    places = re.findall(r"# (\S+\.py):(\d+) in (\w+)$", out, re.M)
    assert ("model.py", str(line(TRAIN, "QKV")), "forward") in places
    others = {p for p in places if p[0] != "model.py"}
    assert {p[2] for p in others} == {"__call__"}, others  # the call of the compiled module, around which is nothing of the user's
    found = re.findall(r"create_symbol .* at (\S+) in", out)
    assert found and not any(LIBRARY.search(s) for s in found), found


def records(d):
    strings, kind = {}, None
    for s in open(glob.glob(d + "/t/*.log")[0]):
        if s.startswith("\t"):
            yield kind, s[1:], strings
            continue
        j = json.loads(s[s.index("{"):])
        kind = next(iter(j))
        if kind == "str":
            strings[j["str"][1]] = j["str"][0]
        yield kind, j, strings


def test_trace():
    rc, out, file, d = run(TRAIN, TAPER_TRACE="t")
    assert rc == 0, out
    guards, seen, symbols = 0, set(), 0
    for kind, j, strings in records(d):
        if isinstance(j, str):
            if kind == "dynamo_guards":
                for g in json.loads(j):
                    guards += 1
                    top = g["user_stack"][0] if g["user_stack"] else None
                    assert not top or strings[top["filename"]] == file or top["name"] == "__call__", (g, strings)
            elif kind != "compilation_metrics":
                assert not LIBRARY.search(j), (kind, j)
                seen.update(m for m in MARKS if text_at(TRAIN, m) in j)
        elif kind == "bwd_compilation_metrics":
            assert j[kind]["co_filename"] == file, j
        elif kind == "create_symbol":
            symbols += 1
            names = [strings[f["filename"]] for f in j[kind]["stack"]]
            assert names[0].endswith("module.py") and file in names and names[-1].endswith("functional.py"), names  # all frames, outermost first
            assert all(f["loc"] for f in j[kind]["stack"]), j
            assert {strings[f["filename"]] for f in j[kind]["user_stack"]} == {file}, j
    assert guards > 50 and symbols == 1 and seen == set(MARKS), (guards, symbols, seen)
    p = subprocess.run([TAPER, "report", *glob.glob(d + "/t/*.log"), "-o", d + "/page.html", "--no-browser"], capture_output=True, text=True)
    page = open(d + "/page.html").read()
    assert text_at(TRAIN, "ATTEND") in page and "functional.py:" not in page, p.stderr


PACK = """
import taper
from taper.nn.utils.rnn import pack_padded_sequence
@taper.compile
def f(x, n):
    y = x * 2
    p = pack_padded_sequence(y, n)  # PACK
    return p.data + 1
f(taper.ones(4, 2, 3), taper.tensor([4, 2]))
"""


def test_graph_breaks():
    """In a library function, in the same when it is captured on its own, and where it goes on after a break."""
    out, file = logs(PACK, "graph_breaks")
    at = re.findall(r"Graph break (?:\(.*\) )?in user code at (.*)", out)
    assert len(at) >= 3 and set(at) == {f"{file}:{line(PACK, 'PACK')}"}, out
    stacks = out.split("User code traceback:")[1:]
    assert all(s.index(f'File "{file}", line {line(PACK, "PACK")}, in f') < s.index("rnn.py") for s in stacks), out  # the stack is whole
    assert "in taper_resume_in_pack_padded_sequence_at_" in out, out


HOOK = """
import taper
def hook(m, args, out):
    print("here")  # PRINT
    return out + 1
lin = taper.nn.Linear(4, 4)
lin.register_forward_hook(hook)
@taper.compile
def f(x):
    return lin(x) * 2  # CALL
f(taper.ones(2, 4))
"""


def test_graph_breaks_around_hooks():
    """The user's function that the library calls is the place; in the library's own code, the call of the library is."""
    out, file = logs(HOOK, "graph_breaks")
    at = set(re.findall(r"Graph break in user code at (.*)", out))
    assert f"{file}:{line(HOOK, 'PRINT')}" in at and at <= {f"{file}:{line(HOOK, m)}" for m in ("PRINT", "CALL")}, at
    rc, out, file, _ = run("import taper\nnet = taper.nn.Linear(4, 4)\nnet.register_forward_hook(print)\ndef main():\n    taper.compile(net)(taper.ones(2, 4))  # CALL\nmain()\n",
                           TAPER_LOGS="graph_breaks")
    assert rc == 0, out
    at = set(re.findall(r"Graph break in user code at (.*)", out))
    assert at == {f"{file}:5"}, out  # the whole trace is the library's: who called it is a frame of Python


def test_explain():
    rc, out, file, _ = run(PACK.replace("@taper.compile\n", "").replace("\nf(", "\nprint(*taper._dynamo.explain(f)(").replace("2]))", "2])).break_reasons)"))
    assert rc == 0 and out.count(f'File "{file}", line 6, in f') >= 3, out


def test_breaks_in_metrics():
    """What fails a compile is at the user's line, too."""
    rc, out, file, d = run(PACK.replace("@taper.compile", "@taper.compile(fullgraph=True)"), TAPER_TRACE="t")
    assert rc == 1 and "Unsupported" in out
    m = [j["compilation_metrics"] for k, j, _ in records(d) if k == "compilation_metrics" and not isinstance(j, str)]
    assert [(x["fail_user_frame_filename"], x["fail_user_frame_lineno"]) for x in m] == [(file, line(PACK, "PACK"))], m


def test_errors():
    """Planted faults of every stage, and a failure that is followed by plain execution."""
    for op, fault, mark in (("layer_norm", "compile_error@capture", "QKV"), ("layer_norm", "compile_error@aot", "QKV"), ("layer_norm", "compile_error@lower", "QKV"),
                            ("layer_norm", "compile_error@gen", "QKV"), ("embedding", "compile_error@gen", "EMB"), ("layer_norm", "oom@lower", "QKV"),
                            ("layer_norm", "runtime_error@gen", "QKV"), ("dropout", "runtime_error@aot", "DROP")):
        rc, out, file, _ = run(TRAIN, TAPER_INJECT=f"{op}:{fault}")
        assert rc == 1 and f", {file}:{line(TRAIN, mark)})" in out and "functional.py:" not in out, (op, fault, out)
        assert "\nin backend" not in out, out  # notes are one line, under the message
    bad = "import taper\nimport taper.nn.functional as F\n@taper.compile(backend='eager')\ndef f(i, w):\n    j = i + 1\n    return F.embedding(j, w)  # LOOK\nf(taper.tensor([1, 9]), taper.ones(4, 2))\n"
    rc, out, file, _ = run(bad)
    assert rc == 1 and "IndexError" in out and f'File "{file}", line 6, in f' in out, out


SAVED = NET + """
net = Net().eval()
with taper.no_grad():
    taper.compile(net)(taper.arange(12).reshape(2, 6))
"""


def test_accuracy_and_bundles():
    rc, out, file, d = run(SAVED, TAPER_INJECT="layer_norm:accuracy@gen", TAPER_REPRO_AFTER="aot", TAPER_REPRO_LEVEL="4")
    place = f"({file}:{line(SAVED, 'QKV')}: {SAVED.split(chr(10))[line(SAVED, 'QKV') - 1].strip()})"
    assert rc == 1 and re.search(r"first diverging node: '\w+' " + re.escape(place), out), out
    bundle = glob.glob(d + "/taper_compile_debug/*/minifier")[0]
    text = open(bundle + "/graph.py").read()
    assert f"# library: '{os.path.dirname(taper.__file__)}'\n" in text and "called from: " + file in text, text
    p = subprocess.run([TAPER, "minify", bundle], cwd=d, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and place in p.stdout + p.stderr, p.stdout + p.stderr
    shown = [s for s in p.stdout.split("\n") if "# File: " in s]
    assert shown and all(file in s for s in shown), p.stdout
    c = open(bundle + "/minimal/repro.c").read()
    assert text_at(SAVED, "QKV") in c and "functional.py" not in c, c


def test_torch_programs():
    source = TRAIN.replace("import taper.nn as nn", "import torch.nn as nn").replace("import taper.nn.functional", "import torch.nn.functional").replace("taper", "torch")
    rc, out, file, _ = run(source, before=("-m", "taper"), TAPER_LOGS="output_code,graph_code,guards")
    assert rc == 0 and " *       from " + text_at(source, "ATTEND") in out, out
    assert "functional.py" not in out and f"# File: {file}:{line(source, 'EMB')} in forward" in out, out


def test_users_directories_called_taper():
    """A program is not the library because of where it lies."""
    for directory in ("taper", "taper/nn/modules", os.path.basename(ROOT) + "/python/taper_of_mine"):
        rc, out, file, _ = run(TRAIN, directory=directory, name="functional.py", TAPER_LOGS="graph_code")
        assert rc == 0 and f"# File: {file}:{line(TRAIN, 'EMB')} in forward" in out, out


def test_library_alone():
    """Where the library alone is compiled, the line that calls it is named."""
    source = "import taper\np = taper.nn.Parameter(taper.ones(3))\np.grad = taper.ones(3)\ntaper.compile(taper.optim.SGD([p], lr=0.1).step)()\n"
    out, file = logs(source, "graph_code")
    assert f"# File: {file}:4 in <module>, code: taper.compile(taper.optim.SGD" in out and "/taper/optim/" not in out, out
    rc, out, _, d = run("import taper\ntaper.compile(taper.nn.functional.hardtanh, dynamic=True)(taper.ones(3, 4))\n", TAPER_TRACE="t")
    stacks = [(j[k]["user_stack"], j[k]["stack"]) for k, j, _ in records(d) if k == "create_symbol" and not isinstance(j, str)]
    assert rc == 0 and stacks and all(user == whole[-1:] and user for user, whole in stacks), (out, stacks)


WATCHED = NET + PACK.replace("\nf(", "\n# f(") + """
import ctypes, os
fd = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
assert ctypes.CDLL(None).inotify_add_watch(fd, os.fsencode(__file__), 0x20) >= 0  # IN_OPEN
def opened():
    try:
        return len(os.read(fd, 4096)) // 16
    except BlockingIOError:
        return 0
step = taper.compile(Net())
for n in (6, 7):
    step(taper.arange(2 * n).reshape(2, n) % 16).backward()
f(taper.ones(4, 2, 3), taper.tensor([4, 2]))
quiet = opened()
shown = []
def backend(gm, inputs):
    shown.extend(n.meta.get("stack_trace", "") for n in gm.graph.nodes)
    return gm.forward
taper.compile(Net(), backend=backend)(taper.arange(12).reshape(2, 6))
print(quiet, opened(), sum("is_causal=True)  # ATTEND" in s for s in shown))
"""


def test_sources_are_read_when_they_are_shown():
    """Compiling opens no source file, with the cache on disk, symbolic sizes, a backward pass and breaks; what shows a line does, once."""
    rc, out, _, _ = run(WATCHED)
    assert rc == 0 and out.split()[:2] == ["0", "1"] and int(out.split()[2]) > 0, out


CACHED = NET + """
import sys
net = Net().eval()
with taper.no_grad():
    taper.compile(net, dynamic=len(sys.argv) > 1)(taper.arange(12).reshape(2, 6))
"""


def test_lines_of_graphs_from_the_cache():
    """Graphs of another process know their lines, as records and as text (symbolic sizes)."""
    with tempfile.TemporaryDirectory() as d:
        file = d + "/model.py"
        with open(file, "w") as f:
            f.write(CACHED)
        base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        base.update(PYTHONPATH=os.environ.get("PYTHONPATH", os.path.join(ROOT, "python")), TAPER_CACHE_DIR=d + "/cache", TAPER_CACHE="1", TAPER_LOGS="output_code,cache")
        for more in ((), ("dynamic",)):
            for hit in (False, True):
                p = subprocess.run([sys.executable, file, *more], capture_output=True, text=True, env=base, timeout=300)
                assert p.returncode == 0, p.stderr
                assert "cache hit" in p.stderr or not hit, p.stderr
                assert " *       from " + text_at(CACHED, "QKV") in p.stderr and not LIBRARY.search(p.stderr), (more, hit, p.stderr)
