import torch
import torch._dynamo as torchdynamo

torchdynamo.config.cache_size_limit = 2

@torchdynamo.optimize("eager")
def some_fun(x, k):
    return x + k

for k in range(4):
    some_fun(torch.ones(3), k / 2)

# RUN: cd %dir && %python -m taper optimize_cache_limit.py
# CHECK: torch._dynamo hit config.cache_size_limit (2)
# CHECK-NEXT:     function: 'some_fun' (optimize_cache_limit.py:6)
# CHECK-NEXT:     last reason: 0/0: L['k'] == 0.0
