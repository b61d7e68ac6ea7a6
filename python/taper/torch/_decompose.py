"""Operators of PyTorch's that become others before Taper sees them: a table for AOTAutograd.

Core decompositions of PyTorch's are taken for what Taper has no row for. The rules here are for what those lack: lists of tensors
(_foreach_*), fused optimizers, drawing apart from using random numbers, copies of views."""
import torch
from ._import import has_row

aten = torch.ops.aten
# Rules that PyTorch has outside of its core table.
ALSO = ("_batch_norm_with_update_functional", "batch_norm_backward", "rrelu_with_noise_backward", "_weight_norm_interface", "_weight_norm_interface_backward", "angle")


def copy(self, src, non_blocking=False):
    return aten._to_copy(src, dtype=self.dtype).expand(self.shape).clone() if src.shape != self.shape else \
        aten._to_copy(src, dtype=self.dtype) if src.dtype != self.dtype else src.clone()


def batch_norm_no_training(x, weight, bias, mean, var, momentum, eps):
    return aten._native_batch_norm_legit_functional(x, weight, bias, mean, var, False, momentum, eps)[:3]


def native_dropout(x, p, train):
    """PyTorch's generator draws the mask; the rest joins the loops around it."""
    if train is False or p == 0 or p == 1:
        return NotImplemented
    mask = torch.empty_like(x, dtype=torch.bool)
    if mask.is_contiguous():
        mask = aten.bernoulli.p(mask, 1 - p)
    else:  # PyTorch's kernel fills the memory of a mask with x's strides in order; the result of bernoulli.p is contiguous
        order = sorted(range(x.dim()), key=lambda i: -mask.stride(i))
        mask = aten.bernoulli.p(torch.empty([x.shape[i] for i in order], dtype=torch.bool, device=x.device), 1 - p)
        mask = mask.permute([order.index(i) for i in range(x.dim())])
    return x * mask * (1.0 / (1.0 - p)), mask


def batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    return aten.native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


def _lists(of):
    """The rule of a _foreach_ operator: of() for each tensor of the lists."""
    def rule(*args, **kw):
        n = next(len(a) for a in args if isinstance(a, (list, tuple)))
        return [of(*[a[i] if isinstance(a, (list, tuple)) else a for a in args], **kw) for i in range(n)]
    return rule


FOREACH = {
    "norm": lambda x, ord=2, dtype=None: aten.linalg_vector_norm(x, ord, dtype=dtype),
    "addcmul": lambda x, a, b, value=1: aten.addcmul(x, a, b, value=value),
    "addcdiv": lambda x, a, b, value=1: aten.addcdiv(x, a, b, value=value),
    "maximum": lambda x, o: aten.maximum(x, o) if isinstance(o, torch.Tensor) else aten.clamp_min(x, o),
    "minimum": lambda x, o: aten.minimum(x, o) if isinstance(o, torch.Tensor) else aten.clamp_max(x, o),
    "clamp_min": lambda x, o: aten.clamp_min(x, o), "clamp_max": lambda x, o: aten.clamp_max(x, o),
    "zero": lambda x: aten.zeros_like(x), "copy": copy, "max": lambda x: aten.max(x),
}


def _foreach():
    table = {}
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::_foreach_") or full.endswith("out"):
            continue
        name, _, overload = full[6:].partition(".")
        base = name[len("_foreach_"):]
        if base.endswith("_") or "powsum" in base:  # in place: AOTAutograd has made it functional
            continue
        of = FOREACH.get(base) or getattr(aten, base, None)
        if of is not None:
            table[getattr(getattr(aten, name), overload or "default")] = _lists(of)
    return table


def _adam(decoupled):
    def rule(params, grads, avgs, squares, maxima, steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale=None,
             found_inf=None):
        if grad_scale is not None or found_inf is not None:
            return NotImplemented
        out, new_avg, new_sq, new_max = [], [], [], []
        for i, (p, g, m, v, t) in enumerate(zip(params, grads, avgs, squares, steps)):
            g = -g if maximize else g
            if decoupled:
                p = p * (1 - lr * weight_decay)
            elif weight_decay != 0:
                g = g + weight_decay * p
            m = m + (1 - beta1) * (g - m)
            v = v * beta2 + (1 - beta2) * (g * g)
            top = v
            if amsgrad:
                top = torch.maximum(maxima[i], v)
                new_max.append(top)
            # the corrections in double: the fused kernel computes them so
            c1, c2 = 1 - torch.pow(beta1, t.double()), 1 - torch.pow(beta2, t.double())
            out.append(p - (lr / c1).to(p.dtype) * m / (top.sqrt() / c2.sqrt().to(p.dtype) + eps))
            new_avg.append(m)
            new_sq.append(v)
        return out, [g.clone() for g in grads], new_avg, new_sq, new_max
    return rule


def _sgd(params, grads, buffers, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale=None,
         found_inf=None):
    if grad_scale is not None or found_inf is not None:
        return NotImplemented
    out, new = [], []
    for i, (p, g) in enumerate(zip(params, grads)):
        g = -g if maximize else g
        if weight_decay != 0:
            g = g + weight_decay * p
        if momentum != 0:
            b = g.clone() if is_first_step else buffers[i] * momentum + g * (1 - dampening)
            new.append(b)
            g = g + b * momentum if nesterov else b
        out.append(p - lr * g)
    return out, [g.clone() for g in grads], new


def _fused():
    return {op: rule for name, rule in (("_fused_adam", _adam(False)), ("_fused_adamw", _adam(True)), ("_fused_sgd", _sgd))
            if hasattr(aten, name) for op in (getattr(getattr(aten, name), o, None) for o in ("default", "tensor_lr")) if op is not None}


def _copies_of_views():
    """x_copy: the view, in memory of its own."""
    table = {}
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full[6:].partition(".")
        view = getattr(aten, name[:-5], None) if full.startswith("aten::") and name.endswith("_copy") and not name.startswith("_") else None
        overload = overload or "default"
        if view is None or "out" in overload or overload not in view.overloads():
            continue
        op = getattr(view, overload)
        if any(r.alias_info for r in op._schema.returns):
            table[getattr(getattr(aten, name), overload)] = lambda *a, _op=op, **k: torch.utils._pytree.tree_map(
                torch.clone, _op(*a, **k))
    return table


def table():
    core = dict(torch._decomp.core_aten_decompositions())
    core.pop(aten._scaled_dot_product_flash_attention_for_cpu.default, None)  # its backward would miss the logsumexp
    rules = {op: fn for op, fn in core.items() if isinstance(op, torch._ops.OpOverload) and not has_row(op)}
    for name in ALSO:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        fn = torch._decomp.decomposition_table.get(op)
        if fn is not None and not has_row(op):
            rules[op] = fn
    rules.update({op: fn for part in (_foreach(), _fused(), _copies_of_views()) for op, fn in part.items() if not has_row(op)})
    rules[aten.copy.default] = copy
    rules[aten._native_batch_norm_legit_no_training.default] = batch_norm_no_training  # PyTorch's rule calls an operator that writes
    rules[aten._native_batch_norm_legit.no_stats] = batch_norm_no_stats
    rules[aten.native_dropout.default] = native_dropout
    return rules
