"""Ranks that are stopped, compute forever or never send: named when the time-out is over."""
import ranks
from test_distributed_faults import together


def test_ranks_that_do_not_come():
    together(["stopped", "computes", "message", "late work"])


def test_one_rank_never_starts():
    r = ranks.run(2, """
import os, sys, taper.distributed as dist
if os.environ["RANK"] == "1":
    sys.exit(0)
dist.init_process_group("gloo")
""", env={"TAPER_COMM_TIMEOUT": "1"}, check=False)
    assert r.code and "waited 1.0 s for the others to join: missing 1" in r.out[0], r.out


def test_ranks_without_memory_or_with_other_types():
    together(["memory", "dtype"])
