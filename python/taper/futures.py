"""Results that come later."""
import threading as _threading
from typing import Generic as _Generic, TypeVar as _TypeVar

__all__ = ["Future", "collect_all", "wait_all"]
T = _TypeVar("T")


class Future(_Generic[T]):
    """A value that comes later: wait() gives it, then() works with it.

    >>> f = taper.futures.Future()
    >>> f.set_result(3)
    >>> f.wait()
    3
    """
    def __init__(self, *, devices=None):
        self._ended, self._value, self._error, self._callbacks, self._lock = _threading.Event(), None, None, [], _threading.Lock()

    def done(self):
        return self._ended.is_set()

    def wait(self):
        self._ended.wait()
        return self.value()

    def value(self):
        if not self.done():
            raise RuntimeError("value() is only supported once the future is complete; wait() first")
        if self._error is not None:
            raise self._error
        return self._value

    def _end(self, value, error):
        with self._lock:
            if self.done():
                raise RuntimeError("the future is complete already")
            self._value, self._error = value, error
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for f in callbacks:
            f(self)

    def set_result(self, result):
        self._end(result, None)

    def set_exception(self, result):
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._end(None, result)

    def add_done_callback(self, callback):
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback):
        """A future of what callback(this future) gives."""
        after = Future()

        def run(fut):
            try:
                after.set_result(callback(fut))
            except Exception as e:
                after.set_exception(e)
        self.add_done_callback(run)
        return after


def collect_all(futures):
    """A future of the list of futures, complete when all are."""
    futures, after = list(futures), Future()
    left, lock = [len(futures)], _threading.Lock()

    def one(_):
        with lock:
            left[0] -= 1
            last = not left[0]
        if last:
            after.set_result(futures)
    if not futures:
        after.set_result(futures)
    for f in futures:
        f.add_done_callback(one)
    return after


def wait_all(futures):
    return [f.wait() for f in collect_all(futures).wait()]
