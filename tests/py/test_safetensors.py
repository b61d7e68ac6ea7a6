"""safetensors files: round trips, and files that lie."""
import json, os, random, struct, tempfile
import taper
from taper import safetensors as st, tensor


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


TENSORS = {"w": tensor([[1.5, -2.0], [3.0, 4.0]]), "b": tensor([1, 2, 3]), "half": tensor([0.5]).half(),
           "bf": tensor([1.5, 2.5]).bfloat16(), "mask": tensor([True, False]), "none": tensor([]),
           "scalar": tensor(7, dtype=taper.int8), "turned": tensor([[1, 2, 3], [4, 5, 6]]).T, "ü\n\"": tensor([9.0])}


def test_round_trip():
    with tempfile.TemporaryDirectory() as d:
        p = os.path.join(d, "x.safetensors")
        st.save_file(TENSORS, p, metadata={"format": "pt", "note": "é"})
        back = st.load_file(p)
        assert set(back) == set(TENSORS) and st.metadata(p) == {"format": "pt", "note": "é"}
        for k, v in TENSORS.items():
            assert back[k].dtype is v.dtype and back[k].shape == v.shape and back[k].tolist() == v.tolist(), k
        taper.save(TENSORS, p)
        assert taper.load(p)["b"].tolist() == [1, 2, 3]
    assert st.load(st.save(TENSORS))["turned"].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_missing_files_are_named():
    raises(OSError, lambda: st.load_file("/nowhere/x.safetensors"), "No such file")


def pack(header, data=b""):
    h = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(h)) + h + data


def test_files_that_lie():
    f32 = lambda shape, at: {"dtype": "F32", "shape": shape, "data_offsets": at}
    bad = {
        "too few for a header": b"abc",
        "the header claims": struct.pack("<Q", 2**63) + b"{}",
        "is a JSON array": pack([]),
        "expected": pack(b"{"),
        "unsupported type 'F8_E8M0'": pack({"a": {"dtype": "F8_E8M0", "shape": [1], "data_offsets": [0, 1]}}, b"x"),
        "no shape": pack({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234"),
        "no size": pack({"a": f32([-1], [0, 4])}, b"1234"),
        "needs 8 bytes": pack({"a": f32([2], [0, 4])}, b"1234"),
        "are not that many bytes": pack({"a": f32([1], [4, 8])}, b"1234"),
        "overflowed": pack({"a": f32([2**31, 2**31, 2**31], [0, 4])}, b"1234"),
        "where 0 was expected": pack({"a": f32([1], [4, 8])}, b"12345678"),
        "where 4 was expected": pack({"a": f32([1], [0, 4]), "b": f32([1], [0, 4])}, b"1234"),
        "the tensors end at byte 4 of 5": pack({"a": f32([1], [0, 4])}, b"12345"),
        "object of strings": pack({"__metadata__": {"a": 1}}),
    }
    for text, data in bad.items():
        try:
            st.load(data)
        except (ValueError, RuntimeError, SyntaxError) as e:
            assert text in str(e), (text, str(e))
        else:
            raise AssertionError(f"accepted: {text}")


def test_damaged_files_never_crash():
    good, rnd = st.save(TENSORS), random.Random(1)
    for i in range(3000):
        b = bytearray(good)
        for _ in range(rnd.randint(1, 4)):
            k = rnd.randrange(3)
            at = rnd.randrange(len(b))
            if k == 0:
                b[at] = rnd.choice(b'0123456789[]{},":-e' + bytes(range(0, 256, 17)))
            elif k == 1:
                del b[at:at + rnd.randint(1, 8)]
            else:
                b[at:at] = bytes(rnd.choice(b'0123456789,"[]{}') for _ in range(rnd.randint(1, 5)))
            if not b:
                break
        try:
            for v in st.load(bytes(b)).values():
                repr(v)
        except (ValueError, RuntimeError, SyntaxError, TypeError):
            pass


def test_files_without_end_are_refused():
    for load in (st.load_file, taper.load):
        try:
            load("/dev/zero")
        except OSError as e:
            assert "larger than the limit" in str(e)
        else:
            raise AssertionError("it ended")
