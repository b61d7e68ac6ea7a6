"""The same collectives under mpirun, where there is one: ranks of one host by its memory, and by MPI as between hosts."""
import os
import ranks
from test_distributed import COLLECTIVES
from test_distributed_faults import together


def _collectives(n, launcher, **env):
    result = ranks.run(n, COLLECTIVES, launcher, env=env)
    assert [o.strip() for o in result.out] == [f"good {i}" for i in range(n)], result.out


def test_open_mpi():
    _collectives(3, ranks.need_mpi("openmpi"))
    _collectives(3, "openmpi", TAPER_COMM_LOCAL="mpi")


def test_mpich():
    _collectives(3, ranks.need_mpi("mpich"))
    _collectives(3, "mpich", TAPER_COMM_LOCAL="mpi")


def test_mpi_needs_its_launcher():
    ranks.need_mpi("openmpi")
    r = ranks.run(2, "import taper.distributed as d; d.init_process_group('mpi', rank=0, world_size=2)", check=False)
    assert r.code and "mpirun -n 2" in r.out[0], r.out


def test_faults_open_mpi():
    together(["killed", "stopped"], ranks.need_mpi("openmpi"))
    _by_mpi(["killed", "late work"], "openmpi")


def test_faults_mpich():
    together(["late work"], ranks.need_mpi("mpich"))
    _by_mpi(["late work"], "mpich")


def _by_mpi(names, launcher):
    os.environ["TAPER_COMM_LOCAL"] = "mpi"
    try:
        together(names, launcher)
    finally:
        del os.environ["TAPER_COMM_LOCAL"]
