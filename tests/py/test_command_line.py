"""Mistakes of people at a keyboard: names that are nearly right, colours, completion, and tracebacks that begin with their program."""
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile

import taper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD") or os.path.join(ROOT, "build"), "taper")


def run(cmd, **env):
    return subprocess.run(cmd, capture_output=True, text=True, env={**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TAPER_LOGS")}, **env})


def test_the_program_names_what_was_meant():
    for args, words in (("repotr x", "there is no command 'repotr'; did you mean 'report'?"), ("Report x", "did you mean 'report'?"),
                        ("minfy x", "did you mean 'minify'?"), ("xyz", "there is no command 'xyz'; see taper --help"), ("e", "see taper --help"),
                        ("graph prnt", "'graph' has no command 'prnt'; did you mean 'print'?"), ("graph qqqqq", "see taper graph --help"),
                        ("cache lss", "did you mean 'ls'?"), ("report --jsno x", "does not know the option '--jsno'; did you mean '--json'?"),
                        ("report --redcat x", "did you mean '--redact'?"), ("logs --al", "did you mean '--all'?"), ("doctor --timout 3 x.py", "did you mean '--timeout'?"),
                        ("report --wurst x", "does not know the option '--wurst'; see --help"), ("completion bsh", "did you mean 'bash'?"),
                        ("completion", "bash, zsh or fish"), ("minify --tiemout=4 x", "did you mean '--timeout'?")):
        r = run([TAPER] + args.split())
        assert r.returncode == 2 and words in r.stderr and not r.stdout, (args, r.stdout, r.stderr)


def test_environment_variables():
    for name, words in (("TAPER_LOGZ", "did you mean 'TAPER_LOGS'?"), ("TAPER_TRACES", "'TAPER_TRACE'"), ("TAPER_EMITER", "'TAPER_EMITTER'"), ("TAPER_CACHE_DIRS", "'TAPER_CACHE_DIR'")):
        r = run([TAPER, "--version"], **{name: "x"})
        assert r.returncode == 0 and f"the environment variable {name} is not one that Taper reads" in r.stderr and words in r.stderr, r.stderr
    for name in ("TAPER_SOMETHING_ELSE", "TAPER_TEST_SECONDS", "MY_TAPER_LOGS", "TAPER_LOGS_OUT"):
        assert not run([TAPER, "--version"], **{name: "/dev/null"}).stderr
    r = run([sys.executable, "-c", "import taper"], TAPER_LOGS="graph_brakes")
    assert r.returncode and "There is no 'graph_brakes'; did you mean 'graph_breaks'?" in r.stderr, r.stderr


def raised(fn):
    try:
        fn()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError("nothing was raised")


def test_names_in_programs():
    one = taper.ones(1)
    for fn, words in (
            (lambda: taper.compile(lambda x: x, backend="inductr")(one), "Did you mean 'inductor'?"),
            (lambda: taper.compile(lambda x: x, backend="aot_egaer")(one), "Did you mean 'aot_eager'?"),
            (lambda: taper.compile(lambda x: x, mode="max-autotne"), "did you mean 'max-autotune'?"),
            (lambda: taper.compile(lambda x: x, options={"max_autotun": True}), "did you mean 'max_autotune'?"),
            (lambda: setattr(taper._dynamo.config, "cache_size_limt", 3), "did you mean 'cache_size_limit'?"),
            (lambda: taper._dynamo.config.supress_errors, "did you mean 'suppress_errors'?"),
            (lambda: taper._dynamo.config.patch(verbos=True), "did you mean 'verbose'?"),
            (lambda: taper._logging.set_logs(guard=True), "did you mean 'guards'?"),
            (lambda: taper._logging.set_logs(recompile=True), "did you mean 'recompiles'?"),
            (lambda: taper.zeross(3), "did you mean 'zeros'?"), (lambda: taper.Tnesor, "did you mean 'Tensor'?"),
            (lambda: taper.manual_sed(3), "did you mean 'manual_seed'?")):
        assert words in raised(fn), raised(fn)
    for fn in (lambda: taper.qqqqqqq, lambda: taper._dynamo.config.qqqqqq, lambda: taper.compile(lambda x: x, backend="qqqqq")(one)):
        assert "did you mean" not in raised(fn).lower()
    assert not hasattr(taper, "zeross") and raised(lambda: taper.zeross).startswith("AttributeError: module 'taper' has no attribute 'zeross'")


def on_terminal(cmd, **env):
    a, b = pty.openpty()
    p = subprocess.Popen(cmd, stdout=b, stderr=b, env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **env})
    os.close(b)
    out = b""
    while True:
        try:
            part = os.read(a, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    p.wait()
    os.close(a)
    return out.decode()


def test_colours_are_for_terminals():
    assert "\033[1m" in on_terminal([TAPER, "--help"]) and "\033[1;31mtaper:" in on_terminal([TAPER, "nonsense"])
    assert "\033" not in on_terminal([TAPER, "--help"], NO_COLOR="1") + on_terminal([TAPER, "nonsense"], TERM="dumb")
    assert "\033" not in run([TAPER, "--help"]).stdout


def test_completion():
    text = run([TAPER, "completion", "bash"]).stdout
    ask = text + '\nfor w in "rep 1" "--j 2"; do set -- $w; COMP_WORDS=(taper report); COMP_CWORD=$2; COMP_WORDS[$2]=$1; _taper; echo "${COMPREPLY[*]}"; done'
    if shutil.which("bash"):
        assert run(["bash", "-c", ask]).stdout.split("\n")[:2] == ["report repro", "--json"]
    names = [line.split()[0] for line in run([TAPER, "--help"]).stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()]
    for shell in ("bash", "zsh", "fish"):
        text = run([TAPER, "completion", shell]).stdout
        assert len(names) > 9 and all(n in text for n in names) and "--no-browser" in text


def test_tracebacks_begin_with_the_program():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "mine.py")
        with open(path, "w") as f:
            f.write("import torch\n\ndef f():\n    return torch.ones(2) @ torch.ones(3)\n\nf()\n")
        for cmd in ([path], ["-m", "mine"], ["-c", "import mine"]):
            r = subprocess.run([sys.executable, "-m", "taper"] + cmd, cwd=d, capture_output=True, text=True)
            lines = r.stderr.splitlines()
            assert r.returncode == 1 and "runpy" not in r.stderr and "__main__.py" not in r.stderr, r.stderr
            assert lines[0] == "Traceback (most recent call last):" and ("mine.py" in lines[1] or '"<string>", line 1' in lines[1]), r.stderr
        with open(path, "w") as f:
            f.write("import sys\nsys.exit(7)\n")
        assert run([sys.executable, "-m", "taper", path]).returncode == 7


def test_lists_for_programs():
    """--json prints one value that a program can read, with what the text says."""
    with tempfile.TemporaryDirectory() as d:
        env = {"TAPER_CACHE_DIR": d}
        made = subprocess.run([sys.executable, "-c", "import taper; taper.compile(lambda x: x.sin() + 1)(taper.ones(4))"], env={**os.environ, **env}, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        for command in (["cache", "ls", "--json"], ["cache", "verify", "--json"]):
            r = run([TAPER, *command], **env)
            said = json.loads(r.stdout)
            assert r.returncode == 0 and said["folder"].startswith(d) and said["read"] >= 1 and said["damaged"] == 0 and said["bytes"] <= said["limit"], said
            assert len(said["entries"]) == (said["read"] if command[1] == "ls" else 0)  # verify lists what is damaged
            assert all(e["bytes"] > 0 and e["bad"] is None and e["used"] > 1e9 for e in said["entries"])
    said = json.loads(run([TAPER, "logs", "--json"]).stdout)
    assert {"dynamo", "aot"} <= {c["name"] for c in said["components"]}
    assert {"name": "graph_breaks", "only_when_named": False} == {k: v for k, v in next(a for a in said["artifacts"] if a["name"] == "graph_breaks").items() if k != "shows"}
    assert len(json.loads(run([TAPER, "logs", "--all", "--json"]).stdout)["artifacts"]) >= len(said["artifacts"])
    r = run([TAPER, "logs", "graph_breaks", "--json"])
    assert r.returncode == 2 and "leave out 'graph_breaks'" in r.stderr, r.stderr
