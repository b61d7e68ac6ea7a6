"""(sanitize: skip, MPI's launcher starts other programs) Two hosts: network namespaces with an own host name, own processes and own
shared memory, joined by one cable. MPI starts the ranks through a script where it would call ssh."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import ranks

AGENT = r"""#!/bin/sh
# what ssh would do: run a command on the host of that address
while [ "${1#-}" != "$1" ]; do shift; done
ns=%s-${1##*.}; shift
exec ip netns exec $ns unshare -m -u -p -f --kill-child --mount-proc sh -c "mount -t tmpfs none /dev/shm; hostname host${ns##*-}; exec $*"
"""
HEAD = r'''
import os, signal, socket, sys, time
import taper, taper.distributed as dist
dist.init_process_group("mpi")
r, n = dist.get_rank(), dist.get_world_size()
x = taper.ones(4)
dist.all_reduce(x)
assert x.tolist() == [float(n)] * 4
'''
_hosts = []


def sh(*cmd):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        raise unittest.SkipTest(f"no second host can be made here: {' '.join(cmd)}: {p.stdout.strip()}")


def hosts():
    """The folder with the agent's script; makes the hosts first."""
    if _hosts:
        return _hosts[0]
    if os.getuid() or not shutil.which("ip") or not shutil.which("unshare"):
        raise unittest.SkipTest("network namespaces need root, ip and unshare")
    name = f"taper{os.getpid()}"
    d = tempfile.mkdtemp(prefix="taper-hosts-")

    def down():
        for k in "12":
            subprocess.run(["ip", "netns", "del", f"{name}-{k}"], stderr=subprocess.DEVNULL)
        shutil.rmtree(d, ignore_errors=True)
    atexit.register(down)
    for k in "12":
        sh("ip", "netns", "add", f"{name}-{k}")
    sh("ip", "-n", f"{name}-1", "link", "add", "taper0", "type", "veth", "peer", "name", "taper0", "netns", f"{name}-2")
    for k in "12":
        sh("ip", "-n", f"{name}-{k}", "addr", "add", f"192.0.2.{k}/24", "dev", "taper0")
        sh("ip", "-n", f"{name}-{k}", "link", "set", "lo", "up")
        sh("ip", "-n", f"{name}-{k}", "link", "set", "taper0", "up")
    with open(os.path.join(d, "agent"), "w") as f:
        f.write(AGENT % name)
    os.chmod(f.name, 0o755)
    sh(f.name, "192.0.2.1", "true")
    _hosts.append(d)
    return d


def run(source, kind="openmpi", each=1, check=True, env=()):
    """The program on `each` ranks of both hosts -> (exit status, what was printed)."""
    ranks.need_mpi(kind)
    d = hosts()
    agent, path = os.path.join(d, "agent"), os.path.join(d, "program.py")
    with open(path, "w") as f:
        f.write(HEAD + source)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ranks.PACKAGE, "HOME": d, "TAPER_NUM_THREADS": "1", "TAPER_CACHE_DIR": d,
           "UCX_NET_DEVICES": "taper0", "UCX_TLS": "tcp", **dict(env)}
    setting = [f"{k}='{v}'" for k, v in env.items()]
    if kind == "openmpi":
        launch = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,vader,self",
                  "--mca", "btl_tcp_if_include", "taper0", "--mca", "oob_tcp_if_include", "taper0", "-H", f"192.0.2.1:{each},192.0.2.2:{each}"]
    else:
        launch = ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", agent, "-iface", "taper0", "-ppn", str(each), "-hosts", "192.0.2.1,192.0.2.2"]
    cmd = [agent, "192.0.2.1", "env", *setting, *launch, "-n", str(2 * each), "env", *setting, sys.executable, path]
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, cwd=d)
    if check and p.returncode:
        raise AssertionError(p.stdout)
    return p.returncode, p.stdout


WORK = r'''
names = [None] * n
dist.all_gather_object(names, socket.gethostname())
assert names == ["host1"] * (n // 2) + ["host2"] * (n // 2), names
g = dist.new_group([0, n - 1])  # across the hosts, without the others
if r in (0, n - 1):
    y = taper.full((3,), float(r))
    dist.broadcast(y, n - 1, group=g)
    assert y.tolist() == [n - 1.0] * 3
m = taper.nn.Linear(4, 2)
d = taper.compile(taper.nn.parallel.DistributedDataParallel(m))
d(taper.ones(3, 4) * (r + 1)).sum().backward()
assert (m.weight.grad - 3 * (n + 1) / 2).abs().max() < 1e-6, m.weight.grad
dist.barrier()
print("good", flush=True)
dist.destroy_process_group()
'''


def test_two_hosts_open_mpi():
    code, out = run(WORK, each=2)
    assert out.count("good") == 4, out


def test_two_hosts_mpich():
    code, out = run(WORK, "mpich")
    assert out.count("good") == 2, out


FAULT = r'''
what = %r
if r == n - 1:
    if what == "late":
        time.sleep(600)
    if what == "killed":
        time.sleep(1)  # what it did before has been told
        os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(taper.ones(8 if what == "shape" and r == n - 1 else 4))
dist.barrier()
'''


def test_faults_across_hosts_name_the_culprit():
    """One rank on each host: nobody shares a board with the culprit."""
    _, out = run(FAULT % "shape", check=False, env={"TAPER_COMM_TIMEOUT": "30"})
    assert "ranks disagree about collective number 2 of their group: each does something else than rank 1" in out, out
    assert "rank 0 calls all_reduce number 2, sum of 4 float32, at " in out and "rank 1 calls all_reduce number 2, sum of 8 float32, at " in out, out
    _, out = run(FAULT % "late", check=False, env={"TAPER_COMM_TIMEOUT": "10"})
    assert "all_reduce number 2 has waited longer than 10.0 s: rank 1 is missing" in out, out
    assert "on host2) computes; its last call was all_reduce number 1" in out and "program.py:13" in out, out
    _, out = run(FAULT % "killed", check=False, env={"TAPER_COMM_TIMEOUT": "30"})
    assert "rank 1 has died" in out or "rank 1 with PID" in out, out  # mpirun may end rank 0 first
