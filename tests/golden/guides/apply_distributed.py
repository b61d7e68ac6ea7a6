import torch
from torch.nn.parallel import DistributedDataParallel

N_ITERS = 3
torch.distributed.init_process_group("gloo", rank=0, world_size=1)

# DistributedDataParallel
model = torch.nn.Linear(3, 2)
opt_model = torch.compile(model)
model_ddp = DistributedDataParallel(opt_model)

for _ in range(N_ITERS):
    inp = torch.ones(4, 3)
    out = model_ddp(inp)

out.sum().backward()
print(torch.allclose(out, model(inp)), model.weight.grad.tolist(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(list(model_ddp.state_dict()))

# RUN: cd %dir && %python -m taper apply_distributed.py
# CHECK: True [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]] 1
# CHECK-NEXT: ['module._orig_mod.weight', 'module._orig_mod.bias']
