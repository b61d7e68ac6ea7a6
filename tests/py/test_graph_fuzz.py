"""Random programs: compiled equals eager, and every graph reads back from its text (graph_fuzz.py draws them; `make fuzz`
draws many more, on every engine)."""
import shutil

import graph_fuzz

# Found by longer runs. Guards that were learnt after a node was made: redundant ones, sizes that became numbers, a
# dimension that is 1 only by computation; values kept for a pass that only looks at their sizes; unbind of what was
# written.
FOUND = (18, 726, 5982, 6195, 7026, 8670, 21832, 23561, 22085, 30651, 30909, 32553, 41310)


def run(seeds, wide):
    graph_fuzz.WIDE = wide
    try:
        for seed in seeds:
            why = graph_fuzz.check(seed, graph_fuzz.ops_of(seed), "inductor", None if seed % 3 else True)
            assert not why, why
    finally:
        graph_fuzz.WIDE = True


def test_random_programs():
    run(range(500), True)


def test_programs_that_failed_once():
    run(FOUND, True)


def test_random_programs_of_fewer_operators():
    run(range(300), False)


def test_random_programs_on_every_engine():
    """Machine code for the narrower vectors, the interpreter of the vector language, C, and no kernels at all."""
    assert not graph_fuzz.engines(["avx2", "interp", "aot_eager"], 100, 500)
    if shutil.which("cc") or shutil.which("gcc"):
        assert not graph_fuzz.engines(["c"], 4, 700)
