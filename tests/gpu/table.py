"""Every row of the op table on CUDA against the CPU: element types, layouts, sizes; eager, or compiled.

  python3 tests/gpu/table.py [--rows TEXT] [--all] [--compiled] [--jobs N] [--seconds S]

Samples are those of tests/py/table_compiled.py. What the CPU refuses is left out; what it does, the device must do. Rows that draw
random numbers are compared by the form of their results. Ends with 0 where all agree, 77 where there is no GPU."""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "py"), os.path.join(HERE, "..", "..", "python")]
import taper  # noqa: E402
import taper._dynamo as dynamo  # noqa: E402
import test_grad_table as table  # noqa: E402
from table_compiled import ERRORS, FREE, TOL, as_type, laid, mapped, same, variants  # noqa: E402
from taper import _C  # noqa: E402
from test_grad_table import MUT, RAND  # noqa: E402
from test_out_of_memory import tensors  # noqa: E402


def forms(o):
    if isinstance(o, (tuple, list)):
        return [forms(v) for v in o]
    return (o.dtype, tuple(o.shape)) if isinstance(o, taper.Tensor) else type(o)


def home(o, rand):
    """On the CPU, and whether all of it was on the device."""
    if isinstance(o, (tuple, list)):
        both = [home(v, rand) for v in o]
        return [b[0] for b in both], all(b[1] for b in both)
    if not isinstance(o, taper.Tensor):
        return o, True
    return o.cpu(), o.device.type == "cuda"


def check(row, args, name, how, call, compiled):
    """What is wrong, or None; False where the CPU refuses."""
    writes = bool(row[3] & MUT) or row[0].split(".")[0].endswith("_") or row[0] in ("batch_norm", "instance_norm")
    rand = bool(row[3] & RAND)

    def fresh():
        return mapped(args, lambda t: laid(as_type(t, name).clone(), how))
    try:
        mine = fresh()
        want = call(*mine)
    except ERRORS:
        return False
    tol = max([TOL.get(str(t.dtype).split(".")[-1], 0) for t in tensors(mine)] or [0])
    try:
        theirs = mapped(fresh(), lambda t: t.to("cuda"))
        if compiled:
            dynamo.reset()
        got, there = home((taper.compile(call) if compiled else call)(*theirs), rand)
    except Exception as e:  # noqa: BLE001
        return f"{type(e).__name__}: {e}".replace("\n", " ")
    if not there and list(tensors(mine)) and list(tensors([want] if isinstance(want, taper.Tensor) else list(want) if isinstance(want, (tuple, list)) else [])):
        return "a result is not on the device"
    if rand:
        return None if forms(list(want) if isinstance(want, tuple) else want) == forms(got) else "another form"
    base = row[0].split(".")[0].rstrip("_")
    why = None if base in FREE else same(want, got, row[0], tol)
    if not why and writes:
        why = same(list(tensors(mine)), [t.cpu() for t in tensors(theirs)], row[0], tol)
        why = why and "argument: " + why
    return why


def walk(rows, full, compiled, until):
    ran = bad = done = 0
    table.gen.manual_seed(5)
    for row in rows:
        if time.time() > until:
            break
        shown = 0
        done += 1
        print("@ " + row[0], flush=True)
        for what, args, name, how, call, pick in variants(row, full):
            if how == "spread" and row[0] == "fill_diagonal_":  # writes elements that are one in memory here and not there
                continue
            why = check(row, args, name, how, call, compiled)
            ran += why is not False
            if why:
                bad += 1
                shown += 1
                if shown <= 2:
                    print(f"{row[0]} ({what}, {pick}): {str(why).splitlines()[0][:160]}", flush=True)
                if "CUDA error" in str(why):
                    sys.exit(3)  # the context is gone
    s = _C._cuda_stats(0)
    print(f"= {done} {ran} {bad} {s['programs']} {s['calls']} {s['hosted']}", flush=True)
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", default="")
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--compiled", action="store_true")
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--seconds", type=float, default=3600)
    ap.add_argument("--part", default="")
    a = ap.parse_args()
    skip = ("as_strided", "as_strided_", "as_strided_scatter", "as_strided_copy")  # of memory between the elements, which copies leave behind
    rows = [r for r in _C._schemas() if r[0] not in skip and not a.rows or r[0] in a.rows.split(",")]
    if a.part:
        part, parts = map(int, a.part.split("/"))
        return 1 if walk(rows[part::parts], a.all, a.compiled, time.time() + a.seconds) else 0
    if subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import taper; sys.exit(not taper.cuda.is_available())",
                       os.path.join(HERE, "..", "..", "python")]).returncode:
        print("table: skipped, there is no GPU")
        return 77
    parts = a.jobs * 4  # what dies takes the rest of its part along
    todo = [[sys.executable, __file__, "--part", f"{i}/{parts}", "--rows", a.rows, "--seconds", str(a.seconds)] + ["--all"] * a.all +
            ["--compiled"] * a.compiled for i in range(parts)]
    running, total, bad, until = [], [0] * 6, 0, time.time() + a.seconds
    env = dict(os.environ, TAPER_NUM_THREADS="1")
    while todo or running:
        while todo and len(running) < a.jobs and time.time() < until:
            running.append(subprocess.Popen(todo.pop(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env))
        if time.time() >= until:
            todo = []
        if not running:
            break
        p = running.pop(0)
        text, _ = p.communicate()
        at = "?"
        for line in text.splitlines():
            if line.startswith("@ "):
                at = line[2:]
            elif line.startswith("= "):
                total = [x + int(y) for x, y in zip(total, line.split()[1:])]
            else:
                print(line, flush=True)
        if p.returncode not in (0, 1):
            bad += 1
            print(f"{at}: ended with status {p.returncode}", flush=True)
    print(f"{total[0]} of {len(rows)} rows, {total[1]} variants, {total[2]} wrong, {bad} ended; "
          f"{total[3]} programs, {total[4]} calls of them, {total[5]} calls through the host")
    return 1 if total[2] or bad else 0


if __name__ == "__main__":
    sys.exit(main())
