"""Several processes that run one function."""
import multiprocessing as _mp
import time as _time
import traceback as _traceback


class ProcessException(Exception):
    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A process ended by an exception."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal or by an exit code."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn, i, args, errors):
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.put((i, _traceback.format_exc()))
        raise SystemExit(1) from None


class ProcessContext:
    def __init__(self, processes, errors):
        self.processes, self.errors = processes, errors

    def pids(self):
        return [p.pid for p in self.processes]

    def join(self, timeout=None, grace_period=None):
        """True when all have ended. One that fails ends the others, and its exception is raised here."""
        end = None if timeout is None else _time.monotonic() + timeout
        while True:
            failed = [i for i, p in enumerate(self.processes) if not p.is_alive() and p.exitcode]
            if failed:
                i = failed[0]
                for p in self.processes:
                    if p.is_alive():
                        p.terminate()
                    p.join(grace_period)
                if not self.errors.empty():
                    i, text = self.errors.get()
                    raise ProcessRaisedException(f"\n\n-- Process {i} terminated with the following error:\n{text}", i, self.processes[i].pid)
                code = self.processes[i].exitcode
                raise ProcessExitedException(f"process {i} terminated with exit code {code}", i, self.processes[i].pid, code)
            alive = [p for p in self.processes if p.is_alive()]
            if not alive:
                return True
            if end is not None and _time.monotonic() >= end:
                return False
            alive[0].join(0.05)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", numa_options=None):
    """nprocs processes run fn(i, *args)."""
    mp = _mp.get_context(start_method)
    errors, processes = mp.SimpleQueue(), []
    for i in range(nprocs):
        p = mp.Process(target=_run, args=(fn, i, args, errors), daemon=daemon)
        p.start()
        processes.append(p)
    context = ProcessContext(processes, errors)
    while join and not context.join():
        pass
    return None if join else context


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    return start_processes(fn, args, nprocs, join, daemon, start_method)
