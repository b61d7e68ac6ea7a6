import torch
import torch._dynamo as torchdynamo

def toy(x):
    x = x + 1
    print("break")
    return x

torchdynamo.optimize("eager", nopython=True)(toy)(torch.ones(3))

# RUN: cd %dir && %python -m taper nopython.py
# CHECK: Traceback (most recent call last):
# CHECK:   File "nopython.py", line 9, in <module>
# CHECK-NEXT:     torchdynamo.optimize("eager", nopython=True)(toy)(torch.ones(3))
# CHECK-NEXT: torch._dynamo.exc.Unsupported: builtin: print [...]
# CHECK: from user code:
# CHECK-NEXT:   File "nopython.py", line 6, in toy
# CHECK-NEXT:     print("break")
