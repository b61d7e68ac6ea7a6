"""docs/troubleshooting.md is run from top to bottom."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "troubleshooting.md")


def blocks():
    with open(PAGE) as f:
        return re.findall(r"^```(\w+)\n(.*?)^```$", f.read(), re.M | re.S)


def run(line, where):
    words = line.split()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env["PYTHONPATH"] = os.path.join(ROOT, "python")
    while "=" in words[0]:
        k, _, v = words.pop(0).partition("=")
        env[k] = v
    assert words[0] == "python", line
    p = subprocess.run([sys.executable] + words[1:], cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert p.returncode == 0, (line, p.stdout)
    return p.stdout.replace(where + os.sep, "")


def test_every_command_of_the_page_does_what_it_says():
    commands = 0
    with tempfile.TemporaryDirectory() as d:
        d = os.path.realpath(d)
        for kind, text in blocks():
            if kind == "python":
                with open(os.path.join(d, "playground.py"), "w") as f:
                    f.write(text)
                continue
            assert kind == "console", kind
            out = ""
            for line in text.splitlines():
                if line.startswith("$ "):
                    out = run(line[2:], d)
                    commands += 1
                else:
                    assert line in out, f"{line!r} is not in:\n{out}"
    assert commands >= 15, commands


def test_a_filtered_function_is_not_captured():
    """The last command of its block prints no graph: only functions of that name are captured."""
    program = [t for k, t in blocks() if k == "python" and "comptime.print_graph" in t][0]
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "playground.py"), "w") as f:
            f.write(program)
        assert "TRACED GRAPH" not in run("TAPER_DEBUG_FUNCTION=g TAPER_LOGS=graph_code python playground.py", d)
        assert "TRACED GRAPH" in run("TAPER_DEBUG_FUNCTION=f TAPER_LOGS=graph_code python playground.py", d)


def test_links_lead_somewhere():
    with open(PAGE) as f:
        for path in re.findall(r"\]\(([^)#]+)\)", f.read()):
            assert os.path.exists(os.path.join(ROOT, "docs", path)), path
