import torch

@torch.compile
def fn(x, c):
    return x + c

# first example
for i in range(1, 10):
    fn(torch.ones(i), torch.tensor(0.5 + i))

# RUN: cd %dir && TORCH_LOGS=recompiles %python -m taper constants_in_tensors.py
# CHECK: Recompiling function fn in constants_in_tensors.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/0: tensor 'L['x']' size mismatch at index 0. expected 1, actual 2
# CHECK-NOT: Recompiling
# CHECK-NOT: cache_size_limit
