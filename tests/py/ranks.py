"""Runs a program on several ranks and gives what each printed."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def run(n, source, launcher="processes", env=None, seconds=120, args=(), check=True, files=None, alias=False):
    """source: the text of a program. Returns Result(exit status, [output of rank 0, ...], what the launcher said)."""
    with tempfile.TemporaryDirectory(prefix="taper-ranks-") as tmp:
        path = os.path.join(tmp, "program.py")
        with open(path, "w") as f:
            f.write(source)
        e = dict(os.environ, PYTHONPATH=PACKAGE + os.pathsep + os.environ.get("PYTHONPATH", ""), TAPER_NUM_THREADS="1", **(env or {}))
        if alias:
            e["TAPER_RUN_TORCH"] = "1"
        logs = os.path.join(tmp, "logs")
        cmd = [sys.executable, "-m", "taper.distributed.run", "--launcher", launcher, "--nproc-per-node", str(n), "--log-dir", logs, path, *args]
        p = subprocess.run(cmd, env=e, cwd=tmp, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        out = []
        for r in range(n):
            log = os.path.join(logs, f"rank{r}.log")
            out.append(open(log).read() if os.path.exists(log) else "")
        if files is not None:
            files.extend(sorted(os.listdir(tmp)))
        if check and p.returncode:
            raise AssertionError(f"exit status {p.returncode}\n{p.stdout}\n" + "\n".join(f"--- rank {r}\n{o}" for r, o in enumerate(out)))
        return Result(p.returncode, out, p.stdout)


def need_mpi(kind):
    if not shutil.which(f"mpirun.{kind}") or not shutil.which(f"mpicc.{kind}"):
        raise unittest.SkipTest(f"no mpirun.{kind} with mpicc.{kind} here")
    return kind
