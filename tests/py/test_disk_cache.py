"""The cache on disk: a second process takes what the first compiled; everything wrong with it is said once and survived."""
import glob
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

import taper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
PROGRAM = """
import sys, taper
def f(x, w):
    return (taper.sin(x) @ w).relu().sum(1), taper.softmax(x, 1) * w.mean()
taper.manual_seed(1)
x, w = taper.randn(8, 8), taper.randn(8, 8, requires_grad=True)
f = taper.compile(f, **OPTIONS)
y, z = f(x, w)
(y.sum() + z.sum()).backward()
print([round(v, 4) for v in y.tolist()], round(z.sum().item(), 4), round(w.grad.sum().item(), 4))
m = taper.compiler.metrics()
print("stages", m["stages_us"]["autograd"], m["stages_us"]["fusion"], m["stages_us"]["code"])
"""


class Cache:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="taper-test-cache-")

    def run(self, program=PROGRAM, options="{}", before=None, **env):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
        env = {**kept, "TAPER_CACHE_DIR": self.dir, **{k: v for k, v in env.items() if v is not None}}
        path = os.path.join(self.dir, "program.py")
        with open(path, "w") as f:
            f.write(program.replace("OPTIONS", options))
        r = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=100, env=env, preexec_fn=before)
        assert r.returncode == 0, r.stderr
        return r

    def files(self, kind="*"):
        return sorted(glob.glob(f"{self.dir}/v1/{kind}-*"))

    def taper(self, *args):
        return subprocess.run([TAPER, "cache", *args], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "TAPER_CACHE_DIR": self.dir})

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.dir, ignore_errors=True)


def value(r):
    return r.stdout.splitlines()[0]


def stages(r):
    return [int(s) for s in r.stdout.splitlines()[1].split()[1:]]


def test_a_second_process_skips_the_later_stages():
    with Cache() as c:
        cold, warm = c.run(TAPER_LOGS="cache"), c.run(TAPER_LOGS="cache")
        assert value(cold) == value(warm) == value(c.run(TAPER_CACHE="0"))
        assert all(s > 0 for s in stages(cold)) and stages(warm) == [0, 0, 0]
        assert cold.stderr.count("disk cache miss: forward of f at") == 1 and "nothing like it was compiled before" in cold.stderr
        assert warm.stderr.count("disk cache hit: forward of f at") == 1 and warm.stderr.count("disk cache hit: backward of f at") == 1
        assert "disk cache miss" not in warm.stderr
        assert len(c.files("graph")) == len(c.files("backward")) == 1
        assert oct(os.stat(c.dir + "/v1").st_mode & 0o777) == "0o700"
        assert oct(os.stat(c.files()[0]).st_mode & 0o777) == "0o600"


def test_every_miss_says_why():
    with Cache() as c:
        c.run()
        for how, why in (({"TAPER_ISA": "avx2"}, "it is there for cpu=avx512, but now cpu is avx2"),
                         ({"TAPER_PRODUCTS": "blas"}, "it is there for settings=products:emitted"),
                         ({"options": "{'options': {'unroll': 1}}"}, "but now options is emitter=auto isa=auto")):
            if "avx512" in why and "avx512" not in open("/proc/cpuinfo").read():
                continue
            r = c.run(TAPER_LOGS="cache", **how)
            assert why in r.stderr, r.stderr
        other = c.run(PROGRAM.replace("relu", "tanh"), TAPER_LOGS="cache")
        assert "nothing like it was compiled before" in other.stderr
        off = c.run(options="{'options': {'disk_cache': False}}", TAPER_LOGS="cache")
        assert "disk cache bypass" in off.stderr and "the options turn it off" in off.stderr
        logs = c.run(TAPER_LOGS="cache,schedule")
        assert "disk cache bypass" in logs.stderr and "schedule of" in logs.stderr
        inject = c.run(TAPER_LOGS="cache", TAPER_INJECT="erf:accuracy@gen")
        assert "faults are planted" in inject.stderr
        assert "disk cache hit: forward" in c.run(TAPER_LOGS="cache").stderr  # none of these touched it


def test_the_cache_can_be_turned_off():
    with Cache() as c:
        c.run(TAPER_CACHE="0")
        assert not os.path.exists(c.dir + "/v1")
        assert "TAPER_CACHE=0 turns it off" in c.run(TAPER_CACHE="0", TAPER_LOGS="cache").stderr


def test_damaged_entries_are_refused_and_made_again():
    with Cache() as c:
        want = value(c.run())
        for where in (3, 0.3, 0.9, None):
            path = c.files("graph")[0]
            data = bytearray(open(path, "rb").read())
            if where is None:
                data = data[:len(data) // 2]
            else:
                data[int(where * len(data)) if isinstance(where, float) else where] ^= 0x55
            open(path, "wb").write(data)
            r = c.run()
            assert value(r) == want and r.stderr.count("\n") == 1 and "damaged" in r.stderr, (where, r.stderr)
            again = c.run()
            assert again.stderr == "" and stages(again) == [0, 0, 0]
        open(c.files("graph")[0], "w").close()  # empty
        r = c.run()
        assert value(r) == want and "damaged" in r.stderr


def test_planted_entries_are_refused():
    with Cache() as c:
        want = value(c.run())
        path = c.files("graph")[0]
        good = open(path, "rb").read()

        def plant(how):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            elif os.path.lexists(path):
                os.unlink(path)
            how()
            r = c.run()
            assert value(r) == want, r.stderr
            assert len(r.stderr.splitlines()) <= 2, r.stderr
            return r.stderr

        def write(data, mode=0o600, uid=None):
            def put():
                open(path, "wb").write(data)
                os.chmod(path, mode)
                if uid is not None:
                    os.chown(path, uid, -1)
            return put
        elsewhere = c.dir + "/elsewhere"
        open(elsewhere, "wb").write(good)
        assert "symbolic link" in plant(lambda: os.symlink(elsewhere, path))
        assert "lets others write" in plant(write(good, 0o666))
        assert "not a plain file" in plant(lambda: os.mkfifo(path))
        assert "not a plain file" in plant(lambda: os.mkdir(path))
        if os.path.isdir(path):
            os.rmdir(path)
        if os.geteuid() == 0:
            assert "belongs to user 12345" in plant(write(good, uid=12345))
        assert "does not begin as an entry" in plant(write(b"\x7fELF" + bytes(5000)))
        c.run(PROGRAM.replace("relu", "tanh"))
        other = [f for f in c.files("graph") if f != path][0]
        assert "made for something else" in plant(write(open(other, "rb").read()))
        assert plant(write(good)) == ""  # and the good one is taken


def test_directories_that_cannot_be_used():
    with Cache() as c:
        want = value(c.run(TAPER_CACHE="0"))
        plain = c.dir + "/file"
        open(plain, "w").close()
        os.makedirs(c.dir + "/open/v1")
        os.chmod(c.dir + "/open/v1", 0o755)
        os.makedirs(c.dir + "/link")
        os.symlink(c.dir, c.dir + "/link/v1")
        for where, why in ((plain, "Not a directory"), ("/proc/nowhere", "cannot create directory"), (c.dir + "/open", "open to others"),
                           (c.dir + "/link", "symbolic link")):
            r = c.run(TAPER_CACHE_DIR=where)
            assert value(r) == want and r.stderr.count("\n") == 1, r.stderr
            assert "the disk cache is not used" in r.stderr and why in r.stderr, r.stderr
        r = c.run(TAPER_CACHE_DIR="", HOME="", XDG_CACHE_HOME="", TAPER_LOGS="cache")
        assert value(r) == want and "neither TAPER_CACHE_DIR nor HOME is set" in r.stderr


def test_a_full_disk_is_one_line():
    def small_files():
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    with Cache() as c:
        want = value(c.run(TAPER_CACHE="0"))
        r = c.run(before=small_files)
        assert value(r) == want and r.stderr.count("\n") == 1, r.stderr
        assert "nothing more is written to the disk cache" in r.stderr
        assert os.listdir(c.dir + "/v1") == []  # no pieces are left


def test_the_size_is_limited():
    with Cache() as c:
        c.run(TAPER_CACHE_SIZE="0")
        assert c.files() == []
        os.makedirs(c.dir + "/v1", exist_ok=True)
        for i in range(4):
            path = f"{c.dir}/v1/graph-{i:032d}-{i:016d}"
            with open(path, "wb") as f:
                f.write(bytes(400 << 10))
            os.utime(path, (1000 + i, 1000 + i))
        c.run(TAPER_CACHE_SIZE="1")
        left = [os.path.basename(f) for f in c.files()]
        assert sum("0000000000000000000000000000000" in f for f in left) == 2 and len(c.files("backward")) == 1, left
        assert any("2-000" in f for f in left) and any("3-000" in f for f in left)  # the oldest went


def test_many_processes_at_once():
    with Cache() as c:
        want = value(c.run(TAPER_CACHE="0"))
        path = os.path.join(c.dir, "program.py")
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}, "TAPER_CACHE_DIR": c.dir}
        many = [subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
                for _ in range(5)]
        for p in many:
            out, err = p.communicate(timeout=100)
            assert p.returncode == 0 and out.splitlines()[0] == want and err == "", err
        assert len(c.files()) == 2


def test_the_command():
    with Cache() as c:
        assert c.taper("ls").stdout.startswith("0 entries in ")
        c.run()
        ls = c.taper("ls").stdout.splitlines()
        assert len(ls) == 3 and any(li.startswith("graph") and "f at" in li for li in ls) and ls[-1].startswith("2 entries in " + c.dir)
        assert "cpu=" in c.taper("ls", "--full").stdout
        ok = c.taper("verify")
        assert ok.returncode == 0 and "2 of 2 entries" in ok.stdout
        path = c.files("graph")[0]
        data = bytearray(open(path, "rb").read())
        data[-10] ^= 1
        open(path, "wb").write(data)
        bad = c.taper("verify")
        assert bad.returncode == 1 and "checksum" in bad.stdout and "1 of 2 entries" in bad.stdout
        assert "removed 2 entries" in c.taper("clear").stdout and c.files() == []
        assert c.taper("ls", "--nonsense").returncode == 2 and c.taper("drop").returncode == 2


def test_libraries_built_from_c_are_kept():
    if not shutil.which("cc"):
        import unittest
        raise unittest.SkipTest("no C compiler")
    with Cache() as c:
        first = c.run(TAPER_EMITTER="c", TAPER_LOGS="cache")
        assert "disk cache miss: " in first.stderr and "kernels as C" in first.stderr and len(c.files("library")) == 2
        env = {"TAPER_EMITTER": "c", "TAPER_LOGS": "cache", "PATH": "/nowhere"}  # no compiler to be found
        again = c.run(**env)
        assert value(again) == value(first) and again.stderr.count("disk cache hit: ") == 2
        assert "graph" not in " ".join(os.path.basename(f) for f in c.files())  # not machine code of ours
        data = bytearray(open(c.files("library")[0], "rb").read())
        data[2000] ^= 0xff
        open(c.files("library")[0], "wb").write(data)
        r = c.run(TAPER_EMITTER="c")
        assert value(r) == value(first) and r.stderr.count("\n") == 1 and "damaged" in r.stderr


def test_the_trace_tells():
    with Cache() as c:
        def names(r, d):
            text = "".join(open(f).read() for f in glob.glob(d + "/*.log"))
            return [json.loads(li.split("] ", 1)[1])["artifact"]["name"] for li in text.splitlines() if '"artifact"' in li]
        for i, (extra, kind) in enumerate((({}, "bypass"), ({"TAPER_CACHE": "1"}, "miss"), ({"TAPER_CACHE": "1"}, "hit"))):
            d = f"{c.dir}/trace{i}"
            got = names(c.run(TAPER_TRACE=d, **extra), d)
            assert got.count("aotautograd_cache_" + kind) == (1 if kind == "bypass" else 2), (kind, got)
        assert "fx_graph_cache_hit" in got


def test_what_is_stored_runs_like_what_was_compiled():
    code = "import graph_fuzz, sys\nfor s in range(5000, 5030):\n    w = graph_fuzz.check(s, 12, 'inductor', s % 3 == 0 or None)\n    assert w is None, w\n"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200,
                       env={**os.environ, "TAPER_CHECK_CACHE": "1",
                            "PYTHONPATH": os.path.dirname(__file__) + os.pathsep + os.path.dirname(os.path.dirname(taper.__file__))})
    assert r.returncode == 0, r.stdout + r.stderr


LATER = """
import os, sys, taper, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of CPython 3.12: a process with threads is forked on purpose
def f(x):
    return taper.sin(x) + 1
x = taper.ones(3)
want = taper.compile(f)(x)
print(len(os.listdir("/proc/self/task")))
taper._dynamo.reset()  # what waits to be written is found
assert taper.equal(taper.compile(f)(x), want)
print(taper.compiler.metrics()["compiles"][-1]["aotautograd_local_cache_hit_count"])
print(os.getpid(), flush=True)
if os.fork() == 0:  # what waits is the parent's
    taper.compile(lambda x: taper.cos(x))(x)
    os._exit(0)
os.wait()
for k in range(8):
    taper.compile(eval(f"lambda x: x * {k} + {k}"))(taper.ones(3 + k))  # code of its own each
"""


def test_entries_are_written_while_the_program_goes_on():
    with Cache() as c:
        r = c.run(LATER, TAPER_NUM_THREADS="2")
        assert r.stdout.split()[1] == "1" and not r.stderr, (r.stdout, r.stderr)
        mine = f".tmp.{r.stdout.split()[2]}."  # the child ends as if it were killed
        assert len(c.files("graph")) >= 9 and not [f for f in c.files() if mine in f], c.files()
        assert c.taper("verify").returncode == 0
        whole, = (f for f in c.files("graph")[:1])
        open(whole + ".tmp.12345.0", "w").close()  # a process was killed at it
        r = c.taper("verify")
        assert r.returncode == 0 and "damaged" not in r.stdout, r.stdout


def test_one_thread_stays_alone():
    with Cache() as c:
        one, none = (int(c.run(LATER.replace("print(taper", "0 and print(taper"), TAPER_NUM_THREADS="1", TAPER_CACHE=n).stdout.split()[0])
                     for n in ("1", "0"))
        assert one == none, (one, none)
