"""Random programs: compiled equals eager (graph_fuzz.py draws them; `make fuzz` draws many more)."""
import graph_fuzz


def test_random_programs():
    for seed in range(500):
        why = graph_fuzz.check(seed, 4 + seed % 16, "inductor", None if seed % 3 else True)
        assert not why, why
