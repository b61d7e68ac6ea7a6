"""python -m taper.distributed.run --nproc-per-node N script.py args: starts the processes of a job, as torchrun does.

Through mpirun where there is one (and its mpicc, for the mpi back end); otherwise the processes are started here and work over
shared memory. When one fails the others get a few seconds to say what they wait for; then they are ended, the stopped ones, too."""
import argparse
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time

from . import _mpi

GRACE = 6.0  # seconds between the first failure and the end of the others


def get_args_parser():
    p = argparse.ArgumentParser(prog="taper.distributed.run", description="Starts the processes of a distributed program.", allow_abbrev=False)
    p.add_argument("--nproc-per-node", "--nproc_per_node", default="1", help="processes on each host: a number, or auto / cpu for the cores of this one")
    p.add_argument("--nnodes", default="1", help="number of hosts; more than one goes through mpirun")
    p.add_argument("--hosts", help="names of the hosts, with commas between, for mpirun")
    p.add_argument("--launcher", choices=("auto", "mpi", "openmpi", "mpich", "processes"), default="auto", help="who starts the processes; auto: mpirun where there is one")
    p.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    p.add_argument("--master-port", "--master_port", default=None)
    p.add_argument("--node-rank", "--node_rank", default="0")
    p.add_argument("--standalone", action="store_true", help="one host (which is the default)")
    p.add_argument("--max-restarts", "--max_restarts", default="0", help="has no effect: a job that fails ends")
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "start-method", "role", "monitor-interval", "local-addr"):
        p.add_argument("--" + name, "--" + name.replace("-", "_"), default="", help=argparse.SUPPRESS)
    p.add_argument("--log-dir", "--log_dir", help="folder for the output of each rank (rank0.log ...) instead of the terminal")
    p.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    p.add_argument("--no-python", "--no_python", action="store_true", help="the script is a program")
    p.add_argument("script")
    p.add_argument("args", nargs=argparse.REMAINDER)
    return p


def _command(a):
    alias = [] if os.environ.get("TAPER_RUN_TORCH") != "1" else ["-m", "taper"]
    if a.no_python:
        return [a.script, *a.args]
    return [sys.executable, "-u", *alias, *(["-m"] if a.module else []), a.script, *a.args]


def _port(a):
    """A number that names the job; nobody listens there."""
    return a.master_port or str(20000 + secrets.randbelow(40000))


def _mpirun(a, n, kind):
    mpirun = _mpi.find("mpirun", kind)
    kind = _mpi.family(mpirun)
    _mpi.shim(kind)  # once, before the ranks want it
    env = dict(os.environ, MASTER_ADDR=a.master_addr, MASTER_PORT=_port(a), TAPER_RUN_ID=secrets.token_hex(8), TAPER_COMM_BACKEND="mpi", TAPER_LOCAL_SIZE=str(n))
    total = n * int(a.nnodes)
    cmd = [mpirun, "-n", str(total)]
    if kind == "openmpi":
        if os.geteuid() == 0:  # it refuses to run as root unless it is told twice
            env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        cmd += ["--oversubscribe", "--bind-to", "none"]
        for k in ("PYTHONPATH", "MASTER_ADDR", "MASTER_PORT", "TAPER_RUN_ID", "TAPER_COMM_BACKEND"):
            cmd += ["-x", k] if k in env else []
    if a.hosts:
        cmd += ["-H" if kind == "openmpi" else "-hosts", ",".join(f"{h}:{n}" if kind == "openmpi" else h for h in a.hosts.split(","))]
    cmd += [sys.executable, "-m", "taper.distributed._child", a.log_dir or "", *_command(a)]
    p = subprocess.Popen(cmd, env=env)
    return _until_ended(p)


def _until_ended(p):
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda *_: p.send_signal(signal.SIGTERM))
    while True:
        try:
            return p.wait()
        except KeyboardInterrupt:
            p.send_signal(signal.SIGINT)


def _text(code):
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


class _Stop(Exception):
    pass


def _processes(a, n):
    if int(a.nnodes) != 1:
        raise SystemExit("several hosts need mpirun: install Open MPI or MPICH, or start one job a host")
    base = dict(os.environ, MASTER_ADDR=a.master_addr, MASTER_PORT=_port(a), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n), GROUP_RANK="0", GROUP_WORLD_SIZE="1",
                TAPER_RUN_ID=secrets.token_hex(8), TAPER_COMM_BACKEND="shm")
    for k in [k for k in base if k.startswith(("OMPI_", "PMI", "PMIX_"))]:
        del base[k]  # of a job that this one runs in
    base.setdefault("TORCHELASTIC_RUN_ID", base["TAPER_RUN_ID"])
    children = {}

    def stop(signum, frame):
        raise _Stop(signum)
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(s, stop)
    status = 0
    try:
        for r in range(n):
            env = dict(base, RANK=str(r), LOCAL_RANK=str(r), ROLE_RANK=str(r))
            cmd = [sys.executable, "-m", "taper.distributed._child", a.log_dir or "", *_command(a)]
            children[r] = subprocess.Popen(cmd, env=env, start_new_session=True)
        status = _watch(children)
    except _Stop as e:
        print(f"stopped by signal {e.args[0]}: the ranks are ended", file=sys.stderr)
        status = 128 + int(e.args[0])
    finally:
        for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(s, signal.SIG_IGN)
        _end(children)
    return status


def _stopped(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def _watch(children):
    left, first, deadline = dict(children), None, None
    while left:
        ended = [r for r, p in left.items() if p.poll() is not None]
        for r in ended:
            code = left.pop(r).returncode
            if code:
                print(f"rank {r} (process {children[r].pid}) {_text(code)}", file=sys.stderr, flush=True)
                if first is None:
                    first, deadline = (code if code > 0 else 128 - code), time.monotonic() + GRACE
        if deadline and (time.monotonic() > deadline or all(_stopped(p.pid) for p in left.values())):
            break
        if not ended and left:
            try:  # sleeps until a child ends, and looks at the clock now and then
                signal.sigtimedwait([signal.SIGCHLD], 0.2)
            except InterruptedError:
                pass
    return first or 0


def _signal_group(p, s):
    try:
        os.killpg(p.pid, s)
    except (ProcessLookupError, PermissionError):
        pass


def _end(children):
    late = [p for p in children.values() if p.poll() is None]
    for p in late:
        _signal_group(p, signal.SIGTERM)
    until = time.monotonic() + 2
    for p in late:
        try:
            p.wait(max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
    for p in children.values():  # what a rank started goes with it, and a stopped one hears nothing else
        _signal_group(p, signal.SIGKILL)
        p.wait()


def _share_cores(n):
    """Each rank its part of the cores, unless the user has said how many threads."""
    each = str(max(1, len(os.sched_getaffinity(0)) // n))
    for k in ("TAPER_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(k, each)


def run(args):
    n = len(os.sched_getaffinity(0)) if args.nproc_per_node in ("auto", "cpu") else int(args.nproc_per_node)
    _share_cores(n)
    kind = args.launcher if args.launcher in ("openmpi", "mpich") else None
    if args.launcher == "processes":
        return _processes(args, n)
    found = _mpi.find("mpirun", kind)
    usable = found and _mpi.find("mpicc", _mpi.family(found))
    if not usable:
        if args.launcher != "auto" or int(args.nnodes) != 1:
            raise SystemExit(f"--launcher {args.launcher}: there is no mpirun with its mpicc" + (f" of {kind}" if kind else ""))
        return _processes(args, n)
    return _mpirun(args, n, kind)


def main(args=None):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # waited for, not delivered
    return run(get_args_parser().parse_args(args))


def _die_with_parent():
    """The launcher may be killed: its children must not outlive it."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    except (OSError, AttributeError):
        pass


if __name__ == "__main__":
    sys.exit(main())
