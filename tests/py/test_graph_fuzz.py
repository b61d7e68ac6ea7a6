"""Random programs: compiled equals eager (graph_fuzz.py draws them; `make fuzz` draws many more, on every engine)."""
import os
import shutil

import graph_fuzz


def run(seeds, wide):
    text, graph_fuzz.WIDE = os.environ.pop("TAPER_CHECK_TEXT", None), wide
    if text is not None and not wide:
        os.environ["TAPER_CHECK_TEXT"] = text
    try:
        for seed in seeds:
            why = graph_fuzz.check(seed, graph_fuzz.ops_of(seed), "inductor", None if seed % 3 else True)
            assert not why, why
    finally:
        graph_fuzz.WIDE = True
        if text is not None:
            os.environ["TAPER_CHECK_TEXT"] = text


def test_random_programs():
    run(range(500), True)


def test_random_programs_whose_graphs_read_back():
    run(range(300), False)


def test_random_programs_on_every_engine():
    """Machine code for the narrower vectors, the interpreter of the vector language, C, and no kernels at all."""
    text = os.environ.pop("TAPER_CHECK_TEXT", None)
    try:
        assert not graph_fuzz.engines(["avx2", "interp", "aot_eager"], 100, 500)
        if shutil.which("cc") or shutil.which("gcc"):
            assert not graph_fuzz.engines(["c"], 4, 700)
    finally:
        if text is not None:
            os.environ["TAPER_CHECK_TEXT"] = text
