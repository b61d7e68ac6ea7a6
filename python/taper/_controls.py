"""Controls that may stand inside a compiled function: the tracer looks into this file."""
import functools

from . import _C

_C._capture_role(_C._capture_error_breaks, "errbreaks")


class error_on_graph_break:
    """with error_on_graph_break(True): graph breaks are errors here; error_on_graph_break(False): they are not.
    Also a decorator. fullgraph=True is stronger.

    >>> f = taper.compile(lambda x: x + 1)
    >>> with taper.compiler.error_on_graph_break(True):
    ...     f(taper.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, error_on_graph_break=True):
        self.error_on_graph_break = bool(error_on_graph_break)

    def __enter__(self):
        self.prev = _C._capture_error_breaks(self.error_on_graph_break)
        return self

    def __exit__(self, exc_type, exc, tb):
        _C._capture_error_breaks(self.prev)
        return False

    def __call__(self, fn):
        on = self.error_on_graph_break

        @functools.wraps(fn)
        def inner(*args, **kwargs):
            with error_on_graph_break(on):
                return fn(*args, **kwargs)
        return inner
