import torch

def g(x, y):
    return x + y

@torch.compile(backend="eager")
def f(x):
    x = torch.sin(x)
    x = g(x, x)
    return x

f(torch.ones(3, 3))

# BEFORE: 3.13
# RUN: cd %dir && TORCH_LOGS=trace_bytecode,trace_source,graph_code %python -m taper trace_logs.py
# CHECK: TRACE starts_line trace_logs.py:6 in f ()
# CHECK-NEXT:     @torch.compile(backend="eager")
# CHECK-NEXT: TRACE RESUME 0 []
# CHECK-NEXT: TRACE starts_line trace_logs.py:8 in f (f)
# CHECK-NEXT:         x = torch.sin(x)
# CHECK-NEXT: TRACE LOAD_GLOBAL torch []
# CHECK-NEXT: TRACE LOAD_ATTR sin [NullVariable(), PythonModuleVariable(<module 'torch' from 
# CHECK-NEXT: TRACE LOAD_FAST x [NullVariable(), TorchInGraphFunctionVariable(<built-in function sin>)]
# CHECK-NEXT: TRACE CALL 1 [NullVariable(), TorchInGraphFunctionVariable(<built-in function sin>), LazyVariableTracker()]
# CHECK-NEXT: TRACE STORE_FAST x [TensorVariable()]
# CHECK-NEXT: TRACE starts_line trace_logs.py:9 in f (f)
# CHECK-NEXT:         x = g(x, x)
# CHECK-NEXT: TRACE LOAD_GLOBAL g []
# CHECK-NEXT: TRACE LOAD_FAST x [NullVariable(), UserFunctionVariable()]
# CHECK-NEXT: TRACE LOAD_FAST x [NullVariable(), UserFunctionVariable(), TensorVariable()]
# CHECK-NEXT: TRACE CALL 2 [NullVariable(), UserFunctionVariable(), TensorVariable(), TensorVariable()]
# CHECK-NEXT: TRACE starts_line trace_logs.py:3 in g (g) (inline depth: 1)
# CHECK-NEXT:     def g(x, y):
# CHECK-NEXT: TRACE RESUME 0 []
# CHECK-NEXT: TRACE starts_line trace_logs.py:4 in g (g) (inline depth: 1)
# CHECK-NEXT:         return x + y
# CHECK-NEXT: TRACE LOAD_FAST x []
# CHECK-NEXT: TRACE LOAD_FAST y [TensorVariable()]
# CHECK-NEXT: TRACE BINARY_OP 0 [TensorVariable(), TensorVariable()]
# CHECK-NEXT: TRACE RETURN_VALUE None [TensorVariable()]
# CHECK-NEXT: TRACE STORE_FAST x [TensorVariable()]
# CHECK-NEXT: TRACE starts_line trace_logs.py:10 in f (f)
# CHECK-NEXT:         return x
# CHECK-NEXT: TRACE LOAD_FAST x []
# CHECK-NEXT: TRACE RETURN_VALUE None [TensorVariable()]
# CHECK-NEXT: TRACED GRAPH
# CHECK-NEXT:  ===== __compiled_fn_1 =====
# CHECK-NEXT: class GraphModule(torch.nn.Module):
# CHECK-NEXT:     def forward(self, L_x_: "f32[3, 3][3, 1]cpu"):
# CHECK-NEXT:         l_x_ = L_x_
# CHECK:         # File: trace_logs.py:8 in f, code: x = torch.sin(x)
# CHECK-NEXT:         x: "f32[3, 3][3, 1]cpu" = torch.sin(l_x_);  l_x_ = None
# CHECK:         # File: trace_logs.py:4 in g, code: return x + y
# CHECK-NEXT:         x_1: "f32[3, 3][3, 1]cpu" = x + x;  x = None
# CHECK-NEXT:         return (x_1,)
