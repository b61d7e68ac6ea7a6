"""Every record, artifact and metrics field of PyTorch's structured trace is written, or docs/logging.md says why not."""
import glob, json, os, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# What PyTorch writes, by the names its readers know.
RECORDS = """str dynamo_start dynamo_output_graph dynamo_guards dynamo_cpp_guards_str create_symbol create_unbacked_symbol
symbolic_shape_specialization guard_added_fast guard_added propagate_real_tensors propagate_real_tensors_provenance expression_created
guard_on_data_dependent_error missing_fake_kernel mismatched_fake_kernel describe_storage describe_tensor describe_source aot_joint_graph
aot_forward_graph aot_backward_graph aot_inference_graph inductor_post_grad_graph inductor_pre_grad_graph inductor_output_code graph_dump
optimize_ddp_split_graph optimize_ddp_split_child compiled_autograd_graph compilation_metrics bwd_compilation_metrics
compilation_metrics_runtime chromium_event dump_file link artifact""".split()
KEYS = {
    "dynamo_start": "stack", "dynamo_output_graph": "sizes", "create_symbol": "symbol val vr source user_stack stack",
    "create_unbacked_symbol": "symbol node_id vr user_stack stack",
    "symbolic_shape_specialization": "symbol sources value reason stack user_stack", "guard_added_fast": "expr user_stack stack",
    "guard_added": "expr prefix expr_node_id user_stack stack symbol_to_sources frame_locals",
    "expression_created": "method result result_id arguments argument_ids user_stack stack",
    "guard_on_data_dependent_error": "expr unhinted_expr expr_id stack", "missing_fake_kernel": "op", "mismatched_fake_kernel": "op reason",
    "describe_storage": "id describer_id size",
    "describe_tensor": "id describer_id ndim dtype device size stride storage storage_offset layout",
    "describe_source": "describer_id id source", "inductor_output_code": "filename", "graph_dump": "name type", "artifact": "name encoding",
}
ARTIFACTS = """fx_graph_runnable recompile_reasons dynamo_graph_break_reason dynamo_error dynamo_side_effects before_pre_grad_graph
after_pre_grad_graph before_joint_graph after_joint_graph before_post_grad_graph inductor_post_grad_graph <pass>_pre_grad <pass>_post_grad
fx_graph_cache_hit fx_graph_cache_miss fx_graph_cache_bypass fx_graph_bundled_cache_hit aotautograd_cache_hit aotautograd_cache_miss
aotautograd_cache_bypass aotautograd_cache_pickle_failure dynamo_cache_entries dynamo_cache_bypass dynamo_cache_exception
precompile_cache_bypass torch._functorch.config aot_forward_graph_fw_metadata aot_forward_graph_fw_subclass_metadata
aot_saved_tensors_hooks_graphs eager_compile_backwards_failure fx_interpreter_error make_fx_fail_partial min_cut_information
min_cut_failed_fx_graph min_cut_failed_edge_list min_cut_failed_svg before_activation_quantization_fwd_aten_pass
after_activation_quantization_fwd_aten_pass before_activation_quantization_bwd_aten_pass after_activation_quantization_bwd_aten_pass
inductor_provenance_tracking_node_mappings inductor_provenance_tracking_kernel_stack_traces inductor_autotune_at_compile_time_code
triton_kernel_info inductor_runtime_and_tensor_meta graph_execution inductor_collective_schedule get_local_code_state put_local_code_state
get_remote_code_state put_remote_code_state compiled_autograd_compile_reasons compiled_autograd_graph_pre_reordering fusion_regions_before
fusion_regions_after""".split()
FIELDS = """compile_id frame_key co_name co_filename co_firstlineno is_forward is_runtime stack_trace log_format_version cache_size
accumulated_cache_size recompile_reason recompile_user_contexts inline_inbuilt_nn_modules_candidate guard_count shape_env_guard_count
graph_op_count graph_node_count graph_input_count graph_node_shapes has_guarded_code num_graph_breaks ir_count param_numel param_bytes
param_count guard_latency_us fail_type fail_reason fail_user_frame_filename fail_user_frame_lineno exception_stack_trace restart_reasons
non_compliant_ops compliant_custom_ops start_time entire_frame_compile_time_s backend_compile_time_s inductor_compile_time_s
code_gen_time_s dynamo_time_before_restart_s remote_cache_time_saved_s structured_logging_overhead_s start_time_us end_time_us
duration_us dynamo_cumulative_compile_time_us aot_autograd_cumulative_compile_time_us inductor_cumulative_compile_time_us
inductor_code_gen_cumulative_compile_time_us backward_cumulative_compile_time_us pre_grad_pass_time_us joint_graph_pass_time_us
post_grad_pass_time_us triton_compile_time_us triton_kernel_compile_times_us compile_time_autotune_time_us runtime_cudagraphify_time_us
runtime_triton_autotune_time_us dynamo_compile_time_before_restart_us distributed_ephemeral_timeout_us structured_logging_overhead_us
gc_time_us pgo_get_remote_code_state_time_us pgo_put_remote_code_state_time_us inductor_fx_local_cache_hit_count
inductor_fx_local_cache_miss_count inductor_fx_remote_cache_hit_count inductor_fx_remote_cache_miss_count inductor_fx_local_cache_hit_keys
inductor_fx_local_cache_miss_keys inductor_fx_remote_cache_hit_keys inductor_fx_remote_cache_miss_keys aotautograd_local_cache_hit_count
aotautograd_local_cache_miss_count aotautograd_remote_cache_hit_count aotautograd_remote_cache_miss_count
remote_fx_graph_cache_get_time_ms remote_fx_graph_cache_put_time_ms remote_fx_graph_cache_get_time_us remote_fx_graph_cache_put_time_us
remote_cache_version inductor_fx_remote_cache_backend_type num_triton_bundles dynamo_config inductor_config compiler_config
config_suppress_errors config_inline_inbuilt_nn_modules specialize_float tensorify_float_attempt tensorify_float_success
tensorify_float_failure feature_usage cudagraph_skip_reason inductor_provenance cuda_version triton_version python_version
pytorch_version""".split()

PROGRAMS = {
    "training": """
class Net(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = taper.nn.Linear(4, 8), taper.nn.Linear(8, 2)
    def forward(self, x):
        return self.b(taper.relu(self.a(x)))
net = Net()
step = taper.compile(lambda x: net(x).pow(2).mean())
for _ in range(3):
    step(taper.ones(5, 4)).backward()
""",
    "breaks": """
seen = []
@taper.compile
def f(x):
    y = x + 1
    seen.append(1)
    print('between')
    y = y * 2
    if y.sum() > 0:
        y = y - 1
    return y * 3
f(taper.ones(3)); f(-taper.ones(3))
""",
    "recompiles": """
where = ["warm up"]
taper._dynamo.register_hook_for_recompile_user_context(lambda: where[0])
taper._dynamo.register_hook_for_recompile_user_context(lambda: "x" * 1000)
@taper.compile
def f(x, y):
    if x.shape[0] > 2:
        return (x + y).reshape(-1, x.shape[0] * 2)
    return x - y
x = taper.ones(6, 4)
f(x[:3], x[3:])
where[0] = "epoch 7"
f(taper.ones(5, 4), taper.ones(5, 4))
taper._dynamo.reset_recompile_user_contexts()
f(taper.ones(2, 4), taper.ones(2, 4))
g = taper.compile(lambda x: x + taper.ones(4), dynamic=True)
g(taper.ones(4))
taper._dynamo.config.automatic_dynamic_shapes = False
h = taper.compile(lambda x: x - 1)
h(taper.ones(3)); h(taper.ones(4))
""",
    "data decides": """
taper._dynamo.config.capture_scalar_outputs = True
taper._dynamo.config.dynamic_sources = "L['n']"
taper._dynamo.config.capture_dynamic_output_shape_ops = True
taper.compile(lambda x: x.nonzero() + 1)(taper.ones(3))
@taper.compile(fullgraph=True)
def h(x):
    if x.sum().to(taper.int64).item() > 2:
        return x + 1
    return x - 1
try:
    h(taper.ones(3))
except taper._dynamo.exc.Unsupported:
    pass
""",
    "failures": """
def bad(gm, inputs):
    raise RuntimeError("not today")
w = taper.ones(3, requires_grad=True)
@taper.library.custom_op("play::same", mutates_args=())
def same(x: taper.Tensor) -> taper.Tensor:
    return x.clone()
@same.register_fake
def _(x):
    return taper.empty_like(x)
def backward(ctx, g):
    raise ValueError("no derivative today")
same.register_autograd(backward)
def singular(x):
    return taper.linalg.cholesky(x) + 1
for f, x in ((taper.compile(lambda x: x + 1, backend=bad), w), (taper.compile(lambda x: same(x).sum()), w), (taper.compile(singular), -taper.eye(3))):
    try:
        f(x)
        raise SystemExit("did not fail")
    except (taper._dynamo.exc.BackendCompilerFailed, taper.linalg.LinAlgError):
        pass
""",
    "custom operators": open(os.path.join(ROOT, "tests", "programs", "custom_operators.py")).read() + """
taper.compile(lambda x: bare(x + 1) * 2)(taper.ones(3))
""",
    "autotuning": """
taper.compile(lambda x, y: (x @ y).sin().t().contiguous() + 1, options={"max_autotune": True, "autotune_seconds": "none"})(taper.ones(64, 64), taper.ones(64, 64))
""",
    "cached": """
for _ in range(2):
    taper._dynamo.reset()
    taper.compile(lambda x: x.sin() * 3)(taper.ones(3))
""",
    "saved": """
taper._dynamo.config.repro_after = "dynamo"
taper._dynamo.config.debug_dir_root = DIR
try:
    taper.compile(lambda x: taper.nn.functional.relu(x + 1) * 2, backend="relu_compile_error_TESTING_ONLY")(taper.ones(3))
except Exception:
    pass
""",
}


def run(name, cache):
    """[(record, name, metadata, payload)] of the detailed trace of a program."""
    with tempfile.TemporaryDirectory() as d:
        script = os.path.join(d, "play.py")
        with open(script, "w") as f:
            f.write("import taper\n" + PROGRAMS[name].replace("DIR", repr(d)))
        env = dict(os.environ, TAPER_DTRACE=os.path.join(d, "t"), TAPER_CACHE="1", TAPER_CACHE_DIR=cache)
        p = subprocess.run([sys.executable, script], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert p.returncode == 0, (name, p.stdout)
        out = []
        for log in glob.glob(os.path.join(d, "t", "*")):  # children write their own
            with open(log) as f:
                for line in f.read().splitlines():
                    if line.startswith("\t"):
                        out[-1][3].append(line[1:])
                    elif line:
                        record = json.loads(line.split("] ", 1)[1])
                        key = next(iter(record))
                        out.append((name, key, record, []))
        return out


def all_records(kept=[]):
    if not kept:
        with tempfile.TemporaryDirectory() as cache:
            kept.extend([r for name in PROGRAMS for r in run(name, cache)])
    return kept


def section(head, stop):
    with open(os.path.join(ROOT, "docs", "logging.md")) as f:
        text = f.read()
    return text[text.index(head):text.index(stop, text.index(head))]


def names(head, stop, column=0):
    """Names in the first (or another) column of the table behind a heading."""
    rows = [r.split("|")[1:-1] for r in section(head, stop).splitlines() if r.startswith("| ") and not r.startswith("| ---")]
    return {n for r in rows for n in re.findall(r"`([^`]+)`", r[column])}


def test_records():
    seen = {key for _, key, _, _ in all_records()}
    told = names("| record | | what |", "Names of `artifact` records")
    absent = names("Records that PyTorch writes and Taper does not", "## Environment")
    assert seen == told, (seen ^ told)
    assert set(RECORDS) == (told | absent) & set(RECORDS) and not told & absent, set(RECORDS) - told - absent
    for _, key, record, _ in all_records():
        assert set(KEYS.get(key, "").split()) <= set(record[key]), (key, record)


def test_artifacts():
    found = {}
    for _, key, record, payload in all_records():
        if key == "artifact":
            found.setdefault(record[key]["name"], []).append((record[key]["encoding"], "\n".join(payload)))
    told = names("Names of `artifact` records", "Fields of `compilation_metrics` (and")
    absent = names("Artifacts that PyTorch writes", "Fields of `compilation_metrics` that PyTorch")
    assert set(found) == told, set(found) ^ told
    assert set(ARTIFACTS) <= told | absent and not told & absent, (set(ARTIFACTS) - told - absent, told & absent)
    for name, payloads in found.items():
        for encoding, text in payloads:
            assert text, name
            if encoding == "json":
                json.loads(text)
    reasons = [json.loads(t) for _, t in found["recompile_reasons"]]
    assert ["0/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 5"] in reasons, reasons
    assert any(len(r) == 2 and r[0].startswith("0/1: ") and r[1].startswith("0/0: ") for r in reasons), reasons
    orders = [[x["compile_id"] for x in json.loads(t)["graph_execution_order"]] for _, t in found["graph_execution"]]
    assert ["0/0", "1/0", "2/0", "0/0", "1/0", "3/0"] in orders, "of the program with breaks, which takes another way in its second call"
    partial = found["make_fx_fail_partial"][0][1]
    assert "taper.ops.play.same(primals_1)" in partial and "tangents_1" in partial, partial
    failed = found["fx_interpreter_error"][0][1]
    assert failed.startswith("LinAlgError: ") and "While executing the graph of singular\n" in failed and "taper.linalg.cholesky(l_x_)" in failed, failed
    before, after = ([t for _, t in found[n]] for n in ("before_joint_graph", "after_joint_graph"))
    assert len(before) == len(after) and before != after and any("tangents_1" in t for t in before), "decomposed in between"
    assert any(".mm(" in t for _, t in found["before_post_grad_graph"]), "the graph that kernels are made of"


def metrics():
    return [(name, key, record[key]) for name, key, record, _ in all_records() if key in ("compilation_metrics", "bwd_compilation_metrics")]


def test_fields_of_metrics():
    seen = {f for _, _, m in metrics() for f in m}
    told = names("Fields of `compilation_metrics` (and", "Artifacts that PyTorch writes", column=1) - {"taper._dynamo.register_hook_for_recompile_user_context", "TAPER_DTRACE"}
    absent = names("Fields of `compilation_metrics` that PyTorch", "Records that PyTorch writes") - {"fx_graph_cache_*", "inductor_code_gen_cumulative_compile_time_us"}
    assert seen == told, seen ^ told
    assert set(FIELDS) <= told | absent and not told & absent, (set(FIELDS) - told - absent, told & absent)
    nothing = {"cuda_version", "triton_version", "is_runtime", "log_format_version", "pre_grad_pass_time_us", "inline_inbuilt_nn_modules_candidate",
               "config_inline_inbuilt_nn_modules", "config_suppress_errors", "specialize_float", "python_version", "pytorch_version"}  # the same everywhere
    for field in seen - nothing:
        assert len({json.dumps(m.get(field)) for _, _, m in metrics()}) > 1, f"{field} never says anything"


def test_values_of_fields():
    of = {}
    for name, key, m in metrics():
        if key == "compilation_metrics":
            of.setdefault(name, []).append(m)
    first, second, third, *_ = of["recompiles"]
    assert first["recompile_user_contexts"] is None and first["recompile_reason"] is None, first
    assert second["recompile_user_contexts"] == ["epoch 7", "x" * 256], second["recompile_user_contexts"]
    assert second["recompile_reason"] == "0/0: tensor 'L['x']' size mismatch at index 0. expected 3, actual 5", second
    assert third["recompile_user_contexts"] is None and third["recompile_reason"].startswith("0/1: "), third
    auto = "dynamo.automatic_dynamic_shapes"
    assert first["feature_usage"] == {"fx_cache": True}, first["feature_usage"]
    assert second["feature_usage"][auto] is True and of["recompiles"][-1]["feature_usage"][auto] is False, [m["feature_usage"] for m in of["recompiles"]]
    assert of["cached"][0]["feature_usage"]["fx_cache"] is True
    assert of["failures"][-2]["feature_usage"]["fx_cache"] is False, "custom operators keep a graph out of the disk cache"
    assert [m["aotautograd_local_cache_hit_count"] for m in of["cached"]] == [0, 1], of["cached"]
    places = json.loads(of["cached"][0]["inductor_provenance"][0])
    ((kernel, lines),) = places.items()
    assert kernel.startswith("k0_fused") and "x.sin() * 3" in lines[0], places
    assert any(m["non_compliant_ops"] == ["play::bare"] for m in of["custom operators"]), [m["non_compliant_ops"] for m in of["custom operators"]]
    for m in of["failures"] + of["data decides"]:
        if m["fail_type"]:
            assert m["exception_stack_trace"] and m["fail_type"] in "".join(m["exception_stack_trace"]), m


def test_stacks_and_storages():
    """user_stack is the program's alone; inputs that share memory share a storage; guards tell what the locals are."""
    by = {}
    for name, key, record, _ in all_records():
        by.setdefault((name, key), []).append(record[key])
    (unbacked,) = by["data decides", "create_unbacked_symbol"][:1]
    assert [f["name"] for f in unbacked["user_stack"]] == ["<lambda>"], unbacked
    assert len(unbacked["stack"]) > 1 and unbacked["stack"][0] == unbacked["user_stack"][0], unbacked
    a, b = by["recompiles", "describe_tensor"][:2]
    assert a["storage"] == b["storage"] == a["id"] and b["storage_offset"] == 12, (a, b)
    assert [s["id"] for s in by["recompiles", "describe_storage"]][0] == a["id"] and len(by["recompiles", "describe_storage"]) < len(by["recompiles", "describe_tensor"])
    guard = by["recompiles", "guard_added"][0]["frame_locals"]
    assert guard["loc"] == "if x.shape[0] > 2:" and guard["locals"]["x"] == "f32[s0, 4][4, 1]cpu" and guard["symbols"] == {"s0": "L['x'].size()[0]"}, guard


def test_a_hook_that_fails_does_not_stop_the_compile():
    program = """
import taper
def hook():
    raise ValueError("nobody knows")
taper._dynamo.register_hook_for_recompile_user_context(hook)
f = taper.compile(lambda x: x + 1, dynamic=False)
f(taper.ones(3))
assert f(taper.ones(4)).sum() == 8
try:
    taper._dynamo.register_hook_for_recompile_user_context("where")
except TypeError as e:
    print(e)
"""
    p = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 0 and "nobody knows" in p.stderr, p.stderr
    assert p.stdout == "register_hook_for_recompile_user_context takes a function, not a str\n", p.stdout
