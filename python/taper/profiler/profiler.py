"""The profiler: times of operators, of compiled kernels with the user's lines, and of ranges that the program names; what they hold of memory."""
import contextlib as _contextlib
import enum as _enum
import functools as _functools
import json as _json
import os as _os
import time as _time

from .. import _C
from ..compiler import is_compiling as _compiling

_running = {}  # "prof": the profile that records


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
    """One call. Times are in microseconds; stack holds the user's line where it is known (compiled kernels)."""

    def __init__(self, name, start, end, thread=0, kind="op", where=None, shapes=None):
        self.name = self.key = name
        self.input_shapes = shapes
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0  # bytes that were taken and not given back
        self.start, self.end, self.thread, self.kind = start, end, thread, kind
        self.stack = [where] if where else []
        self.cpu_time_total = self.cpu_time = self.self_cpu_time_total = (end - start) / 1e3
        self.count, self.cuda_time_total, self.device_time_total, self.depth, self.cpu_parent, self.cpu_children = 1, 0, 0, 0, None, []

    @property
    def time_range(self):
        return _Interval(self.start / 1e3, self.end / 1e3)

    def __repr__(self):
        return f"<FunctionEvent {self.name} cpu_time={_time_text(self.cpu_time_total)} thread={self.thread}>"


class _Interval:
    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        return self.end - self.start


class _Average:
    def __init__(self, key):
        self.key, self.count, self.cpu_time_total, self.self_cpu_time_total, self.stack = key, 0, 0.0, 0.0, []
        self.cuda_time_total = self.device_time_total = self.self_cuda_time_total = self.self_device_time_total = 0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes = None

    @property
    def cpu_time(self):
        return self.cpu_time_total / max(self.count, 1)

    def __repr__(self):
        return f"<FunctionEventAvg key={self.key} self_cpu_time={_time_text(self.self_cpu_time_total)} cpu_time={_time_text(self.cpu_time)} count={self.count}>"


def _bytes_text(n):
    size = abs(n)
    for unit in ("b", "Kb", "Mb", "Gb"):
        if size < 1024 or unit == "Gb":
            return f"{n} b" if unit == "b" else f"{'-' if n < 0 else ''}{size:.2f} {unit}"
        size /= 1024


def _time_text(us):
    return f"{us / 1e6:.3f}s" if us >= 1e6 else f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


_SORTS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "cuda_time_total", "device_time_total", "self_cuda_time_total", "self_device_time_total",
          "cpu_memory_usage", "self_cpu_memory_usage", "cuda_time", "device_time", "count")


class EventList(list):
    """Events, or their averages by name."""

    memory = ()  # (time in ns, bytes, bytes held after that, what was running or None), with profile_memory=True

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        rows = {}
        for e in self:
            shapes = e.input_shapes if group_by_input_shapes else None
            a = rows.setdefault((e.key, tuple(e.stack), str(shapes)), _Average(e.key))
            a.input_shapes = shapes
            a.count += e.count
            a.cpu_memory_usage += e.cpu_memory_usage if not _inside_itself(e) else 0
            a.self_cpu_memory_usage += e.self_cpu_memory_usage
            a.cpu_time_total += e.cpu_time_total if not _inside_itself(e) else 0
            a.self_cpu_time_total += e.self_cpu_time_total
            a.stack = e.stack
        out = EventList(rows.values())
        out.memory = self.memory
        return out

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
        """The events as text, the longest first where sort_by says what is long."""
        if sort_by is not None and sort_by not in _SORTS:
            from .._settings import _did_you_mean
            raise ValueError(f"table(): sort_by={sort_by!r} is none of {', '.join(_SORTS)}{_did_you_mean(sort_by, _SORTS)}")
        rows = sorted(self, key=lambda e: -getattr(e, sort_by, 0)) if sort_by else list(self)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        shown, total = rows[:row_limit] if row_limit >= 0 else rows, max(self.self_cpu_time_total, 1e-9)
        heads = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", *(["CPU Mem", "Self CPU Mem"] if self.memory else []), "# of Calls"]
        sizes = [str(e.input_shapes)[:max_shapes_column_width] if e.input_shapes is not None else "" for e in shown]
        sized = max([len(s) for s in sizes] + [0])
        sized = max(sized, 12) if sized else 0
        names = [e.key if len(e.key) <= max_name_column_width else e.key[:max_name_column_width - 3] + "..." for e in shown]
        places = [_short(e.stack[0], max_src_column_width) if e.stack else "" for e in shown]
        wide, src = max([4] + [len(n) for n in names]), max([len(p) for p in places] + [0])
        src = max(src, 15) if src else 0
        rule = "  ".join(["-" * wide] + ["-" * 12] * len(heads) + (["-" * sized] if sized else []) + (["-" * src] if src else []))
        out = ([header] if header else []) + [rule, "  ".join(["Name".rjust(wide)] + [h.rjust(12) for h in heads] + (["Input Shapes".rjust(sized)] if sized else [])
                                                                        + (["Source Location".ljust(src)] if src else [])), rule]
        for e, name, place, size in zip(shown, names, places, sizes):
            cells = (f"{100 * e.self_cpu_time_total / total:.2f}%", _time_text(e.self_cpu_time_total), f"{100 * e.cpu_time_total / total:.2f}%",
                     _time_text(e.cpu_time_total), _time_text(e.cpu_time),
                     *((_bytes_text(e.cpu_memory_usage), _bytes_text(e.self_cpu_memory_usage)) if self.memory else ()), str(e.count))
            out.append("  ".join([name.rjust(wide)] + [c.rjust(12) for c in cells] + ([size.rjust(sized)] if sized else []) + ([place.ljust(src)] if src else [])).rstrip())
        return "\n".join(out + [rule, f"Self CPU time total: {_time_text(self.self_cpu_time_total)}", ""])

    __str__ = table

    def _repr_html_(self):
        from ..notebook import html_table
        total = max(self.self_cpu_time_total, 1e-9)
        rows = [(e.key, f"{100 * e.self_cpu_time_total / total:.1f}%", _time_text(e.self_cpu_time_total), _time_text(e.cpu_time_total), e.count,
                 e.stack[0] if e.stack else "") for e in sorted(self, key=lambda e: -e.self_cpu_time_total)[:50]]
        return html_table(("name", "share", "itself", "with what it calls", "calls", "line"), rows, f"{_time_text(self.self_cpu_time_total)} in all")

    def export_chrome_trace(self, path):
        """A file for chrome://tracing, ui.perfetto.dev and other viewers."""
        pid, events = _os.getpid(), []
        for e in self:
            if hasattr(e, "start"):
                events.append({"name": e.key, "ph": "X", "cat": {"op": "cpu_op", "region": "user_annotation"}.get(e.kind, e.kind), "ts": e.start / 1e3,
                               "dur": e.cpu_time_total, "pid": pid, "tid": e.thread,
                               **({"args": {**({"source": e.stack[0]} if e.stack else {}), **({"Input Dims": e.input_shapes} if e.input_shapes else {})}}
                                  if e.stack or e.input_shapes else {})})
        for at, size, held, _ in self.memory:
            events.append({"name": "[memory]", "ph": "C", "cat": "cpu_instant_event", "ts": at / 1e3, "pid": pid, "args": {"bytes": held}})
        events += [{"name": "thread_name", "ph": "M", "pid": pid, "tid": t, "args": {"name": f"thread {t}"}} for t in sorted({e.thread for e in self if hasattr(e, "start")})]
        opener = _gzip_open if str(path).endswith(".gz") else open
        with opener(path, "wt") as f:
            _json.dump({"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}, f)


def _gzip_open(path, mode):
    import gzip
    return gzip.open(path, mode)


def _inside_itself(e):
    """A call within one of the same name counts in that one."""
    p = e.cpu_parent if isinstance(e, FunctionEvent) else None
    while p is not None:
        if p.key == e.key:
            return True
        p = p.cpu_parent
    return False


def _short(place, n):
    return place if len(place) <= n else "..." + place[3 - n:]


def _with_memory(events, memory):
    """Gives what was taken and given back to the innermost call that was running then, and to those around it."""
    kept, i, inner = [], 0, None
    for at, size, held, thread in sorted(memory, key=lambda m: (m[3], m[0])):
        while i < len(events) and (events[i].thread, events[i].start) <= (thread, at):
            inner, i = events[i], i + 1
        e = inner
        while e is not None and (e.thread != thread or e.end < at):
            e = e.cpu_parent
        kept.append((at, size, held, e))
        if e is not None:
            e.self_cpu_memory_usage += size
        while e is not None:
            e.cpu_memory_usage += size
            e = e.cpu_parent
    events.memory = sorted(kept, key=lambda m: m[0])
    return events


def _events_of(raw, memory):
    """What the recorder saw, as events that know what they are part of."""
    out = EventList()
    for kind, name, file, start, end, line, thread, shapes in sorted(raw, key=lambda r: (r[6], r[3], -r[4])):
        key = "aten::" + name.split(".")[0] if kind == "op" else name
        e = FunctionEvent(key, start, end, thread, kind, f"{file}:{line}" if file else None, _json.loads(shapes) if shapes else None)
        p = out[-1] if out else None
        while p is not None and (p.thread != thread or p.end < end or p.end <= start):
            p = p.cpu_parent
        if p is not None:
            e.cpu_parent, e.depth = p, p.depth + 1
            p.cpu_children.append(e)
            p.self_cpu_time_total -= e.cpu_time_total
        out.append(e)
    return _with_memory(out, memory)


def _memory_page(points):
    """A page with the curve of the memory held; what was running where it is highest is named."""
    import html
    most, first, last = max(points, key=lambda m: m[2]), points[0][0], points[-1][0]
    span, top = max(last - first, 1), max(most[2], 1)
    path, held = "", points[0][2] - points[0][1]
    for at, _, after, _ in points:  # what is held changes in steps
        x = 1000 * (at - first) / span
        path += f"{'L' if path else 'M'}{x:.2f} {300 - 290 * held / top:.2f}L{x:.2f} {300 - 290 * after / top:.2f}"
        held = after
    where = most[3]
    said = f" in {where.key}" + (f", {where.stack[0]}" if where.stack else "") if where is not None else ""
    return f"""<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width">
<title>Memory</title><style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
svg {{ width: 100%; height: 22rem; border: 1px solid #8886; }} path {{ fill: #3b82f644; stroke: #3b82f6; vector-effect: non-scaling-stroke; }}</style>
<h1>Memory of tensors over time</h1>
<p>At most {_bytes_text(most[2])}, {(most[0] - first) / 1e6:.3f} ms after the beginning{html.escape(said)}. {len(points)} changes in {span / 1e6:.3f} ms.</p>
<svg viewBox="0 0 1000 300" preserveAspectRatio="none"><path d="{path}L1000 300L0 300Z"/></svg>
"""


class profile:
    """Times of operators, compiled kernels and named ranges:

        with taper.profiler.profile() as prof:
            step()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

    Compiled code stays compiled; its kernels are listed by name with the line of the program they come from. profile_memory=True also records what
    tensors take and give back, record_shapes=True the sizes of operators' inputs."""

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
                 with_modules=False, experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None, custom_trace_id_callback=None,
                 post_processing_timeout_s=None):
        self.schedule, self.on_trace_ready, self.step_num = schedule or _default_schedule_fn, on_trace_ready, 0
        self._events, self._on, self._meta, self.profiler = EventList(), False, {}, self
        self.profile_memory, self.record_shapes = profile_memory, record_shapes
        self.current_action, self._scheduled, self._step = self.schedule(0), schedule is not None, None

    def _record(self, on):
        if on and not self._on:
            if _running.get("prof") is not None:
                raise RuntimeError("Profiler is already enabled on this thread: only one profile runs at a time")
            self._on, _running["prof"] = True, self
            _C._profile_begin(self.profile_memory, self.record_shapes)
        elif not on and self._on:
            self._end_step()
            self._on, _running["prof"] = False, None
            self._events = _events_of(*_C._profile_end())

    def _end_step(self):
        if self._step is not None:
            _C._profile_range(*self._step)
            self._step = None

    def _begin_step(self):
        if self._on and self._scheduled:
            self._step = f"ProfilerStep#{self.step_num}", _time.monotonic_ns()

    def _recording(self, action):
        return action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def start(self):
        self._record(self._recording(self.current_action))
        self._begin_step()

    def stop(self):
        was = self._on
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
        if self._on:
            self._end_step()
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._record(False)
            if self.on_trace_ready:
                self.on_trace_ready(self)
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._record(self._recording(self.current_action))
        self._begin_step()

    def events(self):
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        return self._events.key_averages(group_by_input_shape)

    def table(self, **kwargs):
        return self.key_averages().table(**kwargs)

    def export_chrome_trace(self, path):
        self._events.export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Lines of stacks with times, for flame graphs."""
        with open(path, "w") as f:
            for e in self._events:
                names, p = [], e
                while p is not None:
                    names.append(p.key.replace(" ", "_"))
                    p = p.cpu_parent
                f.write(f"{';'.join(names[::-1])} {int(getattr(e, metric))}\n")

    def export_memory_timeline(self, path, device=None):
        """The memory that tensors hold over time (profile_memory=True): a page with its curve where the path ends in .html; else JSON,
        [times in microseconds, bytes], compressed where it ends in .gz. Memory of the CPU is counted."""
        if device is not None and not str(device).startswith("cpu"):
            raise ValueError(f"export_memory_timeline: memory of the CPU is recorded, not of {device!r}")
        points = self._events.memory
        if not points:
            raise RuntimeError("export_memory_timeline: nothing was recorded; " + ("no tensor was made" if self.profile_memory else "write profile(profile_memory=True)"))
        opener = _gzip_open if str(path).endswith(".gz") else open
        with opener(path, "wt") as f:
            if str(path).endswith(".html"):
                f.write(_memory_page(points))
            else:
                _json.dump([[at / 1e3 for at, _, _, _ in points], [held for _, _, held, _ in points]], f)

    def add_metadata(self, key, value):
        self._meta[key] = value

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
    """with record_function("name"): a range under that name, where a profiler runs and the code is not compiled."""

    def __init__(self, name, args=None):
        self.name, self.since = name, None

    def _recreate_cm(self):
        return type(self)(self.name)

    def __enter__(self):
        if _compiling():  # compiled code has kernels, not ranges: whether somebody profiles must not make it compile again
            return self
        self.since = _time.monotonic_ns() if _running.get("prof") is not None else None
        return self

    def __exit__(self, *exc):
        if _compiling():
            return False
        if self.since is not None and _running.get("prof") is not None:
            _C._profile_range(self.name, self.since)
        self.since = None
        return False


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A handler that writes each trace into a folder, as a file that trace viewers read."""
    def handler(prof):
        _os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(_os.path.join(dir_name, f"{worker_name or _os.getpid()}.{_time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"))
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
