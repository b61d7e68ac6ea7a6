"""Random numbers of every distribution are drawn inside kernels: those of eager for the same seed, and the generator is left where
eager leaves it."""
import os
import re
import subprocess
import sys

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw, so that the two can be compared

F = taper.nn.functional

DRAWS = {
    "rand": lambda x: taper.rand_like(x) + x,
    "uniform_": lambda x: taper.empty_like(x).uniform_(-2, 3) * x,
    "randn": lambda x: taper.randn(x.shape, dtype=x.dtype) + x,
    "randn_like": lambda x: taper.randn_like(x) * 2,
    "normal_": lambda x: x.clone().normal_(1, 2) + 1,
    "normal.float_float": lambda x: taper.normal(1.5, 2.0, tuple(x.shape)) * 2,
    "normal.Tensor_Tensor": lambda x: taper.normal(x, x.abs()) * 2,
    "normal.Tensor_float": lambda x: taper.normal(x, 2.0) - 1,
    "normal.float_Tensor": lambda x: taper.normal(1.0, x.abs()) - x,
    "log_normal_": lambda x: x.clone().log_normal_(0.5, 0.25) * x,
    "exponential_": lambda x: x.clone().exponential_(2.0) * x,
    "cauchy_": lambda x: x.clone().cauchy_(1, 2) * 2,
    "geometric_": lambda x: x.clone().geometric_(0.3) * x,
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3) * x,
    "bernoulli.p": lambda x: taper.bernoulli(x, 0.3) * x,
    "bernoulli": lambda x: taper.bernoulli(taper.sigmoid(x)) + x,
    "bernoulli_.Tensor": lambda x: x.clone().bernoulli_(taper.sigmoid(x).double()) + x,
    "randint": lambda x: taper.randint(3, 100, tuple(x.shape)) + 1,
    "randint of 2**31": lambda x: taper.randint(-5, 2**31 - 6, tuple(x.shape), dtype=taper.int32),
    "randint of 2**32": lambda x: taper.randint(-7, 2**32 - 7, tuple(x.shape)) * 2,
    "randint of 2**40": lambda x: taper.randint(-7, 2**40 - 7, tuple(x.shape)) * 2,
    "randint of many": lambda x: taper.randint(0, 3**30, tuple(x.shape)) * 2,
    "randint_like": lambda x: taper.randint_like(x, -3, 10) * 2,
    "random_": lambda x: x.clone().random_() * 2,
    "random_ i64": lambda x: taper.empty(tuple(x.shape), dtype=taper.int64).random_(),
    "random_ i8": lambda x: taper.empty(tuple(x.shape), dtype=taper.int8).random_() + 1,
    "random_.to": lambda x: x.clone().random_(50) * 2,
    "random_.from": lambda x: taper.empty(tuple(x.shape), dtype=taper.int32).random_(-7, 50) + 1,
    "dropout": lambda x: F.dropout(x, 0.3) + 1,
    "several": lambda x: taper.randn_like(x) * taper.rand_like(x) + taper.randn_like(x),
    "kept": lambda x: (lambda n: (n * x + x[..., :1]) * n)(taper.randn_like(x)),
    "beside a row": lambda x: taper.randn_like(x) + x + (x[:1] if x.ndim > 1 else 1),
    "turned round": lambda x: taper.randn_like(x).transpose(0, -1) * 2 + x.transpose(0, -1),
}
ROUGH = {"log_normal_", "exponential_", "cauchy_", "normal.Tensor_Tensor", "normal.float_Tensor"}  # functions of a vector, or of halves rounded less often


def agree(name, x, dynamic=False, **options):
    f, seen = DRAWS[name], []
    for compiled in (False, True):
        taper._dynamo.reset()
        taper.manual_seed(7)
        y = (taper.compile(f, dynamic=dynamic, options=options) if compiled else f)(x)
        seen.append((y, taper.rand(3)))
    (want, after), (got, then) = seen
    what = (name, x.dtype, tuple(x.shape), dynamic, options)
    assert taper.equal(after, then), what
    assert got.dtype == want.dtype and got.stride() == want.stride(), what
    half = x.dtype in (taper.float16, taper.bfloat16) or want.dtype == taper.float64
    if name in ROUGH or half:
        tol = {taper.float64: 1e-13, taper.float32: 1e-6}.get(want.dtype, 2e-2)
        assert taper.allclose(got, want, rtol=tol, atol=tol * max(1.0, want.abs().max().item() if want.numel() else 1)), what
    else:
        assert taper.equal(got, want), what


def test_fallback_random():
    """options={"fallback_random": True} and the setting of that name: compiled code draws eager's own numbers, in its order."""
    taper._C._counted_draws(False)
    try:
        import taper._inductor.config as config
        for name in DRAWS:
            x = taper.linspace(-1, 1, 40).view(5, 8)
            agree(name, x, fallback_random=True)
            with config.patch(fallback_random=True):
                agree(name, x)
        w = taper.ones(6, 6, requires_grad=True)
        f = lambda x: F.dropout(taper.tanh(F.dropout(x @ w, 0.3)) @ w, 0.5).sum()  # noqa: E731
        grads = []
        for g in (f, taper.compile(f, options={"fallback_random": True})):
            w.grad = None
            taper.manual_seed(5)
            g(taper.ones(3, 6)).backward()
            grads.append(w.grad)
        assert taper.allclose(*grads, rtol=1e-5)
    finally:
        taper._C._counted_draws(True)


def test_dropout_has_the_layout_of_its_input():
    """Dimensions that were expanded lie where they stand, known sizes or not: PyTorch's strides."""
    x, y = taper.randn(5, 5), taper.randn(5, 1, 4)
    for v, stride in ((x.expand(2, 5, 5), (25, 5, 1)), (x[:, :1].expand(5, 5), (5, 1)), (x.t().expand(2, 5, 5), (25, 1, 5)), (y.permute(2, 1, 0).expand(4, 3, 5), (1, 4, 12))):
        for f in (lambda v: F.dropout(v, 0.25), lambda v: F.alpha_dropout(v, 0.25, True), lambda v: taper.native_dropout(v, 0.25, True)[0]):
            for g in (f, taper.compile(f), taper.compile(f, dynamic=True)):
                assert g(v).stride() == stride, (v.stride(), g(v).stride())


def test_every_distribution_gives_the_numbers_of_eager():
    for shape in ((64,), (1003,), (5, 7), (3, 5, 8), (1,), (0, 4), ()):
        for name in DRAWS:
            if shape == () and name == "kept":
                continue
            agree(name, taper.randn(*shape) if shape else taper.tensor(0.5))
    for name in DRAWS:
        agree(name, taper.randn(33, 70))  # rows that do not begin with a block, and more of them than a kernel draws itself
        for dt in (taper.float64, taper.float16, taper.bfloat16):
            agree(name, taper.randn(9, 36).to(dt))
        agree(name, taper.randn(6, 10), dynamic=True)
        agree(name, taper.randn(40, 33), dynamic=True)


def test_every_engine_draws_the_same():
    for name in DRAWS:
        for dt in (taper.float32, taper.float64):
            x = taper.randn(7, 36).to(dt)
            for engine in ({"emitter": "interpreter"}, {"emitter": "x64", "isa": "avx2"}):
                agree(name, x, **engine)
            if name in ("randn", "exponential_", "geometric_", "bernoulli_", "randint", "randint of 2**40", "turned round"):
                agree(name, x, emitter="c")


def test_thread_counts_do_not_matter():
    was = taper.get_num_threads()
    try:
        for n in (1, 2):
            taper.set_num_threads(n)
            for name in ("randn", "exponential_", "randint", "beside a row"):
                agree(name, taper.randn(311, 257))
    finally:
        taper.set_num_threads(was)


def schedule(body):
    code = "import taper\nF = taper.nn.functional\n" + body
    r = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=120,
                       env={**os.environ, "TAPER_LOGS": "schedule,fusion", "TAPER_CACHE": "0"})
    assert r.returncode == 0, r.stderr
    return r.stderr


def counts(log):
    return [tuple(map(int, m)) for m in re.findall(r"schedule of \w+: (\d+) kernels?, \d+ products?, (\d+) library calls?", log)]


def test_draws_are_part_of_the_kernels():
    for program in ("x + taper.randn_like(x)", "x.clone().exponential_() * x", "taper.normal(x, 2.0)", "x * taper.randint(0, 5, (40, 36))",
                    "x.clone().bernoulli_(0.2) * x", "x.clone().cauchy_() - x", "x.clone().geometric_(0.5) - x", "x.clone().log_normal_() - x"):
        log = schedule(f"taper.compile(lambda x: {program})(taper.randn(40, 36))")
        assert counts(log) == [(1, 1)] and "call   _rng_reserve" in log, (program, log)
    # numbers of rows that do not begin with a block are drawn by a kernel of their own
    log = schedule("taper.compile(lambda x, b: x + taper.randn_like(x) + b)(taper.randn(40, 37), taper.randn(37))")
    assert counts(log) == [(2, 1)], log
    log = schedule("taper.compile(lambda x: x + taper.randn_like(x) * 2)(taper.randn(40, 37))")
    assert counts(log) == [(1, 1)], log
    # a product is followed by what is drawn in blocks, row by row
    log = schedule("taper.compile(lambda x, w: (x @ w) * taper.randn(64, 64))(taper.randn(64, 64), taper.randn(64, 64))")
    assert "on the rows of the product" in log, log


def test_draws_between_products():
    """Dropout after a linear layer and inside attention runs on the rows of products; the numbers stay those of eager."""
    def attend(q, k, v):
        return F.dropout(taper.softmax(q @ k.transpose(-1, -2) * 0.2, -1), 0.3) @ v

    def layers(x, w, b):
        return F.dropout(F.gelu(F.linear(x, w, b)), 0.2) + taper.randn(x.shape[0], w.shape[0])

    programs = [(attend, [taper.randn(2, 3, t, 16) for _ in range(3)]) for t in (64, 35, 130)]
    programs += [(layers, [taper.randn(70, 40), taper.randn(n, 40), taper.randn(n)]) for n in (64, 37)]
    for f, args in programs:
        for grad in (False, True):
            got = []
            for g in (f, taper.compile(f)):
                taper._dynamo.reset()
                taper.manual_seed(5)
                xs = [a.clone().requires_grad_(grad) for a in args]
                y = g(*xs)
                if grad:
                    y.sin().sum().backward()
                got.append([y] + [x.grad for x in xs if grad] + [taper.rand(2)])
            for a, b in zip(*got):
                assert taper.allclose(a, b, rtol=1e-4, atol=1e-4), (f, args[0].shape, grad)
    log = schedule("def f(q, k, v):\n    return F.dropout(taper.softmax(q @ k.transpose(-1, -2), -1), 0.3) @ v\n"
                   "taper.compile(f)(*[taper.randn(4, 64, 16) for _ in range(3)])")
    assert "with the kernel between them in cache" in log, log


def test_a_probability_out_of_range_is_the_error_of_eager():
    def f(p):
        return taper.bernoulli(p) * 2

    for p in (taper.tensor([0.5, 1.5]), taper.tensor([[0.5, float("nan")]]).double(), taper.rand(4, 6)[:, ::2] - 2):
        said = []
        for g in (f, taper.compile(f)):
            taper.manual_seed(1)
            try:
                g(p)
            except RuntimeError as e:
                said.append((str(e).split("\n")[0], taper.rand(1).item()))
        assert len(said) == 2 and said[0] == said[1], said


def test_backward_draws_again():
    def f(x):
        return ((x * taper.randn_like(x)).sin() * taper.empty_like(x).exponential_()).sum()

    grads = []
    for g in (f, taper.compile(f)):
        x = taper.linspace(-2, 2, 40 * 36).view(40, 36).requires_grad_()
        taper.manual_seed(3)
        g(x).backward()
        grads.append(x.grad)
    assert taper.allclose(*grads, rtol=1e-5, atol=1e-6)


def test_normal_numbers_are_normal():
    """Moments and tails of a million, single and double, eager and compiled."""
    for dt in (taper.float32, taper.float64):
        for draw in (lambda: taper.randn(1 << 20, dtype=dt), taper.compile(lambda: taper.randn(1 << 20, dtype=dt))):
            taper.manual_seed(11)
            x = draw().double()
            assert abs(x.mean().item()) < 4e-3 and abs(x.var().item() - 1) < 6e-3, (x.mean(), x.var())
            assert abs((x ** 3).mean().item()) < 0.01 and abs((x ** 4).mean().item() - 3) < 0.03
            assert abs((x.abs() > 1.959964).double().mean().item() - 0.05) < 1e-3
            assert abs((x[::2] * x[1::2]).mean().item()) < 6e-3
            assert 4.4 < x.abs().max().item() < 6.5


def test_generators_of_the_callers_own():
    draws = {
        "randn": lambda g: taper.randn([4], generator=g), "randint": lambda g: taper.randint(0, 9, (5,), generator=g),
        "randperm": lambda g: taper.randperm(6, generator=g), "normal_": lambda g: taper.empty(4).normal_(generator=g),
        "bernoulli": lambda g: taper.bernoulli(taper.full((5,), 0.5), generator=g), "multinomial": lambda g: taper.multinomial(taper.ones(5), 3, generator=g),
        "init": lambda g: taper.nn.init.uniform_(taper.empty(3), generator=g), "both": lambda g: taper.rand(4, generator=g) * taper.rand(4),
        "default": lambda g: taper.rand(3, generator=taper.default_generator)}
    for name, f in draws.items():
        def run(fn):
            g = taper.Generator()
            taper.manual_seed(0), g.manual_seed(5)
            return [t.tolist() for t in (fn(g), taper.rand(2), taper.rand(2, generator=g))]
        want = run(f)
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            assert run(taper.compile(f, backend=backend)) == want, (name, backend)
