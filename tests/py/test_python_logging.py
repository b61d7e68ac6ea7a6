"""Messages are records of Python's logging: handlers, levels, filters and propagate work as the original's do."""
import os
import subprocess
import sys

HEAD = """
import logging, sys, taper as torch
import taper._logging
class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []
    def emit(self, record):
        self.seen.append(record)
def compiled():
    torch._dynamo.reset()
    def f(x):
        torch._dynamo.graph_break()
        return x + 1
    torch.compile(f, backend="eager")(torch.ones(3))
log = logging.getLogger("taper._dynamo")
"""


def run(body, *before, **env):
    e = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_LOGS")}
    p = subprocess.run([sys.executable, *before, "-c", HEAD + body], capture_output=True, text=True, env={**e, **env})
    assert p.returncode == 0, p.stderr[-3000:]
    return p.stdout.split("\n")[:-1], p.stderr


def test_a_handler_gets_the_records():
    out, err = run("""
keep = Keep()
log.addHandler(keep)
compiled()
print(len(keep.seen), log.level, log.propagate)
taper._logging.set_logs(graph_breaks=True)
compiled()
print(sorted({(r.name.startswith("taper._dynamo."), r.name.rpartition(".")[2], r.levelname) for r in keep.seen}))
print(any("Graph break in user code" in r.getMessage() for r in keep.seen), all(r.lineno > 0 for r in keep.seen))
""")
    assert out == ["0 0 False", "[(True, '__graph_breaks', 'DEBUG')]", "True True"] and "Graph break in user code" in err


def test_levels_are_those_of_the_components():
    out, err = run("""
taper._logging.set_logs(dynamo=logging.DEBUG)
print(log.level, log.isEnabledFor(logging.DEBUG))
log.setLevel(logging.ERROR)
compiled()
taper._logging.set_logs()
print(log.level, logging.getLogger("taper").level)
keep = Keep()
log.addHandler(keep)
log.setLevel(logging.DEBUG)
compiled()
print(len(keep.seen) > 3)
""")
    assert out == ["10 True", "0 30", "True"]


def test_what_is_not_wanted_on_standard_error():
    out, err = run("""
keep = Keep()
taper._logging.set_logs(graph_breaks=True)
log.handlers.clear()
log.addHandler(keep)
compiled()
print(len(keep.seen) > 0)
""")
    assert out == ["True"] and "Graph break" not in err
    out, err = run("""
keep = Keep()
taper._logging.set_logs(graph_breaks=True)
log.propagate = True
logging.getLogger("taper").addHandler(keep)
logging.getLogger("taper._dynamo.capture_log.__graph_breaks").addFilter(lambda r: "Graph break" not in r.getMessage())
compiled()
print(len(keep.seen))
log.warning("of the program")
print([r.getMessage() for r in keep.seen])
""")
    assert out == ["0", "['of the program']"] and "Graph break" not in err and "] of the program\n" in err and "\nW" in "\n" + err


def test_a_handler_that_fails_or_compiles():
    out, err = run("""
class Bad(logging.Handler):
    def emit(self, record):
        raise KeyError("bad handler")
class Compiles(logging.Handler):
    def emit(self, record):
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
taper._logging.set_logs(graph_breaks=True)
log.addHandler(Compiles())
compiled()
log.addHandler(Bad())
compiled()
print("alive")
""")
    assert out == ["alive"] and "KeyError: 'bad handler'" in err


def test_under_the_alias_the_names_are_the_originals():
    program = """
import logging
log = logging.getLogger("torch._dynamo")
log.setLevel(logging.DEBUG)
import torch
print(log.level, log.propagate, [type(h).__mro__[1].__name__ for h in log.handlers], torch._logging.getArtifactLogger("torch._dynamo.x", "guards").name)
"""
    p = subprocess.run([sys.executable, "-m", "taper", "-c", program], capture_output=True, text=True)
    assert p.stdout == "10 False ['StreamHandler'] torch._dynamo.x.__guards\n", p.stdout + p.stderr[-2000:]
