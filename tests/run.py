#!/usr/bin/env python3
"""Runs the tests with nothing but the standard library.

  tests/run.py [--build DIR] [--check] [--sanitized] [--bless] [-k WORD] [PATH ...]

PATH: a test file or a folder (default: the C tests, tests/py and tests/golden). Each Python file runs in its
own process; a test is a function test_*(); unittest.SkipTest skips it. A golden file's first lines say
'# RUN: command' (%s is the file, %taper the program, %python the interpreter) and '# CHECK:' lines say what the
output must hold, in order (marks under the code of a traceback are left out); '# BEFORE: 3.13' skips it from that
Python on. Files of tests/golden/stages hold what each stage prints of a graph: see stages(). Closes with 'N passed, M failed, K skipped'.

TAPER_TEST_AGAIN=1 runs what failed once more, alone, when all else is done: a test that passes then is named as
UNSTEADY, with what it said at first. It is a defect to mend, but it does not decide.
"""
import argparse, atexit, concurrent.futures as cf, difflib, importlib.util, json, os, re, shlex, shutil, signal, subprocess, sys, tempfile, time, traceback, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TIMEOUT = int(os.environ.get("TAPER_TEST_SECONDS", 600))
# What --check runs of tests/py: a file for each stage, all of them quick.
CHECK = """capture capture_values capture_rows capture_limits binding create pointwise reduce shape_ops indexing autograd grad_errors
aot_autograd decompositions lowering products emitters backends bisect inject""".split()
if "PYTHONPATH" not in os.environ:  # the checkout's own package; `make` sets it too
    os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")
    sys.path.insert(0, os.environ["PYTHONPATH"])


def run_file(path, word):
    """In a child: run one Python test file and print a JSON result a line on fd 3's stand-in (a marked line)."""
    sys.path.insert(0, os.path.dirname(path))
    sys.path.insert(0, HERE)
    results = []

    def emit(name, status, text=""):
        print("\x01" + json.dumps([name, status, text]), flush=True)

    try:
        spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
        mod = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = mod
        spec.loader.exec_module(mod)
    except unittest.SkipTest as e:
        emit("(module)", "skip", str(e))
        return
    except BaseException:
        emit("(import)", "fail", traceback.format_exc())
        return
    for name, fn in list(vars(mod).items()):
        if not name.startswith("test") or not callable(fn) or (word and word not in name and word not in path):
            continue
        try:
            fn()
            emit(name, "pass")
        except unittest.SkipTest as e:
            emit(name, "skip", str(e))
        except BaseException:
            emit(name, "fail", traceback.format_exc())


def private_cache():
    """The disk cache of one run of the tests: empty at first, gone at the end."""
    if "TAPER_CACHE_DIR" not in os.environ:
        os.environ["TAPER_CACHE_DIR"] = tempfile.mkdtemp(prefix="taper-tests-")
        atexit.register(shutil.rmtree, os.environ["TAPER_CACHE_DIR"], ignore_errors=True)


def child(path, word):
    t0 = time.time()
    os.environ.setdefault("TAPER_CHECK_TEXT", "1")  # every graph that a test makes reads back
    cmd = [sys.executable, os.path.abspath(__file__), "--file", path] + (["-k", word] if word else [])
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True)
    try:
        out, _ = p.communicate(timeout=TIMEOUT)
        note = "" if p.returncode == 0 else f"process ended with status {p.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)  # what it started, too: an orphan would hold the pipe
        out, _ = p.communicate()
        note = f"no answer in {TIMEOUT} s"
    res, loose = [], []
    for line in out.decode(errors="replace").splitlines():
        if line.startswith("\x01"):
            res.append(json.loads(line[1:]))
        else:
            loose.append(line)
    if note:
        res.append(["(process)", "fail", note + "\n" + "\n".join(loose[-60:])])
    return path, res, loose, time.time() - t0


def c_tests(build, *names):
    """(exit status, what they print) of the C tests, which run beside the others: with a disk cache of their own."""
    with tempfile.TemporaryDirectory(prefix="taper-ctests-") as cache:
        p = subprocess.run([os.path.join(build, "taper_ctest"), *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env=dict(os.environ, TAPER_CACHE_DIR=cache))
    return p.returncode, p.stdout.decode(errors="replace")


def golden(path, build, bless):
    """One golden file: RUN lines are run, CHECK lines are looked for in order in their joined output."""
    path = os.path.abspath(path)
    text = open(path, encoding="utf-8").read()
    runs = re.findall(r"^\s*#\s*RUN:\s*(.*)$", text, re.M)
    if not runs:
        return path, [["golden", "fail", "no RUN line"]], [], 0
    before = re.search(r"^\s*#\s*BEFORE:\s*3\.(\d+)", text, re.M)
    if before and sys.version_info[1] >= int(before[1]):
        return path, [["golden", "skip", f"shows what CPython before 3.{before[1]} does"]], [], 0
    t0, out = time.time(), ""
    for r in runs:
        r = r.replace("%s", shlex.quote(path)).replace("%taper", shlex.quote(os.path.join(build, "taper")))
        r = r.replace("%python", shlex.quote(sys.executable)).replace("%dir", shlex.quote(os.path.dirname(path)))
        try:
            p = subprocess.run(["bash", "-c", r], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, cwd=ROOT)
            out += p.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return path, [["golden", "fail", "RUN line took longer than 120 s: " + r]], [], time.time() - t0
    out = re.sub(r"(?m)^ *[~^]+\n", "", out)
    checks = re.findall(r"^\s*#\s*CHECK(-NEXT|-NOT|-RE)?:\s?(.*)$", text, re.M)
    if bless:
        head = [l for l in text.splitlines() if not re.match(r"\s*#\s*CHECK", l)]
        while head and not head[-1].strip():
            head.pop()
        body = ["# CHECK" + (":      " if i == 0 else "-NEXT: ") + l for i, l in enumerate(out.splitlines())]
        open(path, "w", encoding="utf-8").write("\n".join(head + [""] + body) + "\n")
        return path, [["golden", "pass", ""]], [], time.time() - t0
    lines, at, why = out.splitlines(), 0, ""
    norm = lambda s: re.sub(r"\s+", " ", s.strip())
    pending_not = []
    for kind, want in checks:
        if kind == "-NOT":
            pending_not.append(want)
            continue
        hit = lambda l: re.search(want.strip(), l) if kind == "-RE" else norm(want) in norm(l)
        if kind == "-NEXT":
            if at >= len(lines) or not hit(lines[at]):
                why = f"expected next: {want}\n     got: {lines[at] if at < len(lines) else '(end of output)'}"
                break
            at += 1
        else:
            j = next((j for j in range(at, len(lines)) if hit(lines[j])), None)
            if j is None:
                why = f"not found: {want}"
                break
            for bad in pending_not:
                if any(norm(bad) in norm(l) for l in lines[at:j]):
                    why = f"must not appear: {bad}"
            pending_not = []
            at = j + 1
    for bad in pending_not:
        if any(norm(bad) in norm(l) for l in lines[at:]):
            why = why or f"must not appear: {bad}"
    if not checks:
        why = "no CHECK line"
    res = ["golden", "fail" if why else "pass", why + "\n--- output\n" + out if why else ""]
    return path, [res], [], time.time() - t0


def stages(path, build, bless):
    """One file of tests/golden/stages: after a graph, '#= STAGE OPTIONS' and the text that `taper graph` must print, '#| ' before each line."""
    path, t0, out = os.path.abspath(path), time.time(), []
    text = open(path, encoding="utf-8").read()
    for line in text.splitlines():
        if line.startswith("#|"):
            continue
        out.append(line)
        if not line.startswith("#= "):
            continue
        stage, *options = shlex.split(line[3:])
        p = subprocess.run([os.path.join(build, "taper"), "graph", stage, *options, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, cwd=ROOT)
        got = p.stdout.decode(errors="replace").replace(os.path.dirname(path) + "/", "")
        out += [("#| " + l).rstrip() for l in got.splitlines()] + ([f"#| exit code {p.returncode}"] if p.returncode else [])
    now, why = "\n".join(out) + "\n", ""
    if bless and now != text:
        open(path, "w", encoding="utf-8").write(now)
    elif now != text:
        diff = difflib.unified_diff(text.splitlines(), now.splitlines(), "expected", "printed now", lineterm="")
        why = "\n".join(diff) + "\nIf that is meant: make golden, and review the diff."
    if "#= " not in text:
        why = "no line '#= STAGE'"
    return path, [["golden", "fail" if why else "pass", why]], [], time.time() - t0


def collect(paths):
    files = []
    for p in paths:
        if os.path.isdir(p):
            for d, _, names in sorted(os.walk(p)):
                files += [os.path.join(d, n) for n in sorted(names)]
        else:
            files.append(p)
    py, gold = [], []
    for f in files:
        if "/golden/" in os.path.abspath(f).replace(os.sep, "/"):
            if "__pycache__" not in f and "/inputs/" not in f:
                gold.append(f)
        elif os.path.basename(f).startswith("test_") and f.endswith(".py"):
            py.append(f)
    return py, gold


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("paths", nargs="*")
    ap.add_argument("--build", default=os.path.join(ROOT, "build"))
    ap.add_argument("--file")
    ap.add_argument("--check", action="store_true", help="the fast part: C tests, golden files, and the files of CHECK")
    ap.add_argument("--sanitized", action="store_true")
    ap.add_argument("--bless", action="store_true")
    ap.add_argument("-k", default="")
    ap.add_argument("-j", type=int, default=os.cpu_count() or 2)
    a = ap.parse_args()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell; tests of Ctrl-C need it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if a.file:
        return run_file(os.path.abspath(a.file), a.k)
    a.build = os.path.abspath(a.build)
    os.environ.setdefault("TAPER_BUILD", a.build)  # the programs of that build are tested
    private_cache()
    tot = {"pass": 0, "fail": 0, "skip": 0}
    again = os.environ.get("TAPER_TEST_AGAIN") == "1"
    py, gold = collect(a.paths or [os.path.join(HERE, "py"), os.path.join(HERE, "golden")])
    if a.check:
        py = [f for f in py if os.path.basename(f)[5:-3] in CHECK]
    if a.sanitized:
        py = [f for f in py if "sanitize: skip" not in open(f, encoding="utf-8").read(2000)]
        gold = []
    skips, failed = {}, []
    with cf.ThreadPoolExecutor(a.j) as ex:
        c = ex.submit(c_tests, a.build) if not a.paths and not a.k else None
        jobs = [ex.submit(child, f, a.k) for f in py] + [ex.submit(stages if "/golden/stages/" in f else golden, f, a.build, a.bless) for f in gold]
        for j in cf.as_completed(jobs):
            path, res, loose, dt = j.result()
            rel = os.path.relpath(path, ROOT)
            for name, st, text in res:
                tot[st] += 1
                if st == "fail":
                    print(f"FAIL {rel}::{name}\n{text}", flush=True)
                    failed.append((path, name))
                    if name != "(process)" and loose:
                        print("--- printed\n" + "\n".join(loose[-20:]))
                elif st == "skip":
                    skips.setdefault(text, []).append(f"{rel}::{name}")
            if dt > 20:
                print(f"slow: {rel} took {dt:.0f} s")
    if c:
        rc, out = c.result()
        m = re.search(r"(\d+) passed, (\d+) failed", out)
        if m:
            tot["pass"] += int(m[1])
            tot["fail"] += int(m[2])
        if not m or rc:
            print(out)
            tot["fail"] += 0 if m and int(m[2]) else 1
        print(f"C tests: {m[0] if m else 'did not finish'}")
        for name in re.findall(r"^FAIL (\w+) ", out, re.M) if again and m else []:
            if c_tests(a.build, name)[0] == 0:
                print(f"UNSTEADY {name}: failed, and passed when it ran once more")
                tot["pass"] += 1
                tot["fail"] -= 1
    for path in dict.fromkeys(f for f, _ in failed) if again else []:
        names = [n for f, n in failed if f == path]
        how = stages if "/golden/stages/" in path else golden
        now = how(path, a.build, False)[1] if path in map(os.path.abspath, gold) else child(path, a.k)[1]
        bad = {n for n, st, _ in now if st == "fail"}
        for name in names:
            if not bad & {name, "(process)", "(import)"}:
                print(f"UNSTEADY {os.path.relpath(path, ROOT)}::{name}: failed, and passed when its file ran once more, alone")
                tot["pass"] += 1
                tot["fail"] -= 1
    for why, names in sorted(skips.items()):
        print(f"SKIPPED {len(names)}: {why} ({names[0]}{', ...' if len(names) > 1 else ''})")
    print(f"{tot['pass']} passed, {tot['fail']} failed, {tot['skip']} skipped")
    return 1 if tot["fail"] or not tot["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
