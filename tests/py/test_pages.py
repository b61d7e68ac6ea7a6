"""docs/tutorial.md, coming-from-pytorch.md and checkpoints.md are run from top to bottom: a block after a line with a file name is that file, console
blocks are commands with their whole output. "..." stands for any text in a line, or for any lines.

TAPER_TEST_VENV=DIR runs them with what is installed in that virtual environment instead of this tree."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TAPER_BUILD") or os.path.join(ROOT, "build")
VENV = os.environ.get("TAPER_TEST_VENV")
PYTHON = os.path.join(os.path.abspath(VENV), "bin", "python") if VENV else sys.executable


def read(name):
    with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """(file name or "", kind, text)"""
    return re.findall(r"(?:^`([\w.]+)`\n)?^```(\w+)\n(.*?)^```$", text, re.M | re.S)


def fits(want, got):
    """Does the output have these lines, no others, except where "..." stands for some?"""
    pattern = ""
    for line in want:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(p) for p in line.split("...")) + r" *\n"
    got = got.rstrip("\n")
    return re.fullmatch(pattern, got + "\n" if got else "") is not None


def run_page(name):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env["PYTHONPATH"] = "" if VENV else os.path.join(ROOT, "python")
    with tempfile.TemporaryDirectory() as d:
        d = os.path.realpath(d)
        os.mkdir(os.path.join(d, "bin"))
        for command, path in (("python", PYTHON), ("taper", os.path.join(os.path.dirname(PYTHON) if VENV else BUILD, "taper"))):
            with open(os.path.join(d, "bin", command), "w") as f:
                f.write(f'#!/bin/sh\nexec "{path}" "$@"\n')
            os.chmod(os.path.join(d, "bin", command), 0o755)
        env["PATH"] = os.path.join(d, "bin") + os.pathsep + env["PATH"]
        env["TAPER_CACHE_DIR"] = os.path.join(d, "cache")
        os.mkdir(os.path.join(d, "here"))
        commands = 0
        for file, kind, text in blocks(read(name)):
            if file:
                with open(os.path.join(d, "here", file), "w") as f:
                    f.write(text)
            elif kind == "console":
                for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                    line, *want = part.splitlines()
                    p = subprocess.run(["sh", "-c", line], cwd=os.path.join(d, "here"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
                    out = p.stdout.replace(os.path.join(d, "here") + os.sep, "")
                    assert p.returncode == 0 or "doctor" in line, (line, p.returncode, p.stdout, p.stderr)
                    assert fits(want, out), f"{name}: $ {line}\nwanted:\n" + "\n".join(want) + f"\ngot:\n{out}\n{p.stderr}"
                    commands += 1
            elif kind == "python":
                p = subprocess.run([PYTHON, "-c", text], cwd=os.path.join(d, "here"), env=env, capture_output=True, text=True)
                assert p.returncode == 0, p.stderr
                after = read(name).split(text, 1)[1]
                said = re.match(r"```\n\nprints `([^`]+)`", after)
                assert not said or p.stdout == said.group(1) + "\n", p.stdout
                commands += 1
        return commands


def test_tutorial():
    if not shutil.which("cc"):
        raise unittest.SkipTest("there is no C compiler")
    assert run_page("tutorial.md") >= 12


def test_coming_from_pytorch():
    assert run_page("coming-from-pytorch.md") == 1


def test_checkpoints():
    assert run_page("checkpoints.md") == 1


def test_the_comparison_notices_differences():
    assert fits(["a", "...", "z"], "a\nb\nc\nz\n") and fits(["a...c"], "abc\n") and fits([], "")
    assert not fits(["a"], "a\nb\n") and not fits(["a", "z"], "a\nb\nz\n") and not fits(["a...d"], "abc\n") and not fits(["a"], "")


def test_links_lead_somewhere():
    for name in os.listdir(os.path.join(ROOT, "docs")):
        if name.endswith(".md"):
            for path in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", read(name), flags=re.S)):
                assert os.path.exists(os.path.join(ROOT, "docs", path)), f"{name}: {path}"
