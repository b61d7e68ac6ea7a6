"""PyTorch's attention kernel for the CPU and its gradient, written out in operators that Taper fuses.

This happens in the graphs that AOTAutograd has made, not before: what is saved for the backward graph stays the result and the logsumexp of
each row, and the backward graph computes the probabilities again."""
import operator

import torch
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten


class _Writer:
    """Adds calls before a node; each knows its type."""

    def __init__(self, graph, before, mode):
        self.graph, self.before, self.mode = graph, before, mode
        vals = [n.meta["val"] for n in before.all_input_nodes]
        self.fixed = all(isinstance(n, int) for v in vals for n in (*v.shape, *v.stride()))

    def __call__(self, op, *args, **kw):
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(op, args, kw)
        node.meta = {k: v for k, v in self.before.meta.items() if k in ("stack_trace", "nn_module_stack", "seq_nr")}
        # a view would hold on to its base, which is not kept on disk: every value is a tensor of its own
        if self.fixed:  # without a fake mode a call costs a tenth
            v = op(*torch.fx.map_arg(args, self._bare), **torch.fx.map_arg(kw, self._bare))
            v = torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device="meta")
            node.meta["val"] = FakeTensor(self.mode, v, self.before.all_input_nodes[0].meta["val"].device)
        else:
            value = lambda n: n.meta["val"]
            with self.mode:
                v = op(*torch.fx.map_arg(args, value), **torch.fx.map_arg(kw, value))
                node.meta["val"] = torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device=v.device)
        return node

    @staticmethod
    def _bare(node):
        v = node.meta["val"]
        return torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta")

    def number(self, n, x):
        return self(aten.full.default, [], n, dtype=x.meta["val"].dtype, device=x.meta["val"].device)

    def cast(self, x, dtype):
        return x if x.meta["val"].dtype is dtype else self(aten._to_copy.default, x, dtype=dtype)

    def like(self, x, want):
        """x with the strides that PyTorch's kernel gives."""
        if x.meta["val"].stride() == want.stride():
            return x
        order = sorted(range(want.dim()), key=lambda i: -want.stride(i))
        x = self(aten.permute.default, x, order)
        x = self(aten.clone.default, x, memory_format=torch.contiguous_format)
        return self(aten.permute.default, x, [order.index(i) for i in range(want.dim())])

    def heads(self, x, n):
        """Every head of keys or values serves several heads of queries."""
        b, h, s, e = x.meta["val"].shape
        if h == n:
            return x
        x = self(aten.expand.default, self(aten.unsqueeze.default, x, 2), [b, h, n // h, s, e])
        return self(aten.reshape.default, x, [b, n, s, e])

    def of_heads(self, d, x):
        """The gradient of heads()."""
        b, h, s, e = x.meta["val"].shape
        n = d.meta["val"].shape[1]
        return d if n == h else self(aten.sum.dim_IntList, self(aten.reshape.default, d, [b, h, n // h, s, e]), [2])

    def scores(self, q, k, causal, mask, scale):
        turned = self(aten.transpose.int, k, -2, -1)
        s = self(aten.matmul.default, self(aten.mul.Tensor, q, scale), turned)
        if causal:
            seen = self(aten.tril.default, self(aten.ones_like.default, s, dtype=torch.bool))
            s = self(aten.where.self, seen, s, self.number(float("-inf"), s))
        return s if mask is None else self(aten.add.Tensor, s, self.cast(mask, s.meta["val"].dtype))


def _forward(w, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """-> nodes of the result and of the logsumexp"""
    want, rows = w.before.meta["val"]
    dtype, n = q.meta["val"].dtype, q.meta["val"].shape[1]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    q, k, v = (w.cast(x, wide) for x in (q, w.heads(k, n), w.heads(v, n)))
    s = w.scores(q, k, is_causal, attn_mask, _scale(q, scale))
    lse = w(aten.logsumexp.default, s, [-1])
    p = w(aten._softmax.default, s, -1, False)
    if attn_mask is not None:  # rows without any key
        none = w(aten.unsqueeze.default, w(aten.eq.Scalar, lse, float("-inf")), -1)
        p = w(aten.where.self, none, w.number(0.0, p), p)
    return w.like(w.cast(w(aten.matmul.default, p, v), dtype), want), w.like(lse, rows)


def _backward(w, grad, q, k, v, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    """-> nodes of the gradients of q, k and v"""
    given, n = (q, k, v), q.meta["val"].shape[1]
    want, dtype = w.before.meta["val"], q.meta["val"].dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    by = _scale(q, scale)
    grad, out, q, k, v = (w.cast(x, wide) for x in (grad, out, q, w.heads(k, n), w.heads(v, n)))
    s, rows = w.scores(q, k, is_causal, attn_mask, by), w(aten.unsqueeze.default, logsumexp, -1)
    p = w(aten.exp.default, w(aten.sub.Tensor, s, rows))
    if attn_mask is not None:
        p = w(aten.where.self, w(aten.eq.Scalar, rows, float("-inf")), w.number(0.0, p), p)
    along = w(aten.sum.dim_IntList, w(aten.mul.Tensor, grad, out), [-1], True)
    dp = w(aten.matmul.default, grad, w(aten.transpose.int, v, -2, -1))
    ds = w(aten.mul.Tensor, p, w(aten.sub.Tensor, dp, along))
    dq = w(aten.mul.Tensor, w(aten.matmul.default, ds, k), by)
    dk = w(aten.mul.Tensor, w(aten.matmul.default, w(aten.transpose.int, ds, -2, -1), q), by)
    dv = w(aten.matmul.default, w(aten.transpose.int, p, -2, -1), grad)
    each = (dq, w.of_heads(dk, given[1]), w.of_heads(dv, given[2]))
    return [w.like(w.cast(d, dtype), g) for d, g in zip(each, want)]


def _scale(q, scale):
    return q.meta["val"].shape[-1] ** -0.5 if scale is None else scale


BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
RULES = {aten._scaled_dot_product_flash_attention_for_cpu.default: _forward, BACKWARD: _backward}


def _fits(node):
    named = {a.name: v for a, v in zip(node.target._schema.arguments, node.args)} | node.kwargs
    q, k = (named[x].meta["val"] for x in ("query", "key"))
    mask = named.get("attn_mask")
    same = all(isinstance(n, int) for n in (q.shape[1], k.shape[1], q.shape[3])) and q.shape[1] == k.shape[1]
    fixed = same or all(isinstance(n, int) for n in (*q.shape, *k.shape))  # heads() writes sizes down
    return fixed and not named.get("dropout_p") and (mask is None or mask.meta["val"].is_floating_point())


def expand(gm):
    """Writes out the calls whose results are not those of scaled_dot_product_attention alone."""
    found = [n for n in gm.graph.nodes if n.target in RULES and (n.target is BACKWARD or any(u.args[1] == 1 for u in n.users)) and _fits(n)]
    for node in found:
        mode = torch._guards.detect_fake_mode([a.meta["val"] for a in node.all_input_nodes])
        with torch.no_grad():
            parts = RULES[node.target](_Writer(gm.graph, node, mode), *node.args, **node.kwargs)
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(parts[user.args[1]])
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)
    if found:
        gm.recompile()
