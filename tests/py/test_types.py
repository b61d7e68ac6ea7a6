"""Type stubs: they name what is there, the typed sample runs, and mypy and pyright accept it in their strict modes where they are installed."""
import ast
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")
SAMPLE = os.path.join(HERE, "typed_sample.py")


def test_stubs_name_what_is_there():
    stubs = glob.glob(os.path.join(PACKAGE, "taper", "**", "*.pyi"), recursive=True)
    assert len(stubs) > 20
    for path in stubs:
        with open(path, encoding="utf-8") as f:
            tree = ast.parse(f.read(), path)
        name = os.path.relpath(path, PACKAGE)[:-4].replace(os.sep, ".").removesuffix(".__init__")
        module = importlib.import_module(name)
        missing = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_") and not hasattr(module, n.name)]
        assert not missing, (name, missing)
    with open(os.path.join(PACKAGE, "taper", "__init__.pyi"), encoding="utf-8") as f:
        text = f.read()
    for name in ("Tensor", "nn", "optim", "no_grad", "autocast", "Size"):
        assert f"{name} as {name}" in text, f"{name} is not exported again"


def test_the_sample_runs():
    r = subprocess.run([sys.executable, SAMPLE], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout.splitlines()[-1] == "17", r.stdout + r.stderr


def test_mypy():
    if importlib.util.find_spec("mypy") is None:
        raise unittest.SkipTest("mypy is not installed")
    r = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=/dev/null", SAMPLE], capture_output=True, text=True,
                       env={**os.environ, "MYPYPATH": PACKAGE})
    assert r.returncode == 0, r.stdout + r.stderr
    examples = glob.glob(os.path.join(os.path.dirname(PACKAGE), "examples", "*.py"))
    r = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir=/dev/null", *examples], capture_output=True, text=True,
                       env={**os.environ, "MYPYPATH": PACKAGE})
    assert examples and r.returncode == 0, r.stdout + r.stderr


def test_pyright():
    if not shutil.which("pyright"):
        raise unittest.SkipTest("pyright is not installed")
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "pyrightconfig.json"), "w") as f:
            json.dump({"include": [SAMPLE], "extraPaths": [PACKAGE], "typeCheckingMode": "strict"}, f)
        r = subprocess.run(["pyright", "-p", d], capture_output=True, text=True)
    if " error" not in r.stdout:
        raise unittest.SkipTest("pyright cannot run here: " + (r.stderr.strip().splitlines() or ["it says nothing"])[-1][:100])
    assert r.returncode == 0, r.stdout + r.stderr
