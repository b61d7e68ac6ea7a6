"""The interpreter, machine code and C built by the system's compiler give the same bits."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import taper

F = taper.nn.functional
EMITTERS = ("x64", "c", "interpreter")


def all_in_one(x, w, h, n, at):
    """Many kinds of kernels in one graph, so that the C compiler runs once."""
    a = taper.sin(x) * taper.exp(-x.abs()) + taper.tanh(w)
    b = F.softmax(x, 1) + F.layer_norm(w, (w.shape[1],))
    c = (h * 2).to(taper.bfloat16).float().sum(0) + h.float().var(1, keepdim=True).mean()
    d = (n // 3 % 5 << 2) ^ n.sum(0) - n.cumsum(1).amax(0)
    e = x.t().contiguous().argmax(0), w.sum(), x.amin((0, 1)), taper.where(x > w, x, w).prod(1)
    f = w[at] + x.index_select(0, at) * taper.erf(w) - taper.log1p(x.abs())
    return (a, b, c, d, f) + e


def inputs():
    taper.manual_seed(3)
    x, w = taper.randn(17, 33), taper.randn(17, 33) * 3
    x[0, :5] = taper.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    return x, w, taper.randn(17, 33).half(), taper.randint(-50, 50, (17, 33)), taper.randint(0, 17, (17,))


def same_bits(a, b):
    if a.dtype.is_floating_point:
        a, b = a.contiguous(), b.contiguous()
        kind = {2: taper.int16, 4: taper.int32, 8: taper.int64}[a.element_size()]
        nan = a.isnan() & b.isnan()
        return a.dtype == b.dtype and bool((nan | (a.view(kind) == b.view(kind))).all())
    return a.dtype == b.dtype and taper.equal(a, b)


def test_three_emitters_give_the_same_bits():
    args, results = inputs(), {}
    for e in EMITTERS:
        taper._dynamo.reset()
        results[e] = taper.compile(all_in_one, options={"emitter": e})(*args)
    for e in EMITTERS[1:]:
        for i, (a, b) in enumerate(zip(results["x64"], results[e])):
            assert same_bits(a, b), (e, i, a, b)
    for i, (got, want) in enumerate(zip(results["c"], all_in_one(*args))):
        wide = 0.1 if i == 2 else 1e-3  # narrow values inside a kernel stay float32
        assert taper.allclose(got.double(), want.double(), rtol=1e-3, atol=wide, equal_nan=True), i


def test_a_conversion_to_a_narrow_type_rounds_inside_a_kernel():
    programs = (lambda x: x.to(taper.bfloat16).float(), lambda x: x.half().float().sum(-1), lambda x: x.bfloat16().double() * 3,
                lambda x: (x.to(taper.float16) * 2).float())
    x = taper.randn(33, 17)
    for emitter in EMITTERS:
        for f in programs:
            taper._dynamo.reset()
            assert taper.compile(f, options={"emitter": emitter})(x).equal(f(x)), emitter


def test_narrow_values_are_compared_as_they_are_stored():
    def f(x):
        y = taper.sigmoid(x) * 0.6 + 0.2
        return y.min() + y.amax()

    for n in (7, 3000):
        for dtype in (taper.bfloat16, taper.float16):
            taper._dynamo.reset()
            taper.manual_seed(3)
            a = (taper.randint(-16, 17, [n]) / 8).to(dtype).requires_grad_()
            b = a.detach().clone().requires_grad_()
            f(a).backward()
            taper.compile(f)(b).backward()
            assert a.grad.ne(0).any() and taper.allclose(a.grad.float(), b.grad.float(), rtol=0.05, atol=1e-3), (n, dtype)


def test_gradients_and_symbolic_sizes_by_c():
    def f(x, w):
        return (F.gelu(x) * w).sum(1).tanh()

    for e in ("x64", "c"):
        taper._dynamo.reset()
        g = taper.compile(f, options={"emitter": e}, dynamic=True)
        for n in (3, 8):
            taper.manual_seed(n)
            x, w = taper.randn(n, 5, requires_grad=True), taper.randn(n, 5, requires_grad=True)
            y = g(x, w)
            y.sum().backward()
            gx = x.grad.clone()
            x.grad = None
            f(x, w).sum().backward()
            assert taper.allclose(gx, x.grad, atol=1e-5) and taper.allclose(y, f(x, w), atol=1e-5), (e, n)


PROGRAM = """
import taper
def f(x, y):
    return (taper.sin(x) + y).sum(1), x * y
x = taper.arange(12.0).reshape(3, 4)
for n in range(2):
    taper._dynamo.reset()
    y = taper.compile(f)(x, x + n)
    print(["%.5f" % v for v in y[0].tolist()])
"""


NUMBERS = """
import taper
def f(x):
    return [x.clamp(max=v) for v in (-0.0, 0.0, 1.0, -3.0, 0.1, 1e6, 16777216.0, 1e15, 1e16, 123456789012345680.0, 1e-45, -1e300)]
x = taper.tensor([-0.0, 0.0, 1.5, -4.0, 3e38, float("inf")])
print([v.tolist() for y in (x, x.double()) for v in taper.compile(f)(y)])
"""


def program(text=PROGRAM, **env):
    kept = {k: v for k, v in os.environ.items() if k not in ("TAPER_EMITTER", "TAPER_ISA", "CC")}
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env={**kept, **env})


def test_without_a_c_compiler_one_line_and_the_interpreter():
    plain, none = program(), program(TAPER_EMITTER="c", CC="no-such-compiler")
    assert none.returncode == 0 and none.stdout == plain.stdout and plain.stdout.count("[") == 2
    lines = none.stderr.splitlines()
    assert len(lines) == 1 and "interpreted" in lines[0] and "no-such-compiler" in lines[0], none.stderr


def test_constants_of_every_form_compile_as_c():
    if not shutil.which("cc"):
        raise unittest.SkipTest("there is no C compiler")
    plain, c = program(NUMBERS, TAPER_CACHE="0"), program(NUMBERS, TAPER_EMITTER="c", TAPER_CACHE="0")
    assert c.returncode == 0 and c.stdout == plain.stdout and not c.stderr, c.stderr


def test_a_c_compiler_that_fails_is_named_with_its_message():
    none = program(TAPER_EMITTER="c", CC="false")
    assert none.returncode == 0 and none.stdout == program().stdout
    assert len(none.stderr.splitlines()) == 1 and "'false' failed (exit status 1)" in none.stderr


def test_ctrl_c_ends_the_c_compiler():
    with tempfile.TemporaryDirectory() as d:
        slow = d + "/slow-cc"
        with open(slow, "w") as f:
            f.write("#!/bin/sh\ntouch " + d + "/started\nsleep 60\n")
        os.chmod(slow, 0o755)
        p = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "TAPER_EMITTER": "c", "CC": slow, "TAPER_CACHE": "0"})
        for _ in range(600):
            if os.path.exists(d + "/started"):
                break
            time.sleep(0.05)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        assert p.returncode != 0 and err.rstrip().endswith("KeyboardInterrupt"), err


def test_machines_without_avx2_use_c():
    if not shutil.which("cc"):
        import unittest
        raise unittest.SkipTest("no C compiler")
    r = program(TAPER_ISA="base", TAPER_LOGS="+inductor")
    assert r.returncode == 0 and r.stdout == program().stdout
    assert r.stderr.count("built as C by 'cc'") == 1, r.stderr  # once: the second graph is the same
    none = program(TAPER_ISA="base", CC="no-such-compiler")
    assert none.returncode == 0 and none.stdout == r.stdout and len(none.stderr.splitlines()) == 1


def test_a_wrong_emitter_in_the_environment_is_ignored_with_a_line():
    r = program(TAPER_EMITTER="fortran")
    assert r.returncode == 0 and r.stdout == program().stdout
    assert "TAPER_EMITTER: option 'emitter' cannot be 'fortran'; it is one of: auto, x64, c, interpreter" in r.stderr
