"""The same collectives over MPI, where there is one."""
import ranks
from test_distributed import COLLECTIVES
from test_distributed_faults import together


def _collectives(n, launcher):
    result = ranks.run(n, COLLECTIVES, launcher)
    assert [o.strip() for o in result.out] == [f"good {i}" for i in range(n)], result.out


def test_open_mpi():
    _collectives(3, ranks.need_mpi("openmpi"))


def test_mpich():
    _collectives(3, ranks.need_mpi("mpich"))


def test_mpi_needs_its_launcher():
    ranks.need_mpi("openmpi")
    r = ranks.run(2, "import taper.distributed as d; d.init_process_group('mpi', rank=0, world_size=2)", check=False)
    assert r.code and "mpirun -n 2" in r.out[0], r.out


def test_faults_open_mpi():
    together(["killed", "stopped"], ranks.need_mpi("openmpi"))


def test_faults_mpich():
    together(["late work"], ranks.need_mpi("mpich"))
