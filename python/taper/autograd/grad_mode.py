"""Switches for recording on the tape: context managers that also decorate functions."""
import functools

from .. import _C


class _Mode:
    """A context manager that can decorate functions, generator functions and classes' methods."""

    def _clone(self):
        return type(self)()

    def __call__(self, fn):
        if getattr(getattr(fn, "__code__", None), "co_flags", 0) & 0x20:  # a generator function
            @functools.wraps(fn)
            def generator(*args, **kwargs):
                # The mode holds while the generator runs and not between its yields.
                gen = fn(*args, **kwargs)
                try:
                    with self._clone():
                        item = gen.send(None)
                    while True:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            with self._clone():
                                gen.close()
                            raise
                        except BaseException as e:
                            with self._clone():
                                item = gen.throw(e)
                        else:
                            with self._clone():
                                item = gen.send(sent)
                except StopIteration as stop:
                    return stop.value
            return generator

        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with self._clone():
                return fn(*args, **kwargs)
        return wrapped


class no_grad(_Mode):
    """Record nothing: with taper.no_grad(): ...

    >>> with_grad = taper.ones(2, requires_grad=True)
    >>> taper.no_grad()(lambda: (with_grad * 2).requires_grad)()
    False
    """

    def __new__(cls, orig_func=None):
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)

    def __init__(self, orig_func=None):
        self.prev = False

    def __enter__(self):
        self.prev = _C._set_grad_enabled(False)

    def __exit__(self, *exc):
        _C._set_grad_enabled(self.prev)


class enable_grad(_Mode):
    """Record again inside no_grad.

    >>> taper.enable_grad()(lambda: taper.is_grad_enabled())()
    True
    """

    def __new__(cls, orig_func=None):
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)

    def __init__(self, orig_func=None):
        self.prev = False

    def __enter__(self):
        self.prev = _C._set_grad_enabled(True)

    def __exit__(self, *exc):
        _C._set_grad_enabled(self.prev)


class set_grad_enabled(_Mode):
    """Set the mode now; as a context manager, put the old one back at the end.

    >>> with taper.set_grad_enabled(False):
    ...     y = taper.ones(2, requires_grad=True) * 2
    >>> y.requires_grad
    False
    """

    def __init__(self, mode):
        self.mode = bool(mode)
        self.prev = _C._set_grad_enabled(self.mode)

    def __call__(self, fn):
        _C._set_grad_enabled(self.prev)
        return super().__call__(fn)

    def __enter__(self):
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *exc):
        _C._set_grad_enabled(self.prev)

    def _clone(self):
        return type(self)(self.mode)


class inference_mode(_Mode):
    """no_grad, and the tensors made inside can never be recorded.

    >>> taper.inference_mode()(lambda: taper.is_inference_mode_enabled())()
    True
    """

    def __new__(cls, mode=True):
        self = super().__new__(cls)
        if callable(mode) and not isinstance(mode, bool):
            self.mode = True
            return self(mode)
        return self

    def __init__(self, mode=True):
        self.mode = mode
        self.prev = []

    def __enter__(self):
        self.prev.append((_C._set_inference_mode(self.mode), _C._set_grad_enabled(not self.mode)))

    def __exit__(self, *exc):
        inference, grad = self.prev.pop()
        _C._set_inference_mode(inference)
        _C._set_grad_enabled(grad)

    def _clone(self):
        return type(self)(self.mode)


class _force_original_view_tracking:
    """Accepted for programs that name it; views are always tracked."""

    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass
