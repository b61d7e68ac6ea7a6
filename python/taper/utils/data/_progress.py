"""A progress bar for loops over loaders."""
import sys
import time


class progress:
    """for batch in progress(loader, 'epoch 1'): ...  A bar on a terminal, a plain line now and then elsewhere."""

    def __init__(self, iterable, desc="", file=None, every=5.0):
        self.it, self.desc, self.file, self.every = iterable, desc, file or sys.stderr, every
        self.note = ""

    def set_postfix(self, **kw):
        self.note = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in kw.items())

    def __iter__(self):
        try:
            total = len(self.it)
        except TypeError:
            total = None
        tty = getattr(self.file, "isatty", lambda: False)()
        start = last = time.monotonic()
        n = 0
        for n, x in enumerate(self.it, 1):
            yield x
            now = time.monotonic()
            if now - last >= (0.1 if tty else self.every):
                last = now
                self._show(n, total, now - start, tty, "\r" if tty else "", "" if tty else "\n")
        self._show(n, total, time.monotonic() - start, tty, "\r" if tty else "", "\n")

    def _show(self, n, total, dt, tty, head, tail):
        rate = n / dt if dt else 0
        if tty and total:
            k = 24 * n // total
            text = f"{self.desc} [{'#' * k}{'.' * (24 - k)}] {n}/{total} {rate:.1f}/s {self.note}"
        else:
            text = f"{self.desc} {n}{'/' + str(total) if total else ''} {rate:.1f}/s {self.note}"
        self.file.write(head + text.strip() + ("  " if tty else "") + tail)
        self.file.flush()
