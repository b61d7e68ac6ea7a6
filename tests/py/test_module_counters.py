"""Integers that a module counts in its attributes: the second value makes a symbol of them, in modules as in plain objects."""
import taper
from taper import nn
from taper._dynamo.utils import counters

F = nn.functional


def graphs(make, call, times=8):
    """Runs the module plainly and compiled and compares; how many graphs there are."""
    a, b = make(), make()
    taper._dynamo.reset()
    c = taper.compile(b, fullgraph=True)
    for i in range(times):
        want, got = call(a, i), call(c, i)
        assert taper.allclose(want, got), (i, want, got)
    for k, v in vars(a).items():
        if isinstance(v, (int, float)):
            assert type(vars(b)[k]) is type(v) and vars(b)[k] == v, k
    return counters["stats"]["unique_graphs"]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen, self.last, self.lin = 0, 5, None, nn.Linear(2, 2)
        nn.init.constant_(self.lin.weight, 0.5)
        nn.init.zeros_(self.lin.bias)

    def forward(self, x):
        self.calls += 1
        self.seen += x.shape[0]
        self.last = self.calls * 2
        return self.lin(x) * self.calls + self.seen


def test_counters():
    assert graphs(Counts, lambda m, i: m(taper.ones(3, 2))) <= 3


def test_a_counter_that_is_used_to_decide():
    class Warm(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0

        def forward(self, x):
            self.step += 1
            return x * 2 if self.step > 3 else x
    assert graphs(Warm, lambda m, i: m(taper.ones(3)) + 1) <= 4


def test_a_place_in_a_buffer():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", taper.zeros(12, 2))
            self.pos = 0

        def forward(self, x):
            n = x.shape[0]
            self.k[self.pos:self.pos + n] = x
            self.pos += n
            return self.k[:self.pos].sum(0)
    assert graphs(Cache, lambda m, i: m(taper.ones(1, 2) * (i + 1))) <= 4


def test_what_others_write_stays_a_constant():
    class Set(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 1

        def forward(self, x):
            return x * self.k

    def call(m, i):
        (m._orig_mod if hasattr(m, "_orig_mod") else m).k = i
        return m(taper.ones(2))
    assert graphs(Set, call, 4) == 4
