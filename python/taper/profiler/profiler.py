"""The profiler: times of operators, by a mode that sees every call, and of ranges that the program names."""
import contextlib as _contextlib
import enum as _enum
import functools as _functools
import json as _json
import os as _os
import threading as _threading
import time as _time

from ..utils._python_dispatch import TorchDispatchMode as _Mode

_running = _threading.local()


class ProfilerActivity(_enum.Enum):
    CPU, CUDA, XPU, MTIA, PrivateUse1 = range(5)


class ProfilerAction(_enum.Enum):
    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def supported_activities():
    return {ProfilerActivity.CPU}


def kineto_available():
    return False


def _default_schedule_fn(_):
    return ProfilerAction.RECORD


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps are recorded: after skip_first, cycles of wait, warmup and active steps, repeat times (0: always)."""
    def at(step):
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        step %= cycle
        if step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == cycle - 1 else ProfilerAction.RECORD
    return at


class FunctionEvent:
    def __init__(self, name, start, end, depth):
        self.name = self.key = name
        self.start, self.end, self.depth = start, end, depth
        self.cpu_time_total = self.cpu_time = (end - start) / 1e3
        self.self_cpu_time_total, self.count, self.cuda_time_total, self.device_time_total = self.cpu_time_total, 1, 0, 0


class _Average:
    def __init__(self, key):
        self.key, self.count, self.cpu_time_total, self.self_cpu_time_total = key, 0, 0.0, 0.0
        self.cuda_time_total = self.device_time_total = self.self_cuda_time_total = self.self_device_time_total = 0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    @property
    def cpu_time(self):
        return self.cpu_time_total / max(self.count, 1)


class EventList(list):
    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0):
        rows = {}
        for e in self:
            a = rows.setdefault(e.key, _Average(e.key))
            a.count += 1
            a.cpu_time_total += e.cpu_time_total
            a.self_cpu_time_total += e.self_cpu_time_total
        return EventList(rows.values())

    def total_average(self):
        t = _Average("Total")
        for e in self:
            t.count += e.count
            t.self_cpu_time_total += e.self_cpu_time_total
        t.cpu_time_total = t.self_cpu_time_total
        return t

    @property
    def self_cpu_time_total(self):
        return sum(e.self_cpu_time_total for e in self)

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80, header=None,
              top_level_events_only=False):
        rows = sorted(self, key=lambda e: -getattr(e, sort_by, 0)) if sort_by else list(self)
        wide = max([4] + [len(e.key) for e in rows[:row_limit]])
        line = "-" * wide + "  " + "  ".join("-" * 12 for _ in range(4))
        out = ([header] if header else []) + [line, "Name".rjust(wide) + "  " + "  ".join(h.rjust(12) for h in ("Self CPU", "CPU total", "CPU time avg", "# of Calls")), line]
        for e in rows[:row_limit]:
            out.append(e.key.rjust(wide) + "  " + "  ".join(t.rjust(12) for t in (f"{e.self_cpu_time_total:.3f}us", f"{e.cpu_time_total:.3f}us",
                                                                                f"{e.cpu_time:.3f}us", str(e.count))))
        return "\n".join(out + [line, f"Self CPU time total: {self.self_cpu_time_total / 1e3:.3f}ms", ""])

    __str__ = table

    def export_chrome_trace(self, path):
        events = [{"name": e.key, "ph": "X", "ts": e.start / 1e3, "dur": e.cpu_time_total, "pid": _os.getpid(), "tid": 0} for e in self if hasattr(e, "start")]
        with open(path, "w") as f:
            _json.dump({"traceEvents": events}, f)


class _Watch(_Mode):
    def __init__(self, prof):
        super().__init__()
        self.prof = prof

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with self.prof._range("aten::" + str(func).split(".")[1] if str(func).startswith("aten.") else str(func)):
            return func(*args, **(kwargs or {}))


class profile:
    """with profile() as prof: ...; prof.key_averages().table(sort_by="cpu_time_total")"""

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
                 with_modules=False, experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None, custom_trace_id_callback=None,
                 post_processing_timeout_s=None):
        self.schedule, self.on_trace_ready, self.step_num = schedule or _default_schedule_fn, on_trace_ready, 0
        self._events, self._open, self._watch, self.profiler = EventList(), [], None, self
        self.current_action = self.schedule(0)

    @_contextlib.contextmanager
    def _range(self, name):
        entry = [name, 0]
        self._open.append(entry)
        t0 = _time.perf_counter_ns()
        try:
            yield
        finally:
            t1 = _time.perf_counter_ns()
            self._open.pop()
            e = FunctionEvent(name, t0, t1, len(self._open))
            e.self_cpu_time_total -= entry[1] / 1e3
            if self._open:
                self._open[-1][1] += t1 - t0
            self._events.append(e)

    def _record(self, on):
        if on and self._watch is None:
            self._watch = _Watch(self)
            self._watch.__enter__()
            _running.prof = self
        elif not on and self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = _running.prof = None

    def _recording(self, action):
        return action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def start(self):
        self._record(self._recording(self.current_action))

    def stop(self):
        was = self._watch is not None
        self._record(False)
        if was and self.on_trace_ready:
            self.on_trace_ready(self)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()
        return False

    def step(self):
        """The next step begins."""
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._record(False)
            if self.on_trace_ready:
                self.on_trace_ready(self)
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._record(self._recording(self.current_action))

    def events(self):
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        return self._events.key_averages()

    def table(self, **kwargs):
        return self.key_averages().table(**kwargs)

    def export_chrome_trace(self, path):
        self._events.export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        with open(path, "w") as f:
            for e in self.key_averages():
                f.write(f"{e.key} {int(getattr(e, metric))}\n")

    def add_metadata(self, key, value):
        """Kept nowhere: traces hold times."""

    add_metadata_json = add_metadata

    @property
    def function_events(self):
        return self._events

    @property
    def self_cpu_time_total(self):
        return self._events.self_cpu_time_total

    def total_average(self):
        return self._events.total_average()


class record_function(_contextlib.ContextDecorator):
    """with record_function("name"): a range under that name, where a profiler runs."""

    def __init__(self, name, args=None):
        self.name, self.range = name, None

    def _recreate_cm(self):
        return type(self)(self.name)

    def __enter__(self):
        prof = getattr(_running, "prof", None)
        if prof is not None:
            self.range = prof._range(self.name)
            self.range.__enter__()
        return self

    def __exit__(self, *exc):
        if self.range is not None:
            self.range.__exit__(*exc)
            self.range = None
        return False


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A handler that writes each trace into a folder, as a file that trace viewers read."""
    def handler(prof):
        _os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(_os.path.join(dir_name, f"{worker_name or _os.getpid()}.{_time.time_ns()}.pt.trace.json"))
    return handler


class ExecutionTraceObserver:
    """Records nothing by itself: a profile does."""

    def register_callback(self, path):
        self.path = path
        return self

    def start(self):
        """Nothing to start."""

    stop = unregister_callback = start


@_functools.lru_cache(None)
def _noop():
    return None
