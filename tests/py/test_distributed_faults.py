"""Ranks that die, stop, differ or stay away: every rank ends with a text that names the culprit, and no process is left."""
import concurrent.futures
import os
import re
import time

import ranks

HEAD = """
import os, signal, sys, time
import taper, taper.distributed as dist
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
print("pid", os.getpid(), flush=True)
x = taper.ones(4)
dist.all_reduce(x)
sys.stdout.write("written before")  # stays in the buffer where there is one

def step():
    %s

step()
"""
# name: (what the ranks do, words in the output of every rank that lives, ranks that cannot say anything)
CASES = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL) if r == 1 else dist.all_reduce(x)", ["all_reduce number 2", "rank 1 has died"], [1]),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP) if r == 2 else dist.all_reduce(x)", ["all_reduce number 2", "rank 2 (stopped by a signal) is missing", "in step"], [2]),
    "exception": ("dist.all_reduce(x) if r else [][3]", ["rank 0 ended with IndexError: list index out of range", "program.py:12 in step"], [0]),
    "exit": ("sys.exit(0) if r == 1 else dist.all_reduce(x)", ["all_reduce number 2 cannot finish: rank 1 has left the job"], [1]),
    "shape": ("dist.all_reduce(taper.ones(5 if r == 1 else 4))", ["disagree about collective number 2", "rank 1 does something else", "rank 1 calls all_reduce number 2, sum of 5 float32, at", "program.py:12 in step"], []),
    "dtype": ("dist.all_reduce(taper.ones(4, dtype=taper.float64 if r == 2 else taper.float32))", ["rank 2 does something else", "of 4 float64"], []),
    "operation": ("dist.all_reduce(x, dist.ReduceOp.MAX if r == 0 else dist.ReduceOp.SUM)", ["rank 0 does something else", "rank 0 calls all_reduce number 2, max"], []),
    "branch": ("dist.broadcast(x, 0) if r == 1 else dist.all_reduce(x)", ["rank 1 does something else", "rank 1 calls broadcast number 2", "rank 0 calls all_reduce number 2"], []),
    "number": ("[dist.all_reduce(x) for _ in range(3 if r == 1 else 2)]", ["all_reduce number 4 cannot finish: rank", "has left the job"], [0, 2]),
    "computes": ("exec('while True: pass') if r == 1 else dist.all_reduce(x)", ["all_reduce number 2 has waited longer than", "rank 1 is missing", "rank 1 (process", "computes; its last call was all_reduce number 1", "in step"], []),
    "message": ("dist.recv(x, 2) if r == 1 else (time.sleep(1000) if r == 2 else dist.barrier())", ["rank 2"], []),
    "late work": ("(dist.all_reduce(x, async_op=True), time.sleep(1000)) if r == 1 else (dist.all_reduce(x, async_op=True).wait() if r == 0 else time.sleep(1000))",
                  ["rank 2 is missing"], []),
    "memory": ("(taper.ones(1 << 62) if r == 1 else dist.all_reduce(x))", ["rank 1 ended with RuntimeError"], [1]),
}


def _gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def _case(name, launcher="processes"):
    what, words, silent = CASES[name]
    result = ranks.run(3, HEAD % what, launcher, env={"TAPER_COMM_TIMEOUT": "8"}, check=False, seconds=200)
    for r, out in enumerate(result.out):
        if r not in silent:
            for w in words:
                assert w in out, f"{name}: rank {r} does not say {w!r}\n{out}\n--- launcher\n{result.err}"
            assert "written before" in out, (name, r, out)
        for pid in re.findall(r"^pid (\d+)", out, re.M):
            end = time.monotonic() + 60  # who was killed goes when the kernel gets to it
            while not _gone(pid) and time.monotonic() < end:
                time.sleep(0.05)
            assert _gone(pid), (name, r)
    if name != "exit":
        assert result.code != 0, name
    return result


def together(names, launcher="processes"):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for f in [pool.submit(_case, n, launcher) for n in names]:
            f.result()


def test_ranks_that_die_or_end():
    together(["killed", "exception", "exit", "number"])


def test_ranks_that_do_something_else():
    together(["shape", "operation", "branch"])
