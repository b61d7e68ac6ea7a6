import torch

torch._dynamo.config.suppress_errors = True

def crashing(gm, example_inputs):
    raise RuntimeError("the compiler crashed")

@torch.compile(backend=crashing)
def fn(x):
    return x + 1

print(fn(torch.ones(3)))

# RUN: cd %dir && %python -m taper suppress_errors.py
# CHECK: WON'T CONVERT fn suppress_errors.py line 8
# CHECK-NEXT: due to:
# CHECK-NEXT: backend='crashing' raised:
# CHECK-NEXT: RuntimeError: the compiler crashed
# CHECK: Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace, and TORCH_LOGS="+dynamo" for more information.
# CHECK: You can suppress this exception and fall back to eager by setting:
# CHECK-NEXT:     import torch._dynamo
# CHECK-NEXT:     torch._dynamo.config.suppress_errors = True
# CHECK-NEXT: tensor([2., 2., 2.])
