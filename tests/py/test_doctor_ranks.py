"""taper doctor --ranks: the rank and the collective that first differ from the run without the compiler."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """
import os
if os.environ.get("FAULT") and os.environ["RANK"] == "1":
    os.environ["TAPER_INJECT"] = os.environ["FAULT"]
import taper, taper.distributed as dist
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
x = taper.arange(8.0).chunk(n)[r] - 3

@taper.compile
def part(x):
    return taper.relu(x * 0.5).sum()

for i in range(2):
    total = part(x + i)
    dist.all_reduce(total)
    if r == 0:
        print(i, total.item())
dist.destroy_process_group()
"""


def doctor(*options, **env):
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, "sums.py"), "w") as f:
            f.write(PROGRAM)
        taper = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
        p = subprocess.run([taper, "doctor", *options, "sums.py"], cwd=tmp, capture_output=True, text=True,
                           env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), **env))
        return p.returncode, p.stdout, p.stderr


def test_a_rank_with_a_fault_is_named():
    rc, out, err = doctor("--json", "--ranks", "2", FAULT="relu:accuracy@gen")
    assert rc == 1, (rc, out, err)
    found = json.loads(out)
    assert found["operators"] == "relu" and "sums.py:12" in found["line"], found
    assert found["rank"].startswith("rank 1: all_reduce number 1 of 1 float32 at ") and "sums.py:16" in found["rank"], found["rank"]


def test_ranks_that_agree():
    rc, out, err = doctor("--ranks", "2")
    assert rc == 0, (rc, out, err)
    assert "One process prints the same as 2 ranks." in out and "Rank 1: all 2 collectives get the same values compiled." in out, out


def test_a_wrong_number_of_ranks():
    rc, out, err = doctor("--ranks", "none")
    assert rc == 2 and "--ranks wants a number of processes, not 'none'" in err, (rc, err)
