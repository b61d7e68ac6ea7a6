import torch

def bad1_inner(x):
    # skipped
    return x.sin()

@torch.compiler.disable
def bad1_outer(x):
    # skipped
    return bad1_inner(x)

def bad2_inner(x):
    # traced
    return x.cos()

@torch.compiler.disable(recursive=False)
def bad2_outer(x):
    # skipped
    return bad2_inner(x)

@torch.compile
def fn(x):
    # graph break
    x = bad1_outer(x)
    x = x + 1
    # graph break
    x = bad2_outer(x)
    return x + 1

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=graph_breaks,graph_code %python -m taper disable.py
# CHECK: Graph break in user code at disable.py:24
# CHECK-NEXT: Reason: Unsupported: Skip calling `torch.compiler.disable()`d function bad1_outer
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "disable.py", line 24, in fn
# CHECK-NEXT:     x = bad1_outer(x)
# CHECK: Graph break in user code at disable.py:27
# CHECK-NEXT: Reason: Unsupported: Skip inlining `torch.compiler.disable()`d function bad2_outer
# CHECK-NEXT: User code traceback:
# CHECK-NEXT:   File "disable.py", line 27, in torch_dynamo_resume_in_fn_at_24
# CHECK-NEXT:     x = bad2_outer(x)
# CHECK: TRACED GRAPH
# CHECK-NEXT:  ===== __compiled_fn_1 =====
# CHECK-NEXT: class GraphModule(torch.nn.Module):
# CHECK-NEXT:     def forward(self, L____stack0_: "f32[3, 3][3, 1]cpu"):
# CHECK-NEXT:         l_stack0_ = L____stack0_
# CHECK:         # File: disable.py:25 in fn, code: x = x + 1
# CHECK-NEXT:         x: "f32[3, 3][3, 1]cpu" = l_stack0_ + 1;  l_stack0_ = None
# CHECK-NEXT:         return (x,)
# CHECK-NEXT: TRACED GRAPH
# CHECK-NEXT:  ===== __compiled_fn_2 =====
# CHECK-NEXT: class GraphModule(torch.nn.Module):
# CHECK-NEXT:     def forward(self, L_x_: "f32[3, 3][3, 1]cpu"):
# CHECK-NEXT:         l_x_ = L_x_
# CHECK:         # File: disable.py:14 in bad2_inner, code: return x.cos()
# CHECK-NEXT:         cos: "f32[3, 3][3, 1]cpu" = torch.cos(l_x_);  l_x_ = None
# CHECK-NEXT:         return (cos,)
# CHECK-NEXT: TRACED GRAPH
# CHECK-NEXT:  ===== __compiled_fn_3 =====
# CHECK-NEXT: class GraphModule(torch.nn.Module):
# CHECK-NEXT:     def forward(self, L____stack0_: "f32[3, 3][3, 1]cpu"):
# CHECK-NEXT:         l_stack0_ = L____stack0_
# CHECK:         # File: disable.py:28 in fn, code: return x + 1
# CHECK-NEXT:         add: "f32[3, 3][3, 1]cpu" = l_stack0_ + 1;  l_stack0_ = None
# CHECK-NEXT:         return (add,)
