"""The programs and instructions of the three troubleshooting guides, as written there: `torch` means Taper.
What other files prove in detail (logs, guards, comptime, cond, custom operators) is here only as the guides' own text."""
import os
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(program, ok=True, **env):
    """stdout, stderr of a program under the alias, as `python playground.py` in the guides."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "playground.py")
        with open(path, "w") as f:
            f.write(textwrap.dedent(program))
        e = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER", "TORCH"))}
        e.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run([sys.executable, "-m", "taper", path], env=e, capture_output=True, text=True, timeout=60, cwd=d)
        assert (p.returncode == 0) == ok, p.stdout + p.stderr
        return p.stdout, p.stderr.replace(d + os.sep, "")


# --- debugging compiled models
def test_fullgraph_fails_loudly_and_the_default_falls_back():
    out, _ = run("""
        import torch

        def fn(x):
            y = x + 1
            print("side effect")
            return y * 2

        print(torch.compile(fn)(torch.ones(2)))
        try:
            torch.compile(fn, fullgraph=True)(torch.ones(2))
        except Exception as e:
            print(f"{type(e).__name__}: {str(e)[:100]}")
    """)
    assert "tensor([4., 4.])" in out and "Unsupported: builtin: print" in out, out


def test_backend_eager_is_not_a_no_op():
    out, err = run("""
        import torch
        f = torch.compile(lambda x: torch.sin(x) + 1, backend='eager')
        x = torch.randn(5)
        print(torch.equal(f(x), torch.sin(x) + 1))
    """, TORCH_LOGS="graph_code")
    assert out == "True\n" and "TRACED GRAPH" in err and "torch.sin" in err, err


def test_log_level_shows_graph_breaks():
    _, err = run("""
        import logging
        import torch
        torch._dynamo.config.log_level = logging.INFO
        @torch.compile
        def fn(x):
            x = x + 1
            torch._dynamo.graph_break()
            return x + 1
        fn(torch.ones(2))
    """)
    assert "Graph break in user code at playground.py:" in err, err


def test_dynamic_true_and_where_instead_of_branches():
    out, _ = run("""
        import torch

        @torch.compile(dynamic=True, fullgraph=True)
        def fn(x):
            return torch.where(x > 0, x + 1, x - 1)
        for n in (2, 3, 7):
            fn(torch.randn(n))
        print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """)
    assert out == "1\n", out


def test_batch_norm_statistics_and_dropout_in_eval():
    out, _ = run("""
        import copy
        import torch
        import torch.nn as nn
        a = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        b = copy.deepcopy(a)
        fast = torch.compile(b)
        for step in range(4):
            x = torch.randn(8, 4)
            a(x), fast(x)
            assert torch.allclose(a[1].running_mean, b[1].running_mean, atol=1e-6), step
            assert torch.allclose(a[1].running_var, b[1].running_var, atol=1e-6), step
        a.eval(), b.eval()
        x = torch.randn(8, 4)
        print(torch.allclose(a(x), fast(x), atol=1e-5), torch.equal(fast(x), fast(x)))
    """)
    assert out == "True True\n", out


# --- torch.compile troubleshooting
def test_where_to_apply_inference_and_training():
    out, _ = run("""
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        opt_model = torch.compile(model)
        for _ in range(3):
            out = opt_model(torch.randn(2, 4))
        print(out.shape)

        opt = torch.optim.Adam(model.parameters(), lr=0.05)

        @torch.compile
        def train(mod, data):
            opt.zero_grad(True)
            pred = mod(data[0])
            loss = torch.nn.CrossEntropyLoss()(pred, data[1])
            loss.backward()
            opt.step()
            return loss

        data = (torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
        first = train(model, data).item()
        for _ in range(20):
            last = train(model, data).item()
        print(last < first)
    """)
    assert out == "torch.Size([2, 3])\nTrue\n", out


def test_disable_the_guides_two_functions():
    out, err = run("""
        import torch

        def bad1_inner(x):
            return x + 1

        @torch.compiler.disable
        def bad1_outer(x):
            return bad1_inner(x)

        def bad2_inner(x):
            return x + 2

        @torch.compiler.disable(recursive=False)
        def bad2_outer(x):
            return bad2_inner(x)

        @torch.compile
        def fn(x):
            x = x * 2
            x = bad1_outer(x)
            x = x * 2
            x = bad2_outer(x)
            return x * 2

        print(fn(torch.ones(1)))
    """, TORCH_LOGS="graph_breaks,graph_code")
    assert out == "tensor([16.])\n", out
    assert err.count("Graph break in user code") == 2, err
    assert "in bad2_inner" in err and "in bad1_inner" not in err, err  # traced and skipped, as the comments say


def test_suppress_errors():
    out, err = run("""
        import torch
        torch._dynamo.config.suppress_errors = True

        def crash(gm, inputs):
            raise RuntimeError("compiler crash")

        @torch.compile(backend=crash)
        def fn(x):
            return x + 1
        print(fn(torch.ones(2)))
    """)
    assert out == "tensor([2., 2.])\n" and "WON'T CONVERT" in err and "compiler crash" in err, err


def test_cond_in_place_of_data_dependent_control_flow():
    program = """
        import torch
        @torch.compile
        def fn(x):
            {body}
        print(fn(torch.ones(3, 3)).sum().item(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """
    old = "if x.sum() > 0:\n                return x + 1\n            return x - 1"
    new = "return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,),)"
    assert run(program.format(body=old))[0] == "18.0 2\n"
    assert run(program.format(body=new))[0] == "18.0 1\n"


def test_capture_scalar_outputs_by_config_and_variable():
    program = """
        import torch
        {setting}
        @torch.compile
        def fn(x):
            return x * x.sum().item()
        print(fn(torch.ones(2)), torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """
    assert run(program.format(setting=""))[0] == "tensor([2., 2.]) 2\n"
    assert run(program.format(setting="torch._dynamo.config.capture_scalar_outputs = True"))[0] == "tensor([2., 2.]) 1\n"
    assert run(program.format(setting=""), TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS="1")[0] == "tensor([2., 2.]) 1\n"


def test_custom_ops_wrap_untraceable_code():
    out, err = run("""
        import torch
        @torch.library.custom_op("mylib::reverse", mutates_args=())
        def reverse(x: torch.Tensor) -> torch.Tensor:
            return torch.tensor(list(reversed(x.tolist())))
        @reverse.register_fake
        def _(x):
            return torch.empty_like(x)
        print(torch.compile(lambda x: reverse(x + 1) * 2, fullgraph=True)(torch.tensor([1.0, 2.0])))
    """, TORCH_LOGS="graph_code")
    assert out == "tensor([6., 4.])\n" and "torch.ops.mylib.reverse(" in err, err


def test_changing_the_cache_size_limit():
    program = """
        import torch
        {setting}
        @torch.compile(dynamic=False)
        def fn(x):
            return x + 1

        for i in range(1, 10):
            fn(torch.ones(i))
    """
    _, err = run(program.format(setting=""))
    assert "torch._dynamo hit config.cache_size_limit (8)\n" in err, err
    assert "function: 'fn' (playground.py:4)" in err and "last reason: 0/0: tensor 'L['x']' size mismatch at index 0. expected 1, actual 9" in err, err
    assert run(program.format(setting="torch._dynamo.config.cache_size_limit = 20"))[1] == ""


def test_wrapping_constants_with_tensors():
    program = """
        import torch

        @torch.compile
        def fn(x, c):
            return x + c

        for i in range(1, 10):
            fn(torch.ones(i), {value})
    """
    _, err = run(program.format(value="0.5 + i"), TORCH_LOGS="recompiles")
    last = err[err.rindex("Recompiling function fn"):]
    for k in range(8):
        assert f"- 0/{k}: L['c'] == {k + 1.5}" in last, last
    assert "torch._dynamo hit config.cache_size_limit (8)" in last and "last reason: 0/0: L['c'] == 1.5" in last, last
    _, err = run(program.format(value="torch.tensor(0.5 + i)"), TORCH_LOGS="recompiles")
    assert "L['c']" not in err and "cache_size_limit" not in err, err


def test_ablation_backends_and_modes():
    out, _ = run("""
        import torch
        def fn(x):
            return torch.sin(x) + 1
        x = torch.randn(4)
        for kw in ({"backend": "eager"}, {"backend": "aot_eager"}, {"backend": "aot_eager_decomp_partition"}, {"backend": "inductor"},
                   {"backend": "inductor", "mode": "default"}, {"backend": "inductor", "mode": "reduce-overhead"},
                   {"backend": "inductor", "mode": "max-autotune"}, {"dynamic": True}, {"dynamic": False}, {"dynamic": None}):
            assert torch.allclose(torch.compile(fn, **kw)(x), fn(x)), kw
        print("all agree")
    """)
    assert out == "all agree\n"


def test_set_logs_in_the_program():
    _, err = run("""
        import logging
        import torch
        torch._logging.set_logs(graph_breaks=True)
        @torch.compile
        def fn(x):
            x = x + 1
            torch._dynamo.graph_break()
            return x
        fn(torch.ones(2))
    """)
    assert "Graph break in user code" in err, err


def test_debug_function_limits_tracing_to_one_name():
    program = """
        import torch

        @torch.compiler.disable(recursive=False)
        def outer(x):
            return inner(x) + other(x)

        def inner(x):
            return torch.sin(x)

        def other(x):
            return torch.cos(x)

        torch.compile(outer, backend="eager")(torch.ones(2))
    """
    _, err = run(program, TORCHDYNAMO_DEBUG_FUNCTION="inner", TORCH_LOGS="graph_code")
    assert "torch.sin" in err and "torch.cos" not in err, err


# --- the manual of 2022
def test_recompilation_profiler():
    out, _ = run("""
        import torch
        import torch._dynamo as torchdynamo

        def my_model(x):
            x = x * 2
            print(end="")
            return x + 1

        prof = torchdynamo.utils.CompilationProfiler()
        with torchdynamo.optimize(prof):
            for n in (2, 3):
                my_model(torch.ones(n))
        print(prof.report())
    """)
    assert out.startswith("Torchdynamo Profiler Report\n") and "builtin: print" in out and "size mismatch at index 0. expected 2, actual 3" in out, out


def test_nopython_mode_throws_at_the_first_break_with_a_stack():
    _, err = run("""
        import torch
        import torch._dynamo as torchdynamo

        def some_fun(x):
            x = x + 1
            return x.data_ptr()

        with torchdynamo.optimize("eager", nopython=True):
            some_fun(torch.ones(2))
    """, ok=False)
    assert "Unsupported" in err and 'line 7, in some_fun' in err and "return x.data_ptr()" in err, err


def test_debug_mode_shows_each_graph_and_its_guards():
    _, err = run("""
        import torch
        torch._dynamo.config.debug = True
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    """)
    assert "TRACED GRAPH" in err and "TENSOR_MATCH" in err, err


def test_c_extensions_break():
    out, err = run("""
        import math
        import zlib
        import torch

        @torch.compile
        def fn(x, data):
            x = x + 1
            k = zlib.crc32(data)
            return x + k % 2
        print(fn(torch.ones(1), b"abc"))
    """, TORCH_LOGS="graph_breaks")
    assert err.count("Graph break in user code") == 1 and "crc32" in err, err


def test_rank_changes_recompile_and_are_never_dynamic():
    out, _ = run("""
        import torch
        f = torch.compile(lambda x: x + 1)
        for shape in ((2,), (3,), (4,), (2, 2), (3, 3), (4, 4), (2, 2, 2)):
            f(torch.ones(shape))
        print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """)
    assert int(out) <= 5 and int(out) >= 3, out


def test_bucketing_bounds_recompilations():
    out, _ = run("""
        import torch
        f = torch.compile(lambda x: x.sum(), dynamic=False)
        for n in range(1, 33):
            size = next(b for b in (8, 16, 32) if n <= b)
            x = torch.zeros(size)
            x[:n] = 1
            assert f(x).item() == n
        print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """)
    assert out == "3\n", out


def test_every_program_is_a_golden_file():
    with open(os.path.join(ROOT, "tests", "checklist.md")) as f:
        named = [line.rsplit("`", 2)[1] for line in f if "tests/golden/guides/" in line and line.count("|") == 4 and not line[2].isdigit()]
    there = sorted("tests/golden/guides/" + n for n in os.listdir(os.path.join(ROOT, "tests", "golden", "guides")) if n.endswith(".py"))
    assert sorted(named) == there, set(named) ^ set(there)
    for path in there:
        with open(os.path.join(ROOT, path)) as f:
            text = f.read()
        assert "import torch" in text and "%python -m taper " + os.path.basename(path) in text and "taper" not in text.split("# RUN")[0], path
