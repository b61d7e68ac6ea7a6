"""What libraries ask of TorchScript, answered: nothing is being scripted or traced. Scripting itself does not exist here."""


def is_scripting():
    return False


def is_tracing():
    return False


def _marks(fn=None, **kwargs):
    """A mark for the scripting compiler: changes nothing."""
    return fn if callable(fn) else lambda f: f


ignore = unused = export = interface = script_if_tracing = _marks


class ScriptModule:
    """No module is one."""


class ScriptFunction:
    """No function is one."""


def _absent(name):
    def f(*args, **kwargs):
        raise NotImplementedError(f"taper.jit.{name} does not exist: Taper has no TorchScript. Use taper.compile(fn) to make it fast, or taper.export(fn, args) "
                                  "for a file that runs without Python.")
    f.__name__ = name
    return f


script, trace, save, load, freeze = (_absent(n) for n in ("script", "trace", "save", "load", "freeze"))
