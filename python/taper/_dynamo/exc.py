"""Errors of capture."""


class TorchDynamoException(RuntimeError):
    """Anything that goes wrong in the compiler rather than in the program."""


class InternalTorchDynamoError(TorchDynamoException):
    """A bug of the compiler."""


class Unsupported(TorchDynamoException):
    """A graph break where none is allowed (fullgraph=True)."""

    def __init__(self, msg="", case_name=None):
        super().__init__(msg)
        self.msg = msg
        self.case_name = case_name


class BackendCompilerFailed(TorchDynamoException):
    """The backend raised while compiling a graph."""
    inner_exception = None


class RecompileError(TorchDynamoException):
    """config.error_on_recompile and a guard failed."""


class FailOnRecompileLimitHit(TorchDynamoException):
    """The recompile limit was hit where that is an error."""


FailOnCacheLimitHit = FailOnRecompileLimitHit


class ResetRequired(TorchDynamoException):
    """Settings changed that need taper._dynamo.reset()."""


class SkipFrame(TorchDynamoException):
    """The frame runs natively."""


class TorchRuntimeError(TorchDynamoException):
    """An operator failed on fake tensors."""


class InvalidBackend(TorchDynamoException):
    """No backend of that name."""

    def __init__(self, name):
        from .._settings import _did_you_mean, _prefix
        from .backends import list_backends
        near = _did_you_mean(name, list_backends(None))[2:]
        super().__init__(f"Invalid backend: {name!r}, see `{_prefix()}._dynamo.list_backends()` for available backends." + (" D" + near[1:] if near else ""))


class UserError(Unsupported):
    def __init__(self, error_type=None, msg="", case_name=None):
        super().__init__(msg, case_name)
        self.error_type = error_type


class UserErrorType:
    DYNAMIC_CONTROL_FLOW = "dynamic_control_flow"
    ANTI_PATTERN = "anti_pattern"
    CONSTRAINT_VIOLATION = "constraint_violation"
    INVALID_INPUT = "invalid_input"
    INVALID_OUTPUT = "invalid_output"


class ConstraintViolationError(UserError):
    def __init__(self, msg=""):
        super().__init__(UserErrorType.CONSTRAINT_VIOLATION, msg)


class UncapturedHigherOrderOpError(TorchDynamoException):
    pass


class ObservedException(TorchDynamoException):
    pass


def unimplemented(msg, **kwargs):
    raise Unsupported(msg)


class AccuracyError(Exception):
    """A compiled graph gives other results than eager (TAPER_REPRO_LEVEL=4)."""
