import torch

@torch.compile
def fn(x):
    return x + 1

fn(torch.ones(3, 3))

# RUN: cd %dir && TORCH_LOGS=guards %python -m taper guards.py
# CHECK: GUARDS:
# CHECK: TREE_GUARD_MANAGER:
# CHECK-NEXT: +- RootGuardManager
# CHECK-NEXT: | +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # 
# CHECK-NEXT: | +- GLOBAL_STATE: ___check_global_state()
# CHECK-NEXT: | +- TORCH_FUNCTION_MODE_STACK: ___check_torch_function_mode_stack()
# CHECK-NEXT: | +- GuardManager: source=L['x'], accessed_by=DictGetItemGuardAccessor(x)
# CHECK-NEXT: | | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, device=None, requires_grad=False, size=[3, 3], stride=[3, 1])  # return x + 1  # guards.py:5 in fn
# CHECK-NEXT: | | +- NO_HASATTR: hasattr(L['x'], '_dynamo_dynamic_indices') == False           # return x + 1  # guards.py:5 in fn
