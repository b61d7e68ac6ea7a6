"""taper.save and taper.load of whole checkpoints: files of PyTorch (tests/data/checkpoints), values of every kind, files that lie."""
import glob
import io
import os
import pickle
import random
import struct
import sys
import tempfile
import zipfile
from collections import Counter, OrderedDict

import taper
from taper import _archive, nn, safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import checkpoint_kinds  # noqa: E402

FILES = sorted(glob.glob(os.path.join(os.path.dirname(HERE), "data", "checkpoints", "*.pt")))
REFUSALS = (pickle.UnpicklingError, RuntimeError, EOFError)


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


def close(a, b, path=""):
    """The same values, types and layout; floats of trained models may differ in the last bits."""
    if isinstance(a, taper.Tensor):
        assert type(a) is type(b) and a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and a.requires_grad == b.requires_grad, path
        assert a.device == b.device and {k: v for k, v in a.__dict__.items()} == dict(b.__dict__), path
        if a.device.type != "meta":
            assert taper.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5), path
    elif isinstance(a, dict):
        assert type(a) is type(b) and (list(a) == list(b) or type(a) is dict and set(a) == set(b)) and getattr(a, "__dict__", None) == getattr(b, "__dict__", None), path
        for k in a:
            close(a[k], b[k], f"{path}.{k}")
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            close(x, y, f"{path}.{i}")
    else:
        assert type(a) is type(b) and (a == b or isinstance(a, float) and abs(a - b) < 1e-9), (path, a, b)


def test_files_of_pytorch():
    want = checkpoint_kinds.kinds(taper)
    assert len(FILES) == 2 * len(want)
    for path in FILES:
        name = os.path.basename(path).split(".")[0]
        close(taper.load(path), want[name], os.path.basename(path))
        with open(path, "rb") as f:
            close(taper.load(f, map_location="cpu"), want[name], name)
        if not path.endswith(".old.pt"):
            close(taper.load(path, mmap=True), want[name], name)
            assert taper.serialization.get_unsafe_globals_in_checkpoint(path) == []


def test_what_is_written_is_read():
    for name, value in checkpoint_kinds.kinds(taper).items():
        for protocol in (2, 3, 4, 5):
            for new in (True, False):
                b = io.BytesIO()
                taper.save(value, b, pickle_protocol=protocol, _use_new_zipfile_serialization=new)
                b.seek(0)
                close(taper.load(b), value, name)


def test_views_stay_views():
    for end in (".pt", ".old.pt"):
        v = taper.load(os.path.join(os.path.dirname(FILES[0]), "views" + end))
        v["x"][1, 2] = 100
        assert v["row"][2] == v["part"][0, 1] == v["turned"][2, 1] == 100 and v["again"] is v["x"] is v["list"][0]
        v["list"][1][0].fill_(7)
        assert v["x"][2].tolist() == [7] * 4


def test_mapped_files_keep_what_is_in_them():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.pt")
        taper.save({"a": taper.arange(5), "b": taper.tensor([True, False])}, path)
        before = open(path, "rb").read()
        m = taper.load(path, mmap=True)
        m["a"].fill_(3)
        assert m["a"].tolist() == [3] * 5 and m["b"].tolist() == [True, False] and open(path, "rb").read() == before
        raises(ValueError, lambda: taper.load(io.BytesIO(before), mmap=True), "needs the name of a file")
        taper.save([1], path, _use_new_zipfile_serialization=False)
        raises(RuntimeError, lambda: taper.load(path, mmap=True), "zip format")


def test_the_place_of_tensors():
    def on_gpu(new=True):  # what a program with a GPU writes
        b = io.BytesIO()
        taper.save({"w": taper.arange(4.0)}, b, _use_new_zipfile_serialization=new)
        b.seek(0)
        if not new:
            return io.BytesIO(b.read().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
        out, z = io.BytesIO(), zipfile.ZipFile(b)
        w = _archive.Writer(out, "archive")
        for n in z.namelist():
            w.add(n.split("/", 1)[1], z.read(n).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
        w.close()
        out.seek(0)
        return out
    for new in (True, False):
        if not taper.cuda.is_available():
            raises(RuntimeError, lambda: taper.load(on_gpu(new)), "map_location='cpu'")
        for where in ("cpu", taper.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage):
            r = taper.load(on_gpu(new), map_location=where)["w"]
            assert r.device.type == "cpu" and r.tolist() == [0, 1, 2, 3], (new, where)
        asked = []
        taper.load(on_gpu(new), map_location=lambda storage, location: asked.append((storage.nbytes(), location)) or storage)
        assert asked == [(16, "cuda:0")]
        assert taper.load(on_gpu(new), map_location="meta")["w"].device.type == "meta"
        raises(RuntimeError, lambda: taper.load(on_gpu(new), map_location="nowhere"), "nowhere")


def test_safetensors_by_name_and_in_parts():
    state = OrderedDict(z=taper.ones(2), a=taper.zeros(3, dtype=taper.int64), m=taper.ones(4))
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        taper.save(state, path)
        assert set(taper.load(path)) == set(safetensors.load_file(path)) == set("zam")
        index = safetensors.save_sharded(state, d, max_shard_size=24)
        assert index.endswith("model.safetensors.index.json") and len(glob.glob(os.path.join(d, "model-*-of-00003.safetensors"))) == 3
        for r in (taper.load(index), safetensors.load_file(index), taper.load(index, map_location="cpu")):
            assert set(r) == set(state) and all(taper.equal(r[k], state[k]) for k in r)
        assert safetensors.save_sharded(state, d, max_shard_size="1MB").endswith("model.safetensors")
        raises(ValueError, lambda: safetensors.save_sharded(state, d, max_shard_size="many"), "no number of bytes")
        for text, words in (("{", "no weight_map"), ("[]", "no weight_map"), ('{"weight_map": []}', "no object"), ('{"weight_map": {"z": "../x"}}', "lie beside"),
                            ('{"weight_map": {"z": 3}}', "lie beside"), ('{"weight_map": {"q": "model.safetensors"}}', "but it is not")):
            with open(index, "w") as f:
                f.write(text)
            raises(ValueError, lambda: taper.load(index), words)


class Kept:
    def __init__(self):
        self.x = taper.ones(2)


def test_other_classes_need_permission():
    b = io.BytesIO()
    taper.save({"k": Kept()}, b)
    name = f"{__name__}.Kept"

    def again(**kw):
        b.seek(0)
        return taper.load(b, **kw)
    raises(pickle.UnpicklingError, again, name)
    raises(pickle.UnpicklingError, again, "weights_only=False if the file comes from a trusted source")
    b.seek(0)
    assert taper.serialization.get_unsafe_globals_in_checkpoint(b) == [name]
    with taper.serialization.safe_globals([Kept]):
        assert again()["k"].x.tolist() == [1, 1]
    with taper.serialization.safe_globals([(Kept, name)]):
        assert type(again()["k"]) is Kept
    assert again(weights_only=False)["k"].x.tolist() == [1, 1]
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    b = io.BytesIO()
    taper.save(m, b)
    raises(pickle.UnpicklingError, again, "torch.nn.modules.container.Sequential")
    assert taper.equal(again(weights_only=False)(taper.ones(1, 2)), m(taper.ones(1, 2)))


def test_what_cannot_be_saved_is_named():
    raises((AttributeError, pickle.PicklingError), lambda: through({"a": lambda: 1}), "cannot be pickled")
    raises(AttributeError, lambda: taper.save(1, 5), "file-like object")
    raises(RuntimeError, lambda: taper.save(1, "/nowhere/at/all.pt"), "does not exist")
    with tempfile.TemporaryDirectory() as d:
        raises(RuntimeError, lambda: taper.save(1, d), "is a directory")
        path = os.path.join(d, "x.pt")
        taper.save(1, path)
        raises((AttributeError, pickle.PicklingError), lambda: taper.save(lambda: 1, path), "cannot be pickled")
        assert taper.load(path) == 1 and os.listdir(d) == ["x.pt"]
    loop = []
    loop.append(loop)
    r = through(loop)
    assert r[0] is r


def archive(pickled, data=(), **entries):
    out = io.BytesIO()
    w = _archive.Writer(out, "x")
    w.add("data.pkl", pickled)
    for i, d in enumerate(data):
        w.add(f"data/{i}", d)
    for name, text in entries.items():
        w.add(name, text)
    w.close()
    out.seek(0)
    return out


def storage(kind=b"FloatStorage", key=b"0", n=4):
    return b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"\nX" + struct.pack("<I", len(key)) + key + b"X\x03\x00\x00\x00cpuJ" + struct.pack("<i", n) + b"tQ"


def test_hostile_pickles_are_refused():
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n("
    laugh = b"\x80\x02)q\x00" + b"".join(b"(h%ch%ch%ch%ctq%c" % (i, i, i, i, i + 1) for i in range(30))
    for words, data in {
        "posix.system": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.",
        "builtins.eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        "taper.load": b"\x80\x02ctaper\nload\n)R.",
        "torch.load": b"\x80\x02ctorch\nload\n)R.",
        "collections.OrderedDict.fromkeys": b"\x80\x02ccollections\nOrderedDict.fromkeys\n)R.",
        "a str is called": b"\x80\x02X\x01\x00\x00\x00a)R.",
        "a type is called": b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.",
        "a _StorageType is called": b"\x80\x02ctorch.storage\nUntypedStorage\nJ\xff\xff\xff\x7f\x85R.",
        "a bytes is expected, not int": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "opcode b'i'": b"\x80\x02(iposix\nsystem\n.",
        "opcode b'\\x82'": b"\x80\x02\x82\x01.",
        "in the middle of a value": b"\x80\x02X\xff\xff\xff\xffabc.",
        "whole number has": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "protocol 9": b"\x80\x09N.",
        "left over": b"\x80\x02NN.",
        "stack is empty": b"\x80\x02.",
        "no mark": b"\x80\x02t.",
        "before it is made": b"\x80\x02h\x07.",
        "a list is expected": b"\x80\x02}Na.",
        "has no value": b"\x80\x02}(NNNu.",
        "dictionary key": b"\x80\x02}]Ns.",
        "more than 1000 parts": laugh + b"}h\x1eNs.",
        "state is set on a dict": b"\x80\x02}}b.",
        "16 bytes in the archive, but the pickle says 16000": b"\x80\x02" + storage(n=4000) + b".",
        "-1 bytes in the archive": b"\x80\x02" + storage(key=b"9") + b".",
        "-1 bytes in the archive, but": b"\x80\x02" + storage(key=b"../data.pkl") + b".",
        "qint8": b"\x80\x02" + storage(b"QInt8Storage", n=16) + b".",
        "needs 20 bytes of storage": b"\x80\x02" + tensor + storage() + b"K\x01K\x04\x85K\x01\x85\x89NtR.",
        "cannot have this size": b"\x80\x02" + tensor + storage() + b"J\xff\xff\xff\xffK\x01\x85K\x01\x85\x89NtR.",
        "not of a storage": b"\x80\x02" + tensor + b"]K\x00K\x01\x85K\x01\x85\x89NtR.",
        "neither": b"\x80\x02" + tensor + storage(b"BoolStorage", n=16) + b"K\x00K\x01\x85K\x01\x85\x89NtR.",
        "is not described": b"\x80\x02]Q.",
        "\\x1b[2J": b"\x80\x02cos\n\x1b[2J\n.",
    }.items():
        if words == "neither":
            words = "bytes other than 0 and 1"
        raises(pickle.UnpicklingError, lambda: taper.load(archive(data, [struct.pack("<4f", 1, 2, 3, 4)])), words)
    raises(pickle.UnpicklingError, lambda: taper.load(io.BytesIO(b"\x80\x04abc")), "")
    raises(pickle.UnpicklingError, lambda: taper.load(io.BytesIO(pickle.dumps({"a": 1}))), "not one that torch.save wrote")
    raises(pickle.UnpicklingError, lambda: taper.load(io.BytesIO(b"hello world")), "neither a checkpoint nor a safetensors file")
    raises(EOFError, lambda: taper.load(io.BytesIO(b"")), "it is empty")
    raises(RuntimeError, lambda: taper.load(archive(b"\x80\x02N.", **{"constants.pkl": b"x"})), "TorchScript")
    raises(RuntimeError, lambda: taper.load(archive(b"\x80\x02N.", byteorder=b"middle")), "byte order")
    raises(TypeError, lambda: taper.load(io.StringIO("a")), "binary mode")
    raises(FileNotFoundError, lambda: taper.load("/nowhere.pt"), "No such file")


def test_big_endian_files():
    data = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage() + b"K\x00K\x04\x85K\x01\x85\x89NtR."
    assert taper.load(archive(data, [struct.pack(">4f", 1, 2, 3, 4)], byteorder=b"big")).tolist() == [1, 2, 3, 4]


def test_compressed_entries_and_bombs():
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x/data.pkl", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage(n=4000) + b"K\x00K\x04\x85K\x01\x85\x89NtR.")
        z.writestr("x/data/0", bytes(16000))
    assert taper.load(io.BytesIO(b.getvalue())).tolist() == [0] * 4
    lie = bytearray(b.getvalue())
    at = lie.index(b"x/data/0", lie.index(b"PK\x01\x02")) - 46
    lie[at + 24:at + 28] = struct.pack("<I", 1 << 31)  # its size, says the directory
    raises(RuntimeError, lambda: taper.load(io.BytesIO(bytes(lie))), "claims too many bytes")
    out = bytearray(archive(b"\x80\x02N.", [bytes(1000), bytes(1000)]).getvalue())
    at = out.index(b"x/data/1", out.index(b"PK\x01\x02")) - 46
    out[at + 42:at + 46] = struct.pack("<I", out.index(b"x/data/0") - 30 + 64)
    raises(RuntimeError, lambda: taper.load(io.BytesIO(bytes(out))), "overlaps")


def mutated(rnd, data):
    c = bytearray(data)
    for _ in range(rnd.randint(1, 6)):
        i, what = rnd.randrange(len(c) or 1), rnd.randrange(4)
        if what == 0 and c:
            c[i] ^= 1 << rnd.randrange(8)
        elif what == 1 and c:
            c[i] = rnd.choice(b"(0125JKMNQRTUVXabcehjlqrstu}])\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x93\x94\x95")
        elif what == 2:
            del c[i:i + rnd.randint(1, 5)]
        elif c:
            j = rnd.randrange(len(c))
            c[i:i] = c[j:j + rnd.randint(1, 20)]
    return bytes(c)


def test_damaged_files_are_refused_or_read():
    rnd, seen = random.Random(5), Counter()

    def attempt(b):
        try:
            repr(taper.load(io.BytesIO(b), map_location="cpu"))
            seen["read"] += 1
        except REFUSALS as e:
            assert "taper.load: cannot read this file" in str(e), e
            seen[type(e).__name__] += 1
    for path in FILES:
        with open(path, "rb") as f:
            data = f.read()
        for n in range(0, len(data), len(data) // 40 + 1):
            attempt(data[:n])
        for _ in range(40):
            c = bytearray(data)
            for _ in range(rnd.randint(1, 4)):
                c[rnd.randrange(len(c))] ^= 1 << rnd.randrange(8)
            attempt(bytes(c))
        if path.endswith(".old.pt"):
            for _ in range(60):
                attempt(mutated(rnd, data))
            continue
        with zipfile.ZipFile(path) as z:  # with checksums that fit, so that the pickle is reached
            parts = {n.split("/", 1)[1]: z.read(n) for n in z.namelist()}
        for _ in range(120):
            out = io.BytesIO()
            w = _archive.Writer(out, "x")
            for n, d in parts.items():
                w.add(n, mutated(rnd, d) if n == "data.pkl" else d)
            w.close()
            attempt(out.getvalue())
    assert seen["UnpicklingError"] > 1000 and seen["RuntimeError"] > 100 and seen["read"] > 50, seen
    assert taper.memory_stats()["peak"] < 1 << 24


def test_old_state_dicts_without_versions():
    m = nn.BatchNorm1d(2)
    m.num_batches_tracked.fill_(5)
    state = m.state_dict()
    assert state._metadata == {"": {"version": 2}}
    del state["num_batches_tracked"]
    raises(RuntimeError, lambda: m.load_state_dict(state), "num_batches_tracked")
    state._metadata[""]["version"] = 1  # of PyTorch 0.4: it did not count
    m.load_state_dict(state)
    assert m.num_batches_tracked == 0
