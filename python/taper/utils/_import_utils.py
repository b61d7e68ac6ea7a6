"""Questions about packages."""
import importlib.util as _u


def _check_module_exists(name):
    return _u.find_spec(name) is not None


def dill_available():
    return _check_module_exists("dill")


def import_dill():
    return __import__("dill") if dill_available() else None
