"""Anomaly mode: errors in backward name the forward call that made the step."""
import warnings

from .. import _C


class detect_anomaly:
    """with taper.autograd.detect_anomaly(): forward and backward; NaN gradients become errors."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
                      "enabled for debugging.", stacklevel=2)

    def __enter__(self):
        self.prev = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        _C._set_anomaly(True, self.check_nan)

    def __exit__(self, *exc):
        _C._set_anomaly(*self.prev)


class set_detect_anomaly:
    """Switch now, or for a with block."""

    def __init__(self, mode, check_nan=True):
        self.prev = _C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled()
        _C._set_anomaly(bool(mode), bool(check_nan))

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        _C._set_anomaly(*self.prev)
