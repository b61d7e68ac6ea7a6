import torch

torch._dynamo.config.reorderable_logging_functions.add(print)

@torch.compile
def fn(x):
    x += 1
    print("log!")
    return torch.sin(x)

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper printing.py
# CHECK-NOT: Graph break
# CHECK: log!
# CHECK-NOT: Graph break
