"""taper.onnx.export: one captured graph of a model as an ONNX file. Rules for the operators are in _export_ops.py."""
import ast
import os

from . import _tensors
from ._proto import DIM, GRAPH, MODEL, NODE, OPSET, SHAPE, TENSOR_TYPE, TYPE, VALUE, attribute
from ._wire import Message, OnnxError, write

IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}


class OnnxExporterError(OnnxError):
    """A model that cannot be written as ONNX; the message names the operator and the line of the program."""


class Value:
    """A tensor of the graph: its name in the file, element type and sizes (integers or symbols)."""
    __slots__ = ("name", "dtype", "shape")

    def __init__(self, name, dtype, shape):
        self.name, self.dtype, self.shape = name, dtype, list(shape)

    def dim(self):
        return len(self.shape)


class Writer:
    """Nodes and constants of the file that is being made."""

    def __init__(self, opset):
        self.opset = opset
        self.nodes, self.initializers, self.used = [], [], set()
        self.known, self.symbols, self.exprs = {}, {}, {}
        self.where = self.doc = None

    def fresh(self, base):
        name, k = base, 0
        while name in self.used:
            k += 1
            name = f"{base}_{k}"
        self.used.add(name)
        return name

    def op(self, kind, *inputs, outputs=1, name=None, **attrs):
        """Appends a node; its result's name, or a list of them. None as an input: left out."""
        names = [i.name if isinstance(i, Value) else i or "" for i in inputs]
        while names and not names[-1]:
            names.pop()
        base = name or self.where or kind.lower()
        outs = [self.fresh(base) for _ in range(outputs)]
        fields = {"input": names, "output": outs, "name": self.fresh(f"node_{outs[0]}"), "op_type": kind,
                  "attribute": [attribute(k, v) for k, v in attrs.items() if v is not None]}
        if self.doc:
            fields["doc_string"] = self.doc
        self.nodes.append(Message(NODE, **fields))
        return outs[0] if outputs == 1 else outs

    def const(self, value, dtype):
        """A constant of this type: a number or a list of numbers."""
        import taper
        key = (repr(value), str(dtype))
        if key not in self.known:
            name = self.fresh("const")
            self.initializers.append(_tensors.store(taper.tensor(value, dtype=dtype), name))
            self.known[key] = name
        return self.known[key]

    def weight(self, t, name):
        name = self.fresh(name)
        self.initializers.append(_tensors.store(t, name))
        return name

    # -- sizes --
    def size(self, v):
        """One size as a name of a row with one number."""
        import taper
        if isinstance(v, int):
            return self.const([v], taper.int64)
        text = str(v)
        if text not in self.exprs:
            self.exprs[text] = self.expression(ast.parse(text, mode="eval").body, text)
        return self.exprs[text]

    def expression(self, e, text):
        import taper
        if isinstance(e, ast.Constant) and isinstance(e.value, int):
            return self.const([e.value], taper.int64)
        if isinstance(e, ast.Name) and e.id in self.symbols:
            source, axis = self.symbols[e.id]
            shape = self.op("Shape", source, name="shape")
            return self.op("Gather", shape, self.const([axis], taper.int64), axis=0, name="size")
        kinds = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "Div", ast.Mod: "Mod"}
        if isinstance(e, ast.BinOp) and type(e.op) in kinds:
            return self.op(kinds[type(e.op)], self.expression(e.left, text), self.expression(e.right, text), name="size")
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self.op("Neg", self.expression(e.operand, text), name="size")
        raise OnnxExporterError(f"the size {text} cannot be written with ONNX's operators; export without dynamic sizes")

    def ints(self, values):
        """A row of sizes: a constant where all are known."""
        import taper
        values = list(values)
        if all(isinstance(v, int) for v in values):
            return self.const([int(v) for v in values], taper.int64) if values else self.empty()
        return self.op("Concat", *[self.size(v) for v in values], axis=0, name="sizes")

    def empty(self):
        import taper
        if "()" not in self.known:
            self.known["()"] = self.weight(taper.empty((0,), dtype=taper.int64), "const")
        return self.known["()"]

    def shape(self, values):
        """As ints(), for Reshape: one unknown size is what is left over."""
        values = list(values)
        if -1 not in [v for v in values if isinstance(v, int)]:
            unknown = [i for i, v in enumerate(values) if not isinstance(v, int)]
            if len(unknown) == 1 and 0 not in values:
                values[unknown[0]] = -1
        return self.ints(values)

    def cast(self, v, dtype):
        """The same value with another element type."""
        if v.dtype == dtype:
            return v
        return Value(self.op("Cast", v, to=_tensors.code_of(dtype), name="cast"), dtype, v.shape)


def _dims(shape, names, axes=None):
    out = []
    for i, n in enumerate(shape):
        if axes and i in axes:
            out.append(Message(DIM, dim_param=str(axes[i])))
        elif isinstance(n, int):
            out.append(Message(DIM, dim_value=n))
        else:
            out.append(Message(DIM, dim_param=names.get(str(n), str(n))))
    return out


def _info(name, v, names, axes=None):
    shape = Message(SHAPE, dim=_dims(v.shape, names, axes))
    return Message(VALUE, name=name, type=Message(TYPE, tensor_type=Message(TENSOR_TYPE, elem_type=_tensors.code_of(v.dtype), shape=shape)))


class ONNXProgram:
    """A model as ONNX. model_proto: the bytes of the file."""

    def __init__(self, data):
        self.model_proto = data

    def save(self, destination):
        """Writes the file, to a path or an open file."""
        if hasattr(destination, "write"):
            destination.write(self.model_proto)
        else:
            with open(os.fspath(destination), "wb") as f:
                f.write(self.model_proto)

    def __call__(self, *args):
        from ._load import load
        return load(self.model_proto)(*args)

    def __repr__(self):
        return f"<taper.onnx.ONNXProgram: {len(self.model_proto)} bytes; save(path) writes it>"


def _capture(model, args, kwargs, dynamic):
    """The graph of model(*args, **kwargs), its inputs and what the call returned."""
    from .._dynamo import maybe_mark_dynamic
    from .._dynamo.eval_frame import compile
    from .._export import _tensors as tensors_in
    from ..autograd import no_grad
    given = tensors_in(args, "argument", []) + tensors_in(kwargs, "argument", [])
    for i, axes in dynamic.items():
        if i < len(given):
            for a in axes:
                maybe_mark_dynamic(given[i], a)
    seen = []

    def backend(gm, inputs):
        outs = []
        seen.append((gm, list(inputs), outs))

        def run(*xs):
            outs[:] = gm(*xs)
            return tuple(outs)
        return run
    with no_grad():
        result = compile(model, backend=backend, fullgraph=True, dynamic=None if dynamic else False)(*args, **kwargs)
    if len(seen) != 1:
        raise OnnxExporterError("the model computes nothing with tensors" if not seen else f"the model makes {len(seen)} graphs, not one")
    return (*seen[0], given, tensors_in(result, "result", []))


def _dynamic(given, input_names, count):
    """{index of an input: {axis: name}} of dynamic_axes or dynamic_shapes."""
    out = {}
    if not given:
        return out
    items = given.items() if isinstance(given, dict) else enumerate(given)
    for key, axes in items:
        i = key if isinstance(key, int) else list(input_names or []).index(key) if key in (input_names or []) else None
        if axes is None or i is None:
            continue
        if not isinstance(axes, dict):
            axes = {a: None for a in axes} if not isinstance(axes, tuple) or all(isinstance(a, int) for a in axes) else dict(enumerate(axes))
        out[i] = {a: str(getattr(n, "__name__", n)) if n is not None else f"input{i}_dim{a}" for a, n in axes.items() if isinstance(a, int)}
    return out


def _line(node):
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    return lines[-2] + ": " + lines[-1] if len(lines) > 1 else lines[0] if lines else ""


class _Translator:
    """Walks over the captured graph and calls the rule of each node."""

    def __init__(self, writer):
        self.w, self.values = writer, {}

    def argument(self, a):
        from ..fx.node import Node
        if isinstance(a, Node):
            return self.values[a]
        if isinstance(a, (list, tuple)):
            return [self.argument(x) for x in a]
        return a

    def node(self, n):
        from ._export_ops import RULES, VIEWS
        name = getattr(n.target, "__name__", str(n.target))
        args = [self.argument(a) for a in n.args]
        kwargs = {k: self.argument(v) for k, v in n.kwargs.items()}
        self.w.where, self.w.doc = n.name, _line(n)
        if name == "getitem" and isinstance(args[0], list):
            self.values[n] = args[0][args[1]]
            return
        rule, writes = RULES.get(name), False
        if rule is None and name.endswith("_") and name[:-1] in RULES:
            rule, writes = RULES[name[:-1]], True
        if name.startswith("__i") and name.strip("_")[1:] in RULES:
            rule, writes = RULES[name.strip("_")[1:]], True
        if writes and (n.args[0].op == "placeholder" or getattr(n.args[0].target, "__name__", "") in VIEWS):
            raise OnnxExporterError(f"{name} writes into {'an input or weight' if n.args[0].op == 'placeholder' else 'a view of another tensor'}, which ONNX cannot say ({_line(n)}); use a form that makes a new tensor")
        if rule is None:
            raise OnnxExporterError(f"operator {name} has no form in ONNX that Taper knows ({_line(n)})")
        val = n.meta.get("val", n.meta.get("example_value"))
        got = rule(self.w, val, *args, **kwargs)
        if isinstance(got, str):
            got = Value(got, val.dtype, val.shape)
        elif isinstance(got, list):
            got = [g if isinstance(g, Value) or g is None else Value(g, None, ()) for g in got]
        self.values[n] = got
        if writes:
            self.values[n.args[0]] = got

    def fill(self, n, users):
        """Types of the parts of a result that has several."""
        for user in users:
            part, val = self.values.get(user), user.meta.get("val", user.meta.get("example_value"))
            if isinstance(part, Value) and val is not None and hasattr(val, "dtype"):
                part.dtype, part.shape = val.dtype, list(val.shape)


def _weight_names(model):
    named = {}
    for kind in ("named_parameters", "named_buffers"):
        for name, t in getattr(model, kind, lambda: ())():
            named.setdefault(id(t), name)
    return named


def _model(model, args, kwargs, input_names, output_names, opset, dynamic):
    import taper
    gm, inputs, outs, given, results = _capture(model, args, kwargs, dynamic)
    w = Writer(opset)
    walk = _Translator(w)
    place, named = {id(t): i for i, t in reversed(list(enumerate(given)))}, _weight_names(model)
    input_names, output_names = list(input_names or []), list(output_names or [])
    w.used.update(output_names)
    names = {}
    graph_inputs = {}
    for n, t in zip([n for n in gm.graph.nodes if n.op == "placeholder"], inputs):
        val = n.meta.get("val", n.meta.get("example_value"))
        if not isinstance(t, taper.Tensor):
            continue  # a size, which is found in the shape of an input
        at = place.get(id(t))
        if at is None:
            walk.values[n] = Value(w.weight(t, named.get(id(t), n.name)), t.dtype, t.shape)
            continue
        name = w.fresh(input_names[at] if at < len(input_names) else f"input_{at}")
        v = walk.values[n] = Value(name, t.dtype, val.shape)
        graph_inputs[at] = _Input(name, v)
        for axis, size in enumerate(val.shape):
            if not isinstance(size, int):
                w.symbols.setdefault(str(size), (name, axis))
                names.setdefault(str(size), dynamic.get(at, {}).get(axis) or str(size))
    for i, t in enumerate(given):  # arguments that nothing uses keep their place
        if i not in graph_inputs and place[id(t)] == i:
            name = w.fresh(input_names[i] if i < len(input_names) else f"input_{i}")
            graph_inputs[i] = _Input(name, Value(name, t.dtype, t.shape))
    last = None
    for n in gm.graph.nodes:
        if n.op == "call_function":
            walk.node(n)
            if getattr(n.target, "__name__", "") == "getitem":
                walk.fill(n, [n])
        elif n.op == "get_attr":
            t = getattr(gm, n.target)
            walk.values[n] = Value(w.weight(t, n.name), t.dtype, t.shape)
        elif n.op == "output":
            last = walk.argument(n.args[0])
        elif n.op != "placeholder":
            raise OnnxExporterError(f"a node of kind {n.op} ({n.name}) cannot be exported")
    w.where = w.doc = None
    graph_outputs = []
    for k, t in enumerate(results):
        v = next((last[i] for i, o in enumerate(outs) if o is t), None)
        if v is None and id(t) in place:
            v = graph_inputs[place[id(t)]].value
        if v is None:
            v = Value(w.weight(t, f"constant_{k}"), t.dtype, t.shape)
        name = output_names[k] if k < len(output_names) else w.fresh(f"output_{k}")
        w.nodes.append(Message(NODE, input=[v.name], output=[name], name=w.fresh(f"node_{name}"), op_type="Identity"))
        graph_outputs.append(_info(name, v, names))
    read = {name for node in w.nodes for name in node.input}
    w.initializers = [t for t in w.initializers if t.name in read]
    graph = Message(GRAPH, name=type(model).__name__ if not hasattr(model, "__name__") else model.__name__, node=w.nodes,
                    initializer=w.initializers, output=graph_outputs,
                    input=[_info(i.name, i.value, names, dynamic.get(k)) for k, i in sorted(graph_inputs.items())])
    return Message(MODEL, ir_version=IR_VERSIONS[opset], producer_name="taper", producer_version=taper.__version__, graph=graph,
                   opset_import=[Message(OPSET, domain="", version=opset)])


class _Input:
    def __init__(self, name, value):
        self.name, self.value = name, value


def export(model, args=(), f=None, *, kwargs=None, input_names=None, output_names=None, opset_version=None, dynamic_axes=None,
           dynamic_shapes=None, training=None, verbose=None, **options):
    """Writes model(*args, **kwargs) as an ONNX file.

    The model is captured as one graph (a graph break is an error) in evaluation mode. args: an example of the arguments,
    whose sizes become fixed but those named in dynamic_axes={"name of an input": {axis: "name of the size"}} (or in
    dynamic_shapes). Weights are in the file under their names in state_dict(). Every node carries the line of the
    program it came from. f: path or open file; without it the returned program's save(path) writes one.

        taper.onnx.export(model, (x,), "model.onnx", input_names=["x"], dynamic_axes={"x": {0: "batch"}})

    opset_version: 13 to 21, 18 unless told. Other options of PyTorch's function are taken and have no effect.
    """
    opset = 18 if opset_version is None else opset_version
    if opset not in IR_VERSIONS:
        raise ValueError(f"opset_version {opset!r} cannot be written; 13 to 21 can")
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"export() has no option {sorted(unknown)[0]!r}")
    args = args if isinstance(args, tuple) else (args,)
    if args and isinstance(args[-1], dict) and kwargs is None:
        args, kwargs = args[:-1], args[-1]
    dynamic = _dynamic(dynamic_axes or dynamic_shapes, input_names, len(args))
    was = getattr(model, "training", None)
    if was and training not in (True, 2):
        model.eval()
    try:
        data = write(_model(model, args, kwargs or {}, input_names, output_names, opset, dynamic))
    finally:
        if was and training not in (True, 2):
            model.train(was)
    program = ONNXProgram(data)
    if f is not None:
        program.save(f)
    return program


_OPTIONS = {"dynamo", "external_data", "custom_translation_table", "report", "optimize", "verify", "profile", "dump_exported_program",
            "artifacts_dir", "fallback", "export_params", "keep_initializers_as_inputs", "operator_export_type",
            "do_constant_folding", "custom_opsets", "export_modules_as_functions", "autograd_inlining"}


class ExportOptions:
    """Options of dynamo_export(); all are taken and have no effect."""

    def __init__(self, **options):
        self.options = options


def dynamo_export(model, *args, export_options=None, **kwargs):
    """export() with the arguments spread out, as an older function of PyTorch has them."""
    return export(model, args, kwargs=kwargs)


class select_model_mode_for_export:
    """with select_model_mode_for_export(model, mode): the model is in evaluation mode inside."""

    def __init__(self, model, mode=None):
        self.model, self.mode, self.was = model, mode, model.training

    def __enter__(self):
        self.model.train(self.mode in (True, 2))
        return self.model

    def __exit__(self, *exc):
        self.model.train(self.was)
