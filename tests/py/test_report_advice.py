"""What the overview of `taper report` says to do next, on programs that fail in different ways."""
import html, json, os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")


def overview(program, killed=False, **env):
    """-> ([what to do next, a string each], summary, page)"""
    d = tempfile.mkdtemp(prefix="taper_advice_")
    try:
        script, traces, page = (os.path.join(d, n) for n in ("prog.py", "t", "out.html"))
        with open(script, "w") as f:
            f.write("import taper\n" + program)
        p = subprocess.run([sys.executable, script], cwd=d, env=dict(os.environ, TAPER_TRACE=traces, **{k: v.replace("DIR", d) for k, v in env.items()}),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        assert p.returncode == (-9 if killed else 0), p.stderr
        p = subprocess.run([TAPER, "report", traces, "--no-browser", "-o", page, "--json"], stdout=subprocess.PIPE, text=True)
        assert p.returncode == 0
        with open(page, encoding="utf-8") as f:
            text = f.read()
        items = re.search(r'<ol class="next">(.*?)</ol>', text, re.S).group(1).split("<li")[1:]
        items = [re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", "<li" + x))).strip() for x in items]
        return items, json.loads(p.stdout), text
    finally:
        shutil.rmtree(d)


def has(items, *parts):
    assert any(all(p in i for p in parts) for i in items), (parts, items)


def test_a_break_in_a_loop():
    items, _, page = overview("@taper.compile\ndef f(x):\n    for i in range(6):\n        x = x * 2\n        print('step', i)\n    return x\nf(taper.ones(3))\n")
    has(items, "Graph break at", "prog.py:6", "builtin: print", "it stands in a loop: move it out of the loop")
    part = page.split('id="breaks"')[1].split("</section>")[0]
    assert part.count('class="item"') == 1 and part.count('class="tag break"') == 2, "the same break is told once, with both compiles"


def test_a_storm_of_recompiles():
    items, j, _ = overview("@taper.compile\ndef f(x, lr):\n    return x * lr\nfor i in range(14):\n    f(taper.ones(3), 0.1 * i)\n")
    has(items, "prog.py:2 was compiled 7 times more", "then the limit was reached", "calls with other arguments ran uncompiled", "L['lr'] == 0.0 (now 0.1)",
        "pass it as a tensor")
    assert j["compiles"] == 8 and j["unfinished"] == 0, "a compile that was refused is none"
    assert sum(x["eager_runs"] for x in j["ledger"]) == 6, j["ledger"]


def test_sizes_that_change():
    items, _, _ = overview("f = taper.compile(lambda x: x.sin(), dynamic=False)\nfor n in range(2, 6):\n    f(taper.ones(n))\n")
    has(items, "compiled 3 times more", "size mismatch at index 0. expected 2, actual 3", "dynamic=True or call mark_dynamic")
    assert not any("limit" in i for i in items), items


def test_a_backend_that_fails():
    items, _, _ = overview("def mine(gm, inputs):\n    raise RuntimeError('no kernel for this')\ntry:\n    taper.compile(lambda x: x + 1, backend=mine)(taper.ones(3))\n"
                           "except Exception:\n    pass\n")
    has(items, "Error", "backend='mine' raised: RuntimeError: no kernel for this", "TAPER_REPRO_AFTER=dynamo", "taper minify DIR")


def test_a_failure_that_was_saved():
    items, j, _ = overview("import taper.nn.functional as F\nf = taper.compile(lambda x: F.relu(x + 1) * 2, backend='relu_compile_error_TESTING_ONLY')\n"
                           "try:\n    f(taper.ones(3))\nexcept Exception:\n    pass\n", TAPER_REPRO_AFTER="dynamo")
    has(items, "A failing graph was saved", "minifier_launcher.py", "taper minify")
    has(items, "it was saved, see below")
    assert j["files"] == 1 and j["unfinished"] == 0, "trials in children write no trace"


def test_fullgraph():
    items, _, _ = overview("@taper.compile(fullgraph=True)\ndef f(x):\n    if x.sum() > 0:\n        return x + 1\n    return x\ntry:\n    f(taper.ones(3))\n"
                           "except Exception:\n    pass\n")
    has(items, "Unsupported: Data-dependent jump", "fullgraph=True allows no graph break", "taper.cond or taper.where")


def test_an_error_of_the_program():
    items, _, _ = overview("@taper.compile\ndef f(x, y):\n    return x @ y\ntry:\n    f(taper.ones(3, 4), taper.ones(3, 4))\nexcept RuntimeError:\n    pass\n")
    has(items, "The program raises at", "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)", "the message is the one plain execution would give")


def test_a_process_that_was_killed():
    items, j, _ = overview("import os, signal\ndef mine(gm, inputs):\n    os.kill(os.getpid(), signal.SIGKILL)\ntaper.compile(lambda x: x + 1, backend=mine)(taper.ones(3))\n",
                           killed=True)
    has(items, "The process ended in the middle of a compile", "prog.py:5 while in backend_compile", "TAPER_REPRO_LEVEL=3")
    assert j["unfinished"] == 1, j


def test_the_disk_cache():
    cache = tempfile.mkdtemp(prefix="taper_advice_cache_")
    try:
        # the place in the program is part of what is kept
        program, env = "exec(compile('taper.compile(lambda x: (x * 2).sin().sum())(taper.ones(30, 4))', 'same.py', 'exec'))\n", dict(TAPER_CACHE="1", TAPER_CACHE_DIR=cache)
        items, j, page = overview(program, **env)
        has(items, "1 of 1 graph was not in the disk cache : nothing like it was compiled before")
        assert (j["disk_cache_hits"], j["disk_cache_misses"]) == (0, 1) and j["compile_ids"][0]["disk_cache"][0]["result"] == "miss", j
        assert "\u2715 miss" in page.split('id="cache"')[1].split("</section>")[0]
        items, j, page = overview(program, **env)
        assert (j["disk_cache_hits"], j["disk_cache_misses"]) == (1, 0), j
        assert "1 of 1 graph came from the" in page and "\u2713 hit" in page.split('id="cache"')[1].split("</section>")[0]
        _, j, page = overview(program, TAPER_CACHE_DIR=cache)
        assert j["disk_cache_not_used"] == 1 and "It was asked for none of the graphs: logs or a trace show what the stages do" in page.split('id="cache"')[1].split("</section>")[0], j
    finally:
        shutil.rmtree(cache)


def test_hints_for_speed():
    items, j, page = overview("@taper.compile\ndef f(x):\n    return taper.sort(x)[0] * 2\nf(taper.ones(8))\n")
    has(items, "Speed:", "sort", "runs as a library call")
    assert any("library call" in h for h in j["compile_ids"][0]["hints"]) and "What keeps it from being faster" in page, j


def test_the_same_hint_is_given_once():
    items, j, _ = overview("e = taper.nn.Embedding(50, 8)\nf = taper.compile(lambda a, b: (e(a) * e(b)).sum())\n"
                           "f(taper.zeros(64, dtype=taper.int64), taper.ones(64, dtype=taper.int64)).backward()\n")
    hints = [h for c in j["compile_ids"] for h in c["hints"] if "(embedding_dense_backward)" in h]
    assert len(hints) == 2 and hints[0] != hints[1], hints
    assert sum("(embedding_dense_backward)" in x for x in items) == 1, items


def test_nothing_to_do():
    items, j, _ = overview("f = taper.compile(lambda x: x * 2 + 1)\nfor i in range(5):\n    f(taper.ones(4000))\n")
    assert items == ["Nothing is broken: every function was compiled once, whole."], items
    items, _, _ = overview("print('no compile')\nimport os\nopen(os.path.join(os.environ['TAPER_TRACE'], 'x.log'), 'w').close()\n")
    has(items, "The trace holds no compile")
