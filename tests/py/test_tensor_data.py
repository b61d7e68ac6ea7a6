"""taper.tensor, the constructors, printing, conversions, shared memory."""
import taper
from taper import tensor


def raises(cls, fn, text):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_inference_of_types():
    assert tensor(1).dtype is taper.int64 and tensor(1.5).dtype is taper.float32 and tensor(True).dtype is taper.bool
    assert tensor([True, 2]).dtype is taper.int64 and tensor([True, 2, 2.5]).dtype is taper.float32
    assert tensor([]).dtype is taper.float32 and tensor([[], []]).shape == (2, 0)
    assert tensor([tensor(1), tensor(2.5)]).tolist() == [1.0, 2.5]
    assert tensor(range(3)).tolist() == [0, 1, 2] and tensor(((1, 2), (3, 4))).shape == (2, 2)
    assert tensor([1, 2], dtype=float).dtype is taper.float64


def test_bad_data():
    raises(ValueError, lambda: tensor([[1, 2], [3, 4, 5]]), "expected sequence of length 2 at dim 1 (got 3)")
    raises(TypeError, lambda: tensor([[1, 2], 3]), "not a sequence")
    raises(TypeError, lambda: tensor("abc"), "new(): invalid data type 'str'")
    raises(ValueError, lambda: tensor(["abc"]), "too many dimensions 'str'")
    raises(RuntimeError, lambda: tensor(None), "Could not infer dtype of NoneType")
    raises(RuntimeError, lambda: tensor({1: 2}), "Could not infer dtype of dict")
    raises(ValueError, lambda: tensor([2**63]), "Overflow when unpacking long long")
    raises(RuntimeError, lambda: tensor(300, dtype=taper.uint8), "value cannot be converted to type uint8 without overflow")
    raises(RuntimeError, lambda: tensor(float("nan"), dtype=taper.int32), "without overflow")
    raises(TypeError, lambda: tensor(), 'tensor() missing 1 required positional arguments: "data"')
    raises(TypeError, lambda: tensor(1, 2), "tensor() takes 1 positional argument but 2 were given")
    raises(TypeError, lambda: tensor(1, dtype="x"), "tensor(): argument 'dtype' must be taper.dtype, not str")
    raises(RuntimeError, lambda: tensor(1, device="xyz"), "device type at start of device string: xyz")
    loop = []
    loop.append(loop)
    raises(ValueError, lambda: tensor(loop), "too many dimensions 'list'")


def test_constructors():
    assert taper.Tensor(2, 3).shape == (2, 3) and taper.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert taper.Tensor().shape == (0,) and taper.Tensor(taper.Size([4])).shape == (4,)
    raises(TypeError, lambda: taper.Tensor(2.5), "new(): data must be a sequence (got float)")
    raises(RuntimeError, lambda: taper.Tensor(2, -3), "negative dimension -3")

    class Mine(taper.Tensor):
        pass

    m = Mine([1, 2])
    assert type(m) is Mine and m.tolist() == [1.0, 2.0]
    s = taper.Tensor._make_subclass(Mine, m)
    s.fill_(5)
    assert m.tolist() == [5.0, 5.0]


PRINTED = {
    "tensor([1.5, 2])": "tensor([1.5000, 2.0000])",
    "tensor([1., 2.])": "tensor([1., 2.])",
    "tensor([1e10, 1.])": "tensor([1.0000e+10, 1.0000e+00])",
    "tensor([1e-5, 1.])": "tensor([1.0000e-05, 1.0000e+00])",
    "tensor([float('nan'), float('inf'), 1.5, -float('inf')])": "tensor([   nan,    inf, 1.5000,   -inf])",
    "tensor([True, False])": "tensor([ True, False])",
    "tensor([[1, 2], [3, 4]])": "tensor([[1, 2],\n        [3, 4]])",
    "tensor([1, 2], dtype=taper.int8)": "tensor([1, 2], dtype=taper.int8)",
    "tensor([[]])": "tensor([], size=(1, 0))",
    "tensor([], dtype=taper.int64)": "tensor([], dtype=taper.int64)",
    "tensor(3)": "tensor(3)",
    "tensor(list(range(2000)))": "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])",
    "tensor([1], device='meta')": "tensor(..., device='meta', size=(1,), dtype=taper.int64)",
    "tensor([[[1.]], [[2.]]])": "tensor([[[1.]],\n\n        [[2.]]])",
    "tensor([x / 7 for x in range(11)], dtype=taper.float64)":
        "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n"
        "        1.2857, 1.4286], dtype=taper.float64)",
}


def test_printing():
    for expr, want in PRINTED.items():
        assert repr(eval(expr)) == want, repr(eval(expr))
    assert f"{tensor(3.14159):.2f}" == "3.14" and str(tensor([1])) == "tensor([1])"
    raises(TypeError, lambda: f"{tensor([1.5]):.2f}", "unsupported format string passed to Tensor.__format__")


def test_conversions():
    x = tensor([1.7, -2.0])
    assert x.to(taper.int32).tolist() == [1, -2] and x.long().dtype is taper.int64 and x.bool().tolist() == [True, True]
    assert x.to("cpu") is x and x.to(taper.float32) is x and x.to(x, copy=True) is not x
    assert x.to(dtype=taper.float64, device="cpu").type() == "taper.DoubleTensor"
    assert x.type("taper.LongTensor").dtype is taper.int64 and x.type_as(tensor(1)).dtype is taper.int64
    raises(TypeError, lambda: x.to(taper.float64, taper.device("cpu")), "to() received an invalid combination of arguments")
    if not taper.cuda.is_available():
        raises(RuntimeError, lambda: x.cuda(), "CUDA is not available")
        raises(RuntimeError, lambda: x.to("cuda:0"), "CUDA is not available")
    raises(NotImplementedError, lambda: x.to("meta").cpu(), "Cannot copy out of meta tensor; no data!")
    raises(ValueError, lambda: float(x), "only one element tensors can be converted to Python scalars")
    assert complex(tensor(2.5)) == 2.5 and "%d" % tensor(3) == "3" and [5, 6, 7][tensor(1)] == 6


def test_buffer_protocol_and_dlpack_share_memory():
    x = tensor([[1, 2], [3, 4]], dtype=taper.int16)
    m = memoryview(x.T)
    assert m.tolist() == [[1, 3], [2, 4]] and m.format == "h" and not m.readonly
    m[0, 1] = 9
    assert x.tolist() == [[1, 2], [9, 4]]
    y = taper.from_dlpack(x.T)
    y.fill_(5)
    assert x.tolist() == [[5, 5], [5, 5]] and y.stride() == (1, 2)
    for dt in (taper.float64, taper.float32, taper.float16, taper.bfloat16, taper.int64, taper.int32, taper.int8,
               taper.uint8, taper.bool):
        z = tensor([0, 1, 1]).to(dt)
        assert taper.from_dlpack(z).dtype is dt and taper.from_dlpack(z).tolist() == z.tolist()
        assert taper.from_dlpack(taper.to_dlpack(z)).data_ptr() == z.data_ptr()
    cap = x.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(cap)
    taper.from_dlpack(cap)
    raises(ValueError, lambda: taper.from_dlpack(cap), "consumed only once")
    raises(TypeError, lambda: taper.from_dlpack(3), "an object with __dlpack__ was expected, not int")
    raises(BufferError, lambda: memoryview(tensor([1.5]).bfloat16()), "no buffer format")


def test_frombuffer():
    b = bytearray(b"12345678")
    x = taper.frombuffer(b, dtype=taper.int8, count=2, offset=4)
    assert x.tolist() == [53, 54]
    x.fill_(48)
    assert b == b"12340078"
    raises(ValueError, lambda: taper.frombuffer(bytearray(9), dtype=taper.int32), "must be a multiple of element size (4)")
    raises(ValueError, lambda: taper.frombuffer(5, dtype=taper.int32), "does not implement Python buffer protocol")


def test_properties():
    x = taper.ones(2, 3)
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2) and x.is_cpu and not x.is_meta
    assert x.get_device() == -1 and not x.is_pinned() and x.share_memory_() is x and x.dim_order() == (0, 1)
    d = x.data
    d.fill_(3)
    assert x[0, 0].item() == 3 and x.is_set_to(x[:])
    x.data = tensor([1, 2])
    assert x.shape == (2,) and x.dtype is taper.int64


def test_default_device_and_dtype():
    taper.set_default_device("meta")
    try:
        assert taper.zeros(2).is_meta and tensor([1]).is_meta
    finally:
        taper.set_default_device("cpu")
    taper.set_default_dtype(taper.float64)
    try:
        assert tensor(1.5).dtype is taper.float64 and repr(tensor(1.5)) == "tensor(1.5000)"
    finally:
        taper.set_default_dtype(taper.float32)
    raises(TypeError, lambda: taper.set_default_dtype(taper.int32), "only floating-point types")


def test_failed_allocations_are_errors():
    for n in range(1, 4):
        taper._C._fail_allocation(n)
        try:
            x = tensor([1.0, 2.0]).to(taper.float64)[[0]]
        except RuntimeError as e:
            assert "not enough memory" in str(e)
        finally:
            taper._C._fail_allocation(0)
