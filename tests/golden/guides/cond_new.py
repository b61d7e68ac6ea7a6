import torch

# new
@torch.compile
def fn(x):
    return torch.cond(
        x.sum() > 0,
        lambda x: x + 1,
        lambda x: x - 1,
        (x,),
    )

print(fn(torch.ones(3)), fn(-torch.ones(3)), torch._dynamo.utils.counters["stats"]["unique_graphs"])

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper cond_new.py
# CHECK-NOT: Graph break
# CHECK: tensor([2., 2., 2.]) tensor([-2., -2., -2.]) 1
# CHECK-NOT: Graph break
