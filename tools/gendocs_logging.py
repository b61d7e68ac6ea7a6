#!/usr/bin/env python3
"""Writes docs/logging.md from the tables src/events/events.def and src/base/envvars.def."""
import os, re

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ev, en = open('src/events/events.def').read(), open('src/base/envvars.def').read()
comps = re.findall(r'^EV_COMPONENT\((\w+),\s*(.*?),\s*"(.*?)"\)', ev, re.M)
evs = re.findall(r'^EV\((\w+),\s*(\w+),\s*(\w),\s*(.*?),\s*"(.*?)"\)', ev, re.M)
envs = re.findall(r'^ENV\((\w+),\s*"(.*?)",\s*"(.*?)",\s*"(.*?)"\)', en, re.M)
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
`compile()` or at the first record; a forked child writes its own. Each record is one `write`, so a killed process loses at most the record it was writing (ends of phases go
out with the next record, names of files with the record that needs them). Large records (a graph, guards, generated code with
its schedule) are made by a thread of their own, one hand-over at a time, while the compile goes on; when
the compile ends they are on disk, before anything it made runs. `bench/trace.py` measures what that costs: on the
training step of its small GPT, which compiles in 28 million instructions (5.2 ms), 0.3 % more on the compiling thread and 11.5 million on the thread
that writes; on the clock of a quiet two-core machine 0.6 ms, most of it waiting for the record before.
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
Names of `artifact` records: `dynamo_graph_break_reason`, `dynamo_error`, `recompile_reasons`, `fusion`, `schedule`, `ledger`,
`fx_graph_cache_hit|miss` (kernels), `aotautograd_cache_hit|miss|bypass` (whole graphs, the disk cache), and under
`TAPER_DTRACE` also `fx_graph_runnable`: the captured graph as a script that runs alone, on random numbers.

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
