import torch
import torch._dynamo as torchdynamo

def some_fun(x):
    return x.sin() + 1

x = torch.ones(3)
with torchdynamo.optimize("eager"):
    print(some_fun(x))
print(torchdynamo.utils.counters["stats"]["unique_graphs"])

# RUN: cd %dir && %python -m taper optimize_context.py
# CHECK: tensor([1.8415, 1.8415, 1.8415])
# CHECK-NEXT: 1
