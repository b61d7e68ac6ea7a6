"""Random graphs over all rows that have a derivative rule: the joint graph's gradients are the tape's, and both are
those of finite differences. TAPER_FUZZ_JOINT=n draws n more graphs of random rows (make fuzz)."""
import os
import random

import taper
import test_grad_table as table
from taper._dynamo.utils import counters

BACKENDS = ["aot_eager", "aot_eager_decomp_partition", "inductor"]
MUT = table.MUT


F = taper.nn.functional
rnd, square = table.rnd, table.square

# Rows that a schema alone gives no smooth example of, through a function that does: name -> (function, arguments).
OTHERS = {
    "round.decimals": (lambda x: x.round(decimals=1) + x, lambda: (taper.tensor([0.12, 0.33, -1.28], dtype=taper.float64, requires_grad=True),)),
    "linalg_cholesky_ex": (lambda x: taper.linalg.cholesky(x @ x.t()), lambda: (square(3),)),
    "_linalg_svd": (lambda x: taper.linalg.svd(x, full_matrices=False)[1], lambda: (rnd(4, 3),)),
    "_linalg_eigh": (lambda x: taper.linalg.eigh(x + x.t())[0], lambda: (square(3),)),
    "_ctc_loss": (lambda x: F.ctc_loss(x.log_softmax(-1), table.ints(1, 2, 2, 2, shape=(2, 2)), [4, 3], [2, 1]), lambda: (rnd(4, 2, 3),)),
    "view_as_real": (lambda x, y: taper.view_as_real(taper.complex(x, y)), lambda: (rnd(2, 3), rnd(2, 3))),
    "view_as_complex": (lambda x: taper.view_as_complex(x).abs(), lambda: (rnd(2, 3, 2),)),
    "_fft_c2c": (lambda x, y: taper.view_as_real(taper.fft.fft2(taper.complex(x, y))), lambda: (rnd(2, 3), rnd(2, 3))),
    "_fft_r2c": (lambda x: taper.view_as_real(taper.fft.rfft(x)), lambda: (rnd(2, 4),)),
    "_fft_c2r": (lambda x, y: taper.fft.irfft(taper.complex(x, y)), lambda: (rnd(2, 3), rnd(2, 3))),
    "copy_": (lambda x, y: (x * 1).copy_(y) * x, lambda: (rnd(2, 3), rnd(3))),
    "fill_.Scalar": (lambda x: (x * 1).fill_(2.0) * x, lambda: (rnd(2, 3),)),
    "fill_.Tensor": (lambda x, y: (x * 1).fill_(y) * x, lambda: (rnd(2, 3), rnd())),
    "zero_": (lambda x: (x * 1).zero_() * x + x.sin(), lambda: (rnd(2, 3),)),
    "fill_diagonal_": (lambda x: (x * 1).fill_diagonal_(3.0) * x, lambda: (rnd(3, 3),)),
    "t_": (lambda x: (x * 1).t_() * 2, lambda: (rnd(2, 3),)),
    "transpose_": (lambda x: (x * 1).transpose_(0, 1) * 2, lambda: (rnd(2, 3),)),
    "unsqueeze_": (lambda x: (x * 1).unsqueeze_(1) * 2, lambda: (rnd(2, 3),)),
    "squeeze_": (lambda x: (x * 1).squeeze_() * 2, lambda: (rnd(1, 3),)),
    "squeeze_.dim": (lambda x: (x * 1).squeeze_(0) * 2, lambda: (rnd(1, 3),)),
    "squeeze_.dims": (lambda x: (x * 1).squeeze_((0, 2)) * 2, lambda: (rnd(1, 3, 1),)),
    "as_strided_": (lambda x: (x * 1).as_strided_((2, 2), (1, 2), 1) * 2, lambda: (rnd(2, 3),)),
}


def is_float(t):
    return isinstance(t, taper.Tensor) and t.dtype.is_floating_point


class Graph:
    """Some rows, each on inputs of its own; the result of one changes the inputs of the next a little, so that
    gradients flow through all of them and every row stays where it is smooth."""

    def __init__(self, picks):
        self.names, self.calls, self.leaves = [], [], []
        for row, args in picks:
            self.names.append(row[0])
            self.calls.append((OTHERS[row[0]][0] if row[0] in OTHERS else table.call_of(row[0], row[1]), self.take(args)))
        self.smooth = None  # which results have a derivative, as the tape says
        self.smooth = self(*self.fresh())

    def take(self, a):
        if isinstance(a, taper.Tensor):
            self.leaves.append(a)
            return ("leaf", len(self.leaves) - 1)
        return (type(a).__name__, [self.take(x) for x in a]) if isinstance(a, (list, tuple)) else ("value", a)

    def __call__(self, *leaves):
        def put(spec):
            kind, v = spec
            if kind == "leaf":
                return leaves[v]
            return v if kind == "value" else [put(x) for x in v] if kind == "list" else tuple(put(x) for x in v)

        total = link = None
        found = []
        for k, (fn, spec) in enumerate(self.calls):
            args = list(put(spec))
            for i, a in enumerate(args):
                if link is not None and is_float(a) and a.requires_grad:
                    args[i] = a * (1 + 1e-3 * link)
                    break
            out = fn(*args)
            outs = out if isinstance(out, (list, tuple)) else (out,)
            found.append([is_float(o) and o.requires_grad for o in outs])
            for i, o in enumerate(outs):
                if found[k][i] if self.smooth is None else self.smooth[k][i]:
                    o = o.double()
                    link = (o / (2 + o * o)).sum()
                    total = link if total is None else total + link
        return found if self.smooth is None else total

    def fresh(self, shift=None, eps=0.0):
        out = []
        for i, t in enumerate(self.leaves):
            x = t.detach().clone() if not t.numel() or t.is_contiguous() else t.detach()
            if shift is not None and shift[i] is not None:
                x = x + eps * shift[i]
            out.append(x.requires_grad_() if t.requires_grad else x)
        return out

    def gradients(self, fn):
        xs = self.fresh()
        y = fn(*xs)
        y.backward()
        return y.item(), [x.grad for x in xs]


def check(g, rng):
    want, grads = g.gradients(g)
    if want != want:
        return
    for b in BACKENDS:
        taper._dynamo.reset()
        counters.clear()
        try:
            got, have = g.gradients(taper.compile(g.__call__, backend=b))
        except Exception as e:
            raise AssertionError(f"{g.names} {b}: {type(e).__name__}: {e}") from None
        assert abs(got - want) <= 1e-9 * (1 + abs(want)), (g.names, b, got, want)
        for i, (x, y) in enumerate(zip(have, grads)):
            assert (x is None) == (y is None), (g.names, b, i, x, y)
            if x is not None and x.numel():
                d = (x - y).abs().max().item()
                assert d <= 1e-8 * (1 + y.abs().max().item()), (g.names, b, i, d)
    shift = [None] * len(g.leaves)
    slope = 0.0
    for i, t in enumerate(g.leaves):
        if t.requires_grad and t.numel() and grads[i] is not None:
            shift[i] = taper.tensor([rng.uniform(-1, 1) for _ in range(t.numel())], dtype=t.dtype).view(t.shape)
            slope += (shift[i] * grads[i]).sum().item()
    eps = 1e-6
    with taper.no_grad():
        a, b = g(*g.fresh(shift, eps)).item(), g(*g.fresh(shift, -eps)).item()
    measured = (a - b) / (2 * eps)
    assert abs(measured - slope) <= 1e-4 * (1 + abs(slope)), (g.names, measured, slope)


def draw(rows, rng, size):
    picks = []
    for row in rows:
        found = [OTHERS[row[0]][1]()] if row[0] in OTHERS else table.examples(row) or ()
        cases = [c for c in found if any(is_float(t) and t.requires_grad for t in table.flat(c)[0])]
        if cases:
            picks.append((row, rng.choice(cases)))
    rng.shuffle(picks)
    return [Graph(picks[i:i + size]) for i in range(0, len(picks), size)]


def all_rows():
    """Every row with a rule. Composites are made of these."""
    rows = {r[0]: r for r in table.rows_with_rules()}
    rows.update((r[0], r) for r in table._C._schemas() if r[0] in OTHERS)
    return list(rows.values())


def test_every_row_once_in_random_company():
    table.gen.manual_seed(7)
    rng = random.Random(7)
    rows, bad = all_rows(), []
    graphs = draw(rows, rng, 6)
    never = {r[0] for r in rows} - {n for g in graphs for n in g.names}
    assert not never, f"rows with a rule that no graph has: {sorted(never)}"
    assert sum(len(g.names) for g in graphs) > 300
    for g in graphs:
        try:
            check(g, rng)
        except AssertionError as e:
            bad.append(str(e)[:400])
    assert not bad, f"{len(bad)} of {len(graphs)}:\n" + "\n".join(bad)


def test_more_graphs_when_asked_for():
    n = int(os.environ.get("TAPER_FUZZ_JOINT", "3"))
    rows = all_rows()
    bad = []
    for seed in range(n):
        table.gen.manual_seed(seed)
        rng = random.Random(seed)
        for g in draw(rng.sample(rows, rng.randint(2, 9)), rng, 99):
            try:
                check(g, rng)
            except AssertionError as e:
                bad.append(f"seed {seed}: {str(e)[:400]}")
    assert not bad, f"{len(bad)} of {n}:\n" + "\n".join(bad)
