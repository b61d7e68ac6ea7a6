"""Nested containers as a flat list of leaves and a description that rebuilds them."""
import json as _json
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple


class KeyEntry:
    """How a container is entered: a key, an index or an attribute."""


@dataclass(frozen=True)
class SequenceKey(KeyEntry):
    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey(KeyEntry):
    key: Any

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey(KeyEntry):
    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, obj):
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    type: type
    flatten_fn: Callable
    unflatten_fn: Callable
    flatten_with_keys_fn: Callable
    serialized_type_name: Any = None
    to_dumpable: Any = None
    from_dumpable: Any = None


SUPPORTED_NODES = {}
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
_CONSTANTS = set()


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
                         from_dumpable_context=None, flatten_with_keys_fn=None):
    """flatten_fn(obj) -> (children, context); unflatten_fn(children, context) -> obj."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name,
                                   to_dumpable_context, from_dumpable_context)


_register_pytree_node = register_pytree_node


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """The fields of a dataclass become children."""
    import dataclasses
    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init]
    names = [n for n in names if n not in (drop_field_names or ())]
    register_pytree_node(cls, lambda o: ([getattr(o, n) for n in names], None),
                         lambda ch, _: cls(**dict(zip(names, ch))), serialized_type_name=serialized_type_name,
                         flatten_with_keys_fn=lambda o: ([(GetAttrKey(n), getattr(o, n)) for n in names], None))


def register_constant(cls):
    """Objects of cls are part of the structure, not leaves; they are compared with ==."""
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    register_pytree_node(cls, lambda o: ([], ConstantNode(o)), lambda ch, c: c.value,
                         flatten_with_keys_fn=lambda o: ([], ConstantNode(o)))
    _CONSTANTS.add(cls)


def is_constant_class(cls):
    return isinstance(cls, type) and cls in _CONSTANTS


@dataclass(frozen=True)
class ConstantNode:
    value: Any


def _dict_flatten(d):
    return list(d.values()), list(d.keys())


def _keys_of(flatten, key):
    def f(o):
        ch, ctx = flatten(o)
        return [(key(o, i, ctx), c) for i, c in enumerate(ch)], ctx

    return f


def _deque_unflatten(ch, maxlen):
    return deque(ch, maxlen=maxlen)


_seq = lambda o, i, ctx: SequenceKey(i)
_map = lambda o, i, ctx: MappingKey(ctx[i])


class _Results:
    """Stands for the types of taper.return_types, which are made when an operator first returns one."""


for _t, _fl, _un, _k in (
        (_Results, lambda t: (list(t), type(t)), lambda ch, cls: cls(ch), _seq),
        (tuple, lambda t: (list(t), None), lambda ch, _: tuple(ch), _seq),
        (list, lambda l: (list(l), None), lambda ch, _: list(ch), _seq),
        (dict, _dict_flatten, lambda ch, ks: dict(zip(ks, ch)), _map),
        (namedtuple, lambda t: (list(t), type(t)), lambda ch, cls: cls(*ch), lambda o, i, ctx: GetAttrKey(o._fields[i])),
        (OrderedDict, _dict_flatten, lambda ch, ks: OrderedDict(zip(ks, ch)), _map),
        (defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d.keys())]),
         lambda ch, c: defaultdict(c[0], zip(c[1], ch)), lambda o, i, ctx: MappingKey(ctx[1][i])),
        (deque, lambda d: (list(d), d.maxlen), _deque_unflatten, _seq)):
    register_pytree_node(_t, _fl, _un, flatten_with_keys_fn=_keys_of(_fl, _k))


def is_namedtuple(obj):
    cls = obj if isinstance(obj, type) else type(obj)
    return is_namedtuple_class(cls)


def is_namedtuple_class(cls):
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple) and hasattr(cls, "_make")


def _get_node_type(tree):
    cls = type(tree)
    if cls in SUPPORTED_NODES or not isinstance(tree, tuple):
        return cls
    if is_namedtuple_class(cls):
        return namedtuple
    return _Results if is_structseq_class(cls) and cls.__module__.endswith(".return_types") else cls


def is_structseq_class(cls):
    """Is it a named tuple made by C code, as the results of operators are?"""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields") and hasattr(cls, "n_unnamed_fields")


def is_structseq(obj):
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def tree_is_leaf(tree, is_leaf=None):
    if is_leaf is not None and is_leaf(tree):
        return True
    return _get_node_type(tree) not in SUPPORTED_NODES


class TreeSpec:
    """The shape of a tree: type, context and the specs of the children. A leaf has type None."""

    __slots__ = ("type", "context", "children_specs", "num_nodes", "num_leaves", "num_children")

    def __init__(self, type, context, children_specs):
        self.type, self.context, self.children_specs = type, context, children_specs
        leaf = type is None
        self.num_nodes = 1 + sum(c.num_nodes for c in children_specs)
        self.num_leaves = 1 if leaf else sum(c.num_leaves for c in children_specs)
        self.num_children = len(children_specs)

    def is_leaf(self):
        return self.type is None

    def children(self):
        return list(self.children_specs)

    def child(self, i):
        return self.children_specs[i]

    def unflatten(self, leaves):
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a "
                             f"pytree that holds {self.num_leaves} items ({self}).")
        return self._build(iter(leaves))

    def _build(self, it):
        if self.type is None:
            return next(it)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(it) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree):
        """The subtrees of tree at the places of this spec's leaves."""
        out = []
        self._up_to(tree, out)
        return out

    def _up_to(self, tree, out):
        if self.type is None:
            out.append(tree)
            return
        kind = _get_node_type(tree)
        dicts = (dict, OrderedDict, defaultdict)
        if kind is not self.type and not (kind in dicts and self.type in dicts):
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        ch, ctx = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(ch) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(ch)}.")
        if self.type in dicts and kind in dicts:
            want = self.context[1] if self.type is defaultdict else self.context
            if set(want) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {sorted(map(str, want))}, got {sorted(map(str, tree))}.")
            ch = [tree[k] for k in want]
        elif ctx != self.context and self.type is not deque:
            raise ValueError(f"Node context mismatch for node type {self.type!r}: expected {self.context!r}, got {ctx!r}.")
        for c, sub in zip(self.children_specs, ch):
            c._up_to(sub, out)

    def __eq__(self, other):
        return (self is other or isinstance(other, TreeSpec) and self.type is other.type and self.context == other.context
                and self.children_specs == other.children_specs)

    def __hash__(self):
        ctx = self.context
        if self.type in (dict, OrderedDict):
            ctx = tuple(map(repr, ctx))
        elif self.type is defaultdict:
            ctx = (ctx[0], tuple(map(repr, ctx[1])))
        try:
            return hash((self.type, ctx, tuple(self.children_specs)))
        except TypeError:
            return hash((self.type, tuple(self.children_specs)))

    def __repr__(self, indent=0):
        if self.type is None:
            return "*"
        head = f"TreeSpec({self.type.__name__}, {self.context}, ["
        if not self.children_specs:
            return head + "])"
        indent += 2
        parts = [c.__repr__(indent) for c in self.children_specs]
        return head + parts[0] + "".join(",\n" + " " * indent + p for p in parts[1:]) + "])"


class LeafSpec(TreeSpec):
    __slots__ = ()

    def __init__(self):
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def treespec_leaf():
    return _LEAF


def _flatten(tree, leaves, is_leaf):
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _get_node_type(tree)
    ch, ctx = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, ctx, [_flatten(c, leaves, is_leaf) for c in ch])


def tree_flatten(tree, is_leaf=None):
    """(leaves, spec) of a tree of containers."""
    leaves = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves, treespec):
    """The tree with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item "
                        f"of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_iter(tree, is_leaf=None):
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for c in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(c, is_leaf)


def tree_leaves(tree, is_leaf=None):
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """A tree of func(leaf, leaves of the other trees at the same place ...)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    flat = [leaves] + [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(map(func, *flat))


def tree_map_(func, tree, *rests, is_leaf=None):
    leaves, spec = tree_flatten(tree, is_leaf)
    deque(map(func, *([leaves] + [spec.flatten_up_to(r) for r in rests])), maxlen=0)
    return tree


def map_only(type_or_types_or_pred, /):
    """Decorates a function of one leaf so that other leaves pass through."""
    if isinstance(type_or_types_or_pred, type) or isinstance(type_or_types_or_pred, tuple):
        pred = lambda x: isinstance(x, type_or_types_or_pred)
    elif callable(type_or_types_or_pred):
        pred = type_or_types_or_pred
    else:
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")
    return lambda func: lambda x: func(x) if pred(x) else x


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(t, /, pred, tree, is_leaf=None):
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, t))


def tree_any_only(t, /, pred, tree, is_leaf=None):
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, t))


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """tree's leaves repeated to fill treespec, or None when it does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) is not treespec.type:
        return None
    ch, ctx = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(ch) != treespec.num_children or ctx != treespec.context:
        return None
    out = []
    for c, s in zip(ch, treespec.children_specs):
        part = _broadcast_to_and_flatten(c, s, is_leaf)
        if part is None:
            return None
        out += part
    return out


def keystr(kp):
    """[0]['a'].b"""
    return "".join(map(str, kp))


def key_get(obj, kp):
    for k in kp:
        obj = k.get(obj)
    return obj


def _with_path(tree, path, out, is_leaf):
    if tree_is_leaf(tree, is_leaf):
        out.append((path, tree))
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}.")
    for k, c in node.flatten_with_keys_fn(tree)[0]:
        _with_path(c, path + (k,), out, is_leaf)


def tree_flatten_with_path(tree, is_leaf=None):
    out = []
    _with_path(tree, (), out, is_leaf)
    return out, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    keyed, spec = tree_flatten_with_path(tree, is_leaf)
    flat = [[k for k, _ in keyed], [v for _, v in keyed]] + [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(map(func, *flat))


_NAMES = {"builtins.tuple": tuple, "builtins.list": list, "builtins.dict": dict, "collections.OrderedDict": OrderedDict,
          "collections.deque": deque}


def treespec_dumps(treespec, protocol=None):
    """The spec as JSON text."""
    def dump(s):
        if s.type is None:
            return {"type": None, "context": None, "children_spec": []}
        name = next((n for n, t in _NAMES.items() if t is s.type), SUPPORTED_NODES[s.type].serialized_type_name)
        if name is None:
            raise NotImplementedError(f"Serializing {s.type} in pytree is not registered.")
        enc = SUPPORTED_NODES[s.type].to_dumpable
        return {"type": name, "context": _json.dumps(enc(s.context) if enc else s.context),
                "children_spec": [dump(c) for c in s.children_specs]}

    return _json.dumps([1, dump(treespec)])


def treespec_loads(serialized):
    def load(d):
        if d["type"] is None:
            return _LEAF
        kind = _NAMES.get(d["type"]) or next((t for t, n in SUPPORTED_NODES.items() if n.serialized_type_name == d["type"]), None)
        if kind is None:
            raise NotImplementedError(f"Deserializing {d['type']} in pytree is not registered.")
        dec, ctx = SUPPORTED_NODES[kind].from_dumpable, _json.loads(d["context"])
        return TreeSpec(kind, dec(ctx) if dec else ctx, [load(c) for c in d["children_spec"]])

    version, data = _json.loads(serialized)
    if version != 1:
        raise ValueError(f"Unknown protocol {version}.")
    return load(data)


def treespec_pprint(treespec):
    return repr(treespec)


def _cxx_pytree_exists():
    return False


# --- functions of the built-in containers, under the names that other libraries register theirs with ---------------
PyTree = Any
Context = Any


def _dict_unflatten(values, context):
    return dict(zip(context, values))


def _dict_flatten_with_keys(d):
    values, context = _dict_flatten(d)
    return [(MappingKey(k), v) for k, v in zip(context, values)], context


def _list_flatten(d):
    return list(d), None


def _list_flatten_with_keys(d):
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _list_unflatten(values, context):
    return list(values)


def _tuple_flatten(d):
    return list(d), None


def _tuple_flatten_with_keys(d):
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _tuple_unflatten(values, context):
    return tuple(values)


def _namedtuple_flatten(d):
    return list(d), type(d)


def _namedtuple_unflatten(values, context):
    return context(*values)


def _ordereddict_flatten(d):
    return list(d.values()), list(d.keys())


def _ordereddict_unflatten(values, context):
    return OrderedDict(zip(context, values))


def _register_pytree_node(cls, flatten_fn, unflatten_fn, to_str_fn=None, maybe_from_str_fn=None, **kwargs):
    """The older name of register_pytree_node."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs)


def _is_leaf(tree, is_leaf=None):
    return tree_is_leaf(tree, is_leaf)
