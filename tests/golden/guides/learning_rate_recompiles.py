import torch

mod = torch.nn.Linear(3, 3)
opt = torch.optim.Adam(mod.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)

@torch.compile
def fn(inp):
    opt.zero_grad(True)
    out = mod(inp).sum()
    out.backward()
    opt.step()
    sched.step()

for i in range(1, 10):
    fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=recompiles %python -m taper learning_rate_recompiles.py
# CHECK: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/3: G['opt'].param_groups[0]['lr'] == 0.007290000000000001
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/4: G['opt'].param_groups[0]['lr'] == 0.006561000000000002
# CHECK-NEXT:     - 0/3: G['opt'].param_groups[0]['lr'] == 0.007290000000000001
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/5: G['opt'].param_groups[0]['lr'] == 0.005904900000000002
# CHECK-NEXT:     - 0/4: G['opt'].param_groups[0]['lr'] == 0.006561000000000002
# CHECK-NEXT:     - 0/3: G['opt'].param_groups[0]['lr'] == 0.007290000000000001
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/6: G['opt'].param_groups[0]['lr'] == 0.005314410000000002
# CHECK-NEXT:     - 0/5: G['opt'].param_groups[0]['lr'] == 0.005904900000000002
# CHECK-NEXT:     - 0/4: G['opt'].param_groups[0]['lr'] == 0.006561000000000002
# CHECK-NEXT:     - 0/3: G['opt'].param_groups[0]['lr'] == 0.007290000000000001
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: Recompiling function fn in learning_rate_recompiles.py:7
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/7: G['opt'].param_groups[0]['lr'] == 0.004782969000000002
# CHECK-NEXT:     - 0/6: G['opt'].param_groups[0]['lr'] == 0.005314410000000002
# CHECK-NEXT:     - 0/5: G['opt'].param_groups[0]['lr'] == 0.005904900000000002
# CHECK-NEXT:     - 0/4: G['opt'].param_groups[0]['lr'] == 0.006561000000000002
# CHECK-NEXT:     - 0/3: G['opt'].param_groups[0]['lr'] == 0.007290000000000001
# CHECK-NEXT:     - 0/2: G['opt'].param_groups[0]['lr'] == 0.008100000000000001
# CHECK-NEXT:     - 0/1: G['opt'].param_groups[0]['lr'] == 0.009000000000000001
# CHECK-NEXT:     - 0/0: G['opt'].param_groups[0]['lr'] == 0.01
# CHECK-NEXT: torch._dynamo hit config.cache_size_limit (8)
# CHECK-NEXT:     function: 'fn' (learning_rate_recompiles.py:7)
# CHECK-NEXT:     last reason: 0/0: G['opt'].param_groups[0]['lr'] == 0.01
