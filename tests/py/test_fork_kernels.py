"""A forked child and its parent go on compiling, each for itself."""
import os

import taper


def test_kernels_made_after_a_fork_are_ones_own():
    """The child makes a kernel, then the parent makes another one, then the child runs its own again."""
    taper.compile(lambda x: x.sin() * 3)(taper.ones(5))
    to_parent, to_child = os.pipe(), os.pipe()
    x = taper.arange(64, dtype=taper.float32)
    pid = os.fork()
    if not pid:
        good = False
        try:
            f = taper.compile(lambda x: x * 2 + 1)
            first = f(x).tolist()
            os.write(to_parent[1], b"1")
            os.read(to_child[0], 1)
            good = first == f(x).tolist() == [2 * i + 1 for i in range(64)]
        finally:
            os._exit(0 if good else 1)
    assert os.read(to_parent[0], 1) == b"1"
    got = taper.compile(lambda x: x * 5 - 7 + x * x)(x).tolist()
    os.write(to_child[1], b"1")
    assert os.waitpid(pid, 0)[1] == 0
    assert got == [i * 5 - 7 + i * i for i in range(64)]
    for fd in to_parent + to_child:
        os.close(fd)
