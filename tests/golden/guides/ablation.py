import torch

def fn(x):
    return torch.sin(x) + 1

x = torch.ones(3, 3)
for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
    print(backend, torch.allclose(torch.compile(fn, backend=backend)(x), fn(x)))
for mode in ("default", "reduce-overhead", "max-autotune"):
    print(mode, torch.allclose(torch.compile(fn, backend="inductor", mode=mode)(x), fn(x)))
for dynamic in (True, False, None):
    print(dynamic, torch.allclose(torch.compile(fn, dynamic=dynamic)(x), fn(x)))

# RUN: cd %dir && %python -m taper ablation.py
# CHECK: eager True
# CHECK-NEXT: aot_eager True
# CHECK-NEXT: aot_eager_decomp_partition True
# CHECK-NEXT: inductor True
# CHECK-NEXT: default True
# CHECK-NEXT: reduce-overhead True
# CHECK-NEXT: max-autotune True
# CHECK-NEXT: True True
# CHECK-NEXT: False True
# CHECK-NEXT: None True
