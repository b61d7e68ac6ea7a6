"""The way from a fresh copy to one's own program: build/env.sh, make help, set-up that refuses what cannot work, the package's description."""
import os
import re
import stat
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(cmd, cwd=ROOT, **env):
    e = dict(os.environ, **env)
    for k in [k for k, v in env.items() if v is None]:
        e.pop(k, None)
    return subprocess.run(cmd, cwd=cwd, capture_output=True, text=True, env={k: v for k, v in e.items() if v is not None})


def fake(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def test_env_sh_finds_the_package_and_the_program():
    env = os.path.join(ROOT, "build", "env.sh")
    if not os.path.exists(env):
        raise unittest.SkipTest("not built by make build")
    with tempfile.TemporaryDirectory() as d:
        r = run(["sh", "-c", f". '{env}' && '{sys.executable}' -c 'import taper; print(taper.ones(2))' && taper --version"], cwd=d, PYTHONPATH=None)
        assert r.returncode == 0 and r.stdout.startswith("tensor([1., 1.])\ntaper "), r.stdout + r.stderr


def test_make_help_needs_no_more_than_awk():
    r = run(["make", "help"])
    assert r.returncode == 0 and re.search(r"^  make demo +set up, build, and show the main job$", r.stdout, re.M), r.stdout + r.stderr
    assert "column" not in open(os.path.join(ROOT, "Makefile")).read()


def test_setup_names_what_cannot_work():
    with tempfile.TemporaryDirectory() as d:
        fake(d, "cmake", "echo cmake version 3.13.4\n")
        r = run(["sh", "tools/setup.sh"], PATH=d + os.pathsep + os.environ["PATH"])
        assert r.returncode == 1 and "is version 3.13; Taper needs CMake 3.18 or later" in r.stderr, r.stderr
    with tempfile.TemporaryDirectory() as d:
        fake(d, "python9", 'case "$*" in *GIL*) echo 1;; *version_info*) echo 3.13;; *) exit 1;; esac\n')
        r = run(["sh", "tools/setup.sh"], PATH=d + os.pathsep + os.environ["PATH"], PYTHON="python9")
        assert r.returncode == 1 and "free-threaded build of Python" in r.stderr, r.stderr
        fake(d, "python9", 'case "$*" in *GIL*) echo 0;; *version_info*) echo 3.9;; *) exit 1;; esac\n')
        r = run(["sh", "tools/setup.sh"], PATH=d + os.pathsep + os.environ["PATH"], PYTHON="python9")
        assert r.returncode == 1 and "is Python 3.9; Taper runs on" in r.stderr, r.stderr


def test_description_of_the_package():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        p = tomllib.load(f)
    assert p["project"]["name"] == "taper-compiler" and p["project"]["license"] == "MIT" and p["project"]["scripts"]["taper"] == "taper.__main__:command"
    sources = [os.path.relpath(os.path.join(d, f), ROOT) for top in ("src", "include", "python") for d, _, fs in os.walk(os.path.join(ROOT, top)) for f in fs]
    for pattern in p["tool"]["scikit-build"]["sdist"]["exclude"]:
        assert pattern.startswith("/") or pattern.startswith("**/") or "/" in pattern or pattern == "*.pyc", f"{pattern} matches in every folder"
    assert "src/ir/build.c" in sources
    for folder, _, files in os.walk(ROOT):
        if os.sep + "build" in folder or os.sep + "." in folder[len(ROOT):]:
            continue
        for name in files:
            if name.endswith((".md", ".toml", ".sh", ".py")) and name != "test_install.py":
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    assert not re.search(r"pip3? install taper(?!-compiler)\b", f.read()), f"{folder}/{name}: that is another package"


def test_the_console_script():
    if os.environ.get("TAPER_SANITIZED"):
        raise unittest.SkipTest("the package under sanitizers is not beside the program")
    code = "import sys; from taper.__main__ import command; sys.exit(command())"
    r = run([sys.executable, "-c", code, "--version"])
    assert r.returncode == 0 and r.stdout.startswith("taper "), r.stdout + r.stderr
    r = run([sys.executable, "-c", code, "nonsense"])
    assert r.returncode == 2 and "there is no command 'nonsense'" in r.stderr, r.stderr


def test_wheels_are_built_by_ci_for_every_supported_python():
    with open(os.path.join(ROOT, ".github", "workflows", "ci.yml")) as f:
        ci = f.read()
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        versions = re.findall(r"Python :: (3\.\d+)", "\n".join(tomllib.load(f)["project"]["classifiers"]))
    assert versions and all(f"cp{v.replace('.', '')}" in ci for v in versions) and "tools/wheel.sh" in ci and "manylinux_2_28" in ci
    r = run(["sh", "-n", "tools/wheel.sh"])
    assert r.returncode == 0, r.stderr
