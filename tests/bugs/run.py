#!/usr/bin/env python3
"""Plants the bugs of bugs.py in a copy of the sources, builds it, and runs taper doctor on a user's program for each: was the bug noticed,
are stage, operator and rewrite right, how long did it take. Without a bug the same programs are healthy: an alarm there is false.
  run.py [--build DIR] [--no-build] [--healthy N] [-v] [NAME ...]
The sources themselves hold nothing of this: `old` of a row must stand in its file exactly once."""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import more  # noqa: E402, F401
import other  # noqa: E402, F401
import elsewhere  # noqa: E402, F401
import further  # noqa: E402, F401
import unseen  # noqa: E402, F401
import newer  # noqa: E402, F401
from bugs import BUGS  # noqa: E402
from healthy import HEALTHY  # noqa: E402

LIMIT = 120  # seconds for one doctor
HEADER = r"""/* bug.h - which of the planted bugs is active. */
#ifndef TAPER_BUG_H
#define TAPER_BUG_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
static inline int bug_is(const char *name)
{
    const char *s = getenv("TAPER_BUG");
    return s && !strcmp(s, name);
}
static inline int bug_coin(unsigned one_in) /* true now and then */
{
    static unsigned n, seed;
    if (!seed)
        seed = (unsigned)(size_t)&n >> 12 | 1;
    return (__atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) * 2654435761u ^ seed * 40503u) / 65536u % one_in == 0;
}
#define BUG_IS(name) __extension__({ static signed char on_ = -1; if (on_ < 0) on_ = (signed char)bug_is(name); on_ > 0; })
#endif
"""


def planted():
    """The changed files, by path below src/, and what is wrong with the rows."""
    texts, wrong = {}, []
    for b in BUGS:
        if b.file not in texts:
            with open(os.path.join(ROOT, "src", b.file)) as f:
                texts[b.file] = [f.read(), None]
            texts[b.file][1] = texts[b.file][0]
        for old, new in [(b.old, b.new)] if isinstance(b.old, str) else zip(b.old, b.new):
            if texts[b.file][0].count(old) != 1:
                wrong.append(f"{b.name}: the text stands {texts[b.file][0].count(old)} times in src/{b.file}")
            elif old not in texts[b.file][1]:
                wrong.append(f"{b.name}: another row of src/{b.file} changes the same lines")
            else:
                new = re.sub(r"\bBUG\b", lambda m, b=b: f'BUG_IS("{b.name}")', new)
                texts[b.file][1] = texts[b.file][1].replace(old, new)
    return {k: '#include "bug.h"\n' + v[1] for k, v in texts.items()}, wrong


def write(path, data):
    """Only when it changes: the build looks at times."""
    try:
        with open(path, "rb") as f:
            if f.read() == data:
                return
    except OSError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def build(tree):
    changed, wrong = planted()
    if wrong:
        sys.exit("\n".join(wrong))
    here = set()
    for top in ("src", "include", "python", "bench"):
        for at, dirs, names in os.walk(os.path.join(ROOT, top)):
            dirs[:] = [d for d in dirs if d != "__pycache__"]
            for n in names:
                p = os.path.join(at, n)
                rel = os.path.relpath(p, ROOT)
                if n.endswith((".so", ".pyc")):
                    continue
                data = changed[rel[4:]].encode() if rel[4:] in changed and top == "src" else open(p, "rb").read()
                write(os.path.join(tree, rel), data)
                here.add(rel)
    write(os.path.join(tree, "src", "bug.h"), HEADER.encode())
    here.add("src/bug.h")
    for at, _, names in os.walk(os.path.join(tree, "src")):
        for n in names:
            if os.path.relpath(os.path.join(at, n), tree) not in here:
                os.remove(os.path.join(at, n))
    for n in ("CMakeLists.txt",):
        write(os.path.join(tree, n), open(os.path.join(ROOT, n), "rb").read())
    out = os.path.join(tree, "build")
    env = dict(os.environ, CCACHE_BASEDIR=tree, CCACHE_NOHASHDIR="1")
    if not os.path.exists(os.path.join(out, "CMakeCache.txt")):
        ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(["cmake", "-S", tree, "-B", out, "-DTAPER_TESTS=OFF", f"-DPython3_EXECUTABLE={sys.executable}", *ninja], check=True, env=env,
                       stdout=subprocess.DEVNULL)
    r = subprocess.run(["cmake", "--build", out, "-j", str(os.cpu_count() or 2), "--target", "taper_cli", "_C"], env=env, capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stdout[-4000:] + r.stderr[-2000:])


def doctor(tree, b, active):
    """Exit code, verdict as JSON (or what was printed), seconds."""
    with tempfile.TemporaryDirectory(prefix="bugs-") as d:
        with open(os.path.join(d, "program.py"), "w") as f:
            f.write(b.program)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(tree, "python"), TAPER_CACHE_DIR=os.path.join(d, "cache"), **b.env)
        if active:
            env["TAPER_BUG"] = b.name
        t = time.time()
        p = subprocess.Popen([os.path.join(tree, "build", "taper"), "doctor", "--json", "program.py", *b.args], cwd=d, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = p.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            p.terminate()  # it ends what it started
            out, err = p.communicate()
        t = time.time() - t
        try:
            said = json.loads(out)
        except ValueError:
            said = {"verdict": (out + err)[-400:]}
        if active and said.get("workaround"):
            said["helps"] = helps(d, env, said["workaround"])
        return p.returncode, said, t


def helps(d, env, around):
    """Does the program print what it prints without the bug and without the compiler, once the work-around is set?"""
    name, _, value = around.split(" (")[0].partition("=")
    healthy = {k: v for k, v in env.items() if k != "TAPER_BUG"}
    out = []
    for e in (dict(healthy, TAPER_COMPILE_DISABLE="1"), dict(env, **{name: value})):
        try:
            out.append(subprocess.run([sys.executable, "program.py"], cwd=d, env=e, capture_output=True, text=True, timeout=30))
        except subprocess.TimeoutExpired:
            return False
    return out[0].returncode == out[1].returncode and alike(out[0].stdout, out[1].stdout)


def alike(a, b):
    """The same text, numbers within 1e-3; the name of a tensor's last step may differ."""
    a, b = (re.sub(r"grad_fn=<\w+>", "grad_fn", t) for t in (a, b))
    number = r"-?\d+\.?\d*(?:e[+-]?\d+)?"
    if re.split(number, a) != re.split(number, b):
        return False
    return all(abs(float(x) - float(y)) <= 1e-3 * max(1, abs(float(x))) for x, y in zip(re.findall(number, a), re.findall(number, b)))


def judge(b, rc, said):
    """(noticed, stage, operators, rewrites), each True or False."""
    def right(want, have):
        if want is None:
            return True
        have = have or ""
        alternatives = [w for w in want.split("|") if w != "-"]
        if "-" in want.split("|") and not have:
            return True
        return any(re.search(w, have) for w in alternatives) if alternatives else not have
    return rc == 1, rc == 1 and right(b.stage, said.get("stage")), rc == 1 and right(b.operators, said.get("operators")), \
        rc == 1 and right(b.rewrites, said.get("rewrites"))


def table(got):
    """got: (part, four marks, seconds) of each bug. By part, and all of them, as in docs/debugging.md."""
    lines = ["| where | bugs | noticed | stage right | operator right | rewrite right | all of it | median | worst |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for part in [*dict.fromkeys(p for p, _, _ in got), None]:
        rows = [(m, t) for p, m, t in got if part in (None, p)]
        counts = [sum(m[i] for m, _ in rows) for i in range(4)] + [sum(all(m) for m, _ in rows)]
        secs = [t for _, t in rows]
        lines.append(f"| {part or '**all**'} | {len(rows)} | {' | '.join(map(str, counts))} | {statistics.median(secs):.1f} s | {max(secs):.1f} s |")
    return "\n".join(lines)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", default=os.path.join(ROOT, "build-bugs"))
    a.add_argument("--no-build", action="store_true")
    a.add_argument("--healthy", type=int, default=10 ** 6, help="so many of the programs also run without a bug")
    a.add_argument("-v", action="store_true", help="whole verdicts")
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    tree = os.path.abspath(o.build)
    rows = [b for b in BUGS if not o.names or b.name in o.names or b.part in o.names]
    if not rows:
        sys.exit(f"no bug and no part is named {' or '.join(o.names)}; there are {', '.join(b.name for b in BUGS)}")
    if not o.no_build:
        build(tree)
    all_got, false = [], []
    for b in rows:
        rc, said, t = doctor(tree, b, True)
        got = judge(b, rc, said)
        all_got.append((b.part, got, t))
        marks = " ".join(w if g else w.upper() + "!" for w, g in zip(("noticed", "stage", "operator", "rewrite"), got))
        around = {None: "no work-around", True: "work-around", False: "WORK-AROUND!"}[said.get("helps")]
        print(f"{b.part:18s} {b.name:16s} {t:5.1f} s  {marks}, {around}", flush=True)
        if o.v or not all(got):
            print(f"    {said.get('verdict')}\n    stage: {said.get('stage')}; operators: {said.get('operators')}; rewrites: {said.get('rewrites')}; "
                  f"work-around: {said.get('workaround')}", flush=True)
    print(f"\n{table(all_got)}\n")
    well = rows[:o.healthy]
    for b in well:
        rc, said, _ = doctor(tree, b, False)
        if rc:
            false.append(b.name)
            print(f"false alarm: {b.name}: {said.get('verdict')}", flush=True)
    quiet = HEALTHY[:o.healthy] if not o.names else []
    for h in quiet:
        rc, said, _ = doctor(tree, h, False)
        if rc:
            false.append(h.name)
            print(f"false alarm: {h.name}: {said.get('verdict')}", flush=True)
    print(f"{len(well) + len(quiet)} healthy programs: {len(false)} false alarms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
