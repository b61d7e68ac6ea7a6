"""The small models of bench/models.py with inputs, for tests that want many kinds of graphs."""
import os
import sys

import taper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"))


def models():
    import models as m
    for name in m.NAMES:
        net, args, target, loss = m.build(name, taper, small=True)
        yield name, net, args
