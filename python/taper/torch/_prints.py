"""What a program prints, twice without the compiler and once with it, word by word."""
import re

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|nan|inf)(?![\w.])", re.I)
_IDLE = re.compile(r"0x[0-9a-f]+|\d+:\d\d(:\d\d)?|(?<![\w.])[-+]?[\d.]+(e[-+]?\d+)?\s*(us|µs|ms|s|sec|seconds|min|h|kB|KB|MB|GB|KiB|MiB|GiB|it/s|tok/s|%|GFLOPS|FLOPS)\b", re.I)
REL, ABS = 1e-3, 1e-5


def _parts(line):
    line = _IDLE.sub("~", line)
    return _NUMBER.split(line), _NUMBER.findall(line)


def _close(a, b):
    if a == b:
        return True
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    if re.fullmatch(r"[-+]?\d+", a) and re.fullmatch(r"[-+]?\d+", b):
        return x == y
    digits = lambda s: len(re.sub(r"[eE].*", "", s).partition(".")[2])
    unit = 10.0 ** -min(digits(a), digits(b)) if "e" not in (a + b).lower() else 0.0
    return x == y or (x != x and y != y) or abs(x - y) <= max(ABS, REL * max(abs(x), abs(y)), 1.01 * unit)


def compare(plain, also, compiled):
    """None, or a sentence on the first line that differs. Lines and numbers on which the two plain runs do not agree are not compared."""
    a, b, c = (t.rstrip("\n").split("\n") for t in (plain, also, compiled))
    if len(a) == len(b) and len(a) != len(c):
        for i in range(min(len(a), len(c))):
            if a[i] == b[i] and _parts(a[i])[0] != _parts(c[i])[0]:
                return f"line {i + 1}: `{c[i].strip()}` instead of `{a[i].strip()}`"
        return f"{len(c)} lines instead of {len(a)}"
    for i, (x, y, z) in enumerate(zip(a, b, c), 1):
        (tx, nx), (ty, ny), (tz, nz) = _parts(x), _parts(y), _parts(z)
        if tx != ty or len(nx) != len(ny):
            continue
        if tx != tz or len(nx) != len(nz):
            return f"line {i}: `{z.strip()}` instead of `{x.strip()}`"
        for p, q, r in zip(nx, ny, nz):
            if _close(p, q) and not _close(p, r):
                return f"line {i}: `{z.strip()}` instead of `{x.strip()}`"
    return None
