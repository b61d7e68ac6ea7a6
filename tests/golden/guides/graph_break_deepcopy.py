import copy
import torch

@torch.compile
def fn(x):
    x = x + 1
    y = copy.deepcopy(x)
    return y + 1

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper graph_break_deepcopy.py
# CHECK: Graph break in user code at graph_break_deepcopy.py:7
# CHECK-NEXT: Reason: Unsupported: copy.deepcopy TensorVariable()
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "graph_break_deepcopy.py", line 7, in fn
# CHECK-NEXT:     y = copy.deepcopy(x)
