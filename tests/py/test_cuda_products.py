"""Products on CUDA by cuBLASLt, without a GPU: a libcublasLt of plain loops (tests/gpu/fake_cublaslt.c) on the memory of the libcuda of the tests,
which logs what it is asked for."""
import os
import tempfile

from test_cuda import FAKE, has_fake, run

LT = os.path.join(os.path.dirname(FAKE), "libtaper_fakecublaslt.so")
HEAD = """
import os, sys
def asked():
    name = os.environ["FAKE_CUBLASLT_LOG"]
    lines = open(name).read().split("\\n")[:-1] if os.path.exists(name) else []
    open(name, "w").close()
    return lines
def stat(name): return taper._C._cuda_stats(0)[name]
def same(a, b, tol=0.01):
    assert a.shape == b.shape and a.stride() == b.stride(), (a.stride(), b.stride())
    off = (a.float().cpu() - b.float().cpu()).abs().max().item() / b.float().abs().max().item()
    assert off <= tol, off
"""


def products(body, **env):
    if not has_fake():
        return ""
    with tempfile.TemporaryDirectory() as d:
        return run(HEAD + body, TAPER_CUBLASLT_LIBRARY=LT, FAKE_CUBLASLT_LOG=os.path.join(d, "log"), **{"TAPER_CACHE_DIR": os.path.join(d, "cache"), **env})


ACTIVATIONS = """
x, w, b = taper.randn(2, 8, 16).bfloat16(), taper.randn(24, 16).bfloat16(), taper.randn(24).bfloat16()
CASES = [ # function, epilogue
    (lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), 36),
    (lambda x, w, b: F.gelu(x @ w.t(), approximate="tanh"), 32),
    (lambda x, w, b: F.relu(F.linear(x, w, b)), 6),
    (lambda x, w, b: F.relu(x[0] @ w.t()), 2),
    (lambda x, w, b: F.gelu(F.linear(x, w, b)), 4),                                        # by erf: no epilogue of cuBLASLt's
    (lambda x, w, b: (lambda y: (F.relu(y), y.sum()))(F.linear(x, w, b))[0].sum(1), 4),    # its kernel sums as well
    (lambda x, w, b: (lambda y: F.relu(y) + y.sum())(F.linear(x, w, b)), 4),               # somebody else reads the product
    (lambda x, w, b: F.relu(F.linear(x.float(), w.float(), b.float())), 4),                # floats: as eager rounds them
]
"""


def test_activations():
    """A kernel that is no more than relu or the gelu by tanh is the product's epilogue, also with recorded launches."""
    body = ACTIVATIONS + """
for i, (f, epilogue) in enumerate(CASES):
    want = f(x, w, b)
    for mode in (None, "reduce-overhead"):
        a = [t.cuda() for t in (x, w, b)]
        with taper.no_grad():
            g = taper.compile(lambda *a: f(*a), mode=mode)
            asked()
            got = [g(*a).clone() for _ in range(4)]
        seen = asked()
        assert seen and all(f"epilogue {epilogue} " in s for s in seen), (i, mode, seen)
        for y in got:
            same(y, want, 0.02)
"""
    products(body)
    products(body.replace("epilogue {epilogue} ", "epilogue {4 if epilogue & 4 else 1} "), FAKE_CUBLASLT_EPILOGUES="0")


def test_activations_of_the_disk_cache():
    """Another process finds the plan, with its epilogues."""
    if not has_fake():
        return
    body = ACTIVATIONS + """
f, epilogue = CASES[0]
a = [t.cuda() for t in (x, w, b)]
with taper.no_grad():
    same(taper.compile(lambda *a: f(*a))(*a), f(x, w, b), 0.02)
assert any("epilogue 36 " in s for s in asked())
"""
    with tempfile.TemporaryDirectory() as d:
        for _ in range(2):
            products("taper.manual_seed(0)\n" + body, TAPER_CACHE_DIR=d)


def test_a_watched_program_makes_every_value():
    """Who compares values between steps sees the product; a planted fault strikes in the kernel."""
    body = ACTIVATIONS + """
f, epilogue = CASES[2]
a = [t.cuda() for t in (x, w, b)]
with taper.no_grad():
    got, want = taper.compile(lambda *a: f(*a))(*a), f(x, w, b)
"""
    products(body + "same(got, want, 0.02)\nassert not any('epilogue 6 ' in s for s in asked())\n", TAPER_BISECT_SUBSYSTEM="fuse", TAPER_BISECT_MAX="-1")
    products(body + "same(got.float() - 1, want.float(), 0.05)\n", TAPER_INJECT="relu:accuracy@gen")


def test_gradients_keep_the_product():
    """The gradient of gelu reads the product: it is written. That of relu reads the result."""
    products("""
x, w = taper.randn(8, 16).bfloat16(), taper.randn(24, 16).bfloat16()
for act, epilogue in ((lambda y: F.gelu(y, approximate="tanh"), 1), (F.relu, 2)):
    r = []
    for dev in ("cpu", "cuda"):
        a = [t.detach().to(dev).requires_grad_() for t in (x, w)]
        f = lambda x, w: act(x @ w.t())
        asked()
        y = (taper.compile(f) if dev == "cuda" else f)(*a)
        assert dev == "cpu" or any(f"8 x 16 x 24 epilogue {epilogue} " in s for s in asked())
        y.float().square().sum().backward()
        r.append([y] + [t.grad for t in a])
    for p, q in zip(*r):
        same(q, p, 0.03)
""")


def test_odd_rows_lie_further_apart():
    """Logits: the rows of a large product that loops alone read are a multiple of 16 bytes apart; cuBLASLt makes the columns that fill whole
    accesses, then those that are left. A result of the program lies as usual."""
    out = products("""
import taper.nn.functional as F
m, k, n = 8, 512, 65537
h, v = taper.randn(2, m // 2, k).bfloat16(), (taper.randn(n, k) / 16).bfloat16()
def f(h, v):
    y = F.linear(h, v).flatten(0, 1).float()
    return y.amax(1), (y - 1).sum(1)
hc, vc = h.cuda(), v.cuda()
with taper.no_grad():
    want = f(h, v)
    g = taper.compile(lambda h, v: f(h, v))
    for _ in range(2):
        for p, q in zip(g(hc, vc), want):
            same(p, q, 0.02)
        print(sorted(set(asked())))
    asked()
    y = taper.compile(lambda h, v: F.linear(h, v))(hc, vc)
    same(y, F.linear(h, v), 0.02)
    print(sorted(set(asked())))
""")
    if out:
        lines = out.split("\n")
        assert lines[0] == lines[1] == str(["8 x 512 x 1 epilogue 1 ld 65544 algorithm 1", "8 x 512 x 65536 epilogue 1 ld 65544 algorithm 1"]), lines
        assert lines[2] == str(["8 x 512 x 65544 epilogue 1 ld 65544 algorithm 1"]), lines  # by way of a copy


def test_max_autotune_measures():
    """All algorithms that cuBLASLt names run, with their epilogue, when the program first runs; not again for the same shape."""
    products("""
x, w, b = [t.bfloat16() for t in (taper.randn(8, 16), taper.randn(24, 16), taper.randn(24))]
f = lambda x, w, b: F.relu(F.linear(x, w, b))
a = [t.cuda() for t in (x, w, b)]
with taper.no_grad():
    for n, mode in enumerate(("max-autotune-no-cudagraphs", "max-autotune")):
        g = taper.compile(lambda x, w, b: f(x, w, b), mode=mode)
        asked()
        same(g(*a), f(x, w, b), 0.02)
        seen = asked()
        assert {s.split(" algorithm ")[1] for s in seen} == ({"1", "2", "3"} if n == 0 else {seen[0].split(" algorithm ")[1]}), seen
        assert all("epilogue 6 " in s for s in seen)
        same(g(*a), f(x, w, b), 0.02)
        assert len(asked()) == 1
""")
