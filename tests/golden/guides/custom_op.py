import copy
import torch

@torch.library.custom_op("guide::copied", mutates_args=())
def copied(x: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(x)

@copied.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile(fullgraph=True)
def fn(x):
    x = x + 1
    y = copied(x)
    return y + 1

print(fn(torch.ones(3)))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper custom_op.py
# CHECK-NOT: Graph break
# CHECK: tensor([3., 3., 3.])
# CHECK-NOT: Graph break
