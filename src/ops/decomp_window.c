/* decomp_window.c - convolutions and pooling as products, slices and sums: for devices, where no kernel of the CPU can be called
 * (OPF_DEVICE). Convolutions that a device has itself are rows of their own (_conv_forward and the like). Windows are a view of the padded image. What is summed is summed in f32 at least. */
#include "ops/conv.h"
#include "ops/decomp.h"
#include <math.h>

enum { MAX_TAPS = 64 }; /* of a window whose elements are written out one by one */

/* A window over the last nd dimensions. */
typedef struct window {
    int nd;
    int64_t k[3], s[3], p[3], d[3]; /* size, stride, padding, dilation */
    int64_t taps;                   /* elements of a window */
    symint in[3], out[3];
} window;

static bool not_here(bld *b) { return err_set(b->err, ERR_notimpl, "windows of this kind"); }

/* Numbers of a list, one for all or one each; none: those of `none`. False: not known here. */
static bool list_of(const tp_val *v, int nd, const int64_t *none, int64_t *out)
{
    for (int i = 0; i < nd; i++) {
        if (v->kind != VAL_ints || !v->n) {
            if (!none)
                return false;
            out[i] = none[i];
            continue;
        }
        symint x = v->ints[v->n == 1 ? 0 : i];
        if (sym_is_expr(x))
            return false;
        out[i] = x;
    }
    return true;
}

static symint product_of(int n, const symint *a)
{
    symint r = 1;
    for (int i = 0; i < n; i++)
        r = sym_mul(r, a[i]);
    return r;
}

/* Sizes: some of x's, then others. */
static tp_val sizes_of(symint *at, const tp_tensor *x, int keep, int n, const symint *more)
{
    for (int i = 0; i < keep; i++)
        at[i] = x->size[i];
    for (int i = 0; i < n; i++)
        at[keep + i] = more[i];
    return vIs(at, keep + n);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */
/* x with lo and hi elements more at the ends of its last nd dimensions; fewer where they are negative. */
static tp_tensor *padded(bld *b, tp_tensor *x, int nd, const symint *lo, const symint *hi, tp_val fill)
{
    symint pad[6];
    bool any = false;
    for (int i = 0; i < nd; i++) {
        pad[2 * (nd - 1 - i)] = lo[i];
        pad[2 * (nd - 1 - i) + 1] = hi[i];
        any |= lo[i] != 0 || hi[i] != 0;
    }
    return any && x ? b_op(b, constant_pad_nd, vT(x), vIs(pad, 2 * nd), fill) : x;
}

/* x with s - 1 elements behind each of its last nd dimensions' elements. */
static tp_tensor *spread(bld *b, tp_tensor *x, int nd, const int64_t *s, tp_val fill)
{
    symint size[TP_MAX_DIMS], pad[12] = { 0 }, end[TP_MAX_DIMS];
    int lead = x ? x->ndim - nd : 0, n = lead;
    bool any = false;
    for (int i = 0; i < nd; i++)
        any |= s[i] > 1;
    if (!x || !any)
        return x;
    sizes_of(size, x, lead, 0, NULL), sizes_of(end, x, lead, 0, NULL);
    for (int i = 0; i < nd; i++) {
        size[n++] = x->size[lead + i];
        size[n++] = 1;
        pad[4 * (nd - 1 - i) + 1] = s[i] - 1;
        end[lead + i] = sym_mul(x->size[lead + i], s[i]);
    }
    tp_tensor *v = b_op(b, constant_pad_nd, vT(b_op(b, reshape, vT(x), vIs(size, n))), vIs(pad, 4 * nd),
                        fill);
    return b_op(b, reshape, vT(v), vIs(end, x->ndim));
}

/* The padded image that all windows lie in. */
static tp_tensor *image(bld *b, tp_tensor *x, const window *w, tp_val fill)
{
    symint lo[3], hi[3];
    for (int i = 0; i < w->nd; i++) { /* windows may reach beyond the padding, or leave elements out */
        symint reach = sym_add(sym_mul(sym_sub(w->out[i], 1), w->s[i]), w->d[i] * (w->k[i] - 1) + 1);
        lo[i] = w->p[i];
        hi[i] = sym_max(sym_sub(reach, sym_add(w->in[i], w->p[i])), 0);
    }
    return padded(b, x, w->nd, lo, hi, fill);
}

/* Element `tap` of every window: a slice of the image. */
static tp_tensor *tap_of(bld *b, tp_tensor *x, const window *w, int64_t tap)
{
    for (int i = w->nd - 1; i >= 0 && x; i--) {
        int64_t at = tap % w->k[i] * w->d[i];
        tap /= w->k[i];
        symint end = sym_add(sym_mul(sym_sub(w->out[i], 1), w->s[i]), at + 1);
        x = b_op(b, slice_Tensor, vT(x), vI(x->ndim - w->nd + i), vI(at), vI(end), vI(w->s[i]));
    }
    return x;
}

/* The reverse: an element for each window, put where `tap` of it lies in the image without padding. */
static tp_tensor *put_tap(bld *b, tp_tensor *y, const window *w, int64_t tap, tp_val fill)
{
    symint lo[3], hi[3];
    tp_tensor *z = spread(b, y, w->nd, w->s, fill);
    for (int i = w->nd - 1; i >= 0 && z; i--) {
        lo[i] = tap % w->k[i] * w->d[i] - w->p[i];
        tap /= w->k[i];
        hi[i] = sym_sub(w->in[i], sym_add(lo[i], z->size[z->ndim - w->nd + i]));
    }
    return z ? padded(b, z, w->nd, lo, hi, fill) : NULL;
}

/* All of them: batch, channels, window, places. */
static tp_tensor *patches(bld *b, tp_tensor *x, const window *w)
{
    symint size[8], stride[8];
    x = b_op(b, contiguous, vT(x), vMF(MF_contiguous));
    if (!x)
        return NULL;
    for (int i = 0; i < 2; i++)
        size[i] = x->size[i], stride[i] = x->stride[i];
    for (int i = 0; i < w->nd; i++) {
        size[2 + i] = w->k[i], stride[2 + i] = sym_mul(x->stride[2 + i], w->d[i]);
        size[2 + w->nd + i] = w->out[i], stride[2 + w->nd + i] = sym_mul(x->stride[2 + i], w->s[i]);
    }
    return b_op(b, as_strided, vT(x), vIs(size, 2 + 2 * w->nd), vIs(stride, 2 + 2 * w->nd), vNone);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */
static bool is_low(const tp_tensor *x) { return x->dt == DT_f16 || x->dt == DT_bf16; }
static tp_tensor *wide(bld *b, tp_tensor *x)
{
    return x && is_low(x) ? b_op(b, to_dtype, vT(x), vDT(DT_f32)) : x;
}
static tp_tensor *as_type(bld *b, tp_tensor *x, dtype dt)
{
    return x && (dtype)x->dt != dt ? b_op(b, to_dtype, vT(x), vDT(dt)) : x;
}
static tp_tensor *dense(bld *b, tp_tensor *x) { return b_op(b, clone, vT(x), vMF(MF_contiguous)); }

/* One channel each: the elements of a window are summed where they are read. */
static tp_tensor *depthwise(bld *b, tp_tensor *x, tp_tensor *w, const window *win)
{
    dtype dt = (dtype)x->dt;
    symint one[5] = { w->size[0], 1, 1, 1 }, flat[2] = { w->size[0], win->taps };
    tp_tensor *sum = NULL, *wf = b_op(b, reshape, vT(wide(b, w)), vIs(flat, 2));
    for (int64_t t = 0; t < win->taps; t++) {
        tp_tensor *k = b_op(b, reshape, vT(b_op(b, select_int, vT(wf), vI(1), vI(t))), vIs(one, win->nd + 1));
        tp_tensor *y = b_op(b, mul_Tensor, vT(wide(b, tap_of(b, x, win, t))), vT(k));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(y)) : y;
    }
    return as_type(b, sum, dt);
}

/* Groups of channels times window, by batch times places. */
static tp_tensor *columns(bld *b, tp_tensor *x, const window *w, symint groups)
{
    symint dims[8], size[3] = { groups, sym_mul(sym_floordiv(x->size[1], groups), w->taps),
                                sym_mul(x->size[0], product_of(w->nd, w->out)) };
    tp_tensor *v = patches(b, x, w);
    for (int i = 0; i <= w->nd; i++)
        dims[i] = i + 1;
    dims[w->nd + 1] = 0;
    for (int i = 0; i < w->nd; i++)
        dims[w->nd + 2 + i] = w->nd + 2 + i;
    v = b_op(b, permute, vT(v), vIs(dims, 2 + 2 * w->nd));
    return b_op(b, reshape, vT(dense(b, v)), vIs(size, 3));
}

/* x: padded already; w: results, channels of a group, window. */
static tp_tensor *correlate(bld *b, tp_tensor *x, tp_tensor *w, const window *win, symint groups)
{
    symint size[8], places = product_of(win->nd, win->out);
    if (!x || !w)
        return NULL;
    symint n = x->size[0], o = w->size[0], deep = sym_mul(w->size[1], win->taps);
    if (sym_known(SYM_eq, groups, o) && sym_known(SYM_eq, w->size[1], 1) && win->taps <= MAX_TAPS)
        return depthwise(b, x, w, win);
    if (!sym_known(SYM_eq, groups, 1) || sym_known(SYM_lt, places, 256)) { /* one product of all images */
        symint by[3] = { groups, sym_floordiv(o, groups), deep }, dims[5] = { 1, 0, 2, 3, 4 };
        tp_tensor *y = b_op(b, bmm, vT(b_op(b, reshape, vT(w), vIs(by, 3))), vT(columns(b, x, win, groups)));
        size[0] = o, size[1] = n;
        for (int i = 0; i < win->nd; i++)
            size[2 + i] = win->out[i];
        y = b_op(b, reshape, vT(y), vIs(size, 2 + win->nd));
        return dense(b, b_op(b, permute, vT(y), vIs(dims, 2 + win->nd)));
    }
    bool points = win->taps == 1;
    for (int i = 0; i < win->nd; i++)
        points &= win->s[i] == 1;
    symint cols[3] = { n, deep, places }, one[3] = { 1, o, deep }, all[3] = { n, o, deep };
    tp_tensor *col = points ? x : dense(b, patches(b, x, win));
    tp_tensor *by = b_op(b, expand, vT(b_op(b, reshape, vT(w), vIs(one, 3))), vIs(all, 3));
    tp_tensor *y = b_op(b, bmm, vT(by), vT(b_op(b, reshape, vT(col), vIs(cols, 3))));
    size[0] = n, size[1] = o;
    for (int i = 0; i < win->nd; i++)
        size[2 + i] = win->out[i];
    return b_op(b, reshape, vT(y), vIs(size, 2 + win->nd));
}

/* The gradient of the image, or a transposed convolution: y has a place for each window. */
static tp_tensor *correlate_back(bld *b, tp_tensor *y, tp_tensor *w, const window *win, symint groups)
{
    symint by[6] = { groups, sym_floordiv(w->size[0], groups), w->size[1] },
           turned[5] = { sym_mul(w->size[1], groups), by[1] }, dims[3], lo[3], hi[3];
    window back = *win;
    for (int i = 0; i < win->nd; i++) {
        dims[i] = 2 + i;
        by[3 + i] = turned[2 + i] = w->size[2 + i];
        back.s[i] = 1, back.p[i] = 0;
    }
    tp_tensor *t = win->taps > 1 ? b_op(b, flip, vT(w), vIs(dims, win->nd)) : w;
    t = b_op(b, transpose_int, vT(b_op(b, reshape, vT(t), vIs(by, 3 + win->nd))), vI(1), vI(2));
    t = b_op(b, reshape, vT(t), vIs(turned, 2 + win->nd));
    if (win->taps == 1) { /* the product first: it is of fewer elements */
        memcpy(back.in, win->out, sizeof back.in);
        return put_tap(b, correlate(b, y, t, &back, groups), win, 0, vI(0));
    }
    tp_tensor *z = spread(b, y, win->nd, win->s, vI(0));
    for (int i = 0; i < win->nd && z; i++) {
        int64_t edge = win->d[i] * (win->k[i] - 1);
        lo[i] = edge - win->p[i];
        hi[i] = sym_sub(sym_add(win->in[i], edge), sym_add(lo[i], z->size[2 + i]));
        back.out[i] = win->in[i];
    }
    return z ? correlate(b, padded(b, z, win->nd, lo, hi, vI(0)), t, &back, groups) : NULL;
}

/* The gradient of the weights: x is the image, padded; y has a place for each window. */
static tp_tensor *correlate_weight(bld *b, tp_tensor *x, tp_tensor *y, const window *win, symint groups,
                                   const tp_tensor *w)
{
    if (!x || !y)
        return NULL;
    symint places = product_of(win->nd, win->out), o = y->size[1];
    symint flat[3] = { y->size[0], o, places }, dims[3] = { 1, 0, 2 },
           by[3] = { groups, sym_floordiv(o, groups), sym_mul(y->size[0], places) };
    tp_tensor *v = b_op(b, permute, vT(b_op(b, reshape, vT(y), vIs(flat, 3))), vIs(dims, 3));
    v = b_op(b, reshape, vT(v), vIs(by, 3));
    tp_tensor *col = b_op(b, transpose_int, vT(columns(b, x, win, groups)), vI(1), vI(2));
    return b_op(b, reshape, vT(b_op(b, bmm, vT(v), vT(col))), vIs(w->size, w->ndim));
}

/* at: the operator's arguments from stride on. x: the image, y: with a place for each window. */
static bool window_of(const tp_val *at, const tp_tensor *w, const symint *in, const symint *out, window *win)
{
    win->nd = w->ndim - 2;
    win->taps = 1;
    if (win->nd < 1 || win->nd > 3 || !list_of(&at[0], win->nd, NULL, win->s) ||
        !list_of(&at[1], win->nd, NULL, win->p) || !list_of(&at[2], win->nd, NULL, win->d))
        return false;
    for (int i = 0; i < win->nd; i++) {
        if (sym_is_expr(w->size[2 + i]))
            return false;
        win->k[i] = w->size[2 + i];
        win->taps *= win->k[i];
        win->in[i] = in[2 + i];
        win->out[i] = out[2 + i];
    }
    return true;
}

static symint out_size(symint in, int64_t k, int64_t s, int64_t p, int64_t d)
{
    return sym_add(sym_floordiv(sym_sub(sym_add(in, 2 * p), d * (k - 1) + 1), s), 1);
}

/* --- convolutions that the device computes itself --- */
static bool geom_known(const window *win, symint n, symint c, symint o, symint groups, conv_geom *g)
{
    bool known = !sym_is_expr(n) && !sym_is_expr(c) && !sym_is_expr(o) && !sym_is_expr(groups);
    *g = (conv_geom){ .n = n, .c = c, .o = o, .groups = groups };
    for (int i = 0; i < 3; i++) {
        int d = i - (3 - win->nd);
        g->in[i] = d < 0 ? 1 : win->in[d], g->out[i] = d < 0 ? 1 : win->out[d];
        g->k[i] = d < 0 ? 1 : win->k[d], g->s[i] = d < 0 ? 1 : win->s[d];
        g->p[i] = d < 0 ? 0 : win->p[d], g->d[i] = d < 0 ? 1 : win->d[d];
        known &= !sym_is_expr(g->in[i]) && !sym_is_expr(g->out[i]);
    }
    return known;
}

/* a and b: what the row reads, in its order; size: of the result. NULL: the device does not have it. f: the layout of all three. */
static tp_tensor *by_device(bld *b, conv_kind kind, tp_tensor *a, tp_tensor *by, const symint *size,
                            const window *win, symint groups, memfmt f)
{
    symint s[3], p[3], d[3];
    conv_geom g;
    int nd = win->nd;
    symint n = a->size[0],
           c = kind == CONV_grad_input ? size[1]
               : kind == CONV_forward  ? a->size[1]
                                       : by->size[1],
           o = kind == CONV_forward ? size[1] : a->size[1];
    bool known = geom_known(win, n, c, o, groups, &g);
    g.last = g.w_last = f != MF_contiguous;
    if (!conv_offered(kind, (dtype)a->dt, known ? &g : NULL, tensor_device(a)))
        return NULL;
    for (int i = 0; i < nd; i++)
        s[i] = win->s[i], p[i] = win->p[i], d[i] = win->d[i];
    a = b_op(b, contiguous, vT(a), vMF(f));
    by = b_op(b, contiguous, vT(by), vMF(f));
    tp_val to = vIs(size, nd + 2), num[4] = { vIs(s, nd), vIs(p, nd), vIs(d, nd), vI(groups) };
    return kind == CONV_forward ? b_op(b, _conv_forward, vT(a), vT(by), num[0], num[1], num[2], num[3])
           : kind == CONV_grad_input
               ? b_op(b, _conv_grad_input, vT(a), vT(by), to, num[0], num[1], num[2], num[3])
               : b_op(b, _conv_grad_weight, vT(a), vT(by), to, num[0], num[1], num[2], num[3]);
}

static bool plain_types(const tp_tensor *x, const tp_tensor *w)
{
    return dtype_is_float((dtype)x->dt) && x->dt == w->dt && x->ndim == w->ndim;
}

bool decomp_convolution(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *w = val_t(&arg[1]), *bias = val_t(&arg[2]), *y;
    int64_t s[3], p[3], d[3], more[3];
    int nd = x->ndim - 2;
    bool turned = val_b(&arg[6], false);
    symint other[5] = { 0 }, row[5] = { 1, 1, 1, 1, 1 };
    window win;
    if (nd < 1 || nd > 3 || !plain_types(x, w) || !list_of(&arg[3], nd, NULL, s) ||
        !list_of(&arg[4], nd, NULL, p) || !list_of(&arg[5], nd, NULL, d) || !list_of(&arg[7], nd, NULL, more))
        return not_here(b);
    for (int i = 0; i < nd; i++) {
        if (sym_is_expr(w->size[2 + i]))
            return not_here(b);
        other[2 + i] = turned ? sym_add(sym_sub(sym_mul(sym_sub(x->size[2 + i], 1), s[i]), 2 * p[i]),
                                        d[i] * (w->size[2 + i] - 1) + more[i] + 1)
                              : out_size(x->size[2 + i], w->size[2 + i], s[i], p[i], d[i]);
    }
    if (!window_of(&arg[3], w, turned ? other : x->size, turned ? x->size : other, &win))
        return not_here(b);
    other[0] = x->size[0];
    other[1] = turned ? sym_mul(w->size[1], arg[8].i) : w->size[0];
    y = by_device(b, turned ? CONV_grad_input : CONV_forward, x, w, other, &win, arg[8].i, conv_format(x, w));
    if (!y && !b->failed)
        y = turned ? correlate_back(b, x, w, &win, arg[8].i)
                   : correlate(b, image(b, x, &win, vI(0)), w, &win, arg[8].i);
    if (bias) {
        row[1] = bias->size[0];
        tp_tensor *add = b_op(b, reshape, vT(bias), vIs(row, nd + 2));
        y = b_op(b, add_Tensor, vT(y), vT(add));
    }
    return comp_ret(b, y, out);
}

/* (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask) */
bool decomp_convolution_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = val_t(&arg[0]), *x = val_t(&arg[1]), *w = val_t(&arg[2]), *d[3] = { 0 };
    const bool *want = arg[10].bools;
    bool turned = val_b(&arg[7], false);
    symint groups = arg[9].i, dims[4] = { 0, 2, 3, 4 };
    window win;
    tp_tensor *in = turned ? dy : x, *at = turned ? x : dy;
    if (!plain_types(x, w) || dy->dt != x->dt || !window_of(&arg[4], w, in->size, at->size, &win))
        return not_here(b);
    memfmt f = conv_format(x, w);
    if (want[0])
        d[0] = by_device(b, turned ? CONV_forward : CONV_grad_input, dy, w, x->size, &win, groups, f);
    if (want[0] && !d[0] && !b->failed)
        d[0] = turned ? correlate(b, image(b, dy, &win, vI(0)), w, &win, groups)
                      : correlate_back(b, dy, w, &win, groups);
    if (want[1] && !b->failed)
        d[1] = by_device(b, CONV_grad_weight, at, in, w->size, &win, groups, f);
    if (want[1] && !d[1] && !b->failed)
        d[1] = correlate_weight(b, image(b, in, &win, vI(0)), at, &win, groups, w);
    if (want[2])
        d[2] = b_op(b, sum_dim_IntList, vT(dy), vIs(dims, win.nd + 1));
    if (b->failed)
        return false;
    for (int i = 0; i < 3; i++)
        out[i] = d[i] ? vT(tensor_ref(d[i])) : vNone;
    return true;
}

/* --- unfold and fold ---------------------------------------------------------------------------------------------- */
/* arg: kernel_size, dilation, padding, stride */
static bool blocks_of(const tp_val *arg, window *w)
{
    w->nd = 2;
    if (!list_of(&arg[0], 2, NULL, w->k) || !list_of(&arg[1], 2, NULL, w->d) ||
        !list_of(&arg[2], 2, NULL, w->p) || !list_of(&arg[3], 2, NULL, w->s))
        return false;
    w->taps = w->k[0] * w->k[1];
    for (int i = 0; i < 2; i++)
        w->out[i] = out_size(w->in[i], w->k[i], w->s[i], w->p[i], w->d[i]);
    return true;
}

bool decomp_im2col(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]);
    int lead = x->ndim - 3; /* 0: one image */
    window w = { .in = { x->size[x->ndim - 2], x->size[x->ndim - 1] } };
    if (!blocks_of(&arg[1], &w))
        return not_here(b);
    symint size[3] = { x->size[0], sym_mul(x->size[lead], w.taps), product_of(2, w.out) };
    tp_tensor *v = image(b, x, &w, vI(0));
    v = dense(b, patches(b, lead ? v : b_op(b, unsqueeze, vT(v), vI(0)), &w));
    return comp_ret(b, b_op(b, reshape, vT(v), vIs(size + !lead, 2 + lead)), out);
}

/* (self, output_size, kernel_size, dilation, padding, stride) */
bool decomp_col2im(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *sum = NULL;
    int lead = x->ndim - 2;
    window w = { .in = { arg[1].ints[0], arg[1].ints[arg[1].n - 1] } };
    if (!blocks_of(&arg[2], &w) || w.taps > MAX_TAPS)
        return not_here(b);
    symint size[5] = { x->size[0], sym_floordiv(x->size[lead], w.taps), w.taps, w.out[0], w.out[1] };
    tp_tensor *v = b_op(b, reshape, vT(wide(b, x)), vIs(size + !lead, 4 + lead));
    for (int64_t t = 0; t < w.taps; t++) {
        tp_tensor *y = put_tap(b, b_op(b, select_int, vT(v), vI(lead + 1), vI(t)), &w, t, vI(0));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(y)) : y;
    }
    return comp_ret(b, as_type(b, sum, (dtype)x->dt), out);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */
/* arg: kernel_size, stride, padding, and dilation where there is one. y: sizes of the result. */
static bool pool_of(const tp_val *arg, const tp_val *dilation, int nd, const tp_tensor *x, window *w)
{
    static const int64_t one[3] = { 1, 1, 1 };
    w->nd = nd;
    w->taps = 1;
    if (!list_of(&arg[0], nd, NULL, w->k) || !list_of(&arg[1], nd, w->k, w->s) ||
        !list_of(&arg[2], nd, NULL, w->p) ||
        !(dilation ? list_of(dilation, nd, one, w->d) : memcpy(w->d, one, sizeof one) != NULL))
        return false;
    for (int i = 0; i < nd; i++) {
        w->taps *= w->k[i];
        w->in[i] = x->size[x->ndim - nd + i];
    }
    return w->taps <= MAX_TAPS;
}

static void pool_out(window *w, bool ceil)
{
    for (int i = 0; i < w->nd; i++) {
        symint span = sym_sub(sym_add(w->in[i], 2 * w->p[i]), w->d[i] * (w->k[i] - 1) + 1);
        symint n = sym_add(sym_floordiv(ceil ? sym_add(span, w->s[i] - 1) : span, w->s[i]), 1);
        /* the last window begins inside the image or the padding before it */
        if (ceil && sym_ge(sym_mul(sym_sub(n, 1), w->s[i]), sym_add(w->in[i], w->p[i])))
            n = sym_sub(n, 1);
        w->out[i] = n;
    }
}

/* Numbers along one of the last nd dimensions: first, first + step, ... */
static tp_tensor *along(bld *b, const window *w, int dim, symint n, int64_t first, int64_t step, dtype dt)
{
    symint size[3] = { 1, 1, 1 };
    size[dim] = n;
    tp_tensor *v = b_op(b, arange, vI(n), vDT(dt));
    v = b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(v), vI(step))), vI(first));
    return b_op(b, reshape, vT(v), vIs(size, w->nd));
}

/* How many steps of the dilation along dimension i lead from each window's first element into the image. */
static tp_tensor *steps_in(bld *b, const window *w, int i)
{
    tp_tensor *v = along(b, w, i, w->out[i], w->p[i] + w->d[i] - 1, -w->s[i], DT_i64);
    return b_op(b, clamp, vT(b_op(b, div_Tensor_mode, vT(v), vI(w->d[i]), vS("floor"))), vI(0));
}

/* The place of each window's element in the flat image; -1 as tap: its first one inside. */
static tp_tensor *places_of(bld *b, const window *w, int64_t tap)
{
    tp_tensor *flat = NULL;
    int64_t at[3] = { 0 };
    for (int64_t i = w->nd - 1, t = MAX(tap, 0); i >= 0; i--)
        at[i] = t % w->k[i] * w->d[i], t /= w->k[i];
    for (int i = 0; i < w->nd; i++) {
        tp_tensor *v = along(b, w, i, w->out[i], at[i] - w->p[i], w->s[i], DT_i64);
        if (tap < 0 && w->p[i])
            v = b_op(b, add_Tensor, vT(v), vT(b_op(b, mul_Tensor, vT(steps_in(b, w, i)), vI(w->d[i]))));
        flat = flat ? b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(flat), vI(w->in[i]))), vT(v)) : v;
    }
    return flat;
}

/* The number of each window's first element inside. */
static tp_tensor *first_taps(bld *b, const window *w)
{
    tp_tensor *n = NULL;
    for (int i = 0; i < w->nd; i++) {
        tp_tensor *v = steps_in(b, w, i);
        n = n ? b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(n), vI(w->k[i]))), vT(v)) : v;
    }
    return as_type(b, n, DT_i8);
}

/* Images with channels last are read as images of rows, columns and channels, with windows of one channel: what follows then computes
 * neighbours in memory side by side, and its results lie as the images do. */
static bool is_last(const tp_tensor *x, int nd)
{
    return nd == 2 && x->ndim == 4 && !tensor_is_contiguous(x) &&
           tensor_is_contiguous_as(x, MF_channels_last);
}

static tp_tensor *channels_behind(bld *b, tp_tensor *x)
{
    static const symint order[4] = { 0, 2, 3, 1 };
    return b_op(b, permute, vT(x), vIs((symint *)order, 4));
}

static tp_tensor *channels_before(bld *b, tp_tensor *x)
{
    static const symint order[4] = { 0, 3, 1, 2 };
    return b_op(b, permute, vT(x), vIs((symint *)order, 4));
}

static void window_of_channels(window *w, symint channels)
{
    w->nd = 3;
    w->k[2] = w->s[2] = w->d[2] = 1;
    w->p[2] = 0;
    w->in[2] = w->out[2] = channels;
}

/* The largest and where it is: its place in the image, or with `taps` its number in the window. */
static bool max_pool(bld *b, const tp_val *arg, tp_val *out, int nd, bool taps)
{
    tp_tensor *x = val_t(&arg[0]), *best = NULL, *at = NULL;
    symint size[TP_MAX_DIMS];
    window w;
    if (!dtype_is_float((dtype)x->dt) || !pool_of(&arg[1], &arg[4], nd, x, &w))
        return not_here(b);
    pool_out(&w, val_b(&arg[5], false));
    bool last = is_last(x, nd);
    symint channels = x->ndim > 1 ? x->size[1] : 1;
    if (last) {
        window_of_channels(&w, channels);
        x = channels_behind(b, x);
        nd = 3;
    }
    sizes_of(size, x, x->ndim - nd, nd, w.out);
    tp_tensor *in = image(b, x, &w, vF(-INFINITY));
    best = b_op(b, full, vIs(size, x->ndim), vF(-INFINITY), vDT((dtype)x->dt));
    at = b_op(b, expand, vT(taps ? first_taps(b, &w) : places_of(b, &w, -1)), vIs(size, x->ndim));
    for (int64_t t = 0; t < w.taps; t++) {
        tp_tensor *v = tap_of(b, in, &w, t);
        tp_tensor *more = b_op(b, logical_or, vT(b_op(b, gt_Tensor, vT(v), vT(best))),
                               vT(b_op(b, isnan, vT(v))));
        best = b_op(b, where_self, vT(more), vT(v), vT(best));
        tp_tensor *mine = taps ? b_op(b, full, vIs(NULL, 0), vI(t), vDT(DT_i8)) : places_of(b, &w, t);
        at = b_op(b, where_self, vT(more), vT(mine), vT(at));
    }
    if (last) {
        if (!taps)
            at = b_op(b, div_Tensor_mode, vT(at), vI(channels), vS("floor"));
        best = channels_before(b, best);
        at = channels_before(b, at);
    }
    return comp_ret_n(b, (tp_tensor *[]){ best, at }, 2, out);
}
bool decomp_max_pool2d_with_indices(bld *b, const tp_val *arg, tp_val *out)
{
    return max_pool(b, arg, out, 2, false);
}
bool decomp_max_pool3d_with_indices(bld *b, const tp_val *arg, tp_val *out)
{
    return max_pool(b, arg, out, 3, false);
}

bool decomp__max_pool2d_with_offsets(bld *b, const tp_val *arg, tp_val *out)
{
    return max_pool(b, arg, out, 2, true);
}

/* The numbers, in the window that begins j windows before the last one that holds them, of the s elements at which a window is the last:
 * for each dimension of windows one of them and one of those elements. Negative where that window ends before. */
static tp_tensor *numbers_in_window(bld *b, const window *w, const int64_t *j)
{
    enum { NONE = -1000 }; /* times the sizes of a window it stays far from any number */
    tp_tensor *n = NULL, *none = b_op(b, full, vIs(NULL, 0), vI(NONE), vDT(DT_i64));
    for (int i = 0; i < w->nd; i++) {
        symint size[6] = { 1, 1, 1, 1, 1, 1 };
        size[2 * i + 1] = w->s[i];
        tp_tensor *v = b_op(b, arange, vI(w->s[i]), vDT(DT_i64));
        v = b_op(b, add_Tensor, vT(v), vI(j[i] * w->s[i]));
        v = b_op(b, where_self, vT(b_op(b, lt_Tensor, vT(v), vI(w->k[i]))), vT(v), vT(none));
        v = b_op(b, reshape, vT(v), vIs(size, 2 * w->nd));
        n = n ? b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(n), vI(w->k[i]))), vT(v)) : v;
    }
    return n;
}

/* d where of is the number, for each of those elements, put where they lie in the image. */
static tp_tensor *put_window(bld *b, tp_tensor *d, tp_tensor *of, tp_tensor *none, const window *w,
                             const int64_t *j)
{
    symint one[TP_MAX_DIMS], all[TP_MAX_DIMS], lo[3], hi[3];
    int lead = d->ndim - w->nd, n = lead;
    sizes_of(one, d, lead, 0, NULL), sizes_of(all, d, lead, 0, NULL);
    for (int i = 0; i < w->nd; i++) {
        one[n++] = d->size[lead + i];
        one[n++] = 1;
        all[lead + i] = sym_mul(d->size[lead + i], w->s[i]);
        lo[i] = j[i] * w->s[i] - w->p[i];
        hi[i] = sym_sub(w->in[i], sym_add(lo[i], all[lead + i]));
    }
    tp_tensor *mine = b_op(b, eq_Tensor, vT(b_op(b, reshape, vT(of), vIs(one, n))),
                           vT(numbers_in_window(b, w, j)));
    tp_tensor *v = b_op(b, where_self, vT(mine), vT(b_op(b, reshape, vT(d), vIs(one, n))), vT(none));
    return padded(b, b_op(b, reshape, vT(v), vIs(all, d->ndim)), w->nd, lo, hi, vI(0));
}

/* Each element of the image sums over the windows that hold it, which are few where steps are wide. */
static tp_tensor *sum_over_windows(bld *b, tp_tensor *d, tp_tensor *of, tp_tensor *none, const window *w)
{
    int64_t most[3] = { 1, 1, 1 }, j[3] = { 0 };
    tp_tensor *sum = NULL;
    for (int i = 0; i < w->nd; i++)
        most[i] = (w->k[i] + w->s[i] - 1) / w->s[i];
    for (j[0] = 0; j[0] < most[0]; j[0]++)
        for (j[1] = 0; j[1] < most[1]; j[1]++)
            for (j[2] = 0; j[2] < most[2]; j[2]++) {
                tp_tensor *v = put_window(b, d, of, none, w, j);
                sum = sum ? b_op(b, add_Tensor, vT(sum), vT(v)) : v;
            }
    return sum;
}

/* (grad_output, offsets, input_size, kernel_size, stride, padding, dilation) */
bool offsets_on_device(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = val_t(&arg[0]), *of = val_t(&arg[1]), *sum = NULL;
    window w;
    if (!pool_of(&arg[3], &arg[6], 2, dy, &w))
        return not_here(b);
    for (int i = 0; i < 2; i++) {
        w.out[i] = w.in[i]; /* those of dy */
        w.in[i] = arg[2].ints[arg[2].n - 2 + i];
    }
    bool last = is_last(dy, 2);
    if (last) {
        window_of_channels(&w, dy->size[1]);
        dy = channels_behind(b, dy);
        of = channels_behind(b, of);
    }
    tp_tensor *d = wide(b, dy),
              *none = b_op(b, zeros, vIs(NULL, 0), vDT(is_low(dy) ? DT_f32 : (dtype)dy->dt));
    bool near = w.d[0] == 1 && w.d[1] == 1;
    if (near)
        sum = sum_over_windows(b, d, of, none, &w);
    for (int64_t t = 0; t < w.taps && !near; t++) {
        tp_tensor *v = b_op(b, where_self, vT(b_op(b, eq_Tensor, vT(of), vI(t))), vT(d), vT(none));
        v = put_tap(b, v, &w, t, vI(0));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(v)) : v;
    }
    sum = as_type(b, sum, (dtype)dy->dt);
    return comp_ret(b, last ? channels_before(b, sum) : sum, out);
}

/* (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices) */
static bool max_pool_backward(bld *b, const tp_val *arg, tp_val *out, int nd)
{
    tp_tensor *dy = val_t(&arg[0]), *x = val_t(&arg[1]), *at = val_t(&arg[7]), *sum = NULL, *here = NULL;
    window w;
    if (!pool_of(&arg[2], &arg[5], nd, x, &w))
        return not_here(b);
    for (int i = 0; i < nd; i++) {
        tp_tensor *v = along(b, &w, i, w.in[i], 0, 1, DT_i64);
        here = here ? b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(here), vI(w.in[i]))), vT(v)) : v;
    }
    tp_tensor *d = wide(b, dy),
              *none = b_op(b, zeros, vIs(NULL, 0), vDT(is_low(dy) ? DT_f32 : (dtype)dy->dt));
    for (int64_t t = 0; t < w.taps; t++) {
        tp_tensor *mine = b_op(b, eq_Tensor, vT(put_tap(b, at, &w, t, vI(-1))), vT(here));
        tp_tensor *v = b_op(b, where_self, vT(mine), vT(put_tap(b, d, &w, t, vI(0))), vT(none));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(v)) : v;
    }
    return comp_ret(b, as_type(b, sum, (dtype)dy->dt), out);
}
bool decomp_max_pool2d_with_indices_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return max_pool_backward(b, arg, out, 2);
}
bool decomp_max_pool3d_with_indices_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return max_pool_backward(b, arg, out, 3);
}

/* What the sum of each window is divided by: its elements, with or without those of the padding. NULL with *all: one number. */
static tp_tensor *window_counts(bld *b, const window *w, bool with_padding, const tp_val *instead, dtype dt,
                                double *all)
{
    tp_tensor *n = NULL;
    bool same = true;
    for (int i = 0; i < w->nd; i++) {
        symint end = sym_add(sym_mul(sym_sub(w->out[i], 1), w->s[i]), w->k[i]);
        same &= (with_padding || !w->p[i]) && sym_known(SYM_le, end, sym_add(w->in[i], 2 * w->p[i]));
    }
    *all = instead->kind != VAL_none ? (double)instead->i : (double)w->taps;
    if (same || instead->kind != VAL_none)
        return NULL;
    for (int i = 0; i < w->nd; i++) {
        int64_t p = w->p[i];
        tp_tensor *from = along(b, w, i, w->out[i], -p, w->s[i], DT_i64);
        tp_tensor *to = b_op(b, add_Tensor, vT(from), vI(w->k[i]));
        to = b_op(b, clamp, vT(to), vNone, vI(sym_add(w->in[i], with_padding ? p : 0)));
        if (!with_padding)
            from = b_op(b, clamp, vT(from), vI(0));
        tp_tensor *v = b_op(b, sub_Tensor, vT(to), vT(from));
        n = n ? b_op(b, mul_Tensor, vT(n), vT(v)) : v;
    }
    return as_type(b, n, dt);
}

static tp_tensor *over_counts(bld *b, tp_tensor *x, const window *w, bool with_padding, const tp_val *instead)
{
    double all;
    tp_tensor *n = x ? window_counts(b, w, with_padding, instead, (dtype)x->dt, &all) : NULL;
    return x ? b_op(b, div_Tensor, vT(x), n ? vT(n) : vF(all)) : NULL;
}

/* (self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static bool avg_pool(bld *b, const tp_val *arg, tp_val *out, int nd)
{
    tp_tensor *x = val_t(&arg[0]), *sum = NULL;
    window w;
    if (!dtype_is_float((dtype)x->dt) || !pool_of(&arg[1], NULL, nd, x, &w))
        return not_here(b);
    pool_out(&w, val_b(&arg[4], false));
    tp_tensor *in = image(b, x, &w, vI(0));
    for (int64_t t = 0; t < w.taps; t++) {
        tp_tensor *v = wide(b, tap_of(b, in, &w, t));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(v)) : v;
    }
    sum = over_counts(b, sum, &w, val_b(&arg[5], true), &arg[6]);
    return comp_ret(b, as_type(b, sum, (dtype)x->dt), out);
}
bool decomp_avg_pool2d(bld *b, const tp_val *arg, tp_val *out) { return avg_pool(b, arg, out, 2); }
bool decomp_avg_pool3d(bld *b, const tp_val *arg, tp_val *out) { return avg_pool(b, arg, out, 3); }

/* (grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static bool avg_pool_backward(bld *b, const tp_val *arg, tp_val *out, int nd)
{
    tp_tensor *dy = val_t(&arg[0]), *x = val_t(&arg[1]), *sum = NULL;
    window w;
    if (!pool_of(&arg[2], NULL, nd, x, &w))
        return not_here(b);
    for (int i = 0; i < nd; i++)
        w.out[i] = dy->size[dy->ndim - nd + i];
    tp_tensor *d = over_counts(b, wide(b, dy), &w, val_b(&arg[6], true), &arg[7]);
    for (int64_t t = 0; t < w.taps; t++) {
        tp_tensor *v = put_tap(b, d, &w, t, vI(0));
        sum = sum ? b_op(b, add_Tensor, vT(sum), vT(v)) : v;
    }
    return comp_ret(b, as_type(b, sum, (dtype)dy->dt), out);
}
bool decomp_avg_pool2d_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return avg_pool_backward(b, arg, out, 2);
}
bool decomp_avg_pool3d_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return avg_pool_backward(b, arg, out, 3);
}

/* --- means of windows whose sizes follow from those of the result -------------------------------------------------- */
/* Row i: 1 / n at the n places of window i. */
static tp_tensor *adaptive_matrix(bld *b, symint in, symint out, dtype dt)
{
    symint col[2] = { out, 1 };
    tp_tensor *i = b_op(b, reshape, vT(b_op(b, arange, vI(out), vDT(DT_i64))), vIs(col, 2));
    tp_tensor *from = b_op(b, div_Tensor_mode, vT(b_op(b, mul_Tensor, vT(i), vI(in))), vI(out), vS("floor"));
    tp_tensor *to = b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(i), vI(in))),
                         vI(sym_sub(sym_add(in, out), 1)));
    to = b_op(b, div_Tensor_mode, vT(to), vI(out), vS("floor"));
    tp_tensor *h = b_op(b, arange, vI(in), vDT(DT_i64));
    tp_tensor *inside = b_op(b, logical_and, vT(b_op(b, ge_Tensor, vT(h), vT(from))),
                             vT(b_op(b, lt_Tensor, vT(h), vT(to))));
    tp_tensor *n = b_op(b, sub_Tensor, vT(to), vT(from));
    return b_op(b, div_Tensor, vT(b_op(b, to_dtype, vT(inside), vDT(dt))), vT(n));
}

/* Along each of the last nd dimensions the product with a matrix; turned: with its transpose. */
static tp_tensor *times_matrices(bld *b, tp_tensor *x, int nd, const symint *in, const symint *out,
                                 bool turned)
{
    for (int i = 0; i < nd && x; i++) {
        int d = x->ndim - nd + i;
        tp_tensor *m = adaptive_matrix(b, in[i], out[i], (dtype)x->dt);
        m = turned ? m : b_op(b, transpose_int, vT(m), vI(0), vI(1));
        x = b_op(b, transpose_int, vT(x), vI(d), vI(x->ndim - 1));
        x = b_op(b, transpose_int, vT(b_op(b, matmul, vT(x), vT(m))), vI(d), vI(x->ndim - 1));
    }
    return x;
}

static bool adaptive(bld *b, tp_tensor *x, const symint *in, const symint *out_size, int nd, bool back,
                     tp_val *out)
{
    dtype dt = (dtype)x->dt;
    if (!dtype_is_float(dt))
        return not_here(b);
    tp_tensor *y = times_matrices(b, wide(b, x), nd, in, out_size, back);
    return comp_ret(b, as_type(b, dense(b, y), dt), out);
}
bool decomp__adaptive_avg_pool2d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]);
    return adaptive(b, x, x->size + x->ndim - 2, arg[1].ints, 2, false, out);
}
bool decomp__adaptive_avg_pool3d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]);
    return adaptive(b, x, x->size + x->ndim - 3, arg[1].ints, 3, false, out);
}
bool decomp__adaptive_avg_pool2d_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = val_t(&arg[0]), *x = val_t(&arg[1]);
    return adaptive(b, dy, x->size + x->ndim - 2, dy->size + dy->ndim - 2, 2, true, out);
}
bool decomp__adaptive_avg_pool3d_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = val_t(&arg[0]), *x = val_t(&arg[1]);
    return adaptive(b, dy, x->size + x->ndim - 3, dy->size + dy->ndim - 3, 3, true, out);
}
