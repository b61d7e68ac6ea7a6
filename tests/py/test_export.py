"""taper.export and taper compile: a model as C that is built and run without Taper."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import taper

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
    return ", ".join(repr(float(v)) if t.dtype.is_floating_point else str(int(v)) for v in t.flatten().tolist())


def main_c(name, inputs, outputs):
    """A program that calls the function and prints its results."""
    args = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(len(outputs))]
    lines = [f'#include "{name}.h"', "#include <stdio.h>"]
    lines += [f"static const {C_TYPES[t.dtype]} in{i}[] = {{ {values(t)} }};" for i, t in enumerate(inputs)]
    lines += [f"static {C_TYPES[t.dtype]} out{i}[{max(t.numel(), 1)}];" for i, t in enumerate(outputs)]
    lines += ["int main(void)", "{", f"    if ({name}({', '.join(args)}))", "        return 1;"]
    for i, t in enumerate(outputs):
        lines.append(f'    for (int i = 0; i < {t.numel()}; i++) printf("%.9g\\n", (double)out{i}[i]);')
    return "\n".join(lines + ["    return 0;", "}"]) + "\n"


def run_in_c(fn, args, emit="c", extra=(), link=()):
    """The results of fn(*args), computed by a C program."""
    if not shutil.which("cc"):
        raise unittest.SkipTest("no C compiler")
    with taper.no_grad():
        want = fn(*args)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    with tempfile.TemporaryDirectory() as d:
        taper.export(fn, args, path=d + "/model.graph")
        out = {"c": "model.c", "so": "libmodel.so", "asm": "model.s"}[emit]
        sh(TAPER, "compile", "model.graph", "--emit", emit, "-o", out, "--name", "model", *extra, cwd=d, env=os.environ)
        if emit == "so":
            os.rename(d + "/libmodel.h", d + "/model.h")
        for f in os.listdir(d):
            if f.startswith("model.graph"):
                os.unlink(os.path.join(d, f))  # the C file is enough
        with open(d + "/main.c", "w") as f:
            f.write(main_c("model", args, want))
        flags = ["-Wall", "-Werror", "-O1", "-std=c99", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv"]
        sh("cc", *flags, "-o", "program", "main.c", out if emit != "so" else "./libmodel.so", *link, "-lm", cwd=d)
        got = [float(v) for v in sh("./program", cwd=d).stdout.split()]
    flat = [v for t in want for v in t.double().flatten().tolist()]
    assert len(got) == len(flat)
    for a, b in zip(got, flat):
        assert abs(a - b) <= 1e-4 + 1e-4 * abs(b), (a, b)


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


def test_models_as_c():
    import models
    for name in ("mlp", "convnet", "resnet", "gpt", "lstm", "autoencoder", "vit", "unet"):
        m, args, _, _ = models.build(name, taper, small=True)
        m.eval()
        run_in_c(m, tuple(args))


def test_blas_is_a_flag():
    with tempfile.TemporaryDirectory() as d:
        taper.export(lambda x: x @ x.t() + 1, (taper.randn(4, 4),), path=d + "/g")
        sh(TAPER, "compile", d + "/g", "--emit", "c", "-o", d + "/g.c", "--blas", env=os.environ)
        text = open(d + "/g.c").read()
        assert "#include <cblas.h>" in text and "cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 4, 4, 4" in text
        sh(TAPER, "compile", d + "/g", "--emit", "c", "-o", d + "/h.c", env=os.environ)
        assert "cblas" not in open(d + "/h.c").read()


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
        taper.export(lambda x: taper.sort(x)[0], (taper.randn(5),), path=d + "/sort")
        taper.export(lambda x: x + 1, (taper.randn(5),), path=d + "/add")
        for args, rc, what in (((), 2, "compile takes a graph file"), (("nothing", "--emit", "c", "-o", "x.c"), 2, "nothing"),
                               (("sort", "--emit", "c", "-o", "x.c"), 1, "'sort' cannot be exported as C"),
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
