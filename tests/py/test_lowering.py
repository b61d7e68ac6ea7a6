"""What becomes loops inside kernels, and that it computes what eager does."""
import os
import re
import subprocess
import sys

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw

F = taper.nn.functional


def plan(body, logs="schedule,fusion", **env):
    """The logs of a program whose names are those of this file."""
    code = "import taper\nF = taper.nn.functional\ntaper.manual_seed(0)\n" + body
    r = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=120,
                       env={**os.environ, "TAPER_LOGS": logs, "TAPER_CACHE": "0", **env})
    assert r.returncode == 0, r.stderr
    return r.stderr


def counts(log):
    """kernels, library calls of each schedule"""
    return [tuple(map(int, m)) for m in re.findall(r"schedule of \w+: (\d+) kernels?, \d+ products?, (\d+) library calls?", log)]


def test_a_group_norm_and_what_follows_is_one_kernel():
    log = plan("x = taper.randn(4, 16, 32, 32)\nw = taper.randn(16)\n"
               "taper.compile(lambda x, w: F.relu(F.group_norm(x, 2, w, w)) + 1)(x, w)")
    assert counts(log) == [(1, 0)], log
    for shape, groups in (((4, 16, 32, 32), 2), ((2, 6, 5, 7), 3), ((3, 4, 9), 4), ((1, 8, 3), 1)):
        x, w, b = taper.randn(*shape), taper.randn(shape[1]), taper.randn(shape[1])
        f = lambda x, w, b: F.relu(F.group_norm(x, groups, w, b)) + 1
        assert taper.allclose(taper.compile(f)(x, w, b), f(x, w, b), atol=1e-5), shape


def test_a_view_that_regroups_dimensions_splits_the_loop():
    def f(x):
        return taper.sin(x).view(4, 6, 35).sum(2).view(24, 1) * x.view(24, 35) + x.view(8, 3, 5, 7).transpose(1, 2).reshape(24, 35)

    x = taper.randn(4, 2, 3, 5, 7)
    assert taper.allclose(taper.compile(f)(x), f(x), atol=1e-4)
    assert taper.allclose(taper.compile(f, dynamic=True)(x), f(x), atol=1e-4)


def test_a_large_sum_does_not_take_its_users_off_the_threads():
    log = plan("taper.compile(lambda x: x / x.sum())(taper.rand(1 << 20))")
    assert "sum_1 is made of 64 parts" in log and "did not fuse div" in log, log
    log = plan("taper.compile(lambda x: x / x.sum())(taper.rand(1048583))")  # a prime: no parts
    assert "did not fuse div" in log and "too few rows to share among threads" in log, log


def same(f, *args, exact=True, **options):
    for dynamic in (False, True):
        taper._dynamo.reset()
        got, want = taper.compile(f, dynamic=dynamic, **options)(*args), f(*args)
        assert got.dtype == want.dtype and got.shape == want.shape, (got.shape, want.shape)
        assert taper.equal(got, want) if exact else taper.allclose(got, want, rtol=1e-4, atol=1e-5), (got, want)


def test_reading_by_an_index_is_part_of_the_kernel():
    log = plan("w, p, i = taper.randn(50, 24), taper.randn(7, 24), taper.randint(0, 50, (3, 7))\n"
               "pos = taper.nn.Embedding(9, 24)\n"
               "taper.compile(lambda i: F.layer_norm(F.embedding(i, w) + p, (24,)))(i)\n"
               "with taper.no_grad(): taper.compile(lambda i: F.embedding(i, w) * 2 + pos(taper.arange(7)))(i)\n"
               "x, t = taper.randn(64, 10), taper.randint(0, 10, (64,))\n"
               "taper.compile(lambda x, t: -taper.gather(F.log_softmax(x, 1), 1, t[:, None]).sum())(x, t)")
    assert [c[1] for c in counts(log)] == [0, 0, 0], log
    assert counts(log)[:2] == [(1, 0), (1, 0)], log
    assert "computed inside kernels: index_select: read where its index points" in log, log
    assert log.count("check ") == 3, log  # positions that count up are inside: nothing to look at


def test_reading_by_an_index_equals_eager():
    taper.manual_seed(1)
    x, a, b = taper.randn(9, 6, 5), taper.randint(0, 9, (4,)), taper.randint(-5, 5, (3, 1))
    same(lambda x, a: x.index_select(0, a) * 2, x, a)
    same(lambda x, a: x[a] + 1, x, a - 9)
    same(lambda x, b: x[:, :, b] * 2 - 1, x, b)
    same(lambda x, a, b: (x[a % 9, :, b] + 1) * 2, x, a, b)
    same(lambda x, a, b: x[a, b % 6] * 3, x, a, b)
    same(lambda x, a: (x.transpose(0, 2)[:, :, a.to(taper.int32)] + 1).sum(0), x, a, exact=False)
    same(lambda x, i: taper.gather(x, 1, i) + x[:, :2], x, taper.randint(0, 6, (9, 2, 5)))
    same(lambda x, i: taper.gather(taper.sin(x), 0, i[None, :, None].expand(2, 6, 5)) * 2, x, taper.randint(0, 9, (6,)), exact=False)
    same(lambda x, i: F.embedding(i, x).mean(1), taper.randn(40, 33), taper.randint(0, 40, (5, 8)), exact=False)
    for dt in (taper.bfloat16, taper.float16, taper.float64, taper.int64, taper.int8, taper.bool):
        y = taper.randint(0, 3, (9, 20)).to(dt)
        same(lambda y, a: y[a].repeat(1, 1) == y[a + 1 - 1], y, a)
        same(lambda y, a: taper.where(y[a] == 1, y[a], y[:4]), y, a)


def test_an_index_outside_is_the_error_of_eager():
    x = taper.randn(5, 4)
    programs = [(lambda i: F.embedding(i, x) * 2), (lambda i: x[i] + 1), (lambda i: x[:, i] * 2), (lambda i: x.index_select(1, i) + 1),
                (lambda i: taper.gather(x, 0, i[None].expand(2, -1)) + 1), (lambda i: taper.relu(x @ x.t())[i % 5][:, i] + 1)]
    for k, f in enumerate(programs):
        for bad in (7, -9, 2 ** 40):
            for dynamic in (False, True):
                taper._dynamo.reset()
                index, said = taper.tensor([0, 1, 2, bad]), []
                for g in (f, taper.compile(f, dynamic=dynamic)):
                    try:
                        g(index)
                        said.append(None)
                    except (IndexError, RuntimeError) as e:
                        said.append((type(e), str(e).split("\n")[0]))
                assert said[0] and said[0] == said[1], (k, bad, said)
    c = taper.compile(lambda i: F.embedding(i, x) * 2)
    for i in ([0, 4], [5, 0], [1, 1]):  # and the next call runs again
        try:
            assert taper.equal(c(taper.tensor(i)), x[taper.tensor(i)] * 2)
        except IndexError:
            assert i == [5, 0]


def test_numbers_are_drawn_in_the_kernel_and_are_those_of_eager():
    log = plan("x = taper.randn(32, 64, requires_grad=True)\nf = taper.compile(lambda x: F.dropout(F.gelu(x), 0.1) + x)\n"
               "f(x).sum().backward()")
    assert counts(log) == [(1, 1), (1, 0)], log  # the call reserves a place in the sequence; backward draws again
    assert "_philox_uniform: numbers are drawn where they are used" in log and "call   _rng_reserve" in log, log
    programs = [lambda x: F.dropout(x, 0.3), lambda x: taper.rand(x.shape) + x, lambda x: taper.rand_like(x) * 2 - taper.rand(x.shape),
                lambda x: F.dropout(x, 0.5).sum(-1), lambda x: F.dropout(x.transpose(0, -1), 0.5) * 2]
    for shape in ((64,), (1003,), (7, 16), (33, 20), (3, 5, 8), (5, 7), (70000,)):
        x = taper.randn(*shape)
        for k, f in enumerate(programs):
            taper.manual_seed(5)
            want, after = f(x), taper.rand(3)
            for emitter, threads in (("x64", 1), ("x64", 2), ("interpreter", 2)):
                if emitter == "interpreter" and x.numel() > 2000:
                    continue
                was = taper.get_num_threads()
                taper.set_num_threads(threads)
                taper._dynamo.reset()
                taper.manual_seed(5)
                got, then = taper.compile(f, options={"emitter": emitter})(x), taper.rand(3)
                taper.set_num_threads(was)
                assert taper.equal(after, then), (shape, k)
                assert taper.equal(got, want) if k != 3 else taper.allclose(got, want, atol=1e-4), (shape, k, emitter)


def test_dropout_keeps_no_mask():
    m = taper.nn.Sequential(taper.nn.Linear(16, 32), taper.nn.Dropout(0.4), taper.nn.ReLU(), taper.nn.Linear(32, 4))
    x, grads = taper.randn(8, 16), []
    for fn in (m, taper.compile(m)):
        taper.manual_seed(3)
        fn(x).square().sum().backward()
        grads.append([p.grad for p in m.parameters()])
        m.zero_grad()
    for a, b in zip(*grads):
        assert taper.allclose(a, b, atol=1e-5)


def test_pooling_windows_are_read_in_the_kernel():
    log = plan("x = taper.randn(2, 3, 16, 32)\nwith taper.no_grad():\n    taper.compile(lambda x: F.max_pool2d(F.relu(x * 2), 2) + 1)(x)\n"
               "    taper.compile(lambda x: F.avg_pool2d(x, 3, 2) * 2)(x)\n    taper.compile(lambda x: F.max_pool2d(x, 5, 2, 1))(x)")
    assert counts(log) == [(1, 0), (1, 0), (0, 1)] and "windows are large" in log, log
    nan = float("nan")
    for k, s, h, w in ((2, 2, 8, 32), (2, 2, 7, 17), (3, 1, 9, 20), (3, 2, 11, 75), ((1, 2), (1, 2), 3, 37), ((2, 1), (2, 1), 6, 5)):
        x = taper.randn(2, 3, h, w)
        x[0, 0, 0, :3] = taper.tensor([nan, float("inf"), -float("inf")])
        for f in (lambda x: F.max_pool2d(F.relu(x), k, s) * 2, lambda x: F.avg_pool2d(taper.sin(x), k, s) + 1, lambda x: F.max_pool2d(x, k, s),
                  lambda x: F.avg_pool2d(x, k, s, divisor_override=3), lambda x: F.max_pool2d(x[0], k, s)):
            with taper.no_grad():
                for emitter in ("x64", "interpreter"):
                    taper._dynamo.reset()
                    assert taper.allclose(taper.compile(f, options={"emitter": emitter})(x), f(x), atol=1e-6, equal_nan=True), (k, s, emitter)


def test_rolls_repeats_flips_and_steps_are_indices():
    log = plan("x = taper.randn(6, 40)\ntaper.compile(lambda x: taper.roll(x, 3, 1) * 2 + x.flip(1) - x.repeat(1, 2)[:, :40] + x.repeat(3, 1)[6:12])(x)")
    assert counts(log) == [(1, 0)], log
    for n in (5, 16, 33, 100):
        for dt in (taper.float32, taper.int32, taper.float64, taper.bfloat16, taper.uint8):
            x = (taper.randn(6, n) * 100).to(dt)
            f = lambda x: (x.flip(1) * 2, x.flip(0, 1), x.flip(0) + 1, x[:, ::2] + 1, x.flip(1)[:, 1::2] - 1, x.repeat(2, 3) + 1, x.repeat(2, 1, 2),
                           taper.roll(x, 2, 0) + 1, taper.roll(x, -3, 1) * 2, taper.roll(x, 7), taper.roll(x, (1, 2), (0, 1)))
            for emitter in ("x64", "interpreter"):
                for dynamic in (False, True):
                    taper._dynamo.reset()
                    for i, (a, b) in enumerate(zip(taper.compile(f, options={"emitter": emitter}, dynamic=dynamic)(x), f(x))):
                        assert taper.equal(a, b), (n, dt, emitter, dynamic, i)


def test_the_c_emitter_agrees():
    def f(x, i):
        d = F.dropout(x, 0.25) + taper.rand(12, 20)
        return (d, x[i] + 1, taper.gather(x, 1, i[None].expand(12, -1) % 20) * 2, x.flip(1) * 2, x[:, ::2] + 1, taper.roll(x, 3, 1) + x,
                F.max_pool2d(x[None] * 2, 2), x.repeat(2, 1) + 1)

    x, i, got = taper.randn(12, 20), taper.randint(-12, 12, (7,)), []
    for e in (None, "c", "x64"):
        taper._dynamo.reset()
        taper.manual_seed(9)
        with taper.no_grad():
            got.append(taper.compile(f, options={"emitter": e})(x, i) if e else f(x, i))
    for a, b, c in zip(*got):
        assert taper.equal(a, b) and taper.equal(a, c)


def test_enlarging_and_its_gradient_are_indices():
    log = plan("x = taper.randn(2, 3, 8, 16)\nwith taper.no_grad():\n    taper.compile(lambda x: F.interpolate(F.relu(x), scale_factor=2) * 2)(x)\n"
               "    taper.compile(lambda x: F.interpolate(x, size=(11, 21)) * 2)(x)")
    assert [c[1] for c in counts(log)] == [0, 1] and "places are not those of whole blocks" in log, log
    for shape in ((2, 3, 8, 16), (1, 2, 5, 18), (2, 1, 3, 50), (1, 1, 4, 6)):
        for scale in (2, 4, (1, 2), (2, 1), 3):
            x = taper.randn(*shape, requires_grad=True)
            f = lambda x: F.interpolate(taper.sin(x), scale_factor=scale) * 2 + 1
            for options in ({"emitter": "x64"}, {"emitter": "interpreter"}):
                taper._dynamo.reset()
                got, want = taper.compile(f, options=options)(x), f(x)
                assert taper.allclose(got, want, atol=1e-6), (shape, scale)
                w = taper.randn(*want.shape)
                a, b = (taper.autograd.grad((y * w).sum(), x)[0] for y in (got, want))
                assert taper.allclose(a, b, atol=1e-5), (shape, scale, options)


def test_the_gradient_of_pooling_is_an_index():
    log = plan("x = taper.randn(2, 3, 8, 32, requires_grad=True)\ntaper.compile(lambda x: F.max_pool2d(F.relu(x), 2))(x).sum().backward()")
    assert counts(log)[1][1] == 0 and "each gradient is read for the places of its window" in log, log
    for shape, k in (((2, 3, 8, 32), 2), ((2, 2, 6, 20), 2), ((1, 2, 8, 64), 4), ((1, 2, 6, 36), (1, 2)), ((1, 1, 5, 9), 2), ((2, 2, 8, 16), (2, 4))):
        x = taper.randn(*shape, requires_grad=True)
        f = lambda x: F.max_pool2d(F.relu(x - 0.3), k) * 2
        for options in ({"emitter": "x64"}, {"emitter": "interpreter"}):
            taper._dynamo.reset()
            got, want = taper.compile(f, options=options)(x), f(x)
            w = taper.randn(*want.shape)
            a, b = (taper.autograd.grad((y * w).sum(), x)[0] for y in (got, want))
            assert taper.equal(got, want) and taper.equal(a, b), (shape, k, options)


def test_running_sums_down_columns_are_kernels():
    log = plan("x = taper.randn(40, 33)\ntaper.compile(lambda x: taper.cumsum(taper.sin(x), 0) * 2 + x)(x)\ntaper.compile(lambda x: x.cumsum(1))(x)")
    assert counts(log) == [(1, 0), (0, 1)] and "every step waits for the one before" in log, log
    for dt in (taper.float32, taper.float64, taper.int64, taper.int32, taper.bool, taper.bfloat16):
        for shape, dim in (((40, 33), 0), ((3, 7, 45), 1), ((70, 1024), 0), ((3, 7, 19), 1), ((3, 7, 19), 0), ((2, 3, 4, 8), -2), ((1, 20), 0)):
            x = (taper.randn(*shape) * 2).to(dt)
            for f in (lambda x: taper.cumsum(x, dim), lambda x: taper.cumprod(x, dim), lambda x: taper.cumsum(x + x, dim) * 2 + x,
                      lambda x: taper.cumsum(x.transpose(0, -1).contiguous().transpose(0, -1), dim)):
                for options in ({"emitter": "x64"}, {"emitter": "interpreter"}):
                    taper._dynamo.reset()
                    got, want = taper.compile(f, options=options)(x), f(x)
                    assert got.dtype == want.dtype
                    assert taper.allclose(got.double(), want.double(), rtol=1e-5 if dt != taper.bfloat16 else 2e-2, atol=1e-5 if dt != taper.bfloat16 else want.double().abs().max().item() / 64), (dt, shape, dim)
        taper._dynamo.reset()
        same(lambda x: taper.cumsum(x, 0), x)
