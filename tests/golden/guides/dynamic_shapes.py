import torch

@torch.compile(dynamic=True)
def fn(x):
    return x + 1

fn(torch.ones(3, 3))
fn(torch.ones(4, 4))

# RUN: cd %dir && TORCH_LOGS=dynamic,recompiles %python -m taper dynamic_shapes.py
# CHECK-RE: create_symbol s0 = 3 for L\['x'\]\.size\(\)\[0\] \[2, int_oo\] at dynamic_shapes\.py:5 in fn \(.*\), for more info run with TORCHDYNAMO_EXTENDED_DEBUG_CREATE_SYMBOL="s0"$
# CHECK-NEXT: produce_guards
# CHECK-NEXT: produce_guards
# CHECK-NOT: Recompiling
