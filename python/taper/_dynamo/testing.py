"""Helpers for tests of compiled programs: what a run gave, and a scalar to differentiate."""
from .utils import same  # noqa: F401


def requires_bwd_pass(out):
    """Whether backward can start from this output."""
    from .. import Tensor
    if isinstance(out, Tensor):
        return out.requires_grad
    if isinstance(out, (list, tuple)):
        return any(requires_bwd_pass(x) for x in out)
    if out is None or isinstance(out, int):
        return False
    raise NotImplementedError("Don't know how to reduce", type(out))


def reduce_to_scalar_loss(out):
    """One number that depends on every element of an output."""
    from .. import Tensor
    if isinstance(out, Tensor):
        return out.sum() / out.numel()  # not mean: integers have none
    if isinstance(out, (list, tuple)):
        return sum(reduce_to_scalar_loss(x) for x in out) / len(out)
    kind = type(out).__name__
    if kind in ("MaskedLMOutput", "Seq2SeqLMOutput", "CausalLMOutputWithCrossAttentions"):
        return reduce_to_scalar_loss(out.logits)
    if kind == "SquashedNormal":
        return out.mean.sum()
    if isinstance(out, dict):
        return sum(reduce_to_scalar_loss(x) for x in out.values()) / len(out)
    raise NotImplementedError("Don't know how to reduce", type(out))


def _plain(name):
    return name[len("_orig_mod."):] if name.startswith("_orig_mod.") else name


def collect_results(model, prediction, loss, example_inputs):
    """Everything a run leaves behind: prediction, loss, gradients, parameters, buffers, gradients of inputs."""
    from .. import Tensor, zeros_like
    grads, params = {}, {}
    for name, p in getattr(model, "named_parameters", lambda: ())():
        name = _plain(name)
        params[name] = p
        grads[name + ".grad"] = p.grad if p.grad is not None else zeros_like(p)
    buffers = {_plain(name): b for name, b in getattr(model, "named_buffers", lambda: ())()}
    results = [prediction, loss, grads, params, buffers]
    for x in example_inputs:
        if isinstance(x, (tuple, list)):
            results += [y.grad for y in x if isinstance(y, Tensor)]
        elif isinstance(x, Tensor):
            results.append(x.grad)
    return results


class EagerAndRecordGraphs:
    """A backend that keeps the graphs it is given and runs them as they are."""
    _then = "eager"

    def __init__(self):
        self.graphs, self.example_inputs = [], []

    def __call__(self, gm, example_inputs):
        from . import lookup_backend
        self.graphs.append(gm)
        self.example_inputs.append(example_inputs)
        return gm.forward if self._then == "eager" else lookup_backend(self._then)(gm, example_inputs)


def normalize_gm(code):
    """The text of a graph module without empty lines and comments."""
    lines = [line.split("#")[0].rstrip() for line in code.splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def rand_strided(size, stride, dtype=None, device="cpu", extra_size=0):
    """A random tensor with these strides."""
    import taper
    n = sum((s - 1) * st for s, st in zip(size, stride)) + 1 + extra_size
    dtype = dtype or taper.float32
    data = taper.randn(n) if dtype.is_floating_point else taper.randint(0, 100, (n,))
    return taper.as_strided(data.to(dtype), size, stride)


def __getattr__(name):
    if name in ("CompileCounter", "CompileCounterWithBackend", "TestCase", "same"):
        from ..testing import compiled
        return getattr(compiled, name)
    if name == "reset":
        from . import reset
        return reset
    raise AttributeError(f"module 'taper._dynamo.testing' has no attribute '{name}'")
