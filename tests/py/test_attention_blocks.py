"""Two products with a softmax between them run block by block: what lies between them never exists as a whole."""
import os
import subprocess
import sys
import tempfile

import taper

F = taper.nn.functional


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def scaled(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.3) + 1


def masked(q, k, v):
    m = taper.arange(k.shape[-2]) % 3 != 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m.expand(q.shape[-2], -1))


def explicit(q, k, v):
    s = q @ k.transpose(-1, -2) / 4
    return F.softmax(s, -1) @ v


def relu_between(q, k, v):  # no softmax: any kernel on rows
    return taper.relu(q @ k.transpose(-1, -2)) @ v


def strided(q, k, v):  # heads out of one matrix
    b, h, l, d = q.shape
    x = taper.cat([q, k, v], 3).transpose(1, 2).reshape(b, l, h * 3 * d)
    q, k, v = x.view(b, l, h, 3 * d).transpose(1, 2).split(d, 3)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, l, h * d)


def kept(q, k, v):  # the probabilities are a result, too
    p = F.softmax(q @ k.transpose(-1, -2), -1)
    return p @ v, p


def twice(q, k, v):  # on both sides of a product
    p = F.softmax(q @ k.transpose(-1, -2), -1)
    return p @ p.transpose(-1, -2)


def along_columns(q, k, v):  # not row by row
    return F.softmax(q @ k.transpose(-1, -2), -2) @ v


PROGRAMS = (sdpa, causal, scaled, masked, explicit, relu_between, strided, kept, twice, along_columns)
SHAPES = ((2, 3, 64, 64, 16), (1, 2, 130, 77, 8), (3, 1, 49, 200, 20), (1, 1, 500, 600, 4), (2, 2, 7, 9, 5), (1, 5, 60, 1, 3))


def inputs(shape, dt=taper.float32):
    b, h, l, s, d = shape
    taper.manual_seed(4)
    return taper.randn(b, h, l, d, dtype=dt), taper.randn(b, h, s, d, dtype=dt), taper.randn(b, h, s, d, dtype=dt)


def check(p, args, options=None, tol=1e-5, **kw):
    taper._dynamo.reset()
    got, want = taper.compile(p, options=options or {}, **kw)(*args), p(*args)
    for g, w in zip(*((got, want) if isinstance(got, tuple) else ((got,), (want,)))):
        assert taper.allclose(g, w, rtol=tol, atol=tol), (p.__name__, [a.shape for a in args], options)


def test_blocks_give_eager_results():
    for shape in SHAPES:
        for p in PROGRAMS:
            if p in (strided, causal) and shape[2] != shape[3]:
                continue
            for options in ({}, {"isa": "avx2"}):
                check(p, inputs(shape), options)


def test_blocks_in_other_ways_to_run():
    for p in (causal, explicit, kept):
        args = inputs((2, 1, 64, 64, 8))
        check(p, args, {"emitter": "interpreter"})
        check(p, [a.double() for a in args], tol=1e-12)
        check(p, args, dynamic=True)
    check(sdpa, [a.bfloat16() for a in inputs((1, 2, 64, 64, 8))], tol=3e-2)


def test_blocks_do_not_depend_on_threads():
    args, n = inputs((1, 3, 300, 256, 16)), taper.get_num_threads()
    f, results = taper.compile(explicit), []
    for t in (1, 2, 3, 7):
        taper.set_num_threads(t)
        results.append(f(*args))
    taper.set_num_threads(n)
    assert all(taper.equal(r, results[0]) for r in results)


def off(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def test_bfloat16_is_as_accurate_as_its_rounding():
    for shape in ((2, 3, 64, 64, 16), (1, 2, 130, 77, 8), (1, 1, 500, 600, 4), (1, 2, 300, 300, 40), (1, 1, 1500, 1500, 64)):
        for p in (sdpa, causal, scaled, masked, strided):
            if p in (strided, causal) and shape[2] != shape[3]:
                continue
            args = [a.requires_grad_() for a in inputs(shape, taper.bfloat16)]
            exact = [a.detach().double().requires_grad_() for a in args]
            want = p(*exact)
            seed = taper.randn(*want.shape, dtype=taper.float64).bfloat16()
            want_grads = taper.autograd.grad(want, exact, seed.double())
            for options in (None, {}, {"isa": "avx2"}, {"emitter": "c"}):
                taper._dynamo.reset()
                got = (p if options is None else taper.compile(p, options=options))(*args)
                grads = taper.autograd.grad(got, args, seed)
                assert got.dtype == taper.bfloat16 and all(g.dtype == taper.bfloat16 for g in grads)
                errors = [off(got, want), *(off(g, w) for g, w in zip(grads, want_grads))]
                assert max(errors) < 0.02, (p.__name__, shape, options, errors)


def test_bfloat16_does_not_depend_on_threads():
    args, n = [a.requires_grad_() for a in inputs((1, 3, 300, 256, 16), taper.bfloat16)], taper.get_num_threads()
    f, results = taper.compile(sdpa), []
    for t in (1, 2, 3, 7):
        taper.set_num_threads(t)
        y = f(*args)
        results.append([y, *taper.autograd.grad(y.sum(), args)])
    taper.set_num_threads(n)
    assert all(taper.equal(a, b) for r in results for a, b in zip(r, results[0]))


def test_gradients_through_attention():
    for p in (causal, explicit, strided):
        args = [a.requires_grad_() for a in inputs((2, 2, 64, 64, 8))]
        want = taper.autograd.grad(p(*args).square().sum(), args)
        taper._dynamo.reset()
        got = taper.autograd.grad(taper.compile(p)(*args).square().sum(), args)
        for g, w in zip(got, want):
            assert taper.allclose(g, w, rtol=1e-4, atol=1e-4), p.__name__


SCRIPT = """
import taper
F = taper.nn.functional
q = taper.randn(1, 2, 1024, 16)
f = taper.compile(lambda q: F.scaled_dot_product_attention(q, q, q))
y = f(q)
assert taper.memory_stats()["peak"] < 2 * 1024 * 1024 * 4, "the scores existed"
print(float((y - F.scaled_dot_product_attention(q, q, q)).abs().max()) < 1e-5)
"""


def run(log, env=None):
    e = dict(os.environ, TAPER_LOGS=log, **(env or {}))
    r = subprocess.run([sys.executable, "-c", SCRIPT], env=e, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stdout.strip() == "True", r.stderr
    return r.stderr


def test_the_log_says_so_and_the_disk_cache_keeps_it():
    assert "the products block by block" in run("fusion", {"TAPER_CACHE": "0"})
    assert "of those rows, block by block" in run("schedule", {"TAPER_CACHE": "0"})
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o700)
        for _ in range(2):
            run("", {"TAPER_CACHE_DIR": d})


DIAGONAL = """
import sys, taper
F = taper.nn.functional
taper.manual_seed(3)
q, k, v = (taper.randn(2, 2, n, 8) for n in (200, int(sys.argv[1]), int(sys.argv[1])))
k[..., -1, :] = float("nan")  # no row reaches it, where there are more keys than queries
f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
got, want = taper.compile(f)(q, k, v), f(q, k, v)
print(taper.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True), want.isnan().sum().item())
"""


def test_nothing_is_multiplied_behind_the_diagonal():
    def run(keys, **env):
        e = dict(os.environ, TAPER_LOGS="fusion", TAPER_CACHE="0", **env)
        r = subprocess.run([sys.executable, "-c", DIAGONAL, str(keys)], env=e, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout.split(), "up to the diagonal" in r.stderr
    assert run(300) == (["True", "0"], True)
    assert run(130)[0][0] == "True"  # rows behind the last key reach all
    assert run(200)[0][0] == "True"
    assert run(300, TAPER_BISECT_SUBSYSTEM="range", TAPER_BISECT_MAX="-1") == (["True", "0"], False)


WRITTEN = """
import taper
F, inf = taper.nn.functional, float("inf")
taper.manual_seed(3)
q, k, v = (taper.randn(2, 2, n, 8) for n in (100, 150, 150))
k[..., -1, :] = float("nan")  # no row reaches it
def of(mask):
    def f(q, k, v):
        s = (q @ k.transpose(-1, -2)) * 0.3 + 1
        return F.softmax(mask(s, lambda **o: taper.ones(s.shape[-2], s.shape[-1], **o)), -1) @ v
    return f
b = dict(dtype=taper.bool)
for mask in (lambda s, ones: s.masked_fill(taper.triu(ones(**b), 1), -inf), lambda s, ones: s.masked_fill(taper.tril(ones()) == 0, -inf),
             lambda s, ones: taper.where(taper.triu(ones(**b), 3), -inf, s), lambda s, ones: taper.where(~taper.triu(ones(**b), 1), s, -inf),
             lambda s, ones: s.masked_fill(taper.tril(ones(), 2).logical_not(), -inf), lambda s, ones: s.masked_fill(taper.triu(ones(), 1).bool(), -inf),
             lambda s, ones: taper.where(taper.tril(ones()) != 0, s, -inf)):
    f = of(mask)
    got, want = taper.compile(f)(q, k, v), f(q, k, v)
    print(taper.allclose(got, want, rtol=1e-4, atol=1e-4) and not want.isnan().any().item())
print("others", flush=True)
k[..., -1, :] = 0
for mask in (lambda s, ones: s.masked_fill(taper.tril(ones(**b), -1), -inf), lambda s, ones: s.masked_fill(taper.triu(ones(**b), 1), -3.0),
             lambda s, ones: taper.where(taper.triu(ones(**b), 1), s, -inf) + 0, lambda s, ones: s.masked_fill(taper.triu(ones(**b), 1), -inf) + s * 0):
    f = of(mask)
    got, want = taper.compile(f)(q, k, v), f(q, k, v)
    print(taper.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True))
"""


def test_triangles_however_they_are_written():
    """What stands between the product and the mask goes element by element; the condition may be turned round."""
    r = subprocess.run([sys.executable, "-c", WRITTEN], env=dict(os.environ, TAPER_LOGS="schedule", TAPER_CACHE="0"), capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    assert r.stdout.split() == ["True"] * 7 + ["others"] + ["True"] * 4, r.stdout
    assert r.stderr.count("block by block, up to the diagonal") == 7, r.stderr


def lower(q, k, v, fill=float("-inf"), diagonal=0, by=1.0):
    s = q @ k.transpose(-1, -2)
    m = taper.tril(taper.ones(s.shape[-2], s.shape[-1], dtype=taper.bool), diagonal)
    return F.softmax(taper.where(m, s, fill), -1) @ v * by


def test_other_triangles():
    def mixed(q, k, v):  # the scores serve twice
        s = q @ k.transpose(-1, -2)
        m = taper.tril(taper.ones(s.shape[-2], s.shape[-1], dtype=taper.bool))
        return F.softmax(taper.where(m, s, float("-inf")) + s * 0.1, -1) @ v
    def upper(q, k, v):
        s = q @ k.transpose(-1, -2)
        m = taper.triu(taper.ones(s.shape[-2], s.shape[-1], dtype=taper.bool))
        return F.softmax(taper.where(m, s, float("-inf")), -1) @ v
    def signed(q, k, v):  # what is left out behind the diagonal would be no number
        s = q @ k.transpose(-1, -2)
        m = taper.tril(taper.ones(s.shape[-2], s.shape[-1], dtype=taper.bool))
        p = F.softmax(taper.where(m, s, float("-inf")), -1) * (s / s.abs())
        return p / p.abs().sum(-1, keepdim=True) @ v
    for p in (signed, lower, lambda q, k, v: lower(q, k, v, -3.0), lambda q, k, v: lower(q, k, v, diagonal=7), lambda q, k, v: lower(q, k, v, diagonal=1000),
              lambda q, k, v: lower(q, k, v, -1e9, -3), mixed, upper):
        for shape in ((2, 2, 100, 100, 8), (1, 2, 150, 100, 4), (1, 2, 100, 150, 4)):
            if p is upper and shape[2] > shape[3]:
                continue
            for options in ({}, {"isa": "avx2"}):
                check(p, inputs(shape), options)
        check(p, [a.double() for a in inputs((1, 2, 100, 100, 8))], tol=1e-12)
        check(p, inputs((1, 2, 100, 100, 8)), dynamic=True)


def test_keys_and_their_gradients_are_not_turned_by_copies():
    code = """
import taper
x = taper.randn(2, 64, 3 * 32, requires_grad=True)
def f(x):
    q, k, v = (a.view(2, 64, 2, 16).transpose(1, 2) for a in x.split(32, dim=2))
    return taper.nn.functional.scaled_dot_product_attention(q, k, v)
y = taper.compile(f)(x)
(got,), (want,) = taper.autograd.grad(y.square().sum(), x), taper.autograd.grad(f(x).square().sum(), x)
print(taper.allclose(y, f(x), rtol=1e-5, atol=1e-5), taper.allclose(got, want, rtol=1e-4, atol=1e-5))
"""
    r = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, TAPER_LOGS="kernel_code", TAPER_CACHE="0"), capture_output=True, text=True,
                       timeout=60)
    assert r.returncode == 0 and r.stdout.strip() == "True True", (r.stdout, r.stderr)
    assert "+ lane]" in r.stderr and "+ lane *" not in r.stderr


def test_the_gradient_of_a_batch_of_transposed_matrices_lies_as_they_do():
    taper.manual_seed(5)
    for product in (taper.bmm, lambda a, b: taper.baddbmm(taper.ones(1), a, b, alpha=0.5)):
        for turn_a in (False, True):
            for turn_b in (False, True):
                a = (taper.randn(3, 6, 5) if turn_a else taper.randn(3, 5, 6)).requires_grad_()
                b = (taper.randn(3, 4, 6) if turn_b else taper.randn(3, 6, 4)).requires_grad_()
                x, y = a.transpose(1, 2) if turn_a else a, b.transpose(1, 2) if turn_b else b
                w = taper.randn(3, 5, 4)
                ga, gb, gx, gy = taper.autograd.grad((product(x, y) * w).sum(), (a, b, x, y))
                by = 1.0 if product is taper.bmm else 0.5
                for i in range(3):
                    assert taper.allclose(gx[i], w[i] @ y[i].t() * by, atol=1e-5) and taper.allclose(gy[i], x[i].t() @ w[i] * by, atol=1e-5)
                assert gx.stride() == x.stride() and gy.stride() == y.stride() and ga.is_contiguous() and gb.is_contiguous()
