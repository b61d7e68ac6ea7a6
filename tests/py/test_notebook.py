"""Notebooks: the %%taper magic, and tables instead of text."""
import unittest

import taper
from taper import notebook
from taper.profiler import profile


def cell(source, **names):
    names = {"taper": taper, "x": taper.ones(3), **names}
    return notebook.run_cell(source, names, "cell 4"), names


def test_a_cell_is_one_function_of_the_notebook():
    r, names = cell("import math\ny = taper.sin(x)\nprint(end='')\ndef f(a):\n    hidden = a\n    return hidden\nz = [q for q in range(3)]\nfor i in z:\n    pass\ny * 2 + math.pi - math.pi")
    assert taper.allclose(r.result, taper.sin(taper.ones(3)) * 2) and names["z"] == [0, 1, 2] and names["i"] == 2 and names["f"](5) == 5
    assert "q" not in names and "hidden" not in names and names["math"].pi > 3 and not any(n.startswith("__taper") for n in names)
    assert len(r.graphs) == 2 and [b.line for b in r.breaks] == [3] and r.breaks[0].file == "cell 4", r.breaks
    assert "line 3: builtin: print" in repr(r) and "cell 4: 2 graphs, 1 break" in repr(r)
    assert "<td>3</td>" in r._repr_html_() and "graph 2" in r._repr_html_() and "sin" in r._repr_html_()


def test_cells_without_tensors_values_or_sense():
    r, names = cell("a = 1")
    assert r.result is None and names["a"] == 1 and r.graphs == []
    assert cell("")[0].result is None and cell("cell = 3\ncell + 1")[0].result == 4
    for source, cls in (("1 +", SyntaxError), ("nowhere", NameError), ("1 / 0", ZeroDivisionError)):
        try:
            cell(source)
        except cls as e:
            assert cls is not SyntaxError or e.filename == "cell 4"
        else:
            raise AssertionError(source)
    r = notebook.run_cell("n.append(1)\nx + 1", {"n": (n := []), "x": taper.ones(2)}, n=3)
    assert len(n) == 8 and r.times and "compiled" in repr(r)  # once for the graph, once to compile, three times each for the times


def test_findings_are_tables_and_are_escaped():
    def f(a):
        print(end="")
        return a + 1
    s = taper.compiler.survey(f)(taper.ones(2))
    text = s._repr_html_()
    assert "<table>" in text and "builtin: print" in text and text.count("<tr>") == len(s.findings) + 1
    assert "&lt;b&gt;" in notebook.html_table(["<b>"], [["<b>"]]) and "<b>" not in notebook.html_table(["<b>"], [["<b>"]]).replace("&lt;b&gt;", "")
    assert "<table>" in taper._dynamo.explain(f)(taper.ones(2))._repr_html_()
    taper.compile(f)(taper.ones(2))
    assert "<table>" in taper.compiler.ledger()._repr_html_() and isinstance(taper.compiler.ledger(), list)
    with profile() as p:
        taper.ones(2).exp()
    assert "aten::exp" in p.key_averages()._repr_html_()


def test_in_ipython():
    try:
        from IPython.core.interactiveshell import InteractiveShell
    except ImportError:
        raise unittest.SkipTest("IPython is not installed")
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "taper")
    shell.run_cell("import taper\nx = taper.ones(2)")
    r = shell.run_cell("%%taper -n 2\ny = x + 1\ny * 2")
    assert r.success and r.result.tolist() == [4, 4] and shell.user_ns["y"].tolist() == [2, 2]
    assert not shell.run_cell("%%taper wrong\n1").success
