"""Parts of a graph that look like a pattern, replaced by another graph."""
import copy as _copy
from typing import NamedTuple

from ._symbolic_trace import symbolic_trace
from .graph import Graph, GraphModule, Node

__all__ = ["Match", "replace_pattern", "replace_pattern_with_filters", "ReplacedPatterns"]


class Match(NamedTuple):
    anchor: Node  # the node that the pattern's result was found at
    nodes_map: dict  # pattern node -> node of the graph


class ReplacedPatterns:
    def __init__(self, anchor, nodes_map, replacements):
        self.anchor, self.nodes_map, self.replacements = anchor, nodes_map, replacements


def _graph_of(g):
    return g if isinstance(g, Graph) else g.graph if isinstance(g, GraphModule) else symbolic_trace(g).graph


def _outputs(graph):
    value = next(n for n in graph.nodes if n.op == "output").args[0]
    return list(value) if isinstance(value, (tuple, list)) else [value]


class _Matcher:
    """pattern: its nodes; inputs stand for anything."""

    def __init__(self, pattern):
        self.pattern, self.map = pattern, {}

    def values(self, p, g):
        if isinstance(p, Node):
            return isinstance(g, Node) and self.node(p, g) or p.op == "placeholder" and not isinstance(g, Node) and self.bind(p, g)
        if isinstance(p, (tuple, list)):
            return isinstance(g, (tuple, list)) and len(p) == len(g) and all(self.values(a, b) for a, b in zip(p, g))
        if isinstance(p, dict):
            return isinstance(g, dict) and p.keys() == g.keys() and all(self.values(p[k], g[k]) for k in p)
        if isinstance(p, slice):
            return isinstance(g, slice) and all(self.values(a, b) for a, b in zip((p.start, p.stop, p.step), (g.start, g.stop, g.step)))
        return type(p) is type(g) and p == g

    def bind(self, p, g):
        if p in self.map:
            return self.map[p] is g
        self.map[p] = g
        return True

    def node(self, p, g):
        if p in self.map:
            return self.map[p] is g
        if p.op == "placeholder":
            return self.bind(p, g)
        if p.op != g.op or (p.op != "get_attr" and p.target != g.target) or len(p.args) != len(g.args):
            return False
        self.map[p] = g
        return self.values(p.args, g.args) and self.values(p.kwargs, g.kwargs)

    def whole(self, ends):
        """Nothing inside is used outside: only the results may be."""
        inner = {g for p, g in self.map.items() if isinstance(g, Node) and p.op != "placeholder"}
        last = {self.map[e] for e in ends}
        return all(u in inner for g in inner - last for u in g.users)


def _matches(graph, pattern):
    ends = [e for e in _outputs(pattern) if isinstance(e, Node)]
    taken, found = set(), []
    for n in reversed(list(graph.nodes)):
        m = _Matcher(pattern)
        if n.op == "output" or not ends or not m.node(ends[-1], n):
            continue
        if len(ends) > 1:  # the other results must be found through what is bound already, or among the later users
            ok = True
            for e in ends[:-1]:
                if e in m.map:
                    continue
                ok = any(_try(m, e, g) for g in graph.nodes if g.op == e.op and g.op != "output")
                if not ok:
                    break
            if not ok:
                continue
        inner = {g for p, g in m.map.items() if isinstance(g, Node) and p.op != "placeholder"}
        if inner & taken or not m.whole(ends):
            continue
        taken |= inner
        found.append((n, ends, m.map))
    return found[::-1]


def _try(m, p, g):
    was = dict(m.map)
    if m.node(p, g):
        return True
    m.map = was
    return False


def replace_pattern_with_filters(gm, pattern, replacement=None, match_filters=None, ignore_literals=False, replacement_callback=None):
    """Every part of gm that looks like pattern becomes replacement; inputs of the two stand for each other in order."""
    graph, pat = gm.graph, _graph_of(pattern)
    out, changed = [], {}
    for anchor, ends, found in _matches(graph, pat):
        if match_filters and not all(f(Match(anchor, found), graph, pat) for f in match_filters):
            continue
        rep = replacement_callback(Match(anchor, found), graph, pat) if replacement_callback else _graph_of(replacement)
        ins = [n for n in pat.nodes if n.op == "placeholder"]
        values = {r: changed.get(found.get(p), found.get(p)) for p, r in zip(ins, [n for n in rep.nodes if n.op == "placeholder"])}
        order = {n: i for i, n in enumerate(graph.nodes)}
        last = max((found[e] for e in ends), key=order.get)
        new = []
        with graph.inserting_before(last):
            for n in rep.nodes:
                if n.op in ("placeholder", "output"):
                    continue
                values[n] = graph.node_copy(n, lambda a: values[a])
                new.append(values[n])
        results = _outputs(rep)
        for e, r in zip(ends, results):
            value = values[r] if isinstance(r, Node) else r
            found[e].replace_all_uses_with(value)
            changed[found[e]] = value
        for p in reversed(list(pat.nodes)):
            g = found.get(p)
            if p.op not in ("placeholder", "output") and isinstance(g, Node) and not g.users:
                graph.erase_node(g)
        out.append(ReplacedPatterns(anchor, found, new))
        if isinstance(replacement, GraphModule):
            _take_modules(gm, replacement)
    gm.recompile()
    return out


def _take_modules(gm, other):
    for name, m in other.named_children():
        if not hasattr(gm, name):
            gm.add_module(name, _copy.deepcopy(m))


def replace_pattern(gm, pattern, replacement):
    """replace_pattern(gm, f, g): every part of gm that does what f does becomes what g does. Returns what was found."""
    return [Match(r.anchor, r.nodes_map) for r in replace_pattern_with_filters(gm, pattern, replacement)]
