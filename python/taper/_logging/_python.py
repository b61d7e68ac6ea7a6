"""Messages as records of Python's logging: logging.getLogger("taper._dynamo") (under the alias "torch._dynamo") has handlers, a level and propagate.

Each component's logger has one handler of ours, which stands for the lines on standard error. Where it is taken away, a filter refuses a record, or the logger
is disabled, the line is not written there. setLevel() sets the component's level, as set_logs() does.
"""
import logging
import os
import sys
import threading

from .. import _C

_NAMES = {"dynamo": "_dynamo", "aot": "_functorch._aot_autograd", "inductor": "_inductor", "dynamic": "fx.experimental.symbolic_shapes", "export": "_export",
          "fake_tensor": "_subclasses.fake_tensor", "autograd": "autograd", "async_compile": "_inductor.async_compile", "distributed": "distributed",
          "onnx": "onnx"}
_loggers = {}  # component -> its logger
_here = threading.local()


class StandardError(logging.StreamHandler):
    """The lines on standard error. Our own records are written by the library, in its form; others in the same form by this."""

    def __init__(self):
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter())

    stream = property(lambda self: sys.stderr)

    def emit(self, record):
        if getattr(record, "of_compiler", False):
            _here.shown = True
        else:
            super().emit(record)


class _Formatter(logging.Formatter):
    def format(self, record):
        import datetime
        at = datetime.datetime.fromtimestamp(record.created)
        head = f"{record.levelname[0]}{at:%m%d %H:%M:%S}.{at.microsecond:06d} {os.getpid()} {record.pathname}:{record.lineno}]"
        return "\n".join(f"{head} {line}" for line in super().format(record).split("\n"))


class Logger(logging.Logger):
    """A logger whose level is that of a component."""

    def setLevel(self, level):
        super().setLevel(level)
        _C._set_log_level(self.component, self.level)


def _brand():
    return "torch" if sys.modules.get("torch") is not None and sys.modules["torch"].__dict__.get("_C") is _C else "taper"


def install():
    """Makes the loggers; again under another name once the alias is on."""
    brand = _brand()
    if _loggers.get("") == brand:
        return
    _loggers.clear()
    _loggers[""] = brand
    _own(logging.getLogger(brand)).setLevel(logging.WARNING)
    for component in _C._log_names()[0]:
        if component == "all":
            continue
        logger = logging.getLogger(f"{brand}.{_NAMES.get(component, component)}")
        early = logger.level  # set before we came
        logger.component = component
        if type(logger) is logging.Logger:
            logger.__class__ = Logger
        _own(logger)
        _loggers[component] = logger
        if early:
            logger.setLevel(early)
    follow()
    _C._set_log_relay(relay)


def _own(logger):
    if not any(isinstance(h, StandardError) for h in logger.handlers):
        logger.addHandler(StandardError())
        logger.propagate = False
    return logger


def follow():
    """The loggers get the levels that set_logs() or the environment gave their components."""
    for component, logger in _loggers.items():
        if component:
            logging.Logger.setLevel(logger, _C._log_level(component))


def relay(level, component, artifact, path, line, text):
    """One message. Is it wanted on standard error?"""
    logger = _loggers.get(component)
    if logger is None:
        return True
    name = f"{logger.name}.{os.path.splitext(os.path.basename(path))[0]}" + (f".__{artifact}" if artifact else "")
    child = logging.getLogger(name)
    record = child.makeRecord(name, level, path, line, text, (), None)
    record.of_compiler = True
    _here.shown = False
    child.handle(record)
    return _here.shown


def getArtifactLogger(module_qname, artifact_name):
    """The logger of an artifact, for code that logs with it."""
    if artifact_name not in _C._log_names()[1]:
        raise ValueError(f"{artifact_name} is no artifact: {', '.join(_C._log_names()[1])}")
    return logging.getLogger(f"{module_qname}.__{artifact_name}")
