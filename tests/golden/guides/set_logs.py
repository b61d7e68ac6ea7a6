import copy
import torch

import logging
torch._logging.set_logs(graph_breaks=True)

@torch.compile
def fn(x):
    x = x + 1
    y = copy.deepcopy(x)
    return y + 1

fn(torch.ones(3, 3))

# RUN: cd %dir && %python -m taper set_logs.py
# CHECK: Graph break in user code at set_logs.py:10
# CHECK-NEXT: Reason: Unsupported: copy.deepcopy TensorVariable()
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "set_logs.py", line 10, in fn
# CHECK-NEXT:     y = copy.deepcopy(x)
