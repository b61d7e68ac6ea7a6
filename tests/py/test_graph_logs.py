"""TAPER_LOGS=graph_code,graph_sizes,graph: what is shown, and that the code reads back and runs."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
# sanitize: skip
PROGRAM = '''
import taper
def g(x, y):
    return x + y
@taper.compile(backend="eager")
def f(x):
    x = taper.sin(x)
    return g(x, x)
f(taper.ones([3, 3]))
'''


def logged(artifact):
    env = dict(os.environ, TAPER_LOGS=artifact, PYTHONPATH=os.path.join(ROOT, "python"))
    p = subprocess.run([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 0, p.stderr
    mark = f"[__{artifact}]"
    return [line.split(mark, 1)[1][1:] for line in p.stderr.splitlines() if mark in line]


def test_graph_code():
    lines = logged("graph_code")
    assert lines[0] == "TRACED GRAPH", lines
    assert re.fullmatch(r" ?===== __compiled_fn_\d+ =====", lines[1]), lines
    text = "\n".join(lines[2:]) + "\n"
    assert 'def forward(self, L_x_: "f32[3, 3][3, 1]cpu"):' in text, text
    assert "l_x_ = L_x_" in text and "in f" in text and "in g" in text, text
    assert re.search(r': "f32\[3, 3\]\[3, 1\]cpu" = taper\.sin\(l_x_\);  l_x_ = None$', text, re.M), text
    p = subprocess.run([TAPER, "graph", "run", "-"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0 and p.stdout.startswith("output 0: f32[3, 3][3, 1]cpu = ["), p.stdout


def test_graph_sizes():
    lines = logged("graph_sizes")
    assert lines[0] == "TRACED GRAPH TENSOR SIZES" and "l_x_: (3, 3)" in lines, lines


def test_graph_table():
    lines = logged("graph")
    assert any(re.match(r"opcode +name +target +args +kwargs", line) for line in lines), lines
    assert any(re.match(r"placeholder +l_x_ ", line) for line in lines), lines
