"""nn.functional.grouped_mm against PyTorch: its four forms, gradients, one graph."""
from both import taper, torch

FORMS = (((7, 4), (3, 4, 8), True), ((3, 4, 4), (3, 4, 8), False), ((3, 4, 4), (4, 8), True), ((4, 8), (8, 4), True))


def run(T, a, b, offs, f=None):
    x, y = (T.tensor(v, requires_grad=True) for v in (a, b))
    f = f or T.nn.functional.grouped_mm
    r = f(x, y, offs=T.tensor(offs, dtype=T.int32) if offs else None)
    k = T.linspace(-1, 1, r.numel()).reshape(r.shape)
    (r * k).sum().backward()
    return [v.detach().tolist() for v in (r, x.grad, y.grad)]


def close(a, b):
    return all(map(close, a, b)) if isinstance(a, list) else abs(a - b) < 1e-4


def test_forms():
    torch.manual_seed(0)
    for sa, sb, jagged in FORMS:
        a, b = torch.randn(sa).tolist(), torch.randn(sb).tolist()
        n = sa[0] if len(sb) == 3 else sb[1] if len(sa) == 3 else sa[1]
        offs = [n // 2, n // 2, n] if jagged and (sa, sb) != ((4, 8), (8, 4)) else [4, 4, 8] if jagged else None
        want = run(torch, a, b, offs)
        taper._dynamo.reset()
        for f in (None, taper.compile(lambda x, y, offs: taper.nn.functional.grouped_mm(x, y, offs=offs), fullgraph=True)):
            assert close(want, run(taper, a, b, offs, f)), (sa, sb, offs)


def test_rows_in_no_group_and_errors():
    F = taper.nn.functional
    r = F.grouped_mm(taper.ones(5, 4), taper.ones(2, 4, 4), offs=taper.tensor([1, 3], dtype=taper.int32))
    assert r[:3].tolist() == [[4.0] * 4] * 3 and r[3:].tolist() == [[0.0] * 4] * 2
    for bad in (lambda: F.grouped_mm(taper.ones(5, 4), taper.ones(2, 4, 4)), lambda: F.grouped_mm(taper.ones(5, 3), taper.ones(2, 4, 4), offs=taper.tensor([1, 3])),
                lambda: F.grouped_mm(taper.ones(5, 4), taper.ones(2, 4, 4), offs=taper.tensor([3, 1])), lambda: F.grouped_mm(taper.ones(5, 4), taper.ones(2, 4, 4).double(), offs=taper.tensor([1, 3]))):
        try:
            bad()
        except RuntimeError as e:
            assert "grouped_mm" in str(e), e
        else:
            raise AssertionError("no error")


def test_profiler_names():
    assert not taper.autograd._profiler_enabled()
    with taper.profiler.profile() as p:
        assert taper.autograd._profiler_enabled()
        taper.ones(3).sin()
        taper.autograd._disable_profiler()
        assert not taper.autograd._profiler_enabled()
    taper.compiler.cudagraph_mark_step_begin()
    taper._inductor.cudagraph_mark_step_begin()
