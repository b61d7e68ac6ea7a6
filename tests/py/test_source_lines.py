"""The user's line beside each node, from every kind of source that Python runs."""
import linecache
import os
import tempfile

import taper


def code_of(source, file):
    """The lines that the graph of f, defined by the source, shows."""
    space = {"taper": taper}
    exec(compile(source, file, "exec"), space)
    seen = []

    def backend(gm, inputs):
        seen.extend(n.meta["stack_trace"].rstrip().splitlines()[-1].strip() for n in gm.graph.nodes if n.op == "call_function")
        return gm.forward
    x = taper.tensor([1.0, 2.0])
    taper.compile(space["f"], backend=backend)(x)
    return seen


BODY = "def f(x):\n    y = x + 1  # \u00fc\n\n    return taper.sin(y)\n"
LINES = ["y = x + 1  # \u00fc", "return taper.sin(y)"]


def on_disk(data):
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "prog.py")
        with open(file, "wb") as f:
            f.write(data)
        return code_of(data, file)


def test_lines_of_files():
    assert on_disk(BODY.encode()) == LINES
    assert on_disk(("# one\n# two\n# coding: words\n" + BODY).encode()) == LINES
    assert on_disk(BODY.rstrip().encode()) == LINES


def test_lines_of_files_that_are_not_plain():
    assert on_disk(("# -*- coding: latin-1 -*-\n" + BODY).encode("latin-1")) == LINES
    assert on_disk(b"\xef\xbb\xbf" + BODY.encode()) == LINES
    assert on_disk(BODY.replace("\n", "\r\n").encode()) == LINES


def test_lines_of_what_is_no_file():
    linecache.cache["<made up>"] = (len(BODY), None, BODY.splitlines(True), "<made up>")
    assert code_of(BODY, "<made up>") == LINES
    assert code_of(BODY, "<unknown>") != LINES


def test_lines_beyond_the_end():
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "prog.py")
        with open(file, "w") as f:
            f.write("x = 1\n")
        assert LINES[1] not in code_of(BODY, file)
