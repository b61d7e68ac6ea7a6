"""The real trace reader, where it is installed (`pip install tlparse`), accepts our traces in its strict mode."""
import os, shutil, subprocess, sys, tempfile, unittest

PROGRAM = """
import taper
@taper.compile(dynamic=True)
def fn(x, y):
    if x.shape[0] > 2:
        return (x + y).sin()
    return x - y
for n in (3, 5, 2):
    fn(taper.ones(n, 4), taper.ones(n, 4))
"""


def test_strict_reading_of_a_trace():
    exe = os.environ.get("TLPARSE") or shutil.which("tlparse") or shutil.which("tlparse", path=os.path.dirname(sys.executable))
    if not exe:
        raise unittest.SkipTest("tlparse is not installed")
    with tempfile.TemporaryDirectory() as d:
        trace = os.path.join(d, "trace")
        script = os.path.join(d, "play.py")
        with open(script, "w") as f:
            f.write(PROGRAM)
        subprocess.run([sys.executable, script], check=True, env=dict(os.environ, TAPER_DTRACE=trace), timeout=120)
        (log,) = os.listdir(trace)
        assert log.startswith("dedicated_log_taper_trace_"), log
        p = subprocess.run([exe, "--strict", "--no-browser", "-o", os.path.join(d, "out"), os.path.join(trace, log)],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert p.returncode == 0, p.stdout
        assert "fail" not in p.stdout.split("Stats")[-1], p.stdout
        made = os.listdir(os.path.join(d, "out", "-_0_0_0"))
        assert any(f.startswith("dynamo_output_graph") for f in made), made
