import torch
import torch._dynamo as torchdynamo

torchdynamo.config.debug = True

@torchdynamo.optimize("eager")
def toy(x):
    return x + 1

toy(torch.ones(3))

# RUN: cd %dir && %python -m taper config_debug.py
# CHECK: TRACED GRAPH
# CHECK-NEXT:  ===== __compiled_fn_1 =====
# CHECK-NEXT: class GraphModule(torch.nn.Module):
# CHECK-NEXT:     def forward(self, L_x_: "f32[3][1]cpu"):
# CHECK-NEXT:         l_x_ = L_x_
# CHECK:         # File: config_debug.py:8 in toy, code: return x + 1
# CHECK-NEXT:         add: "f32[3][1]cpu" = l_x_ + 1;  l_x_ = None
# CHECK-NEXT:         return (add,)
# CHECK-NEXT: GUARDS:
# CHECK: TREE_GUARD_MANAGER:
# CHECK-NEXT: +- RootGuardManager
# CHECK-NEXT: | +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # 
# CHECK-NEXT: | +- GLOBAL_STATE: ___check_global_state()
# CHECK-NEXT: | +- TORCH_FUNCTION_MODE_STACK: ___check_torch_function_mode_stack()
# CHECK-NEXT: | +- GuardManager: source=L['x'], accessed_by=DictGetItemGuardAccessor(x)
# CHECK-NEXT: | | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, device=None, requires_grad=False, size=[3], stride=[1])  # return x + 1  # config_debug.py:8 in toy
# CHECK-NEXT: | | +- NO_HASATTR: hasattr(L['x'], '_dynamo_dynamic_indices') == False           # return x + 1  # config_debug.py:8 in toy
