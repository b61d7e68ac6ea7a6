"""What a compile is about."""
from ._dynamo.utils import *  # noqa: F401,F403


def detect_fake_mode(inputs=None):
    """No mode: fake tensors stand alone."""
    return None


class CompileId:
    """Numbers of a frame and of its compile."""

    def __init__(self, frame_id, frame_compile_id):
        self.frame_id, self.frame_compile_id = frame_id, frame_compile_id

    def __str__(self):
        return f"{self.frame_id}/{self.frame_compile_id}"


class TracingContext:
    @staticmethod
    def try_get():
        return None
