"""A module called with other parameters."""
from ...func import functional_call  # noqa: F401
