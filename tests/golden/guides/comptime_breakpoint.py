import torch
from torch._dynamo.comptime import comptime

@torch.compile(backend="eager")
def f(x):
    y = x + 1
    comptime.breakpoint()
    y = y + 1
    return y

f(torch.ones(3, 3))

# RUN: cd %dir && printf 'ctx.print_bt()\nctx.print_locals()\nbt\nctx.print_graph()\nctx.disas()\nc\n' | %python -m taper comptime_breakpoint.py
# CHECK: -> builtins.breakpoint()
# CHECK-NEXT: (Pdb)   File "comptime_breakpoint.py", line 7, in f
# CHECK-NEXT:     comptime.breakpoint()
# CHECK: (Pdb) x = FakeTensor(..., size=(3, 3))
# CHECK-NEXT: y = FakeTensor(..., size=(3, 3))
# CHECK: -> f(torch.ones(3, 3))
# CHECK: -> inner(ctx)
# CHECK: -> builtins.breakpoint()
# CHECK-NEXT: (Pdb) def forward(self, L_x_: "f32[3, 3]"):
# CHECK-NEXT:     l_x_ = L_x_
# CHECK:     # File: comptime_breakpoint.py:6 in f, code: y = x + 1
# CHECK-NEXT:     y: "f32[3, 3]" = l_x_ + 1;  l_x_ = y = None
# CHECK-RE: 6 .*LOAD_FAST\w* +0 \(x\)
# CHECK-RE: BINARY_OP +0 \(\+\)
# CHECK-RE: --> +(\d+ )?CALL +0
# CHECK-RE: 9 .*LOAD_FAST\w* +1 \(y\)
