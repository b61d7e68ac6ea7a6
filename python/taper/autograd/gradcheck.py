"""Comparison of derivatives with finite differences. A complex tensor counts as its real and imaginary parts."""
import math

from .. import _C


class GradcheckError(RuntimeError):
    """The derivatives differ."""


def _outputs(out):
    outs = (out,) if isinstance(out, _C.Tensor) else tuple(out)
    return tuple(o for o in outs if isinstance(o, _C.Tensor) and (o.is_floating_point() or o.is_complex()))


def _parts(t):
    """t, or if it is complex its parts as a view with one more dimension."""
    return _C._op_functions[""]["view_as_real"](t) if t.is_complex() else t


def _chosen(out, which):
    outs = _outputs(out)
    return [outs[i] for i in which]


def _flat(t):
    return _parts(t.detach()).contiguous().view(-1).tolist() if t.numel() else []


def _numerical(fn, inputs, which, eps, outs=None):
    """d out[j] / d inputs[which][i] by central differences: a list of rows, one per element of the input."""
    x = _parts(inputs[which].data)
    mode = _C._set_grad_enabled(False)
    rows = []
    try:
        for index in _indices(tuple(x.shape)):
            at = x
            for k in index:
                at = _pick(at, k)
            old = at.item()

            def value(v):
                at.fill_(v)
                out = fn(*inputs)
                chosen = _outputs(out) if outs is None else _chosen(out, outs)
                return [e for o in chosen for e in _flat(o.clone())]
            hi, lo = value(old + eps), value(old - eps)
            at.fill_(old)
            rows.append([(a - b) / (2 * eps) for a, b in zip(hi, lo)])
    finally:
        _C._set_grad_enabled(mode)
    return rows


def _pick(t, i):
    return t.as_strided(tuple(t.shape)[1:], tuple(t.stride())[1:], t.storage_offset() + i * t.stride(0))


def _indices(shape):
    if not shape:
        yield ()
        return
    for i in range(shape[0]):
        for rest in _indices(shape[1:]):
            yield (i,) + rest


def _analytical(fn, inputs, diff, create_graph=False):
    """For every differentiable input, the same table from backward."""
    outs = _outputs(fn(*inputs))
    which = [i for i, o in enumerate(outs) if o.requires_grad]
    outs = [outs[i] for i in which]
    table = {i: [[] for _ in range(_parts(inputs[i].detach()).numel())] for i in diff}
    zeros = _C._op_functions[""]["zeros"]
    for o in outs:
        shape = tuple(_parts(o.detach()).shape)
        for j in range(math.prod(shape)):
            g = zeros(tuple(o.shape), dtype=o.dtype)
            at = _parts(g)
            k = j
            for d in range(len(shape)):
                stride = 1
                for later in shape[d + 1:]:
                    stride *= later
                at = _pick(at, k // stride)
                k %= stride
            at.fill_(1)
            got = _C._run_backward((o,), (g,), True, False, tuple(inputs[i] for i in diff), False, True)
            columns = dict(zip(diff, got))
            for i in diff:
                values = _flat(columns[i]) if columns[i] is not None else [0.0] * len(table[i])
                for row, v in zip(table[i], values):
                    row.append(v)
    return table, which


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0,
              check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False, fast_mode=False,
              check_forward_ad=False, check_backward_ad=True, masked=None, check_batched_forward_grad=False):
    """Are the gradients of func at inputs those of central differences? Inputs should be float64 or complex128."""
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    diff = [i for i, t in enumerate(inputs) if isinstance(t, _C.Tensor) and t.requires_grad]
    if not diff:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have "
                         "requires_grad=True.")
    try:
        analytical, outs = _analytical(func, inputs, diff)
        for i in diff:
            numerical = _numerical(func, inputs, i, eps, outs)
            for k, (a, n) in enumerate(zip(analytical[i], numerical)):
                for j, (x, y) in enumerate(zip(a, n)):
                    if not (abs(x - y) <= atol + rtol * abs(y)):
                        raise GradcheckError(
                            f"Jacobian mismatch for output element {j} with respect to element {k} of input {i}:\n"
                            f"numerical: {y}\nanalytical: {x}")
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3,
                  gen_non_contig_grad_outputs=False, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
                  check_grad_dtypes=False, check_batched_grad=False, check_fwd_over_rev=False,
                  check_rev_over_rev=True, fast_mode=False, masked=False):
    """gradcheck of the gradient itself."""
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    outs = _outputs(func(*inputs))
    randn = _C._op_functions[""]["randn"]
    if grad_outputs is None:
        grad_outputs = tuple(randn(tuple(o.shape), dtype=o.dtype).requires_grad_() for o in outs)
    else:
        grad_outputs = (grad_outputs,) if isinstance(grad_outputs, _C.Tensor) else tuple(grad_outputs)
    n = len(grad_outputs)

    def gradient(*args):
        xs, gs = args[:-n], args[-n:]
        outs = _outputs(func(*xs))
        used = [(o, g) for o, g in zip(outs, gs) if o.requires_grad]
        wanted = tuple(x for x in xs if isinstance(x, _C.Tensor) and x.requires_grad)
        mode = _C._set_grad_enabled(True)
        try:
            got = _C._run_backward(tuple(o for o, _ in used), tuple(g for _, g in used), True, True, wanted, False,
                                   True)
        finally:
            _C._set_grad_enabled(mode)
        return tuple(g for g in got if g is not None)

    def under_grad(*args):
        mode = _C._set_grad_enabled(True)
        try:
            return gradient(*args)
        finally:
            _C._set_grad_enabled(mode)
    return gradcheck(under_grad, inputs + grad_outputs, eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception)


def get_numerical_jacobian(fn, inputs, target=None, eps=1e-3):
    return [_numerical(fn, inputs, i, eps) for i, t in enumerate(inputs) if t.requires_grad]
