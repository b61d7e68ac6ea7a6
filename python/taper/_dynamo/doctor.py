"""taper doctor for a function, or for a notebook's cell: the program that it examines is written here."""
import html as _html
import json as _json
import os as _os
import pickle as _pickle
import subprocess as _subprocess
import sys as _sys
import tempfile as _tempfile

_CALL = """import pickle, runpy, sys, types
names = runpy.run_path({file!r}, run_name="__taper_doctor__")
module = types.ModuleType({module!r})
module.__dict__.update(names)
sys.modules[{module!r}] = module
import taper
with open({data!r}, "rb") as f:
    target, args, kwargs = pickle.load(f)
if isinstance(target, str):
    fn = module
    for part in target.split("."):
        fn = getattr(fn, part)
    target = fn
if not hasattr(target, "_torchdynamo_orig_callable"):
    target = taper.compile(target)
print(target(*args, **kwargs))
"""


class Verdict(dict):
    """What doctor found, as `taper doctor --json` prints it; shown as its sentence."""

    def __repr__(self):
        return self["verdict"]

    def _repr_html_(self):
        rows = "".join(f"<tr><td>{_html.escape(k)}</td><td>{_html.escape(str(self[k]))}</td></tr>"
                       for k in ("stage", "operators", "line", "rewrites", "condition", "takes", "workaround", "report") if self.get(k))
        return f"<p><b>{_html.escape(self['verdict'])}</b></p><table>{rows}</table>"


def examine(source, out=None, timeout=None, name="program.py"):
    """taper doctor on a program given as text: a Verdict. out: where its findings are left (taper_doctor in this directory)."""
    from ..__main__ import program
    exe = program()
    if exe is None:
        raise RuntimeError("the program taper, which holds doctor, is not built")
    with _tempfile.TemporaryDirectory(prefix="taper_doctor_") as d:
        path = _os.path.join(d, name)
        with open(path, "w") as f:
            f.write(source)
        env = dict(_os.environ, PATH=_os.path.dirname(_sys.executable) + _os.pathsep + _os.environ.get("PATH", _os.defpath))
        package = _os.path.dirname(_os.path.dirname(_os.path.dirname(_os.path.abspath(__file__))))
        env["PYTHONPATH"] = _os.pathsep.join([package, *filter(None, [env.get("PYTHONPATH")])])
        command = [exe, "doctor", "--json", "--out", _os.path.abspath(out or "taper_doctor")]
        r = _subprocess.run(command + (["--timeout", str(timeout)] if timeout else []) + [path], env=env, capture_output=True, text=True)
        try:
            return Verdict(_json.loads(r.stdout))
        except ValueError:
            raise RuntimeError(f"taper doctor failed: {(r.stderr or r.stdout)[-400:]}") from None


def doctor(fn, *args, **kwargs):
    """Examines one call of a function or module, compiled and not: a Verdict.

    The file that defines it is run again, under another name than __main__, and the arguments travel by pickle. Findings are left in
    taper_doctor here."""
    import inspect
    plain = getattr(fn, "_torchdynamo_orig_callable", fn)
    code = inspect.unwrap(plain) if callable(plain) and hasattr(plain, "__code__") else type(plain)
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        file = None
    if not file or not _os.path.isfile(file):
        raise RuntimeError(f"doctor runs the file that defines {fn!r} again, and there is none; in a notebook, %%taper_doctor examines a cell")
    name = getattr(plain, "__qualname__", None)
    if name and "<" in name:
        raise RuntimeError(f"doctor finds functions by their name, and {name} has none outside of the function that makes it")
    with _tempfile.TemporaryDirectory(prefix="taper_doctor_") as d:
        data = _os.path.join(d, "call")
        with open(data, "wb") as f:
            _pickle.dump((name or plain, args, kwargs), f)
        return examine(_CALL.format(file=_os.path.abspath(file), module=code.__module__, data=data))


def examine_cell(source, earlier=()):
    """A cell of a notebook behind those that ran before it. Lines for IPython alone (%, !) are left out."""
    text = [line for cell in (*earlier, source) for line in cell.splitlines() if not line.lstrip().startswith(("%", "!", "get_ipython()"))]
    return examine("\n".join(text) + "\n", name="cell.py")
