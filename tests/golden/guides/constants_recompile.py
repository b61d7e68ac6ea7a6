import torch

@torch.compile
def fn(x, c):
    return x + c

for i in range(1, 10):
    fn(torch.ones(i), 0.5 + i)

# RUN: cd %dir && TORCH_LOGS=recompiles %python -m taper constants_recompile.py
# CHECK: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/3: L['c'] == 4.5
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/4: L['c'] == 5.5
# CHECK-NEXT:     - 0/3: L['c'] == 4.5
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/5: L['c'] == 6.5
# CHECK-NEXT:     - 0/4: L['c'] == 5.5
# CHECK-NEXT:     - 0/3: L['c'] == 4.5
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/6: L['c'] == 7.5
# CHECK-NEXT:     - 0/5: L['c'] == 6.5
# CHECK-NEXT:     - 0/4: L['c'] == 5.5
# CHECK-NEXT:     - 0/3: L['c'] == 4.5
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: Recompiling function fn in constants_recompile.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/7: L['c'] == 8.5
# CHECK-NEXT:     - 0/6: L['c'] == 7.5
# CHECK-NEXT:     - 0/5: L['c'] == 6.5
# CHECK-NEXT:     - 0/4: L['c'] == 5.5
# CHECK-NEXT:     - 0/3: L['c'] == 4.5
# CHECK-NEXT:     - 0/2: L['c'] == 3.5
# CHECK-NEXT:     - 0/1: L['c'] == 2.5
# CHECK-NEXT:     - 0/0: L['c'] == 1.5
# CHECK-NEXT: torch._dynamo hit config.cache_size_limit (8)
# CHECK-NEXT:     function: 'fn' (constants_recompile.py:3)
# CHECK-NEXT:     last reason: 0/0: L['c'] == 1.5
