import torch

# new
x = torch.randn(3, 3)
cond = (x.sum() > 0).item()
@torch.compile
def fn(y):
    if cond:
        return y + x
    else:
        return y - x

y = torch.ones(3, 3)
print(torch.equal(fn(y), y + x if x.sum() > 0 else y - x), torch._dynamo.utils.counters["stats"]["unique_graphs"])

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper constant_control_flow_new.py
# CHECK-NOT: Graph break
# CHECK: True 1
# CHECK-NOT: Graph break
