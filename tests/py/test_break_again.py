"""A break that every caller meets again: told in full once, and nothing is looked at instruction by instruction."""
import collections
import itertools
import os
import subprocess
import sys
import tempfile

import taper
import taper._dynamo as dynamo

HOOKS = """
import taper, taper.nn as nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)
    def forward(self, x):
        return self.b(self.a(x).relu())
m = M()
def hook(mod, args, out):
    print("hook", tuple(out.shape))
m.a.register_forward_hook(hook)
f, x = taper.compile(m), taper.ones(3, 4)
want = m(x)
for _ in range(2):
    assert taper.allclose(f(x), want)
taper.compiler.reset()
f(x)
"""


def test_a_hook_that_prints():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "hooks.py")
        with open(path, "w") as f:
            f.write(HOOKS)
        p = subprocess.run([sys.executable, path], env=dict(os.environ, TAPER_LOGS="graph_breaks"), capture_output=True, text=True, timeout=100)
    assert p.returncode == 0, p.stderr[-2000:]
    assert p.stdout.split("\n")[:-1] == ["hook (3, 8)"] * 4, p.stdout
    assert p.stderr.count("] Graph break in user code at ") == 2, p.stderr  # once, and once more after reset()
    again = p.stderr.count(f"Graph break (user stack suppressed due to duplicate graph break) in user code at {path}:12")
    assert again == 6, p.stderr  # the three functions within
    assert p.stderr.count("User code traceback:") == 2, p.stderr


def graphs(f, *args):
    """What f gives compiled, and how many graphs that took."""
    dynamo.reset()
    dynamo.utils.counters.clear()
    out = taper.compile(f)(*args)
    return out, dynamo.utils.counters["stats"]["unique_graphs"]


def test_a_break_within_a_loop_over_an_ordered_dictionary():
    """Views of one, and iterators that are in the middle of it, are made again after the break."""
    od = collections.OrderedDict((f"k{i}", taper.full([3], float(i))) for i in range(3))
    seen = []
    @dynamo.disable
    def note(x):
        seen.append(x)
    def items(x):
        for k, v in od.items():
            x = x * 2 + v
            note(k)
        return x + 1
    def views(x):
        for k, v in itertools.chain(od.items(), zip(od.keys(), od.values())):
            x = x + v
            note(k)
        return x
    for f, n in ((items, 3), (views, 6)):
        want = f(taper.ones(3))
        del seen[:]
        got, count = graphs(f, taper.ones(3))
        assert taper.equal(got, want), (got, want)
        assert seen == [f"k{i % 3}" for i in range(n)], seen
        assert 1 <= count <= n + 1, count
