/* lower_reduce.c - reductions and running results: which operators are, over which dimensions, in which type. */
#include "loop/internal.h"

bool is_place(uint8_t kind) { return vir_red_places((vir_red_kind)kind); }

bool reduction(const ir_node *n, uint32_t *mask, uint8_t *kind)
{
    if (!lower_row(n)->reduces || n->val.kind != VAL_tensor || n->arg[0].kind != VAL_node)
        return false;
    const tp_tensor *t = ir_type(n->arg[0].node);
    uint32_t all = t->ndim >= 32 ? ~0u : (1u << t->ndim) - 1;
    const tp_val *dims = n->narg > 1 ? &n->arg[1] : NULL;
    bool flt = dtype_is_float((dtype)t->dt);
    *kind = lower_row(n)->kind;
    if (is_place(*kind) && dims->kind != VAL_int && t->ndim != 1)
        return false; /* without a dimension, places count through all of them */
    bool extreme = *kind == RED_max || *kind == RED_min || is_place(*kind);
    if (extreme && (t->dt == DT_bool || (!flt && sym_eq(t->numel, 0))))
        return false;
    if (*kind == RED_any && ir_type(n)->dt != DT_bool)
        return false;
    if (t->ndim == 0)
        return false;
    *mask = all;
    if (dims && dims->kind == VAL_int) {
        int d;
        if (!dim_wrap(dims->i, t->ndim, &d, NULL))
            return false;
        *mask = 1u << d;
    } else if (dims && dims->kind == VAL_ints && dims->n) {
        *mask = 0;
        for (int i = 0; i < dims->n; i++) {
            int d;
            if (!dim_wrap(dims->ints[i], t->ndim, &d, NULL))
                return false;
            *mask |= 1u << d;
        }
    } else if (dims && dims->kind == VAL_ints && op_row_of((op_id)n->op)->flags & OPF_NODIMS)
        return false; /* nothing is reduced */
    if (extreme)      /* an empty reduction must raise */
        for (int d = 0; d < t->ndim; d++)
            if ((*mask >> d & 1) && !sym_known(SYM_gt, t->size[d], 0))
                return false;
    return true;
}

/* Type the reduction computes in: sums of narrow floats in f32, of f32 in f32 with many partials, ints in i64. Where the
 * place of an extreme is wanted, values are compared as they are. */
dtype red_dtype(const ir_node *n)
{
    bool place = is_place(lower_row(n)->kind);
    dtype out = (dtype)ir_type(place ? n->arg[0].node : n)->dt;
    return out == DT_f16 || out == DT_bf16 ? DT_f32 : out;
}

static uint8_t scan_kind_of(const ir_node *n)
{
    const lowering *l = lower_row(n);
    return l->kind != l->other && !n->arg[2].b ? l->other : l->kind;
}

/* Floats are added in their order, one at a time. */
bool in_order(const ir_node *n) { return lower_row(n)->ordered && dtype_is_float((dtype)ir_type(n)->dt); }

/* Running results. Down columns lanes hold columns, and each keeps its own; along rows every step waits for the one before, in a
 * kernel as in the call, but neighbours are computed in vectors on the way. */
static bool scan_fits(planner *pl, ir_node *n)
{
    if (n->arg[0].kind != VAL_node)
        return false;
    info *f = &pl->in[n->id];
    const target_caps *caps = pl->c->caps;
    const tp_tensor *t = ir_type(n), *x = ir_type(n->arg[0].node);
    dtype in = (dtype)x->dt, out = (dtype)t->dt;
    int dim = t->ndim ? dim_arg(n, 1, t->ndim) : 0;
    int64_t step = t->ndim ? hint(x->stride[dim]) * (int64_t)dtype_size(in) : 0;
    bool rows = t->ndim && dim == t->ndim - 1;
    bool far = dtype_is_float(in) && caps->page_bytes && step % caps->page_bytes == 0 && t->ndim && !rows &&
               hint(t->size[dim]) > 64; /* one set of the cache */
    bool any = !caps->library, extreme = !lower_row(n)->wide;
    const char *why = !t->ndim ? "it is one element"
                      : !any && !rows && hint(t->size[t->ndim - 1]) < (dtype_is_float(in) ? 32 : 8)
                          ? "there are too few columns"
                      : !any && rows && hint(t->size[dim]) < caps->lanes ? "rows are shorter than vectors"
                      : !any && rows && in_order(n) &&
                              (hint(t->size[dim]) < 64 || !is_cheap(n->arg[0].node, 0))
                          ? "every step waits for the one before, and little is computed on the way"
                      : extreme && in == DT_bool ? "not in its element type"
                      : !extreme && (out != in || (!dtype_is_float(out) && out != DT_i64)) &&
                              !(out == DT_i64 && !dtype_is_float(in))
                          ? "not in its element type"
                      : t->numel == 0                   ? "it has no elements"
                      : !any && far                     ? "rows lie whole pages apart"
                      : !decide(pl->c, DECIDE_lower, n) ? "refused"
                                                        : NULL;
    log_lower(n, !why, why ? why : rows ? "steps follow one another along the lanes" : "lanes hold columns");
    f->mask = 1u << dim;
    f->rkind = scan_kind_of(n);
    f->scan = !why;
    return f->scan;
}

/* Why the place of an extreme is better called for, or NULL. Down columns and over one long row the call looks for the extreme
 * first and for its place afterwards, which only an operand that exists in memory allows. */
const char *place_as_call(const tp_comp *c, const ir_node *n)
{
    const ir_node *x = n->arg[0].node;
    const tp_tensor *t = ir_type(x);
    while (x->kind == IR_call && (row_of(x)->flags & OPF_VIEW) && x->arg[0].kind == VAL_node)
        x = x->arg[0].node;
    bool computed = x->kind == IR_call && (row_of(x)->flags & OPF_PW) && lower_of((op_id)x->op);
    bool rows = t->ndim > 1 && n->arg[1].kind == VAL_int && dim_arg(n, 1, t->ndim) == t->ndim - 1;
    return computed || rows || !c->caps->library
               ? NULL
               : "nothing is computed on the way, and the call knows a faster one";
}

/* What a running result is computed in: in 64 bits, as the call does it, but for extremes. */
dtype scan_dtype(const ir_node *n)
{
    const tp_tensor *x = ir_type(n->arg[0].node);
    if (lower_row(n)->wide)
        return dtype_is_float((dtype)ir_type(n)->dt) ? DT_f64 : DT_i64;
    return (dtype)x->dt;
}

/* Reductions of empty values are left to the library: loops that never run have nothing to index. */
static bool of_nothing(const ir_node *n)
{
    const tp_tensor *t = n->narg && n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    return t && t->numel == 0;
}

static bool reduce_fits(planner *pl, ir_node *n)
{
    info *f = &pl->in[n->id];
    if (of_nothing(n) || !reduction(n, &f->mask, &f->rkind))
        return false;
    const char *why = is_place(f->rkind) ? place_as_call(pl->c, n) : NULL;
    if (why)
        log_lower(n, false, why);
    f->red = !why;
    return f->red;
}

#define REDUCE   .loops = reduce_fits, .reduces = true
#define BY_PARTS .rewrite = rewrite_by_parts, .pass = REWRITE_parts
const lowering lower_sum = { REDUCE, BY_PARTS, .kind = RED_sum };
const lowering lower_prod = { REDUCE, .kind = RED_prod };
const lowering lower_amax = { REDUCE, BY_PARTS, .kind = RED_max };
const lowering lower_amin = { REDUCE, BY_PARTS, .kind = RED_min };
const lowering lower_argmax = { REDUCE, .kind = RED_argmax };
const lowering lower_argmin = { REDUCE, .kind = RED_argmin };
const lowering lower_any = { REDUCE, .kind = RED_any };
const lowering lower_max_dim = { .kind = RED_max, .rewrite = rewrite_extreme, .pass = REWRITE_extreme };
const lowering lower_min_dim = { .kind = RED_min, .rewrite = rewrite_extreme, .pass = REWRITE_extreme };

#define SCAN(k, o) .loops = scan_fits, .kind = k, .other = o
const lowering lower_cumsum = { SCAN(RED_sum, RED_sum), .ordered = true, .wide = true };
const lowering lower_cumprod = { SCAN(RED_prod, RED_prod), .ordered = true, .wide = true };
const lowering lower_logcumsumexp = { SCAN(RED_lse, RED_lse), .wide = true };
const lowering lower_cum_extreme = { SCAN(RED_max, RED_min) };
const lowering lower_cum_place = { SCAN(RED_cummax, RED_cummin) };
const lowering lower_cummax = { .kind = RED_max, .rewrite = rewrite_scan, .pass = REWRITE_scan };
const lowering lower_cummin = { .kind = RED_min, .rewrite = rewrite_scan, .pass = REWRITE_scan };
