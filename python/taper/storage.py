"""Storages: the bytes behind tensors."""
from . import _C
from ._C import UntypedStorage  # noqa: F401


class TypedStorage:
    """Storage with an element type: what files written by PyTorch hold where a program saved x.storage()."""

    def __init__(self, *, wrap_storage, dtype):
        if wrap_storage.nbytes() % dtype.itemsize:
            raise ValueError(f"{wrap_storage.nbytes()} bytes are no whole number of elements of {dtype}")
        self._untyped_storage, self.dtype = wrap_storage, dtype

    def untyped(self):
        return self._untyped_storage

    @property
    def device(self):
        return self._untyped_storage.device

    def __len__(self):
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    size = __len__

    def nbytes(self):
        return self._untyped_storage.nbytes()

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self._untyped_storage.data_ptr()

    def _tensor(self):
        return _C._tensor_on(self._untyped_storage, self.dtype, 0, (len(self),), (1,))

    def tolist(self):
        return self._tensor().tolist()

    def __getitem__(self, i):
        return self._tensor()[i].item() if isinstance(i, int) else TypedStorage(wrap_storage=self._tensor()[i].clone().untyped_storage(), dtype=self.dtype)

    def __iter__(self):
        return iter(self.tolist())

    def __repr__(self):
        return f"[{_C.Tensor.__module__}.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"


# The names that files use for storages of each type.
NAMED = dict(FloatStorage=_C.float32, DoubleStorage=_C.float64, HalfStorage=_C.float16, BFloat16Storage=_C.bfloat16, LongStorage=_C.int64,
             IntStorage=_C.int32, ShortStorage=_C.int16, CharStorage=_C.int8, ByteStorage=_C.uint8, BoolStorage=_C.bool, ComplexFloatStorage=_C.complex64, ComplexDoubleStorage=_C.complex128)
# Those whose type no tensor here has.
ABSENT = dict(QInt8Storage=_C.qint8, QUInt8Storage=_C.quint8,
              QInt32Storage=_C.qint32, QUInt4x2Storage=_C.quint4x2, QUInt2x4Storage=_C.quint2x4)


class _Typed(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, TypedStorage) and obj.dtype is cls.dtype

    def __call__(cls, source=0):
        t = _C.tensor([] if source == 0 else list(source), dtype=cls.dtype) if not isinstance(source, int) or source == 0 else \
            _C._op_functions[""]["empty"]((source,), dtype=cls.dtype)
        return TypedStorage(wrap_storage=t.untyped_storage(), dtype=cls.dtype)


def _typed(name, dtype):
    return _Typed(name, (), {"dtype": dtype, "__module__": __name__, "__doc__": f"{name}(size or sequence): storage of elements of {dtype}."})


(FloatStorage, DoubleStorage, HalfStorage, BFloat16Storage, LongStorage, IntStorage, ShortStorage, CharStorage, ByteStorage, BoolStorage,
 ComplexFloatStorage, ComplexDoubleStorage) = (_typed(n, d) for n, d in NAMED.items())
