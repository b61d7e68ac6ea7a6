"""What of PyTorch's compiler has to be switched off for a case to pass: backends, decompositions, passes, fusions, settings."""
from . import _case

LADDER = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
STAGES = {"eager": "capture (Dynamo)", "aot_eager": "the autograd stage (AOTAutograd)",
          "aot_eager_decomp_partition": "decompositions or the partition into forward and backward", "inductor": "Inductor"}

# setting, value to try, what it says when the case passes with it. Ordered: the first that helps is named.
KNOBS = [
    ("torch._functorch.config.cse", False, "common subexpressions (AOTAutograd's cse)"),
    ("torch._inductor.config.pattern_matcher", False, "Inductor's pattern passes"),
    ("torch._inductor.config.joint_graph_constant_folding", False, "Inductor's constant folding"),
    ("torch._inductor.config.constant_and_index_propagation", False, "Inductor's constant and index propagation"),
    ("torch._inductor.config.split_cat_fx_passes", False, "Inductor's split and cat passes"),
    ("torch._inductor.config.batch_fusion", False, "Inductor's batch fusion"),
    ("torch._inductor.config.use_dce", False, "Inductor's removal of dead code"),
    ("torch._inductor.config.epilogue_fusion", False, "Inductor's fusion into templates"),
    ("torch._inductor.config.loop_ordering_after_fusion", False, "Inductor's order of loops"),
    ("torch._inductor.config.reorder_for_locality", False, "Inductor's order of kernels (locality)"),
    ("torch._inductor.config.reorder_for_peak_memory", False, "Inductor's order of kernels (memory)"),
    ("torch._inductor.config.inplace_buffers", False, "Inductor's memory plan (results in the memory of inputs)"),
    ("torch._inductor.config.allow_buffer_reuse", False, "Inductor's memory plan (reuse of buffers)"),
    ("torch._inductor.config.split_reductions", False, "Inductor's split reductions"),
    ("torch._inductor.config.unroll_reductions_threshold", 1, "Inductor's unrolled reductions"),
    ("torch._inductor.config.realize_reads_threshold", 1, "what Inductor computes again instead of keeping"),
    ("torch._inductor.config.layout_optimization", False, "Inductor's memory layouts of convolutions"),
    ("torch._inductor.config.comprehensive_padding", False, "Inductor's padding of strides"),
    ("torch._inductor.config.emulate_precision_casts", True, "rounding of half precision between fused operators"),
    ("torch._inductor.config.fallback_random", True, "Inductor's random numbers"),
    ("torch._inductor.config.cpp.enable_loop_tail_vec", False, "Inductor's vector code for the rest of a loop"),
    ("torch._inductor.config.cpp.enable_tiling_heuristics", False, "Inductor's tiling for vector code"),
    ("torch._inductor.config.cpp.simdlen", 0, "Inductor's vector code"),
    ("torch._inductor.config.cpp.threads", 1, "Inductor's threads"),
    ("torch._inductor.config.cpp.weight_prepack", False, "packed weights of Inductor's"),
    ("torch._inductor.config.cpp.fallback_scatter_reduce_sum", False, "Inductor's scatter"),
]
# subsystems that ask torch._inductor.compiler_bisector before they act; fusion asks the scheduler's can_fuse
SYSTEMS = [("decomposition", "a decomposition"), ("pre_grad_passes", "Inductor's passes before autograd"), ("joint_graph_passes", "Inductor's passes over the joint graph"),
           ("post_grad_passes", "Inductor's passes over the ATen graph"), ("fusion", "Inductor's fusion"), ("lowerings", "Inductor's lowering or code")]


def install(refuse, asked):
    """In a trial: refuse what is named, {subsystem: "all" or a list of what was asked}; asked gets all that asked."""
    from torch._inductor.compiler_bisector import CompilerBisector
    count = {}

    def disable(backend, subsystem, debug_info=None):
        n = count[subsystem] = count.get(subsystem, -1) + 1
        if subsystem not in ("pre_grad_graph", "cudagraphs"):
            asked.append([subsystem, n, str(debug_info()) if debug_info else ""])
        want = refuse.get(subsystem)
        return want == "all" or bool(want) and n in want

    CompilerBisector.disable_subsystem = staticmethod(disable)
    from torch._inductor.scheduler import Scheduler
    original = Scheduler.can_fuse

    def can_fuse(self, node1, node2, *args, **kw):
        if not original(self, node1, node2, *args, **kw):
            return False
        pair = f"{_of(node1)} with {_of(node2)}"
        if ["fusion", pair, pair] not in asked:
            asked.append(["fusion", pair, pair])
        want = refuse.get("fusion")
        return not (want == "all" or bool(want) and pair in want)
    Scheduler.can_fuse = can_fuse


def _of(node):
    """The operators a scheduler node computes."""
    names = []
    for n in node.get_nodes():
        origins = getattr(getattr(n, "node", None), "origins", None) or ()
        names += [o.name for o in origins]
    return "+".join(dict.fromkeys(names)) or node.get_name()


class Finding:
    """stage: where the fault is; what: the pass, pair or setting; help: how to run without it, or None."""

    def __init__(self, stage, what="", help=None, passes=()):
        self.stage, self.what, self.help, self.passes = stage, what, help, list(passes)


def climb(case, trials):
    """The first backend of the ladder that fails, or the case's own; None when all pass."""
    own = case.how["backend"]
    rungs = [b for b in LADDER if b != "inductor"] + (["inductor"] if own == "inductor" else [own] if own not in LADDER else [])
    if own in LADDER:
        rungs = rungs[:LADDER.index(own) + 1]
    got = trials.outcomes([case.but(how={**case.how, "backend": b}) for b in rungs], enough=lambda o: o.kind not in ("pass", "cannot run"))
    for b, o in zip(rungs, got):
        if o is not None and o.kind not in ("pass", "cannot run"):
            return b
    return None


def bisect(case, trials, say=lambda text: None):
    """Where a failing case goes wrong: a Finding."""
    rung = climb(case, trials)
    if rung is None:
        return Finding("it comes and goes")
    say(f"fails from backend '{rung}' on")
    if rung not in LADDER:
        return Finding(f"the backend '{rung}'", help="another backend", passes=["aot_eager"])
    at = LADDER.index(rung)
    before = LADDER[at - 1] if at else None
    base = case.but(how={**case.how, "backend": rung})
    if rung in ("eager", "aot_eager"):
        return Finding(STAGES[rung], help=f'backend="{before}"' if before else None)
    systems = SYSTEMS if rung == "inductor" else SYSTEMS[:1]
    probes = [base.but(how={**base.how, "refuse": {s: "all"}}) for s, _ in systems]
    knobs = KNOBS if rung == "inductor" else KNOBS[:1]
    have = {s.partition("=")[0].strip() for s in base.how["settings"]}
    knobs = [k for k in knobs if k[0] not in have]
    probes += [base.but(how={**base.how, "settings": base.how["settings"] + [f"{k} = {v!r}"]}) for k, v, _ in knobs]
    got = trials.outcomes(probes)
    helped = {s for (s, _), o in zip(systems, got) if o.kind == "pass"}
    settings = [k for k, o in zip(knobs, got[len(systems):]) if o.kind == "pass"]
    passes = [f"{k} = {v!r}" for k, v, _ in settings]
    usual = f"{settings[0][0]} = {settings[0][1]!r}" if settings else f'backend="{before}"'
    for s, stage in systems:
        if s not in helped or s == "lowerings" and settings:
            continue
        names = single(base, trials, s)
        if s == "decomposition" and names:
            return Finding(f"the decomposition of {names[0]}", names[0], usual, passes)
        if s == "lowerings":
            return Finding(f"Inductor's lowering or code of {operator_of(names[0])}" if names else stage, names[0] if names else "", usual, passes)
        if s == "fusion":
            help = "torch._inductor.config.max_fusion_size = 1"
            return Finding(f"Inductor's fusion of {names[0]}" if names else stage, names[0] if names else "", help, passes)
        if names:
            return Finding(f"Inductor's pass '{names[0]}'", names[0], f"torch._inductor.config.disabled_passes = {names[0]!r}", passes)
        return Finding(stage, "", usual, passes)
    if settings:
        what = settings[0][2]
        names = single(base, trials, "lowerings") if "lowerings" in helped else []
        return Finding(what + (f", for {operator_of(names[0])}" if names else ""), settings[0][0], usual, passes)
    return Finding("the partition into forward and backward" if rung != "inductor" and case.grad else STAGES[rung], "", f'backend="{before}"', passes)


def operator_of(text):
    """'neg' from the text of a node or operator."""
    return text.strip("%<>").split("[")[0]


def single(case, trials, system):
    """Those askers of a subsystem that alone make the case pass when they are refused."""
    asked = trials.one(case.but(how={**case.how, "refuse": {"none": []}})).asked
    mine = list({str(n): (n, text) for s, n, text in asked if s == system}.values())[:64]
    got = trials.outcomes([case.but(how={**case.how, "refuse": {system: [n]}}) for n, _ in mine], enough=lambda o: o.kind == "pass")
    return [text for (_, text), o in zip(mine, got) if o is not None and o.kind == "pass"]
