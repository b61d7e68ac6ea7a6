"""python -m taper and taper.torch_alias: programs written for PyTorch run unmodified."""
import os, subprocess, sys, tempfile

PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils._pytree import tree_map
import torch.utils.data
torch.manual_seed(0)
x = torch.ones(2, 3)
print(type(x), x.dtype, x.shape, x.type(), torch.float32, repr(torch.device("cpu")))
print(torch.tensor([1, 2], dtype=torch.int8), torch.ops.aten.add.Tensor)
w = nn.Parameter(torch.ones(3, 4))
y = F.relu(x @ w if hasattr(torch, "matmul") else x.mm(w)).sum()
y.backward()
print(w.grad.shape, isinstance(w, torch.Tensor), sys.argv[1:], __name__)
try:
    torch.ones(2, 3) + "a"
except TypeError as e:
    print(type(e).__name__)
try:
    import torch.nosuch
except ModuleNotFoundError as e:
    print(e)
"""
WANT = """<class 'torch.Tensor'> torch.float32 torch.Size([2, 3]) torch.FloatTensor torch.float32 device(type='cpu')
tensor([1, 2], dtype=torch.int8) aten.add.Tensor
torch.Size([3, 4]) True ['a', '--b'] __main__
TypeError
No module named 'torch.nosuch' (Taper stands in for torch here and has no taper.nosuch)
"""


def run(*args, **kw):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, **kw)


def test_script():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "prog.py")
        with open(path, "w") as f:
            f.write(PROGRAM)
        r = run("-m", "taper", path, "a", "--b")
        assert r.returncode == 0 and r.stdout == WANT, r.stdout + r.stderr
        r = run("-m", "taper", os.path.join(d, "missing.py"))
        assert r.returncode == 2 and "there is no file" in r.stderr


def test_names_that_packages_ask_for():
    code = """
import torch
print(torch.autograd.profiler.record_function.__name__, torch.nn.modules.batchnorm.BatchNorm1d.__name__, torch.fx.proxy.Proxy.__name__,
      torch.distributions.normal.Normal.__name__, torch.fx.interpreter.Interpreter is torch.fx.Interpreter)
print(hasattr(torch.nn, "nothing_here"), hasattr(torch.nn.modules, "__wrapped__"), getattr(torch.distributions, "none", 3))
print(torch.meshgrid.__kwdefaults__, torch.TensorType.get(), torch.ListType(torch.IntType.get()) == torch.ListType(torch.IntType.get()))
from torch.utils.checkpoint import get_device_states, set_device_states
print(get_device_states(torch.ones(2), [torch.ones(1)]), set_device_states([], []))
@torch.library.register_fake("far::away")
def _(x):
    return x.new_empty(x.shape)
try:
    torch.ops.far.away(torch.ones(2))
except AttributeError as e:
    print("not there")
torch.library.define("far::away", "(Tensor x) -> Tensor")
torch.library.impl("far::away", "default", lambda x: x * 2)
print(torch.compile(lambda x: torch.ops.far.away(x) + 1, fullgraph=True)(torch.ones(2)))
"""
    r = run("-m", "taper", "-c", code)
    assert r.returncode == 0, r.stderr
    assert r.stdout.splitlines() == ["record_function BatchNorm1d Proxy Normal True", "False False 3", "{'indexing': None} Tensor True", "([], []) None",
                                     "not there", "tensor([3., 3.])"], r.stdout


def test_names_of_the_originals_parts():
    code = """
import functools
import torch
x = torch.arange(12.0).view(3, 4)
print(type(x.max(0)) is torch.return_types.max, isinstance(torch.sort(x), torch.return_types.sort), hasattr(torch.return_types, "nope"))
import torch._functorch.config as config
with config.patch(activation_memory_budget=0.5):
    print(config.activation_memory_budget)
from torch.cuda.amp import custom_fwd, custom_bwd
class Twice(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, a):
        return a * 2
    @staticmethod
    @custom_bwd
    def backward(ctx, g):
        return g * 2
a = torch.ones(2, requires_grad=True)
Twice.apply(a).sum().backward()
print(config.activation_memory_budget, a.grad)
print(torch.Tag.pointwise, torch.GradScaler is torch.amp.GradScaler, isinstance(torch.FloatStorage([1.0]), torch.FloatStorage), torch.FloatStorage(3).size())
from torch.fx.node import Argument, Target
from torch.types import FileLike, IntLikeType
from torch.nn.common_types import _size_2_t
print(torch.nn.functional.max_pool2d_with_indices(torch.arange(16.0).view(1, 1, 4, 4), 2)[1].tolist())
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
b = torch.ones(3, requires_grad=True)
contexts = functools.partial(create_selective_checkpoint_contexts, lambda ctx, op, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE)
checkpoint(lambda t: t * t * t, b, use_reentrant=False, context_fn=contexts).sum().backward()
print(b.grad)
@torch.compile(fullgraph=True)
def g(x):
    return x if torch.cuda.is_available() and torch.cuda.device_count() > 99 else x + 1
print(g(torch.ones(2)))
from torch._dynamo.testing import EagerAndRecordGraphs
record = EagerAndRecordGraphs()
print(torch.compile(lambda x: x.sin() * 0 + 1, backend=record)(torch.ones(1)), len(record.graphs))
"""
    r = run("-m", "taper", "-c", code)
    assert r.returncode == 0, r.stderr
    assert r.stdout.splitlines() == ["True True False", "0.5", "1.0 tensor([2., 2.])", "Tag.pointwise True True 3", "[[[[5, 7], [13, 15]]]]", "tensor([3., 3., 3.])",
                                     "tensor([2., 2.])", "tensor([1.]) 1"], r.stdout


def test_code_and_module():
    r = run("-m", "taper", "-c", "import torch, sys; print(torch.float64, sys.argv)", "x")
    assert r.stdout == "torch.float64 ['-c', 'x']\n", r.stdout + r.stderr
    r = run("-m", "taper", "-m", "this")
    assert "Namespaces are one honking great idea" in r.stdout


def test_alias_module():
    r = run("-c", "import taper.torch_alias, torch, taper, torch.nn, torch.utils._pytree as p\n"
                  "assert torch is taper and torch.nn is taper.nn and p.__name__ == 'taper.utils._pytree'\n"
                  "assert taper.__spec__.name == 'taper' and torch.nn.__spec__.name == 'taper.nn'")
    assert r.returncode == 0, r.stderr


def test_names_of_old_guides():
    r = run("-c", "import taper.torch_alias, os, tempfile, torch, torchdynamo, torchdynamo.config\n"
                  "assert torchdynamo is torch._dynamo and torchdynamo.config is torch._dynamo.config\n"
                  "os.chdir(tempfile.mkdtemp())\n"
                  "torchdynamo.config.debug_dir_root = os.getcwd()\n"
                  "from torch._dynamo.debug_utils import get_minifier_repro_path, minifier_dir\n"
                  "assert os.path.isdir(minifier_dir()) and minifier_dir() == minifier_dir() and minifier_dir().startswith(os.getcwd())\n"
                  "assert get_minifier_repro_path() == os.path.join(minifier_dir(), 'minifier_launcher.py')")
    assert r.returncode == 0, r.stderr


def test_real_torch_is_left_alone():
    code = ("import sys, types, warnings; real = types.ModuleType('torch'); sys.modules['torch'] = real\n"
            "import taper\nwith warnings.catch_warnings(record=True) as w:\n"
            "    warnings.simplefilter('always')\n    import taper.torch_alias\n"
            "import torch\nassert torch is real and 'PyTorch is imported already' in str(w[-1].message)\n"
            "assert repr(taper.float32) == 'taper.float32'")
    r = run("-c", code)
    assert r.returncode == 0, r.stderr
