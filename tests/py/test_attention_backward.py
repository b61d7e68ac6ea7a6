"""The gradient of attention without the matrix of probabilities: backward makes the scores again, block of rows by block of rows, from the
queries, the keys and two numbers a row."""
import os
import subprocess
import sys
import tempfile

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw
from taper import _C

F, inf = taper.nn.functional, float("inf")


def triangle(s, upper=False, diagonal=0, **kw):
    ones = taper.ones(s.shape[-2], s.shape[-1], **kw)
    return taper.triu(ones, diagonal) if upper else taper.tril(ones, diagonal)


def by_hand(mask):
    return lambda q, k, v: F.softmax(mask((q @ k.transpose(-1, -2)) * 0.3), -1) @ v


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


b = dict(dtype=taper.bool)
MASKED = {  # what stands between the products, and whether what lies behind a diagonal is left out
    "masked_fill": (by_hand(lambda s: s.masked_fill(triangle(s, True, 1, **b), -inf)), True),
    "tril == 0": (by_hand(lambda s: s.masked_fill(triangle(s) == 0, -inf)), True),
    "diagonal 5": (by_hand(lambda s: taper.where(triangle(s, False, 5, **b), s, -inf)), True),
    "a row of nothing": (by_hand(lambda s: taper.where(triangle(s, False, -1, **b), s, -inf)), False),
    "not the last keys": (by_hand(lambda s: taper.where(triangle(s, True, **b), s, -inf)), False),
    "a large number": (by_hand(lambda s: taper.where(triangle(s, **b), s, -1e9)), False),
    "rows of nothing under a triangle": (by_hand(lambda s: s.masked_fill(taper.arange(s.shape[-1]) < 2, -inf).masked_fill(triangle(s, True, 1, **b), -inf)), False),
    "scores twice": (by_hand(lambda s: s.masked_fill(triangle(s, True, 1, **b), -inf) + s * 0.1), False),
    "tanh": (by_hand(lambda s: taper.tanh(s).masked_fill(triangle(s, True, 1, **b), -inf)), False),
}


def inputs(l=160, s=160, d=16, batch=2, heads=3, e=None):
    taper.manual_seed(l + s)
    return [taper.randn(batch, heads, l, d), taper.randn(batch, heads, s, d), taper.randn(batch, heads, s, e or d)]


def gradients(f, args, seed):
    args = [a.detach().requires_grad_() for a in args]
    y = f(*args)
    return [y.detach(), *taper.autograd.grad(y, args, seed)]


def check(name, f, args, tol=2e-5, wide=True, options=({},), **kw):
    up = (lambda t: t.double()) if wide else (lambda t: t)
    seed = taper.randn(*f(*args).shape, dtype=args[0].dtype)
    want = gradients(f, [up(a) for a in args], up(seed))
    for o in options:
        taper._dynamo.reset()
        got = gradients(taper.compile(f, options=o, **kw), args, seed)
        for i, (x, y) in enumerate(zip(got, want)):
            x, y = x.double(), y.double()
            assert x.shape == y.shape and taper.equal(x.isnan(), y.isnan()), (name, i, o)
            off, most = (x - y).nan_to_num(0).abs().max().item(), y.nan_to_num(0).abs().max().item()
            assert off <= tol * max(1, most), (name, i, o, off, most)


ENGINES = ({}, {"isa": "avx2"}, {"emitter": "c"})


def test_gradients_are_those_of_float64():
    for l, s, d, e in ((128, 128, 16, 16), (257, 257, 64, 64), (128, 300, 32, 40), (300, 129, 32, 24), (1031, 1031, 8, 8)):
        check("causal", causal, inputs(l, s, d, 1, 2, e), options=ENGINES)
    for shape in ((700, 600, 16, 2, 3), (1500, 1500, 8, 1, 1), (1100, 1000, 16, 2, 1)):  # large enough without a triangle
        check("all keys", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), inputs(*shape), options=ENGINES)


def test_masks():
    keep, add = taper.rand(600, 600) > 0.5, taper.randn(600, 600)
    keep[5], add[7] = False, -inf  # rows without any key
    args = inputs(600, 600, 8)
    check("bool", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=keep), args)
    check("added", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=add.to(q.dtype)), args)
    check("added by hand", by_hand(lambda s: s + add.to(s.dtype)), args)
    check("of keys", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=(taper.arange(600) % 3 != 1).expand(600, -1)), args)
    check("with a gradient", lambda q, k, v, w: F.scaled_dot_product_attention(q, k, v, attn_mask=w), [*args, taper.randn(600, 600)])
    check("scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=-0.3, is_causal=True), inputs())


def test_masks_by_hand():
    for name, (f, _) in MASKED.items():
        for l, s in ((160, 160), (200, 130), (130, 200)):
            check(name, f, inputs(l, s))


def test_layouts():
    def heads(x):
        q, k, v = (y.view(2, 150, 4, 16).transpose(1, 2) for y in x.split(64, 2))
        return causal(q, k, v).transpose(1, 2).reshape(2, 150, 64)

    def tri(s):
        return s.masked_fill(triangle(s, True, 1, **b), -inf)

    q, k, v = inputs()
    groups = [taper.randn(2, 8, 160, 16), taper.randn(2, 2, 160, 16), taper.randn(2, 2, 160, 16)]
    check("heads of one matrix", heads, [taper.randn(2, 150, 192)], options=ENGINES)
    check("few keys for many queries", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), groups)
    check("channels last", causal, [a.contiguous(memory_format=taper.channels_last) for a in (q, k, v)])
    check("transposed", causal, [a.transpose(2, 3).contiguous().transpose(2, 3) for a in (q, k, v)])
    check("one batch", causal, [a[0] for a in (q, k, v)])
    check("one matrix", causal, [a[0, 0] for a in (q, k, v)])
    check("one for all", lambda x: causal(x, x, x), [q])
    check("some without", lambda q, k, v: causal(q, k.detach(), v) * k.sum(), [q, k, v])
    turned = [a.transpose(2, 3).contiguous() for a in (q, k, v)]
    check("keys turned", lambda q, k, v: F.softmax(tri(q @ k), -1) @ v, [q, turned[1], v])
    check("all turned", lambda q, k, v: F.softmax(tri(q.transpose(-1, -2) @ k), -1) @ v.transpose(-1, -2), turned)
    check("values first", lambda q, k, v: v @ F.softmax(tri(q @ k.transpose(-1, -2)), -1).transpose(-1, -2), [q, k, turned[2]])
    check("on both sides", lambda q, k: (lambda p: p @ p.transpose(-1, -2))(F.softmax(tri(q @ k.transpose(-1, -2)), -1)), [q, k])


def test_types_and_sizes_that_are_not_known():
    check("float64", causal, [a.double() for a in inputs()], tol=1e-12)
    check("bfloat16", causal, [a.bfloat16() for a in inputs()], tol=4e-2)
    check("float16", causal, [a.half() for a in inputs()], tol=6e-3)
    check("interpreted", causal, inputs(130, 130, 8, 1, 2), options=({"emitter": "interpreter"},))
    f = taper.compile(causal, dynamic=True)
    for l in (160, 131, 257, 20):
        args = inputs(l, l)
        for got, want in zip(gradients(f, args, taper.ones(2, 3, l, 16)), gradients(causal, args, taper.ones(2, 3, l, 16))):
            assert taper.allclose(got, want, rtol=1e-4, atol=1e-4), l


def dropped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.25)


def test_dropout_draws_again():
    """Which probabilities were left out is drawn once more in backward, in the kernel between the products."""
    for shape in ((160, 160), (130, 300), (601, 601)):
        args, results = inputs(*shape), []
        for f in (dropped, taper.compile(dropped)):
            taper.manual_seed(5)
            results.append(gradients(f, args, taper.ones_like(args[0])))
        for got, want in zip(*results):
            assert taper.allclose(got, want, rtol=1e-4, atol=1e-4), shape


def test_gradients_do_not_depend_on_threads():
    n = taper.get_num_threads()
    for shape in ((300, 300, 16, 1, 1), (300, 300, 16, 1, 3), (300, 300, 16, 3, 4)):
        args, results = inputs(*shape), []
        f = taper.compile(causal)
        for t in (1, 2, 3, 7):
            taper.set_num_threads(t)
            results.append(gradients(f, args, taper.ones_like(args[0])))
        taper.set_num_threads(n)
        for r in results:
            assert all(taper.equal(x, y) for x, y in zip(r, results[0])), shape


def test_a_gradient_of_the_gradient():
    """A compiled backward cannot be differentiated: the operators run again one by one."""
    x = taper.randn(1, 1, 130, 8, dtype=taper.float64, requires_grad=True)
    results = []
    for f in (causal, taper.compile(causal)):
        (g,) = taper.autograd.grad(f(x, x, x).square().sum(), x, create_graph=True)
        results += taper.autograd.grad(g.square().sum(), x)
    assert taper.allclose(*results, rtol=1e-9, atol=1e-9)


def kept_and_height(f, *shape):
    """Bytes that forward leaves for backward beyond its result, and the most that a step holds beyond what it leaves."""
    taper._dynamo.reset()
    args, f = [a.requires_grad_() for a in inputs(*shape)], taper.compile(f)
    seed = taper.ones_like(args[2])
    for _ in range(2):
        before = _C._memory(True)[0]
        y = f(*args)
        kept = _C._memory()[0] - before - y.numel() * y.element_size()
        grads = taper.autograd.grad(y, args, seed)
        height = _C._memory()[1] - before
        del y, grads
    return kept, height


def test_no_matrix_is_kept_and_none_exists():
    """(sanitize: skip, bytes are counted where nothing is added to them)"""
    def plain(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    for f in (plain, causal, dropped, MASKED["masked_fill"][0]):
        kept, height = kept_and_height(f, 1100, 1100, 16, 1, 2)
        assert kept <= 2 * 2 * 1100 * 4 + 256, kept  # two numbers a row
        assert height < 2 * 1100 * 1100 * 4 / 3, height


def test_what_stays_in_the_caches_is_kept():
    """(sanitize: skip, bytes are counted where nothing is added to them)"""
    for f, l in ((causal, 64), (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), 160)):
        assert kept_and_height(f, l, l, 16, 1, 2)[0] >= 2 * l * l * 4


SCRIPT = """
import sys, taper
sys.path.insert(0, %r)
import test_attention_backward as t
args = t.inputs(200, 200)
f = t.MASKED[sys.argv[1]][0] if sys.argv[1] in t.MASKED else getattr(t, sys.argv[1])
seed = taper.ones_like(args[0])
got, want = ((taper.manual_seed(3), t.gradients(g, args, seed))[1] for g in (taper.compile(f), f))
print(all(taper.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in zip(got, want)))
""" % os.path.dirname(os.path.abspath(__file__))


def run(which="causal", **env):
    e = {**os.environ, "TAPER_LOGS": "schedule", "TAPER_CACHE": "0", **env}
    r = subprocess.run([sys.executable, "-c", SCRIPT, which], env=e, capture_output=True, text=True, timeout=100)
    assert r.returncode == 0 and r.stdout.strip() == "True", (r.stdout, r.stderr)
    assert env or "tril" not in r.stderr and "triu" not in r.stderr, r.stderr  # a comparison in the kernel, no matrix
    return r.stderr.count("of those rows, block by block"), r.stderr.count("up to the diagonal")


def test_the_schedule_says_so():
    """One product of the probabilities in forward, three in backward."""
    assert run() == (4, 4) and run("dropped") == (4, 4)
    for name, (_, half) in MASKED.items():
        blocks, diagonal = run(name)
        assert blocks == 4 and (diagonal == 4) == half, (name, blocks, diagonal)


def test_every_part_of_it_can_be_refused():
    for kind, want in (("recompute", (2, 0)), ("range", (4, 0)), ("fuse", (0, 0)), ("tile", (0, 0))):
        assert run(TAPER_BISECT_SUBSYSTEM=kind, TAPER_BISECT_MAX="-1") == want, kind


def test_the_disk_cache_keeps_it():
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o700)
        assert run(TAPER_CACHE="1", TAPER_CACHE_DIR=d)[0] == 4
        assert run(TAPER_CACHE="1", TAPER_CACHE_DIR=d)[0] == 0  # no plan is made


def test_a_step_in_one_graph():
    q, k, v = inputs(150, 150)

    def step(w):
        (causal(q * w, k * w, v) ** 2).mean().backward()
        return w.grad

    want, got = taper.ones(16, requires_grad=True), taper.ones(16, requires_grad=True)
    step(want)
    taper.compile(step)(got)
    assert taper.allclose(got.grad, want.grad, rtol=1e-4, atol=1e-6)
