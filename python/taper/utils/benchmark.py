"""Times of small pieces of code: Timer runs a statement many times on one thread (or as many as asked for) and reports the median.

    from taper.utils.benchmark import Timer
    print(Timer("x @ x", globals={"x": taper.ones(64, 64)}).blocked_autorange())"""
import math as _math
import statistics as _statistics
import textwrap as _textwrap
import time as _time

__all__ = ["Timer", "Measurement", "Compare", "TaskSpec", "select_unit", "trim_sigfig"]
_UNITS = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]


def select_unit(t):
    """("us", 1e-06) for a time in seconds."""
    unit = _UNITS[0]
    for u in _UNITS:
        if t >= u[1]:
            unit = u
    return unit


def trim_sigfig(x, n):
    """x with n digits that count."""
    if x == 0:
        return 0.0
    magnitude = int(_math.ceil(_math.log10(abs(x))))
    scale = 10 ** (magnitude - n)
    return float(round(x / scale) * scale)


class TaskSpec:
    """What was measured."""

    def __init__(self, stmt, setup, global_setup="", label=None, sub_label=None, description=None, env=None, num_threads=1):
        self.stmt, self.setup, self.global_setup, self.label, self.sub_label = stmt, setup, global_setup, label, sub_label
        self.description, self.env, self.num_threads = description, env, num_threads

    @property
    def title(self):
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{_textwrap.indent(self.stmt, '  ')}"

    def summarize(self):
        parts = [self.title] + ([self.description] if self.description else [])
        if self.setup not in ("", "pass"):
            parts.append(f"setup: {self.setup}" if "\n" not in self.setup else "setup:\n" + _textwrap.indent(self.setup, "  "))
        return "\n".join(parts)


class Measurement:
    """Times of one statement: seconds for each run, of blocks of number_per_run runs."""

    def __init__(self, number_per_run, raw_times, task_spec, metadata=None):
        self.number_per_run, self.raw_times, self.task_spec, self.metadata = number_per_run, list(raw_times), task_spec, metadata

    @property
    def times(self):
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self):
        return _statistics.median(self.times)

    @property
    def mean(self):
        return _statistics.fmean(self.times)

    @property
    def iqr(self):
        t = sorted(self.times)
        return self._at(t, 0.75) - self._at(t, 0.25)

    @staticmethod
    def _at(t, q):
        x = q * (len(t) - 1)
        i = int(x)
        return t[i] + (t[min(i + 1, len(t) - 1)] - t[i]) * (x - i)

    @property
    def has_warnings(self):
        return self.iqr > 0.1 * self.median

    @property
    def significant_figures(self):
        width = max(self.iqr / (1.35 * _math.sqrt(max(len(self.times), 1))), 1e-12)
        return max(1, min(4, int(-_math.log10(min(width / max(self.median, 1e-12), 1.0)) + 1)))

    def meets_confidence(self, threshold=0.2):
        return self.iqr / max(self.median, 1e-15) < threshold

    title = property(lambda self: self.task_spec.title)
    stmt = property(lambda self: self.task_spec.stmt)
    label = property(lambda self: self.task_spec.label)
    sub_label = property(lambda self: self.task_spec.sub_label)
    description = property(lambda self: self.task_spec.description)
    env = property(lambda self: self.task_spec.env or "")
    num_threads = property(lambda self: self.task_spec.num_threads)

    @staticmethod
    def merge(measurements):
        """One for each thing that was measured, with the times of all runs of it."""
        groups = {}
        for m in measurements:
            s = m.task_spec
            groups.setdefault((s.stmt, s.setup, s.label, s.sub_label, s.description, s.env, s.num_threads), []).append(m)
        return [Measurement(1, [t for m in g for t in m.times], g[0].task_spec) for g in groups.values()]

    def __repr__(self):
        unit, scale = select_unit(self.median)
        lines = [f"<{type(self).__module__}.Measurement object at {hex(id(self))}>", self.task_spec.summarize()]
        if len(self.times) > 1:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}\n  IQR:    {self.iqr / scale:.2f} {unit}")
        else:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        n = len(self.times)
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {self.number_per_run} run{'s' if self.number_per_run > 1 else ''} per measurement, "
                     f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}")
        if n > 1 and self.has_warnings:
            lines.append("  The times differ much: something else ran on this machine")
        return "\n".join(lines)


class Timer:
    """Timer(stmt, setup, globals).timeit(n), .blocked_autorange(), .adaptive_autorange() -> Measurement"""

    def __init__(self, stmt="pass", setup="pass", global_setup="", timer=_time.perf_counter, globals=None, label=None, sub_label=None, description=None,
                 env=None, num_threads=1, language="python"):
        if str(language).lower() not in ("python", "language.python") and language != 0:
            raise NotImplementedError("Timer measures Python statements; C and C++ are not supported")
        if not isinstance(stmt, str):
            raise ValueError("Only a string `stmt` is supported.")
        self._timer, self._globals = timer, dict(globals or {})
        import taper
        self._globals.setdefault("torch", taper)
        self._globals.setdefault("taper", taper)
        self._task_spec = TaskSpec(_textwrap.dedent(stmt).strip() if "\n" in stmt else stmt, _textwrap.dedent(setup).strip() if "\n" in setup else setup,
                                   global_setup, label, sub_label, description, env, num_threads)
        body = _textwrap.indent(self._task_spec.stmt, "        ")
        code = f"def _run(_n, _clock):\n{_textwrap.indent(self._task_spec.setup, '    ')}\n    _t = _clock()\n    for _ in range(_n):\n{body}\n    return _clock() - _t\n"
        names = {}
        exec(compile(code, "<timeit>", "exec"), self._globals, names)
        self._run = names["_run"]

    def _times(self, n):
        import taper
        before = taper.get_num_threads()
        try:
            if self._task_spec.num_threads != before:
                taper.set_num_threads(self._task_spec.num_threads)
            return self._run(n, self._timer)
        finally:
            if self._task_spec.num_threads != before:
                taper.set_num_threads(before)

    def timeit(self, number=1000000):
        """The statement that many times, after a short warm-up."""
        self._times(max(number // 100, 2))
        return Measurement(number, [self._times(number)], self._task_spec)

    def _block(self, min_run_time):
        """How many runs make a block in which the clock does not matter."""
        n = 1
        while True:
            t = self._times(n)
            if t >= min(1e-3, min_run_time / 10) or t >= min_run_time or n >= 10 ** 8:
                return n
            n *= 10 if t < 1e-4 else 2

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Blocks of runs until min_run_time seconds have passed."""
        n, times, spent = self._block(min_run_time), [], 0.0
        while spent < min_run_time:
            t = self._times(n)
            times.append(t)
            spent += t
            if callback:
                callback(n, t)
        return Measurement(n, times, self._task_spec)

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """Blocks of runs until they agree to threshold, or max_run_time seconds have passed."""
        n, times, spent = self._block(min_run_time), [], 0.0
        while True:
            t = self._times(n)
            times.append(t)
            spent += t
            m = Measurement(n, times, self._task_spec)
            if spent >= max_run_time or (spent >= min_run_time and len(times) >= 3 and m.meets_confidence(threshold)):
                return m

    def collect_callgrind(self, *args, **kwargs):
        raise NotImplementedError("Timer.collect_callgrind is not supported; run valgrind --tool=callgrind on the program")


class Compare:
    """A table of measurements: descriptions are columns, sub-labels and thread counts are rows."""

    def __init__(self, results):
        self._results = list(results)

    def extend_results(self, results):
        self._results.extend(results)

    def trim_significant_figures(self):
        self._trim = True

    def colorize(self, rowwise=False):
        """Tables are plain text."""

    def highlight_warnings(self):
        """Tables are plain text."""

    _trim = False

    def print(self):
        print(str(self))

    def __str__(self):
        merged, out = Measurement.merge(self._results), []
        for label in dict.fromkeys(m.label or m.stmt for m in merged):
            group = [m for m in merged if (m.label or m.stmt) == label]
            unit, scale = select_unit(min(m.median for m in group))
            columns = list(dict.fromkeys(m.description or "" for m in group))
            rows = list(dict.fromkeys((m.num_threads, m.env, m.sub_label or m.stmt) for m in group))
            cells = {}
            for m in group:
                t = m.median / scale
                cells[(m.num_threads, m.env, m.sub_label or m.stmt), m.description or ""] = f"{trim_sigfig(t, m.significant_figures) if self._trim else t:.1f}"
            wide = max([len(r[2]) for r in rows] + [8])
            width = [max([len(c)] + [len(cells.get((r, c), "")) for r in rows]) for c in columns]
            head = " " * (wide + 6) + "|  " + "  |  ".join(c.rjust(w) for c, w in zip(columns, width))
            rule = "-" * len(head)
            lines, threads = [f"[{f' {label} '.center(max(len(head) - 2, 8), '-')}]", head], None
            for r in rows:
                if r[0] != threads:
                    threads = r[0]
                    lines.append(f"{threads} threads: {rule}"[:max(len(rule), 12)])
                lines.append("      " + r[2].ljust(wide) + "|  " + "  |  ".join(cells.get((r, c), "").rjust(w) for c, w in zip(columns, width)))
            out.append("\n".join(lines + ["", f"Times are in {dict(ns='nanoseconds', us='microseconds', ms='milliseconds', s='seconds')[unit]} ({unit})."]))
        return "\n\n".join(out) + "\n"
