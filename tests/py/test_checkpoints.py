"""taper.save and taper.load of whole checkpoints: nested values around tensors, without pickle."""
import io
import json
import pickle
import os
import tempfile
from collections import OrderedDict

import taper
from taper import nn, safetensors


def raises(cls, fn, words):
    try:
        fn()
    except cls as e:
        assert words in str(e), e
        return
    raise AssertionError(f"no {cls.__name__}")


def through(obj):
    b = io.BytesIO()
    taper.save(obj, b)
    b.seek(0)
    return taper.load(b)


def same(a, b):
    if isinstance(a, taper.Tensor):
        return type(a) is type(b) and a.dtype is b.dtype and taper.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and (a == b or a != a and b != b)


def test_a_training_run_goes_on_where_it_stopped():
    def make():
        taper.manual_seed(0)
        m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        o = taper.optim.AdamW(m.parameters(), lr=0.01)
        return m, o, taper.optim.lr_scheduler.StepLR(o, 2)

    def steps(m, o, s, n):
        for i in range(n):
            o.zero_grad()
            m(taper.ones(5, 3) * (i + 1) + taper.arange(5).view(5, 1)).pow(2).mean().backward()
            o.step()
            s.step()
    a = make()
    steps(*a, 3)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "run.pt")
        taper.save({"epoch": 3, "model": a[0].state_dict(), "opt": a[1].state_dict(), "sched": a[2].state_dict(), "best": float("inf"), "rng": taper.get_rng_state()}, path)
        ck = taper.load(path, map_location="cpu", weights_only=True)
    b = make()
    b[0].load_state_dict(ck["model"])
    b[1].load_state_dict(ck["opt"])
    b[2].load_state_dict(ck["sched"])
    assert ck["epoch"] == 3 and ck["best"] == float("inf") and taper.equal(ck["rng"], taper.get_rng_state())
    steps(*a, 2)
    steps(*b, 2)
    for p, q in zip(a[0].state_dict().values(), b[0].state_dict().values()):
        assert taper.equal(p, q)


def test_values_come_back_as_they_were():
    t = taper.arange(3)
    obj = {"i": 1, "big": 2 ** 80, "f": 0.1, "nan": float("nan"), "inf": -float("inf"), "s": "ü\n", "n": None, "b": True, "by": b"\x00\xff", "c": 1 + 2j,
           "l": [1, (2, t), []], "sz": t.shape, "o": OrderedDict(z=1, a=2), 3: {"x": {1.5: "k", (1, "a"): 2, None: 0, True: 1}}, "dt": taper.bfloat16,
           "dev": taper.device("cpu"), "e": {}, "g": taper.ones(2, requires_grad=True), "p": nn.Parameter(taper.zeros(1)), "set": {1, 2}}
    assert same(through(obj), obj)
    assert same(through([t, 1]), [t, 1]) and same(through(t), t) and through(5) == 5 and through(None) is None


def test_one_tensor_stays_one():
    t = taper.ones(2)
    r = through({"a": t, "b": [t]})
    assert r["a"] is r["b"][0]


def test_dicts_of_tensors_are_ordinary_files_in_their_order():
    state = OrderedDict(z=taper.ones(2), a=taper.zeros(3, dtype=taper.int64))
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        taper.save(state, path)
        assert list(taper.load(path)) == ["z", "a"] and set(safetensors.load_file(path)) == {"z", "a"}
        safetensors.save_file(dict(state), path)
        assert taper.equal(taper.load(path)["z"], state["z"])


def test_what_cannot_be_saved_is_named():
    raises(pickle.UnpicklingError, lambda: through({"a": [1, object()]}), "The file holds builtins.object")
    raises(pickle.UnpicklingError, lambda: through({"m": nn.Linear(1, 1)}), "weights_only=False")
    raises(TypeError, lambda: through({"a": lambda: 1}), "cannot be pickled")
    raises(TypeError, lambda: through({"a": {object(): 1}}), "a key of the object at 'a'")
    loop = []
    loop.append(loop)
    raises(ValueError, lambda: through(loop), "contain itself")


def test_damaged_and_hostile_files_are_refused():
    def file(tree):
        return io.BytesIO(safetensors.save({"x": taper.ones(1)}, {"taper": tree if isinstance(tree, str) else json.dumps(tree)}))
    deep = "1"
    for _ in range(300):
        deep = '{"l":[' + deep + "]}"
    for tree, words in (("{", "damaged"), ({"t": "y"}, "no tensor 'y'"), ({"t": 3}, "no tensor"), ({"q": 1}, "no kind of value"), ({"d": [1]}, "pairs"), ([1], "where a value"),
                        ({"d": [[{"l": []}, 1]]}, "a key"), ({"z": ["a"]}, ""), ({"dt": "__class__"}, "no kind of value"), ({"b": "%"}, ""), ({"c": []}, ""),
                        ({"f": 3}, "no kind"), ({"s": [{"l": []}]}, "unhashable"), ({}, "where a value"), (deep, "too deep"), ("[" * 100000, "damaged")):
        raises(ValueError, lambda: taper.load(file(tree)), words)
    raises(ValueError, lambda: taper.load(io.BytesIO(b"\x80\x04abc")), "is a pickle file")
    raises(ValueError, lambda: taper.load(io.BytesIO(b"")), "")
