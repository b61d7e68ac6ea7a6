"""TAPER_SHADOW=1: beside each call of a compiled function the same function runs as it is written, in a forked copy of the process.
What it returns, its arguments, the globals and closure cells that it names and the attributes of the objects there are compared
afterwards; what differs goes to stderr, a line each. Files and sockets are not copies: what the function writes there, it writes twice."""
import math
import os
import pickle
import sys

_DEEP, _LEAVES, _ELEMENTS = 6, 20000, 4096
_busy = False
_calls = {}
found = []  # (place, text) of everything that differed


def _leaf(v):
    """A value that is compared as it is, or None."""
    if v is None or isinstance(v, (bool, int, float, complex, str, bytes)):
        return ("value", type(v).__name__, v)
    return None


def _tensor(v):
    import taper
    flat = v.detach().reshape(-1)[:_ELEMENTS]
    if flat.dtype in (taper.bfloat16, taper.float16):
        flat = flat.to(taper.float32)
    return ("tensor", str(v.dtype), tuple(v.shape), bool(v.requires_grad), flat.tolist())


def _walk(out, path, v, deep, seen):
    import taper
    leaf = _leaf(v)
    if leaf or len(out) >= _LEAVES:
        if leaf:
            out[path] = leaf
        return
    if isinstance(v, taper.Tensor):
        out[path] = _tensor(v)
        if v.is_leaf and v.grad is not None:
            out[path + ".grad"] = _tensor(v.grad)
        return
    if deep <= 0 or id(v) in seen or callable(v) and not hasattr(v, "forward") or isinstance(v, (type, type(os))):
        return
    seen.add(id(v))
    if isinstance(v, (list, tuple)):
        out["len(" + path + ")"] = ("value", "int", len(v))
        for i, x in enumerate(v):
            _walk(out, f"{path}[{i}]", x, deep - 1, seen)
    elif isinstance(v, dict):
        out[path + ".keys()"] = ("value", "list", [k for k in v if _leaf(k)])
        for k in list(v):
            if _leaf(k):
                _walk(out, f"{path}[{k!r}]", v[k], deep - 1, seen)
    elif isinstance(v, (set, frozenset)):
        out[path] = ("value", "set", sorted(repr(x) for x in v if _leaf(x)))
    elif hasattr(v, "__dict__"):
        for k in list(vars(v)):
            if k in ("_parameters", "_buffers", "_modules"):  # a module's own, as the user spells them
                for name, x in vars(v)[k].items():
                    _walk(out, f"{path}.{name}", x, deep - 1, seen)
            elif not k.startswith("__"):
                _walk(out, f"{path}.{k}", vars(v)[k], deep - 1, seen)


def _state(fn, args, kwargs, outcome):
    """Everything a call can have changed, by its name in the program."""
    out, seen = {}, set()
    kind, value = outcome
    if kind == "raised":
        out["the exception"] = ("value", "str", f"{type(value).__name__}: {value}")
    else:
        _walk(out, "the result", value, _DEEP, seen)
    inner = getattr(fn, "__func__", fn)
    if hasattr(fn, "__self__"):
        _walk(out, "self", fn.__self__, _DEEP, seen)
    code = getattr(inner, "__code__", None)
    names = code.co_varnames if code else ()
    for i, a in enumerate(args):
        k = i + hasattr(fn, "__self__")
        _walk(out, names[k] if k < len(names) else f"argument {i}", a, _DEEP, seen)
    for k, a in kwargs.items():
        _walk(out, k, a, _DEEP, seen)
    for name, cell in zip(code.co_freevars if code else (), getattr(inner, "__closure__", None) or ()):
        try:
            _walk(out, f"{name} (of the enclosing function)", cell.cell_contents, _DEEP, seen)
        except ValueError:
            pass
    for name in code.co_names if code else ():
        if name in inner.__globals__:
            _walk(out, f"{name} (global)", inner.__globals__[name], _DEEP, seen)
    if not code and not hasattr(fn, "__self__"):  # a module, an object with __call__
        _walk(out, "the module", fn, _DEEP, seen)
    return out


def _close(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b))
    if isinstance(a, (float, complex)) and isinstance(b, (float, complex)):
        if a == b or (a != a and b != b):
            return True
        d = abs(a - b)
        return math.isfinite(d) and d <= 1e-5 + 1e-3 * max(abs(a), abs(b))
    return type(a) is type(b) and a == b


def _text(leaf):
    if leaf is None:
        return "not there"
    if leaf[0] == "value":
        return repr(leaf[2])[:200]
    return f"{leaf[1]}{list(leaf[2])}{' with gradient' if leaf[3] else ''} {str(leaf[4][:6])[:160]}"


def _compare(compiled, written):
    for path in list(written) + [p for p in compiled if p not in written]:
        a, b = compiled.get(path), written.get(path)
        if a is not None and b is not None and a[:-1] == b[:-1] and _close(a[-1], b[-1]):
            continue
        if a == b:
            continue
        where = ""
        if a is not None and b is not None and a[0] == "tensor" and a[:-1] == b[:-1]:
            i = next(i for i, (x, y) in enumerate(zip(a[-1], b[-1])) if not _close(x, y))
            a, b, where = ("value", "", a[-1][i]), ("value", "", b[-1][i]), f" at element {i}"
        yield f"{path} is {_text(a)}{where} after the compiled call, {_text(b)} as the program is written"


def _as_written(fn, args, kwargs, to):
    """In the child: the outcome goes through the pipe, and nothing of it to the terminal."""
    import taper
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with taper.compiler.set_stance("force_eager"):
            try:
                outcome = ("returned", fn(*args, **kwargs))
            except BaseException as e:
                outcome = ("raised", e)
            text = pickle.dumps(_state(fn, args, kwargs, outcome))
        with os.fdopen(to, "wb") as f:
            f.write(text)
    finally:
        os._exit(0)


def call(compiled, fn, args, kwargs):
    """The compiled call, with its shadow. Called by taper._C where TAPER_SHADOW=1."""
    global _busy
    if _busy:
        return compiled(*args, **kwargs)
    _busy = True
    try:
        r, w = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            os.close(r)
            _as_written(fn, args, kwargs, w)
        os.close(w)
        with os.fdopen(r, "rb") as f:
            text = f.read()
        os.waitpid(pid, 0)
        try:
            outcome = ("returned", compiled(*args, **kwargs))
        except Exception as e:
            outcome = ("raised", e)
        code = getattr(getattr(fn, "__func__", fn), "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}: `{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}`" if code else f"`{type(fn).__name__}`"
        nr = _calls[place] = _calls.get(place, 0) + 1
        if not text:
            sys.stderr.write(f"TAPER_SHADOW: {place}, call {nr}: as it is written, the call ended the process\n")
        else:
            for said in list(_compare(_state(fn, args, kwargs, outcome), pickle.loads(text)))[:5]:
                found.append((place, said))
                sys.stderr.write(f"TAPER_SHADOW: {place}, call {nr}: {said}\n")
        if outcome[0] == "raised":
            raise outcome[1]
        return outcome[1]
    finally:
        _busy = False
