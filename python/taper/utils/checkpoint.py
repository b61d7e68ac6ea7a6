"""Trade compute for memory: run a function again in the backward pass instead of keeping its intermediates."""
import taper


class _Checkpoint(taper.autograd.Function):
    @staticmethod
    def forward(ctx, fn, preserve, kwargs, *args):
        ctx.fn, ctx.kwargs = fn, kwargs
        ctx.rng = taper.get_rng_state() if preserve else None
        ctx.tensors = [i for i, a in enumerate(args) if isinstance(a, taper.Tensor)]
        ctx.others = [None if isinstance(a, taper.Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.tensors])
        with taper.no_grad():
            return fn(*args, **kwargs)

    @staticmethod
    def backward(ctx, *grads):
        args = list(ctx.others)
        for i, t in zip(ctx.tensors, ctx.saved_tensors):
            d = t.detach()
            d.requires_grad = t.requires_grad
            args[i] = d
        now = taper.get_rng_state()
        if ctx.rng is not None:
            taper.set_rng_state(ctx.rng)
        with taper.enable_grad():
            outs = ctx.fn(*args, **ctx.kwargs)
        if ctx.rng is not None:
            taper.set_rng_state(now)
        outs = outs if isinstance(outs, tuple) else (outs,)
        pairs = [(o, g) for o, g in zip(outs, grads) if isinstance(o, taper.Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        taper.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None) + tuple(a.grad if isinstance(a, taper.Tensor) else None for a in args)


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, **kwargs):
    """function(*args) whose intermediates are recomputed in backward."""
    return _Checkpoint.apply(function, preserve_rng_state, kwargs, *args)
