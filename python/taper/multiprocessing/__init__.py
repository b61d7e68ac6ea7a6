"""Python's multiprocessing with the helpers that start several processes. Tensors travel as copies."""
import multiprocessing as _mp
from multiprocessing import *  # noqa: F401,F403

from .spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, SpawnContext, spawn, start_processes  # noqa: F401

__all__ = [n for n in dir(_mp) if not n.startswith("_")] + ["spawn", "start_processes", "set_sharing_strategy", "get_sharing_strategy",
                                                             "get_all_sharing_strategies", "ProcessContext", "SpawnContext"]
_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy):
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy: {new_strategy!r}")
    _strategy = new_strategy


def get_sharing_strategy():
    return _strategy


def get_all_sharing_strategies():
    return {"file_descriptor", "file_system"}


def __getattr__(name):
    return getattr(_mp, name)
