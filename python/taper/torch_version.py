"""A version that compares as one, with strings and tuples."""
import re as _re

__all__ = ["TorchVersion"]


def _parts(v):
    if isinstance(v, (tuple, list)):
        return tuple(int(x) for x in v), 1
    m = _re.match(r"(\d+(?:\.\d+)*)(.*)", str(v))
    if not m:
        raise ValueError(f"Invalid version: {v!r}")
    return tuple(int(x) for x in m[1].split(".")), -1 if _re.match(r"\.?(a|b|rc|dev)", m[2]) else 1


class TorchVersion(str):
    def _cmp(self, other):
        a, b = _parts(self), _parts(other)
        n = max(len(a[0]), len(b[0]))
        x, y = (a[0] + (0,) * (n - len(a[0])), a[1]), (b[0] + (0,) * (n - len(b[0])), b[1])
        return (x > y) - (x < y)

    def __lt__(self, o):
        return self._cmp(o) < 0

    def __le__(self, o):
        return self._cmp(o) <= 0

    def __gt__(self, o):
        return self._cmp(o) > 0

    def __ge__(self, o):
        return self._cmp(o) >= 0

    def __eq__(self, o):
        try:
            return self._cmp(o) == 0
        except (ValueError, TypeError):
            return False

    def __ne__(self, o):
        return not self == o

    def __hash__(self):
        return str.__hash__(self)
