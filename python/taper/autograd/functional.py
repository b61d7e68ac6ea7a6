"""Jacobians, Hessians and their products, by backward passes."""
from .. import _C


def _ops(name):
    return _C._op_functions[""][name]


def _inputs(inputs, create_graph):
    single = isinstance(inputs, _C.Tensor)
    xs = (inputs,) if single else tuple(inputs)
    xs = tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in xs)
    return single, xs


def _grad(outs, xs, gs, create, retain=True):
    return _C._run_backward(outs, gs, retain, create, xs, False, True)


def _zeros_like(t):
    return _ops("zeros")(tuple(t.shape), dtype=t.dtype)


def _call(func, xs):
    mode = _C._set_grad_enabled(True)
    try:
        out = func(*xs)
    finally:
        _C._set_grad_enabled(mode)
    single = isinstance(out, _C.Tensor)
    outs = (out,) if single else tuple(out)
    for o in outs:
        if not isinstance(o, _C.Tensor):
            raise TypeError("The outputs of the user-provided function must be either a Tensor or a tuple of Tensors")
    return single, outs


def _unused(what, strict):
    if strict:
        raise RuntimeError(f"{what} of the user-provided function is independent of the inputs. This is not allowed "
                           "in strict mode.")


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v^T J)"""
    single, xs = _inputs(inputs, create_graph)
    out_single, outs = _call(func, xs)
    if v is None:
        if len(outs) != 1 or outs[0].numel() != 1:
            raise RuntimeError("The vector v can only be None if the user-provided function returns a single Tensor "
                               "with a single element.")
        vs = (_ops("ones")(tuple(outs[0].shape), dtype=outs[0].dtype),)
    else:
        vs = (v,) if isinstance(v, _C.Tensor) else tuple(v)
    live = [(o, g) for o, g in zip(outs, vs) if o.requires_grad]
    if len(live) < len(outs):
        _unused("Output", strict)
    got = _grad(tuple(o for o, _ in live), xs, tuple(g for _, g in live), create_graph, create_graph) if live \
        else (None,) * len(xs)
    res = tuple(_zeros_like(x) if g is None else g for g, x in zip(got, xs))
    if not create_graph:
        outs = tuple(o.detach() for o in outs)
    return outs[0] if out_single else outs, res[0] if single else res


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), J v), by two backward passes."""
    single, xs = _inputs(inputs, create_graph)
    if v is None:
        if len(xs) != 1 or xs[0].numel() != 1:
            raise RuntimeError("The vector v can only be None if the input to the user-provided function is a single "
                               "Tensor with a single element.")
        vs = (_ops("ones")(tuple(xs[0].shape), dtype=xs[0].dtype),)
    else:
        vs = (v,) if isinstance(v, _C.Tensor) else tuple(v)
    out_single, outs = _call(func, xs)
    dummy = tuple(_zeros_like(o).requires_grad_() for o in outs)
    live = [(o, d) for o, d in zip(outs, dummy) if o.requires_grad]
    mode = _C._set_grad_enabled(True)
    try:
        got = _grad(tuple(o for o, _ in live), xs, tuple(d for _, d in live), True)
    finally:
        _C._set_grad_enabled(mode)
    pairs = [(g, w) for g, w in zip(got, vs) if g is not None and g.requires_grad]
    res = _grad(tuple(g for g, _ in pairs), dummy, tuple(w for _, w in pairs), create_graph) if pairs \
        else (None,) * len(outs)
    res = tuple(_zeros_like(o) if g is None else g for g, o in zip(res, outs))
    if not create_graph:
        outs = tuple(o.detach() for o in outs)
    return outs[0] if out_single else outs, res[0] if out_single else res


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """d func / d inputs: shape of the output followed by shape of the input."""
    single, xs = _inputs(inputs, create_graph)
    out_single, outs = _call(func, xs)
    result = []
    for o in outs:
        rows = [[] for _ in xs]
        _, elements = _call(lambda t: tuple(t.reshape(-1).unbind()), (o,))  # on the tape, whatever the caller's mode
        for j in range(o.numel()):
            if o.requires_grad:
                got = _grad((elements[j],), xs, None, create_graph)
            else:
                _unused(f"Output {j}", strict)
                got = (None,) * len(xs)
            for row, g, x in zip(rows, got, xs):
                row.append(_zeros_like(x) if g is None else g)
        result.append(tuple(_ops("stack")(row).view(tuple(o.shape) + tuple(x.shape)) if row
                            else _ops("zeros")(tuple(o.shape) + tuple(x.shape), dtype=x.dtype)
                            for row, x in zip(rows, xs)))
    result = tuple(r[0] if single else r for r in result)
    return result[0] if out_single else result


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Second derivatives of a function with one scalar result."""
    single = isinstance(inputs, _C.Tensor)

    def gradient(*xs):
        out = func(*xs)
        if not isinstance(out, _C.Tensor) or out.numel() != 1:
            raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")
        got = _grad((out.reshape(()),), xs, None, True)
        got = tuple(_zeros_like(x) if g is None else g for g, x in zip(got, xs))
        return got[0] if single else got
    return jacobian(gradient, inputs, create_graph=create_graph, strict=strict)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v^T H)"""
    single, xs = _inputs(inputs, create_graph)
    _, outs = _call(func, xs)
    mode = _C._set_grad_enabled(True)
    try:
        g = _grad(outs, xs, None, True)
    finally:
        _C._set_grad_enabled(mode)
    vs = (v,) if isinstance(v, _C.Tensor) else tuple(v)
    pairs = [(a, w) for a, w in zip(g, vs) if a is not None and a.requires_grad]
    res = _grad(tuple(a for a, _ in pairs), xs, tuple(w for _, w in pairs), create_graph) if pairs \
        else (None,) * len(xs)
    res = tuple(_zeros_like(x) if r is None else r for r, x in zip(res, xs))
    out = outs[0] if create_graph else outs[0].detach()
    return out, res[0] if single else res


hvp = vhp  # the Hessian is symmetric
