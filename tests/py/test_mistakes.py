"""Mistakes of people who are new to it: each of tests/data/mistakes.txt says what happened, at the marked line of the
program, and what to do next. With TAPER_BLESS=1 what is said now is written there; read the difference."""
import os
import re
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(ROOT, "tests", "data", "mistakes.txt")
BEGIN = "import taper\nimport taper.nn as nn\n"


def cases():
    """[(name, variables of the environment, program, what is said)]"""
    with open(LIST) as f:
        blocks = re.split(r"^### ", f.read(), flags=re.M)
    out = []
    for b in blocks[1:]:
        head, rest = b.split("\n", 1)
        program, said = rest.split("\n---\n", 1)
        name, *env = head.split()
        out.append((name, dict(e.split("=", 1) for e in env), program, said.rstrip("\n")))
    return blocks[0], out


def said_by(program):
    """What Python would print below the traceback, and the last line of the program in it."""
    source, where = BEGIN + program + "\n", os.path.join(os.getcwd(), "program.py")
    with open(where, "w") as f:
        f.write(source)
    try:
        exec(compile(source, where, "exec"), {"__name__": "__main__"})
    except BaseException as e:
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == where]
        inner = re.findall(r'File ".*program.py", line (\d+)', str(e))  # "from user code" of what capture says
        text = "".join(traceback.format_exception_only(e)).rstrip("\n")
        text = re.sub(r"\. Did you mean: '\w+'\?$", "", text, flags=re.M)  # the interpreter's own, which 3.12 and newer give here, too
        return text, int(inner[-1]) if inner else lines[-1], source
    return "nothing", 0, source


def in_a_process(program, env):
    with open("program.py", "w") as f:
        f.write(BEGIN + program + "\n")
    r = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, env={**os.environ, **env})
    lines = [re.sub(r"^[A-Z]\d{4} \S+ +\d+ \S+\] ", "", s) for s in r.stderr.splitlines() if not s.startswith(("Traceback", "  "))]
    return "\n".join(lines)


def every(check):
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as d:
        try:
            for n, case in enumerate(cases()[1]):
                os.mkdir(os.path.join(d, str(n)))
                os.chdir(os.path.join(d, str(n)))
                check(*case)
        finally:
            os.chdir(here)


def now(env, program):
    if env:
        return in_a_process(program, env), None
    text, line, source = said_by(program)
    return text.replace(os.getcwd() + os.sep, ""), source.splitlines()[line - 1] if line else ""


def test_every_mistake_has_its_message():
    head, wrong, new = cases()[0], [], []

    def check(name, env, program, said):
        text, line = now(env, program)
        new.append(f"### {' '.join([name, *(f'{k}={v}' for k, v in env.items())])}\n{program}\n---\n{text}\n\n")
        if text != said:
            wrong.append(f"{name}:\n{text}\ninstead of\n{said}")
        elif line is not None and not line.endswith("# <-"):
            wrong.append(f"{name}: the traceback ends at {line!r}")
    every(check)
    if os.environ.get("TAPER_BLESS"):
        with open(LIST, "w") as f:
            f.write(head + "".join(new).rstrip("\n") + "\n")
    assert len(new) >= 60
    assert not wrong, "\n\n".join(wrong)


def test_hints_do_not_change_the_message():
    import taper
    try:
        taper.ones(2, 3) @ taper.ones(4, 5)
    except RuntimeError as e:
        assert str(e) == "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
        assert len(e.__notes__) == 1 and e.__notes__[0].startswith("Hint: ")
    else:
        raise AssertionError


def test_the_module_is_named_by_its_path():
    import taper
    from taper import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 2)])

        def forward(self, x):
            for p in self.parts:
                x = p(x)
            return x

    for hook in (False, True):
        net = nn.Sequential(nn.ReLU(), Block())
        if hook:
            net[1].register_forward_hook(lambda *a: None)
        try:
            net(taper.ones(3, 4))
        except RuntimeError as e:
            assert e.__notes__[0] == "In module: Sequential.1.parts.1, Linear(in_features=4, out_features=2, bias=True)", e.__notes__
        else:
            raise AssertionError


def test_the_module_is_named_in_compiled_functions_too():
    import taper
    from taper import nn

    class Block(nn.Module):
        def __init__(self, after_a_break):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 2), nn.Embedding(3, 4)])
            self.after_a_break = after_a_break

        def forward(self, x):
            if x.dtype == taper.int64:
                return self.parts[2](x)  # known when it runs: instructions of the failed graph are executed one by one
            h = self.parts[0](x)
            if self.after_a_break:
                taper._dynamo.graph_break()
            return self.parts[1](h)

    for after_a_break in (False, True):
        for x, name in ((taper.ones(3, 4), "1, Linear(in_features=4, out_features=2, bias=True)"), (taper.tensor([9]), "2, Embedding(3, 4)")):
            net = nn.Sequential(nn.Identity(), Block(after_a_break))
            for compiled in (taper.compile(net), taper.compile(lambda x: net(x) + 1), nn.Sequential(nn.Identity(), taper.compile(net[1]))):
                try:
                    compiled(x)
                except (RuntimeError, IndexError) as e:
                    assert e.__notes__[0] == "In module: Sequential.1.parts." + name, e.__notes__
                else:
                    raise AssertionError
