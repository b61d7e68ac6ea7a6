import torch

N_ITERS = 3

# inference
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
opt_model = torch.compile(model)

for _ in range(N_ITERS):
    inp = torch.ones(2, 3)
    out = opt_model(inp)

print(torch.allclose(out, model(inp)), torch._dynamo.utils.counters["stats"]["unique_graphs"])

# RUN: cd %dir && %python -m taper apply_inference.py
# CHECK: True 1
