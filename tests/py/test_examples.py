"""The training examples run, and their loss falls."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOSS = re.compile(r"step +(\d+) +loss ([\d.]+)")


def losses(name, steps=None):
    path = os.path.join(ROOT, "examples", name + ".py")
    run = [path] if steps is None else ["-c", f"import runpy; runpy.run_path({path!r})['main'](steps={steps})"]
    p = subprocess.run([sys.executable, *run], capture_output=True, text=True, timeout=120, cwd=ROOT,
                       env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python")))
    assert p.returncode == 0, p.stderr[-2000:]
    found = [float(m.group(2)) for m in LOSS.finditer(p.stdout)]
    assert len(found) >= 2, p.stdout
    return found


def test_mlp():
    v = losses("mlp")
    assert v[-1] < v[0] / 2, v


def test_gpt():
    v = losses("gpt", 50)
    assert v[-1] < v[0] - 1, v


def test_resnet():
    v = losses("resnet")
    assert v[-1] < v[0] / 3, v


def test_lstm():
    v = losses("lstm")
    assert v[-1] < v[0] / 2, v


def test_the_examples_compile():
    """Each example trains in one graph, once compiled; graph breaks and calls that stay eager would be a poor example."""
    for name, regions in (("mlp", 2), ("gpt", 2), ("resnet", 2), ("lstm", 1)):
        code = (f"import runpy, taper; m = runpy.run_path({os.path.join(ROOT, 'examples', name + '.py')!r}, run_name='example'); "
                "m['main'](steps=15) if 'main' in m else None\n"
                "from taper._dynamo.utils import counters\n"
                "print('graphs', counters['stats']['unique_graphs'], 'breaks', sum(counters['graph_break'].values()))")
        p = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python")))
        assert p.returncode == 0, p.stderr[-2000:]
        graphs, breaks = re.search(r"graphs (\d+) breaks (\d+)", p.stdout).groups()
        assert breaks == "0" and regions <= int(graphs) <= regions + 2, (name, graphs, breaks)  # at most: another size, and sizes of all kinds
