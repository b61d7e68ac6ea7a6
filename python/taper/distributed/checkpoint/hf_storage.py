"""Checkpoints of several ranks in files of safetensors: refused by name. taper.safetensors and checkpoint.save/load are there."""
from ..._absent import fill as _fill

_fill(globals(), "checkpoints of several ranks are kept in Taper's own form (distributed.checkpoint.save and load)",
      classes="HuggingFaceStorageReader HuggingFaceStorageWriter QuantizedHuggingFaceStorageReader")
