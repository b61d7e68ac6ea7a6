"""Every option of TAPER_LOGS that the guide lists: what it prints on one small program, and that it prints nothing else."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
PROGRAM = """
import taper

class Box:
    pass
box = Box()

def inner(x):
    return x.cos()

@taper.compile
def f(x, w):
    y = taper.sin(x) + 1
    box.seen = y.shape[1]
    return taper.softmax(inner(y) @ w, -1) * y.sum()

@taper.compile
def g(x):
    y = x + 1
    print('between')
    return y * 2

w = taper.ones(4, 4, requires_grad=True)
for n in (3, 3, 5):
    f(taper.ones(n, 4), w).sum().backward()
g(taper.ones(3))
"""
_dir = tempfile.mkdtemp(prefix="taper_log_options_")
SCRIPT = os.path.join(_dir, "prog.py")


def run(logs=None, program=PROGRAM, **env):
    with open(SCRIPT, "w") as f:
        f.write(program)
    e = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_LOGS")}
    e.update(env)
    if logs is not None:
        e["TAPER_LOGS"] = logs
    p = subprocess.run([sys.executable, SCRIPT], env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert p.returncode == 0 and p.stdout == "between\n", (p.stdout, p.stderr)
    return p.stderr.splitlines()


LINE = re.compile(r"([VIWEC])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ ([\w/.]+):\d+\] (?:\[(\d+/\d+(?:_\d+)?)\] )?(?:\[__(\w+)\] )?(.*)")


def texts(logs, only=True, **env):
    """The messages as [(artifact or None, compile id or None, line)]; `only`: all belong to the artifact named."""
    out = []
    for line in run(logs, **env):
        m = LINE.fullmatch(line)
        assert m, line
        out.append((m.group(4), m.group(3), m.group(5)))
    if only:
        assert {a for a, _, _ in out} == {logs}, {a for a, _, _ in out}
    return out


def lines(logs, **kw):
    return [t for _, _, t in texts(logs, **kw)]


def test_graph_code():
    t = lines("graph_code")
    assert t[:3] == ["TRACED GRAPH", " ===== __compiled_fn_1 =====", "class GraphModule(taper.nn.Module):"], t[:3]
    assert any(re.search(r'sin: "f32\[3, 4\]\[4, 1\]cpu" = taper\.sin\(l_x_\)', x) for x in t), t
    assert any("# File: " in x and "prog.py:13 in f, code: y = taper.sin(x) + 1" in x for x in t), t


def test_graph_sizes():
    t = lines("graph_sizes")
    assert t[:2] == ["TRACED GRAPH TENSOR SIZES", "===== __compiled_fn_1 ====="], t[:2]
    assert "l_x_: (3, 4)" in t and "l_x_: (s0, 4)" in t and "l_x_ (concrete): (5, 4)" in t, t


def test_trace_source():
    t = lines("trace_source")
    i = next(i for i, x in enumerate(t) if "prog.py:9" in x and "(inline depth: 1)" in x)
    assert re.fullmatch(r"TRACE starts_line .*prog\.py:9 in inner \(inner\) \(inline depth: 1\)", t[i]), t[i]
    assert t[i + 1] == "        return x.cos()", t[i + 1]


def test_trace_bytecode():
    t = lines("trace_bytecode")
    assert "TRACE BINARY_OP 0 [TensorVariable(), ConstantVariable(int: 1)]" in t, t
    assert "TRACE RETURN_VALUE None [TensorVariable()]" in t, t


def test_bytecode():
    t = lines("bytecode")
    assert re.fullmatch(r"ORIGINAL BYTECODE f .*prog\.py line 11", t[0]), t[0]
    assert any(re.fullmatch(r"MODIFIED BYTECODE f .*prog\.py line 11", x) for x in t), t
    assert any("CALL_GRAPH" in x and "__compiled_fn_1" in x for x in t) and any("BINARY_OP" in x for x in t), t


def test_guards():
    t = lines("guards")
    assert t[0] == "GUARDS:" and "TREE_GUARD_MANAGER:" in t and "+- RootGuardManager" in t, t
    assert any("TENSOR_MATCH: check_tensor(L['x'], Tensor" in x and "prog.py:13 in f" in x for x in t), t
    assert any(re.fullmatch(r"Guard eval latency = \d+\.\d\d us", x) for x in t), t


def test_recompiles():
    t = texts("recompiles")
    assert [x for _, _, x in t] == [f"Recompiling function f in {SCRIPT}:11", "    triggered by the following guard failure(s):",
                                    "    - 0/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 5"], t
    assert {i for _, i, _ in t} == {"0/1"}, t


def test_recompiles_verbose():
    t = lines("recompiles_verbose")
    assert "    guard 0 failures:" in t and any("size mismatch at index 0. expected 3, actual 5" in x for x in t), t


def test_graph_breaks():
    t = lines("graph_breaks")
    assert t[0] == f"Graph break in user code at {SCRIPT}:20" and t[1].startswith("Reason: Unsupported: builtin: print"), t
    assert "    print('between')" in t and any(x.startswith("  [TB0005]") for x in t) and any(x.startswith("  Hint: ") for x in t), t


def test_side_effects():
    assert lines("side_effects")[:2] == ["Mutations replayed after the graph of f:", "    setattr 'seen' of G['box']"]


def test_aot_graphs():
    t = lines("aot_graphs")
    assert " ===== Forward graph __compiled_fn_1_forward =====" in t and " ===== Backward graph __compiled_fn_1_backward =====" in t, t


def test_aot_joint_graphs():
    t = texts("aot_joint_graphs", only=False)
    assert {a for a, _, _ in t} == {"aot_joint_graph"} and " ===== Joint graph __compiled_fn_1 =====" in [x for _, _, x in t], t


def test_output_code_is_c_with_the_users_lines():
    t = texts("output_code")
    assert t[0][2] == "Output code: " and t[0][1] == "0/0", t[0]
    starts = [i for i, x in enumerate(t) if x[2] == "Output code: "]
    first = [x for _, _, x in t[starts[0] + 1:starts[1]]]
    assert any(x.startswith("void k0_") for x in first) and any("prog.py:13 y = taper.sin(x) + 1 */" in x for x in first), first
    assert first[0].startswith("/* The steps of __compiled_fn_1_forward"), first
    steps = first[:1 + next(i for i, x in enumerate(first) if x.startswith(" *   return ("))]
    assert not any(a.split("/*")[1:] == b.split("/*")[1:] != [] for a, b in zip(first, first[1:])), "a line is noted once in a row"
    assert any(re.fullmatch(r" \*   mm = mm\(\w+, primals_2\)   prog\.py:15 return .*", x) for x in steps), steps
    assert any(re.match(r" \*   k0_\w+\(", x) for x in steps) and steps[-1].startswith(" *   return ("), steps
    for cc in ("cc", "gcc"):
        try:
            p = subprocess.run([cc, "-std=c99", "-Wall", "-fsyntax-only", "-xc", "-"], input="\n".join(first) + "\n", text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except FileNotFoundError:
            continue
        assert p.returncode == 0, p.stdout
        break
    assert any(i == "0/0" and "__compiled_fn_1_backward" in x for _, i, x in t), "the backward program belongs to the same compile"


def test_kernel_code():
    t = lines("kernel_code")
    heads = [x for x in t if re.fullmatch(r"kernel \w+ \(\d+ bytes of code, [\d.]+ ms\)", x)]
    assert heads and any("# " in x and "prog.py:13" in x for x in t), t[:40]
    if "(0 bytes" not in heads[0]:  # interpreted where there is no machine code
        i = t.index("machine code:")
        assert re.search(r"\b(v?mov|push|ret)", "\n".join(t[i:i + 200])), t[i:i + 40]


def test_schedule():
    t = lines("schedule")
    assert re.fullmatch(r"schedule of __compiled_fn_1_forward: \d+ kernels, 1 product, 0 library calls, \d+ values fused", t[0]), t[0]
    assert any(re.fullmatch(r" +\d+ product mm = mm", x) for x in t) and any(re.match(r" +\d+ kernel k0_\w+: ", x) for x in t), t


def test_fusion_says_yes_and_no_with_reasons():
    t = lines("fusion")
    assert any(re.fullmatch(r"fused \w+ with group \d+ \(\w+\): [\w ]+", x) for x in t), t
    assert any(re.fullmatch(r"did not fuse \w+ with group \d+ \(\w+\): [\w ]+", x) for x in t), t


def test_perf_hints():
    t = lines("perf_hints")
    assert any("move less than 4096 bytes" in x for x in t), t


def test_dynamic():
    t = [x for _, _, x in texts("dynamic", only=False)]
    assert "automatic dynamic size L['x'] size(0) 5 != 3" in t, t
    assert any(x.startswith("create_symbol s0 = 5 for L['x'].size()[0] [2, int_oo]") for x in t) and t.count("produce_guards") >= 2, t


def test_ledger():
    t = lines("ledger")
    assert t[0] == "LEDGER" and any(re.fullmatch(r"f \(.*prog\.py:\d+\) \[0/0\]: compiled, \d+ ops, ran 2 times", x) for x in t), t
    assert any(re.match(r"g \(.*prog\.py:\d+\) \[1/0\]: compiled, 1 op, ran 1 time \(builtin: print", x) for x in t), t


def test_cache_tells_hits_and_why_it_missed():
    t = [x for a, _, x in texts("cache", only=False, TAPER_CACHE="0") if a is None]
    assert "guard cache miss: f has no compiled code yet" in t and "guard cache hit: f runs 0/0" in t, t
    i = t.index("guard cache miss: Recompiling function f in " + SCRIPT + ":11")
    assert "size mismatch at index 0. expected 3, actual 5" in t[i + 2], t[i:i + 3]
    assert any(re.match(r"kernel cache miss: k0_\w+ \(key [0-9a-f]{16}\): no kernel like it was compiled before", x) for x in t), t
    assert any("1 kernel of this name exists, for other sizes, types or operations" in x for x in t), t
    again = PROGRAM.replace("g(taper.ones(3))", "g(taper.ones(3)); h = taper.compile(lambda x: x * 2); h(taper.ones(3))")
    out = run("cache", program=again, TAPER_CACHE="0")
    assert any("kernel cache hit: " in x and "runs the code of" in x for x in out), out


def test_components():
    for name, has, lacks in (("+dynamo", {"graph_code", "guards", "graph_breaks", "trace_source"}, {"aot_graphs", "output_code", "bytecode"}),
                             ("+aot", {"aot_graphs", "aot_joint_graph"}, {"graph_code", "guards"}),
                             ("+inductor", {"post_grad_graphs", None}, {"graph_code", "aot_graphs", "output_code"}),
                             ("+all", {"graph_code", "aot_graphs", "post_grad_graphs", None}, {"output_code", "kernel_code", "fusion", "ledger"})):
        seen = {a for a, _, _ in texts(name, only=False)}
        assert has <= seen and not lacks & seen, (name, seen)
    t = lines("inductor", only=False)
    assert "compiling graph __compiled_fn_1_forward" in t and any(re.match(r"__compiled_fn_1_forward: \d+ kernels, 1 product, 0 library calls", x) for x in t), t
    t = lines("dynamo", only=False)
    assert any(x.startswith("Step 1: capture starts with f ") for x in t) and any(x.startswith("Step 3: compiled") for x in t), t


def test_rank_stands_before_the_line():
    out = run("recompiles", RANK="2")
    assert out and all(x.startswith("[rank2]:V") for x in out), out


CONFIG = """
import taper, logging
cfg = taper._dynamo.config
{0}
@taper.compile
def g(x):
    y = x + 1
    print('between')
    return y * 2
g(taper.ones(3))
"""


def shown(setting, **env):
    return "\n".join(run(program=CONFIG.format(setting), **env))


def test_config_log_level():
    assert "Graph break in user code" in shown("cfg.log_level = logging.INFO")
    out = shown("cfg.log_level = logging.DEBUG")
    assert "Graph break in user code" in out and "TRACED GRAPH" in out
    assert shown("cfg.log_level = logging.WARNING") == ""
    assert shown("cfg.log_level = logging.INFO; cfg.log_level = logging.ERROR") == ""
    assert "Graph break" not in shown("cfg.log_level = logging.INFO", TAPER_LOGS="recompiles"), "the variable wins"


def test_config_debug_shows_graphs_and_guards():
    out = shown("cfg.debug = True")
    assert "TRACED GRAPH" in out and "GUARDS:" in out and "Graph break" not in out, out
    assert shown("with cfg.patch(debug=True): pass") == ""


def test_config_verbose_shows_the_instructions_before_a_break():
    head = "Most recent bytecode instructions traced (max 20):"
    assert head not in shown("cfg.log_level = logging.INFO")
    out = shown("cfg.log_level = logging.INFO; cfg.verbose = True")
    assert head in out and "TRACE BINARY_OP 0 [LazyVariableTracker(), ConstantVariable(int: 1)]" in out, out
    assert head in shown("cfg.log_level = logging.INFO", TAPER_VERBOSE="1")


def test_trace_call_underlines_the_expression():
    t = lines("trace_call")
    i = next(i for i, x in enumerate(t) if x.startswith("TRACE FX call sin from "))
    assert re.fullmatch(r"TRACE FX call sin from .*prog\.py:13 in f \(f\)", t[i]), t[i]
    assert t[i + 1] == "    y = taper.sin(x) + 1" and t[i + 2] == "        ~~~~~~~~~~~~", t[i:i + 3]
    i = next(i for i, x in enumerate(t) if x.startswith("TRACE inlined call inner from "))
    assert t[i + 1].endswith("taper.softmax(inner(y) @ w, -1) * y.sum()") and t[i + 2].strip() == "~" * len("inner(y)"), t[i:i + 3]
    assert t[i + 1][t[i + 2].index("~"):].startswith("inner(y)"), t[i:i + 3]
    first = [x.split()[3] for x in t if x.startswith("TRACE FX call ")][:6]
    assert first == ["sin", "y", "cos", "matmul", "softmax", "sum_1"] or len(set(first)) == len(first), first


def test_less_common_options():
    t = lines("graph_code_verbose")
    assert any("# source: \"L['x']\"" in x for x in t), t
    t = lines("inductor_metrics")
    assert re.fullmatch(r"__compiled_fn_1_forward: \d+ kernels?, \d+ products?, \d+ library calls?, \d+ values? fused, about \d+ bytes moved", t[0]), t[0]
    t = lines("trace_shape_events")
    assert "create_symbol s0 for L['x'].size()[0]" in t, t
    t = lines("sym_node")
    assert any(re.fullmatch(r"(add|mul) \[.*\] -> .*s0.*", x) for x in t), t
    assert lines("caching", only=False) == [] or any("hit" in x or "miss" in x for x in lines("caching", only=False))


with open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "custom_operators.py")) as program:
    SLOW = program.read() + """
f = taper.compile(lambda x: x.reshape(-1, x.shape[0] * 2)[:, :2] + taper.tensor([7 + 0.0625, 11 + 0.125]), dynamic=True)
f(taper.ones(2, 1, 4))
print('between')
"""


def records(d):
    """Metadata of the records of the one trace in d, by event (by name for artifacts), and the text of the file."""
    import glob
    (log,) = glob.glob(os.path.join(d, "*"))
    with open(log) as f:
        text = f.read()
    found = {}
    for line in text.splitlines():
        if not line.startswith("\t"):
            record = json.loads(line.split("] ", 1)[1])
            key = next(iter(record))
            found.setdefault(record[key]["name"] if key == "artifact" else key, []).append(record[key])
    return found, text


def test_records_of_a_detailed_trace():
    with tempfile.TemporaryDirectory() as d:
        run(program=SLOW, TAPER_DTRACE=d)
        found, text = records(d)
        assert found["missing_fake_kernel"][0] == {"op": "play::bare"}, found["missing_fake_kernel"]
        wrong = found["mismatched_fake_kernel"][0]
        assert wrong["op"] == "ops.play.twice" and wrong["reason"].endswith("returned f32[6][1]cpu but its shape function says f32[3][1]cpu"), wrong
        made = found["expression_created"]
        assert {"method", "result", "result_id", "arguments", "argument_ids", "user_stack", "stack"} == set(made[0]), made[0]
        two = next(e for e in made if e["result"] == "2*s0")
        assert two["method"] == "add" and two["arguments"] == ["2*s0"] and len(two["argument_ids"]) == 1, two
        assert "7.0625" not in text and "11.125" not in text, "what constants hold is data"
        script = re.findall(r'"fx_graph_runnable".*\n((?:\t.*\n)+)', text)[-1]
        path = os.path.join(d, "alone.py")
        with open(path, "w") as f:
            f.write("\n".join(x[1:] for x in script.splitlines()))
        p = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert p.returncode == 0, p.stdout


FIELDS = """
import taper
@taper.library.custom_op("play::same", mutates_args=())
def same(x: taper.Tensor) -> taper.Tensor:
    return x.clone()
@same.register_fake
def _(x):
    return taper.empty_like(x)
def f(x, w, v):
    y = same(x).sin() @ w + v
    print('between')
    return y.cos()
x = taper.ones(4, 3)
taper._dynamo.mark_dynamic(x, 0)
taper._dynamo.config.cache_size_limit = 5
taper.compile(f)(x, taper.nn.Parameter(taper.ones(3, 3)), taper.ones(9)[3:6])
def bad(gm, inputs):
    raise ValueError("not today")
@taper.compile(backend=bad)
def g(x):
    return x + 1
try:
    g(x)
except Exception:
    pass
"""


def test_fields_of_a_trace():
    """Flags of inputs; what a compile cost beside its stages; where it failed; settings and versions."""
    with tempfile.TemporaryDirectory() as d:
        run(program=FIELDS, TAPER_TRACE=d)
        found, _ = records(d)
        flags = {"is_leaf", "requires_grad", "is_parameter", "is_view", "dynamo_dynamic_indices"}
        x, w, v = ({k: t[k] for k in t if k in flags} for t in found["describe_tensor"][:3])
        assert x == {"is_leaf": True, "dynamo_dynamic_indices": [0]}, x
        assert w == {"is_leaf": True, "requires_grad": True, "is_parameter": True}, w
        assert v == {"is_leaf": True, "is_view": True}, v
        first, second, failed = found["compilation_metrics"]
        assert first["restart_reasons"] and 0 < first["dynamo_compile_time_before_restart_us"] < first["duration_us"], first
        assert abs(first["dynamo_time_before_restart_s"] * 1e6 - first["dynamo_compile_time_before_restart_us"]) <= 1, first
        assert second["dynamo_compile_time_before_restart_us"] == 0, second
        for m in (first, second):
            assert 0 < m["structured_logging_overhead_us"] < m["duration_us"], m
            assert m["pre_grad_pass_time_us"] == m["compile_time_autotune_time_us"] == 0, m
            assert 0 < m["joint_graph_pass_time_us"] <= m["aot_autograd_cumulative_compile_time_us"], m
            assert 0 <= m["post_grad_pass_time_us"] <= m["inductor_schedule_time_us"], m
            assert m["exception_stack_trace"] is None, m
        assert first["compliant_custom_ops"] == ["play::same"] and first["non_compliant_ops"] == [], first
        assert second["compliant_custom_ops"] == [], second
        stack = "".join(failed["exception_stack_trace"])
        assert "in bad" in stack and "ValueError: not today" in stack, stack
        assert failed["dynamo_compile_time_before_restart_us"] == failed["duration_us"], failed
        assert json.loads(first["dynamo_config"]) == {"cache_size_limit": 5}, first["dynamo_config"]
        assert json.loads(first["graph_node_shapes"])["l_w_"] == [3, 3] and json.loads(first["graph_node_shapes"])["l_x_"][1] == 3, first
        assert json.loads(first["inductor_config"])["emitter"] == "auto" and failed["inductor_config"] is None, first
        assert json.loads(first["compiler_config"])["force_disable_caches"] is False, first
        assert re.fullmatch(r'  File ".*prog\.py", line 16, in <module>\n    taper\.compile\(f\).*\n', first["stack_trace"][0]) and first["stack_trace"][-1].endswith("in f\n"), first
        for m in (first, second, failed):
            assert 0 <= m["gc_time_us"] < m["duration_us"] and m["inline_inbuilt_nn_modules_candidate"] is False, m
        assert first["python_version"] == sys.version and first["pytorch_version"] and first["config_suppress_errors"] is False, first


COLLECTS = """
import gc, taper
seen = []
@taper.compile
def f(x):
    seen.append(1)
    return x.sin() + 1
def collects(gm, inputs):
    gc.collect()
    return gm.forward
f(taper.ones(3))
heap = [[i] for i in range(100000)]
taper.compile(lambda x: x * 2, backend=collects)(taper.ones(3))
print('between')
"""


def test_garbage_that_is_collected_within_a_compile_has_its_time_told():
    """Also side effects; and in the detailed trace, where kernels come from."""
    with tempfile.TemporaryDirectory() as d:
        run(program=COLLECTS, TAPER_DTRACE=d)
        found, text = records(d)
        assert 100 < found["compilation_metrics"][1]["gc_time_us"] < found["compilation_metrics"][1]["duration_us"], found["compilation_metrics"]
        payload = {name: re.findall(rf'"artifact": {{"name": "{name}".*\n((?:\t.*\n)+)', text) for name in
                   ("dynamo_side_effects", "inductor_provenance_tracking_kernel_stack_traces", "inductor_provenance_tracking_node_mappings", "aot_forward_graph_fw_metadata")}
        assert payload["dynamo_side_effects"][0].strip() == "extend of G['seen']", payload
        places = json.loads(payload["inductor_provenance_tracking_kernel_stack_traces"][0])
        (kernel, lines), = places.items()
        assert "return x.sin() + 1" in lines[0] and "in f\n" in lines[0], places
        nodes = json.loads(payload["inductor_provenance_tracking_node_mappings"][0])
        assert nodes["cppCodeToPost"][kernel] and all(nodes["postToCppCode"][n] == [kernel] for n in nodes["cppCodeToPost"][kernel]), nodes
        assert "result 0: a value of the graph" in payload["aot_forward_graph_fw_metadata"][0], payload


BACKWARD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
    def forward(self, x):
        y = self.lin(x).exp()
        return y.sum() / y.numel()
net = Net()
torch.compile(net)(torch.ones(2, 3)).backward()
print('between')
"""


def test_gradients_have_the_lines_of_what_they_belong_to():
    """In the joint graph, in the backward graph and in its generated code. Graphs call the library as the program does."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "prog.py")
        with open(path, "w") as f:
            f.write(BACKWARD)
        env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_LOGS")}
        env.update(TORCH_LOGS="aot_graphs,aot_joint_graphs,output_code,post_grad_graphs", TAPER_LOGS_FORMAT="%(message)s", TAPER_CACHE="0")
        p = subprocess.run([sys.executable, "-m", "taper", path], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        assert p.returncode == 0 and p.stdout == "between\n", p.stderr
    text = p.stderr
    assert "taper." not in re.sub(r"Output code.*?(?=TRACED GRAPH|AFTER POST|$)", "", text, flags=re.S), text
    joint = text.split("===== Joint graph")[1].split("TRACED GRAPH")[0]
    assert "No stacktrace found" not in joint and joint.count("code: y = self.lin(x).exp()") >= 2, joint
    backward = text.split("===== Backward graph")[1].split("TRACED GRAPH")[0].split("Output code")[0]
    for line in ("code: return y.sum() / y.numel()", "code: y = self.lin(x).exp()"):
        assert line in backward, backward
    steps = text.split("The steps of __compiled_fn_1_backward")[1]
    assert "prog.py:8 y = self.lin(x).exp()" in steps, steps[:1500]


MODULES = """
import taper
class Net(taper.nn.Module):
    def forward(self, x):
        return x.sin()
class Other(Net):
    def forward(self, x):
        return x.cos() + 1
for m in (Net(), Other()):
    c = taper.compile(m, dynamic=False)
    c(taper.ones(3))
c(taper.ones(4))
print('between')
"""


def test_compiled_modules_are_named_by_their_class():
    """They are all called through one function of the library, which tells nobody anything."""
    text = "\n".join(run("dynamo,recompiles,ledger", MODULES))
    assert re.search(r"Step 1: capture starts with Net\.forward .*prog\.py:4$", text, re.M), text
    assert re.search(r"Step 1: capture starts with Other\.forward .*prog\.py:7$", text, re.M), text
    assert re.search(r"Recompiling function Other\.forward in .*prog\.py:7$", text, re.M), text
    assert re.search(r"Net\.forward \(.*prog\.py:4\) \[0/0\]: compiled, 1 op, ran 1 time$", text, re.M), text
    with tempfile.TemporaryDirectory() as d:
        run(program=MODULES, TAPER_TRACE=d)
        found, _ = records(d)
        assert [m["co_name"] for m in found["compilation_metrics"]] == ["Net.forward", "Other.forward", "Other.forward"], found["compilation_metrics"]
        assert {m["co_name"] for m in found["compilation_metrics_runtime"]} == {"Net.forward", "Other.forward"}
        assert [s["stack"][-1]["name"] for s in found["dynamo_start"]] == ["Net.forward", "Other.forward", "Other.forward"], found["dynamo_start"]


def test_nothing_is_counted_in_the_wrong_number():
    text = run("all,graph_breaks,recompiles,schedule,perf_hints,inductor_metrics,ledger,cache,bytecode,fusion", PROGRAM)
    text = "\n".join(text)
    wrong = re.findall(r".*\b1 (?:kernels|graphs|products|library calls|values|nodes|operators|guards|inputs|outputs|results|entries|times|ops|checks|compiles)\b.*", text)
    assert not wrong, wrong[:5]


def test_taper_logs_lists_every_option():
    def cli(*args):
        p = subprocess.run([TAPER, "logs", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return p.returncode, p.stdout
    rc, out = cli()
    assert rc == 0 and 'Example: TAPER_LOGS="+dynamo,graph_breaks" python program.py' in out, out
    names = "all dynamo aot inductor dynamic cache graph_code graph_sizes trace_bytecode trace_source bytecode guards recompiles " \
            "recompiles_verbose aot_graphs aot_joint_graphs output_code kernel_code schedule perf_hints fusion graph_breaks ledger".split()
    for n in names:
        assert re.search(rf"^[ *]{{2,3}}{n} +\S", out, re.M), n
        rc, one = cli(n)
        assert rc == 0 and one.startswith(n + ": ") and f"python program.py" in one, one
    rc, out = cli("nonsense")
    assert rc == 2 and "there is no log option 'nonsense'" in out, out


# sanitize: skip
