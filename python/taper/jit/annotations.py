"""Types for the scripting compiler: none are needed."""
from typing import *  # noqa: F401,F403
