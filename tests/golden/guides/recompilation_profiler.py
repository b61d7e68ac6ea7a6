import torch
import torch._dynamo as torchdynamo

def my_model():
    for n in (3, 4):
        layer(torch.ones(n))

def layer(x):
    x = x + 1
    print("a layer")
    return x * 2

prof = torchdynamo.utils.CompilationProfiler()
with torchdynamo.optimize(prof):
   my_model()
print(prof.report())

# RUN: cd %dir && %python -m taper recompilation_profiler.py
# CHECK: a layer
# CHECK-NEXT: a layer
# CHECK-NEXT: Torchdynamo Profiler Report
# CHECK-NEXT: ===========================
# CHECK: Graph Breaks
# CHECK-NEXT: ------------
# CHECK-NEXT: Graph breaks happen when something cannot be captured: the graph ends there and a new one begins.
# CHECK: Graph Break Reason    Count
# CHECK-NEXT: --------------------  -----
# CHECK-NEXT: builtin: print [...]  4
# CHECK: Recompilation
# CHECK-NEXT: -------------
# CHECK-NEXT: These functions were compiled again because a guard failed.
# CHECK: Function                                                            Recompiles  Recompile Reasons
# CHECK-NEXT: ------------------------------------------------------------------  ----------  -------------------------------------------------------------------
# CHECK-NEXT: 'layer' (recompilation_profiler.py:8)                               1           1/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 4
# CHECK-NEXT: 'torch_dynamo_resume_in_layer_at_10' (recompilation_profiler.py:8)  1           2/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 4
# CHECK: Set config.cache_size_limit to 2 or more to keep every variant, or remove the cause of the failures.
