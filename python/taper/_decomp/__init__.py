"""torch._decomp: what operators are made of, by operator. The compiler takes composite operators apart itself; tables add to that or override it."""
decomposition_table = {}


def register_decomposition(ops, registry=None, *, type="post_autograd", unsafe=False):
    """A decorator: the function is what these operators are made of."""
    table = decomposition_table if registry is None else registry

    def keep(fn):
        for op in ops if isinstance(ops, (list, tuple, set)) else (ops,):
            table[op] = fn
        return fn
    return keep


def get_decompositions(ops, type="post_autograd"):
    """The entries of the table for these operators, and for all overloads where a packet is given."""
    wanted = set(ops)
    return {op: fn for op, fn in decomposition_table.items() if op in wanted or getattr(op, "overloadpacket", None) in wanted}


def remove_decompositions(table, ops):
    for op in list(table):
        if op in ops or getattr(op, "overloadpacket", None) in ops:
            del table[op]


def core_aten_decompositions():
    """What export().run_decompositions() uses beside the compiler's own."""
    return dict(decomposition_table)
