"""Neural-network operators against PyTorch."""
from aten import *

TOLS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
CL = torch.channels_last


def geometries():
    for st, pd, dl, g in ((1, 0, 1, 1), (2, 1, 1, 1), (1, 1, 2, 2), (3, 2, 1, 4), (2, 0, 2, 1)):
        yield st, pd, dl, g


def test_convolution():
    torch.manual_seed(4)
    c = Tally()
    for dt in FLOATS:
        t = TOLS[dt]
        for nd in (1, 2, 3) if dt in (torch.float32, torch.float64) else (2,):
            sp = (9, 8, 7)[:nd]
            for st, pd, dl, g in geometries():
                x = rand(2, 4, *sp, dtype=dt, lo=-1, hi=1)
                for k in (1, 2, 3):
                    w = rand(8, 4 // g, *([k] * nd), dtype=dt, lo=-1, hi=1)
                    bias = rand(8, dtype=dt)
                    a = ([st] * nd, [pd] * nd, [dl] * nd)
                    c("convolution", x, w, bias, *a, False, [0] * nd, g, tol=t), c(f"conv{nd}d", x, w, None, *a, g, tol=t), c(f"conv{nd}d", x[0], w, bias, *a, g, tol=t)
                    wt = rand(4, 8 // g, *([k] * nd), dtype=dt, lo=-1, hi=1)
                    op = [min(st, dl) - 1] * nd
                    c("convolution", x, wt, bias, *a, True, op, g, tol=t)
                    if dt in (torch.float32, torch.float64):
                        for tr, wx in ((False, w), (True, wt)):
                            try:
                                y = torch.convolution(x, wx, None, *a, tr, op if tr else [0] * nd, g)
                            except RuntimeError:
                                continue
                            c("convolution_backward", rand(*y.shape, dtype=dt, lo=-1, hi=1), x, wx, [8], *a, tr, op if tr else [0] * nd, g, [True, True, True], tol=t * 10, strides=nd != 3)
        x, w = rand(2, 4, 8, 8, dtype=dt, lo=-1, hi=1), rand(6, 4, 3, 3, dtype=dt, lo=-1, hi=1)
        c("conv2d", x.to(memory_format=CL), w, tol=t), c("conv2d", x, w.to(memory_format=CL), tol=t), c("conv2d", x[:, :, ::2], w, tol=t)
        for k in (2, 3):
            c("conv2d.padding", x, rand(6, 4, k, k, dtype=dt, lo=-1, hi=1), None, [1, 1], "same", tol=t), c("conv2d.padding", x, w, None, [2, 2], "valid", tol=t)
        dw = rand(8, 1, 3, 3, dtype=dt)
        c("conv2d", x, dw, rand(8, dtype=dt), [1, 1], [1, 1], [1, 1], 4, tol=t)
        c("im2col", x, [2, 3], [1, 2], [1, 0], [2, 1], tol=t), c("col2im", rand(2, 4 * 6, 5 * 4, dtype=dt), [8, 8], [2, 3], [1, 2], [1, 0], [2, 1], tol=t)
    big, bw = rand(2, 16, 33, 40), rand(24, 16, 3, 3, lo=-1, hi=1)
    c("conv2d", big, bw, tol=1e-3), c("conv2d", big, rand(24, 16, 1, 1), tol=1e-3), c("conv2d", rand(1, 4, 5, 5, dtype=torch.int64), rand(2, 4, 3, 3, dtype=torch.int64))
    x, w = rand(2, 4, 8, 8), rand(6, 4, 3, 3)
    e = dict(text=True)
    c("conv2d", x[0, 0], w, **e), c("conv2d", x, w[:, :3], **e), c("conv2d", x, w, None, [1, 1], [0, 0], [1, 1], 3, **e), c("conv2d", x, w, None, [1, 1], [0, 0], [1, 1], 0, **e)
    c("conv2d", x, w, None, [0, 0], **e), c("conv2d", x, w, None, [1, 1], [-1, 0], **e), c("conv2d", x, w, None, [1, 1], [0, 0], [0, 1], **e), c("conv2d", x[:, :, :2, :2], w, **e)
    c("conv2d", x, w.double(), **e), c("conv2d", x, w, torch.ones(5), **e), c("conv2d.padding", x, w, None, [2, 2], "same", **e), c("conv2d.padding", x, w, None, [1, 1], "foo", **e)
    c("conv2d", x, w, None, [1, 2, 3]), c("conv2d", x, w, torch.ones(6).double(), **e), c("conv2d", x[:0], w), c("conv2d", x, torch.ones(5, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], 2, **e)
    c("conv_transpose2d.input", x, w, **e), c("conv_transpose2d.input", x, rand(4, 6, 3, 3), torch.ones(3), **e), c("conv_transpose2d.input", x, rand(4, 6, 3, 3), None, [2, 2], [0, 0], [2, 2])
    c.end(500)


def test_pooling():
    c = Tally()
    for dt in FLOATS + [torch.int64]:
        t = TOLS.get(dt)
        for nd in (2, 3):
            for x in (rand(2, 3, 9, 8, dtype=dt), rand(2, 3, 9, 8, dtype=dt).to(memory_format=CL), rand(3, 9, 8, dtype=dt)) if nd == 2 else (rand(2, 3, 5, 6, 7, dtype=dt), rand(3, 5, 6, 7, dtype=dt)):
                for k, s, p, d, ceil in ((2, [], 0, 1, False), (3, 2, 1, 1, False), (3, 2, 1, 1, True), (2, 1, 0, 2, False), (2, 3, 1, 1, True)):
                    s = [s] * nd if s else []
                    r = c(f"max_pool{nd}d_with_indices", x, [k] * nd, s, [p] * nd, [d] * nd, ceil, tol=t)
                    c(f"max_pool{nd}d", x, [k] * nd, s, [p] * nd, [d] * nd, ceil, tol=t)
                    if r is not None and dt.is_floating_point:
                        y, ix = aten(f"max_pool{nd}d_with_indices")(x, [k] * nd, s, [p] * nd, [d] * nd, ceil)
                        c(f"max_pool{nd}d_with_indices_backward", rand(*y.shape, dtype=dt), x, [k] * nd, s, [p] * nd, [d] * nd, ceil, ix, tol=t, strides=x.is_contiguous())
                    if d == 1:
                        for inc in (True, False):
                            for div in (None, 3):
                                r = c(f"avg_pool{nd}d", x, [k] * nd, s, [p] * nd, ceil, inc, div, tol=t)
                                if r is not None and dt.is_floating_point:
                                    c(f"avg_pool{nd}d_backward", rand(*r.shape, dtype=dt), x, [k] * nd, s, [p] * nd, ceil, inc, div, tol=t, strides=x.is_contiguous())
                if dt.is_floating_point:
                    for o in ([1] * nd, [3] * nd, [4, 2, 3][:nd], [9] * nd):
                        c(f"adaptive_avg_pool{nd}d", x, o, tol=t), c(f"_adaptive_avg_pool{nd}d", x, o, tol=t), c(f"adaptive_max_pool{nd}d", x, o, tol=t, strides=x.is_contiguous())
                        c(f"_adaptive_avg_pool{nd}d_backward", rand(*x.shape[:-nd], *o, dtype=dt), x, tol=t, strides=x.is_contiguous())
        for x in (rand(2, 3, 9, dtype=dt), rand(3, 9, dtype=dt)):
            c("max_pool1d", x, [2], tol=t), c("max_pool1d", x, [3], [2], [1], [1], True, tol=t), c("max_pool1d_with_indices", x, [3], [2], [1], tol=t)
            if dt.is_floating_point:
                c("avg_pool1d", x, [3], [2], [1], True, False, tol=t), c("adaptive_avg_pool1d", x, [4], tol=t), c("adaptive_max_pool1d", x, [4], tol=t)
    x = rand(2, 4, 8, 8)
    e = dict(text=True)
    c("max_pool2d_with_indices", x, [9, 9], **e), c("max_pool2d_with_indices", x, [2, 2], [], [2, 2], **e), c("max_pool2d_with_indices", x, [2, 2], [0, 0], **e), c("max_pool2d_with_indices", x[0, 0], [2, 2], **e)
    c("avg_pool2d", x, [2, 2], [], [0, 0], False, True, 0, **e), c("avg_pool2d", x, [9, 9], **e), c("max_pool2d_with_indices", x.bool(), [2, 2], **e), c("adaptive_avg_pool2d", x, [-1, 1]), c("max_pool2d_with_indices", x[:0], [2, 2])
    c("max_pool2d_with_indices", torch.full((1, 1, 2, 2), float("nan")), [2, 2])
    c.end(300)


def test_normalisation():
    c = Tally()
    for dt in FLOATS:
        t = TOLS[dt]
        for shape in ((4, 6), (2, 6, 5), (2, 6, 4, 3), (3, 6, 2, 2, 2)):
            for x in layouts(rand(*shape, dtype=dt)):
                w, b, m, v = rand(6, dtype=dt), rand(6, dtype=dt), rand(6, dtype=dt), rand(6, dtype=dt, lo=1)
                last = list(shape[-1:]), list(shape[-2:])
                for ns in last:
                    lw, lb = rand(*ns, dtype=dt), rand(*ns, dtype=dt)
                    c("native_layer_norm", x, ns, lw, lb, 1e-5, tol=t), c("native_layer_norm", x, ns, None, None, 1e-5, tol=t), c("layer_norm", x, ns, lw, None, tol=t), c("rms_norm", x, ns, lw, tol=t), c("rms_norm", x, ns, None, 1e-3, tol=t)
                    y, mean, rstd = torch.native_layer_norm(x, ns, lw, lb, 1e-5)
                    c("native_layer_norm_backward", rand(*shape, dtype=dt), x, ns, mean, rstd, lw, lb, [True, True, True], tol=t * 20, strides=False)
                for wb in ((w, b), (None, None), (w, None)):
                    c("native_batch_norm", x, *wb, None, None, True, 0.1, 1e-5, tol=t), c("native_batch_norm", x, *wb, m, v, False, 0.1, 1e-5, tol=t), c("batch_norm", x, *wb, m.clone(), v.clone(), True, 0.1, 1e-5, False, tol=t)
                c("_native_batch_norm_legit_functional", x, w, b, m, v, True, 0.1, 1e-5, tol=t)
                if dt in (torch.float32, torch.float64):
                    y, sm, si = torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)
                    c("native_batch_norm_backward", rand(*shape, dtype=dt), x, w, None, None, sm, si, True, 1e-5, [True, True, True], tol=t * 10, strides=x.is_contiguous())
                    c("native_batch_norm_backward", rand(*shape, dtype=dt), x, w, m, v, torch.zeros(0, dtype=dt), torch.zeros(0, dtype=dt), False, 1e-5, [True, True, True], tol=t * 10, strides=x.is_contiguous())
                for g in (1, 2, 6):
                    c("group_norm", x, g, w, b, tol=t), c("group_norm", x, g, tol=t)
                if x.is_contiguous() and len(shape) > 2:
                    hw = x[0, 0].numel()
                    c("native_group_norm", x, w, b, shape[0], 6, hw, 2, 1e-5, tol=t)
                    y, mean, rstd = torch.native_group_norm(x, w, b, shape[0], 6, hw, 2, 1e-5)
                    c("native_group_norm_backward", rand(*shape, dtype=dt), x, mean, rstd, w, shape[0], 6, hw, 2, [True, True, True], tol=t * 20)
                    c("instance_norm", x, w, b, None, None, True, 0.1, 1e-5, False, tol=t), c("instance_norm", x, w, b, m, v, False, 0.1, 1e-5, False, tol=t)
    x = rand(4, 6)
    e = dict(text=True)
    c("native_layer_norm", x, [5], None, None, 1e-5, **e), c("native_layer_norm", x, [], None, None, 1e-5, **e), c("native_layer_norm", x, [6], rand(5), None, 1e-5, **e)
    c("group_norm", x, 4, **e), c("group_norm", x, 2, rand(5), **e), c("batch_norm", x, rand(5), None, None, None, True, 0.1, 1e-5, False, **e)
    m, v = torch.zeros(6), torch.ones(6)
    tm, tv = to_taper(m), to_taper(v)
    torch.batch_norm(x, None, None, m, v, True, 0.1, 1e-5, False)
    taper._C._call("batch_norm", to_taper(x), None, None, tm, tv, True, 0.1, 1e-5, False)
    same(tm, m, "running_mean"), same(tv, v, "running_var")
    x = rand(2, 6, 5)
    torch.instance_norm(x, None, None, m, v, True, 0.1, 1e-5, False)
    taper._C._call("instance_norm", to_taper(x), None, None, tm, tv, True, 0.1, 1e-5, False)
    same(tm, m, "running_mean"), same(tv, v, "running_var")
    c.end(300)


def test_interpolation():
    c = Tally()
    for dt in FLOATS:
        t = TOLS[dt]
        for nd, shape in ((1, (2, 3, 5)), (2, (2, 3, 4, 5)), (3, (1, 2, 3, 4, 5))):
            for x in layouts(rand(*shape, dtype=dt)):
                plain = x.is_contiguous()
                for o, sc in (([7] * nd, [None] * nd), ([2] * nd, [None] * nd), ([2 * n for n in shape[2:]], [2.0] * nd), ([int(n * 1.7) for n in shape[2:]], [1.7] * nd), (list(shape[2:]), [None] * nd)):
                    for n in ("upsample_nearest", "_upsample_nearest_exact"):
                        c(f"{n}{nd}d", x, o, *sc, tol=t, strides=plain)
                        if dt in (torch.float32, torch.float64):
                            c(f"{n}{nd}d_backward", rand(*shape[:2], *o, dtype=dt), o, list(shape), *sc, tol=t)
                    names = [("", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")[nd]] + (["upsample_bicubic2d"] if nd == 2 else [])
                    for n in names:
                        for ac in (True, False):
                            c(n, x, o, ac, *sc, tol=max(t, 5e-2 if dt == torch.bfloat16 else 0), strides=plain)
                            if dt in (torch.float32, torch.float64):
                                c(n + "_backward", rand(*shape[:2], *o, dtype=dt), o, list(shape), ac, *sc, tol=t * 10)
        x = rand(2, 8, 4, 6, dtype=dt)
        c("pixel_shuffle", x, 2), c("pixel_unshuffle", x, 2), c("channel_shuffle", x, 4), c("pixel_shuffle", x, 3, text=True), c("pixel_unshuffle", x, 4), c("pixel_shuffle", x, 0)
    c("upsample_nearest2d", x, [0, 3]), c("upsample_nearest2d", x[0], [2, 3])
    c.end(300)


def test_losses():
    c = Tally()
    for dt in FLOATS:
        t = TOLS[dt] * (5 if dt in (torch.float16, torch.bfloat16) else 1)
        for red in (0, 1, 2):
            a, b = rand(4, 5, dtype=dt), rand(4, 5, dtype=dt)
            c("mse_loss", a, b, red, tol=t * 5), c("l1_loss", a, b, red, tol=t), c("smooth_l1_loss", a, b, red, tol=t), c("smooth_l1_loss", a, b, red, 0.5, tol=t), c("smooth_l1_loss", a, b, red, 0.0, tol=t), c("huber_loss", a, b, red, 1.5, tol=t)
            p, q, w = rand(4, 5, dtype=dt, lo=0.05, hi=0.95), rand(4, 5, dtype=dt, lo=0, hi=1), rand(5, dtype=dt, lo=0)
            c("binary_cross_entropy", p, q, None, red, tol=t), c("binary_cross_entropy", p, q, w, red, tol=t), c("binary_cross_entropy_backward", rand(*((4, 5) if red == 0 else ()), dtype=dt), p, q, w, red, tol=t * 2)
            c("binary_cross_entropy_with_logits", a, q, None, None, red, tol=t), c("binary_cross_entropy_with_logits", a, q, w, w + 1, red, tol=t * 5)
            c("kl_div", a, q, red, tol=t), c("kl_div", a, b, red, log_target=True, tol=t * 10)
            s = torch.randint(0, 2, (4, 5)).to(dt) * 2 - 1
            c("soft_margin_loss", a, s, red, tol=t), c("hinge_embedding_loss", a, s, 1.0, red, tol=t), c("margin_ranking_loss", a, b, s, 0.3, red, tol=t), c("cosine_embedding_loss", a, b, s[:, 0], 0.2, red, tol=t)
            c("poisson_nll_loss", a, q * 5, True, False, 1e-8, red, tol=t * 5), c("poisson_nll_loss", p, q * 5, False, True, 1e-8, red, tol=t * 5), c("triplet_margin_loss", a, b, rand(4, 5, dtype=dt), 1.0, 2.0, 1e-6, True, red, tol=t)
            for shape, ts in (((4, 5), (4,)), ((5,), ()), ((2, 5, 3, 4), (2, 3, 4)), ((2, 5, 3), (2, 3)), ((2, 5, 2, 2, 2), (2, 2, 2, 2))):
                x, y, cw = rand(*shape, dtype=dt), torch.randint(0, 5, ts), rand(5, dtype=dt, lo=0.1)
                for wt in (None, cw):
                    for ign in (-100, 1):
                        c("nll_loss_nd", x, y, wt, red, ign, tol=t)
                        if not (ts == () and ign == 1 and red == 1):
                            c("cross_entropy_loss", x, y, wt, red, ign, 0.0, tol=t), c("cross_entropy_loss", x, y, wt, red, ign, 0.1, tol=t)
                    c("cross_entropy_loss", x, torch.softmax(rand(*shape, dtype=dt), 1 if len(shape) > 1 else 0), wt, red, -100, 0.1, tol=t)
                if len(shape) in (1, 2, 4):
                    n = "nll_loss2d" if len(shape) == 4 else "nll_loss"
                    if not (ts == () and red == 0):
                        r = c(n + "_forward", x, y, cw, red, 1, tol=t)
                        o, tw = aten(n + "_forward")(x, y, cw, red, 1)
                        c(n + "_backward", rand(*o.shape, dtype=dt), x, y, cw, red, 1, tw, tol=t)
        x, y = rand(3, 4, 5, dtype=dt), rand(3, 4, 5, dtype=dt)
        c("prelu", x, rand(4, dtype=dt), tol=t), c("prelu", x, rand(1, dtype=dt), tol=t), c("prelu", x, torch.tensor(0.2, dtype=dt), tol=t), c("prelu", x, rand(3, dtype=dt), text=True), c("prelu", x[0, 0], rand(1, dtype=dt), tol=t)
        for d in (0, 1, -1):
            c("cosine_similarity", x, y, d, tol=t)
        c("cosine_similarity", x, y[0], -1, tol=t), c("pairwise_distance", x, y, tol=t), c("pairwise_distance", x, y, 1.0, 1e-6, True, tol=t), c("glu", rand(3, 4, dtype=dt), tol=t), c("glu", rand(3, 4, 2, dtype=dt), 1, tol=t), c("glu", x, text=True)
        if dt in (torch.float32, torch.float64):
            for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
                c("cdist", x, rand(3, 6, 5, dtype=dt), p, tol=t * 10), c("pdist", x[0], p, tol=t * 10)
    a = rand(4, 5)
    e = dict(text=True)
    c("nll_loss_nd", a, torch.tensor([0, 1, 2, 9]), **e), c("nll_loss_nd", a, torch.tensor([0, 1]), **e), c("cross_entropy_loss", a, torch.tensor([0, 1, 2, -5]), **e), c("nll_loss_nd", a, torch.zeros(4), **e)
    c("binary_cross_entropy", a, rand(4, 5), **e), c("smooth_l1_loss", a, a, 1, -1.0, **e), c("huber_loss", a, a, 1, 0.0, **e)
    c.end(500)


def test_attention_and_dropout():
    c = Tally()
    for dt in FLOATS:
        t = TOLS[dt]
        for shape in ((2, 3, 4, 8), (3, 4, 8), (4, 8)):
            q, k, v = (rand(*shape, dtype=dt, lo=-1, hi=1) for _ in range(3))
            c("scaled_dot_product_attention", q, k, v, tol=t, strides=False), c("scaled_dot_product_attention", q, k, v, None, 0.0, True, tol=t, strides=False), c("scaled_dot_product_attention", q, k, v, scale=0.3, tol=t, strides=False)
            m = torch.rand(4, 4) < 0.5
            m[0] = False
            c("scaled_dot_product_attention", q, k, v, m, tol=t, strides=False), c("scaled_dot_product_attention", q, k, v, rand(4, 4, dtype=dt), tol=t, strides=False)
        c("scaled_dot_product_attention", rand(2, 4, 3, 8, dtype=dt), rand(2, 2, 5, 8, dtype=dt), rand(2, 2, 5, 8, dtype=dt), enable_gqa=True, tol=t, strides=False)
    x = torch.ones(1000)
    for n in ("dropout", "feature_dropout", "alpha_dropout"):
        y = taper._C._call(n, to_taper(x.view(100, 10)), 0.3, True)
        got = to_torch(y)
        assert n == "alpha_dropout" or abs(got.mean().item() - 1) < 0.25, (n, got.mean())
        if n == "dropout":
            assert set(got.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}, got.unique()
        c(n, x, 0.3, False), c(n, x.view(10, 100), 0.0, True), c(n, x, 1.5, True)
    c.end()


def test_grids_and_bags():
    import torch.nn.functional as F
    import taper.nn.functional as NF
    c = Tally()
    for dt in (torch.float32, torch.float64):
        x, g, th = rand(2, 3, 5, 6, dtype=dt), rand(2, 4, 3, 2, dtype=dt, lo=-1.5, hi=1.5), rand(2, 2, 3, dtype=dt)
        for m in (0, 1):
            for p in (0, 1, 2):
                for a in (True, False):
                    c("grid_sampler", x, g, m, p, a, tol=1e-4), c("grid_sampler_2d_backward", rand(2, 3, 4, 3, dtype=dt), x, g, m, p, a, [True, True], tol=1e-3)
        for a in (True, False):
            c("affine_grid_generator", th, [2, 3, 4, 5], a, tol=1e-5, strides=False)
    c("grid_sampler", x, g[:1], 0, 0, False, text=True)
    c.end(40)
    w, i, o = rand(10, 4), torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        for kw in ({}, {"padding_idx": 3}):
            same(NF.embedding_bag(to_taper(i), to_taper(w), to_taper(o), mode=mode, **kw), F.embedding_bag(i, w, o, mode=mode, **kw), mode)
        same(NF.embedding_bag(to_taper(i[:6].view(2, 3)), to_taper(w), mode=mode), F.embedding_bag(i[:6].view(2, 3), w, mode=mode), mode)
