"""The types of TorchScript, as programs name them in annotations: there is no TorchScript, and they say what they stand for."""


class _Type:
    """A type without parts; there is one of each."""
    _text, _one = "", None

    @classmethod
    def get(cls):
        cls._one = cls._one or cls()
        return cls._one

    def __str__(self):
        return self._text

    def __repr__(self):
        return str(self)

    @property
    def annotation_str(self):
        return str(self)

    def kind(self):
        return type(self).__name__

    def __eq__(self, other):
        return isinstance(other, _Type) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


def _plain(name, text):
    return type(name, (_Type,), {"_text": text, "__module__": __name__, "__doc__": f"The type {text}.\n\n>>> taper.{name}.get()\n{text}\n"})


TensorType, IntType, FloatType, BoolType, StringType, NoneType, NumberType, AnyType, ComplexType, DeviceObjType = (
    _plain(n, t) for n, t in (("TensorType", "Tensor"), ("IntType", "int"), ("FloatType", "float"), ("BoolType", "bool"), ("StringType", "str"),
                              ("NoneType", "NoneType"), ("NumberType", "number"), ("AnyType", "Any"), ("ComplexType", "complex"),
                              ("DeviceObjType", "Device")))


class _OfOne(_Type):
    def __init__(self, element):
        self._element = element

    def getElementType(self):
        return self._element

    def __str__(self):
        return f"{self._text}[{self._element}]"


class ListType(_OfOne):
    """A list of elements of one type.

    >>> taper.ListType(taper.IntType.get())
    List[int]
    """
    _text = "List"


class OptionalType(_OfOne):
    """A type, or None.

    >>> taper.OptionalType(taper.TensorType.get())
    Optional[Tensor]
    """
    _text = "Optional"


class _OfMany(_Type):
    def __init__(self, elements):
        self._elements = list(elements)

    def elements(self):
        return self._elements

    def __str__(self):
        return f"{self._text}[{', '.join(map(str, self._elements))}]"


class TupleType(_OfMany):
    """A tuple, type by type.

    >>> taper.TupleType([taper.IntType.get(), taper.TensorType.get()])
    Tuple[int, Tensor]
    """
    _text = "Tuple"


class UnionType(_OfMany):
    """One of several types.

    >>> taper.UnionType([taper.IntType.get(), taper.StringType.get()])
    Union[int, str]
    """
    _text = "Union"


class DictType(_Type):
    """A dictionary.

    >>> taper.DictType(taper.StringType.get(), taper.TensorType.get())
    Dict[str, Tensor]
    """

    def __init__(self, key, value):
        self._key, self._value = key, value

    def getKeyType(self):
        return self._key

    def getValueType(self):
        return self._value

    def __str__(self):
        return f"Dict[{self._key}, {self._value}]"
