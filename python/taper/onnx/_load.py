"""taper.onnx.load: a model's nodes as the lines of a Python function, with its weights as parameters of a module. The
function is read by capture like any other, and `model.code` shows it. Nothing of a file gets into the code but numbers,
names that are spelled anew, and text as Python writes it."""
import inspect
import keyword
import linecache
import os
import re

from .. import nn
from . import _known, _ops, _ops_nn, _ops_shape, _tensors
from ._proto import ATTRIBUTES, MODEL, TENSOR
from ._wire import Message, OnnxError, read

NODES = 200_000  # of a model with its functions written out
NESTED = 16  # branches and functions inside each other
OPSETS = (7, 28)
_DOMAINS = ("", "ai.onnx")


def _operators():
    out = {}
    for module in (_ops, _ops_shape, _ops_nn):
        for name, fn in vars(module).items():
            if name[0].isupper() and callable(fn) and not inspect.isclass(fn):
                out[name] = (fn, module.__name__.rpartition(".")[2])
    return out


OPERATORS = _operators()
_WRITTEN_HERE = ("Constant", "If", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement")


def supported():
    """The names of the operators that load() knows."""
    return sorted([*OPERATORS, *_WRITTEN_HERE])


class OnnxModule(nn.Module):
    """A model read from an ONNX file. code: its function; input_names and output_names: as in the file."""

    def __repr__(self):
        return f"OnnxModule({', '.join(self.input_names)} -> {', '.join(self.output_names)}; {sum(p.numel() for p in self.parameters())} parameters)"


class _Scope(nn.Module):
    """Part of the name of a weight."""


class _Names:
    """Python names of values: short, unique, and never one of Python's own."""

    def __init__(self):
        self.used = set()

    def new(self, text):
        base = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[-40:].strip("_") or "v"
        base = base if not base[0].isdigit() else "v" + base
        name, k = base + ("_" if base in _RESERVED else ""), 1
        while name in self.used:
            k += 1
            name = f"{base}_{k}"
        self.used.add(name)
        return name


_RESERVED = set(keyword.kwlist) | {"self", "_ops", "_ops_nn", "_ops_shape", "_known", "_stack", "taper", "getattr", "list", "range", "None", "bool", "float"}


def _literal(v):
    if isinstance(v, list):
        return "[" + ", ".join(map(_literal, v)) + "]"
    if isinstance(v, float):
        return repr(v) if v - v == 0 else f"float({str(v)!r})"
    if isinstance(v, (int, str)):
        return repr(v)
    raise OnnxError(f"an attribute holds a {type(v).__name__}")


class _Writer:
    """Writes the function of a graph, and puts its weights into a module."""

    def __init__(self, model, module, folder, opset):
        self.module, self.folder, self.opset = module, folder, opset
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.names = _Names()
        self.lines, self.nodes, self.depth = [], 0, 0
        self.uses = {}  # name -> the line of the function's own level that uses it last
        self.level = 1

    # -- lines --
    def line(self, text):
        self.lines.append((self.level, text))
        for name in re.findall(r"[^\W\d]\w*", text):
            if name in self.names.used:
                self.uses[name] = len(self.lines) - 1

    def text(self, head):
        ends = {}
        own = [i for i, (level, _) in enumerate(self.lines) if level == 1]
        for name, i in self.uses.items():
            at = next((k for k in own if k >= i), None)
            if at is not None and at < len(self.lines) - 1:
                ends.setdefault(at, []).append(name)
        out = [head]
        for i, (level, text) in enumerate(self.lines):
            gone = sorted(ends.get(i, ()))
            single = not text.endswith(":") and not text.startswith(("else", "return"))
            out.append("    " * level + text + (";  " + " = ".join(gone) + " = None" if gone and single else ""))
        return "\n".join(out) + "\n"

    # -- weights --
    def weight(self, proto, trained):
        """What stands for an initializer or constant in the code."""
        import taper
        t = _tensors.load(proto, self.folder)
        if t.dim() <= 1 and t.numel() <= _known.FEW and not t.is_complex() and (not t.is_floating_point() or t.dim() == 0):
            return self.constant(t)
        name = proto.name or "constant"
        parts = [re.sub(r"[^\w-]+", "_", p, flags=re.ASCII) for p in name.split(".")]
        parts = parts if all(parts) and len(parts) <= NESTED else [re.sub(r"\W+", "_", name, flags=re.ASCII) or "constant"]
        at, text = self.module, "self"
        for p in parts[:-1]:
            if not isinstance(at._modules.get(p), _Scope):
                if hasattr(at, p):
                    p += "_"
                if not isinstance(at._modules.get(p), _Scope):
                    at.add_module(p, _Scope())
            at = at._modules[p]
            text = f"{text}.{p}" if p.isidentifier() and p not in _RESERVED else f"getattr({text}, {p!r})"
        last = parts[-1]
        while hasattr(at, last):
            last += "_"
        if trained and t.is_floating_point():
            at.register_parameter(last, taper.nn.Parameter(t))
        else:
            at.register_buffer(last, t)
        return f"{text}.{last}" if last.isidentifier() and last not in _RESERVED else f"getattr({text}, {last!r})"

    def constant(self, t):
        data = t.tolist() if t.dim() else [t.item()]
        dtype = str(t.dtype).rpartition(".")[2]
        return f"_known.{'row' if t.dim() else 'one'}({_literal(data if t.dim() else data[0])}, taper.{dtype})"

    # -- nodes --
    def graph(self, graph, scope):
        for node in graph.node:
            self.node(node, scope, self.opset)

    def initializers(self, graph, scope):
        kept = {node.input[i] for node in graph.node if node.op_type == "BatchNormalization" for i in (3, 4) if i < len(node.input)}
        for proto in graph.initializer:
            scope[proto.name] = self.weight(proto, proto.name not in kept)

    def value(self, name, scope):
        if not name:
            return "None"
        if name not in scope:
            raise OnnxError(f"the graph uses {name!r}, which nothing before it makes")
        return scope[name]

    def attributes(self, node, scope, bound):
        out = {}
        for a in node.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name in bound:
                    out[a.name] = bound[a.ref_attr_name]
                continue
            kind = a.type
            if kind not in ATTRIBUTES:  # files of before IR version 3 do not say
                kind = next((k for k, f in ATTRIBUTES.items() if a.has(f)), None)
            v = getattr(a, ATTRIBUTES[kind]) if kind else None
            if kind == 3:
                v = bytes(v).decode("utf-8", "replace")
            elif kind == 8:
                v = [bytes(s).decode("utf-8", "replace") for s in v]
            out[a.name] = v
        return out

    def node(self, node, scope, opset, bound=None):
        self.nodes += 1
        if self.nodes > NODES:
            raise OnnxError(f"the model has more than {NODES} nodes with its functions written out")
        attrs = self.attributes(node, scope, bound or {})
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self.function(function, node, attrs, scope)
        known = OPERATORS.get(node.op_type) if node.domain in _DOMAINS else None
        if node.domain in _DOMAINS and node.op_type in _WRITTEN_HERE:
            return getattr(self, "write_" + node.op_type)(node, attrs, scope)
        if known is None:
            full = f"{node.domain}.{node.op_type}" if node.domain not in _DOMAINS else node.op_type
            raise OnnxError(f"operator {full} (node {node.name or node.output[:1]}) is not supported; taper.onnx.supported() lists those that are")
        fn, where = known
        inputs = [self.value(n, scope) for n in node.input]
        while inputs and inputs[-1] == "None":
            inputs.pop()
        args = inputs + self.keywords(node, fn, attrs, opset)
        outs = [self.define(n, scope, node) for n in node.output] or ["_"]
        several = len(outs) > 1 or node.op_type in _TUPLES
        if several:
            outs += ["_"] * (_TUPLES.get(node.op_type, _MAY_BE_TUPLES.get(node.op_type, 0)) - len(outs))
        target = ", ".join(outs) + ("," if several and len(outs) == 1 else "")
        self.line(f"{target} = {where}.{node.op_type}({', '.join(args)})")

    def keywords(self, node, fn, attrs, opset):
        takes = inspect.signature(fn).parameters
        out = []
        for name, v in attrs.items():
            name = name + "_" if name + "_" in takes else name
            if name not in takes or takes[name].kind is not inspect.Parameter.KEYWORD_ONLY:
                if name in _WITHOUT_MEANING:
                    continue
                raise OnnxError(f"operator {node.op_type} (node {node.name or node.output[:1]}) has the attribute {name!r}, which is not supported")
            if isinstance(v, Message) and v.schema is TENSOR:
                out.append(f"{name}={self.weight(v, False) if v.dims != [1] else self.constant(_tensors.load(v, self.folder).reshape([]))}")
            else:
                out.append(f"{name}={_literal(v)}")
        if "opset" in takes:
            out.append(f"opset={opset}")
        if "outputs" in takes and len(node.output) > 1:
            out.append(f"outputs={len(node.output)}")
        return out

    def define(self, name, scope, node):
        if not name:
            return "_"
        scope[name] = self.names.new(name if not name.isdigit() else f"{node.op_type.lower()}_{name}")
        return scope[name]

    def function(self, function, node, attrs, scope):
        self.depth += 1
        if self.depth > NESTED:
            raise OnnxError(f"functions are nested deeper than {NESTED}")
        bound = {a.name: self.attributes(Message(MODEL, attribute=[a]), scope, {})[a.name] for a in function.attribute_proto}
        bound.update(attrs)
        inner = {n: self.value(node.input[i], scope) if i < len(node.input) else "None" for i, n in enumerate(function.input)}
        opset = next((o.version for o in function.opset_import if o.domain in _DOMAINS), self.opset)
        for n in function.node:
            self.node(n, inner, opset, bound)
        for name, inside in zip(node.output, function.output):
            if name:
                scope[name] = self.value(inside, inner)
        self.depth -= 1

    # -- nodes that are Python's statements --
    def write_Constant(self, node, attrs, scope):
        import taper
        (name, v), = attrs.items() if len(attrs) == 1 else [("nothing", None)]
        if name == "value":
            text = self.weight(v, False) if v.name else self.weight(Message(TENSOR, **{**v.fields, "name": f"constant_{node.output[0]}"}), False)
        elif name in ("value_int", "value_float", "value_ints", "value_floats"):
            t = taper.tensor(v, dtype=taper.int64 if "int" in name else taper.float32)
            text = self.constant(t)
        else:
            raise OnnxError(f"a constant given as {name!r} is not supported")
        scope[node.output[0]] = text

    def branch(self, graph, scope, outs):
        self.depth += 1
        if self.depth > NESTED:
            raise OnnxError(f"branches are nested deeper than {NESTED}")
        self.level += 1
        inner = dict(scope)
        self.initializers(graph, inner)
        self.graph(graph, inner)
        if len(graph.output) != len(outs):
            raise OnnxError(f"a branch of If has {len(graph.output)} results where {len(outs)} are wanted")
        values = [self.value(v.name, inner) for v in graph.output]
        self.line(f"{', '.join(outs)} = {', '.join(values)}")
        self.level -= 1
        self.depth -= 1

    def write_If(self, node, attrs, scope):
        cond = self.value(node.input[0], scope)
        inner = dict(scope)
        outs = [self.define(n, inner, node) for n in node.output]
        self.line(f"if _known.number({cond}):")
        self.branch(attrs["then_branch"], scope, outs)
        self.line("else:")
        self.branch(attrs["else_branch"], scope, outs)
        scope.update({n: inner[n] for n in node.output if n})

    def write_Loop(self, node, attrs, scope):
        """for at most M times, while the condition holds; values go round, and others are stacked."""
        body = attrs["body"]
        count, cond = self.value(node.input[0] if node.input else "", scope), self.value(node.input[1] if len(node.input) > 1 else "", scope)
        carried = [self.names.new(f"loop_{v.name}") for v in body.input[2:]]
        stacked = [self.names.new(f"each_{v.name}") for v in body.output[1 + len(carried):]]
        for var, name in zip(carried, node.input[2:]):
            self.line(f"{var} = {self.value(name, scope)}")
        for var in stacked:
            self.line(f"{var} = []")
        turn, going = self.names.new("turn"), self.names.new("going")
        self.line(f"{turn}, {going} = 0, {cond} is None or bool(_known.number({cond}))")
        self.line(f"while {going} and ({count} is None or {turn} < _known.number({count})):")
        self.depth += 1
        if self.depth > NESTED:
            raise OnnxError(f"branches are nested deeper than {NESTED}")
        self.level += 1
        inner = dict(scope)
        at = self.names.new("at")
        self.line(f"{at} = _known.one({turn}, taper.int64)")
        for v, text in zip(body.input, [at, going, *carried]):
            inner[v.name] = text
        self.initializers(body, inner)
        self.graph(body, inner)
        results = [self.value(v.name, inner) for v in body.output]
        for var, text in zip(stacked, results[1 + len(carried):]):
            self.line(f"{var}.append(_known.tensor({text}))")
        self.line(f"{', '.join([going, *carried])} = {', '.join([f'bool({results[0]} if {results[0]} is True or {results[0]} is False else _known.number({results[0]}))', *results[1:1 + len(carried)]])}")
        self.line(f"{turn} += 1")
        self.level -= 1
        self.depth -= 1
        for name, var in zip(node.output, carried):
            if name:
                scope[name] = var
        for name, var in zip(node.output[len(carried):], stacked):
            if name:
                scope[name] = self.names.new(name)
                self.line(f"{scope[name]} = _stack({var})")

    def write_Optional(self, node, attrs, scope):
        scope[node.output[0]] = self.value(node.input[0], scope) if node.input else "None"

    def write_OptionalGetElement(self, node, attrs, scope):
        scope[node.output[0]] = self.value(node.input[0], scope)

    def write_OptionalHasElement(self, node, attrs, scope):
        there = f"{self.value(node.input[0], scope)} is not None" if node.input else "False"
        scope[node.output[0]] = f"_known.one({there}, taper.bool)"


_TUPLES = {"TopK": 2, "Split": 1, "LSTM": 3, "GRU": 2, "RNN": 2, "Unique": 4, "DynamicQuantizeLinear": 3}
_MAY_BE_TUPLES = {"LayerNormalization": 3, "BatchNormalization": 3}
_WITHOUT_MEANING = {"consumed_inputs", "is_test"}


def _opset(model):
    versions = [o.version for o in model.opset_import if o.domain in _DOMAINS]
    if not versions:
        if model.opset_import or not model.has("graph"):
            return OPSETS[1]
        raise OnnxError("the model does not say which version of the operators it uses")
    if not OPSETS[0] <= versions[0] <= OPSETS[1]:
        raise OnnxError(f"the model uses version {versions[0]} of the operators; {OPSETS[0]} to {OPSETS[1]} can be read (13 to 21 are tested)")
    return versions[0]


def parse(data):
    """The message of a model, from its bytes."""
    model = read(MODEL, memoryview(data))
    if not model.has("graph") or not model.has("ir_version"):
        raise OnnxError("this is no ONNX model: it has no graph" if not model.has("graph") else "this is no ONNX model: it has no version")
    return model


def _stack(values):
    import taper
    return taper.stack(values)


def load(source):
    """The model in an ONNX file (a path, an open file or bytes) as a module.

    Calling it runs the model; weights are parameters under their names in the file, constants are buffers. It is compiled
    like any other module:

        model = taper.compile(taper.onnx.load("model.onnx"))
        y = model(x)

    Results are a tensor, or a tuple where the model has several. The file is only read as data: nothing in it can run code,
    and tensors outside the file are looked for in its own folder only. What Taper does not know is an OnnxError.
    """
    import taper
    folder = name = None
    if hasattr(source, "read"):
        data = source.read()
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = source
    else:
        name = os.fspath(source)
        folder = os.path.dirname(os.path.abspath(name))
        with open(name, "rb") as f:
            data = f.read()
    try:
        model = parse(data)
    except OnnxError as e:
        raise OnnxError(f"taper.onnx.load: cannot read {repr(name) if name else 'this model'} as an ONNX model: {e}") from None
    graph = model.graph
    module = OnnxModule()
    writer = _Writer(model, module, folder, _opset(model))
    if graph.sparse_initializer:
        raise OnnxError("the model has sparse weights, which are not supported")
    scope = {}
    writer.initializers(graph, scope)
    inputs = [v for v in graph.input if v.name not in scope]
    for v in inputs:
        scope[v.name] = writer.names.new(v.name)
    given = [scope[v.name] for v in inputs]
    head = f"def forward(self{''.join(', ' + n for n in given)}):"
    for v, n in zip(inputs, given):
        if v.type is not None and v.type.has("sequence_type"):
            writer.line(f"{n} = list({n})")
    writer.graph(graph, scope)
    results = [writer.value(v.name, scope) for v in graph.output]
    shown = [f"_known.tensor({r})" for r in results]
    writer.line("return " + (shown[0] if len(shown) == 1 else f"({', '.join(shown)}{',' if shown else ''})"))
    code = writer.text(head)
    file = f"<onnx {os.path.basename(name) if name else 'model'} {_count()}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    space = {"_ops": _ops, "_ops_nn": _ops_nn, "_ops_shape": _ops_shape, "_known": _known, "_stack": _stack, 
             "taper": taper}
    exec(compile(code, file, "exec"), space)
    module.__class__ = type("OnnxModule", (OnnxModule,), {"forward": space["forward"], "__module__": __name__})
    module.code, module.opset = code, writer.opset
    module.input_names, module.output_names = [v.name for v in inputs], [v.name for v in graph.output]
    module.eval()
    return module


_made = []


def _count():
    _made.append(None)
    return len(_made)
