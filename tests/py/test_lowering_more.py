"""More operators that are loops inside kernels, on every engine: places of extremes, edges of pooling, mirroring pads, long
joins, other distributions, scatters. Each is eager's result to the bit where the order of operations is the same."""
import itertools

import taper
from test_lowering import counts, plan

F = taper.nn.functional
ENGINES = ({"emitter": "x64"}, {"emitter": "x64", "isa": "avx2"}, {"emitter": "interpreter"})


def agree(f, *args, what=None, tol=0):
    """Compiled is eager, with fixed and with symbolic sizes; each engine takes a turn."""
    with taper.no_grad():
        want = f(*args)
        agree.turn = getattr(agree, "turn", 0) + 1
        for k, dynamic in enumerate((False, True)):
            taper._dynamo.reset()
            got = taper.compile(f, dynamic=dynamic, options=ENGINES[(agree.turn + k) % len(ENGINES)])(*args)
            for a, b in zip(want, got) if isinstance(want, (tuple, list)) else [(want, got)]:
                assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), (what, dynamic, a.shape, b.shape)
                ok = taper.allclose(a.double(), b.double(), rtol=tol, atol=tol, equal_nan=True)
                assert ok, (what, dynamic, args[0].dtype, args[0].shape, a, b)


def test_the_place_of_an_extreme_is_a_reduction():
    log = plan("x = taper.randn(40, 33)\ntaper.compile(lambda x: (x * 2).argmax(1))(x)\ntaper.compile(lambda x: taper.max(x.sin(), 0))(x)\n"
               "taper.compile(lambda x: x.argmax(0))(x)\ntaper.compile(lambda x: x.argmin(-1))(x)")
    assert counts(log) == [(1, 0), (1, 0), (0, 1), (1, 0)], log
    assert "left as a call: argmax: nothing is computed on the way" in log, log
    for dt in (taper.float32, taper.float64, taper.float16, taper.bfloat16, taper.int64, taper.int32, taper.int16, taper.int8, taper.uint8):
        for shape in ((1,), (33,), (5, 17), (3, 1), (4, 33, 9), (2, 3, 4, 5)):
            x = (taper.randn(*shape) * 4).abs().to(dt)  # few values: many are equal, and the first counts
            if dt.is_floating_point and len(shape) < 3:
                x.view(-1)[x.numel() // 2:] = float("nan")
            for d in range(len(shape)):
                agree(lambda x: (taper.argmax(x, d), *taper.min(x + x, d, True), taper.argmin(x * 2, d, keepdim=True), taper.max(x, d)[1] + 1,
                                 x.transpose(0, -1).argmax(d)), x, what=(dt, shape, d))
            agree(lambda x: x.argmax(), x)
    try:
        taper.compile(lambda x: (x * 2).argmax(1))(taper.zeros(3, 0))
        raise AssertionError("no error")
    except IndexError as e:
        assert "argmax" in str(e)


def test_windows_that_reach_over_the_edge():
    log = plan("x = taper.randn(2, 3, 16, 32)\nwith taper.no_grad():\n    taper.compile(lambda x: F.max_pool2d(x.relu(), 3, 2, 1) + 1)(x)\n"
               "    taper.compile(lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))(x)")
    assert [c[1] for c in counts(log)] == [0, 0], log
    for shape in ((1, 1, 5, 5), (2, 3, 9, 17), (3, 8, 16), (1, 2, 4, 64)):
        x = taper.randn(*shape)
        x[..., 1, 2], x[..., 0, 0] = float("nan"), float("-inf")
        for k, s, p, c in itertools.product((1, 2, 3, (3, 2)), (1, 2, (2, 1)), (0, 1), (False, True)):
            if p > (min(k) if isinstance(k, tuple) else k) // 2:
                continue
            agree(lambda x: (F.max_pool2d(x, k, s, p, ceil_mode=c), F.max_pool2d(F.relu(x), k, s, p, ceil_mode=c) + 1,
                             F.avg_pool2d(x, k, s, p, ceil_mode=c), F.avg_pool2d(x * 2, k, s, p, ceil_mode=c, count_include_pad=False) * 3,
                             F.avg_pool2d(x, k, s, p, ceil_mode=c, divisor_override=5)), x, what=(k, s, p, c))
    agree(lambda x: F.max_pool2d(x, 3, 1, 2, 2), taper.randn(1, 2, 9, 20))


def test_mirroring_and_repeating_pads():
    log = plan("x = taper.randn(2, 3, 8, 16)\ntaper.compile(lambda x: F.pad(x * 2, (1, 1, 1, 1), mode='reflect') + 1)(x)\n"
               "taper.compile(lambda x: F.pad(x, (0, 0, 2, 1), mode='replicate') + 1)(x)")
    assert counts(log)[1] == (1, 0) and counts(log)[0][1] == 0, log
    for dt in (taper.float32, taper.bfloat16, taper.int64):
        for shape in ((2, 3, 9, 17), (3, 8, 16)):
            x = (taper.randn(*shape) * 8).abs().to(dt)
            for mode, pad, rows in itertools.product(("reflect", "replicate"), ((1, 1), (0, 2), (3, 0)), ((0, 0), (1, 2))):
                last = x.contiguous(memory_format=taper.channels_last) if len(shape) == 4 else x
                agree(lambda x, last: (F.pad(x, pad + rows, mode=mode), F.pad(x * 2, pad + rows, mode=mode) + 1,
                                       F.pad(x, (0, 0) + rows, mode=mode) * 2, F.pad(last, pad + rows, mode=mode)), x, last, what=(mode, pad, rows))
    agree(lambda x: F.pad(x, (1, 2, 2, 1, 1, 1), mode="replicate") * 2, taper.randn(1, 2, 3, 4, 5))


def test_joins_of_many():
    log = plan("x = [taper.randn(4, 8) for _ in range(12)]\ntaper.compile(lambda *x: taper.cat([t * 2 for t in x], 1))(*x)")
    assert counts(log) == [(12, 0)], log
    log = plan("x = taper.randn(3000, 8)\ntaper.compile(lambda x: taper.cat([t * 2 for t in x.unbind(0)[::-1]]))(x)")  # of one buffer, too
    assert counts(log)[0][1] == 1, log
    for dt, n in ((taper.float32, 7), (taper.bfloat16, 12), (taper.int32, 70)):
        x = (taper.randn(3, 5, 17) * 8).to(dt)
        for d in range(3):
            agree(lambda x: (taper.cat([x * i if i % 3 else x for i in range(n)], d) * 2, taper.stack([x] * n, d)), x, what=(dt, n, d))
            agree(lambda x: taper.cat([x.narrow(d, 0, 1 + i % 2).double() * 2 for i in range(n)], d).sum(d), x, tol=1e-9, what=(dt, n, d))


def test_filled_like_another():
    log = plan("x = taper.randn(4, 8)\ntaper.compile(lambda x: x + x.new_full((4, 8), 3) * x.new_ones(8) - x.new_zeros(1) + taper.fill(x, 2))(x)")
    assert counts(log) == [(1, 0)], log
    for dt in (taper.float32, taper.float16, taper.int64, taper.uint8, taper.bool):
        x = taper.ones(4, 9).to(dt)
        agree(lambda x: (x.new_full((3, 5), 1) + x.new_ones(5), x.new_zeros(2), taper.fill(x, 1) | x if not dt.is_floating_point else x * 2), x)


def test_writing_where_an_index_points():
    log = plan("x, s, i = taper.randn(9, 40), taper.randn(30, 40), taper.randint(0, 9, (30,))\n"
               "for f in (lambda: x.index_add(0, i, taper.relu(s) * 2), lambda: x.index_copy(0, i, s.sin()), lambda: x.index_put((i,), s + 1, accumulate=True),\n"
               "          lambda: taper.zeros(9, 40).scatter_add(0, i[:, None].expand(-1, 40), s * 2), lambda: x.index_add(0, i, s),\n"
               "          lambda: x.t().index_add(1, i, s.t() * 2)):\n    taper.compile(f)()")
    assert counts(log)[:5] == [(2, 0)] * 4 + [(0, 1)] and counts(log)[5][1] == 1, log
    assert "index_add: nothing is computed on the way" in log and "index_add_1: neighbours may go to one place" in log or \
        "index_add: neighbours may go to one place" in log, log
    for dt in (taper.float32, taper.float64, taper.int64, taper.int32, taper.bfloat16, taper.bool):
        for rows, n, m in ((5, 17, 3), (1, 40, 1), (9, 600, 33), (4, 1, 70)):
            x, s = (taper.randn(rows, m, n) * 8).to(dt), (taper.randn(6, m, n) * 8).to(dt)
            i, e = taper.randint(0, rows, (6,)), taper.randint(0, rows, (6, m, n))  # most places are written more than once
            two = lambda t: t | t if dt == taper.bool else t + t
            agree(lambda x, s, i, e: (x.index_copy(0, i, two(s)), x.scatter(0, e, two(s)), x.scatter(0, e[:3], two(s)), x.scatter(0, e, 1),
                                      x.index_put((i - rows,), two(s)), x.index_put((i.to(taper.int32), taper.arange(6) % m), two(s[:, 0]))), x, s, i, e,
                  what=(dt, rows, n, m))
            if dt != taper.bool:
                agree(lambda x, s, i, e: (x.index_add(0, i, two(s)), two(x).scatter_add(0, e, two(s)), x.index_put((i,), two(s), accumulate=True) * 2,
                                          x.transpose(0, 1).index_add(1, i, two(s.transpose(0, 1))), x.index_put((i,), two(s[:1]), accumulate=True),
                                          x.index_put((i[:, None], taper.arange(m)), two(s), accumulate=True)), x, s, i, e, what=(dt, rows, n, m))


def test_writing_into_one_row_of_what_lies_otherwise():
    """With one row the place is no question of the index, and the loops over the rest must fit both sides."""
    for shape in ((7, 2, 1), (7, 5, 1), (3, 4, 5, 1)):
        x = taper.randn(shape).permute(list(range(len(shape)))[::-1])
        agree(lambda x: ((-x).index_copy(0, taper.tensor([0]), x * 3), (x * 2).index_add(0, taper.tensor([0, 0, 0]), x[:1].expand(3, *x.shape[1:]) * 3)), x)


def test_writing_outside_is_the_error_of_eager():
    x, s = taper.randn(4, 8), taper.randn(3, 8)
    for bad in (4, -5):
        i = taper.tensor([0, bad, 1])
        for f in (lambda: x.index_add(0, i, s * 2), lambda: x.index_copy(0, i, s * 2), lambda: x.index_put((i,), s * 2),
                  lambda: x.scatter(0, i[:, None].expand(3, 8), s * 2), lambda: x.scatter_add(0, i[:, None].expand(3, 8), s * 2)):
            said = []
            for g in (f, taper.compile(f)):
                try:
                    g()
                    said.append(None)
                except (RuntimeError, IndexError) as e:
                    said.append((type(e), str(e).splitlines()[0]))
            assert said[0] and said[0] == said[1], said


def test_sums_of_narrow_floats_on_the_way_may_be_large():
    """The sum of 400,000 halves does not fit into float16, their mean and spread do, and large sums are made in parts."""
    x = taper.full((400000,), 0.5, dtype=taper.float16)
    x[::2] = 1.5
    for f in (lambda x: x.mean(), lambda x: (x * 1).var(), lambda x: taper.std_mean(x * 1)[1], lambda x: (x * 1).norm(), lambda x: taper.logsumexp(x * 1, 0),
              lambda x: (x.expand(2, 400000) * 1).mean()):
        want, got = f(x), taper.compile(f)(x)
        assert got.dtype == want.dtype and got.isfinite().all() and (got - want).abs().item() <= 2e-3 * max(1, want.abs().item()), (want, got)


def test_a_tensor_without_dimensions_has_dimension_0_and_minus_1():
    """Rows that take a dimension accept 0 and -1 for one element; loops have no index for it."""
    at, one = taper.tensor(0), taper.tensor([0])
    rows = {
        "flip": lambda x, d: x.flip(d), "roll": lambda x, d: x.roll(1), "sum": lambda x, d: x.sum(d), "prod": lambda x, d: x.prod(d),
        "amax": lambda x, d: x.amax(d), "argmax": lambda x, d: x.argmax(d), "max": lambda x, d: tuple(x.max(d)), "any": lambda x, d: x.any(d),
        "cumsum": lambda x, d: x.cumsum(d), "logcumsumexp": lambda x, d: x.logcumsumexp(d), "cummax": lambda x, d: tuple(x.cummax(d)),
        "softmax": lambda x, d: x.softmax(d), "squeeze": lambda x, d: x.squeeze(d), "transpose": lambda x, d: x.transpose(0, d),
        "unsqueeze": lambda x, d: x.unsqueeze(d), "gather": lambda x, d: x.gather(d, at), "index_select": lambda x, d: x.index_select(d, one),
        "scatter": lambda x, d: x.scatter(d, at, 5.0), "repeat": lambda x, d: x.repeat(2), "expand": lambda x, d: x.expand(3)}
    for name, f in rows.items():
        for d in (0, -1):
            agree(lambda x: f(x * 2, d), taper.tensor(1.5), what=(name, d))
