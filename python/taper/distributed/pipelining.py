"""What is refused by name."""
from .._absent import fill as _fill

_fill(globals(), "pipelines over ranks are not there; split the model by hand and use send and recv, or fully_shard",
      classes="PipelineStage ScheduleGPipe Schedule1F1B SplitPoint",
      functions="pipeline pipe_split")
