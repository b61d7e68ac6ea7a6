import torch

# old
@torch.compile
def fn(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper cond_old.py
# CHECK: Graph break in user code at cond_old.py:6
# CHECK-NEXT: Reason: Data-dependent jump
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "cond_old.py", line 6, in fn
# CHECK-NEXT:     if x.sum() > 0:
