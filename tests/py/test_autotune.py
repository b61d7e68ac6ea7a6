"""mode="max-autotune": forms of each step are measured, the fastest is kept if it is right, and remembered."""
import json
import os
import re
import subprocess
import sys
import tempfile

HEAD = """
import taper
taper.set_num_threads(2)
def same(f, *args, **kw):
    with taper.no_grad():
        want, got = f(*args), taper.compile(f, mode="max-autotune-no-cudagraphs", **kw)(*args)
    for a, b in zip(want, got):
        assert taper.allclose(a, b, rtol=1e-4, atol=1e-4), (a - b).abs().max()
"""
KERNELS = HEAD + """
def f(x, y):
    return taper.softmax(x, 1).sum(0), (x * 2 + 1).t().contiguous(), taper.relu(x) + y, x.sum()
same(f, taper.randn(256, 200), taper.randn(256, 200))
"""
PRODUCTS = HEAD + """
a, b, w, v = taper.randn(64, 96), taper.randn(96, 80), taper.randn(48, 80), taper.randn(80)
q = taper.randn(3, 64, 16)
def f(a, b, w, q):
    return taper.relu(taper.addmm(v, a, b)) @ w.t(), taper.bmm(q, q.transpose(1, 2))
same(f, a, b, w, q)
"""
WINDOWS = HEAD + """
F = taper.nn.functional
x, w, v = taper.randn(2, 16, 20, 20), taper.randn(32, 16, 3, 3) * 0.1, taper.randn(16, 32, 1, 1) * 0.1
def f(x, w, v):
    y = F.conv2d(F.conv2d(x, w, None, 1, 1).relu(), v)
    return y, F.conv2d(x.contiguous(memory_format=taper.channels_last), w, None, 2)
same(f, x, w, v)
"""
TRAIN = """
import taper
def run(mode):
    taper._dynamo.reset()
    taper.manual_seed(0)
    m = taper.nn.Sequential(taper.nn.Conv2d(3, 16, 3, padding=1), taper.nn.BatchNorm2d(16), taper.nn.ReLU(), taper.nn.MaxPool2d(2),
                            taper.nn.Flatten(), taper.nn.Linear(16 * 64, 10))
    c = taper.compile(m, mode=mode)
    c(taper.randn(4, 3, 16, 16)).square().sum().backward()
    return [p.grad for p in m.parameters()]
tuned, plain = run("max-autotune"), run("default")
largest = max(b.abs().max().item() for b in plain)  # a bias in front of a batch norm has no gradient but rounding errors
for a, b in zip(tuned, plain):
    assert taper.allclose(a, b, rtol=1e-3, atol=1e-5 * largest), (a - b).abs().max()
"""


def run(code, cache, logs="autotuning", **env):
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500,
                       env={**os.environ, "TAPER_CACHE_DIR": cache, "TAPER_LOGS": logs, **env})
    assert r.returncode == 0, r.stderr[-3000:]
    return r.stderr


def tried(log, step, form):
    return re.search(rf": tried [^:]*{step}[^:]*: {form}: [0-9.]+ us", log)


def chosen(log):
    return dict(re.findall(r": chosen: ([^:]+): ([^;\n]+)", log))


def test_forms_are_measured_and_remembered():
    """What is searched in the first process is not searched in the second. (sanitize: skip, nothing is measured in time)"""
    for code, forms in ((KERNELS, (("clone", "unroll [14]"), ("clone", "whole rows"), ("fused_add", "avx2"), ("fused_add", "c"), ("exp", "unroll 4"))),
                        (PRODUCTS, (("addmm", "tile of 2 vectors"), ("addmm", "library"), ("addmm", "kernel apart"), ("bmm", "tile of 1 vector"))),
                        (WINDOWS, (("convolution", "channels as lanes"), ("convolution", "places as lanes"), ("convolution", "library"), ("all of it", "layout=channels_last")))):
        if os.environ.get("TAPER_ISA") == "avx2":
            forms = [f for f in forms if f[1] != "avx2"]
        with tempfile.TemporaryDirectory() as d:
            code = code.replace('mode="max-autotune-no-cudagraphs"', 'options={"max_autotune": True, "autotune_seconds": "none"}')
            first, again = run(code, d), run(code, d)
            for step, form in forms:
                assert tried(first, f"(?:{step})", form), (step, form, first)
            assert ": chosen: all of it: " in first
            assert ": tried " not in again and ": chosen: " not in again, again
            won = re.search(r": chosen: all of it: ([^;]+);", first).group(1)
            assert f": remembered from the disk cache: all of it: {won}" in again, again
            if won == "steps":  # another program has other steps
                for name, form in chosen(first).items():
                    if name != "all of it" and form != "usual":
                        assert f": remembered from the disk cache: {name}: {form}" in again, (name, form, again)
            assert [f for f in os.listdir(d + "/v1") if f.startswith("tuning-")]


def test_the_graph_cache_keeps_what_was_chosen():
    """Without somebody who watches, the second process takes the whole program from disk."""
    with tempfile.TemporaryDirectory() as d:
        code = KERNELS.replace('mode="max-autotune-no-cudagraphs"', 'options={"max_autotune": True, "emitter": "x64"}')
        run(code, d, logs="")
        log = run(code, d, logs="+cache", TAPER_CACHE="1")
        assert "disk cache hit: forward" in log, log


# All of it is measured, however slow the machine is.
PATIENT = KERNELS.replace('mode="max-autotune-no-cudagraphs"', 'options={"max_autotune": True, "autotune_seconds": "none"}')


def test_a_slow_form_is_not_chosen():
    slow = ",".join(f"{f}:slow@tune" for f in ("unroll 1", "unroll 2", "unroll 4", "avx2", "avx2 unroll 1", "avx2 unroll 4", "c", "finer shares",
                                              "coarser shares", "one thread", "whole rows", "loops by operands", "strips of 16", "strips of 64"))
    with tempfile.TemporaryDirectory() as d:
        log = run(PATIENT, d, TAPER_INJECT=slow)
        forms = chosen(log)
        whole = forms.pop("all of it")  # may do without a fusion: that is measured, and no form of a step
        assert forms and set(forms.values()) == {"usual"} and "steps" not in whole.split(), log
        assert not [f for f in os.listdir(d + "/v1") if f.startswith("tuning-")], "measured with planted faults"


def test_the_faster_form_is_chosen():
    """Where the usual form is the slow one, another one runs, and gives the same result."""
    with tempfile.TemporaryDirectory() as d:
        log = run(PATIENT, d, TAPER_INJECT="usual:slow@tune")
        forms = chosen(log)
        del forms["all of it"]
        assert forms and "usual" not in forms.values(), log


def test_wrong_and_failing_forms_are_dropped():
    """One line each, and the program goes on."""
    with tempfile.TemporaryDirectory() as d:
        log = run(PATIENT, d, TAPER_INJECT="unroll 4:accuracy@tune,avx2:runtime_error@tune,unroll 1:compile_error@tune,usual:slow@tune")
        assert re.search(r": dropped: [^:]*clone[^:]*: unroll 4: it gives another result", log), log
        assert re.search(r": dropped: [^:]*clone[^:]*: avx2: planted fault", log), log
        assert re.search(r": dropped: [^:]*clone[^:]*: unroll 1: planted fault: this form cannot be built", log), log
        for form in chosen(log).values():
            assert not {"unroll 4", "avx2", "unroll 1"} & set(form.split(", ")), log


def test_the_time_limit_holds():
    """What is not measured by then stays as it is, and is searched another time."""
    with tempfile.TemporaryDirectory() as d:
        code = KERNELS.replace('mode="max-autotune-no-cudagraphs"', 'options={"max_autotune": True, "autotune_seconds": 0.1}')
        log = run(code, d, TAPER_INJECT="usual:slow@tune,unroll 1:slow@tune,unroll 2:slow@tune,unroll 4:slow@tune,avx2:slow@tune")
        assert "the time was used up before the rest" in log, log
        assert "dropped: c: there is no time for a compiler" in log


def test_without_a_compiler_c_is_dropped():
    with tempfile.TemporaryDirectory() as d:
        log = run(PATIENT, d, CC="/nonexistent/cc")
        assert log.count(": dropped: c: ") == 1 and "are interpreted" not in log, log
        assert ": chosen: all of it: " in log


def test_planted_choices_are_refused():
    """A choice on disk is read like any file that somebody may have written."""
    with tempfile.TemporaryDirectory() as d:
        run(PATIENT, d)
        files = [f for f in os.listdir(d + "/v1") if f.startswith("tuning-")]
        assert files
        for f in files:
            with open(f"{d}/v1/{f}", "r+b") as h:
                h.seek(-1, 2)
                h.write(b"\xff")
        assert ": tried " in run(PATIENT, d)


def test_gradients():
    """(sanitize: skip, nothing is measured in time)"""
    with tempfile.TemporaryDirectory() as d:
        log = run(TRAIN, d)
        assert "backward: chosen: all of it" in log or "_backward: " in log, log


def test_symbolic_sizes_are_left_alone():
    with tempfile.TemporaryDirectory() as d:
        assert "not tuned: its sizes are symbolic" in run(KERNELS.replace("same(f, taper", "same(f, dynamic=True, *(taper").replace(
            "randn(256, 200))\n", "randn(256, 200)))\n"), d)


def test_the_trace_has_the_times():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as out:
        run(PATIENT, d, TAPER_TRACE=out)
        text = "".join(open(os.path.join(r, f)).read() for r, _, fs in os.walk(out) for f in fs)
        got = [json.loads(line.strip()) for line in text.splitlines() if line.strip().startswith('{"graph":') and '"tried"' in line]
        assert got and all(g["kernel"] and g["chosen"] and g["tried"][0]["us"] > 0 for g in got), text[:2000]


def test_each_choice_can_be_refused():
    """The bisector's question: DECIDE tune stands before every form that is not the usual one."""
    with tempfile.TemporaryDirectory() as d:
        log = run(PATIENT, d, TAPER_BISECT_SUBSYSTEM="tune", TAPER_BISECT_MAX="0")
        assert "not tuned: its rewrites are decided one by one" in log, log


def test_programs_with_other_layouts_and_fewer_fusions_give_the_same():
    """All of them are chosen where the usual program is planted as slow; they are used again where the same graph is compiled again."""
    chain = HEAD + """
F = taper.nn.functional
def f(x, w, v):
    y = F.avg_pool2d(F.conv2d(x, w, None, 1, 1).relu(), 2)
    z = F.batch_norm(F.conv2d(y, v, None, 1, 1), None, None, training=True)
    return taper.cat([z, y[:, :4]], 1).flatten(1), F.interpolate(z, scale_factor=2.0) + 1, F.max_pool2d(z, 2).sum((2, 3)), x.sum()
x, w, v = taper.randn(2, 8, 16, 16), taper.randn(16, 8, 3, 3) * 0.1, taper.randn(8, 16, 3, 3) * 0.1
options = {"max_autotune": True, "emitter": "x64", "autotune_seconds": "none"}
with taper.no_grad():
    for layout in (taper.contiguous_format, taper.channels_last):
        a = x.contiguous(memory_format=layout)
        want = f(a, w, v)
        for again in range(2):
            taper._dynamo.reset()
            for p, q in zip(taper.compile(f, options=options)(a, w, v), want):
                assert p.stride() == q.stride(), (p.stride(), q.stride())
                assert taper.allclose(p, q, rtol=1e-4, atol=1e-4), (p - q).abs().max()
"""
    with tempfile.TemporaryDirectory() as d:
        log = run(chain, d, TAPER_INJECT="all of it:slow@tune")
        won = re.findall(r": chosen: all of it: ([^;]+);", log)
        assert len(won) == 2, log
        assert "layout=channels_last" in won[0] and "layout=contiguous" in won[1] and all("no=fuse:" in w for w in won), won
        assert [w for w in re.findall(r": remembered: all of it: (.+)", log)] == won, log
        log = run(chain, d, TAPER_INJECT="all of it:slow@tune,layout=channels_last:accuracy@tune,layout=contiguous:compile_error@tune")
        assert ": dropped: all of it: layout=channels_last: it gives another result" in log
        assert ": dropped: all of it: layout=contiguous: planted fault" in log
        assert not any("layout" in w for w in re.findall(r": chosen: all of it: ([^;]+);", log)), log
