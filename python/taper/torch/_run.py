"""Runs a program with torch.compile changed: another backend, a watched one, other settings. For doctor."""
import atexit
import json
import os
import runpy
import sys


def main(argv):
    plan = json.loads(os.environ.pop("TAPER_TORCH_PLAN", "{}"))
    import torch
    from . import _case, _survey
    from ._debug import debug, saved
    _case.apply_settings(plan.get("settings", ()))
    if plan.get("fresh"):
        _case.no_caches()
    original = torch.compile

    def changed(model=None, **kw):
        backend = kw.get("backend", "inductor")
        if plan.get("disable"):
            kw["disable"] = True
        elif plan.get("backend") and not isinstance(backend, debug):
            kw["backend"] = plan["backend"]
            kw.pop("mode", None), kw.pop("options", None)
            if plan["backend"] == "taper":
                kw["backend"] = _case.find_backend("taper")
        if plan.get("debug") and not plan.get("disable") and not isinstance(kw.get("backend"), debug):
            kw["backend"] = debug(kw.get("backend", "inductor"), mode=kw.pop("mode", None), options=kw.pop("options", None), **plan["debug"])
        return original(model, **kw)
    torch.compile = changed
    w = _survey.watch()
    w.__enter__()
    if plan.get("facts"):
        atexit.register(lambda: _survey.write_facts(plan["facts"], w, saved=saved()))
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")
    return 0
