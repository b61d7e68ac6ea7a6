import torch

@torch.compile
def fn(x):
    return x + x.sum().item()

print(fn(torch.ones(3)), torch._dynamo.utils.counters["stats"]["unique_graphs"])

# RUN: cd %dir && TORCH_LOGS=graph_breaks TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1 %python -m taper capture_scalar_outputs.py
# CHECK-NOT: Graph break
# CHECK: tensor([4., 4., 4.]) 1
# CHECK-NOT: Graph break
