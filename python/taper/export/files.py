"""Files of exported programs: a zip with the graph as JSON and the weights as safetensors. Nothing in a file can run."""
import inspect
import json
import operator
import zipfile

from .. import _C
from ..fx.graph import Graph, GraphModule
from ..utils import _pytree as pytree
from .exported_program import ExportedProgram
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

FORMAT = "taper exported program 1"
_LIMIT = 1 << 28  # bytes of JSON


def _encode(x, structured=False):
    import taper
    if x is None or isinstance(x, (bool, int, str)) and not hasattr(x, "node"):
        return x
    if isinstance(x, float):
        return {"float": x.hex()}
    if hasattr(x, "op") and hasattr(x, "name"):
        return {"node": x.name}
    if isinstance(x, complex):
        return {"complex": [x.real.hex(), x.imag.hex()]}
    if isinstance(x, (taper.dtype, taper.device, taper.memory_format, taper.layout)):
        return {type(x).__name__: str(x).rpartition(".")[2] if not isinstance(x, taper.device) else str(x)}
    if isinstance(x, slice):
        return {"slice": [_encode(v) for v in (x.start, x.stop, x.step)]}
    if type(x) in (list, tuple, taper.Size):
        return {"tuple" if type(x) is not list else "list": [_encode(v) for v in x]}
    if type(x) is dict and all(isinstance(k, (str, int)) for k in x):
        return {"dict": [[k, _encode(v)] for k, v in x.items()]}
    raise TypeError(f"a program with a {type(x).__name__} cannot be saved")


def _decode(x, nodes=None):
    import taper
    if not isinstance(x, dict):
        if x is None or isinstance(x, (bool, int, str)):
            return x
        raise ValueError(f"damaged file: {str(x)[:60]}")
    if len(x) != 1:
        raise ValueError("damaged file: a value with several kinds")
    (kind, v), = x.items()
    if kind == "node":
        return nodes[v]
    if kind == "float":
        return float.fromhex(v)
    if kind == "complex":
        return complex(*map(float.fromhex, v))
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_decode(e, nodes) for e in v)
    if kind == "slice":
        return slice(*(_decode(e, nodes) for e in v))
    if kind == "dict":
        return {k: _decode(e, nodes) for k, e in v}
    if kind == "device":
        return taper.device(v)
    if kind in ("dtype", "memory_format", "layout"):
        value = getattr(taper, v, None)
        if isinstance(value, getattr(taper, kind)):
            return value
    raise ValueError(f"damaged file: {kind!r}")


_OPERATORS = {f.__name__: f for f in (operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow,
                                      _C._set_grad_enabled)}


def _target(t):
    if t in _OPERATORS.values():
        return t.__name__
    name = str(t)
    if not callable(t) or name.count(".") < 1 or _resolve(name) is not t:
        raise TypeError(f"a program that calls {t!r} cannot be saved")
    return name


def _resolve(name):
    """An operator by its name, aten.add.Tensor: nothing else can be named in a file."""
    import taper
    if name in _OPERATORS:
        return _OPERATORS[name]
    parts = name.split(".")
    if not 2 <= len(parts) <= 3 or not all(p.isidentifier() and not p.startswith("__") or p == "default" for p in parts):
        raise ValueError(f"damaged file: operator {name[:80]!r}")
    found = taper.ops
    for p in parts:
        found = getattr(found, p, None)
        if found is None:
            raise ValueError(f"the operator {name} does not exist here")
    return found


def _tree(spec, leaves):
    """The structure as a value whose leaves are numbers."""
    return _encode(pytree.tree_unflatten(list(range(leaves)), spec))


def _argument(a):
    return {"name": a.name, "value": _encode(a.value)} if isinstance(a, ConstantArgument) else {"name": a.name}


def save(program, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Writes a program to a path or a file opened for bytes."""
    from ..safetensors import save as tensors
    s = program.graph_signature
    nodes = [{"op": n.op, "name": n.name, "target": _target(n.target) if n.op == "call_function" else str(n.target), "args": _encode(tuple(n.args)),
              "kwargs": _encode(dict(n.kwargs))} for n in program.graph.nodes]
    users = sum(x.kind == InputKind.USER_INPUT for x in s.input_specs)
    weights = {**program.state_dict, **program.constants}
    text = json.dumps({
        "format": FORMAT, "nodes": nodes, "inputs": [[x.kind.name, _argument(x.arg), x.target, x.persistent] for x in s.input_specs],
        "outputs": [[x.kind.name, _argument(x.arg), x.target] for x in s.output_specs], "in": _tree(program._in_spec, users),
        "out": _tree(program._out_spec, len(s.user_outputs)), "state": list(program.state_dict), "parameters": program._parameters,
        "related": list(map(list, program._related)), "requires_grad": [n for n, w in weights.items() if w.requires_grad], "free": [[k, lo, None if hi == float("inf") else hi] for k, (lo, hi) in program._free.items()],
        "call": None if program._call is None else [[n, int(kind), has, _encode(v)] for n, kind, has, v in program._call],
        "shapes": [[p, _encode(w[0]), list(w[1])] if w else [list(map(_encode, p))] for p, w in program._shapes]})
    plain = {n: w.detach().contiguous() for n, w in weights.items()}
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr("program.json", text)
        z.writestr("weights.safetensors", tensors(plain))
        for name, content in (extra_files or {}).items():
            z.writestr("extra/" + name, content)


def load(f, *, extra_files=None, expected_opset_version=None):
    """Reads what save() wrote."""
    from .. import nn
    from ..safetensors import load as tensors
    try:
        with zipfile.ZipFile(f) as z:
            if z.getinfo("program.json").file_size > _LIMIT:
                raise ValueError("damaged file: its graph is larger than 256 MiB")
            d = json.loads(z.read("program.json"))
            weights = tensors(z.read("weights.safetensors"))
            for name in list(extra_files or ()):
                extra_files[name] = z.read("extra/" + name).decode()
        if d.get("format") != FORMAT:
            raise ValueError(f"its format is {str(d.get('format'))[:60]!r}, not {FORMAT!r}")
        return _program(d, weights, nn)
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, TypeError, IndexError, AttributeError, RecursionError) as e:
        raise ValueError(f"{f if isinstance(f, str) else 'the file'} is not an exported program: {type(e).__name__}: {e}") from None


def _program(d, weights, nn):
    graph, nodes = Graph(), {}
    for n in d["nodes"]:
        args, kwargs = _decode(n["args"], nodes), _decode(n["kwargs"], nodes)
        if n["op"] == "placeholder":
            made = graph.placeholder(str(n["name"]))
        elif n["op"] == "call_function":
            made = graph.call_function(_resolve(n["target"]), args, kwargs)
            made.name = str(n["name"])
        elif n["op"] == "output":
            made = graph.output(*args)
        else:
            raise ValueError(f"damaged file: a node {str(n['op'])[:40]!r}")
        nodes[n["name"]] = made
    graph.lint()
    needs, parameters = set(d["requires_grad"]), set(d["parameters"])
    full = {n: nn.Parameter(w, requires_grad=n in needs) if n in parameters else w for n, w in weights.items()}
    state = type(nn.Module().state_dict())((n, full[n]) for n in d["state"])

    def argument(a):
        return ConstantArgument(a["name"], _decode(a["value"])) if "value" in a else TensorArgument(a["name"])
    signature = ExportGraphSignature([InputSpec(InputKind[k], argument(a), t, p) for k, a, t, p in d["inputs"]],
                                     [OutputSpec(OutputKind[k], argument(a), t) for k, a, t in d["outputs"]])
    call = None if d["call"] is None else [(n, inspect._ParameterKind(kind), bool(has), _decode(v)) for n, kind, has, v in d["call"]]
    program = ExportedProgram(GraphModule({}, graph), signature, state, {n: w for n, w in full.items() if n not in state}, pytree.tree_flatten(_decode(d["in"]))[1],
                              pytree.tree_flatten(_decode(d["out"]))[1], call, None,
                              {k: (lo, float("inf") if hi is None else hi) for k, lo, hi in d["free"]}, list(d["parameters"]))
    program._related = [(str(text), int(times), str(place), int(plus), str(other)) for text, times, place, plus, other in d.get("related", ())]
    program._shapes = [(r[0], (_decode(r[1]), tuple(r[2]))) if len(r) == 3 else (tuple(map(_decode, r[0])), None) for r in d["shapes"]]
    return program
