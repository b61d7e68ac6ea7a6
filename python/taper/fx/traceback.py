"""torch.fx.traceback: what is put into the meta of the nodes that are made meanwhile."""
import contextlib as _contextlib
import threading as _threading
import traceback as _traceback

_here = _threading.local()


def _state():
    if not hasattr(_here, "meta"):
        _here.meta, _here.preserve = {}, False
    return _here


def has_preserved_node_meta():
    return _state().preserve


def get_current_meta():
    """What the nodes made now get."""
    return _state().meta


def _mark(node):
    """A node that is made now."""
    s = _state()
    if s.preserve:
        node.meta.update({k: v for k, v in s.meta.items() if k not in ("val", "tensor_meta")})
    elif "custom" in s.meta:
        node.meta["custom"] = dict(s.meta["custom"])
    return node


@_contextlib.contextmanager
def preserve_node_meta(enable=True):
    """Nodes made in here get the current meta."""
    s = _state()
    before = s.preserve, s.meta
    s.preserve, s.meta = enable, dict(s.meta)
    try:
        yield
    finally:
        s.preserve, s.meta = before


@_contextlib.contextmanager
def annotate(annotation_dict):
    """Puts these names and values into meta["custom"] of the nodes that are made in here; inner ones add to and replace outer ones."""
    s = _state()
    before = s.meta
    s.meta = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        s.meta = before


def annotate_fn(annotation_dict):
    def decorate(fn):
        import functools

        @functools.wraps(fn)
        def call(*args, **kwargs):
            with annotate(annotation_dict):
                return fn(*args, **kwargs)
        return call
    return decorate


@_contextlib.contextmanager
def set_current_meta(node, pass_name=""):
    """Nodes made in here get the meta of this one, where preserve_node_meta() is on."""
    s = _state()
    before = s.meta
    if s.preserve and node.meta:
        s.meta = dict(node.meta)
    try:
        yield
    finally:
        s.meta = before


def set_stack_trace(stack):
    s = _state()
    if s.preserve and stack:
        s.meta["stack_trace"] = "".join(stack)


def format_stack():
    s = _state()
    return [s.meta["stack_trace"]] if s.preserve and "stack_trace" in s.meta else _traceback.format_list(_traceback.extract_stack()[:-1])
