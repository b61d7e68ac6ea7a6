"""The Python object of a tensor lives as long as anything holds the tensor: attributes, class and identity are not lost
while only the tape, a view or another tensor's .grad has it, and nothing is kept for longer."""
import gc
import sys
import weakref

import taper
from taper import nn


def test_attributes_outlive_the_last_python_name():
    x = taper.ones(3, requires_grad=True)
    y = x * 2
    y.note = ["mine"]
    z = y.exp() * y
    del y
    seen = []
    z.grad_fn.next_functions[1][0]  # walking does not disturb it
    z.register_hook(lambda g: seen.append(g))
    z.sum().backward()
    p = nn.Parameter(taper.ones(2))
    p.tag = 7
    q = (p * 3).sum()
    del p
    leaf = q.grad_fn.next_functions[0][0].next_functions[0][0].variable
    assert type(leaf) is nn.Parameter and leaf.tag == 7


def test_gradients_and_bases_keep_theirs():
    x = taper.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    x.grad.note = "kept"
    for _ in range(3):  # it dies and comes back any number of times
        assert x.grad.note == "kept"
    b = taper.zeros(4)
    b.note = {"a": 1}
    v = b[1:]
    i = id(b)
    del b
    assert v._base.note == {"a": 1} and id(v._base) == i


class Marked(taper.Tensor):
    pass


def test_subclasses_keep_their_class():
    m = taper.Tensor._make_subclass(Marked, taper.ones(2))
    m.note = 1
    w = m[:1]
    del m
    assert type(w._base) is Marked and w._base.note == 1


def test_nothing_is_kept_for_longer():
    class Probe:
        pass

    def go():
        x = taper.ones(3, requires_grad=True)
        y = x * 2
        y.probe = Probe()
        r = weakref.ref(y.probe)
        w = weakref.ref(y)
        z = y * y
        del y
        assert r() is not None and w() is not None  # the tape has it
        assert w() is w()
        z.sum().backward()  # frees what it saved
        del z
        return r, w

    for _ in range(5):
        r, w = go()
        assert r() is None and w() is None
    before = len(gc.get_objects())
    for _ in range(200):
        go()
    gc.collect()
    assert len(gc.get_objects()) < before + 50


def test_counts_are_right():
    note = object()
    n = sys.getrefcount(note)
    for _ in range(50):
        b = taper.zeros(2)
        b.note = note
        v = b.view(2, 1)
        del b
        v._base
        c = v._base
        del v
        assert c.note is note
        c + 1
        del c
    assert sys.getrefcount(note) == n
    live = taper._C._memory()[0]
    for _ in range(50):
        b = taper.zeros(1000)
        b.note = b[1:]  # a cycle through C: the view holds its base
        b.note = None
        b.me = b
        v = b[2:]
        del b
        gc.collect()
        assert v._base.me is v._base
        v._base.me = None
        del v
    assert taper._C._memory()[0] == live


def test_a_cycle_of_its_own_is_collected():
    gone = []

    class Probe:
        def __del__(self):
            gone.append(1)

    b = taper.zeros(3)
    b.me, b.probe = b, Probe()
    v = b[1:]
    del b
    gc.collect()
    assert not gone and v._base.me is v._base and isinstance(v._base.probe, Probe)
    del v
    gc.collect()
    assert gone == [1]


def test_an_optimiser_state_of_a_deleted_module_goes():
    def go():
        m = nn.Linear(2, 2)
        opt = taper.optim.Adam(m.parameters())
        m(taper.ones(1, 2)).sum().backward()
        opt.step()
        return weakref.ref(m.weight)

    r = go()
    gc.collect()
    assert r() is None
