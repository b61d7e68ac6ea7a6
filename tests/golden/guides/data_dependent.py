import torch

@torch.compile
def fn(x):
    y = x.sum()
    if y > 0:
        return x + y.item()
    return x - y.item()

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper data_dependent.py
# CHECK: Graph break in user code at data_dependent.py:6
# CHECK-NEXT: Reason: Data-dependent jump
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "data_dependent.py", line 6, in fn
# CHECK-NEXT:     if y > 0:
# CHECK: Graph break in user code at data_dependent.py:7
# CHECK-NEXT: Reason: Unsupported: Tensor.item
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "data_dependent.py", line 7, in torch_dynamo_resume_in_fn_at_6
# CHECK-NEXT:     return x + y.item()
