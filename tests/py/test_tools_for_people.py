"""Small tools that programs import: benchmark.Timer, collect_env, SummaryWriter; and NumPy arrays beside tensors."""
import copy
import glob
import io
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import taper
from taper.utils import collect_env
from taper.utils.benchmark import Compare, Measurement, Timer
from taper.utils.tensorboard import SummaryWriter
from taper.utils.tensorboard.writer import _masked


def raises(cls, fn, words=""):
    try:
        fn()
    except cls as e:
        assert words in str(e), e
        return
    raise AssertionError(f"no {cls.__name__}")


def test_timer():
    calls = []
    before = taper.get_num_threads()
    m = Timer("f(x)", setup="x = 3", globals={"f": calls.append}, label="call", sub_label="small", description="mine").timeit(100)
    assert len(calls) >= 100 and set(calls) == {3} and len(m.times) == 1 and m.median > 0 and m.number_per_run == 100
    assert "call: small" in repr(m) and "1 measurement, 100 runs per measurement, 1 thread" in repr(m) and taper.get_num_threads() == before
    b = Timer("x + 1", globals={"x": taper.ones(3)}).blocked_autorange(min_run_time=0.01)
    assert len(b.times) >= 1 and b.iqr >= 0 and b.mean > 0
    assert Timer("torch.ones(2)\nwith taper.no_grad():\n    pass").timeit(2).median > 0
    assert Timer("pass").adaptive_autorange(min_run_time=0.001, max_run_time=0.05).median >= 0
    table = str(Compare([m, Measurement(1, [2e-3], copy.copy(m.task_spec))]))
    assert "[--" in table and "call" in table and "mine" in table and "Times are in" in table
    raises(ValueError, lambda: Timer(len), "string")
    raises(SyntaxError, lambda: Timer("x ="))
    raises(NotImplementedError, lambda: Timer("x", language="c++"), "Python statements")


def test_collect_env():
    text = collect_env.get_pretty_env_info()
    for what in ("Taper:", "OS:", "CPU:", "Python:", "GCC:", "Packages:", "Environment:"):
        assert what in text
    r = subprocess.run([sys.executable, "-m", "taper.utils.collect_env"], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout.splitlines()[0].split()[:2] == ["Taper:", taper.version.taper], r.stderr


def records(path):
    """The payloads of an event file; checksums must fit."""
    with open(path, "rb") as f:
        data = f.read()
    while data:
        n, = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == _masked(data[:8]) and struct.unpack("<I", data[12 + n:16 + n])[0] == _masked(data[12:12 + n])
        yield data[12:12 + n]
        data = data[16 + n:]


def fields(b):
    """{number: [values]} of a message."""
    out, f = {}, io.BytesIO(b)

    def varint():
        n = shift = 0
        while True:
            c = f.read(1)[0]
            n |= (c & 0x7f) << shift
            shift += 7
            if c < 0x80:
                return n
    while f.tell() < len(b):
        key = varint()
        v = varint() if key & 7 == 0 else f.read(8) if key & 7 == 1 else f.read(4) if key & 7 == 5 else f.read(varint())
        out.setdefault(key >> 3, []).append(v)
    return out


def test_summary_writer():
    assert _masked(b"123456789") == ((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) & 0xffffffff  # the check value of CRC-32C
    with tempfile.TemporaryDirectory() as d:
        w = SummaryWriter(d)
        w.add_scalar("loss", taper.tensor(0.5), 3, walltime=7.0)
        w.add_histogram("weights", taper.arange(10.0) - 5, 4)
        w.add_histogram("few", [1.0, 2.0, 2.0], 4, bins=2)
        w.add_image("img", taper.arange(12.0).view(3, 2, 2) / 11, 5)
        w.add_text("note", "hello", 6)
        w.add_scalars("both", {"a": 1, "b": 2.5}, 1)
        w.close()
        raises(ValueError, lambda: w.add_scalar("late", 1), "closed")
        raises(ValueError, lambda: SummaryWriter(d + "/other").add_histogram("none", []), "no element")
        raises(ValueError, lambda: SummaryWriter(d + "/other").add_image("bad", taper.ones(2, 2)), "dimensions")
        events = [fields(r) for r in records(glob.glob(os.path.join(d, "events.out.tfevents.*"))[0])]
        assert events[0][3] == [b"brain.Event:2"]
        values = {fields(e[5][0])[1][0]: (fields(fields(e[5][0])[1][0]), e) for e in events[1:]}
        rows = {v[1][0].decode(): (v, e) for v, e in values.values()}
        v, e = rows["loss"]
        assert struct.unpack("<f", v[2][0])[0] == 0.5 and e[2] == [3] and struct.unpack("<d", e[1][0])[0] == 7.0
        h = fields(rows["weights"][0][5][0])
        counts = struct.unpack(f"<{len(h[7][0]) // 8}d", h[7][0])
        assert struct.unpack("<d", h[1][0])[0] == -5 and struct.unpack("<d", h[2][0])[0] == 4 and sum(counts) == 10 and len(h[6][0]) == len(h[7][0])
        few = fields(rows["few"][0][5][0])
        assert struct.unpack("<2d", few[7][0]) == (1.0, 2.0) and struct.unpack("<2d", few[6][0]) == (1.5, 2.0)
        img = fields(rows["img"][0][4][0])
        png = img[4][0]
        assert img[1] == [2] and img[2] == [2] and img[3] == [3] and png.startswith(b"\x89PNG")
        raw = zlib.decompress(png[png.index(b"IDAT") + 4:png.index(b"IEND") - 8])
        assert raw[:7] == bytes([0, 0, 92, 185, 23, 115, 208])
        assert b"hello" in rows["note/text_summary"][0][8][0]
        assert sorted(os.path.basename(p) for p in glob.glob(os.path.join(d, "both_*"))) == ["both_a", "both_b"]


def test_summary_writer_draws_a_graph():
    class Net(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = taper.nn.Sequential(taper.nn.Linear(4, 8), taper.nn.ReLU())
            self.head = taper.nn.Linear(8, 2)

        def forward(self, x, y):
            return self.head(self.body(x)) + y
    with tempfile.TemporaryDirectory() as d:
        with SummaryWriter(d) as w:
            w.add_graph(Net(), (taper.ones(3, 4), taper.ones(2)))
            raises(ValueError, lambda: w.add_graph(Net()), "an example of the input")
        event = [fields(r) for r in records(glob.glob(os.path.join(d, "events.out.tfevents.*"))[0])][1]
        nodes = {n[1][0].decode(): n for n in map(fields, fields(event[4][0])[1])}
        kinds = {name: n[2][0].decode() for name, n in nodes.items()}
        assert {"Net/body/0/weight", "Net/head/bias", "input/x", "input/y"} <= set(nodes) and kinds["Net/head/bias"] == "Weight" and kinds["input/x"] == "Input", kinds
        assert all(i.decode() in nodes for n in nodes.values() for i in n.get(3, []))
        linear = next(n for name, n in nodes.items() if name.startswith("Net/body/0/") and "linear" in kinds[name])
        attribute = fields(linear[5][0])
        dims = [fields(x)[1][0] for x in fields(fields(fields(attribute[2][0])[1][0])[7][0])[2]]
        assert linear[3][0] == b"input/x" and attribute[1] == [b"_output_shapes"] and dims == [3, 8], (linear, dims)


def test_arrays_beside_tensors():
    try:
        import numpy as np
    except ImportError:
        raise unittest.SkipTest("NumPy is not installed")
    x, a = taper.tensor([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 1.0])
    for r, want in ((x + a, [4, 4, 5]), (a + x, [4, 4, 5]), (x - a, [-2, 0, 3]), (a - x, [2, 0, -3]), (x * a, [3, 4, 4]), (a / x, [3, 1, 0.25]),
                    (x / a, [1 / 3, 1, 4]), (x ** a, [1, 4, 4]), (a ** x, [3, 4, 1]), (x // a, [0, 1, 4]), (a % x, [0, 0, 1]), (a @ x, 11), (x @ a, 11)):
        assert isinstance(r, taper.Tensor) and r.dtype is taper.float64 and np.allclose(r.tolist(), want), (r, want)
    assert (x + a.astype(np.float32)).dtype is taper.float32 and (x + np.array([1, 2, 3])).dtype is taper.float64
    for r, want in ((x == a, [False, True, False]), (x < a, [True, False, False]), (x >= a, [False, True, True]), (x != a, [True, False, True])):
        assert r.dtype is taper.bool and r.tolist() == want
    y = x
    y += a
    assert y.tolist() == [4, 4, 5] and x.tolist() == [1, 2, 4]
    g = x.clone().requires_grad_()
    (g * a).sum().backward()
    assert g.grad.tolist() == [3, 2, 1]
    assert (taper.tensor([True, False, True]) & np.array([True, True, False])).tolist() == [True, False, False]
    assert isinstance(np.sin(x), taper.Tensor) and np.allclose(np.sin(x).tolist(), np.sin([1.0, 2, 4]))
    assert (x + a[::-1]).tolist() == [2, 4, 7]  # a view with a negative step
    raises(TypeError, lambda: x + np.array(["a", "b", "c"]))
    raises(RuntimeError, lambda: x + np.ones(2), "size")
    f = taper.compile(lambda t: t * 2 + a)
    assert f(x).tolist() == [5, 6, 9]


def test_copy_of_a_computed_tensor():
    x = taper.ones(2, requires_grad=True) * 3
    y = copy.copy(x)
    assert y.is_leaf and y.requires_grad and y.data_ptr() == x.data_ptr() and y.tolist() == [3, 3]
    p = taper.nn.Parameter(taper.ones(2))
    q = copy.copy(p)
    assert type(q) is taper.nn.Parameter and q.data_ptr() == p.data_ptr()


def test_sparse_adam_moves_rows_that_were_used():
    e = taper.nn.Embedding(4, 2, sparse=True)
    before = e.weight.detach().clone()
    o = taper.optim.SparseAdam(e.parameters(), lr=0.1)
    for ids in ([0, 2], [2, 2]):
        o.zero_grad()
        e(taper.tensor(ids)).pow(2).sum().backward()
        o.step()
    moved = (e.weight != before).any(1)
    assert moved.tolist() == [True, False, True, False] and o.state[e.weight]["exp_avg"][1].tolist() == [0, 0]
    raises(ValueError, lambda: taper.optim.SparseAdam(e.parameters(), eps=0.0), "epsilon")
