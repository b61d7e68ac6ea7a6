"""Graphs as the ONNX model zoo has them, built with onnx.helper at opsets 13 to 21: read by Taper, run beside ONNX Runtime."""
import unittest

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not importable")
import taper
import taper.onnx

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL, np.dtype(np.int32): TensorProto.INT32}


class Net:
    """Nodes one after another: net.Conv(x, w, pads=[...]) adds one and gives the name of its result."""

    def __init__(self, opset, seed=0):
        self.opset, self.nodes, self.weights, self.n, self.draw = opset, [], [], 0, np.random.default_rng(seed)

    def name(self):
        self.n += 1
        return f"v{self.n}"

    def w(self, *shape, scale=0.4):
        return self.c((self.draw.standard_normal(shape) * scale).astype(np.float32))

    def c(self, value, dtype=None):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.array(value, dtype or (None if isinstance(value, np.ndarray) else np.int64)), name))
        return name

    def f(self, value):
        return self.c(value, np.float32)

    def add(self, op, inputs, outputs=1, **attrs):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, ["" if i is None else i for i in inputs], names, **attrs))
        return names[0] if outputs == 1 else names

    def __getattr__(self, op):
        return lambda *inputs, outputs=1, **attrs: self.add(op, inputs, outputs, **attrs)

    def mean(self, x, axes, keep=1):  # the axes are an input since opset 18
        return self.ReduceMean(x, self.c(axes), keepdims=keep) if self.opset >= 18 else self.ReduceMean(x, axes=axes, keepdims=keep)

    def model(self, feeds, outputs):
        given = [helper.make_tensor_value_info(k, KINDS[v.dtype], v.shape) for k, v in feeds.items()]
        graph = helper.make_graph(self.nodes, "g", given, [helper.make_empty_tensor_value_info(o) for o in outputs], self.weights)
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        m.ir_version = 8
        return onnx.shape_inference.infer_shapes(m)


def conv(n, x, i, o, k=3, act="Relu", norm=True, **attrs):
    attrs.setdefault("pads", [k // 2] * 4)
    g = attrs.get("group", 1)
    y = n.Conv(x, n.w(o, i // g, k, k), n.w(o), **attrs)
    if norm:
        y = n.BatchNormalization(y, n.w(o), n.w(o), n.w(o), n.c(np.abs(n.draw.standard_normal(o)).astype(np.float32) + 0.5))
    return n.add(act, [y]) if act else y


def layer_norm(n, x, c):
    if n.opset >= 17:
        return n.LayerNormalization(x, n.w(c), n.w(c), axis=-1)
    d = n.Sub(x, n.mean(x, [-1]))
    return n.Add(n.Mul(n.Div(d, n.Sqrt(n.Add(n.mean(n.Pow(d, n.f(2.0)), [-1]), n.f(1e-5)))), n.w(c)), n.w(c))


def heads(n, x, b, t, c, h):
    return n.Transpose(n.Reshape(n.Add(n.MatMul(x, n.w(c, c)), n.w(c)), n.c([b, t, h, c // h])), perm=[0, 2, 1, 3])


def attention(n, x, b, t, c, h, mask=None):
    q, k, v = (heads(n, x, b, t, c, h) for _ in range(3))
    s = n.Mul(n.MatMul(q, n.Transpose(k, perm=[0, 1, 3, 2])), n.f((c // h) ** -0.5))
    if mask is not None:
        s = n.Where(mask, s, n.f(-1e9))
    y = n.Reshape(n.Transpose(n.MatMul(n.Softmax(s, axis=-1), v), perm=[0, 2, 1, 3]), n.c([0, 0, -1]))
    return n.MatMul(y, n.w(c, c))


def gelu(n, x):
    return n.Gelu(x) if n.opset >= 20 else n.Mul(n.Mul(x, n.f(0.5)), n.Add(n.Erf(n.Div(x, n.f(2 ** 0.5))), n.f(1.0)))


def image(n, c=3, s=16):
    return {"x": n.draw.standard_normal((2, c, s, s)).astype(np.float32)}


def mlp(n):
    return {"x": n.draw.standard_normal((4, 8)).astype(np.float32)}, [n.Softmax(n.Gemm(n.Relu(n.Gemm("x", n.w(16, 8), n.w(16), transB=1)), n.w(16, 5), n.w(5), alpha=0.5, beta=2.0), axis=1)]


def lenet(n):
    y = n.MaxPool(n.Tanh(n.Conv("x", n.w(6, 1, 5, 5), n.w(6), kernel_shape=[5, 5])), kernel_shape=[2, 2], strides=[2, 2])
    return image(n, 1, 12), [n.LogSoftmax(n.Gemm(n.Flatten(y), n.w(96, 10)), axis=-1)]


def resnet(n):
    y = conv(n, "x", 3, 8)
    r = n.Relu(n.Add(conv(n, conv(n, y, 8, 8), 8, 8, act=None), y))
    r = n.Relu(n.Add(conv(n, conv(n, r, 8, 16, strides=[2, 2]), 16, 16, act=None), conv(n, r, 8, 16, 1, None, strides=[2, 2])))
    return image(n), [n.Gemm(n.Flatten(n.GlobalAveragePool(r)), n.w(16, 7), n.w(7))]


def mobilenet(n):
    y = n.Clip(conv(n, "x", 3, 8, act=None), n.f(0.0), n.f(6.0))
    y = n.HardSwish(conv(n, y, 8, 8, act=None, group=8, auto_pad="SAME_UPPER", pads=None, strides=[2, 2])) if n.opset >= 14 else n.HardSigmoid(conv(n, y, 8, 8, act=None, group=8))
    s = n.HardSigmoid(n.Conv(n.GlobalAveragePool(y), n.w(8, 8, 1, 1)), alpha=1 / 6, beta=0.5)
    return image(n), [n.Mul(y, s)]


def squeezenet(n):
    s = conv(n, "x", 3, 4, 1, norm=False)
    y = n.Concat(conv(n, s, 4, 8, 1, norm=False), conv(n, s, 4, 8, 3, norm=False), axis=1)
    return image(n), [n.Dropout(n.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))]


def densenet(n):
    a = conv(n, "x", 3, 4)
    b = n.Concat(a, conv(n, a, 4, 4), axis=1)
    return image(n), [n.AveragePool(n.Concat(b, conv(n, b, 8, 4, dilations=[2, 2], pads=[2, 2, 2, 2]), axis=1), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)]


def unet(n):
    a = conv(n, "x", 3, 4)
    b = n.Relu(n.ConvTranspose(conv(n, n.MaxPool(a, kernel_shape=[2, 2], strides=[2, 2]), 4, 8), n.w(8, 4, 2, 2), n.w(4), strides=[2, 2]))
    return image(n), [n.Sigmoid(n.Conv(n.Concat(a, b, axis=1), n.w(1, 8, 1, 1)))]


def upsampler(n):
    y = n.Resize("x", None, n.f([1.0, 1.0, 2.0, 2.0]), mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    return image(n, 4, 6), [n.DepthToSpace(y, blocksize=2, mode="CRD"), n.Resize("x", None, None, n.c([2, 4, 9, 7]), mode="linear", coordinate_transformation_mode="half_pixel"), n.SpaceToDepth("x", blocksize=2)]


def style(n):
    y = n.InstanceNormalization(n.Pad("x", n.c([0, 0, 2, 2, 0, 0, 2, 2]), mode="reflect"), n.w(3), n.w(3))
    return image(n), [n.PRelu(n.LRN(y, size=3), n.w(3, 1, 1)), n.Pad("x", n.c([0, 0, 1, 0, 0, 0, 0, 2]), n.f(1.5)), n.LpNormalization("x", axis=1, p=2)]


def yolo(n):
    y = n.Transpose(n.Reshape(n.Conv("x", n.w(14, 3, 1, 1)), n.c([2, 2, 7, 16, 16])), perm=[0, 1, 3, 4, 2])
    xy, wh, rest = (n.Split(y, n.c([2, 2, 3]), outputs=3, axis=-1))
    grid = n.Cast(n.Range(n.c(0), n.c(16), n.c(1)), to=TensorProto.FLOAT)
    xy = n.Add(n.Sigmoid(xy), n.Unsqueeze(grid, n.c([1])))
    return image(n), [n.Concat(xy, n.Exp(wh), n.Sigmoid(rest), axis=-1), n.Slice(y, n.c([1]), n.c([15]), n.c([2]), n.c([3]))]


def bert(n):
    i = {"i": n.draw.integers(0, 11, (2, 5)), "m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])}
    x = layer_norm(n, n.Add(n.Gather(n.w(11, 8), "i"), n.w(5, 8)), 8)
    mask = n.Cast(n.Unsqueeze("m", n.c([1, 2])), to=TensorProto.BOOL)
    x = layer_norm(n, n.Add(x, attention(n, x, 2, 5, 8, 2, mask)), 8)
    x = layer_norm(n, n.Add(x, n.MatMul(gelu(n, n.MatMul(x, n.w(8, 16))), n.w(16, 8))), 8)
    return i, [n.Tanh(n.Gemm(n.Gather(x, n.c(0), axis=1), n.w(8, 8)))]


def gpt(n):
    i = {"i": n.draw.integers(0, 11, (2, 6))}
    t = n.Gather(n.Shape("i"), n.c(1), axis=0)
    pos = n.Range(n.c(0), t, n.c(1))
    x = n.Add(n.Gather(n.w(11, 8), "i"), n.Gather(n.w(10, 8), pos))
    causal = n.GreaterOrEqual(n.Unsqueeze(pos, n.c([1])), n.Unsqueeze(pos, n.c([0])))
    x = n.Add(x, attention(n, layer_norm(n, x, 8), 2, 6, 8, 2, causal))
    y = n.MatMul(layer_norm(n, x, 8), n.w(8, 11))
    return i, [y, n.ArgMax(y, axis=-1, keepdims=0), *n.TopK(y, n.c([3]), outputs=2, axis=-1)]


def vit(n):
    p = n.Transpose(n.Reshape(n.Conv("x", n.w(8, 3, 4, 4), strides=[4, 4]), n.c([2, 8, 16])), perm=[0, 2, 1])
    x = n.Concat(n.Expand(n.w(1, 1, 8), n.c([2, 1, 8])), p, axis=1)
    x = n.Add(x, attention(n, layer_norm(n, x, 8), 2, 17, 8, 2))
    return image(n), [n.Gemm(n.Squeeze(n.Slice(x, n.c([0]), n.c([1]), n.c([1])), n.c([1])), n.w(8, 5))]


def lstm(n):
    x = {"x": n.draw.standard_normal((5, 2, 4)).astype(np.float32)}
    return x, n.LSTM("x", n.w(2, 12, 4), n.w(2, 12, 3), n.w(2, 24), outputs=3, hidden_size=3, direction="bidirectional")


def gru(n):
    x = {"x": n.draw.standard_normal((5, 2, 4)).astype(np.float32)}
    return x, n.GRU("x", n.w(1, 9, 4), n.w(1, 9, 3), n.w(1, 18), None, n.w(1, 2, 3), outputs=2, hidden_size=3, linear_before_reset=1)


def rnn(n):
    x = {"x": n.draw.standard_normal((5, 2, 4)).astype(np.float32)}
    return x, n.RNN("x", n.w(1, 3, 4), n.w(1, 3, 3), outputs=2, hidden_size=3, activations=["Tanh"])


def reductions(n):
    x = {"x": n.draw.standard_normal((2, 3, 4)).astype(np.float32)}
    out = [n.ReduceSum("x", n.c([1]), keepdims=0), n.mean("x", [0, 2]), n.CumSum("x", n.c(1)), n.ArgMin("x", axis=2, select_last_index=1)]
    for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"):
        out.append(n.add(op, ["x", n.c([2])] if n.opset >= 18 else ["x"], keepdims=0, **({} if n.opset >= 18 else {"axes": [2]})))
    return x, out


def elements(n):
    x = {"x": n.draw.standard_normal((3, 4)).astype(np.float32), "y": n.draw.standard_normal((4,)).astype(np.float32)}
    one = [n.add(op, ["x"]) for op in ("Abs", "Neg", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Erf", "Floor", "Ceil", "Round", "Sign", "Softplus", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "Reciprocal", "HardSigmoid")]
    two = [n.add(op, ["x", "y"]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "Less", "Equal", "LessOrEqual", "Mean", "Sum")]
    return x, one + two + [n.Pow(n.Abs("x"), "y"), n.Mod("x", "y", fmod=1), n.Where(n.And(n.Greater("x", "y"), n.Not(n.IsNaN("x"))), "x", "y"), n.Sqrt(n.Abs("x")), n.Log(n.Abs("x")), n.Mish("x") if n.opset >= 18 else n.Tanh("x")]


def gathers(n):
    x = {"x": n.draw.standard_normal((3, 4)).astype(np.float32)}
    rows = n.c([[0, 1], [2, 3]])
    return x, [n.GatherElements("x", n.c([[0, 2, 1, 0]]), axis=0), n.GatherND("x", rows), n.ScatterElements("x", n.c([[1, 0, 2, 1]]), n.w(1, 4), axis=0), n.ScatterND("x", rows, n.w(2)), n.OneHot(n.c([0, 2]), n.c(3), n.f([0.0, 1.0])),
               n.NonZero(n.Relu("x")), n.Tile("x", n.c([2, 1])), n.Trilu("x", upper=0) if n.opset >= 14 else n.Identity("x"), n.Compress("x", n.c(np.array([True, False, True])), axis=0), n.Einsum("x", n.w(4, 5), equation="ij,jk->ki"),
               n.ConstantOfShape(n.Shape("x"), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])), n.ReverseSequence("x", n.c([1, 2, 3, 2]), time_axis=0, batch_axis=1)]


def quantised(n):
    x = {"x": n.draw.standard_normal((2, 8)).astype(np.float32)}
    s, z = n.f(0.05), n.c(np.array(3, np.uint8))
    q = n.DequantizeLinear(n.QuantizeLinear("x", s, z), s, z)
    w = n.DequantizeLinear(n.c(n.draw.integers(-100, 100, (8, 4)).astype(np.int8)), n.f(0.02), n.c(np.array(0, np.int8)))
    return x, [n.Relu(n.MatMul(q, w))]


def branches(n):
    x = {"x": n.draw.standard_normal((2, 3)).astype(np.float32)}
    cond = n.Greater(n.ReduceSum("x", keepdims=0), n.f(100.0))
    value = helper.make_empty_tensor_value_info
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [value("t")])
    other = helper.make_graph([helper.make_node("Exp", ["x"], ["e"])], "else", [], [value("e")])
    picked = n.If(cond, then_branch=then, else_branch=other)
    body = helper.make_graph([helper.make_node("Add", ["c", "x"], ["d"]), helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["d", "d"], ["s"])], "body",
                             [helper.make_tensor_value_info("k", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("c", TensorProto.FLOAT, [2, 3])],
                             [value("on"), value("d"), value("s")])
    return x, [picked, *n.Loop(n.c(3), n.c(np.array(True)), "x", outputs=2, body=body)]


MODELS = (mlp, lenet, resnet, mobilenet, squeezenet, densenet, unet, upsampler, style, yolo, bert, gpt, vit, lstm, gru, rnn, reductions, elements, gathers, quantised, branches)


def runtime(model, feeds):
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"]).run(None, feeds)


def compare(name, got, want):
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(want), (name, len(got), len(want))
    for i, (g, w) in enumerate(zip(got, want)):
        a = g.detach().numpy()
        assert a.shape == w.shape and a.dtype == w.dtype, (name, i, a.shape, w.shape, a.dtype, w.dtype)
        assert np.allclose(a, w, rtol=1e-3, atol=1e-4, equal_nan=True), (name, i, np.abs(a.astype(float) - w.astype(float)).max())


def test_graphs_of_the_model_zoo():
    wrong = []
    for make in MODELS:
        for opset in (13, 15, 17, 18, 21):
            n = Net(opset)
            feeds, outputs = make(n)
            feeds = {k: np.asarray(v) for k, v in feeds.items()}
            model = n.model(feeds, outputs)
            try:
                compare((make.__name__, opset), taper.onnx.load(model.SerializeToString())(*[taper.from_numpy(v) for v in feeds.values()]), runtime(model, feeds))
            except Exception as e:
                wrong.append(f"{make.__name__} {opset}: {type(e).__name__}: {str(e)[:300]}")
    assert not wrong, "\n".join(wrong)


def test_graphs_compile():
    wrong = []
    for make in MODELS:
        n = Net(17, 1)
        feeds, outputs = make(n)
        feeds = {k: np.asarray(v) for k, v in feeds.items()}
        model = n.model(feeds, outputs)
        try:
            with taper.no_grad():
                compare(make.__name__, taper.compile(taper.onnx.load(model.SerializeToString()))(*[taper.from_numpy(v) for v in feeds.values()]), runtime(model, feeds))
        except Exception as e:
            wrong.append(f"{make.__name__}: {type(e).__name__}: {str(e)[:300]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_read_is_written_again():
    wrong = []
    for make in (mlp, lenet, resnet, squeezenet, densenet, unet, bert, gpt, vit, lstm, gru, reductions):
        n = Net(17, 2)
        feeds, outputs = make(n)
        feeds = {k: np.asarray(v) for k, v in feeds.items()}
        model = n.model(feeds, outputs)
        args = tuple(taper.from_numpy(v) for v in feeds.values())
        for opset in (17, 21):
            try:
                again = onnx.load_from_string(taper.onnx.export(taper.onnx.load(model.SerializeToString()).eval(), args, opset_version=opset, input_names=list(feeds)).model_proto)
                onnx.checker.check_model(again)
                used = {i.name for i in again.graph.input}
                for i, (g, w) in enumerate(zip(runtime(again, {k: v for k, v in feeds.items() if k in used}), runtime(model, feeds))):
                    assert g.shape == w.shape and np.allclose(g, w, rtol=1e-3, atol=1e-4), (i, g.shape, w.shape)
            except Exception as e:
                wrong.append(f"{make.__name__} {opset}: {type(e).__name__}: {str(e)[:300]}")
    assert not wrong, "\n".join(wrong)
