/* lower_window.c - operators that read windows of an image, or spread elements over blocks of it. */
#include "loop/internal.h"
#include <math.h>

static bool two_ints(const tp_val *v, const int64_t *none, int64_t *out)
{
    for (int i = 0; i < 2; i++) {
        if (v->kind != VAL_ints || (v->n == 0 ? !none : sym_is_expr(v->ints[v->n == 1 ? 0 : i])))
            return false;
        out[i] = v->n == 0 ? none[i] : v->ints[v->n == 1 ? 0 : i];
    }
    return true;
}

/* Why windows are better left to the call, or NULL. arg: of max_pool2d, or of avg_pool2d, whose third is missing there. */
const char *windows_of(const tp_val *arg, bool max, const tp_tensor *x, windows *w)
{
    static const int64_t one[2] = { 1, 1 };
    const tp_val *ceil = &arg[max ? 5 : 4];
    w->gap[0] = w->gap[1] = 1;
    if (!two_ints(&arg[1], NULL, w->k) || !two_ints(&arg[2], w->k, w->step) ||
        !two_ints(&arg[3], NULL, w->pad) || (max && !two_ints(&arg[4], one, w->gap)) || !x ||
        (x->ndim != 3 && x->ndim != 4) || !dtype_is_float((dtype)x->dt))
        return "a window of another kind";
    for (int i = 0; i < 2; i++)
        w->over[i] = w->pad[i] || (ceil->kind == VAL_bool && ceil->b);
    if (w->k[0] < 1 || w->k[1] < 1 || w->k[0] > 16 || w->k[1] > 16 || w->k[0] * w->k[1] > 16)
        return "windows are large";
    if (w->step[1] > 2 || dtype_size((dtype)x->dt) != 4 || x->stride[x->ndim - 1] != 1)
        return "neighbouring windows are not read by two vectors";
    return NULL;
}

/* Where each element of x stands for k[0] x k[1] of y, sides of 1, 2 or 4, and a row of y begins with a whole group. */
static bool whole_blocks(const tp_tensor *x, const tp_tensor *y, int64_t *k)
{
    if (!x || x->ndim != y->ndim || x->ndim < 3 || x->dt != DT_f32 || y->dt != DT_f32)
        return false;
    for (int i = 0; i < 2; i++) {
        symint a = x->size[x->ndim - 2 + i], b = y->size[y->ndim - 2 + i];
        k[i] = sym_known(SYM_eq, a, b)               ? 1
               : sym_known(SYM_eq, sym_mul(a, 2), b) ? 2
               : sym_known(SYM_eq, sym_mul(a, 4), b) ? 4
                                                     : 0;
        if (!k[i])
            return false;
    }
    return k[0] * k[1] > 1 && sym_known(SYM_eq, sym_mod(y->size[y->ndim - 1], 4), 0) &&
           x->stride[x->ndim - 1] == 1 && y->stride[y->ndim - 1] == 1;
}

/* Enlarging by whole factors, as floats compute the places: none are given, or they say the same. */
static bool enlarges(const ir_node *n, const tp_tensor *x, const tp_tensor *y, int scales, int64_t *k)
{
    if (n->arg[0].kind != VAL_node || !whole_blocks(x, y, k))
        return false;
    for (int i = 0; i < 2; i++)
        if (n->arg[scales + i].kind != VAL_none && val_as_f(&n->arg[scales + i]) != (double)k[i])
            return false;
    return true;
}

/* Windows of max pooling side by side that fill the image. */
static bool tiles_image(const ir_node *n, int64_t *k)
{
    static const int64_t one[2] = { 1, 1 };
    int64_t win[2], step[2], pad[2], gap[2];
    return n->arg[0].kind == VAL_node && n->arg[1].kind == VAL_node &&
           whole_blocks(ir_type(n->arg[0].node), ir_type(n), k) && two_ints(&n->arg[3], NULL, win) &&
           two_ints(&n->arg[4], win, step) && two_ints(&n->arg[5], NULL, pad) &&
           two_ints(&n->arg[6], one, gap) && win[0] == k[0] && win[1] == k[1] && step[0] == k[0] &&
           step[1] == k[1] && !pad[0] && !pad[1] && gap[0] == 1 && gap[1] == 1 &&
           ir_type(n->arg[1].node)->stride[ir_type(n)->ndim - 1] == 1;
}

static vir_ref eval_spread(walk *w, ir_node *n, const lin *idx)
{
    bool pool = lower_row(n) == &lower_max_pool2d_offsets_backward;
    ir_node *x = n->arg[0].node;
    int nd = ir_type(n)->ndim;
    int64_t k[2];
    lin at[TP_MAX_DIMS];
    vir *v = w->k;
    whole_blocks(ir_type(x), ir_type(n), k);
    memcpy(at, idx, sizeof *at * (size_t)nd);
    for (int d = 0; d < 2; d++) {
        lin *a = &at[nd - 2 + d];
        if (k[d] == 1)
            continue;
        use_raw(w, a);
        *a = opaque(w, w->dry ? 0 : vir_divf(v, emit_lin(w, a), vir_int(v, k[d])));
    }
    vir_ref e = eval(w, x, at);
    if (!pool || w->fail)
        return e;
    vir_ref of = eval(w, n->arg[1].node, at);
    if (w->dry || w->fail)
        return 0;
    vir_ref place = vir_imm(v, VT_i32, 0); /* of this element in its window */
    for (int d = 0; d < 2; d++) {
        vir_ref i = vir_cvt(v, VT_i32, emit_lin(w, &idx[nd - 2 + d]));
        i = vir_and(v, i, vir_imm(v, VT_i32, k[d] - 1));
        place = vir_add(v, vir_mul(v, place, vir_imm(v, VT_i32, k[1])), i);
    }
    return vir_select(v, vir_eq(v, of, place), e, vir_flt(v, VT_f32, 0));
}

/* Where element i of the windows lies along side d: of the first window, of the last one. */
static symint window_at(const ir_node *n, const windows *p, int d, int64_t i, bool last)
{
    const tp_tensor *t = ir_type(n);
    int64_t first = (d ? i % p->k[1] : i / p->k[1]) * p->gap[d] - p->pad[d];
    symint steps = last ? sym_sub(t->size[t->ndim - 2 + d], 1) : 0;
    return sym_add(first, sym_mul(steps, p->step[d]));
}

/* Does the place lie in 0 .. size, and `also` hold? lo, hi: the lowest and the highest it takes; what they answer is not asked
 * again for each element. In 32 bits where they fit, so that lanes are not halved. */
static vir_ref inside(walk *w, const lin *at, symint size, symint lo, symint hi, vir_ref also)
{
    bool low = !sym_known(SYM_ge, lo, 0), high = !sym_known(SYM_lt, hi, size);
    vir *k = w->k;
    if (!low && !high)
        return also;
    use_raw(w, at);
    if (w->dry)
        return 0;
    bool narrow = sym_known(SYM_lt, hi, INT32_MAX) && sym_known(SYM_lt, size, INT32_MAX);
    vir_type t = narrow ? VT_i32 : VT_i64;
    vir_ref c = vir_cvt(k, t, emit_lin(w, at));
    vir_ref m = low ? vir_ge(k, c, vir_imm(k, t, 0)) : 0;
    vir_ref h = high ? vir_lt(k, c, vir_cvt(k, t, emit_int(w, size))) : 0;
    m = m && h ? vir_and(k, m, h) : m ? m : h;
    return also ? vir_and(k, also, m) : m;
}

/* What the sum of a window is divided by: its elements, those that the padded image has, or those of the image. */
static vir_ref window_count(walk *w, const ir_node *n, const windows *p, const lin *idx)
{
    const tp_val *by = &n->arg[6];
    const tp_tensor *x = ir_type(n->arg[0].node);
    bool padded = n->arg[5].kind != VAL_bool || n->arg[5].b;
    vir *k = w->k;
    vir_ref count = vir_flt(k, VT_f32, 1);
    if (by->kind == VAL_int)
        return vir_flt(k, VT_f32, (double)by->i);
    for (int d = 0; d < 2; d++) {
        symint size = x->size[x->ndim - 2 + d], edge = padded ? p->pad[d] : 0;
        symint first = -p->pad[d], end = sym_add(window_at(n, p, d, 0, 1), p->k[d]);
        bool low = !sym_known(SYM_ge, first, sym_sub(0, edge)),
             high = !sym_known(SYM_le, end, sym_add(size, edge));
        bool narrow = sym_known(SYM_lt, end, INT32_MAX) && sym_known(SYM_lt, sym_add(size, edge), INT32_MAX);
        vir_type t = narrow ? VT_i32 : VT_i64;
        vir_ref len = vir_imm(k, t, p->k[d]);
        if (low || high) {
            vir_ref at = vir_cvt(k, t, emit_lin(w, &idx[d]));
            vir_ref from = vir_sub(k, vir_mul(k, at, vir_imm(k, t, p->step[d])), vir_imm(k, t, p->pad[d]));
            vir_ref to = vir_add(k, from, len);
            if (low)
                from = vir_max(k, from, vir_imm(k, t, -edge));
            if (high)
                to = vir_min(k, to, vir_cvt(k, t, emit_int(w, sym_add(size, edge))));
            len = vir_sub(k, to, from);
        }
        count = vir_mul(k, count, vir_cvt(k, VT_f32, len));
    }
    return count;
}

static vir_ref eval_pool(walk *w, ir_node *n, const lin *idx)
{
    ir_node *x = n->arg[0].node;
    const lowering *l = lower_row(n);
    bool max = l == &lower_max_pool2d;
    int nd = ir_type(n)->ndim;
    windows p = { .gap = { 1, 1 } };
    lin at[TP_MAX_DIMS];
    vir_ref v = 0;
    if (l == &lower_upsample_nearest2d_backward) {
        whole_blocks(ir_type(n), ir_type(x), p.k);
        memcpy(p.step, p.k, sizeof p.k);
    } else
        windows_of(n->arg, max, ir_type(x), &p);
    memcpy(at, idx, sizeof *at * (size_t)nd);
    for (int64_t i = 0; i < p.k[0] * p.k[1] && !w->fail; i++) {
        vir_ref in = 0; /* the image */
        for (int d = 0; d < 2; d++) {
            lin *a = &at[nd - 2 + d];
            *a = ladd(w, lscale(w, idx[nd - 2 + d], p.step[d]),
                      lin_const((d ? i % p.k[1] : i / p.k[1]) * p.gap[d] - p.pad[d]));
            if (p.over[d])
                in = inside(w, a, ir_type(x)->size[nd - 2 + d], window_at(n, &p, d, i, 0),
                            window_at(n, &p, d, i, 1), in);
        }
        vir_ref e = in ? under_mask(w, in, x, at) : eval(w, x, at);
        if (w->dry || w->fail)
            continue;
        if (in) /* what is read there need not be memory */
            e = vir_select(w->k, in, e, vir_flt(w->k, VT_f32, max ? -HUGE_VAL : 0));
        v = !v ? e : max ? vir_max(w->k, v, e) : vir_add(w->k, v, e);
    }
    if (w->dry || w->fail || l != &lower_avg_pool2d)
        return v;
    return vir_div(w->k, v, window_count(w, n, &p, &idx[nd - 2]));
}

/* ---- which of them are computed where they are used ---- */
static const char *max_folds(planner *pl, const ir_node *n, const char **what)
{
    *what =
        "windows are read where their maxima are used"; /* made of max_pool2d_with_indices, see rewrite_pool */
    return NULL;
}
static const char *avg_folds(planner *pl, const ir_node *n, const char **what)
{
    windows p;
    if (n->arg[0].kind != VAL_node)
        return NULL;
    *what = "windows are read where their means are used";
    return n->arg[6].kind == VAL_int && (sym_is_expr(n->arg[6].i) || n->arg[6].i <= 0)
               ? "its divisor is not a number yet"
               : windows_of(n->arg, false, ir_type(n->arg[0].node), &p);
}
static void pool_operands(planner *pl, ir_node *n)
{
    windows p;
    if (pl->in[n->id].folds &&
        !windows_of(n->arg, lower_row(n) == &lower_max_pool2d, ir_type(n->arg[0].node), &p) &&
        (p.k[0] * p.k[1] > 4 || p.step[0] < p.k[0] || p.step[1] < p.k[1])) /* else computed once */
        operand_in_memory(pl, n->arg[0].node);
}
const lowering lower_max_pool2d = { .folds = max_folds, .value = eval_pool, .operands = pool_operands };
const lowering lower_avg_pool2d = { .folds = avg_folds, .value = eval_pool, .operands = pool_operands };
const lowering lower_max_pool2d_with_indices = { .rewrite = rewrite_pool, .pass = REWRITE_pool };

static const char *enlarge_folds(planner *pl, const ir_node *n, const char **what)
{
    int64_t k[2];
    *what = "each element is read for several places";
    return enlarges(n, n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL, ir_type(n), 2, k)
               ? NULL
               : "places are not those of whole blocks";
}
static const char *enlarge_back_folds(planner *pl, const ir_node *n, const char **what)
{
    const tp_tensor *o = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    int64_t k[2];
    *what = "elements that came of one are summed where the sum is used";
    return !o || !enlarges(n, ir_type(n), o, 3, k) || k[1] > 2 ? "places are not those of whole blocks"
                                                               : NULL;
}
static const char *offsets_folds(planner *pl, const ir_node *n, const char **what)
{
    int64_t k[2];
    *what = "each gradient is read for the places of its window";
    return tiles_image(n, k) ? NULL : "windows do not fill the image in blocks of two or four";
}
static void spread_operands(planner *pl, ir_node *n)
{
    for (int i = 0; pl->in[n->id].folds && i < 1 + (lower_row(n) == &lower_max_pool2d_offsets_backward); i++)
        operand_in_memory(pl, n->arg[i].node);
}
const lowering lower_upsample_nearest2d = { .folds = enlarge_folds,
                                            .value = eval_spread,
                                            .operands = spread_operands };
const lowering lower_upsample_nearest2d_backward = { .folds = enlarge_back_folds, .value = eval_pool };
const lowering lower_max_pool2d_offsets_backward = { .folds = offsets_folds,
                                                     .value = eval_spread,
                                                     .operands = spread_operands };
