import torch

@torch.compile
def fn(x):
    return x + 1

fn(torch.ones(3, 3))
fn(torch.ones(4, 4))

# RUN: cd %dir && TORCH_LOGS=recompiles %python -m taper recompile_on_shape.py
# CHECK: Recompiling function fn in recompile_on_shape.py:3
# CHECK-NEXT:     triggered by the following guard failure(s):
# CHECK-NEXT:     - 0/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 4
