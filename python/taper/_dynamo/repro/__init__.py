"""Scripts of saved failures: what they import, how they run, and how they are written."""
import builtins
import os
import sys
from math import inf, nan  # noqa: F401  as the graph text spells them

from ... import _C
from ..._C import device  # noqa: F401

Max, Min = builtins.max, builtins.min


def Mod(a, b):
    return a % b


def inject(spec):
    """Plants faults on purpose: "relu:accuracy@gen"; None removes them. Says so on stderr."""
    _C._inject(spec)
    if spec:
        print(f"taper: faults are planted for testing ({spec})", file=sys.stderr)


def backend(name, fn):
    """A backend written in Python, known by name to this script."""
    from .. import backends
    backends._registry.setdefault(name, fn)
    backends._tags.setdefault(name, ())


def constant(save_dir, digest, shape, dtype):
    """A constant of a graph that was too big for its text."""
    from ... import empty, randn, safetensors, zeros
    path = os.path.join(save_dir, "graph.py.safetensors") if save_dir else None
    if digest and path and os.path.exists(path):
        found = safetensors.load_file(path).get("sha256:" + digest)
        if found is None:
            found = safetensors.load_file(path).get(digest)
        if found is not None:
            return found.reshape(shape)
    print(f"taper: a constant's data is not here ({digest[:12] or 'never saved'}): random numbers instead", file=sys.stderr)
    return randn(shape, dtype=dtype) if empty(0, dtype=dtype).is_floating_point() else zeros(shape, dtype=dtype)
