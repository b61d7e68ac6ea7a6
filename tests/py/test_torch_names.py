"""Names and small behaviours that packages written for PyTorch reach for, under the alias."""
import os, subprocess, sys

NAMES = """version.cuda accelerator.is_available complex64 uint16 float8_e4m3fn hub.load_state_dict_from_url onnx.is_in_onnx_export profiler.profile fft.fftshift
sparse_coo_tensor nested.nested_tensor polar multiprocessing.spawn serialization.add_safe_globals futures.Future Stream Event _assert __config__.show torch.Tensor
backends.cudnn.benchmark backends.cuda.matmul.allow_tf32 nn.attention.sdpa_kernel nn.SyncBatchNorm nn.DataParallel nn.init.uniform nn.modules.batchnorm._BatchNorm
nn.utils.skip_init nn.utils.prune.l1_unstructured utils.hooks.RemovableHandle utils.data.dataloader.DataLoader utils.data.DistributedSampler
utils.data.get_worker_info utils.model_zoo.load_url utils.dlpack.to_dlpack jit.Final jit.script_method jit.annotate distributed.ReduceOp.SUM distributed.all_gather
distributions.constraints.positive distributions.HalfCauchy distributions.transforms.ExpTransform cuda.CUDAGraph cuda.Stream utils._pytree._dict_flatten_with_keys
autograd.profiler.record_function _subclasses.FakeTensorMode xpu.is_available mps.is_available get_device_module _C.DispatchKey.AutocastCPU
distributed.fsdp.FullyShardedDataParallel distributed.tensor.DTensor nn.attention.flex_attention.flex_attention ao.quantization.QConfig"""

PROGRAM = """
import importlib, importlib.metadata, io, sys, torch, taper, unittest.mock
for name in NAMES.split():
    here, at = torch, "torch"
    for p in name.split("."):
        at += "." + p
        here = getattr(here, p) if hasattr(here, p) else importlib.import_module(at)
assert torch.__version__ == "2.13.0" and torch.__version__ >= (2, 1) and torch.__version__ < "2.14" and torch.__name__ == "torch", torch.__version__
assert importlib.metadata.version("torch") == "2.13.0" and taper.version.taper == "0.1.0"
assert torch.distributed.is_available() and (torch.cuda.is_available() or torch.accelerator.current_accelerator() is None)
assert isinstance(torch.cuda.Stream, type) and isinstance(torch.cuda.Event, type)
for refused in (lambda: torch.ones(2, dtype=torch.complex32), lambda: torch.ones(2).to(torch.qint8), lambda: torch.sparse_bsr_tensor([[0]], [1.], [1.]),
                lambda: torch.nested.nested_tensor([]), lambda: torch.distributed.fsdp.FullyShardedDataParallel(None)):
    try:
        refused()
    except NotImplementedError as e:
        assert "not supported" in str(e), e
    else:
        raise AssertionError(refused)
assert not isinstance(torch.ones(1), torch.distributed.tensor.DTensor) and torch.finfo(torch.float8_e4m3fn).max == 448
with torch.device("meta"):
    m = torch.nn.Linear(2, 3)
    with torch.device("cpu"):
        assert torch.ones(1).device.type == "cpu"
assert m.weight.device.type == "meta" and torch.ones(1).device.type == "cpu"

class Even(torch.utils.data.Sampler[int]):
    def __iter__(self):
        return iter([0, 2])
assert [b.tolist() for b in torch.utils.data.DataLoader(torch.arange(5), sampler=Even())] == [[0], [2]]
config = torch._dynamo.config
with unittest.mock.patch.object(config, "cache_size_limit", 3):
    assert config.cache_size_limit == 3
assert config.cache_size_limit != 3

@config.patch(cache_size_limit=4)
class T(unittest.TestCase):
    def test_it(self):
        assert config.cache_size_limit == 4
assert unittest.TextTestRunner(stream=io.StringIO()).run(T("test_it")).wasSuccessful()
with torch._inductor.config.patch(fallback_random=True):
    assert torch._inductor.config.fallback_random
assert not torch._inductor.config.fallback_random
f = io.BytesIO()
torch.save(torch.nn.Linear(2, 2), f)
for allow in (False, True):
    f.seek(0)
    try:
        assert torch.load(f, weights_only=not allow)(torch.ones(1, 2)).shape == (1, 2) and allow
    except Exception as e:
        assert not allow and "weights_only=False" in str(e), e
with torch.profiler.profile() as prof, torch.profiler.record_function("mine"):
    torch.ones(3).sin()
assert "mine" in prof.key_averages().table() and "aten::sin" in prof.key_averages().table()
m = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm2d(3)))
assert isinstance(m[0], torch.nn.SyncBatchNorm)
q = torch.randn(1, 2, 5, 4)
causal = lambda b, h, i, j: i >= j
flex = torch.nn.attention.flex_attention
a = flex.flex_attention(q, q, q, block_mask=flex.create_block_mask(causal, 1, 2, 5, 5))
assert torch.allclose(a, torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), atol=1e-6)
"""


def test_names_and_behaviour():
    r = subprocess.run([sys.executable, "-m", "taper", "-c", f"NAMES = {NAMES!r}\n" + PROGRAM], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr[-3000:]


def test_the_version_is_a_setting():
    r = subprocess.run([sys.executable, "-m", "taper", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                       env={**os.environ, "TAPER_TORCH_VERSION": "2.6.0"})
    assert r.stdout == "2.6.0\n", r.stderr
