"""Times."""
from . import default_pg_timeout  # noqa: F401
