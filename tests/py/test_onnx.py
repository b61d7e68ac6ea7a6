"""taper.onnx without any package: what export() writes load() reads, and damaged or hostile files are refused in words."""
import ast
import io
import os
import random
import tempfile

import taper
import taper.onnx
from onnx_models import flat, models
from taper.onnx import _load, _proto, _tensors, _wire


def message(op, inputs, outputs, attrs=(), **fields):
    return _wire.Message(_proto.NODE, input=list(inputs), output=list(outputs), op_type=op,
                         attribute=[_proto.attribute(k, v) for k, v in dict(attrs).items()], **fields)


def model(nodes, inputs=("x",), outputs=("y",), opset=18, initializer=(), functions=()):
    value = lambda n: _wire.Message(_proto.VALUE, name=n)  # noqa: E731
    graph = _wire.Message(_proto.GRAPH, name="g", node=nodes, input=[value(n) for n in inputs], output=[value(n) for n in outputs],
                          initializer=list(initializer))
    return _wire.write(_wire.Message(_proto.MODEL, ir_version=8, graph=graph, functions=list(functions),
                                     opset_import=[_wire.Message(_proto.OPSET, domain="", version=opset)]))


def refused(data, *words):
    try:
        taper.onnx.load(data)
    except taper.onnx.OnnxError as e:
        assert all(w in str(e) for w in words), str(e)
        return
    raise AssertionError(f"loaded, not refused with {words}")


def close(a, b, name):
    assert a.dtype == b.dtype and a.shape == b.shape, (name, a.dtype, b.dtype, a.shape, b.shape)
    assert taper.allclose(a.double(), b.double(), atol=1e-5, rtol=1e-4, equal_nan=True), (name, a, b)


def test_what_is_written_is_read_back():
    for name, (m, args, first) in models().items():
        m.eval()
        with taper.no_grad():
            want = flat(m(*args))
        for opset in (first, 17, 21):
            back = taper.onnx.load(taper.onnx.export(m, args, opset_version=opset).model_proto)
            with taper.no_grad():
                got = flat(back(*args))
            assert len(got) == len(want), name
            for i, (a, b) in enumerate(zip(got, want)):
                close(a, b, f"{name} {opset} result {i}")


def test_a_loaded_model_compiles_as_one_graph_and_trains():
    m, args, _ = models()["convolutions"]
    back = taper.onnx.load(taper.onnx.export(m, args).model_proto)
    m.eval()
    close(taper.compile(back, fullgraph=True)(*args), m(*args), "compiled")
    names = dict(back.named_parameters())
    assert "body.0.weight" in names and "body.9.bias" in names and "body.1.running_mean" in dict(back.named_buffers()), sorted(names)
    assert taper.equal(names["body.0.weight"], m.body[0].weight)
    loss = taper.compile(back)(*args).square().mean()
    loss.backward()
    assert all(p.grad is not None for p in back.parameters())
    assert "_ops_nn.Conv(" in back.code and "body" in back.code and back.input_names == ["input_0"], back.code


def test_sizes_that_may_differ():
    m, args, _ = models()["attention"]
    data = taper.onnx.export(m, args, input_names=["words"], output_names=["scores"], dynamic_axes={"words": {0: "batch", 1: "time"}}).model_proto
    back = taper.onnx.load(data)
    proto = _load.parse(data)
    assert [d.dim_param for d in proto.graph.input[0].type.tensor_type.shape.dim] == ["batch", "time"]
    assert back.input_names == ["words"] and back.output_names == ["scores"]
    m.eval()
    for shape in ((2, 5), (3, 4), (1, 7)):
        x = taper.randint(0, 11, shape)
        close(back(x), m(x), shape)


def test_paths_open_files_and_training_mode():
    m = taper.nn.Sequential(taper.nn.Linear(3, 2), taper.nn.Dropout()).train()
    x = taper.randn(4, 3)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.onnx")
        taper.onnx.export(m, x, path, verbose=False, do_constant_folding=True)
        assert m.training
        file = io.BytesIO()
        taper.onnx.export(m, (x,), file)
        assert open(path, "rb").read() == file.getvalue()
        close(taper.onnx.load(path)(x), m[0](x), "path")
        with open(path, "rb") as f:
            close(taper.onnx.load(f)(x), m[0](x), "file")


def test_what_cannot_be_exported_is_said_with_the_line():
    class Writes(taper.nn.Module):
        def forward(self, x):
            y = x + 1
            y[0] = 2
            return y
    for m, words in ((Writes(), ("writes into a view", "y[0] = 2")), (lambda x: taper.linalg.svd(x)[0], ("svd", "no form in ONNX"))):
        try:
            taper.onnx.export(m, (taper.ones(3, 3),))
        except taper.onnx.OnnxExporterError as e:
            assert all(w in str(e) for w in words), str(e)
        else:
            raise AssertionError(words)
    for call, words in ((lambda: taper.onnx.export(Writes(), (), opset_version=9), "13 to 21"), (lambda: taper.onnx.export(Writes(), (), opsetversion=9), "no option 'opsetversion'")):
        try:
            call()
        except (ValueError, TypeError) as e:
            assert words in str(e), e
        else:
            raise AssertionError(words)


def test_branches_loops_and_functions():
    value = lambda n: _wire.Message(_proto.VALUE, name=n)  # noqa: E731

    def graph(nodes, inputs, outputs, initializer=()):
        return _wire.Message(_proto.GRAPH, name="b", node=nodes, input=[value(n) for n in inputs], output=[value(n) for n in outputs],
                             initializer=list(initializer))
    then, other = graph([message("Neg", ["x"], ["t"])], [], ["t"]), graph([message("Exp", ["x"], ["e"])], [], ["e"])
    m = taper.onnx.load(model([message("ReduceSum", ["x"], ["s"], {"keepdims": 0}), message("Greater", ["s", "zero"], ["c"]),
                               message("If", ["c"], ["y"], {"then_branch": then, "else_branch": other})],
                              initializer=[_tensors.store(taper.tensor(0.0), "zero")]))
    x = taper.tensor([1.0, 2.0])
    close(m(x), -x, "then")
    close(m(-x), (-x).exp(), "else")
    body = graph([message("Add", ["v", "v"], ["w"]), message("Identity", ["c"], ["d"])], ["i", "c", "v"], ["d", "w", "w"])
    m = taper.onnx.load(model([message("Loop", ["n", "", "x"], ["y", "z"], {"body": body})], outputs=("y", "z"),
                              initializer=[_tensors.store(taper.tensor(3), "n")]))
    y, z = m(x)
    close(y, x * 8, "loop")
    close(z, taper.stack([x * 2, x * 4, x * 8]), "stacked")
    twice = _wire.Message(_proto.FUNCTION, name="Twice", domain="own", input=["a"], output=["b"], node=[message("Add", ["a", "a"], ["b"])])
    m = taper.onnx.load(model([message("Twice", ["x"], ["y"], domain="own")], functions=[twice]))
    close(m(x), x * 2, "function")


def test_hostile_files_are_refused():
    big = _wire.Message(_proto.TENSOR, dims=[2 ** 40, 2 ** 40], data_type=1, raw_data=b"1234", name="w")
    listed = _wire.Message(_proto.TENSOR, dims=[5], data_type=1, float_data=[1.0], name="w")
    negative = _wire.Message(_proto.TENSOR, dims=[-1], data_type=1, raw_data=b"", name="w")
    words = _wire.Message(_proto.TENSOR, dims=[1], data_type=8, string_data=[b"s"], name="w")
    entry = lambda k, v: _wire.Message(_proto.ENTRY, key=k, value=v)  # noqa: E731
    node = [message("Add", ["x", "w"], ["y"])]
    for tensor, text in ((big, "bytes and has 4"), (listed, "lists 1"), (negative, "impossible shape"), (words, "type string")):
        refused(model(node, initializer=[tensor]), "'w'", text)
    with tempfile.TemporaryDirectory() as d:
        for place, text in (("../secret", "not in the model's folder"), ("/etc/passwd", "not in the model's folder"), ("short", "behind the end"), ("none", "cannot be read")):
            outside = _wire.Message(_proto.TENSOR, dims=[4], data_type=1, name="w", data_location=1,
                                    external_data=[entry("location", place), entry("offset", "0" if place != "short" else "8"), entry("length", "16")])
            path = os.path.join(d, "m.onnx")
            for name, data in ((path, model(node, initializer=[outside])), (os.path.join(d, "short"), bytes(16))):
                with open(name, "wb") as f:
                    f.write(data)
            refused(path, text)
        with open(os.path.join(d, "short"), "wb") as f:
            f.write(bytes(8) + bytes(_tensors._bytes(taper.arange(4.0))))
        close(taper.onnx.load(beside(path))(taper.ones(4)), taper.arange(4.0) + 1, "external")
    refused(b"", "no graph")
    refused(b"\xff" * 30, "64 bits")
    refused(b"\x3a\xff\xff\xff\xff\x0f", "are left")
    refused(b"PK\x03\x04 some other file", "damaged")
    refused(model([message("Nonsense", ["x"], ["y"])]), "operator Nonsense", "supported()")
    refused(model([message("Relu", ["x"], ["y"], {"nonsense": 1})]), "attribute 'nonsense'")
    refused(model([message("Relu", ["nowhere"], ["y"])]), "'nowhere'")
    refused(model([message("Relu", ["x"], ["y"])], opset=99), "version 99")
    deep = b""
    for _ in range(200):  # attributes with graphs with nodes with attributes ...
        inner = b"\x32" + _wire._number(len(deep)) + deep
        inner = b"\x2a" + _wire._number(len(inner)) + inner
        deep = b"\x0a" + _wire._number(len(inner)) + inner
    refused(b"\x08\x08\x3a" + _wire._number(len(deep)) + deep, "nested deeper")
    loop = _wire.Message(_proto.FUNCTION, name="F", domain="d", input=["a"], output=["b"], node=[message("F", ["a"], ["b"], domain="d")])
    refused(model([message("F", ["x"], ["y"], domain="d")], functions=[loop]), "nested deeper")


def beside(path):
    """A model whose weight lies in the file `short`, from byte 8 on."""
    entry = lambda k, v: _wire.Message(_proto.ENTRY, key=k, value=v)  # noqa: E731
    outside = _wire.Message(_proto.TENSOR, dims=[4], data_type=1, name="w", data_location=1,
                            external_data=[entry("location", "short"), entry("offset", "8"), entry("length", "16")])
    with open(path, "wb") as f:
        f.write(model([message("Add", ["x", "w"], ["y"])], initializer=[outside]))
    return path


def test_names_of_a_file_never_become_code():
    nasty = "a);__import__('os').system('false')\n#"
    m = taper.onnx.load(model([message("Relu", [nasty], ["exit()"]), message("Neg", ["exit()"], ["class"], {}), message("Identity", ["class"], ["1 2"])],
                              inputs=(nasty,), outputs=("1 2",)))
    calls = [n.func for n in ast.walk(ast.parse(m.code)) if isinstance(n, ast.Call)]
    assert calls and all(isinstance(c, ast.Attribute) and c.value.id in ("_ops", "_known") for c in calls), m.code
    close(m(taper.tensor([-1.0, 2.0])), taper.tensor([0.0, -2.0]), "names")


def test_damaged_bytes_never_do_more_than_raise():
    m, args, _ = models()["convolutions"]
    data = taper.onnx.export(taper.nn.Sequential(taper.nn.Linear(3, 4), taper.nn.ReLU()), (taper.ones(2, 3),)).model_proto
    r = random.Random(5)
    for _ in range(400):
        bad = bytearray(data)
        for _ in range(r.randint(1, 4)):
            bad[r.randrange(len(bad))] = r.randrange(256)
        if r.random() < 0.3:
            bad = bad[:r.randrange(len(bad))]
        try:
            taper.onnx.load(bytes(bad))
        except taper.onnx.OnnxError:
            pass
