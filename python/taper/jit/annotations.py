"""Types for the scripting compiler: none are needed."""
from typing import *  # noqa: F401,F403

from .._jit_internal import BroadcastingList1, BroadcastingList2, BroadcastingList3  # noqa: F401
