"""Questions about symbolic sizes, under the names programs know."""
from ..._checks import (guard_or_false, guard_or_true, guard_size_oblivious, hint_int, is_symbolic,  # noqa: F401
                        statically_known_true, sym_and, sym_or)
from ..._dynamo.exc import ConstraintViolationError  # noqa: F401
