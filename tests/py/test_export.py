"""taper.export and taper compile: a model as C that is built and run without Taper."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import taper
from taper.testing.compiled import counted_draws

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
sys.path.insert(0, os.path.join(ROOT, "bench"))
nn, F = taper.nn, taper.nn.functional
CLEAN = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}  # nothing of Taper in sight


def sh(*cmd, ok=True, cwd=None, env=CLEAN):
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=100, cwd=cwd, env=env)
    assert not ok or r.returncode == 0, r.stdout + r.stderr
    return r


C_TYPES = {taper.float32: "float", taper.float64: "double", taper.int64: "int64_t", taper.int32: "int32_t", taper.bool: "uint8_t"}


def values(t):
    return ", ".join(repr(float(v)).replace("nan", "NAN") if t.dtype.is_floating_point else str(int(v)) for v in t.flatten().tolist())


def main_c(name, inputs, outputs, sizes=()):
    """A program that calls the function and prints its results."""
    args = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(len(outputs))] + [str(n) for n in sizes]
    lines = [f'#include "{name}.h"', "#include <math.h>", "#include <stdio.h>"]
    lines += [f"static const {C_TYPES[t.dtype]} in{i}[] = {{ {values(t)} }};" for i, t in enumerate(inputs)]
    lines += [f"static {C_TYPES[t.dtype]} out{i}[{max(t.numel(), 1)}];" for i, t in enumerate(outputs)]
    lines += ["int main(void)", "{", f"    int bad = {name}({', '.join(args)});", "    if (bad)", "        return bad;"]
    for i, t in enumerate(outputs):
        lines.append(f'    for (int i = 0; i < {t.numel()}; i++) printf("%.9g\\n", (double)out{i}[i]);')
    return "\n".join(lines + ["    return 0;", "}"]) + "\n"


FLAGS = ["-Wall", "-Werror", "-O1", "-std=c99", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv"]


def flat(results):
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    return [v for t in results for v in t.double().flatten().tolist()]


def near(got, want, tol=1e-4):
    assert len(got) == len(want), (len(got), len(want))
    for a, b in zip(got, want):
        assert abs(a - b) <= tol + tol * abs(b) or a != a and b != b, (a, b)


def run_in_c(fn, args, emit="c", extra=(), link=(), more=(), tol=1e-4, cc="cc", runs=()):
    """The results of fn(*args), computed by a C program. more: other arguments, for the same C with sizes that are arguments. runs: what runs the program."""
    if not shutil.which(cc):
        raise unittest.SkipTest("no C compiler")
    with taper.no_grad():
        want = fn(*args)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    with tempfile.TemporaryDirectory() as d:
        taper.export(fn, args, path=d + "/model.graph", dynamic=bool(more))
        out = {"c": "model.c", "so": "libmodel.so", "asm": "model.s"}[emit]
        sh(TAPER, "compile", "model.graph", "--emit", emit, "-o", out, "--name", "model", *extra, cwd=d, env=os.environ)
        if emit == "so":
            os.rename(d + "/libmodel.h", d + "/model.h")
        for f in os.listdir(d):
            if f.startswith("model.graph"):
                os.unlink(os.path.join(d, f))  # the C file is enough
        where = re.findall(r"\*   s\d+: +size (\d+) of in(\d+)", open(d + "/model.h").read())
        for given in (args, *more):
            with taper.no_grad():
                want = fn(*given)
            want = list(want) if isinstance(want, (tuple, list)) else [want]
            with open(d + "/main.c", "w") as f:
                f.write(main_c("model", given, want, [given[int(k)].shape[int(dim)] for dim, k in where]))
            sh(cc, *FLAGS, "-o", "program", "main.c", out if emit != "so" else "./libmodel.so", *link, "-lm", cwd=d)
            near([float(v) for v in sh(*runs, "./program", cwd=d).stdout.split()], flat(want), tol)
        return open(d + "/model.c").read() if emit == "c" else ""


def test_running_results_as_c():
    def f(x):
        return x.cumsum(1), x.cumprod(0), *taper.cummax(x, 1), *taper.cummin(x * 2, 0), taper.logcumsumexp(x, 1), taper.logcumsumexp(x, 0), x.long().cumsum(1)

    taper.manual_seed(0)
    run_in_c(f, (taper.randn(7, 9),))
    run_in_c(f, (taper.randn(7, 9),), more=((taper.randn(5, 20),),))


@counted_draws()
def test_random_numbers_as_c():
    """A function that draws takes its place in the sequence as an argument, gives the numbers of Taper, and moves on as Taper does."""
    if not shutil.which("cc"):
        raise unittest.SkipTest("no C compiler")
    m = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.Linear(9, 5))

    def f(x):
        p = taper.sigmoid(x)
        return (m(x), x + taper.randn_like(x), taper.rand(3, 5), x.clone().exponential_(2.0) + x.double().log_normal_(), taper.randint(-3, 9, (11,)),
                taper.bernoulli(p) * x, taper.randn(5, dtype=taper.float64), x.clone().cauchy_(), x.clone().geometric_(0.3),
                taper.randint(0, 2**40, (3,)), taper.normal(x, 2.0).t())

    x = taper.linspace(-2, 2, 24).view(4, 6)
    with tempfile.TemporaryDirectory() as d:
        taper.export(f, (x,), path=d + "/model.graph")
        taper.export(lambda p: taper.bernoulli(p), (x.sigmoid(),), path=d + "/chance.graph")
        for g in ("model", "chance"):
            sh(TAPER, "compile", g + ".graph", "--emit", "c", "-o", g + ".c", cwd=d, env=os.environ)
        for k in os.listdir(d):
            if ".graph" in k:
                os.unlink(os.path.join(d, k))
        want = []
        taper.manual_seed(12345678901)
        with taper.no_grad():
            for _ in range(2):  # the second call goes on where the first one ended
                outs = f(x)
                want += flat(outs)
        outs = list(outs)
        lines = ['#include "model.h"', '#include "chance.h"', "#include <stdio.h>", f"static const float in0[] = {{ {values(x)} }};"]
        lines += [f"static {C_TYPES[t.dtype]} out{i}[{t.numel()}];" for i, t in enumerate(outs)]
        lines += ["int main(void)", "{", "    taper_random r = { 12345678901u, 0 }, copy = r;", "    float ones[24];", "    for (int k = 0; k < 2; k++) {",
                  f"        if (model(in0, {', '.join(f'out{i}' for i in range(len(outs)))}, &r))", "            return 1;"]
        lines += [f'        for (int i = 0; i < {t.numel()}; i++) printf("%.17g\\n", (double)out{i}[i]);' for i, t in enumerate(outs)]
        lines += ["    }", "    if (r.seed != copy.seed || chance(in0, ones, &copy) != 4 || copy.offset != 0)  /* nothing was drawn */", "        return 2;",
                  "    return 0;", "}"]
        with open(d + "/main.c", "w") as fh:
            fh.write("\n".join(lines) + "\n")
        for more in ((), ("-DTAPER_THREADS=3", "-pthread")):
            sh("cc", *FLAGS, *more, "-o", "program", "main.c", "model.c", "chance.c", "-lm", cwd=d)
            got = [float(v) for v in sh("./program", cwd=d).stdout.split()]
            near(got, want, 1e-6)
    try:
        run_in_c(lambda x: x[taper.randperm(4)], (x,))
    except AssertionError as e:
        assert "'randperm' cannot be exported as C" in str(e), e
    else:
        assert False, "randperm was exported"


def test_a_function_as_c():
    w = taper.randn(5, 3)

    def f(x, y):
        return F.softmax(x @ w, 1), (x.sin() + y).sum(0), x.t()[1:], y

    taper.manual_seed(0)
    run_in_c(f, (taper.randn(4, 5), taper.randn(4, 5)))


def test_as_a_library_and_as_assembly():
    m = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    for emit in ("so", "asm"):
        run_in_c(m, (taper.randn(3, 6),), emit)


MODELS = ("mlp", "convnet", "resnet", "gpt", "lstm", "autoencoder", "vit", "unet")


def test_parts_written_in_place_as_c():
    def rows(x):
        y = x.sin()
        for i in range(4):
            y[i] = y[i] * 2 + y[(i + 1) % 6]
        return y

    def beside(x):
        y = x @ x.t()
        z = y.exp()
        z[1:3] = y[:2] * 2
        w = x + 1
        w[:, 2:4] = 5
        return z, w, w.sum(0)
    for f in (rows, beside):
        run_in_c(f, (taper.randn(6, 5),))


def test_models_as_c():
    import models
    for name in MODELS:
        m, args, _, _ = models.build(name, taper, small=True)
        m.eval()
        run_in_c(m, tuple(args))


def test_models_as_c_on_arm64():
    """The C that is written depends on no machine: built by another compiler for arm64 and run by an emulator."""
    import models
    emulator = next(filter(None, map(shutil.which, ("qemu-aarch64-static", "qemu-aarch64"))), None)
    if not shutil.which("aarch64-linux-gnu-gcc") or not emulator:
        raise unittest.SkipTest("no compiler for arm64 with an emulator here (gcc-aarch64-linux-gnu, qemu-user-static)")
    for name in MODELS:
        m, args, _, _ = models.build(name, taper, small=True)
        m.eval()
        run_in_c(m, tuple(args), link=("-static",), cc="aarch64-linux-gnu-gcc", runs=(emulator,))


def test_training_graphs_as_c():
    import models
    for name in MODELS:
        m, args, _, _ = models.build(name, taper, small=True)
        if any(isinstance(x, nn.Dropout) for x in m.modules()):  # what it draws is the process's own
            m.eval()
        weights = list(m.parameters())

        def gradients(*xs):
            with taper.enable_grad():
                out = m(*xs)
                out = out[0] if isinstance(out, (tuple, list)) else out
                return taper.autograd.grad(out.square().mean(), weights)
        run_in_c(gradients, tuple(args), tol=1e-3)


def test_sizes_are_arguments():
    m = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    w = taper.randn(7, 5)

    def f(x, y):
        return (F.softmax(m(x), 1), (y @ w).cumsum(0), x.view(-1)[1:], taper.cat([x, x.flip(0)], 0), y.sort(0)[0], taper.bmm(y[None] * 2, w[None]),
                x.t().contiguous(), x.new_zeros(x.shape[0] // 2) + 1, y.argmax(1))
    taper.manual_seed(0)
    text = run_in_c(f, (taper.randn(4, 6), taper.randn(9, 7)), more=[(taper.randn(n, 6), taper.randn(k, 7)) for n, k in ((2, 3), (33, 17), (101, 2))])
    assert "int64_t s0" in text and "tp_div(s0, 2)" in text
    conv = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 1))
    run_in_c(conv, (taper.randn(5, 2, 6, 8),), more=[(taper.randn(3, 2, 9, 7),)])
    with tempfile.TemporaryDirectory() as d:  # what was assumed is checked
        taper.export(lambda x: x.view(2, -1).sum(0), (taper.randn(4, 6),), path=d + "/g", dynamic=True)
        sh(TAPER, "compile", "g", "--emit", "c", "-o", "g.c", cwd=d, env=os.environ)
        where = re.findall(r"\*   (s\d+): +size (\d+) of in0, at least 2", open(d + "/g.h").read())
        assert [k for _, k in where] == ["0", "1"], where
        for sizes, rc in (((4, 6), 0), ((1, 6), 3), ((3, 3), 3)):
            with open(d + "/main.c", "w") as f:
                f.write(f'#include "g.h"\nstatic float x[64], y[64];\nint main(void) {{ return g(x, y, {sizes[0]}, {sizes[1]}); }}\n')
            sh("cc", *FLAGS, "-o", "program", "main.c", "g.c", "-lm", cwd=d)
            assert sh("./program", cwd=d, ok=False).returncode == rc, sizes


def test_threads_are_a_macro():
    def f(x, y):
        return (x @ y).relu() + 1, F.conv2d(x.view(2, 4, 64, 64), y.view(-1)[:4 * 4 * 9].view(4, 4, 3, 3), padding=1), (x * 2).sum(1)
    taper.manual_seed(0)
    args = taper.randn(128, 256), taper.randn(256, 32)
    text = run_in_c(f, args, link=("-DTAPER_THREADS=3", "-pthread"))
    assert "pthread_create" in text
    run_in_c(f, args, link=("-DTAPER_THREADS=1",))


def test_operators_that_are_calls_in_the_process():
    taper.manual_seed(0)
    x, img, vol = taper.randn(5, 7), taper.randn(2, 4, 9, 8), taper.randn(1, 2, 5, 6, 4)
    x[1, 2] = float("nan")
    w2, w3, wt, w1 = taper.randn(6, 2, 3, 3), taper.randn(4, 2, 2, 3, 2), taper.randn(4, 3, 3, 2), taper.randn(2, 3, 4)
    i = taper.randint(0, 5, (6,))
    for f, args in (
            (lambda x: (*taper.sort(x, 0), *taper.sort(x, dim=1, descending=True, stable=True), taper.argsort(x, dim=0, stable=True), *taper.topk(x, 3, 1),
                        taper.topk(x, 2, 0, largest=False)[0], x.cumsum(1), x.cumprod(0)), (x,)),
            (lambda x: (F.conv2d(x, w2, stride=2, padding=1, dilation=2, groups=2), F.conv_transpose2d(x, wt, stride=2, padding=1, output_padding=1),
                        F.conv_transpose2d(x, taper.cat([wt, wt], 1), groups=2), F.avg_pool2d(x, 5, 3, 1, ceil_mode=True, count_include_pad=False),
                        F.adaptive_avg_pool2d(x, (3, 5)), F.interpolate(x, size=(5, 11)), *F.max_pool2d(x, 3, 2, 1, return_indices=True)), (img,)),
            (lambda x: (F.conv3d(x, w3, padding=1), F.max_pool3d(x, 2), F.avg_pool3d(x, 2, 1, 1), F.conv_transpose3d(x, w3.transpose(0, 1).contiguous(), stride=2),
                        F.adaptive_avg_pool3d(x, 2), F.interpolate(x, scale_factor=2)), (vol,)),
            (lambda x: (F.conv1d(x, w1.transpose(0, 1).contiguous()), F.conv_transpose1d(x[:, :2], w1, stride=3), F.interpolate(x, scale_factor=2),
                        F.pad(x, (2, 1), mode="reflect")), (taper.randn(2, 2, 9),)),
            (lambda x, i: (x.index_add(0, i, x[i] * 2), x.scatter(0, i[:5, None].expand(5, 7), x), x.index_put((i,), x[i], accumulate=True),
                           x.index_copy(0, taper.arange(5).flip(0), x), taper.gather(x, 1, i[None].expand(5, 6)), x.nan_to_num().argmax(0)),
             (x.nan_to_num(), i))):
        run_in_c(f, args)


def test_products_of_narrow_floats_as_c():
    a, b, row = taper.randn(2, 5, 7), taper.randn(2, 7, 6), taper.randn(6)
    q = taper.randn(1, 2, 37, 16)
    for dt in (taper.bfloat16, taper.float16):
        low = lambda *ts: [t.to(dt) for t in ts]
        run_in_c(lambda a, b: taper.bmm(*low(a, b)).float(), (a, b), tol=1e-2)
        run_in_c(lambda a, w, r: F.linear(*low(a, w, r)).float(), (a[0], b[0].t().contiguous(), row), tol=2e-2)
        run_in_c(lambda a, b: taper.ops.aten._bmm_wide(*low(a, b)), (a, b), extra=("--blas",), link=(), tol=1e-4)
        run_in_c(lambda q: F.scaled_dot_product_attention(*low(q, q, q), is_causal=True).float(), (q,), tol=2e-2)


def test_blas_is_a_flag():
    with tempfile.TemporaryDirectory() as d:
        taper.export(lambda x: x @ x.t() + 1, (taper.randn(4, 4),), path=d + "/g")
        sh(TAPER, "compile", d + "/g", "--emit", "c", "-o", d + "/g.c", "--blas", env=os.environ)
        text = open(d + "/g.c").read()
        assert "#include <cblas.h>" in text and "cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 4, 4, 4" in text
        sh(TAPER, "compile", d + "/g", "--emit", "c", "-o", d + "/h.c", env=os.environ)
        assert "cblas" not in open(d + "/h.c").read()


def test_blas_is_linked():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/t.c", "w") as f:
            f.write("#include <cblas.h>\nint main(void) { return (int)cblas_sdot(0, 0, 1, 0, 1); }\n")
        found = [lib for lib in ("-lopenblas", "-lblas", "-lcblas") if sh("cc", "-o", "t", "t.c", lib, cwd=d, ok=False).returncode == 0]
    if not found:
        raise unittest.SkipTest("no BLAS with cblas.h to link")
    w = taper.randn(6, 5)
    text = run_in_c(lambda x, y: (x @ w, taper.bmm(y, y.transpose(1, 2)), x.t() @ x, (x @ w).double() @ w.t().double()), (taper.randn(4, 6), taper.randn(3, 4, 5)),
                    extra=("--blas",), link=(found[0],))
    assert text.count("cblas_sgemm(") == 3 and text.count("cblas_dgemm(") == 1


def test_what_export_returns():
    m = nn.Linear(40, 2)
    e = taper.export(m, (taper.ones(1, 40),))
    assert e.inputs == 1 and e.outputs == 1 and "taper.linear(" in e.text and "sha256:" in e.text
    with tempfile.TemporaryDirectory() as d:
        e.save(d + "/m.graph")
        assert sorted(os.listdir(d)) == ["m.graph", "m.graph.safetensors"]
        from taper.safetensors import load_file
        assert any(taper.equal(t, m.weight) for t in load_file(d + "/m.graph.safetensors").values())
        r = sh(TAPER, "graph", "run", d + "/m.graph", env=os.environ)
        assert r.returncode == 0


def test_wrong_input():
    def refused(fn, args, what, kind=RuntimeError):
        try:
            taper.export(fn, args)
        except kind as e:
            assert what in str(e), e
        else:
            raise AssertionError("not refused")
    refused(lambda x: x, (taper.ones(2),), "computes nothing with tensors")
    refused(lambda x: x + 1, taper.ones(2), "arguments as a tuple", TypeError)
    refused(lambda x: (x + 1, 3.5), (taper.ones(2),), "returns a float")
    try:
        taper.export(lambda x: print(x) or x + 1, (taper.ones(2),))
    except Exception as e:
        assert "print" in str(e)
    else:
        raise AssertionError("a graph break must be an error")

    with tempfile.TemporaryDirectory() as d:
        def compile_c(*args):
            return sh(TAPER, "compile", *args, ok=False, cwd=d, env=os.environ)
        taper.export(lambda x: taper.linalg.svd(x)[1], (taper.randn(5, 5),), path=d + "/svd")
        taper.export(lambda x: x + 1, (taper.randn(5),), path=d + "/add")
        for args, rc, what in (((), 2, "compile takes a graph file"), (("nothing", "--emit", "c", "-o", "x.c"), 2, "nothing"),
                               (("svd", "--emit", "c", "-o", "x.c"), 1, "'_linalg_svd' cannot be exported as C"),
                               (("add", "--emit", "rust", "-o", "x.c"), 2, "--emit is c, so or asm, not 'rust'"),
                               (("add", "--emit", "c"), 2, "compile takes a graph file"), (("add", "--emit", "c", "-o"), 2, "-o needs a file"),
                               (("add", "--emit", "c", "-o", "x.c", "--name", "int"), 2, "'int' cannot be the name"),
                               (("add", "--emit", "c", "-o", "/nowhere/x.c"), 2, "/nowhere/x.c"),
                               (("add", "--emit", "so", "-o", "x.so", "--blas"), 2, "--blas goes with --emit c")):
            r = compile_c(*args)
            assert r.returncode == rc and what in r.stderr, (args, r.returncode, r.stderr)
        assert not [f for f in os.listdir(d) if f.startswith("x.")]
        r = sh(TAPER, "compile", "add", "--emit", "so", "-o", "x.so", ok=False, cwd=d, env={**os.environ, "CC": "no-such-compiler"})
        assert r.returncode != 0 and "no-such-compiler" in r.stderr and len(r.stderr.splitlines()) == 1
