"""Saved failures are read as hostile: damage is refused with a clear message, and nothing in them is executed."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import taper
from taper import _dynamo as dynamo

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
FILES = ("failure.json", "graph.py", "inputs.safetensors", "state.json")


def make(d):
    found = []

    def keep(gm, inputs):
        found.append((gm, list(inputs)))
        return gm.forward
    dynamo.reset()
    x = taper.arange(12).float()
    taper.compile(lambda a, b: (a.relu() + 1) @ b, backend=keep)(x.view(3, 4), x.view(4, 3))
    gm, args = found[0]
    r = taper._C._repro_new(gm._capsule, args, "inductor", False, True, False, None, 0, 0)
    taper._C._repro_save(r, {"kind": "accuracy", "message": "result 0"}, d)


def refused(d):
    """The message, or None when it was read."""
    try:
        taper._C._repro_load(d)
    except Exception as e:
        assert str(e), "an error without a message"
        return str(e)
    return None


class Bundle:
    def __enter__(self):
        self.top = tempfile.mkdtemp()
        self.dir = os.path.join(self.top, "bundle")
        make(self.dir)
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.top)

    def read(self, name):
        with open(os.path.join(self.dir, name), "rb") as f:
            return f.read()

    def write(self, name, data):
        with open(os.path.join(self.dir, name), "wb") as f:
            f.write(data)

    def edit(self, change):
        j = json.loads(self.read("failure.json"))
        change(j)
        self.write("failure.json", json.dumps(j).encode())
        return refused(self.dir)


def test_damage_is_found():
    rng = random.Random(1)
    with Bundle() as b:
        assert refused(b.dir) is None
        whole = {n: b.read(n) for n in FILES}
        for name in FILES[:3]:
            for cut in [0, 1, 8, len(whole[name]) // 2, len(whole[name]) - 2]:
                b.write(name, whole[name][:cut])
                assert refused(b.dir) is not None, (name, cut)
            for _ in range(150):
                data = bytearray(whole[name])
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                b.write(name, bytes(data))
                why = refused(b.dir)
                assert name == "failure.json" or why is not None, name  # digests cover the other two
            b.write(name, whole[name])
        b.write("state.json", b"\xff" * 100)
        assert refused(b.dir) is None  # facts about the other machine are not needed
        for name in FILES[:3]:
            os.remove(os.path.join(b.dir, name))
            assert "No such file" in refused(b.dir)
            b.write(name, whole[name])
    assert "No such file" in refused("/nonexistent")


def test_lies_are_refused():
    def first(key, value):
        def change(j):
            j["inputs"][0][key] = value
        return change
    lies = [(first("size", [3, 1 << 61]), "bytes|overflow|big|more"), (first("stride", [1 << 40, 1]), "bytes|more"), (first("stride", [-1, 1]), "make no sense"),
            (first("offset", -1), "make no sense"), (first("offset", 1 << 50), "bytes|more"), (first("shares", 99), "out of range"),
            (first("shares", -1), "out of range"), (first("dtype", "complex"), "element type"), (first("dtype", "float64"), "bytes|expected"),
            (first("storage", "../../etc/passwd"), "no storage"), (first("storage", "0" * 40), "no storage"), (first("size", "abc"), "make no sense"),
            (first("size", [1] * 200), "make no sense"), (lambda j: j.update(version=1), "version"), (lambda j: j.update(inputs=[]), "inputs"),
            (lambda j: j.pop("backend"), "backend"), (lambda j: j.update(graph_sha256="0" * 64), "changed after it was saved"),
            (lambda j: j.update(inject="rm -rf"), "TAPER_INJECT")]
    import re
    for change, want in lies:
        with Bundle() as b:
            why = b.edit(change)
            assert why is not None and re.search(want, why), (want, why)


def header(text, data=b""):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw + data


def test_safetensors_tricks():
    for data in (struct.pack("<Q", 1 << 62) + b"{}", struct.pack("<Q", 0xFFFFFFFFFFFFFFFF), header('{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}'),
                 header('{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}', b"123456"),
                 header('{"a": {"dtype": "U8", "shape": [9223372036854775807, 9], "data_offsets": [0, 4]}}', b"1234"),
                 header('{"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}}', b"1234"), header("[" * 100000), b""):
        with Bundle() as b:
            b.write("inputs.safetensors", data)
            assert refused(b.dir) is not None


def test_pipes_and_devices_are_refused():
    """They would be read for ever."""
    with Bundle() as b:
        for name in FILES + ("graph.py.safetensors",):
            for put in (os.mkfifo, lambda p: os.symlink("/dev/zero", p)):
                other, path = os.path.join(b.top, "other"), os.path.join(b.top, "other", name)
                shutil.copytree(b.dir, other)
                if os.path.exists(path):
                    os.remove(path)
                put(path)
                why = refused(other)
                assert why and f"{name}' is not a regular file" in why, (name, why)
                shutil.rmtree(other)


def test_nothing_is_executed():
    """Text from a bundle goes into scripts as data: no line of it becomes code."""
    with Bundle() as b:
        bad = "x\nimport os; os.system('touch %s/owned')\r\nraise SystemExit\n" % b.top
        state = {"taper": bad, "python": bad, "system": bad, "cpu": bad, "instructions": bad, "default_dtype": bad, "environment": {"TAPER_" + bad: bad},
                 "config": {bad: 1, "verbose": bad, "debug": {"a": 1}}, "random": {"seed": bad, "offset": bad}}
        b.write("state.json", json.dumps(state).encode())
        why = b.edit(lambda j: j.update(message=bad, text=bad))
        assert why is None, why
        r = taper._C._repro_load(b.dir)
        sig = {"kind": "exception", "message": bad}
        text = taper._C._repro_script(r, sig, "run", bad, bad, bad, bad, False)
        compile(text, "script", "exec")
        import ast
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute) and n.attr == "system"]
        assert not calls and not any(isinstance(n, ast.Raise) for n in ast.walk(ast.parse(text)))
        c = taper._C._repro_c(r, {"kind": "exception", "message": "*/ int evil; /* " + bad})
        assert c is None or "*/ int evil" not in c
        assert not os.path.exists(os.path.join(b.top, "owned"))


def test_command_line_says_what_is_wrong():
    with Bundle() as b:
        b.write("inputs.safetensors", b.read("inputs.safetensors")[:-3])
        for cmd in ("repro", "minify"):
            p = subprocess.run([TAPER, cmd, b.dir], capture_output=True, text=True, timeout=60)
            assert p.returncode in (1, 2) and p.stderr.startswith("taper: ") and "Traceback" not in p.stderr, p
        p = subprocess.run([TAPER, "minify", b.top], capture_output=True, text=True, timeout=60)
        assert p.returncode == 2 and "failure.json" in p.stderr
        p = subprocess.run([TAPER, "minify", "--timeout", "soon", b.dir], capture_output=True, text=True, timeout=60)
        assert p.returncode == 2 and "--timeout" in p.stderr
        assert sys.executable
