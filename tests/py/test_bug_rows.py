"""The rows of tests/bugs speak of lines that are in the sources: each stands there exactly once."""
import importlib.util
import os
import sys

BUGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bugs")


def test_rows_follow_the_sources():
    spec = importlib.util.spec_from_file_location("bugs_run", os.path.join(BUGS, "run.py"))
    run = importlib.util.module_from_spec(spec)
    sys.path.insert(0, BUGS)
    try:
        spec.loader.exec_module(run)
    finally:
        sys.path.remove(BUGS)
    changed, wrong = run.planted()
    assert not wrong, "\n".join(wrong)
    assert len(changed) > 50 and len(run.BUGS) > 300
