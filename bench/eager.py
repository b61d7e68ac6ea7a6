"""Eager speed side by side with PyTorch where it is importable.

    python bench/eager.py [--quick] [--misses] [--only REGEX] [--threads N] [--cpu-time] [--elements N]

Each line: what, Taper's time, PyTorch's time, their ratio, and the bar the ratio is held to. The two take turns in short
rounds and the best round of each counts, so that a busy machine disturbs both alike. --misses prints only what is over
its bar; --only the lines whose name matches. The bars hold for 2 threads, which is what runs unless --threads says otherwise.
--cpu-time counts processor time, of one thread then, for a machine that is busy with other work. --elements takes another
number of elements than 1M for pointwise operators: with 16384 they stay in the cache and show arithmetic alone. Products are
measured in processes of their own (--alone LIBRARY): the other library's threads would still spin on the cores they need.
"""
import os, re, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import taper

def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


CPU_TIME = "--cpu-time" in sys.argv
THREADS = 1 if CPU_TIME else int(option("--threads", 2))
clock = time.thread_time if CPU_TIME else time.perf_counter
ALONE = option("--alone", "")
try:
    if ALONE == "taper":
        raise ImportError
    import torch
    torch.set_num_threads(THREADS)
except ImportError:
    torch = None
taper.set_num_threads(THREADS)
QUICK = "--quick" in sys.argv
MISSES = "--misses" in sys.argv
ONLY = re.compile(option("--only", ""))

UNARY = """abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh
cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid logit floor ceil round trunc frac isnan isinf isfinite
isposinf isneginf logical_not nan_to_num clone""".split()
UNIT = "asin acos atanh erfinv logit".split()  # arguments within (-1, 1) or (0, 1)
ABOVE = "log log2 log10 log1p sqrt rsqrt lgamma digamma acosh".split()  # positive arguments
ACTIVATIONS = """relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish
hardshrink softshrink sigmoid tanh logsigmoid""".split()
BINARY = """add sub rsub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign logaddexp xlogy
heaviside eq ne lt le gt ge logical_and logical_or logical_xor""".split()
BITWISE = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
REDUCE = """sum mean prod amax amin argmax argmin any all var std norm count_nonzero nansum nanmean logsumexp""".split()
SCANS = "cumsum cumprod cummax cummin softmax log_softmax logcumsumexp".split()


def timed(fns, budget):
    """Best seconds a call of each function, over rounds in turn that together last about budget. Workers of a library go
    on spinning for up to 20 ms after its last call and would take a core from the other one: a pause before each round
    lets them fall asleep, and a call wakes those that are wanted."""
    rounds = 6 if THREADS > 1 else 25
    counts, best = [], []
    for fn in fns:
        fn()
        t0 = clock()
        fn()
        counts.append(max(1, int(budget / rounds / max(clock() - t0, 1e-7))))
        best.append(1e9)
    for _ in range(max(5, rounds)):
        for i, fn in enumerate(fns):
            if THREADS > 1:
                time.sleep(0.025)
                fn()
            r = range(counts[i])
            t1 = clock()
            for _ in r:
                fn()
            best[i] = min(best[i], (clock() - t1) / counts[i])
    return best


def small(T):
    x, y, m = T.ones(8), T.ones(8), T.ones(4, 4)
    yield "x + 1 (8 floats)", 0.5, lambda: x + 1
    yield "x * y (8 floats)", 0.5, lambda: x * y
    yield "x.sin() (8 floats)", 0.5, lambda: x.sin()
    yield "x.sum() (8 floats)", 1.0, lambda: x.sum()
    yield "x[2] (8 floats)", 1.0, lambda: x[2]
    yield "m @ m (4x4)", 1.0, lambda: m @ m
    yield "x.view(2, 4)", 1.0, lambda: x.view(2, 4)


def pointwise(T):
    """Every pointwise operator on 1M floats."""
    N = int(option("--elements", 1 << 20))
    F = T.nn.functional
    a, b, c = T.randn(N), T.randn(N), T.randn(N)
    u, up = T.rand(N) * 0.98 + 0.01, T.rand(N) * 4 + 1.01
    i, j = T.randint(0, 100, (N,)), T.randint(0, 30, (N,))
    m, k = a > 0, b > 0

    def row(name, fn):
        return f"{name} ({'1M' if N == 1 << 20 else N})", 1.2, fn

    for n in UNARY:
        f, x = getattr(T, n), u if n in UNIT else up if n in ABOVE else a
        yield row(n, lambda f=f, x=x: f(x))
    yield row("bitwise_not", lambda: T.bitwise_not(i))
    yield row("to float64", lambda: a.to(T.float64))
    yield row("to float16", lambda: a.to(T.float16))
    yield row("to int64", lambda: a.to(T.int64))
    yield row("int64 to float", lambda: i.to(T.float32))
    yield row("bool to float", lambda: m.to(T.float32))
    side = int(N ** 0.5)
    t = a[: side * side].view(side, side).t()
    yield row("contiguous (transposed)", lambda: t.contiguous())
    yield row("clamp", lambda: T.clamp(a, -1.0, 1.0))
    for n in ACTIVATIONS:
        f = getattr(F, n)
        yield row("F." + n, lambda f=f: f(a))
    yield row("F.gelu tanh", lambda: F.gelu(a, approximate="tanh"))
    yield row("F.threshold", lambda: F.threshold(a, 0.1, 20.0))
    for n in BINARY:
        f = getattr(T, n)
        yield row(n, lambda f=f: f(a, b))
    yield row("a + 1", lambda: a + 1)
    yield row("a * 2.5", lambda: a * 2.5)
    yield row("a += b", lambda: a.add_(b, alpha=0.0))
    yield row("a + row", lambda: t + b[:side])
    yield row("div floor", lambda: T.div(a, b, rounding_mode="floor"))
    yield row("div trunc", lambda: T.div(a, b, rounding_mode="trunc"))
    yield row("pow tensor", lambda: T.pow(u, b))
    yield row("pow 2", lambda: a ** 2)
    yield row("pow 3", lambda: a ** 3)
    yield row("pow 0.5", lambda: up ** 0.5)
    yield row("pow 2.7", lambda: up ** 2.7)
    yield row("2 ** a", lambda: 2 ** a)
    for n in BITWISE:
        f = getattr(T, n)
        yield row(n, lambda f=f: f(i, j))
    yield row("int add", lambda: i + j)
    yield row("int mul", lambda: i * j)
    yield row("int eq", lambda: i == j)
    yield row("int floor_divide", lambda: T.floor_divide(i, 7))
    yield row("mask and", lambda: m & k)
    yield row("where", lambda: T.where(m, a, b))
    yield row("lerp", lambda: T.lerp(a, b, 0.3))
    yield row("lerp tensor", lambda: T.lerp(a, b, u))
    yield row("addcmul", lambda: T.addcmul(a, b, c, value=0.5))
    yield row("addcdiv", lambda: T.addcdiv(a, b, up, value=0.5))
    yield row("masked_fill", lambda: a.masked_fill(m, 1.0))
    h = a.to(T.float16)
    g = a.to(T.bfloat16)
    d = a.to(T.float64)
    yield row("add float16", lambda: h + h)
    yield row("mul bfloat16", lambda: g * g)
    yield row("exp float64", lambda: T.exp(d))
    yield row("sin float64", lambda: T.sin(d))


def reductions(T):
    """Every reduction over 1M floats: all of them, along the first and along the last dimension."""
    a = T.randn(1 << 20)
    am = a.view(1024, 1024)
    near = 1 + a.view(1024, 1024) * 1e-3
    i = T.randint(0, 1000, (1 << 20,))
    m = a > 0
    for n in REDUCE:
        f = getattr(T, n)
        x = near if n == "prod" else am
        if n == "logsumexp":
            yield f"{n} (1M)", 1.2, lambda f=f: f(a, 0)
        else:
            yield f"{n} (1M)", 1.2, lambda f=f, x=x: f(x)
        yield f"{n} dim 0 (1024x1024)", 1.2, lambda f=f, x=x: f(x, dim=0)
        yield f"{n} dim 1 (1024x1024)", 1.2, lambda f=f, x=x: f(x, dim=1)
    for n in ("max", "min", "median", "aminmax", "var_mean"):
        f = getattr(T, n)
        yield f"{n} (1M)", 1.2, lambda f=f: f(a)
    for n in ("max", "min", "median"):
        f = getattr(T, n)
        yield f"{n} dim 0 (1024x1024)", 1.2, lambda f=f: f(am, 0)
        yield f"{n} dim 1 (1024x1024)", 1.2, lambda f=f: f(am, 1)
    for p in (1, float("inf"), 3):
        yield f"norm p={p} (1M)", 1.2, lambda p=p: T.norm(a, p)
        yield f"norm p={p} dim 1 (1024x1024)", 1.2, lambda p=p: T.norm(am, p, 1)
    for n in SCANS:
        f = getattr(T, n)
        yield f"{n} (1M)", 1.2, lambda f=f: f(a, 0)
        yield f"{n} dim 0 (1024x1024)", 1.2, lambda f=f: f(am, 0)
        yield f"{n} dim 1 (1024x1024)", 1.2, lambda f=f: f(am, 1)
    yield "sum int64 (1M)", 1.2, lambda: i.sum()
    yield "sum bool (1M)", 1.2, lambda: m.sum()
    yield "any bool (1M)", 1.2, lambda: m.any()
    yield "cumsum int64 (1M)", 1.2, lambda: i.cumsum(0)
    yield "sort (1M)", 1.2, lambda: T.sort(a)
    yield "sort dim 1 (1024x1024)", 1.2, lambda: T.sort(am, 1)
    yield "sort int64 (1M)", 1.2, lambda: T.sort(i)
    yield "argsort (1M)", 1.2, lambda: T.argsort(a)
    yield "topk 10 (1M)", 1.2, lambda: T.topk(a, 10)
    yield "topk 10 dim 1 (1024x1024)", 1.2, lambda: T.topk(am, 10, 1)
    yield "kthvalue (1M)", 1.2, lambda: T.kthvalue(a, 1000)
    yield "unique int64 (1M)", 1.2, lambda: T.unique(i)
    yield "nonzero (1M)", 1.2, lambda: T.nonzero(m)
    yield "bincount (1M)", 1.2, lambda: T.bincount(i)


def moves(T):
    """Copying, gathering and scattering 1M floats."""
    a, b = T.randn(1024, 1024), T.randn(1024, 1024)
    i = T.randint(0, 1024, (1024, 1024))
    r = T.randint(0, 1024, (1024,))
    m = a > 0
    e = T.randn(4096, 256)
    w = T.randint(0, 4096, (64, 64))
    v = a.view(-1)
    n = m.sum().item()
    rows = [
        ("cat dim 0", lambda: T.cat([a, b], 0)), ("cat dim 1", lambda: T.cat([a, b], 1)),
        ("stack", lambda: T.stack([a, b])), ("repeat", lambda: a.repeat(2, 2)),
        ("repeat_interleave", lambda: a.repeat_interleave(2, 1)), ("flip 0", lambda: a.flip(0)),
        ("flip 1", lambda: a.flip(1)), ("roll 1", lambda: a.roll(3, 1)), ("rot90", lambda: a.rot90()),
        ("tril", lambda: a.tril()), ("pad", lambda: T.nn.functional.pad(a, (1, 1, 1, 1))),
        ("diag_embed", lambda: T.diag_embed(a[0])),
        ("gather 0", lambda: a.gather(0, i)), ("gather 1", lambda: a.gather(1, i)),
        ("scatter 1", lambda: a.scatter(1, i, b)), ("scatter_add 0", lambda: a.scatter_add(0, i, b)),
        ("scatter_add 1", lambda: a.scatter_add(1, i, b)), ("index_select 0", lambda: a.index_select(0, r)),
        ("index_select 1", lambda: a.index_select(1, r)), ("a[r]", lambda: a[r]), ("a[:, r]", lambda: a[:, r]),
        ("a[m]", lambda: a[m]), ("index_put", lambda: a.index_put((r,), b)), ("index_add", lambda: a.index_add(0, r, b)),
        ("index_copy", lambda: a.index_copy(0, r, b)), ("index_fill", lambda: a.index_fill(0, r, 1.0)),
        ("take", lambda: a.take(i)), ("take_along_dim", lambda: T.take_along_dim(a, i, 1)),
        ("masked_select", lambda: T.masked_select(a, m)), ("masked_scatter", lambda: a.masked_scatter(m, b)),
        ("embedding", lambda: T.nn.functional.embedding(w, e)), ("one_hot", lambda: T.nn.functional.one_hot(r, 1024)),
        ("a[1:, ::2]", lambda: a[1:, ::2].clone()), ("a[:] = b", lambda: a.copy_(b)),
    ]
    for name, fn in rows:
        yield name + " (1024x1024)", 1.2, fn
    s = T.sort(v[:1024])[0]
    yield "searchsorted (1M in 1024)", 1.2, lambda: T.searchsorted(s, v)
    yield "bucketize (1M in 1024)", 1.2, lambda: T.bucketize(v, s)
    yield "zeros (1M)", 1.2, lambda: T.zeros(1 << 20)
    yield "full (1M)", 1.2, lambda: T.full((1 << 20,), 2.0)
    yield "arange (1M)", 1.2, lambda: T.arange(1 << 20)
    yield "linspace (1M)", 1.2, lambda: T.linspace(0, 1, 1 << 20)
    yield "rand (1M)", 1.2, lambda: T.rand(1 << 20)
    yield "randn (1M)", 1.2, lambda: T.randn(1 << 20)
    yield "randint (1M)", 1.2, lambda: T.randint(0, 100, (1 << 20,))
    yield "bernoulli (1M)", 1.2, lambda: T.bernoulli(m.to(T.float32))
    yield "dropout (1M)", 1.2, lambda: T.nn.functional.dropout(a, 0.5)


def products(T):
    p, q = T.randn(512, 2048), T.randn(2048, 512)
    yield "mm 512x2048x512", 1.15, lambda: T.mm(p, q)
    yield "mm 512x2048x512 transposed", 1.15, lambda: T.mm(q.t(), p.t())
    x, y = T.randn(512, 512), T.randn(512, 2048)
    yield "mm 512x512x2048", 1.15, lambda: T.mm(x, y)


def tell(name, bar, times):
    line = f"{name:34} {times[0] * 1e6:10.2f} us"
    missed = len(times) > 1 and times[0] > times[1] * bar
    if len(times) > 1:
        line += f" {times[1] * 1e6:10.2f} us {times[0] / times[1]:6.2f}x  (bar {bar}x{', MISSED' if missed else ''})"
    if missed or not MISSES:
        print(line, flush=True)


def show(rows, budget):
    taper.manual_seed(0)
    ours = list(rows(taper))
    theirs = list(rows(torch)) if torch else [None] * len(ours)
    for o, t in zip(ours, theirs):
        if not ONLY.search(o[0]):
            continue
        try:
            tell(o[0], o[1], timed([o[2]] + ([t[2]] if t else []), budget))
        except Exception as e:
            print(f"{o[0]:34} failed: {e}", flush=True)


def show_alone(rows):
    """The same in processes of their own, in turn; the best of three counts."""
    libraries, best = ["taper"] + ["torch"] * bool(torch), {}
    wanted = [o for o in rows(taper) if ONLY.search(o[0])]
    for lib in libraries * (3 if wanted else 0):
        r = subprocess.run([sys.executable, os.path.abspath(__file__), "--alone", lib, "--threads", str(THREADS)] + ["--cpu-time"] * CPU_TIME,
                           capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=sys.path[0]))
        for line in r.stdout.splitlines():
            name, seconds = line.split("\t")
            best[lib, name] = min(best.get((lib, name), 1e9), float(seconds))
    for name, bar, _ in wanted:
        tell(name, bar, [best[lib, name] for lib in libraries])


def import_time(module):
    best = 1e9
    for _ in range(2 if QUICK else 5):
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        env = dict(os.environ, PYTHONPATH=sys.path[0])
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        best = min(best, float(r.stdout))
    return best


def show_import():
    a = import_time("taper")
    line = f"{'import':34} {a * 1e3:10.2f} ms"
    if torch:
        b = import_time("torch")
        line += f" {b * 1e3:10.2f} ms {a / b:6.3f}x  (bar 0.05x{', MISSED' if a > b * 0.05 else ''})"
    print(line)


if __name__ == "__main__":
    if ALONE:
        for name, _, fn in products(torch if ALONE == "torch" else taper):
            print(f"{name}\t{timed([fn], 0.5)[0]}")
        sys.exit()
    print(f"{'':34} {'Taper':>13} {'PyTorch' if torch else '':>13}")
    for rows in (small, pointwise, reductions, moves):
        show(rows, 0.08 if QUICK else 0.5)
    show_alone(products)
    if ONLY.search("import"):
        show_import()
