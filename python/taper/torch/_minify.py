"""The smallest case that still fails in the same way."""
import os
import sys
import time

import torch
from . import _case, _graph, _repro
from ._graph import Graph, Op, Ref
from ._trial import Trials


def writes(op):
    """Does an operator change one of its arguments? Its name says so."""
    if op.kind == "graph":
        return False
    parts = op.target.split(".")
    name = parts[-2] if op.target.startswith("torch.ops.") and len(parts) > 4 else parts[-1]
    return name.endswith("_") and not name.endswith("__") or name in ("setitem", "__setitem__", "iadd", "isub", "imul", "itruediv")


def live(graph, outputs=None):
    """(graph without operators that nothing needs, the names that are needed)."""
    outputs = graph.outputs if outputs is None else outputs
    need, ops = set(_graph.used(list(outputs))), []
    for op in reversed(graph.ops):
        if op.name in need or writes(op):
            ops.append(op)
            need.update(_graph.op_uses(op))
    return Graph(graph.inputs, ops[::-1], outputs), need


def tidy(case, outputs=None):
    g, need = live(case.graph, outputs)
    keep = [i for i, n in enumerate(g.inputs) if n in need]
    return case.but(graph=Graph([g.inputs[i] for i in keep], g.ops, g.outputs), inputs=[case.inputs[i] for i in keep])


def values(case):
    """The value of every operator, run eagerly: name -> value as it was when computed."""
    env, kept = dict(zip(case.graph.inputs, _case.fresh(case.inputs))), {}
    with torch.set_grad_enabled(case.grad):
        torch.manual_seed(case.how["seed"])
        for op in case.graph.ops:
            v = env[op.name] = _graph.call(op, env)
            if isinstance(v, torch.Tensor):
                w = v.detach().clone()
                kept[op.name] = w.requires_grad_() if case.grad and v.requires_grad and w.is_floating_point() else w
            elif isinstance(v, (int, float, bool)):
                kept[op.name] = v
            elif isinstance(v, (torch.SymInt, torch.SymFloat)):
                kept[op.name] = v.node.hint
    return kept


def cut(case, names, known):
    """The operators `names` replaced by the values they had: tensors become inputs, numbers constants."""
    names = [n for n in names if n in known]
    if not names:
        return None
    numbers = {n: known[n] for n in names if not isinstance(known[n], torch.Tensor)}
    ops = [op.replaced(lambda r: numbers.get(r.name, r)) for op in case.graph.ops if op.name not in set(names)]
    outs = [numbers.get(o.name, o) if isinstance(o, Ref) else o for o in case.graph.outputs]
    tensors = [n for n in names if n not in numbers]
    g = Graph(case.graph.inputs + tensors, ops, outs)
    c = tidy(case.but(graph=g, inputs=case.inputs + [known[n] for n in tensors]))
    return c if c.graph.ops else None


def ends_at(case, k, known):
    """The first k operators, with every value that something behind them uses as a result."""
    ops = case.graph.ops[:k]
    inside = {op.name for op in ops}
    later = [n for op in case.graph.ops[k:] for n in _graph.op_uses(op)] + _graph.used(list(case.graph.outputs))
    outs = [Ref(n) for n in dict.fromkeys(later) if n in inside and isinstance(known.get(n), torch.Tensor)]
    last = ops[-1].name if ops else None
    if last and isinstance(known.get(last), torch.Tensor) and not any(o.name == last for o in outs):
        outs.append(Ref(last))
    return tidy(case, outs) if outs else None


class Minifier:
    def __init__(self, case, wanted, trials, say=lambda text: None, keep=lambda case: None):
        self.best, self.wanted, self.trials, self.say, self.keep = case, wanted, trials, say, keep
        self.before = case.size
        self.until = None  # when to be content with what there is

    def attempt(self, cases):
        """Takes the first of the cases that fails in the same way; its index or None."""
        if self.until is not None and time.monotonic() > self.until:
            return None
        cases = [(i, c) for i, c in enumerate(cases) if c is not None and c.graph.outputs]
        at = self.trials.first([c for _, c in cases], self.wanted)
        if at is None:
            return None
        self.best = cases[at][1]
        self.keep(self.best)
        self.say(f"{self.best.size} of {self.before} operators left after {self.trials.count} trials")
        return cases[at][0]

    # -- steps --
    def settle(self):
        """No gradients, static sizes, ordinary settings, one thread: where the failure does not need them. All at once first."""
        steps = [self.without_grad, self.static, self.plain_settings, self.usual_draws, self.one_thread]
        if not self.without_grad(self.best):
            steps = steps[1:]
        bold = []
        for some in (steps, steps[1:]) if self.best.grad else (steps,):
            c = self.best
            for step in some:
                c = step(c) or c
            if c is not self.best:
                bold.append(c)
        if bold and self.attempt(bold) is not None:
            return
        for step in steps:
            c = step(self.best)
            if c is not None:
                self.attempt([c])
        for line in list(self.best.how["settings"]):
            how = self.best.how
            self.attempt([self.best.but(how={**how, "settings": [s for s in how["settings"] if s != line]})])

    @staticmethod
    def without_grad(case):
        if not case.grad:
            return None
        return case.but(grad=False, inputs=[x.detach() if isinstance(x, torch.Tensor) else x for x in case.inputs])

    @staticmethod
    def plain_settings(case):
        how = {**case.how, "settings": [], "mode": None, "options": None}
        return case.but(how=how) if how != case.how else None

    @staticmethod
    def usual_draws(case):
        return case.but(how={**case.how, "fallback_random": False}) if case.how["fallback_random"] else None

    @staticmethod
    def one_thread(case):
        return case.but(how={**case.how, "threads": 1}) if case.how["threads"] != 1 else None

    @staticmethod
    def static(case):
        """Numbers for symbolic sizes."""
        numbers = {n: x for n, x in zip(case.graph.inputs, case.inputs) if type(x) is int}
        if not numbers and not case.how["dynamic"]:
            return None
        change, g = lambda r: numbers.get(r.name, r), case.graph
        fixed = Graph([n for n in g.inputs if n not in numbers], [op.replaced(change) for op in g.ops], [change(o) if isinstance(o, Ref) else o for o in g.outputs])
        return case.but(graph=fixed, inputs=[x for x in case.inputs if type(x) is not int], how={**case.how, "dynamic": None})

    def narrow(self, lo, hi, build):
        """The smallest k in (lo, hi] for which build(k) fails, taking failing for monotone: two points at a time."""
        while hi - lo > 1:
            points = sorted({lo + max(1, (hi - lo) // 3), lo + max(1, 2 * (hi - lo) // 3)} - {lo, hi})
            at = self.attempt([build(k) for k in points])
            if at is None:
                lo = points[-1]
            else:
                hi = points[at]
                lo = points[at - 1] if at else lo

    def earlier_end(self):
        case, known = self.best, values(self.best)
        self.narrow(0, len(case.graph.ops), lambda k: ends_at(case, k, known))

    def later_begin(self):
        case, known = self.best, values(self.best)
        n = len(case.graph.ops)
        names = [op.name for op in case.graph.ops]
        self.narrow(0, n, lambda k: cut(case, names[:n - k], known))

    def fewer_results(self):
        outs = self.best.graph.outputs
        if len(outs) < 2:
            return
        case = self.best
        if self.attempt([tidy(case, [o]) for o in outs if isinstance(o, Ref)]) is not None:
            return
        size = len(outs) // 2
        while size >= 1 and len(self.best.graph.outputs) > 1:
            case, outs = self.best, self.best.graph.outputs
            parts = [outs[:i] + outs[i + size:] for i in range(0, len(outs), size)]
            if self.attempt([tidy(case, p) for p in parts if p]) is None:
                size //= 2

    def fewer_operators(self):
        """Windows of operators replaced by recorded values, then single ones by operands of the same form."""
        changed = True
        while changed:
            changed = False
            size = max(1, len(self.best.graph.ops) // 2)
            while size >= 1:
                case, known = self.best, values(self.best)
                names = [op.name for op in case.graph.ops]
                starts = range(0, len(names), size)
                if len(names) > 1 and self.attempt([cut(case, names[i:i + size], known) for i in starts]) is not None:
                    changed = True
                    size = min(size, max(1, len(self.best.graph.ops) // 2))
                    continue
                size //= 2
            case, known = self.best, values(self.best)
            if len(case.graph.ops) > 1 and self.attempt(list(self.shortcuts(case, known))) is not None:
                changed = True

    @staticmethod
    def shortcuts(case, known):
        env = {**dict(zip(case.graph.inputs, case.inputs)), **known}
        for op in case.graph.ops:
            v = known.get(op.name)
            if not isinstance(v, torch.Tensor):
                continue
            for n in dict.fromkeys(_graph.op_uses(op)):
                u = env.get(n)
                if isinstance(u, torch.Tensor) and u.shape == v.shape and u.dtype == v.dtype:
                    change = lambda r: Ref(n) if r.name == op.name else r
                    ops = [o.replaced(change) for o in case.graph.ops if o is not op]
                    yield tidy(case.but(graph=Graph(case.graph.inputs, ops, [change(o) if isinstance(o, Ref) else o for o in case.graph.outputs])))

    # -- data --
    def smaller_sizes(self):
        """Every size that occurs, made smaller wherever it stands, in inputs and in arguments: all of them, then one after the other."""
        def all_to(case, k):
            for size in sorted({d for x in case.inputs if isinstance(x, torch.Tensor) for d in x.shape if d > k}, reverse=True):
                case = self.resized(case, size, k)
            return case

        largest = max((d for x in self.best.inputs if isinstance(x, torch.Tensor) for d in x.shape), default=0)
        case = self.best
        at = self.attempt([all_to(case, k) for k in (1, 2, 3, 4, 8, 17) if k < largest])
        if at == 0:
            return
        for size in sorted({d for x in self.best.inputs if isinstance(x, torch.Tensor) for d in x.shape if d > 1}, reverse=True):
            lo = [1] if at is not None else [k for k in (1, 2, 3, 4, 8, 16, 17, 32, 33, 64, size // 4, size // 2) if 0 < k < size]
            case = self.best
            self.attempt([self.resized(case, size, k) for k in sorted(set(lo))])

    @staticmethod
    def resized(case, old, new):
        def shrink(x):
            if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or old not in x.shape:
                return x
            y = x.detach()
            for i, d in enumerate(x.shape):
                if d == old:
                    y = y.narrow(i, 0, new)
            if not x.dtype.is_floating_point and not x.dtype.is_complex and x.dtype is not torch.bool:
                y = y.clamp(max=new - 1) if bool((y >= new).any()) and bool((x < old).all()) else y
            dense = x.is_contiguous()
            out = y.clone(memory_format=torch.contiguous_format) if dense else y.clone(memory_format=torch.preserve_format)
            return out.requires_grad_(x.requires_grad)

        def number(v):
            if type(v) is int and v == old:
                return new
            if isinstance(v, (list, tuple)):
                return type(v)(number(u) for u in v)
            return v

        ops = [Op(o.name, o.kind, o.target, o.args[:1] + tuple(number(a) for a in o.args[1:]) if o.args and isinstance(o.args[0], Ref) else number(o.args),
                  {k: number(v) for k, v in o.kwargs.items()}, o.line) if o.kind != "graph" else o for o in case.graph.ops]
        return case.but(graph=Graph(case.graph.inputs, ops, case.graph.outputs), inputs=[shrink(x) for x in case.inputs])

    def plainer_data(self):
        """Inputs of ones, zeros, small whole numbers or short decimals; contiguous; arguments at their defaults."""
        case = self.best
        floats = [x for x in case.inputs if isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout is torch.strided and x.numel() <= 1 << 20]
        simple = lambda make: case.but(inputs=[make(x.detach()).requires_grad_(x.requires_grad) if any(x is f for f in floats) else x for x in case.inputs])
        plain = bool(floats) and self.attempt([simple(torch.ones_like), simple(_ramp)]) is not None
        for i, x in enumerate(self.best.inputs):
            if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
                continue
            case, tries = self.best, []
            put = lambda v: case.but(inputs=case.inputs[:i] + [v.requires_grad_(x.requires_grad) if v.is_floating_point() or v.is_complex() else v] + case.inputs[i + 1:])
            y = x.detach()
            if not y.is_contiguous() or y.storage_offset() or y.untyped_storage().nbytes() != y.numel() * y.element_size():
                tries.append(y.clone(memory_format=torch.contiguous_format))
            if self.attempt([put(t) for t in tries]) is not None:
                case = self.best
                y = case.inputs[i].detach()
            tries = [torch.ones_like(y), torch.zeros_like(y)]
            if y.is_floating_point() and y.numel() <= 1 << 20:
                tries += [_ramp(y), torch.empty_like(y).copy_((y * 4).round() / 4), torch.empty_like(y).copy_((y * 100).round() / 100)]
            elif not y.is_floating_point() and not y.is_complex() and y.dtype is not torch.bool and y.numel() <= 1 << 20:
                tries.append(torch.empty_like(y).copy_((torch.arange(y.numel()) % 3).reshape(y.shape)))
            if _plain(y) or plain and y.is_floating_point():
                continue
            self.attempt([put(t) for t in tries if not torch.equal(t, y)])
        case = self.best
        for j, op in enumerate(case.graph.ops):
            for k in list(op.kwargs):
                case, op = self.best, self.best.graph.ops[j]
                ops = list(case.graph.ops)
                ops[j] = Op(op.name, op.kind, op.target, op.args, {a: b for a, b in op.kwargs.items() if a != k}, op.line)
                self.attempt([case.but(graph=Graph(case.graph.inputs, ops, case.graph.outputs))])

    def run(self):
        self.settle()
        self.earlier_end()
        self.fewer_results()
        self.later_begin()
        self.fewer_operators()
        self.fewer_results()
        if self.best.grad:
            self.settle()
        self.smaller_sizes()
        self.plainer_data()
        return self.best


def _ramp(x):
    return torch.empty_like(x).copy_((torch.arange(x.numel()) % 7 - 3).reshape(x.shape))


def _plain(x):
    return x.numel() and bool((x == x.flatten()[0]).all()) and x.flatten()[0].item() in (0, 1)


def minify(folder, out=None, timeout=120.0, memory=None, jobs=None, check=None, stream=sys.stderr):
    """`taper minify` for a folder that taper.torch.debug saved. Returns the exit status: 0 done, 1 it does not fail here."""
    from ._trial import supervise
    case, was = _case.read(folder)
    answer = out or os.path.join(folder, "minimal")
    os.makedirs(answer, exist_ok=True)
    _case.find_backend(case.how["backend"])

    def work(warm, warmed):
        began = time.monotonic()
        say = lambda text: print(text, file=stream, flush=True)
        trials = Trials(timeout, memory, **({"jobs": jobs} if jobs else {}))
        if warm:
            trials.warm(case.how)
        else:
            torch.set_num_threads(1)
        warmed()
        now = trials.one(case)
        for _ in range(4):
            if now.kind != "pass":
                break
            trials.seen.clear()
            now = trials.one(case)
        if now.kind == "pass":
            say(f"it does not fail here: {was} was recorded")
            return 1
        if now.kind == "cannot run":
            say(f"it cannot run here without a compiler either: {now.message}")
            return 1
        if was.kind not in ("pass", "comes and goes") and not now.same(was):
            if check is None or check not in now.message:
                say(f"the failure is another one here: {was} was recorded, but it gives {now}")
                if check is not None:
                    return 1
        m = Minifier(case, now, trials, say, keep=lambda c: _case.save(answer, c, now))
        try:
            m.run()
            stopped = False
        except KeyboardInterrupt:
            stopped = True
        final = trials.one(m.best)
        now = final if final.same(now) else now
        _case.save(answer, m.best, now)
        script = _repro.write(answer, m.best, now, m.before)
        ok, how = _repro.verify(script, now, timeout) if not stopped else (None, "")
        print(_graph.function(m.best.graph))
        print(now)
        print(f"{m.before} operator{'s' * (m.before != 1)} before, {m.best.size} after; {trials.count} trials, {time.monotonic() - began:.1f} s"
              + ("" if ok is None else "; repro.py shows it in a fresh process" if ok else f"; repro.py does not show it in a fresh process: {how}"))
        print(f"Wrote the minimal failure to {script}: it needs only PyTorch")
        return 0
    return supervise(work)
