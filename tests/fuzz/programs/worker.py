"""A warm process that runs programs: one line of JSON in, one line out. `worker.py taper` or `worker.py torch`.

Each program runs in a forked child, all its ways one after another, so that a crash, a hang or a spoilt state is that
program's alone; a crash in one way does not lose the others."""
import dis
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


WARM = """import collections, contextlib, copy, dataclasses, enum, functools, gc, itertools, math, operator, torch, torch.utils.checkpoint
cf = compile(lambda x: x.sin() + x.sum())
a = torch.ones(3, requires_grad=True)
r = call(cf, a)
show(r=r)
grads(r, [a])
torch.func, torch.vmap, torch.nn.functional.pad, torch.nn.Linear(2, 2), torch.utils.checkpoint
"""


def ways(torch):
    """Name -> what compile() means."""
    def with_(**fixed):
        def wrap(f, **options):
            options = {**options, **fixed}
            if options.get("options"):
                options.pop("mode", None)
            elif options.get("backend", "inductor") != "inductor":
                options.pop("mode", None)
            return torch.compile(f, **options)
        return wrap
    return {"plain": lambda f, **options: f, "eager": with_(backend="eager"), "aot_eager": with_(backend="aot_eager"), "decomp": with_(backend="aot_eager_decomp_partition"),
            "inductor": with_(), "interpreter": with_(options={"emitter": "interpreter"}), "c": with_(options={"emitter": "c"}), "avx2": with_(options={"isa": "avx2"}), "base": with_(options={"isa": "base"})}


def opcodes(code):
    """The opcodes of a program's functions, with those inside them."""
    out = {i.opname for i in dis.get_instructions(code)}
    for k in code.co_consts:
        if hasattr(k, "co_code"):
            out |= opcodes(k)
    return out


def reached(torch, text):
    """What capture and the compiler did: opcodes, names of guards, breaks and counters; for Taper only."""
    from taper import _C
    out = {"opcode " + n for n in opcodes(compile(text, "program", "exec"))}
    for e in _C._capture_entries():
        out.update("guard " + g[0] for g in e[6])
        out.update("effect " + str(s[0]) for s in e[7])
    for row in _C._capture_ledger():
        if row[8]:
            out.add("break " + str(row[8])[:60])
    for group, names in torch._dynamo.utils.counters.items():
        if group not in ("stats",):
            out.update(f"{group} {str(k)[:60]}" for k in names)
    for text in _C._capture_metrics()[0]:
        m = json.loads(text)
        for k in ("graph_op_count", "kernel_count", "library_call_count", "fused_value_count", "shape_env_guard_count", "graph_input_count", "num_graph_breaks"):
            out.add(f"{k} {int(m.get(k) or 0).bit_length()}")
        if m.get("fail_type"):
            out.add(f"fails {m['fail_type']}")
        if m.get("recompile_reason"):
            out.add("again " + "".join(ch for ch in str(m["recompile_reason"]) if not ch.isdigit())[:50])
    return sorted(out)


def child(torch, kind, request, out):
    import observe
    table = ways(torch)
    path = request.get("path") or os.path.join(tempfile.gettempdir(), "program.py")
    for way in request["ways"]:
        try:
            torch._dynamo.reset()
            if kind == "taper":
                from taper import _C
                _C._capture_metrics_clear()
                torch._dynamo.utils.counters.clear()
            text = request["text"]
            if way == "float64":
                for d in ("float32", "float16", "bfloat16"):
                    text = text.replace("torch." + d, "torch.float64")
                text = text.replace(".float()", ".double()").replace(".half()", ".double()")
            seen = observe.run(torch, text, path, table["plain" if way == "float64" else way])
            answer = {"seen": seen}
            if kind == "taper" and way not in ("plain", "float64") and request.get("features"):
                answer["reached"] = reached(torch, text)
        except BaseException as e:
            answer = {"seen": [{"exception": "harness " + type(e).__name__, "message": str(e)[:300], "line": None, "mro": []}]}
        os.write(out, (json.dumps([way, answer]) + "\n").encode())


def at_once(torch, text, limit):
    """PyTorch uncompiled, in this process: a fork of all of PyTorch costs more than the program."""
    import observe

    def late(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(limit))
    try:
        return {"seen": observe.run(torch, text, os.path.join(tempfile.gettempdir(), "program.py"), lambda f, **options: f)}
    except TimeoutError:
        return {"crash": "timeout", "stderr": ""}
    finally:
        signal.alarm(0)


def attempt(torch, kind, request, limit):
    """Run the ways of a request in one child. Returns what came back, and how the child ended."""
    r, w = os.pipe()
    err = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(r)
            os.dup2(err.fileno(), 2)
            signal.alarm(int(limit) + 30)
            child(torch, kind, request, w)
            os._exit(0)
        finally:
            os._exit(7)
    os.close(w)
    data, end, timed = b"", time.time() + limit, False
    while True:
        left = end - time.time()
        if left <= 0 or not select.select([r], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            timed = True
            break
        part = os.read(r, 1 << 20)
        if not part:
            break
        data += part
        if part.endswith(b"\n"):
            end = time.time() + limit
    os.close(r)
    _, status = os.waitpid(pid, 0)
    err.seek(0)
    tail = err.read()[-1500:].decode(errors="replace")
    done = {}
    for line in data.decode().splitlines(True):
        if line.endswith("\n"):
            way, answer = json.loads(line)
            done[way] = answer
    how = "timeout" if timed else f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}" if status else ""
    return done, how, tail


def serve(kind):
    warnings.simplefilter("ignore")
    if kind == "taper":
        import taper.torch_alias  # noqa: F401
        from taper import _C
        _C._counted_draws(True)  # eager operators draw what kernels draw
    import torch
    torch.set_num_threads(2 if kind == "taper" else 1)
    import torch.utils.checkpoint  # noqa: F401
    if kind == "torch":  # warm what a compile needs, once
        import logging
        torch._logging.set_logs(all=logging.CRITICAL)
        torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.ones(3, requires_grad=True)).sum().backward()
    else:
        import observe
        for wrap in ways(torch).values():
            observe.run(torch, WARM, "warm.py", wrap)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.collect()
    gc.freeze()
    print("ready", torch.__version__, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        result, left = {}, list(request["ways"])
        if kind == "torch" and "plain" in left:
            result["plain"] = at_once(torch, request["text"], request.get("limit", 20))
            left.remove("plain")
        while left:
            done, how, tail = attempt(torch, kind, {**request, "ways": left}, request.get("limit", 20))
            result.update(done)
            left = [w for w in left if w not in done]
            if left:
                result[left[0]] = {"crash": how or "no answer", "stderr": tail}
                left = left[1:]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
