"""What docs/graph.md, docs/rewrites.md and docs/ARCHITECTURE.md show is what the program prints."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
# sanitize: skip


def blocks(name):
    text = open(os.path.join(ROOT, "docs", name), encoding="utf-8").read()
    return [b for lang, b in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if not lang]


def taper(*args, stdin=None):
    p = subprocess.run([TAPER, *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, p.stdout
    return p.stdout


def test_graph_md_example_prints_as_it_stands():
    text = blocks("graph.md")[0]
    assert taper("graph", "print", "-", stdin=text) == text


def test_architecture_example():
    printed, decided, folded = blocks("rewrites.md")
    layer = os.path.join(ROOT, "examples", "layer.graph")
    assert printed in taper("graph", "print", layer)
    assert taper("graph", "fold", "--decisions", layer) == decided + folded
    assert "sin_1" in taper("graph", "fold", "--no=cse:sin_1@layer.py:5", layer)
    assert "output 0: f32[2, 3][3, 1]cpu" in taper("graph", "run", "--trace", layer)


def test_architecture_program():
    """Every line shown for the small program is printed, in this order within a block."""
    text = open(os.path.join(ROOT, "docs", "ARCHITECTURE.md"), encoding="utf-8").read()
    source = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)[1]
    logs = re.search(r"TAPER_LOGS=([\w,]+)", text)[1]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "program.py")
        with open(path, "w") as f:
            f.write(source)
        p = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env=dict(os.environ, TAPER_LOGS=logs, PYTHONPATH=os.path.join(ROOT, "python")))
    printed = [re.sub(r"^\w\d{4} .*? \[__\w+\] |  +# .*$", "", line) for line in p.stdout.splitlines()]
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    assert len(shown) >= 4
    for block in shown:
        rest = iter(printed)
        for line in block.splitlines():
            assert line in rest, f"not printed, or not in this order: {line}\n{p.stdout}"
