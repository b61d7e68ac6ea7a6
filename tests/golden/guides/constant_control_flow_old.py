import torch

# old
x = torch.randn(3, 3)
@torch.compile
def fn(y):
    if x.sum() > 0:
        return y + x
    else:
        return y - x

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper constant_control_flow_old.py
# CHECK: Graph break in user code at constant_control_flow_old.py:7
# CHECK-NEXT: Reason: Data-dependent jump
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "constant_control_flow_old.py", line 7, in fn
# CHECK-NEXT:     if x.sum() > 0:
