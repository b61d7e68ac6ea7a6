"""cond, while_loop, scan, map and custom operators do what PyTorch's do: the same program written against both, results,
gradients and refusals compared. Ours runs plainly and compiled, PyTorch's plainly."""
import unittest
import warnings

import taper

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper._higher_order_ops
import torch._higher_order_ops

warnings.filterwarnings("ignore")
DATA = [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]


def hop(lib, name):
    return lib.cond if name == "cond" else getattr(lib._higher_order_ops, name)


def results(out):
    flat = []
    for o in out if isinstance(out, (tuple, list)) else [out]:
        flat += results(o) if isinstance(o, (tuple, list)) else [o.tolist() if hasattr(o, "tolist") else o]
    return flat


def tensors(out):
    return [t for o in (out if isinstance(out, (tuple, list)) else [out]) for t in (tensors(o) if isinstance(o, (tuple, list)) else [o])
            if hasattr(t, "backward") and t.requires_grad]


def run(lib, fn, sign, wrap=lambda f: f):
    x = lib.tensor([[sign * v for v in row] for row in DATA], requires_grad=True)
    w = lib.tensor([0.3, -0.2, 0.9], requires_grad=True)
    out = wrap(lambda x, w: fn(lib, x, w))(x, w)
    loss = sum((t * t).sum() for t in tensors(out))
    if tensors(out):
        loss.backward()
    return results(out), [None if t.grad is None else t.grad.tolist() for t in (x, w)]


def close(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 * (1 + abs(b))
    return a == b


def zeros_for_none(grads):  # an input that one branch does not use: PyTorch gives zeros where the tape alone gives nothing
    return [None if g is None or not any(any(r) if isinstance(r, list) else r for r in g) else g for g in grads]


def check(fn, grads=True):
    for sign in (1.0, -1.0):
        want = run(torch, fn, sign)
        for name, wrap in [("plain", lambda f: f)] + [(b, lambda f, b=b: taper.compile(f, backend=b)) for b in ("eager", "aot_eager", "inductor")]:
            taper._dynamo.reset()
            got = run(taper, fn, sign, wrap)
            assert close(got[0], want[0]), (name, got[0], want[0])
            assert not grads or close(zeros_for_none(got[1]), zeros_for_none(want[1])), (name, got[1], want[1])


def test_cond():
    check(lambda lib, x, w: hop(lib, "cond")(x.sum() > 0, lambda x: x * 2, lambda x: x.sin(), (x,)))


def test_cond_with_closures_and_several_results():
    check(lambda lib, x, w: hop(lib, "cond")(x.sum() > 0, lambda x: (x * w, x.sum()), lambda x: (x + w, x.mean()), (x,)))


def test_cond_in_cond():
    def fn(lib, x, w):
        inner = lambda x: hop(lib, "cond")(x[0, 0] > 0, lambda x: x * w, lambda x: x - w, (x,))
        return hop(lib, "cond")(x.sum() > 0, inner, lambda x: x.cos(), (x,))
    check(fn)


def test_while_loop():
    def fn(lib, x, w):
        with lib.no_grad():
            return hop(lib, "while_loop")(lambda i, v: i < 4, lambda i, v: (i + 1, v * 0.5 + 1), (lib.tensor(0), x.detach()))
    check(fn, grads=False)


def test_while_loop_gradient():
    """PyTorch's while_loop has none in plain calls; the loop written out says what it should be."""
    def fn(lib, x, w):
        if lib is torch:
            v = x
            while v.abs().sum() < 20:
                v = v * 1.5 + w
            return v
        return hop(lib, "while_loop")(lambda v: v.abs().sum() < 20, lambda v: (v * 1.5 + w,), (x,))[0]
    check(fn)


def test_scan():
    check(lambda lib, x, w: hop(lib, "scan")(lambda c, v: (c + v, c * v), lib.zeros(3), x, dim=0))


def test_map():
    check(lambda lib, x, w: hop(lib, "map")(lambda r, w: r.sin() * w, x, w))


def test_custom_op():
    def make(lib, name):
        def cube(x: lib.Tensor, k: float) -> lib.Tensor:
            return x * x * x * k
        op = lib.library.custom_op(name, cube, mutates_args=())
        op.register_fake(lambda x, k: lib.empty_like(x))

        def setup(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.k = inputs[1]
        op.register_autograd(lambda ctx, g: (g * 3 * ctx.saved_tensors[0] ** 2 * ctx.k, None), setup_context=setup)
        return op
    ops = {taper: make(taper, "oracle::cube"), torch: make(torch, "oracle::cube")}
    check(lambda lib, x, w: ops[lib](x * w, 2.0))
    assert str(taper.library.infer_schema(ops[taper]._init_fn, mutates_args=())) == \
        str(torch.library.infer_schema(ops[torch]._init_fn, mutates_args=()))


def refuses(lib, fn):
    try:
        run(lib, fn, 1.0)
    except Exception as e:
        return e


def test_refusals():
    """What PyTorch refuses is refused here too, compiled (plain calls of ours are Python and take what Python takes)."""
    cases = {
        "shapes": lambda lib, x, w: hop(lib, "cond")(x.sum() > 0, lambda x: x.sum(0), lambda x: x, (x,)),
        "dtypes": lambda lib, x, w: hop(lib, "cond")(x.sum() > 0, lambda x: x, lambda x: x.double(), (x,)),
        "structures": lambda lib, x, w: hop(lib, "cond")(x.sum() > 0, lambda x: (x, x), lambda x: x, (x,)),
        "predicate": lambda lib, x, w: hop(lib, "cond")(x > 0, lambda x: x, lambda x: x + 1, (x,)),
        "carry": lambda lib, x, w: hop(lib, "while_loop")(lambda v: v.sum() < 9, lambda v: (v.sum(0),), (x.detach(),)),
        "scan carry": lambda lib, x, w: hop(lib, "scan")(lambda c, v: (c.sum(), v), lib.zeros(3), x, dim=0),
    }
    for name, fn in cases.items():
        taper._dynamo.reset()
        theirs = refuses(torch, fn)
        try:
            run(taper, fn, 1.0, lambda f: taper.compile(f, fullgraph=True))
        except Exception as e:
            assert theirs is not None, (name, "PyTorch accepts it", e)
        else:
            raise AssertionError((name, theirs))
