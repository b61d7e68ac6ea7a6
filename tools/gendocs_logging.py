#!/usr/bin/env python3
"""Writes docs/logging.md from the tables src/events/events.def and src/base/envvars.def."""
import os, re

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ev, en = open('src/events/events.def').read(), open('src/base/envvars.def').read()
comps = re.findall(r'^EV_COMPONENT\((\w+),\s*(.*?),\s*"(.*?)"\)', ev, re.M)
evs = re.findall(r'^EV\((\w+),\s*(\w+),\s*(\w),\s*(.*?),\s*"(.*?)"\)', ev, re.M)
envs = re.findall(r'^ENV\((\w+),\s*"(.*?)",\s*"(.*?)",\s*(?:\w+|INT\(.*?\)),\s*"(.*?)"\)', en, re.M)
o = []
o.append('''# Logs, traces and environment variables

Everything worth knowing about a compile is emitted once, as an event (`src/events/`). Two readers exist: lines of
text for people (`TAPER_LOGS`) and a trace file for tools (`TAPER_TRACE`). When nobody listens an event costs one
byte load. The names below are the rows of `src/events/events.def` and `src/base/envvars.def`; a test holds this
page against them.

## Text: `TAPER_LOGS`

```
TAPER_LOGS="+dynamo,aot,graph_breaks" python program.py
```
Items are separated by commas (spaces only after a comma). A **component** takes a level: `+name` debug, `name` info,
`-name` errors only; `all` is all of them. An **artifact** is one kind of message and is on when named (a sign before
it is ignored). Artifacts that are not marked *off* also show when their component's level reaches theirs.
`TAPER_LOGS=help` prints the common names, `+help` all of them; a name that does not exist is an error that lists the
valid ones. `taper logs` lists the names, `taper logs NAME` shows what one of them prints.

From Python: `taper._logging.set_logs(graph_breaks=True, dynamo=logging.DEBUG)`; the environment variable wins over it
(from C: `ev_set_logs`). `taper._dynamo.config.log_level = logging.INFO` shows graph breaks and what capture does,
`config.debug = True` each graph and its guards, `config.verbose = True` (`TAPER_VERBOSE=1`) the instructions that were
traced before a graph break.

Each line, also of a longer message, begins like this:
```
V1115 10:20:30.123456 4711 front/trace.c:12] [0/1] [__graph_breaks] text
```
level (V debug, I info, W warning, E error, C critical), month and day, time, process, place in Taper's source; then
the compile id when in a compile (`frame/compile`, `_attempt` when it was restarted) and the artifact. In a distributed
run (`RANK` is set) `[rank0]:` stands before it.

A message that names one place of the program names the innermost frame outside Taper's own package: the line
`y = self.layer(x)`, not the line of `taper/nn` that it leads to (the innermost of all where the whole stack is Taper's).
That holds for graphs, generated code, guards, breaks, errors and what is saved of a failure. Stacks are whole: under
`User code traceback`, in trace records and in saved graphs. Source files are read when a line of them is shown.

### Components
| name | what |
| --- | --- |
| `all` | everything |''')
for n, _, h in comps:
    o.append(f'| `{n}` | {h} |')
o.append('''
### Artifacts
| name | component | level | | what |
| --- | --- | --- | --- | --- |''')
lv = {'D':'debug','I':'info','W':'warning'}
for n, c, l, f, h in evs:
    if 'EVF_log' in f and 'EVF_none' not in f:
        o.append(f"| `{n}` | {c} | {lv[l]} | {'off' if 'EVF_off' in f else ''} | {h} |")
o.append('''
These names are accepted, because programs written for PyTorch use them, and nothing comes of them:

| name | why |
| --- | --- |''')
for n, c, l, f, h in evs:
    if 'EVF_log' in f and 'EVF_none' in f:
        o.append(f"| `{n}` | {h} |")
o.append('''
## Trace: `TAPER_TRACE`

`TAPER_TRACE=DIR` writes one file a process, `DIR/dedicated_log_taper_trace_<random>.log`, made at the first call of
`compile()` or at the first record; a forked child writes its own. A record is in the file as soon as its text is made, so a
killed process loses at most the record it was making. The file is mapped, with room for records to come, which is filled with empty
lines; they are cut off at the end, or stay (1 MiB at most) where a process is killed, and readers skip them. A digest of zeros stands where the
process ended before it was computed. Who empties the file of a running program, as is done to logs, finds the records from then on in it.
Large records (graphs, guards, generated code) are made by a thread of their own, one at a time, while the compile goes on. One that
would have to wait for the one before is put off to a fixed place in the next stage. When the call that compiled returns, all are in
the file; a process that crashes lets the thread finish first. `bench/trace.py` measures what that costs: on the
training step of its GPT tracing adds 1.3, 1.4 and 1.8 % to the first compile in a process (6.1 to 6.3 ms; the best of 24 processes, three runs, on a quiet two-core
virtual machine; by the median of pairs 2.7 to 5.5 %) and 1.3, 3.0 and 4.1 % to compiles after that (4.7 to 5.1 ms; means of 24 pairs, give or take 0.5 to 1.0). The compiling
thread clocks 0.07 to 0.08 ms for records and waiting; the thread that writes executes 10 million instructions. The small GPT of the tests, which compiles in 4.2 ms and hardly
runs, takes 1.7 to 3.0 % more at first and 5 to 9 % afterwards. On a machine whose processors share cores with others, first compiles took 2 to 5 % more, and later
ones up to 11 %.
Where no core is free for that thread, the compile takes longer by both.
A record is a line with the prefix above and a JSON object, then the payload, each line after a tab:
```
V1115 10:20:30.123456 4711 front/trace.c:12] {"dynamo_output_graph": {"sizes": {}}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "<md5>"}
<TAB>def forward(self, ...):
```
The format is the one `tlparse` reads; `taper report` makes a page of it ([report.md](report.md)). In a distributed run the
name holds the rank (`..._trace_rank_<r>_<random>.log`). File names in stacks are numbers announced by `str` records. The trace holds
the program's source, never tensor data. `TAPER_DTRACE=DIR` adds the records marked *slow*.

| record | | what |
| --- | --- | --- |''')
for n, c, l, f, h in evs:
    if 'EVF_trace' in f and 'EVF_none' not in f:
        o.append(f"| `{n}` | {'slow' if 'EVF_slow' in f else ''} | {h} |")
o.append('''
Names of `artifact` records, beside the record of its compile:

| artifact | | what |
| --- | --- | --- |
| `dynamo_graph_break_reason` | | where and why the graph ended, and what helps |
| `dynamo_error` | | the exception that a compile ended in |
| `dynamo_side_effects` | | mutations replayed after the graph |
| `recompile_reasons` | | JSON list, `0/1: guard that failed`, the newest version first |
| `automatic_dynamic` | | the size or number that changed between calls and becomes a symbol |
| `aotautograd_cache_hit`, `aotautograd_cache_miss`, `aotautograd_cache_bypass` | | the disk cache: whole graphs, and why not |
| `fx_graph_cache_hit`, `fx_graph_cache_miss` | | the kernels of a graph, each found or not |
| `fusion` | | pairs of values considered for fusion, and why or why not |
| `schedule` | slow | what runs, in order; the generated code begins with the same list in other words |
| `memory` | | JSON: the steps of a compiled graph, and each value that has memory of its own with its bytes and the steps at which it is alive |
| `source` | | JSON: a function that is traced (file, first line, lines), once a file of the trace; outside of compiles |
| `perf_hints` | | what keeps the program from being faster |
| `autotune_choice` | | the forms of a step that were measured, and the one taken |
| `repro` | | the directory a failing graph was saved in |
| `make_fx_fail_partial` | | the joint graph as far as it came when making it failed |
| `fx_interpreter_error` | | a graph that failed while it ran: the exception and the graph |
| `ledger` | | what ran compiled and what did not, when the program ends |
| `graph_execution` | | the first 10000 runs of compiled code in their order, when the program ends |
| `fx_graph_runnable` | slow | the captured graph as a script that runs alone, on random numbers |
| `rewrites` | slow | the rewrites of a graph one by one: the graph, then for each rewrite the lines that came in place of others |
| `before_joint_graph`, `after_joint_graph` | slow | the graph around the rewrites of the joint graph |
| `aot_forward_graph_fw_metadata` | slow | what the forward graph writes and returns |
| `min_cut_information` | slow | what forward keeps for backward |
| `before_post_grad_graph` | slow | the graph before the rewrites that follow gradients (after them: `inductor_post_grad_graph`) |
| `inductor_provenance_tracking_kernel_stack_traces` | slow | the lines of the program that each kernel comes from |
| `inductor_provenance_tracking_node_mappings` | slow | which kernel computes which value |

Fields of `compilation_metrics` (and of `bwd_compilation_metrics`, where what only capture knows is null):

| | fields |
| --- | --- |
| identity | `compile_id`, `frame_key`, `co_name`, `co_filename`, `co_firstlineno`, `is_forward`, `is_runtime`, `stack_trace`, `log_format_version` |
| cache | `cache_size`, `accumulated_cache_size`, `recompile_reason`, `recompile_user_contexts` (what hooks of `taper._dynamo.register_hook_for_recompile_user_context` said), `inline_inbuilt_nn_modules_candidate` |
| graph | `guard_count`, `shape_env_guard_count`, `graph_op_count`, `graph_node_count`, `graph_input_count`, `graph_node_shapes`, `has_guarded_code`, `num_graph_breaks`, `param_numel`, `param_bytes`, `param_count`, `guard_latency_us` |
| program | `ir_count` (steps), `kernel_count`, `library_call_count`, `fused_value_count`, `kernel_code_bytes`, `bytes_moved`, `inductor_provenance` (under `TAPER_DTRACE`) |
| failure | `fail_type`, `fail_reason`, `fail_user_frame_filename`, `fail_user_frame_lineno`, `exception_stack_trace`, `restart_reasons`, `non_compliant_ops` (custom operators without a shape function), `compliant_custom_ops` |
| seconds | `start_time`, `entire_frame_compile_time_s`, `backend_compile_time_s`, `inductor_compile_time_s`, `code_gen_time_s`, `dynamo_time_before_restart_s`, `structured_logging_overhead_s` |
| microseconds | `start_time_us`, `end_time_us`, `duration_us`, `dynamo_cumulative_compile_time_us`, `bytecode_tracing_time_us`, `guard_build_time_us`, `backend_compile_time_us`, `aot_autograd_cumulative_compile_time_us`, `inductor_cumulative_compile_time_us`, `inductor_schedule_time_us`, `inductor_code_gen_cumulative_compile_time_us`, `backward_cumulative_compile_time_us` (backward only), `pre_grad_pass_time_us` (0: there are none), `joint_graph_pass_time_us`, `post_grad_pass_time_us`, `compile_time_autotune_time_us`, `dynamo_compile_time_before_restart_us`, `structured_logging_overhead_us`, `gc_time_us` |
| caches | `inductor_fx_local_cache_hit_count`, `inductor_fx_local_cache_miss_count` (kernels), `aotautograd_local_cache_hit_count`, `aotautograd_local_cache_miss_count` (the disk cache) |
| surroundings | `feature_usage` (was the disk cache asked; did sizes become symbols by themselves), `dynamo_config`, `inductor_config`, `compiler_config`, `config_suppress_errors`, `config_inline_inbuilt_nn_modules`, `specialize_float`, `python_version`, `pytorch_version` (Taper's), `cuda_version` and `triton_version` (null) |

Artifacts that PyTorch writes and Taper does not:

| artifact | why |
| --- | --- |
| `before_pre_grad_graph`, `after_pre_grad_graph`, `<pass>_pre_grad` | no pass runs before gradients |
| `<pass>_post_grad` | `graph_dump` tells each pass |
| `inductor_post_grad_graph` | a record of its own |
| `fx_graph_cache_bypass`, `fx_graph_bundled_cache_hit` | kernels are always looked for, in this process; whole graphs lie on disk (`aotautograd_cache_*`) |
| `aotautograd_cache_pickle_failure` | what cannot be written down is known before: `aotautograd_cache_bypass` |
| `dynamo_cache_entries`, `dynamo_cache_bypass`, `dynamo_cache_exception`, `precompile_cache_bypass` | captures are not kept on disk; `taper.export` writes files of its own |
| `torch._functorch.config` | the autograd stage has no settings of its own (`inductor_config` holds the options) |
| `aot_forward_graph_fw_subclass_metadata` | the graph ends before a tensor of a subclass with rules of its own |
| `aot_saved_tensors_hooks_graphs` | hooks on saved tensors are called with what the graph keeps, and are not compiled |
| `eager_compile_backwards_failure` | backward is compiled when it is first needed, and its failure is raised there |
| `min_cut_failed_fx_graph`, `min_cut_failed_edge_list`, `min_cut_failed_svg` | there is always a cut: everything can be kept |
| `before_activation_quantization_fwd_aten_pass`, `after_activation_quantization_fwd_aten_pass`, `before_activation_quantization_bwd_aten_pass`, `after_activation_quantization_bwd_aten_pass` | saved values are not quantised |
| `inductor_autotune_at_compile_time_code`, `triton_kernel_info` | there is no Triton; `autotune_choice` tells what was measured |
| `inductor_runtime_and_tensor_meta` | times are measured, not estimated (`compilation_metrics_runtime`); `graph_node_shapes` tells the shapes |
| `inductor_collective_schedule` | nothing is communicated |
| `get_local_code_state`, `put_local_code_state`, `get_remote_code_state`, `put_remote_code_state` | which sizes change is learnt anew in each process |
| `compiled_autograd_compile_reasons`, `compiled_autograd_graph_pre_reordering` | backward passes are compiled with their forward pass |
| `fusion_regions_before`, `fusion_regions_after` | `fusion` and `schedule` tell it |

Fields of `compilation_metrics` that PyTorch writes and Taper does not:

| field | why |
| --- | --- |
| `remote_cache_time_saved_s`, `inductor_fx_remote_cache_hit_count`, `inductor_fx_remote_cache_miss_count`, `inductor_fx_remote_cache_hit_keys`, `inductor_fx_remote_cache_miss_keys`, `inductor_fx_remote_cache_backend_type`, `aotautograd_remote_cache_hit_count`, `aotautograd_remote_cache_miss_count`, `remote_fx_graph_cache_get_time_ms`, `remote_fx_graph_cache_put_time_ms`, `remote_fx_graph_cache_get_time_us`, `remote_fx_graph_cache_put_time_us`, `remote_cache_version` | there is no remote cache |
| `inductor_fx_local_cache_hit_keys`, `inductor_fx_local_cache_miss_keys` | the artifacts `fx_graph_cache_*` hold the keys |
| `triton_compile_time_us`, `triton_kernel_compile_times_us`, `runtime_triton_autotune_time_us`, `num_triton_bundles` | there is no Triton; machine code is part of `inductor_code_gen_cumulative_compile_time_us` |
| `runtime_cudagraphify_time_us`, `cudagraph_skip_reason` | kernels run on the CPU |
| `distributed_ephemeral_timeout_us` | nothing is communicated |
| `pgo_get_remote_code_state_time_us`, `pgo_put_remote_code_state_time_us` | which sizes change is learnt anew in each process |
| `tensorify_float_attempt`, `tensorify_float_success`, `tensorify_float_failure` | a float is a constant of its graph, and guarded; pass it as a tensor where it changes |

Records that PyTorch writes and Taper does not:

| record | why |
| --- | --- |''')
for n, c, l, f, h in evs:
    if 'EVF_trace' in f and 'EVF_none' in f:
        o.append(f"| `{n}` | {h} |")
o.append('''
## Environment variables

The torch spellings count only under the torch alias (`python -m taper script.py`, `import taper.torch_alias`), and
ours win where both are set.

| name | torch spelling | what |
| --- | --- | --- |''')
for i, n, t, h in envs:
    o.append(f"| `{n}` | {'`'+t+'`' if t else ''} | {h} |")


def page():
    return '\n'.join(o) + '\n'


if __name__ == "__main__":
    with open('docs/logging.md', 'w') as f:
        f.write(page())
