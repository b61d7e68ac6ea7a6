"""Trade compute for memory: run a function again in the backward pass instead of keeping its intermediates."""
import contextlib
import enum
import warnings

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


CheckpointFunction = _Checkpoint


class CheckpointPolicy(enum.Enum):
    """What a policy says of an operator's result."""
    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD = range(5)


class SelectiveCheckpointContext:
    """What a policy is told: is this the second run of the function?"""

    def __init__(self, *, is_recompute):
        self.is_recompute = is_recompute


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """For context_fn= of checkpoint(). Everything is computed again whatever the policy says: values are the same, memory is the least."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def noop_context_fn():
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs):
    """The tensors of a tuple, detached, with their requires_grad."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(t.detach().requires_grad_(t.requires_grad) if isinstance(t, taper.Tensor) else t for t in inputs)


def check_backward_validity(inputs):
    if not any(t.requires_grad for t in inputs if isinstance(t, taper.Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args):
    """(indices, states) of the random number generators of the GPUs that these tensors are on."""
    found = []
    taper.utils._pytree.tree_map_only(taper.Tensor, lambda t: found.append(t.get_device()) if t.is_cuda else None, args)
    found = sorted(set(found))
    return found, [taper.cuda.get_rng_state(d) for d in found]


def set_device_states(devices, states, *, device_type=None):
    """Takes back what get_device_states read."""
    for d, s in zip(devices, states):
        taper.cuda.set_rng_state(s, d)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """A sequence of modules in segments: what lies inside a segment is computed again in backward."""
    functions = list(functions.children()) if isinstance(functions, taper.nn.Sequential) else list(functions)
    size = max(len(functions) // segments, 1)

    def run(part):
        def f(x):
            for m in part:
                x = m(x)
            return x
        return f
    at = 0
    for _ in range(segments - 1):
        input = checkpoint(run(functions[at:at + size]), input, use_reentrant=bool(use_reentrant), **kwargs)
        at += size
    return run(functions[at:])(input)


class _Again:
    """Stands for the tensors that a call saved for backward: the call is made once more when the first of them is asked for."""

    def __init__(self, fn, preserve, contexts):
        self.fn, self.contexts, self.saved, self.made = fn, contexts, 0, {}
        self.rng, self.cast = taper.get_rng_state() if preserve else None, [taper._C._get_autocast(k) for k in ("cpu", "cuda")]

    def pack(self, t):
        self.saved += 1
        return self.saved - 1

    def unpack(self, i):
        if i not in self.made:
            self.run()
        return self.made.pop(i)

    def run(self):
        made, now, cast = {}, taper.get_rng_state(), [taper._C._set_autocast(*c) for c in self.cast]

        def keep(t):
            made[len(made)] = t.detach()
            return len(made) - 1
        if self.rng is not None:
            taper.set_rng_state(self.rng)
        try:
            with self.contexts, taper.enable_grad(), taper.autograd.graph.saved_tensors_hooks(keep, made.__getitem__):
                self.fn()
        finally:
            for c in cast:
                taper._C._set_autocast(*c)
            if self.rng is not None:
                taper.set_rng_state(now)
        if len(made) != self.saved:
            raise RuntimeError(f"taper.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                               f"Number of tensors saved during forward: {self.saved}\nNumber of tensors saved during recomputation: {len(made)}")
        self.made = made


def _traced():
    """Whether this code is being captured."""
    return taper._C._capture_tracing()


taper._C._capture_role(_traced, "true")


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, context_fn=None, determinism_check="default", debug=False,
               early_stop=True, **kwargs):
    """function(*args) whose intermediates are recomputed in backward. In a compiled function the compiler decides what is."""
    if not use_reentrant and taper.is_grad_enabled() and not taper.is_inference_mode_enabled() and any(isinstance(a, taper.Tensor) and a.is_inference() for a in args):
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. "
                           "To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.")
    if _traced():
        return function(*args, **kwargs)
    if use_reentrant:
        return _Checkpoint.apply(function, preserve_rng_state, kwargs, *args)
    first, again = context_fn() if context_fn else (contextlib.nullcontext(), contextlib.nullcontext())
    kept = _Again(lambda: function(*args, **kwargs), preserve_rng_state, again)
    with first, taper.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
        return function(*args, **kwargs)
