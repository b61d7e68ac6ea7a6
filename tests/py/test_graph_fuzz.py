"""Random programs: compiled equals eager (graph_fuzz.py draws them; `make fuzz` draws many more, on every engine)."""
import shutil

import graph_fuzz


def test_random_programs():
    for seed in range(500):
        why = graph_fuzz.check(seed, graph_fuzz.ops_of(seed), "inductor", None if seed % 3 else True)
        assert not why, why


def test_random_programs_on_every_engine():
    """Machine code for the narrower vectors, the interpreter of the vector language, C, and no kernels at all."""
    assert not graph_fuzz.engines(["avx2", "interp", "aot_eager"], 100, 500)
    if shutil.which("cc") or shutil.which("gcc"):
        assert not graph_fuzz.engines(["c"], 4, 700)
