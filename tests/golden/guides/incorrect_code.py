import torch

@torch.compile
def fn(x):
    y = torch.sin(x, x)
    return y

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks %python -m taper incorrect_code.py
# CHECK: Graph break in user code at incorrect_code.py:5
# CHECK-NEXT: Reason: Unsupported: TypeError <built-in function sin>: sin() takes 1 positional argument but 2 were given
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "incorrect_code.py", line 5, in fn
# CHECK-NEXT:     y = torch.sin(x, x)
# CHECK: Traceback (most recent call last):
# CHECK:   File "incorrect_code.py", line 8, in <module>
# CHECK-NEXT:     fn(torch.ones(3, 3))
# CHECK-NEXT:   File "incorrect_code.py", line 5, in fn
# CHECK-NEXT:     y = torch.sin(x, x)
# CHECK-NEXT: TypeError: sin() takes 1 positional argument but 2 were given
