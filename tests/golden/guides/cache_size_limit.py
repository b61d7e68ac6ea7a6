import torch

@torch.compile(dynamic=False)
def fn(x):
    return x + 1

for i in range(1, 10):
    fn(torch.ones(i))

# RUN: cd %dir && %python -m taper cache_size_limit.py
# CHECK: torch._dynamo hit config.cache_size_limit (8)
# CHECK-NEXT:     function: 'fn' (cache_size_limit.py:3)
# CHECK-NEXT:     last reason: 0/0: tensor 'L['x']' size mismatch at index 0. expected 1, actual 9
