"""Trials in children that are forked from a process which has PyTorch imported and has compiled something already."""
import json
import os
import resource
import select
import signal
import tempfile
import time

import torch
import torch._dynamo
from . import _case

JOBS = max(1, min(2, os.cpu_count() or 1))


class Trials:
    """Runs cases, some at a time, and remembers what came of them."""

    def __init__(self, timeout=120.0, memory=None, jobs=JOBS):
        self.timeout, self.memory, self.jobs = timeout, memory, jobs
        self.count, self.seen = 0, {}

    def warm(self, how):
        """Imports and compiles what every trial needs. A crash here ends the process: supervise() starts another without."""
        torch.set_num_threads(1)
        _case.no_caches()
        try:
            backend = _case.find_backend(how["backend"])
            with torch.no_grad():
                torch.compile(lambda x: x.t() + 1, backend=backend)(torch.ones(2, 3))
        except Exception:  # it is the subject of the search that fails; its imports are done
            pass
        torch._dynamo.reset()

    def start(self, case):
        self.count += 1
        out = tempfile.TemporaryFile()
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                os.close(r)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                if self.memory:
                    resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
                torch.set_num_threads(max(1, case.how.get("threads") or 1))
                o = _case.judge(case)
                os.write(w, json.dumps([o.kind, o.message, o.identity, o.asked]).encode())
            except MemoryError:
                os.write(w, json.dumps(["out of memory", "MemoryError", ""]).encode())
            except BaseException as e:  # whatever it is belongs to the trial
                os.write(w, json.dumps(["exception", _case.describe(e), _case.identity(e)]).encode())
            finally:
                os._exit(0)
        os.close(w)
        return pid, r, time.monotonic(), out

    @staticmethod
    def stop(job):
        pid, r, _, out = job
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(pid, 0)
        os.close(r)
        out.close()

    def collect(self, job, text):
        pid, r, _, out = job
        _, status = os.waitpid(pid, 0)
        os.close(r)
        try:
            if text:
                return _case.Outcome(*json.loads(text))
            if os.WIFSIGNALED(status):
                sig = os.WTERMSIG(status)
                if sig == signal.SIGKILL:
                    return _case.Outcome("out of memory", "the process was killed")
                return _case.Outcome("signal", signal.Signals(sig).name, signal.Signals(sig).name)
            return _case.Outcome("signal", f"the process ended itself with status {os.WEXITSTATUS(status)}", "exit")
        finally:
            try:
                os.killpg(pid, signal.SIGKILL)  # compilers it left behind
            except (ProcessLookupError, PermissionError):
                pass
            out.close()

    def outcomes(self, cases, enough=None):
        """The outcome of each case, in order; None for those that were not needed: enough(outcome) ends the search behind that case."""
        cases, done, running, at = list(cases), {}, {}, 0
        end = len(cases)
        keys = [c.key() for c in cases]
        while True:
            while at < end and len(running) < self.jobs:
                if keys[at] in self.seen:
                    done[at] = self.seen[keys[at]]
                    if enough and enough(done[at]):
                        end = at + 1
                else:
                    running[at] = self.start(cases[at])
                at += 1
            for i in [i for i in running if i >= end]:
                self.stop(running.pop(i))
            if not running:
                if at >= end:
                    return [done.get(i) for i in range(len(cases))]
                continue
            ready, _, _ = select.select([j[1] for j in running.values()], [], [], 0.25)
            for i, job in list(running.items()):
                late = time.monotonic() - job[2] > self.timeout
                if job[1] in ready:
                    text, more = b"", os.read(job[1], 65536)
                    while more:
                        text += more
                        more = os.read(job[1], 65536)
                    done[i] = self.collect(job, text)
                elif late:
                    self.stop(job)
                    done[i] = _case.Outcome("time-out", f"no answer in {self.timeout:g} s")
                else:
                    continue
                del running[i]
                self.seen[keys[i]] = done[i]
                if enough and enough(done[i]):
                    end = min(end, i + 1)

    def first(self, cases, wanted):
        """The index of the first case that fails like `wanted`, or None."""
        got = self.outcomes(cases, enough=wanted.same)
        return next((i for i, o in enumerate(got) if o is not None and o.same(wanted)), None)

    def one(self, case):
        return self.outcomes([case])[0]


def supervise(work):
    """work(warm) in a child; when warming up kills it, once more without. Returns its exit status."""
    for warm in (True, False):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(r)
                code = work(warm, lambda: os.write(w, b"."))
            except KeyboardInterrupt:
                code = 130
            except SystemExit as e:
                code = e.code if isinstance(e.code, int) else 1
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                import sys
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.close(w)
        while True:
            try:
                _, status = os.waitpid(pid, 0)
                break
            except KeyboardInterrupt:  # the child has it, too, and writes what it has
                continue
        warmed = os.read(r, 1)
        os.close(r)
        if os.WIFSIGNALED(status) and not warmed and warm:
            continue
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 70
    return 70
