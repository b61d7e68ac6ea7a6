"""The troubleshooting guide's programs, unmodified, print what it shows (paths and our own places aside)."""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def run(program, logs=None, **env):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "playground.py")
        with open(path, "w") as f:
            f.write(program)
        e = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        e.update(PYTHONPATH=os.path.join(ROOT, "python"), **env)
        if logs:
            e["TORCH_LOGS"] = logs
        p = subprocess.run([sys.executable, "-m", "taper", path], capture_output=True, text=True, env=e, timeout=60)
        lines = []
        for line in p.stderr.splitlines():
            m = re.match(r"^[VIWEC]\d{4} [\d:.]+ \d+ [\w/.]+:\d+\]( \[[\d/_]+\])?( \[__\w+\])? ?(.*)$", line)
            lines.append(m.group(3) if m else line)
        return p.returncode, [x.replace(d + "/", "") for x in lines], p.stdout


def has(lines, *want):
    """want in this order, one after the other."""
    for i in range(len(lines) - len(want) + 1):
        if all(lines[i + k] == w for k, w in enumerate(want)):
            return
    raise AssertionError("not found:\n" + "\n".join(want) + "\nin:\n" + "\n".join(lines))


FN = "import torch\n\n@torch.compile\ndef fn(x):\n    return x + 1\n\n"


def test_deepcopy_breaks_the_graph():
    rc, err, out = run("import copy\nimport torch\n\n@torch.compile\ndef fn(x):\n    x = x + 1\n    y = copy.deepcopy(x)\n"
                       "    return y + 1\n\nprint(fn(torch.ones(3, 3))[0, 0].item())\n", "graph_breaks")
    assert rc == 0 and out == "3.0\n"
    has(err, "Graph break in user code at playground.py:7", "Reason: Unsupported: copy.deepcopy TensorVariable()",
        "User code traceback:", '  File "playground.py", line 7, in fn', "    y = copy.deepcopy(x)")


def test_guards_tree():
    rc, err, out = run(FN + "fn(torch.ones(3, 3))\n", "guards")
    has(err, "TREE_GUARD_MANAGER:", "+- RootGuardManager")
    text = "\n".join(err)
    for want in ("| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # ",
                 "| +- GLOBAL_STATE: ___check_global_state()", "| +- TORCH_FUNCTION_MODE_STACK: ___check_torch_function_mode_stack()",
                 "| +- GuardManager: source=L['x'], accessed_by=DictGetItemGuardAccessor(x)",
                 "| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), "
                 "torch.float32, device=None, requires_grad=False, size=[3, 3], stride=[3, 1])  # return x + 1  # playground.py:5 in fn",
                 "| | +- NO_HASATTR: hasattr(L['x'], '_dynamo_dynamic_indices') == False           # return x + 1  # playground.py:5 in fn"):
        assert want in text, text


def test_recompiles_message():
    rc, err, out = run(FN + "fn(torch.ones(3, 3))\nfn(torch.ones(4, 4))\n", "recompiles")
    has(err, "Recompiling function fn in playground.py:3", "    triggered by the following guard failure(s):",
        "    - 0/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 4")


def test_dynamic_log():
    rc, err, out = run(FN.replace("@torch.compile", "@torch.compile(dynamic=True)") + "fn(torch.ones(3, 3))\nfn(torch.ones(4, 4))\n",
                       "dynamic,recompiles")
    assert any(x.startswith("create_symbol s0 = 3 for L['x'].size()[0] [2, int_oo] at playground.py:5 in fn (") and
               x.endswith('), for more info run with TORCHDYNAMO_EXTENDED_DEBUG_CREATE_SYMBOL="s0"') for x in err), err
    assert err.count("produce_guards") == 2 and not any("Recompiling" in x for x in err), err


def test_data_dependent_jump_and_item():
    rc, err, out = run("import torch\n\n@torch.compile\ndef fn(x):\n    y = x.sum()\n    if y > 0:\n        return x + y.item()\n"
                       "    return x - y.item()\n\nfn(torch.ones(3, 3))\n", "graph_breaks")
    has(err, "Graph break in user code at playground.py:6", "Reason: Data-dependent jump", "User code traceback:",
        '  File "playground.py", line 6, in fn', "    if y > 0:")
    has(err, "Graph break in user code at playground.py:7", "Reason: Unsupported: Tensor.item", "User code traceback:",
        '  File "playground.py", line 7, in torch_dynamo_resume_in_fn_at_6', "    return x + y.item()")


def test_reorderable_print_does_not_break():
    rc, err, out = run("import torch\n\ntorch._dynamo.config.reorderable_logging_functions.add(print)\n\n@torch.compile\ndef fn(x):\n"
                       "    x += 1\n    print(\"log!\")\n    return torch.sin(x)\n\nfn(torch.ones(3, 3))\n", "graph_breaks")
    assert out == "log!\n" and not any("Graph break" in x for x in err), (out, err)


def test_incorrect_code():
    rc, err, out = run("import torch\n\n@torch.compile\ndef fn(x):\n    y = torch.sin(x, x)\n    return y\n\nfn(torch.ones(3, 3))\n", "graph_breaks")
    assert rc == 1
    has(err, "Graph break in user code at playground.py:5")
    assert any(x.startswith("Reason: Unsupported: TypeError <built-in") and x.endswith(": sin() takes 1 positional argument but 2 were given")
               for x in err), err
    assert "TypeError: sin() takes 1 positional argument but 2 were given" in err


def test_cache_size_limit():
    rc, err, out = run(FN.replace("@torch.compile", "@torch.compile(dynamic=False)") + "for i in range(1, 10):\n    fn(torch.ones(i))\n")
    has(err, "torch._dynamo hit config.cache_size_limit (8)", "    function: 'fn' (playground.py:3)",
        "    last reason: 0/0: tensor 'L['x']' size mismatch at index 0. expected 1, actual 9")
    rc, err, out = run("import torch._dynamo\ntorch._dynamo.config.cache_size_limit = 20\n" +
                       FN.replace("@torch.compile", "@torch.compile(dynamic=False)") + "for i in range(1, 10):\n    fn(torch.ones(i))\n")
    assert not err, err


def test_constants_recompile():
    p = "import torch\n\n@torch.compile\ndef fn(x, c):\n    return x + c\n\nfor i in range(1, 10):\n    fn(torch.ones(i), %s)\n"
    rc, err, out = run(p % "0.5 + i", "recompiles")
    has(err, "Recompiling function fn in playground.py:3", "    triggered by the following guard failure(s):",
        *[f"    - 0/{k}: L['c'] == {k + 1.5}" for k in range(7, -1, -1)])
    has(err, "torch._dynamo hit config.cache_size_limit (8)", "    function: 'fn' (playground.py:3)", "    last reason: 0/0: L['c'] == 1.5")
    rc, err, out = run(p % "torch.tensor(0.5 + i)", "recompiles")
    assert sum("Recompiling" in x for x in err) <= 2 and not any("limit" in x for x in err), err


def test_trace_logs():
    rc, err, out = run("import torch\n\ndef g(x, y):\n    return x + y\n\n@torch.compile(backend=\"eager\")\ndef f(x):\n    x = torch.sin(x)\n"
                       "    x = g(x, x)\n    return x\n\nf(torch.ones(3, 3))\n", "trace_bytecode,trace_source,graph_code")
    err = [line.replace("LOAD_FAST_BORROW", "LOAD_FAST") for line in err]  # from 3.14 on
    has(err, "TRACE starts_line playground.py:6 in f ()", "    @torch.compile(backend=\"eager\")", "TRACE RESUME 0 []",
        "TRACE starts_line playground.py:8 in f (f)", "        x = torch.sin(x)", "TRACE LOAD_GLOBAL torch []")
    new = sys.version_info >= (3, 13)  # self comes behind the callee, and one instruction loads both
    both = ["TRACE LOAD_FAST_LOAD_FAST x, %s []"] if new else ["TRACE LOAD_FAST x []", "TRACE LOAD_FAST %s [TensorVariable()]"]
    callee = "UserFunctionVariable(), NullVariable()" if new else "NullVariable(), UserFunctionVariable()"
    loads = [f"TRACE LOAD_FAST_LOAD_FAST x, x [{callee}]"] if new else [f"TRACE LOAD_FAST x [{callee}]", f"TRACE LOAD_FAST x [{callee}, TensorVariable()]"]
    has(err, "TRACE LOAD_GLOBAL g []", *loads,
        f"TRACE CALL 2 [{callee}, TensorVariable(), TensorVariable()]",
        "TRACE starts_line playground.py:3 in g (g) (inline depth: 1)", "    def g(x, y):", "TRACE RESUME 0 []",
        "TRACE starts_line playground.py:4 in g (g) (inline depth: 1)", "        return x + y", *[s % "y" if "%" in s else s for s in both],
        "TRACE BINARY_OP 0 [TensorVariable(), TensorVariable()]",
        "TRACE RETURN_VALUE None [TensorVariable()]", "TRACE STORE_FAST x [TensorVariable()]")
    has(err, "TRACED GRAPH", " ===== __compiled_fn_1 =====", "class GraphModule(torch.nn.Module):",
        "    def forward(self, L_x_: \"f32[3, 3][3, 1]cpu\"):")
    has(err, "        # File: playground.py:8 in f, code: x = torch.sin(x)",
        "        x: \"f32[3, 3][3, 1]cpu\" = torch.sin(l_x_);  l_x_ = None")
    assert "        x_1: \"f32[3, 3][3, 1]cpu\" = x + x;  x = None" in err and "        return (x_1,)" in err, err


def test_bytecode_and_sizes_logs():
    rc, err, out = run(FN + "fn(torch.ones(3, 3))\n", "bytecode,graph_sizes")
    text = "\n".join(err)
    assert "ORIGINAL BYTECODE fn playground.py line 3" in text and "BINARY_OP" in text, text
    assert "MODIFIED BYTECODE fn playground.py line 3" in text and "CHECK_GUARDS" in text and "RETURN_VALUE" in text, text
    has(err, "TRACED GRAPH TENSOR SIZES", "===== __compiled_fn_1 =====", "l_x_: (3, 3)", "add: (3, 3)")


def test_recompiles_verbose():
    rc, err, out = run("import torch\n\n@torch.compile(dynamic=False)\ndef fn(x, a, b):\n    return x * a + b\n\nfn(torch.ones(3), 1.5, 2.5)\n"
                       "fn(torch.ones(3), 3.5, 4.5)\n", "recompiles_verbose")
    has(err, "    guard 0 failures:", "    - 0/0: L['a'] == 1.5; L['b'] == 2.5")


def test_optimize_nopython_throws():
    rc, err, out = run("import torch\nimport torch._dynamo as torchdynamo\n\ndef f(x):\n    print(x)\n    return x + 1\n\n"
                       "try:\n    torchdynamo.optimize('eager', nopython=True)(f)(torch.ones(2))\nexcept torchdynamo.exc.Unsupported as e:\n"
                       "    print(str(e).splitlines()[0])\n")
    assert out.startswith("builtin: print"), (out, err)


def test_learning_rate_schedule_recompiles():
    p = ("import torch\n\nmod = torch.nn.Linear(3, 3)\nopt = torch.optim.Adam(mod.parameters(), lr=0.01)\n"
         "sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)\n\n@torch.compile\ndef fn(inp):\n    opt.zero_grad(True)\n"
         "    out = mod(inp).sum()\n    out.backward()\n    opt.step()\n    sched.step()\n\nfor i in range(1, 10):\n    fn(torch.ones(3, 3))\n")
    rc, err, out = run(p, "recompiles")
    assert rc == 0, err[-5:]
    lrs = ["0.004782969000000002", "0.005314410000000002", "0.005904900000000002", "0.006561000000000002", "0.007290000000000001",
           "0.008100000000000001", "0.009000000000000001", "0.01"]
    has(err, "    triggered by the following guard failure(s):",
        *[f"    - 0/{7 - k}: G['opt'].param_groups[0]['lr'] == {v}" for k, v in enumerate(lrs)])
    assert any(x.startswith("torch._dynamo hit config.cache_size_limit (8)") for x in err), err


def test_learning_rate_in_tensors_stops_the_recompiles():
    p = ("import torch\n\nmod = torch.nn.Linear(3, 3)\nopt = torch.optim.Adam(mod.parameters(), lr=torch.tensor(0.01))\n"
         "sched = torch.optim.lr_scheduler.ExponentialLR(opt, torch.tensor(0.9))\n\n@torch.compile\ndef fn(inp):\n    opt.zero_grad(True)\n"
         "    out = mod(inp).sum()\n    out.backward()\n    opt.step()\n    sched.step()\n\nfor i in range(1, 10):\n    fn(torch.ones(3, 3))\n"
         "print('lr %.6f' % opt.param_groups[0]['lr'], 'epoch', sched.last_epoch,\n"
         "      dict(torch._dynamo.utils.counters['stats'])['unique_graphs'], dict(torch._dynamo.utils.counters['graph_break']))\n")
    rc, err, out = run(p, "recompiles")
    assert rc == 0, err[-5:]
    # the second compile has gradients and optimiser state where the first had none; nothing after it
    assert sum("Recompiling function" in x for x in err) == 1, err
    assert out.strip() == f"lr {0.01 * 0.9 ** 9:.6f} epoch 9 2 {{}}", out
