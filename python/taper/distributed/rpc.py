"""What is refused by name."""
from .._absent import fill as _fill

_fill(globals(), "calls of functions on other ranks are not there; use collectives, send and recv",
      classes="RRef",
      functions="init_rpc shutdown rpc_sync rpc_async remote")


def is_available():
    return False
