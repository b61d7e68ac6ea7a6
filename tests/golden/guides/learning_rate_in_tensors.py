import torch

mod = torch.nn.Linear(3, 3)
opt = torch.optim.Adam(mod.parameters(), lr=torch.tensor(0.01))
sched = torch.optim.lr_scheduler.ExponentialLR(opt, torch.tensor(0.9))

@torch.compile
def fn(inp):
    opt.zero_grad(True)
    out = mod(inp).sum()
    out.backward()
    opt.step()
    sched.step()

for i in range(1, 10):
    fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=recompiles %python -m taper learning_rate_in_tensors.py
# CHECK: Recompiling function fn in learning_rate_in_tensors.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['params'][0].grad is None
# CHECK-NOT: Recompiling
# CHECK-NOT: cache_size_limit
