"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "checkpoints of several ranks are kept in a form of Taper's own (distributed.checkpoint.save and load)",
      classes="BytesStorageMetadata TensorStorageMetadata Metadata",
      functions="")
