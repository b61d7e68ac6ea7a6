"""`taper report` on traces of real programs: what it finds, what it hides, how much memory it takes."""
import hashlib, json, os, random, re, resource, shutil, stat, subprocess, sys, tempfile, time, unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
PROGRAM = """
import json, sys, taper, taper.compiler

def secret_helper(private_tensor):
    return private_tensor.sin()

@taper.compile
def undisclosed_step(private_tensor, learning_secret):
    confidential = secret_helper(private_tensor) * learning_secret
    return taper.softmax(confidential, -1).sum() + confidential.sum()

@taper.compile
def noisy(x):
    y = x + 1
    print('proprietary message', file=sys.stderr)
    return y * 2

w = taper.ones(6, 4, requires_grad=True)
for n in (6, 6, 6):
    undisclosed_step(w, 2.0).backward()
undisclosed_step(taper.ones(8, 4, requires_grad=True), 2.0)
undisclosed_step(taper.ones(9, 4, requires_grad=True), 3.5)
noisy(taper.ones(3))
noisy(taper.ones(3))
try:
    taper.compile(noisy.__wrapped__, fullgraph=True)(taper.ones(3))
except Exception:
    pass
print(json.dumps(taper.compiler.metrics()))
"""


class Trace:
    def __init__(self, program=PROGRAM, name="private_model.py", prefix="taper_report_", **env):
        self.dir = tempfile.mkdtemp(prefix=prefix)
        while "zq" in os.path.basename(self.dir)[len(prefix):]:  # planted words are made of these letters, and names of directories by chance
            os.rmdir(self.dir)
            self.dir = tempfile.mkdtemp(prefix=prefix)
        self.traces = os.path.join(self.dir, "trace")
        script = os.path.join(self.dir, name)
        with open(script, "w", encoding="utf-8") as f:
            f.write(program)
        p = subprocess.run([sys.executable, script], env=dict(os.environ, **{"TAPER_TRACE": self.traces, **{k: self.traces if v is None else v for k, v in env.items()}}), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=60)
        assert p.returncode == 0, p.stderr
        self.out = p.stdout

    def report(self, *args):
        page = os.path.join(self.dir, "out.html")
        p = subprocess.run([TAPER, "report", self.traces, "--no-browser", "-o", page, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert p.returncode == 0, p.stdout
        with open(page, encoding="utf-8") as f:
            return f.read()

    def json(self, *args):
        p = subprocess.run([TAPER, "report", self.traces, "--json", *args], stdout=subprocess.PIPE, text=True)
        assert p.returncode == 0
        return json.loads(p.stdout)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.dir)


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.split("<main>")[-1]).replace("&#39;", "'").replace("&quot;", '"').replace("\u00a0", " "))


def test_report_and_metrics_agree():
    with Trace(TAPER_PROFILE="1") as t:
        m, r = json.loads(t.out.splitlines()[-1]), t.json()
        for key in ("kernels", "library_calls", "bytes_moved", "stages_us"):
            assert m[key] == r[key], (key, m[key], r[key])
        assert m["kernels"] > 0 and m["bytes_moved"] > 0 and m["stages_us"]["code"] > 0, m
        assert abs(m["compile_us"] - r["seconds"] * 1e6) < 1, (m["compile_us"], r["seconds"])
        ids = {c["id"]: c for c in r["compile_ids"]}
        assert m["regions"], m
        for g in m["regions"]:
            c = ids[g["compile_id"]]
            for key in ("calls", "first_call_us", "warm_call_us", "warm_best_us", "eager_call_us"):
                assert c[key] == g[key], (key, g, c)
        first = next(g for g in m["regions"] if g["compile_id"] == "0/0")
        assert first["calls"] == 3 and 0 < first["warm_best_us"] <= first["warm_call_us"] < first["first_call_us"] and first["eager_call_us"] > 0, first
        assert sum(1 for c in m["compiles"] if not c["is_forward"]) == 1, "one backward graph was compiled"


def test_page_tells_what_happened_and_what_to_do():
    with Trace(TAPER_PROFILE="1") as t:
        page = t.report()
        text = text_of(page)
        for part in ("What to do next", "Where compile time went", "Joint graph (forward and backward)", "Fusion decisions", "Generated code: __compiled_fn_1_forward.c",
                     "size mismatch at index 0 was 6 , now 8", "call mark_dynamic(tensor, dim)", "== 2.0 was 2.0 , now 3.5", "pass it as a tensor: taper.tensor(value)",
                     "TB0005", "builtin: print", "What helps: Print outside of the compiled function", "failed later", "it changed between calls: it was 6 and is now 8",
                     "confidential = secret_helper(private_tensor) * learning_secret", "Ledger", "Timeline", "Unsupported", "Metrics of the backward graph",
                     "Every line was understood."):
            assert part in text, part
        assert 'class="tag ok"' in page and 'class="tag break"' in page and 'class="tag error"' in page
        assert "undisclosed_step(w, 2.0).backward()" in text, "calls are shown with their line"
        (log,) = os.listdir(t.traces)
        with open(os.path.join(t.traces, log)) as f:
            trace = f.read()
        assert '"sizes": {"l_private_tensor_": [6, 4], ' in trace and '"l_private_tensor_": ["s0", 4]' in trace
        j = t.json()
        assert j["graph_breaks"] >= 1 and j["errors"] == 1 and j["recompiles"] >= 2 and j["problems"] == 0, j
        assert any(row["function"] == "noisy" and row["compiled_runs"] == 2 for row in j["ledger"]), j["ledger"]
        assert j["compile_ids"][0]["guards_failed_later"], j["compile_ids"][0]
        assert j["recompiles"] == 2 == j["compiles"] - j["functions"] - 1, "compile() called again for a function is no guard that failed"


def test_redact_replaces_names_paths_and_source():
    secrets = ("secret", "private", "confidential", "undisclosed", "noisy", "proprietary", "learning")
    with Trace() as t:
        plain, hidden = t.report(), t.report("--redact")
        for s in secrets:
            assert s in plain, s
            assert s not in hidden.lower(), (s, re.findall(".{60}%s.{60}" % s, hidden.lower())[:3])
        assert t.dir not in hidden and os.path.basename(t.dir) not in hidden
        for kept in ("taper.sin", "f32[6, 4]", "graph break", "TB0005", "builtin: print", "size mismatch at index 0. expected 6, actual 8", "fused", "They were replaced"[5:]):
            assert kept in text_of(hidden), kept
        out = json.dumps(t.json("--redact"))
        for s in secrets:
            assert s not in out.lower(), s


# Every name of this program begins with zq. Another trace is made of its trace by putting words of ours in their place.
PRIVATE = """
import taper, sys
class ZqNet(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.zqlayer = taper.nn.Linear(4, 4)
        self.register_buffer("zqbuf", taper.ones(4))
        self.zqscale = 2.5
        self.zqmode = "zqvalue"
    def forward(self, zqin):
        zqhid = zqhelper(self.zqlayer(zqin) * self.zqscale) + self.zqbuf
        if self.zqmode == "zqvalue":
            zqhid = zqhid + 1
        return zqhid
def zqhelper(zqarg):
    return zqarg.sin()
@taper.library.custom_op("zqlib::zqop", mutates_args=())
def zqop(x: taper.Tensor) -> taper.Tensor:
    return x + 1
@zqop.register_fake
def _(x):
    return taper.empty_like(x)
zqdict = {"zqkey": 3}
@taper.compile
def zqfn(zqtensor, zqnum):
    zqtmp = zqop(zqtensor) * zqnum + zqdict["zqkey"]
    print("zqtext", file=sys.stderr)
    return zqtmp * 2
zqnet = ZqNet()
zqcomp = taper.compile(zqnet)
for n in (3, 5):
    zqcomp(taper.ones(n, 4)).sum().backward()
zqnet.zqmode = "zqother"
zqcomp(taper.ones(5, 4))
taper._dynamo.register_hook_for_recompile_user_context(lambda: "zqepoch of the graph")
for zqk in (2, 3.5):
    zqfn(taper.ones(3), zqk)
def zqback(ctx, g):
    raise ValueError("zqsays there is no derivative")
zqop.register_autograd(zqback)
try:
    taper.compile(lambda zqa: zqop(zqa).sum())(taper.ones(3, requires_grad=True))
except Exception:
    pass
try:
    taper.compile(lambda zqm: taper.linalg.cholesky(zqm))(-taper.eye(3))
except Exception:
    pass
class ZqFail(Exception):
    pass
def zqbackend(zqgraph, zqinputs):
    raise ZqFail("zqsays: the kernel of graph 471147114")
def zqstop(zqx):
    raise ValueError("zqsaid the backend\\nis 471247124")
for zqf in (taper.compile(zqfn.__wrapped__, fullgraph=True), taper.compile(lambda zqa, zqb: zqa + zqb, backend=zqbackend),
            taper.compile(lambda zqa, zqb: zqstop(zqa), fullgraph=True), taper.compile(lambda zqa, zqb: zqstop(zqa + 1))):
    try:
        zqf(taper.ones(3), 2)
    except Exception:
        pass
"""
OURS = {"zqfn": "graph", "zqtensor": "size", "zqnum": "guard", "zqtmp": "kernel", "zqkey": "cache", "zqdict": "group", "zqtext": "reason",
        "zqop": "add", "zqlib": "inductor", "zqhelper": "fused", "zqarg": "shape", "zqhid": "value", "zqlayer": "code", "zqbuf": "library",
        "zqscale": "stride", "zqmode": "backend", "zqvalue": "compiled", "zqother": "failed", "ZqNet": "Guard", "zqin": "expected", "zqnet": "call",
        "zqcomp": "function", "zqfile": "schedule", "zqk": "step", "zqdir": "reasons",
        "ZqFail": "Failed", "zqbackend": "lowering", "zqgraph": "module", "zqinputs": "inputs", "zqsays": "says", "zqstop": "stop", "zqsaid": "said",
        "zqx": "left", "zqepoch": "epoch", "zqback": "backward", "zqm": "matrix", "zqf": "right", "zqa": "first", "zqb": "second"}


def test_redact_hides_names_that_are_words_of_ours():
    import hashlib
    for var in ("TAPER_TRACE", "TAPER_DTRACE"):
        with Trace(PRIVATE, name="zqfile.py", prefix="zqdir", **{var: None}) as t:
            plain, hidden = t.report(), t.report("--redact")
            assert not re.search("zq", hidden, re.I), re.findall(".{60}zq.{20}", hidden, re.I)[:5]
            out = json.dumps(t.json("--redact"))
            assert "zq" not in out.lower(), re.findall(".{60}zq.{20}", out)[:5]
            for said in ("the kernel of graph", "471147114", "471247124"):
                assert said in plain and said not in hidden and said not in out, said
            assert "recompile_user_contexts zqepoch of the graph" in text_of(plain) and "recompile_user_contexts 1 entry" in text_of(hidden)
            assert "feature_usage fx_cache: false" in text_of(plain)
            assert "raised:" in hidden and "ValueError: ..." in hidden, "that there was one is told"
            for field in ("recompile_user_contexts", "feature_usage", "gc_time_us", "stack_trace"):
                assert field in hidden, "names of metrics are no secret"
            (log,) = os.listdir(t.traces)
            path = os.path.join(t.traces, log)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            for name in sorted(OURS, key=len, reverse=True):
                text = text.replace(name, OURS[name])
            assert "zq" not in text.lower(), re.findall(".{30}zq.{30}", text, re.I)[:3]
            def sum_again(m):
                body = "\n".join(x[1:] for x in m.group(3).split("\n")[:-1])
                return m.group(1) + hashlib.md5(body.encode()).hexdigest() + m.group(2) + m.group(3)
            text = re.sub(r'("has_payload": ")[0-9a-f]{32}("\}\n)((?:\t[^\n]*\n)+)', sum_again, text)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            again = t.report("--redact")
            a, b = (re.findall(r"\w+", x.split("<main>")[1]) for x in (hidden, again))
            assert len(a) == len(b), (len(a), len(b))
            hides = re.compile(r"n\d+$")
            leaks = {(y, " ".join(b[max(i - 8, 0):i + 4])) for i, (x, y) in enumerate(zip(a, b)) if hides.match(x) and not hides.match(y)}
            assert not leaks, sorted(leaks)[:10]


def test_diff_shows_what_changed():
    other = PROGRAM.replace(".sin()", ".cos()")
    with Trace() as a, Trace(other) as b:
        text = text_of(a.report("--diff", b.traces))
        assert "compiles differ between the two traces" in text or "compile differs" in text, text[:500]
        assert re.search(r"sin: .* = taper\.sin\(", text) and re.search(r"cos: .* = taper\.cos\(", text), text[:3000]
        same = text_of(a.report("--diff", a.traces))
        assert "0 compiles differ" in same and "None: both traces compiled the same things" in same, same[:600]
    with Trace() as a, Trace(name="copy_of_it.py") as b:  # a copy under another name is the same program
        text = text_of(a.report("--diff", b.traces))
        assert "0 compiles differ" in text and "Only in the" not in text, text[:3000]


def written(d, name, graph):
    """A trace of one compile with this captured graph; the directory."""
    os.mkdir(os.path.join(d, name))
    with open(os.path.join(d, name, "x.log"), "w") as f:
        f.write('V1115 10:20:30.123456 1 a.c:1] {"dynamo_output_graph": {"sizes": {}}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "%s"}\n'
                % hashlib.md5("\n".join(graph).encode()).hexdigest() + "".join(f"\t{x}\n" for x in graph))
    return os.path.join(d, name)


def test_empty_lines_and_other_ends_of_lines_are_no_problem():
    """A killed process leaves empty lines behind its last record; a trace may have gone through a program that ends lines in \\r\\n."""
    lines = ["def forward(self, L_x_):", "", "    return (L_x_,)"]
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(written(d, "plain", lines), "x.log"), "rb") as f:
            one = f.read()
        two = one.replace(b'"frame_id": 0', b'"frame_id": 1')
        for name, text in (("one after the other", one + two), ("behind", one + two + b"\n" * (256 << 10)), ("between", one + b"\n" * (3 << 20) + two),
                           ("crlf", (one + two).replace(b"\n", b"\r\n")), ("crlf behind", one + two + b"\r\n" * 5000), ("spaces", one + b"  \n" + two)):
            path = os.path.join(d, name)
            os.mkdir(path)
            with open(os.path.join(path, "x.log"), "wb") as f:
                f.write(text)
            p = subprocess.run([TAPER, "report", path, "--json"], stdout=subprocess.PIPE, text=True)
            j = json.loads(p.stdout)
            assert (j["records"], j["problems"], j["bad_checksums"], j["compiles"]) == (2, 0, 0, 2), (name, j)
            subprocess.run([TAPER, "report", path, "--no-browser", "-o", os.path.join(d, "o.html")], stdout=subprocess.DEVNULL, check=True)
            with open(os.path.join(d, "o.html"), encoding="utf-8", newline="") as f:
                page = f.read()
            assert page.count("return</b> (L_x_,)</pre>") == 2 and "\ufffd" not in page and "\r" not in page, (name, page[-3000:])
            count = int(re.search(r'x\.log.*?<td class="n">(?:-<td class="n">)?(\d+)', page.split('id="trace"')[1], re.S).group(1))
            assert count == {"between": 8 + (3 << 20), "spaces": 9}.get(name, 8), (name, count)


def test_diff_of_large_graphs_shows_what_changed_alone():
    """Also where lines are far apart, and where all that changed behind a node is what it is the last use of."""
    lines = [f"    n{i}: f32[3] = taper.sin(n{i - 1});  n{i - 1} = None" for i in range(1, 4001)]
    other = list(lines)
    other[0], other[-1] = "    n1: f32[3] = taper.cos(n0)", "    n4000: f32[3] = taper.cos(n3999)"
    other[2000] = other[2000].replace("n2000 = None", "n2000 = extra = None")
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "o.html")
        p = subprocess.run([TAPER, "report", written(d, "a", lines), "--diff", written(d, "b", other), "--no-browser", "-o", out], stdout=subprocess.PIPE, text=True)
        assert p.returncode == 0, p.stdout
        with open(out) as f:
            page = f.read()
        gone, came = (re.findall(rf'<div class="{c}">(.*?)</div>', page) for c in "da")
        assert gone == ["    n1: f32[3] = taper.sin(n0)", "    n4000: f32[3] = taper.sin(n3999)"], gone[:9]
        assert came == [x.replace("sin", "cos") for x in gone], came[:9]


def test_time_between_the_stages_has_names():
    """What the trace itself took, what errors took; what is left is said in words."""
    program = PROGRAM + "\ntry:\n    taper.compile(lambda x: print(x), fullgraph=True)(taper.ones(3))\nexcept Exception:\n    pass\n"
    with Trace(program) as t:
        page = t.report()
        legend = re.search(r'<div class="legend">(.*?)</div>', page, re.S).group(1)
        shares = {k: int(v) for k, v in re.findall(r"</span>([a-z ]+) [\d.]+\xa0?[^<]*?\((\d+)\xa0%\)", legend)}
        assert {"capture", "code", "this trace", "errors", "between the stages"} <= set(shares), legend
        assert 95 <= sum(shares.values()) <= 105, shares


def test_memory_does_not_grow_with_the_trace():
    if os.environ.get("TAPER_SANITIZED"):
        raise unittest.SkipTest("it measures memory")
    with Trace() as t:
        (log,) = os.listdir(t.traces)
        with open(os.path.join(t.traces, log)) as f:
            one = f.read()
        big = os.path.join(t.dir, "big.log")
        with open(big, "w") as f:
            n = 0
            while f.tell() < 48 << 20:
                f.write(re.sub(r'"frame_id": (\d+)', lambda m: f'"frame_id": {int(m.group(1)) + 10 * n}', one))
                n += 1
        code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        p = subprocess.run([sys.executable, "-c", code, TAPER, "report", big, "--no-browser", "-o", os.path.join(t.dir, "big.html")],
                           stdout=subprocess.PIPE, text=True, check=True)
        assert int(p.stdout) < 64 << 10, f"{int(p.stdout)} kB for 48 MiB of trace"
        assert os.path.getsize(os.path.join(t.dir, "big.html")) < 100 << 20
        with open(os.path.join(t.dir, "big.html")) as f:
            assert f.read().endswith("</html>\n")


def cli(*args, **kw):
    p = subprocess.run([TAPER, "report", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    return p.returncode, p.stdout


def test_clear_messages():
    with Trace() as t:
        empty = os.path.join(t.dir, "empty")
        os.mkdir(empty)
        rc, out = cli(empty)
        assert rc == 2 and f"no trace files (*.log) in '{empty}'" in out and "TAPER_TRACE=" in out, out
        rc, out = cli(t.traces, "--no-browser", "-o", os.path.join(t.dir, "no", "such", "x.html"))
        assert rc == 2 and "cannot write" in out and "No such file or directory" in out, out
        rc, out = cli(t.traces, "--no-browser", "-o", "/dev/full/x.html")
        assert rc == 2 and "cannot write '/dev/full/x.html'" in out, out
        rc, out = cli(t.traces, "--diff", empty, "--no-browser")
        assert rc == 2 and "no trace files" in out, out
        rc, out = cli(t.traces, "--wrong")
        assert rc == 2 and "does not know the option '--wrong'" in out, out
        page = os.path.join(t.dir, "p.html")
        env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
        rc, out = cli(t.traces, "-o", page, env=env)
        assert rc == 0 and f"no browser could be started; open {page} yourself" in out, out


def test_the_browser_is_opened_unless_told_not_to():
    with Trace() as t:
        bin_, seen, page = os.path.join(t.dir, "bin"), os.path.join(t.dir, "seen"), os.path.join(t.dir, "p.html")
        os.mkdir(bin_)
        fake = os.path.join(bin_, "xdg-open")
        with open(fake, "w") as f:
            f.write(f"#!/bin/sh\necho \"$1\" > {seen}\n")
        os.chmod(fake, stat.S_IRWXU)
        env = dict(os.environ, DISPLAY=":9", PATH=bin_ + ":" + os.environ["PATH"])
        rc, out = cli(t.traces, "-o", page, "--no-browser", env=env)
        assert rc == 0 and not os.path.exists(seen), out
        rc, out = cli(t.traces, "-o", page, env=env)
        assert rc == 0 and open(seen).read() == page + "\n", out


def test_ranks_in_one_page():
    with Trace("import taper\ntaper.compile(lambda x: x + 1)(taper.ones(3))\n", RANK="0") as t:
        subprocess.run([sys.executable, os.path.join(t.dir, "private_model.py")], env=dict(os.environ, TAPER_TRACE=t.traces, RANK="1"), check=True)
        names = sorted(os.listdir(t.traces))
        assert [n[:34] for n in names] == ["dedicated_log_taper_trace_rank_0_" + names[0][33], "dedicated_log_taper_trace_rank_1_" + names[1][33]], names
        text = text_of(t.report())
        assert "2 trace files" in text and "rank 0," in text and "rank 1," in text, text[:800]
        assert {c["rank"] for c in t.json()["compile_ids"]} == {0, 1}
        assert "rank 0 [0/0]" in text and "rank 1 [0/0]" in text, "each has its own count of compiles"
        assert "Ranks differ" not in text
        other = os.path.join(t.dir, "other.py")
        with open(other, "w") as f:
            f.write("import taper\ntaper.compile(lambda x: x + 1)(taper.ones(3))\n@taper.compile\ndef more(x):\n    return x * 2\nmore(taper.ones(3))\n")
        subprocess.run([sys.executable, other], env=dict(os.environ, TAPER_TRACE=t.traces, RANK="2"), check=True)
        text = text_of(t.report())
        assert "Ranks differ : 1 of 2 compiles is not in all 3 ranks, first rank 2 [1/0] \u2713 ok more " in text, text[:1500]
        (extra,) = set(os.listdir(t.traces)) - set(names)
        os.remove(os.path.join(t.traces, extra))
        for n in names:
            with open(os.path.join(t.traces, n)) as f:
                plain = re.sub(', "rank": \\d+', "", f.read())
            with open(os.path.join(t.traces, n), "w") as f:
                f.write(plain)
        text = text_of(t.report())
        assert "file 1 [0/0]" in text and "file 2 [0/0]" in text and re.search(r"trace_rank_1_\w+\.log file 2", text), text[-900:]


def test_a_killed_process_leaves_a_readable_trace():
    program = "import os, signal, taper\ntaper.compile(lambda x: x.sin())(taper.ones(3))\nos.kill(os.getpid(), signal.SIGKILL)\n"
    d = tempfile.mkdtemp()
    try:
        p = subprocess.run([sys.executable, "-c", program], env=dict(os.environ, TAPER_TRACE=d))
        assert p.returncode == -9
        rc, out = cli(d, "--json")
        j = json.loads(out)
        assert rc == 0 and j["compiles"] == 1 and j["problems"] == 0 and j["compile_ids"][0]["status"] == "ok" and j["compile_ids"][0]["calls"] == 1, out
    finally:
        shutil.rmtree(d)
# sanitize: skip


def test_a_break_in_a_module_is_one_break():
    """Module.__call__ has nothing to compile before the break in forward(), which is captured next and breaks there, too."""
    program = """
import taper
class Net(taper.nn.Module):
    def forward(self, x):
        y = x.sin()
        print("between")
        return y + 1
c = taper.compile(Net())
for _ in range(3):
    c(taper.ones(3))
"""
    with Trace(program) as t:
        j, text = t.json(), text_of(t.report())
        assert j["graph_breaks"] == 1 and j["compiles"] == 2, j
        assert "stands in a loop" not in text and "had nothing to compile" not in text, text[:3000]
        assert text.count("Speed:") == 1 and "The kernel of __compiled_fn_1" in text, "small kernels are told of once"


def test_the_same_advice_is_given_once():
    program = """
import taper
c = taper.compile(lambda x, n: x * n, dynamic=False)
for n in (1.5, 2.5, 3.5, 4.5):
    c(taper.ones(3), n)
"""
    with Trace(program) as t:
        page = t.report()
        section = page.split('<section id="recompiles">')[1].split("</section>")[0]
        assert section.count(">4.5<") == 3 and section.count("What helps:") == 1 and section.count('class="item"') == 1, section
        assert "was compiled 3 times more" in text_of(section)


def test_a_break_is_one_however_many_compiles_end_at_it():
    """Also with a caller that is captured up to it, and with a loop around it."""
    program = """
import taper
def helper(x):
    y = x + 1
    print("in a helper")
    return y
@taper.compile
def f(x):
    return helper(x * 2) - 1
f(taper.ones(3))
@taper.compile
def g(x):
    for _ in range(3):
        x = x + 1
        print("in a loop")
    return x
g(taper.ones(3))
"""
    with Trace(program) as t:
        j, page = t.json(), t.report()
        section = page.split('<section id="breaks">')[1].split("</section>")[0]
        assert j["graph_breaks"] == 2 and section.count('class="item"') == section.count("What helps:") == 2, section
        first, second = section.split('class="item"')[1:]
        assert "line 9, in f return helper(x * 2) - 1" in text_of(first), text_of(first)
        assert first.count('class="tag break"') == 2 and second.count('class="tag break"') == 2, section
        nxt = text_of(page.split("What to do next")[1].split("Where compile time went")[0])
        assert nxt.count("stands in a loop") == 1 and nxt.index("private_model.py:15") < nxt.index("stands in a loop"), nxt
        assert "Graphs break at 2 places, so the program runs in pieces." in text_of(page)


def test_recompiles_are_told_by_what_changed_most():
    program = """
import taper
class Settings:
    pass
s = Settings()
@taper.compile
def f(x, mode):
    return x * s.rate if mode == "up" else x - 1
for rate in (1.5, 2.5, 3.5):
    s.rate = rate
    f(taper.ones(3), "up")
f(taper.ones(3), "down")
p = taper.nn.Parameter(taper.ones(3))
@taper.compile
def step(x):
    if p.grad is not None:
        x = x + p.grad
    return (p * x).sum()
for _ in range(2):
    step(taper.ones(3)).backward()
"""
    with Trace(program) as t:
        page = text_of(t.report())
        nxt = page.split("What to do next")[1].split("Where compile time went")[0]
        assert "compiled 3 times more : G['s'].rate == 1.5 (now 2.5) (2×), L['mode'] == 'up' (now 'down') (1×)." in nxt, nxt
        assert "A plain Python number changed" in nxt and "There are no gradients yet in the first step of training" in nxt, nxt
        assert "A string changed" in page.split("A compiled function is guarded by")[1], "each kind of guard has its advice"
        assert "Everything was compiled whole. 4 of 6 compiles were needed because a guard failed." in page, page[:900]


def test_graphs_with_many_inputs_are_readable():
    program = """
import taper
net = taper.nn.Sequential(*[taper.nn.Linear(4, 4) for _ in range(5)])
taper.compile(net)(taper.ones(2, 4))
"""
    with Trace(program) as t:
        graph = t.report().split("Captured graph")[1].split("</svg>")[1].split("</pre>")[0]
        assert "<summary>            11 inputs</summary>" in graph and "<summary>        11 inputs get other names</summary>" in graph, graph
        opened = re.sub(r"<details>.*?</details>", "", graph, flags=re.S)
        assert len(max(opened.split("taper.linear(")[0].splitlines(), key=len)) < 400 and opened.count("taper.linear(") == 5, opened


def test_a_detailed_trace_reads_in_the_order_of_the_stages():
    program = "import taper\n@taper.compile\ndef f(x):\n    return x.sin().sum()\nf(taper.ones(3, requires_grad=True)).backward()\n"
    with Trace(program, TAPER_DTRACE=None) as t:
        titles = [re.sub(r"<[^>]*>", "", x).split(" trace line")[0] for x in re.findall(r"<summary>(.*?)</summary>", t.report().split('id="compiles"')[1])]
        want = ["Captured graph", "The graph as a program of its own", "Graph before it is simplified", "__compiled_fn_1_after_dce", "Graph after it was simplified",
                "Joint graph (forward and backward)", "What the forward graph writes and returns", "What forward keeps for backward", "Forward graph", "Backward graph",
                "Graph that kernels are made of, before it is rewritten for them", "Graph handed to code generation", "Schedule: the order in which kernels run"]
        places = [titles.index(w) for w in want]
        assert places == sorted(places), (titles, places)
        assert "The lines each kernel comes from" in titles and "Which kernel computes which value" in titles, titles


def test_ledger_says_which_compile():
    program = """
import taper
f = taper.compile(lambda x: x + 1, dynamic=False)
for n in (3, 4, 3, 3):
    f(taper.ones(n))
assert taper.compiler.ledger()[1].compile_id == 1
assert [str(r).split(")", 1)[1] for r in taper.compiler.ledger()] == [" [0/0]: compiled, 1 op, ran 3 times", " [0/1]: compiled, 1 op, ran 1 time"], taper.compiler.ledger()
"""
    with Trace(program) as t:
        j = t.json()
        assert [(x["id"], x["compiled_runs"]) for x in j["ledger"]] == [("0/0", 3), ("0/1", 1)], j["ledger"]
        section = text_of(t.report().split('<section id="ledger">')[1].split("</section>")[0])
        assert section.index("[0/0]") < section.index("[0/1]"), section


def test_a_trace_without_a_record_goes_away():
    """The file is made when something is to be compiled; if that never happens, nothing stays."""
    for program, stays in (("taper.compile(lambda x: x + 1)\n", 0), ("taper.compile(lambda x: x + 1)(taper.ones(3))\n", 1), ("", 0)):
        d = tempfile.mkdtemp()
        try:
            subprocess.run([sys.executable, "-c", "import taper\n" + program], env=dict(os.environ, TAPER_TRACE=d), check=True)
            assert len(os.listdir(d)) == stays, (program, os.listdir(d))
        finally:
            shutil.rmtree(d)


def test_nothing_is_counted_in_the_wrong_number():
    with Trace("import taper\n@taper.compile\ndef f(x):\n    return x.sin()\nf(taper.ones(3))\n") as t:
        text = text_of(t.report())
        wrong = re.findall(r".{30}\b1 (?:compiles|kernels|graphs|library calls|values|operators|guards|times|records|trace files|errors|recompiles|calls|entries|hints)\b", text)
        assert not wrong and "1 operator became 1 kernel and 0 library calls" in text, (wrong, re.findall("[^.]*became[^.]*", text))


def records(path, killed=False):
    """Names of the records of a trace file; checks every digest. killed: one record may be torn, and digests may be missing."""
    return [next(iter(h)) for h, _ in whole(path, killed)]


NO_DIGEST = "0" * 32  # the process ended before it was computed


def whole(path, killed):
    """The records of a trace, envelope and payload; those that are damaged are left out, and only killed processes have any."""
    out, torn = [], 0
    with open(path, errors="replace") as f:
        lines = f.read().split("\n")
    assert killed or lines[-1] == "", "the last line is whole"
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if not line:
            continue  # room for records to come
        payload = []
        while at < len(lines) and lines[at].startswith("\t"):
            payload.append(lines[at][1:])
            at += 1
        try:
            head = json.loads(line[line.index("] {") + 2:])
        except ValueError:
            torn += 1
            continue
        want, body = head.get("has_payload"), "\n".join(payload)
        if bool(payload) == bool(want) and (not want or hashlib.md5(body.encode()).hexdigest() == want or killed and want == NO_DIGEST):
            out.append((head, body))
        else:
            torn += 1
    assert torn <= killed, (torn, path)
    return out


def test_a_kill_loses_nothing_that_a_log_line_told_of():
    """Killed at one log line after the other: what those lines tell of is in the file, and no line of it is damaged."""
    program = ("import taper\ndef f(x, n):\n    for _ in range(40):\n        x = x.sin() * n\n    return x\n"
               "for i in range(3):\n    taper.compile(f)(taper.ones(3), 1.5 + i)\n")
    needs = {"Step 2": ("dynamo_start", "dynamo_output_graph", "dynamo_guards"), "Step 3": ("aot_inference_graph", "inductor_output_code")}
    lines = 0
    for at in range(1, 100):
        d = tempfile.mkdtemp()
        try:
            env = dict(os.environ, TAPER_TRACE=d, TAPER_LOGS="dynamo", TAPER_CACHE="0")
            p = subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE, text=True)
            told = []
            for line in p.stderr:
                told += [step for step in ("Step 1", "Step 2", "Step 3") if step in line]
                if len(told) == at:
                    break
            p.kill()
            p.wait()
            p.stderr.close()
            if len(told) < at:
                break
            lines += 1
            logs = os.listdir(d)
            assert len(logs) == 1, logs
            got = records(os.path.join(d, logs[0]), killed=True)
            for step, names in needs.items():
                for name in names:
                    assert got.count(name) >= told.count(step), (at, told, name, got)
        finally:
            shutil.rmtree(d)
    assert lines == 9, lines


def told(path):
    """The records of a trace that are whole, in order: what each is about."""
    out, count = [], {}
    for head, body in whole(path, True):
        kind = next(iter(head))
        if kind == "str":
            continue
        what = (kind, head[kind].get("name"), json.loads(body)["name"] + json.loads(body)["ph"] if kind == "chromium_event" else None)
        count[what] = count.get(what, 0) + 1
        out.append((what, count[what]))
    return out


def test_a_kill_at_any_time_loses_one_record_at_most():
    """The order of a run on one processor, where nothing is made by another thread, says what came before what: of all that
    came before the last record of a killed process, at most the one is missing that was being made."""
    program = ("import os, sys\nif sys.argv[1:]:\n    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nimport taper\n"
               "@taper.compile\ndef f(x, n):\n    for _ in range(n):\n        x = x.sin() * n\n    return x.sum()\n"
               "for n in range(40, 60):\n    f(taper.ones(3, requires_grad=True), n).backward()\n")
    d = tempfile.mkdtemp()
    try:
        with open(os.path.join(d, "p.py"), "w") as f:
            f.write(program)
        def start(name, *args):
            env = dict(os.environ, TAPER_TRACE=os.path.join(d, name), TAPER_CACHE="0")
            return subprocess.Popen([sys.executable, os.path.join(d, "p.py"), *args], env=env, stderr=subprocess.DEVNULL), env["TAPER_TRACE"]
        def only(at):
            return [os.path.join(at, f) for f in os.listdir(at)] if os.path.isdir(at) else []
        p, at = start("all", "one")
        assert p.wait(300) == 0
        order = {what: i for i, what in enumerate(told(only(at)[0]))}
        assert len(order) > 300, len(order)
        rnd, seen = random.Random(5), 0
        for k in range(12):
            p, at = start(f"k{k}")
            while p.poll() is None and not any(os.path.getsize(f) for f in only(at)):
                time.sleep(0.0005)
            time.sleep(rnd.random() * 0.15)
            p.kill()
            p.wait()
            got = told(only(at)[0])
            assert set(got) <= set(order), set(got) - set(order)
            last = max((order[w] for w in got), default=0)  # none yet: the file has a size before its first record
            missing = [w for w, i in order.items() if i < last and w not in set(got)]
            assert len(missing) <= 1, (k, missing)
            seen += len(got)
        assert seen > 100, seen
    finally:
        shutil.rmtree(d)


def test_a_trace_that_somebody_else_empties_goes_on():
    """As is done to logs that grow: the program does not notice, and the file goes on from its start."""
    program = """
import glob, os, sys, time, taper
def f(x, n):
    for _ in range(40):
        x = x.sin() * n
    return x
def empty():
    for name in glob.glob(os.path.join(os.environ["TAPER_TRACE"], "*")):
        os.truncate(name, 0)
for i in range(6):
    taper.compile(f)(taper.ones(3), 1.5 + i)
    time.sleep(0.0004 * (i % 3))  # at once, and while the thread that writes looks at it
    if i < 4:
        empty()
"""
    d = tempfile.mkdtemp()
    try:
        for _ in range(3):
            shutil.rmtree(d)
            p = subprocess.run([sys.executable, "-c", program], env=dict(os.environ, TAPER_TRACE=d, TAPER_CACHE="0"), stderr=subprocess.PIPE, text=True, timeout=100)
            assert p.returncode == 0, (p.returncode, p.stderr[-500:])
            name, = (os.path.join(d, f) for f in os.listdir(d))
            got = records(name, killed=True)  # what was just being put when it was emptied may be torn
            assert got.count("compilation_metrics") == 2 and got.count("inductor_output_code") == 2, got
    finally:
        shutil.rmtree(d)


def test_records_of_a_compile_are_on_disk_when_it_ends():
    """Large records are made by a thread of their own: a kernel that dies at once, a kill and a fork lose none of them."""
    body = "def f(x):\n    for _ in range(40):\n        x = x.sin() * 1.1\n    return x\n"
    ends = {"kill": ("taper.compile(f)(taper.ones(3))\nos.kill(os.getpid(), signal.SIGKILL)\n", -9),
            "segv": ("taper.compile(f)(taper.ones(3))\n", -11),
            "fork": ("import threading\nc = taper.compile(f)\nc(taper.ones(3))\n"
                     "for _ in range(3):\n    pid = os.fork()\n    if not pid:\n        c(taper.ones(4)); os._exit(0)\n"
                     "    c(taper.ones(2 + _, 2))\n    assert os.waitpid(pid, 0)[1] == 0\n", 0)}
    for name, (tail, rc) in ends.items():
        d = tempfile.mkdtemp()
        try:
            env = dict(os.environ, TAPER_TRACE=os.path.join(d, "t"), TAPER_CACHE="0")
            if name == "segv":
                env["TAPER_INJECT"] = "sin:segv@gen"
            with open(os.path.join(d, "p.py"), "w") as f:
                f.write("import os, signal, taper\n" + body + tail)
            p = subprocess.run([sys.executable, os.path.join(d, "p.py")], env=env, stderr=subprocess.PIPE, text=True, timeout=100)
            if name == "segv" and os.environ.get("TAPER_SANITIZED"):
                rc = 1  # the sanitizer reports it and exits
            assert p.returncode == rc, (name, p.returncode, p.stderr[-500:])
            for log in os.listdir(env["TAPER_TRACE"]):
                got = records(os.path.join(env["TAPER_TRACE"], log), killed=name != "segv")  # a crash waits for all of it
                assert {"dynamo_output_graph", "dynamo_guards", "aot_inference_graph", "inductor_output_code", "compilation_metrics"} <= set(got), (name, got)
            assert len(os.listdir(env["TAPER_TRACE"])) == (4 if name == "fork" else 1)
        finally:
            shutil.rmtree(d)


def test_times_of_pytorch_lie_in_each_other():
    d = tempfile.mkdtemp(prefix="taper_report_")
    try:
        metrics = {"co_name": "f", "co_filename": "a.py", "co_firstlineno": 3, "dynamo_cumulative_compile_time_us": 100, "aot_autograd_cumulative_compile_time_us": 80,
                   "inductor_cumulative_compile_time_us": 50, "inductor_code_gen_cumulative_compile_time_us": 20, "entire_frame_compile_time_s": 1e-4}
        record = {"compilation_metrics": metrics, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
        with open(os.path.join(d, "dedicated_log_torch_trace_x.log"), "w", encoding="utf-8") as f:
            f.write("V1117 02:21:59.560000 9858 torch/_dynamo/utils.py:2009] " + json.dumps(record) + "\n")
        p = subprocess.run([TAPER, "report", d, "--json"], stdout=subprocess.PIPE, text=True)
        stages = json.loads(p.stdout)["stages_us"]
        assert p.returncode == 0 and [stages[s] for s in ("capture", "autograd", "fusion", "code")] == [20, 30, 30, 20], stages
    finally:
        shutil.rmtree(d)


BROKEN = """
import taper
@taper.compile
def secret_name(x, k):
    y = x * k
    print("total", float(y.sum()))
    return y.sin()
for k in (1, 2):
    secret_name(taper.ones(3), k)
"""


def test_other_programs_read_times_and_findings():
    with Trace(BROKEN) as t:
        chrome, sarif = (os.path.join(t.dir, n) for n in ("c.json", "s.sarif"))
        rc, out = cli(t.traces, "--no-browser", "--chrome=" + chrome, "--sarif", sarif)
        assert rc == 0 and "c.json" in out and "s.sarif" in out and not os.path.exists(os.path.join(t.dir, "taper_report.html")), out
        events = json.load(open(chrome))["traceEvents"]
        bars = [e for e in events if e["ph"] == "X"]
        assert any(e["name"] == "compile secret_name" and e["args"]["line"] in (3, 4) for e in bars) and any(e["cat"] == "stage" and e["name"] == "capture" for e in bars), events
        assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in bars)
        run = json.load(open(sarif))["runs"][0]
        found = {(r["ruleId"], r["locations"][0]["physicalLocation"]["region"]["startLine"]) for r in run["results"]}
        assert ("graph-break", 6) in found and any(rule == "recompile" for rule, _ in found), found
        assert all(run["tool"]["driver"]["rules"][r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])
        rc, out = cli(t.traces, "--sarif=-", "--chrome=-", "--redact")
        assert rc == 0 and "secret_name" not in out and "private_model" not in out, out


def asked(url, path, host=None):
    import http.client
    c = http.client.HTTPConnection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]), timeout=30)
    c.request("GET", path, headers={"Host": host} if host else {})
    r = c.getresponse()
    return r.status, r.read().decode()


def test_a_running_program_is_followed():
    with Trace(BROKEN) as t:
        p = subprocess.Popen([TAPER, "report", t.traces, "--serve", "--no-browser"], stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/", p.stdout.readline())[0]
            status, frame = asked(url, "/")
            assert status == 200 and "/page" in frame and "secret_name" not in frame
            status, page = asked(url, "/page")
            assert status == 200 and "secret_name" in page
            before = asked(url, "/stamp")
            log = os.path.join(t.traces, next(n for n in os.listdir(t.traces) if n.endswith(".log")))
            shutil.copy(log, log.replace(".log", "_2.log"))
            assert asked(url, "/stamp") != before and asked(url, "/page")[1] != page
            assert asked(url, "/page", host="evil.example:80")[0] == 403 and asked(url, "/../etc/passwd")[0] == 404
        finally:
            p.terminate()
            p.wait()
            p.stdout.close()
    rc, out = cli("x", "--serve", "--port=abc")
    assert rc == 2 and "0 to 65535" in out, out
