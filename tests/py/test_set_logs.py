"""Logs are switched on from Python as from the environment."""
import os
import subprocess
import sys

PROGRAM = """
import logging, taper
taper._logging.set_logs({args})
@taper.compile
def f(x):
    y = x + 1
    print('between')
    return y * 2
f(taper.ones(3))
f(taper.ones(4))
"""


def run(args, **env):
    e = dict(os.environ, **env)
    p = subprocess.run([sys.executable, "-c", PROGRAM.format(args=args)], capture_output=True, text=True, env=e)
    return p.returncode, p.stderr


def test_artifact_by_keyword():
    rc, err = run("graph_breaks=True")
    assert rc == 0 and "Graph break in user code at" in err and "Recompiling function" not in err, err
    rc, err = run("recompiles=True")
    assert rc == 0 and "Recompiling function f in" in err and "Graph break" not in err, err


def test_nothing_is_logged_unasked():
    rc, err = run("")
    assert rc == 0 and err == "", err


def test_component_level():
    rc, err = run("dynamo=logging.DEBUG")
    assert rc == 0 and "Graph break in user code at" in err, err


def test_errors_name_what_is_wrong():
    rc, err = run("nonsense=True")
    assert rc == 1 and "ValueError: Unrecognized log or artifact name passed to set_logs: nonsense" in err, err
    rc, err = run("graph_breaks=3")
    assert rc == 1 and "Expected bool to enable artifact graph_breaks, received 3" in err, err


def test_the_environment_wins():
    rc, err = run("graph_breaks=True", TAPER_LOGS="recompiles")
    assert rc == 0 and "ignoring call to set_logs" in err and "Recompiling function" in err and "Graph break" not in err, err
