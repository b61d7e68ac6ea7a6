"""The C interface as a C program sees it: the header alone, the shared library, the example."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build"))
# sanitize: skip


def run(*cmd):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, f"{' '.join(cmd)}\n{p.stdout}"
    return p.stdout


def need(tool):
    if not shutil.which(tool):
        raise unittest.SkipTest(f"{tool} is not installed")
    return tool


def header_compiles(compiler, *flags):
    with tempfile.TemporaryDirectory() as d:
        src = os.path.join(d, "a.c")
        with open(src, "w") as f:
            f.write('#include "taper.h"\nint main(void) { tp_arg a = tp_named("dim", tp_int(3)); return a.n; }\n')
        run(compiler, *flags, src, "-I", os.path.join(ROOT, "include"), "-Wall", "-Wextra", "-Werror", "-fsyntax-only")


def test_header_is_c99():
    header_compiles(need("cc"), "-std=c99", "-pedantic")


def test_header_is_cpp():
    header_compiles(need("c++"), "-x", "c++", "-std=c++11", "-pedantic")


def test_embed_example():
    lib = os.path.join(BUILD, "libtaper.so")
    assert os.path.exists(lib), lib
    with tempfile.TemporaryDirectory() as d:
        exe = os.path.join(d, "embed")
        run(need("cc"), os.path.join(ROOT, "examples", "embed.c"), "-I", os.path.join(ROOT, "include"), "-L", BUILD,
            "-ltaper", "-lm", f"-Wl,-rpath,{BUILD}", "-Wall", "-Werror", "-o", exe)
        out = run(exe)
    assert 'def forward(self, x: "f32[2, 3][3, 1]cpu"):' in out, out
    assert out.count("result: 7.5 6.5") == 2, out
    assert "read back: the same graph" in out, out
    assert "refused: relu(): argument 'self' (position 1) must be Tensor, not str" in out, out


def test_only_the_interface_is_exported():
    out = run(need("nm"), "-D", "--defined-only", os.path.join(BUILD, "libtaper.so"))
    names = [line.split()[-1] for line in out.splitlines() if " T " in line]
    header = open(os.path.join(ROOT, "include", "taper.h")).read()
    declared = set(re.findall(r"TP_API [^;]*?\b(tp_\w+)\(", header))
    assert declared <= set(names), declared - set(names)
    stray = [n for n in names if not n.startswith("tp_") and not n.startswith("_")]
    assert not stray, stray
