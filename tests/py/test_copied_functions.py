"""Compiled functions and modules are copied and pickled as plain ones are."""
import copy
import io
import pickle

import taper
from taper import nn


@taper.compile
def compiled_here(x):
    return taper.sin(x) + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(taper.relu(self.a(x)))


def double(m):
    with taper.no_grad():
        for p in m.parameters():
            p.mul_(2)
    return m


def test_copies_of_a_compiled_function_are_the_function():
    assert copy.deepcopy(compiled_here) is compiled_here and copy.copy(compiled_here) is compiled_here
    assert pickle.loads(pickle.dumps(compiled_here)) is compiled_here
    assert copy.deepcopy({"f": compiled_here})["f"] is compiled_here
    import functools
    part = taper.compile(functools.partial(taper.add, other=1))
    assert copy.deepcopy(part) is part
    try:
        pickle.dumps(taper.compile(lambda x: x))
        assert False
    except (pickle.PicklingError, AttributeError) as e:
        assert "lambda" in str(e), e


def test_a_copied_compiled_module_is_compiled_and_has_its_own_parameters():
    x = taper.randn(5, 3)
    m = Net()
    c = taper.compile(m, backend="aot_eager")
    want = c(x)
    for d in (copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert type(d) is type(c) and d._orig_mod is not m and taper.equal(d(x), want)
        double(d)
        assert taper.allclose(d(x), d._orig_mod(x)) and not taper.allclose(d(x), want) and taper.equal(c(x), want)
        d(x).sum().backward()
        assert d.a.weight.grad is not None and m.a.weight.grad is None
    f = io.BytesIO()
    pickle.dump(c.state_dict(), f)
    assert list(c.state_dict()) == ["_orig_mod." + k for k in m.state_dict()]


def test_a_copy_of_a_module_compiled_in_place_runs_its_own_parameters():
    x = taper.randn(5, 3)
    m = Net()
    m.compile()
    want = m(x)
    for d in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert "forward" not in d.__dict__ and taper.allclose(d(x), want)
        double(d)
        assert not taper.allclose(d(x), want) and taper.equal(m(x), want)
    assert isinstance(m.forward, type(compiled_here))
