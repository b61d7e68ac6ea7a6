"""Text logs from Python: set_logs(graph_breaks=True, dynamo=logging.DEBUG)."""
from .. import _C
from ._python import follow as _follow, getArtifactLogger, install  # noqa: F401

DEFAULT_LOGGING = object()  # pass as set_logs(DEFAULT_LOGGING) or use default_logs()


def set_logs(*preset, modules=None, **settings):
    """Choose what is logged. A component takes a level (logging.DEBUG, ...), an artifact a bool.

    Earlier settings are forgotten. TAPER_LOGS in the environment wins over this call.
    """
    if preset:
        if len(preset) != 1 or preset[0] is not DEFAULT_LOGGING:
            raise TypeError("set_logs() takes keyword arguments, such as set_logs(graph_breaks=True)")
        _C._set_logs_default()
    else:
        _C._set_logs(settings, dict(modules or {}))
    install()
    _follow()


def log_names():
    """-> (names of components, names of artifacts)"""
    return _C._log_names()


install()
