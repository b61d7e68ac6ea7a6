"""The messages of ONNX files: field numbers, names and kinds, and the codes of element types and attributes."""
from ._wire import Field, Message


def _many(name, kind):
    return Field(name, kind, True)


ENTRY = {1: Field("key", "text"), 2: Field("value", "text")}
OPSET = {1: Field("domain", "text"), 2: Field("version", "int")}
DIM = {1: Field("dim_value", "int"), 2: Field("dim_param", "text")}
SHAPE = {1: _many("dim", lambda: DIM)}
TENSOR_TYPE = {1: Field("elem_type", "int"), 2: Field("shape", lambda: SHAPE)}
SEQUENCE_TYPE = {1: Field("elem_type", lambda: TYPE)}
TYPE = {1: Field("tensor_type", lambda: TENSOR_TYPE), 4: Field("sequence_type", lambda: SEQUENCE_TYPE),
        9: Field("optional_type", lambda: SEQUENCE_TYPE)}
VALUE = {1: Field("name", "text"), 2: Field("type", lambda: TYPE), 3: Field("doc_string", "text")}
TENSOR = {1: _many("dims", "int"), 2: Field("data_type", "int"), 4: _many("float_data", "float"),
          5: _many("int32_data", "int"), 6: _many("string_data", "bytes"), 7: _many("int64_data", "int"),
          8: Field("name", "text"), 9: Field("raw_data", "bytes"), 10: _many("double_data", "double"),
          11: _many("uint64_data", "int"), 12: Field("doc_string", "text"), 13: _many("external_data", lambda: ENTRY),
          14: Field("data_location", "int")}
ATTRIBUTE = {1: Field("name", "text"), 2: Field("f", "float"), 3: Field("i", "int"), 4: Field("s", "bytes"),
             5: Field("t", lambda: TENSOR), 6: Field("g", lambda: GRAPH), 7: _many("floats", "float"),
             8: _many("ints", "int"), 9: _many("strings", "bytes"), 10: _many("tensors", lambda: TENSOR),
             11: _many("graphs", lambda: GRAPH), 20: Field("type", "int"), 21: Field("ref_attr_name", "text")}
NODE = {1: _many("input", "text"), 2: _many("output", "text"), 3: Field("name", "text"), 4: Field("op_type", "text"),
        5: _many("attribute", lambda: ATTRIBUTE), 6: Field("doc_string", "text"), 7: Field("domain", "text")}
GRAPH = {1: _many("node", lambda: NODE), 2: Field("name", "text"), 5: _many("initializer", lambda: TENSOR),
         10: Field("doc_string", "text"), 11: _many("input", lambda: VALUE), 12: _many("output", lambda: VALUE),
         13: _many("value_info", lambda: VALUE), 15: _many("sparse_initializer", "bytes")}
FUNCTION = {1: Field("name", "text"), 4: _many("input", "text"), 5: _many("output", "text"), 6: _many("attribute", "text"),
            7: _many("node", lambda: NODE), 9: _many("opset_import", lambda: OPSET), 10: Field("domain", "text"),
            11: _many("attribute_proto", lambda: ATTRIBUTE)}
MODEL = {1: Field("ir_version", "int"), 2: Field("producer_name", "text"), 3: Field("producer_version", "text"),
         4: Field("domain", "text"), 5: Field("model_version", "int"), 6: Field("doc_string", "text"),
         7: Field("graph", lambda: GRAPH), 8: _many("opset_import", lambda: OPSET),
         14: _many("metadata_props", lambda: ENTRY), 25: _many("functions", lambda: FUNCTION)}

# codes of element types: name of the dtype, bytes of an element, the list that holds elements which are not raw
TYPES = {1: ("float32", 4, "float_data"), 2: ("uint8", 1, "int32_data"), 3: ("int8", 1, "int32_data"),
         4: ("uint16", 2, "int32_data"), 5: ("int16", 2, "int32_data"), 6: ("int32", 4, "int32_data"),
         7: ("int64", 8, "int64_data"), 9: ("bool", 1, "int32_data"), 10: ("float16", 2, "int32_data"),
         11: ("float64", 8, "double_data"), 12: ("uint32", 4, "uint64_data"), 13: ("uint64", 8, "uint64_data"),
         14: ("complex64", 8, "float_data"), 15: ("complex128", 16, "double_data"), 16: ("bfloat16", 2, "int32_data"),
         17: ("float8_e4m3fn", 1, "int32_data"), 19: ("float8_e5m2", 1, "int32_data")}
OTHER_TYPES = {8: "string", 18: "float8_e4m3fnuz", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1"}
CODES = {name: code for code, (name, _, _) in TYPES.items()}

# codes of attributes: the field that holds them
ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs"}
ATTRIBUTE_CODES = {field: code for code, field in ATTRIBUTES.items()}


def attribute(name, value):
    """An attribute of a node: ints, floats, text, tensors and lists of the first three."""
    many = isinstance(value, (list, tuple))
    first = value[0] if many and value else value
    if isinstance(first, Message):
        field = "t" if first.schema is TENSOR else "g"
    elif isinstance(first, str):
        field = "strings" if many else "s"
        value = [v.encode() for v in value] if many else value.encode()
    elif isinstance(first, float):
        field = "floats" if many else "f"
    else:
        field = "ints" if many else "i"
        value = [int(v) for v in value] if many else int(value)
    return Message(ATTRIBUTE, name=name, type=ATTRIBUTE_CODES[field], **{field: value})
