"""What becomes loops inside kernels, and that it computes what eager does."""
import os
import re
import subprocess
import sys

import taper

F = taper.nn.functional


def plan(body, logs="schedule,fusion", **env):
    """The logs of a program whose names are those of this file."""
    code = "import taper\nF = taper.nn.functional\ntaper.manual_seed(0)\n" + body
    r = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=120,
                       env={**os.environ, "TAPER_LOGS": logs, "TAPER_CACHE": "0", **env})
    assert r.returncode == 0, r.stderr
    return r.stderr


def counts(log):
    """kernels, library calls of each schedule"""
    return [tuple(map(int, m)) for m in re.findall(r"schedule of \w+: (\d+) kernels, \d+ products, (\d+) library calls", log)]


def test_a_group_norm_and_what_follows_is_one_kernel():
    log = plan("x = taper.randn(4, 16, 32, 32)\nw = taper.randn(16)\n"
               "taper.compile(lambda x, w: F.relu(F.group_norm(x, 2, w, w)) + 1)(x, w)")
    assert counts(log) == [(1, 0)], log
    for shape, groups in (((4, 16, 32, 32), 2), ((2, 6, 5, 7), 3), ((3, 4, 9), 4), ((1, 8, 3), 1)):
        x, w, b = taper.randn(*shape), taper.randn(shape[1]), taper.randn(shape[1])
        f = lambda x, w, b: F.relu(F.group_norm(x, groups, w, b)) + 1
        assert taper.allclose(taper.compile(f)(x, w, b), f(x, w, b), atol=1e-5), shape


def test_a_view_that_regroups_dimensions_splits_the_loop():
    def f(x):
        return taper.sin(x).view(4, 6, 35).sum(2).view(24, 1) * x.view(24, 35) + x.view(8, 3, 5, 7).transpose(1, 2).reshape(24, 35)

    x = taper.randn(4, 2, 3, 5, 7)
    assert taper.allclose(taper.compile(f)(x), f(x), atol=1e-4)
    assert taper.allclose(taper.compile(f, dynamic=True)(x), f(x), atol=1e-4)


def test_a_large_sum_does_not_take_its_users_off_the_threads():
    log = plan("taper.compile(lambda x: x / x.sum())(taper.rand(1 << 20))")
    assert "did not fuse div" in log and "too few rows to share among threads" in log, log
