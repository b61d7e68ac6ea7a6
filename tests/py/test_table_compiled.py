"""Every row of the op table, compiled: a sample of what `make fuzz` walks in full (table_compiled.py)."""
import os

import table_compiled
from taper import _C


def test_every_row_compiled_equals_eager():
    said = []
    ran, bad = table_compiled.walk(_C._schemas(), "TAPER_TABLE_FULL" in os.environ, said.append)
    assert not bad, "\n".join(said)
    assert ran > 1000, ran
