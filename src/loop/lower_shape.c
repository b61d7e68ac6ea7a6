/* lower_shape.c - operators that move or fill: views, copies, fills, triangles, ranges, cat, pads, slices written into a value. */
#include "loop/internal.h"
#include "ir/planted.h"

static bool always(planner *pl, const ir_node *n) { return true; }
static bool if_folded(planner *pl, const ir_node *n) { return pl->in[n->id].folds; }

/* ---- views: index of the result -> index of the operand ---- */
bool known_view(planner *pl, const ir_node *n)
{
    const lowering *l = lower_row(n);
    return l->view && l->fits(pl, n);
}

static vir_ref view_value(walk *w, ir_node *n, const lin *idx)
{
    lin sub[TP_MAX_DIMS];
    if (lower_row(n)->view(w, n, idx, sub))
        return eval(w, n->arg[0].node, sub);
    w->fail = true;
    return 0;
}
#define VIEW .value = view_value, .cheap = true

static bool alias_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    lins_set(out, idx, ir_type(n)->ndim);
    return true;
}
const lowering lower_alias = { VIEW, .fits = always, .view = alias_view };

static bool reshape_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *t = ir_type(n), *s = ir_type(n->arg[0].node);
    reshape_index(w, t->ndim, t->size, idx, s->ndim, s->size, out);
    return true;
}
const lowering lower_view = { VIEW, .fits = always, .view = reshape_view, .regroups = true };
const lowering lower_squeeze = { VIEW, .fits = always, .view = reshape_view };

static bool expand_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *t = ir_type(n), *s = ir_type(n->arg[0].node);
    int off = t->ndim - s->ndim;
    for (int d = 0; d < s->ndim; d++)
        out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0) : idx[d + off];
    return true;
}
const lowering lower_expand = { VIEW, .fits = always, .view = expand_view };

static bool permute_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    for (int d = 0; d < ir_type(n)->ndim; d++) {
        int from = 0;
        dim_wrap(n->arg[1].ints[d], ir_type(n->arg[0].node)->ndim, &from, NULL);
        out[from] = idx[d];
    }
    return true;
}
const lowering lower_permute = { VIEW, .fits = always, .view = permute_view };

static bool swap_view(walk *w, ir_node *n, const lin *idx, lin *out, int a, int b)
{
    lins_set(out, idx, ir_type(n)->ndim);
    if (ir_type(n)->ndim < 2)
        return true;
    out[a] = idx[b];
    out[b] = idx[a];
    return true;
}
static bool transpose_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    int nd = ir_type(n)->ndim;
    return swap_view(w, n, idx, out, dim_arg(n, 1, nd), dim_arg(n, 2, nd));
}
static bool t_view(walk *w, ir_node *n, const lin *idx, lin *out) { return swap_view(w, n, idx, out, 0, 1); }
const lowering lower_transpose = { VIEW, .fits = always, .view = transpose_view };
const lowering lower_t = { VIEW, .fits = always, .view = t_view, .rewrite = rewrite_there_and_back,
                           .pass = REWRITE_accumulate };

static bool counts_from_start(symint i) /* or is known to count from the end */
{
    return !sym_is_expr(i) || sym_known(SYM_ge, i, 0);
}

static const char *place_folds(planner *pl, const ir_node *n, const char **what)
{
    if (n->arg[2].kind != VAL_int || !sym_is_expr(n->arg[2].i))
        return NULL;
    *what = "a symbolic place is part of the index";
    return sym_known(SYM_ge, n->arg[2].i, 0) ? NULL : "it may count from the end: the run makes the view";
}

static bool select_fits(planner *pl, const ir_node *n)
{
    return n->arg[2].kind == VAL_int && counts_from_start(n->arg[2].i) &&
           (!sym_is_expr(n->arg[2].i) || pl->in[n->id].folds);
}
static bool select_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *s = ir_type(n->arg[0].node);
    int d = dim_arg(n, 1, s->ndim);
    symint i = n->arg[2].i;
    for (int k = 0, j = 0; k < s->ndim; k++)
        out[k] = k == d ? lin_const(!sym_is_expr(i) && i < 0 ? sym_add(i, s->size[d]) : i) : idx[j++];
    return true;
}
const lowering lower_select = { VIEW, .fits = select_fits, .folds = place_folds, .view = select_view };

static bool slice_fits(planner *pl, const ir_node *n)
{
    symint st = int_arg(n, 2, 0), step = int_arg(n, 4, 1);
    return !sym_is_expr(step) && (!sym_is_expr(st) || (pl->in[n->id].folds && sym_known(SYM_ge, st, 0)));
}
static const char *slice_folds(planner *pl, const ir_node *n, const char **what)
{
    const char *call = place_folds(pl, n, what);
    return *what && !call && sym_is_expr(int_arg(n, 4, 1))
               ? "its step is symbolic, too: the run makes the view"
               : call;
}
static bool slice_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *s = ir_type(n->arg[0].node);
    int d = dim_arg(n, 1, s->ndim);
    symint start = int_arg(n, 2, 0), step = int_arg(n, 4, 1), len = s->size[d];
    if (sym_is_expr(step) || (sym_is_expr(start) && !sym_known(SYM_ge, start, 0)))
        return false;
    if (!sym_is_expr(start)) {
        if (start < 0)
            start = sym_max(sym_add(start, len), 0);
        else if (!sym_known(SYM_le, start, len))
            start = sym_min(start, len);
    }
    lins_set(out, idx, ir_type(n)->ndim);
    out[d] = ladd(w, lscale(w, idx[d], step), lin_const(start));
    return true;
}
const lowering lower_slice = { VIEW, .fits = slice_fits, .folds = slice_folds, .view = slice_view };

/* ---- no views of memory, but values at another index all the same ---- */
static bool repeat_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *t = ir_type(n), *s = ir_type(n->arg[0].node);
    int off = t->ndim - s->ndim;
    for (int d = 0; d < s->ndim; d++)
        out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0)
                 : n->arg[1].ints[d + off] == 1          ? idx[d + off]
                                                         : lrest(w, &idx[d + off], s->size[d]);
    return true;
}
static const char *repeat_folds(planner *pl, const ir_node *n, const char **what)
{
    if (n->arg[1].kind != VAL_ints || n->arg[1].n != ir_type(n)->ndim)
        return NULL;
    const tp_tensor *s = ir_type(n->arg[0].node);
    symint len = s->ndim ? s->size[s->ndim - 1] : 1;
    *what = "a value at another index";
    if (len != 1 && n->arg[1].ints[n->arg[1].n - 1] != 1 && pl->c->caps->library &&
        !sym_known(SYM_ge, len, pl->c->caps->lanes))
        return "what is repeated is shorter than a vector";
    return NULL;
}
static void first_in_memory(planner *pl, ir_node *n) /* elements are read more than once */
{
    if (pl->in[n->id].folds)
        operand_in_memory(pl, n->arg[0].node);
}
const lowering lower_repeat = { VIEW, .fits = if_folded, .folds = repeat_folds, .view = repeat_view,
                                .operands = first_in_memory };

static bool flip_view(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *t = ir_type(n);
    lins_set(out, idx, t->ndim);
    for (int i = 0; i < n->arg[1].n && t->ndim; i++) { /* 0 and -1 are dimensions of one element, too */
        int d;
        dim_wrap(n->arg[1].ints[i], t->ndim, &d, NULL);
        out[d] = ladd(w, lscale(w, idx[d], -1), lin_const(sym_sub(t->size[d], 1)));
    }
    return true;
}
static const char *flip_folds(planner *pl, const ir_node *n, const char **what)
{
    const tp_tensor *t = ir_type(n);
    *what = "a value at another index";
    for (int i = 0; i < n->arg[1].n; i++)
        if (dim_arg_of(n->arg[1].ints[i], t->ndim) == t->ndim - 1 && pl->c->caps->reverse_bytes &&
            (int)dtype_size((dtype)t->dt) != pl->c->caps->reverse_bytes)
            return "only elements of four bytes are turned round in a vector";
    return NULL;
}
const lowering lower_flip = { VIEW, .fits = if_folded, .folds = flip_folds, .view = flip_view };

const lowering lower_split = { .rewrite = rewrite_split, .pass = REWRITE_split };
const lowering lower_unbind = { .rewrite = rewrite_unbind, .pass = REWRITE_split };
const lowering lower_roll = { .rewrite = rewrite_roll, .pass = REWRITE_roll };

/* ---- fills ---- */
static bool fill_constant(const ir_node *n, tp_val *v)
{
    int arg = lower_row(n)->arg - 1;
    if (n->arg[arg].kind == VAL_node || !number_is_ready(&n->arg[arg]))
        return false;
    *v = n->arg[arg];
    return true;
}
static bool zeros_constant(const ir_node *n, tp_val *v)
{
    *v = vI(0);
    return true;
}
static bool ones_constant(const ir_node *n, tp_val *v)
{
    *v = vI(1);
    return true;
}
/* Is every element the same number? */
bool fill_value(const ir_node *n, tp_val *v)
{
    const lowering *l = lower_row(n);
    return l->constant && l->constant(n, v);
}
static bool fill_fits(planner *pl, const ir_node *n)
{
    tp_val v;
    return fill_value(n, &v);
}
static vir_ref fill_at(walk *w, ir_node *n, const lin *idx)
{
    tp_val v;
    if (w->dry || !fill_value(n, &v))
        return 0;
    return number_now(w, &v, (dtype)ir_type(n)->dt);
}
#define FILL .fits = fill_fits, .value = fill_at, .cheap = true
const lowering lower_full = { FILL, .constant = fill_constant, .arg = 1 + 1 };
const lowering lower_new_full = { FILL, .constant = fill_constant, .arg = 2 + 1 };
const lowering lower_scalar_tensor = { FILL, .constant = fill_constant, .arg = 0 + 1 };
const lowering lower_zeros = { FILL, .constant = zeros_constant };
const lowering lower_ones = { FILL, .constant = ones_constant };

bool is_arange(const ir_node *n)
{
    const lowering *l = lower_row(n);
    return l->arange && dtype_is_int((dtype)ir_type(n)->dt) &&
           (!l->arg || n->arg[l->arg - 1].kind == VAL_int);
}
symint arange_first(const ir_node *n) { return lower_row(n)->arg ? n->arg[lower_row(n)->arg - 1].i : 0; }
static bool arange_fits(planner *pl, const ir_node *n) { return is_arange(n); }
static vir_ref arange_at(walk *w, ir_node *n, const lin *idx)
{
    lin i = idx[0];
    if (arange_first(n) != 0)
        i = ladd(w, i, lin_const(arange_first(n)));
    use_raw(w, &i);
    return w->dry ? 0 : loop_convert(w->k, emit_lin(w, &i), DT_i64, (dtype)ir_type(n)->dt);
}
#define ARANGE .fits = arange_fits, .value = arange_at, .cheap = true, .arange = true
const lowering lower_arange = { ARANGE };
const lowering lower_arange_start = { ARANGE, .arg = 0 + 1 };

/* ---- copies and triangles ---- */
bool is_copy(const ir_node *n) { return lower_row(n)->copies && n->arg[0].kind == VAL_node; }
static bool copy_fits(planner *pl, const ir_node *n) { return is_copy(n); }
static vir_ref copy_at(walk *w, ir_node *n, const lin *idx)
{
    ir_node *a = n->arg[0].node;
    const tp_tensor *t = ir_type(n);
    vir_ref v = eval(w, a, idx);
    if (w->dry)
        return 0;
    v = loop_convert(w->k, v, (dtype)ir_type(a)->dt, (dtype)t->dt);
    if (ir_type(a)->dt != t->dt)
        v = vir_narrow(w->k, loop_mem((dtype)t->dt), v); /* the program asks for the rounding */
    return TP_LIKELY(fault_state == 0) ? v : plant(w, n, v);
}
static const ir_node *copy_band(const ir_node *n, bool *flip)
{
    return ir_type(n)->dt == DT_bool ? operand(n, 0) : NULL;
}
#define COPY .fits = copy_fits, .value = copy_at, .cheap = true, .copies = true
const lowering lower_clone = { COPY };
const lowering lower_to_copy = { COPY, .same_band = copy_band };

static bool tri_fits(planner *pl, const ir_node *n)
{
    return ir_type(n)->ndim >= 2 && n->arg[1].kind == VAL_int;
}
static vir_ref tri_at(walk *w, ir_node *n, const lin *idx)
{
    const tp_tensor *t = ir_type(n);
    lin r = idx[t->ndim - 2], c = idx[t->ndim - 1];
    vir *k = w->k;
    use_raw(w, &r);
    use_raw(w, &c);
    vir_ref v = eval(w, n->arg[0].node, idx);
    if (w->dry)
        return 0;
    vir_ref d = vir_sub(k, emit_lin(w, &c), emit_lin(w, &r)), lim = emit_int(w, n->arg[1].i);
    vir_ref keep = lower_row(n) == &lower_tril ? vir_le(k, d, lim) : vir_ge(k, d, lim);
    return vir_select(k, keep, v, number(k, &vI(0), (dtype)t->dt));
}
static bool tri_band(const ir_node *n, causal_band *b)
{
    const ir_node *ones = operand(n, 0);
    tp_val one;
    if (!tri_fits(NULL, n) || !ones || !fill_value(ones, &one) || ir_type(n)->ndim != 2)
        return false;
    symint diag = n->arg[1].i;
    if (!is_known_number(&one) || val_as_f(&one) == 0 || sym_is_expr(diag) || diag < -INT32_MAX ||
        diag > INT32_MAX)
        return false;
    *b = (causal_band){ lower_row(n) == &lower_tril, diag };
    return true;
}
const lowering lower_tril = { .fits = tri_fits, .value = tri_at, .causal_band = tri_band };
const lowering lower_triu = { .fits = tri_fits, .value = tri_at, .causal_band = tri_band };

/* ---- cat ---- */
static bool cat_fits(planner *pl, const ir_node *n)
{
    const tp_val *v = &n->arg[0];
    if (v->kind != VAL_nodes || v->n > MAX_PARTS)
        return false;
    for (int i = 0; i < v->n; i++)
        if (!v->nodes[i] || ir_type(v->nodes[i])->ndim != ir_type(n)->ndim ||
            ir_type(v->nodes[i])->dt != ir_type(n)->dt)
            return false;
    return true;
}
/* A choice of so many for each element costs more than memory does: it is written for itself, a copy an operand. */
static bool is_long_cat(const ir_node *n) { return cat_fits(NULL, n) && n->arg[0].n > 6; }
static void cat_operands(planner *pl, ir_node *n)
{
    if (is_long_cat(n))
        pl->in[n->id].materialized = true;
}
static int cat_dim(const ir_node *n) { return dim_arg(n, 1, ir_type(n)->ndim); }
static int cat_count(const ir_node *n) { return cat_fits(NULL, n) ? n->arg[0].n : 0; }
static symint cat_size(const ir_node *n, int i) { return ir_type(n->arg[0].nodes[i])->size[cat_dim(n)]; }
static const lower_parts cat_parts = { cat_count, cat_dim, cat_size };

static vir_ref cat_part(walk *w, ir_node *n, const lin *idx) /* of the kernel that writes one operand */
{
    int d = cat_dim(n), part = w->g->part - 1;
    lin sub[TP_MAX_DIMS];
    memcpy(sub, idx, sizeof *sub * ir_type(n)->ndim);
    sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, part_at(n, part))));
    return eval(w, n->arg[0].nodes[part], sub);
}
static vir_ref cat_at(walk *w, ir_node *n, const lin *idx)
{
    const tp_tensor *t = ir_type(n);
    int d = cat_dim(n);
    symint at = 0;
    vir *k = w->k;
    vir_ref v = 0, pos = 0;
    if (n == w->self && w->g->part)
        return cat_part(w, n, idx);
    use_raw(w, &idx[d]);
    if (!w->dry)
        pos = emit_lin(w, &idx[d]);
    for (int i = 0; i < n->arg[0].n; i++) {
        ir_node *a = n->arg[0].nodes[i];
        symint end = sym_add(at, ir_type(a)->size[d]);
        lin sub[TP_MAX_DIMS];
        memcpy(sub, idx, sizeof *sub * t->ndim);
        sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, at)));
        vir_ref m = 0;
        if (!w->dry) {
            m = vir_lt(k, pos, emit_int(w, end));
            if (i)
                m = vir_and(k, m, vir_ge(k, pos, emit_int(w, at)));
        }
        vir_ref x = under_mask(w, m, a, sub);
        if (w->fail)
            return 0;
        if (!w->dry)
            v = v ? vir_select(k, m, x, v) : x;
        at = end;
    }
    return v;
}
const lowering lower_cat = {
    .fits = cat_fits, .value = cat_at, .operands = cat_operands, .apart = is_long_cat, .parts = &cat_parts
};

/* ---- pads ---- */
static bool pad_fits(planner *pl, const ir_node *n) { return is_known_number(&n->arg[2]); }
static vir_ref pad_at(walk *w, ir_node *n, const lin *idx)
{
    ir_node *a = n->arg[0].node;
    const tp_tensor *t = ir_type(n), *s = ir_type(a);
    lin sub[TP_MAX_DIMS];
    vir *k = w->k;
    vir_ref m = 0;
    for (int d = 0; d < t->ndim; d++) {
        int q = (t->ndim - 1 - d) * 2;
        symint lo = q < n->arg[1].n ? n->arg[1].ints[q] : 0,
               hi = q + 1 < n->arg[1].n ? n->arg[1].ints[q + 1] : 0;
        sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, lo)));
        if (lo == 0 && hi == 0)
            continue;
        use_raw(w, &sub[d]);
        if (!w->dry) {
            vir_ref p = emit_lin(w, &sub[d]);
            vir_ref in = vir_and(k, vir_ge(k, p, vir_int(k, 0)), vir_lt(k, p, emit_int(w, s->size[d])));
            m = m ? vir_and(k, m, in) : in;
        }
    }
    vir_ref v = m || w->dry ? under_mask(w, m, a, sub) : eval(w, a, sub);
    if (w->dry || !m)
        return v;
    return vir_select(k, m, v, number(k, &n->arg[2], (dtype)t->dt));
}
const lowering lower_constant_pad = { .fits = pad_fits, .value = pad_at, .borders = true };

static const char *mirror_folds(planner *pl, const ir_node *n, const char **what)
{
    if (n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_ints)
        return NULL;
    for (int i = 0; i < n->arg[1].n; i++) /* outwards only */
        if (sym_is_expr(n->arg[1].ints[i]) || n->arg[1].ints[i] < 0)
            return NULL;
    *what = "a value at another index";
    return ir_type(n)->stride[ir_type(n)->ndim - 1] != 1 ? "channels are mirrored one by one" : NULL;
}
static int mirror_dim(const ir_node *n) { return ir_type(n)->ndim - 1; }
static int mirror_count(const ir_node *n)
{
    const char *what = NULL;
    mirror_folds(NULL, n, &what);
    return what && (n->arg[1].ints[0] || n->arg[1].ints[1]) ? 3 : 0;
}
static symint mirror_size(const ir_node *n, int i)
{
    return i == 1 ? ir_type(n->arg[0].node)->size[mirror_dim(n)] : n->arg[1].ints[i / 2];
}
static const lower_parts mirror_parts = { mirror_count, mirror_dim, mirror_size };
static bool mirror_apart(const ir_node *n) { return mirror_count(n) > 0; }
static void mirror_operands(planner *pl, ir_node *n)
{
    if (pl->in[n->id].folds && mirror_apart(n))
        pl->in[n->id].materialized = true;
}
/* A mirrored or repeated edge: rows are found by arithmetic on the index, and so are columns outside of parts. */
static vir_ref eval_mirror(walk *w, ir_node *n, const lin *idx)
{
    ir_node *a = n->arg[0].node;
    const tp_tensor *s = ir_type(a);
    bool reflect = lower_row(n) == &lower_reflection_pad;
    int part = n == w->self ? w->g->part : 0;
    vir *k = w->k;
    lin sub[TP_MAX_DIMS];
    for (int d = 0; d < s->ndim; d++) {
        int q = (s->ndim - 1 - d) * 2;
        symint lo = q < n->arg[1].n ? n->arg[1].ints[q] : 0, hi = q < n->arg[1].n ? n->arg[1].ints[q + 1] : 0;
        symint end = sym_sub(s->size[d], 1);
        sub[d] = lo ? ladd(w, idx[d], lin_const(sym_sub(0, lo))) : idx[d];
        if (part && d == s->ndim - 1 && part != 2) {
            if (!reflect)
                sub[d] = lin_const(part == 1 ? 0 : end);
            else
                sub[d] = ladd(w, lscale(w, sub[d], -1), lin_const(part == 1 ? 0 : sym_mul(2, end)));
        } else if ((lo || hi) && !(part && d == s->ndim - 1)) {
            use_raw(w, &sub[d]);
            if (w->dry) {
                sub[d] = opaque(w, 0);
                continue;
            }
            vir_ref i = emit_lin(w, &sub[d]), last = emit_int(w, end);
            if (reflect)
                i = vir_sub(k, last, vir_abs(k, vir_sub(k, last, vir_abs(k, i))));
            else
                i = vir_min(k, vir_max(k, i, vir_int(k, 0)), last);
            sub[d] = opaque(w, i);
        }
    }
    return eval(w, a, sub);
}
#define MIRROR                                                                                       \
    .folds = mirror_folds, .value = eval_mirror, .operands = mirror_operands, .apart = mirror_apart, \
    .parts = &mirror_parts
const lowering lower_reflection_pad = { MIRROR };
const lowering lower_replication_pad = { MIRROR };

/* ---- slices written into a value; their arguments lie alike in select_backward and slice_backward: into zeros ---- */
static vir_ref written_at(walk *w, ir_node *n, const lin *idx, ir_node *base, ir_node *src, const lin *sub,
                          symint lo, symint hi)
{
    const tp_tensor *t = ir_type(n);
    int d = dim_arg(n, 2, t->ndim);
    vir *k = w->k;
    use_raw(w, &idx[d]);
    vir_ref m = 0;
    if (!w->dry) {
        vir_ref p = emit_lin(w, &idx[d]);
        m = vir_and(k, vir_ge(k, p, emit_int(w, lo)), vir_lt(k, p, emit_int(w, hi)));
    }
    vir_ref s = under_mask(w, m, src, sub);
    if (w->fail)
        return 0;
    if (!w->dry)
        s = loop_convert(k, s, (dtype)ir_type(src)->dt, (dtype)t->dt);
    vir_ref b = base ? eval(w, base, idx) : w->dry ? 0 : number(k, &vI(0), (dtype)t->dt);
    return w->dry ? 0 : vir_select(k, m, s, b);
}

static bool selected_fits(planner *pl, const ir_node *n)
{
    return n->arg[3].kind == VAL_int && counts_from_start(n->arg[3].i);
}
static vir_ref selected_at(walk *w, ir_node *n, const lin *idx, ir_node *base, ir_node *src)
{
    const tp_tensor *t = ir_type(n);
    int d = dim_arg(n, 2, t->ndim);
    symint lo = n->arg[3].i;
    lin sub[TP_MAX_DIMS];
    if (!sym_is_expr(lo) && lo < 0)
        lo = sym_add(lo, t->size[d]);
    for (int i = 0, j = 0; i < t->ndim; i++)
        if (i != d)
            sub[j++] = idx[i];
    return written_at(w, n, idx, base, src, sub, lo, sym_add(lo, 1));
}
static vir_ref select_scatter_at(walk *w, ir_node *n, const lin *idx)
{
    return selected_at(w, n, idx, n->arg[0].node, n->arg[1].node);
}
static vir_ref select_backward_at(walk *w, ir_node *n, const lin *idx)
{
    return selected_at(w, n, idx, NULL, n->arg[0].node);
}

static bool sliced_fits(planner *pl, const ir_node *n)
{
    return int_arg(n, 5, 1) == 1 && !sym_is_expr(int_arg(n, 3, 0));
}
static vir_ref sliced_at(walk *w, ir_node *n, const lin *idx, ir_node *base, ir_node *src)
{
    const tp_tensor *t = ir_type(n);
    int d = dim_arg(n, 2, t->ndim);
    symint lo = int_arg(n, 3, 0);
    lin sub[TP_MAX_DIMS];
    if (lo < 0)
        lo = sym_max(sym_add(lo, t->size[d]), 0);
    memcpy(sub, idx, sizeof *sub * t->ndim);
    sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, lo)));
    return written_at(w, n, idx, base, src, sub, lo, sym_add(lo, ir_type(src)->size[d]));
}
static vir_ref slice_scatter_at(walk *w, ir_node *n, const lin *idx)
{
    return sliced_at(w, n, idx, n->arg[0].node, n->arg[1].node);
}
static vir_ref slice_backward_at(walk *w, ir_node *n, const lin *idx)
{
    return sliced_at(w, n, idx, NULL, n->arg[0].node);
}

/* What is written, where the rest stays what it is: lo, and which dimension of the source there is for each of the result. */
static bool part_written(const ir_node *n, loop_gather *g, symint lo, bool drops)
{
    const tp_tensor *t = ir_type(n), *x = n->arg[1].kind == VAL_node ? ir_type(n->arg[1].node) : NULL;
    int dim = dim_arg(n, 2, t->ndim);
    if (!x || x->dt != t->dt || x->ndim != t->ndim - drops)
        return false;
    for (int d = 0; d < t->ndim; d++)
        g->d[d].from = d - (drops && d > dim);
    if (drops)
        g->d[dim].from = -1;
    g->d[dim].start = lo;
    g->writes = true;
    g->src = 1;
    g->nd = x->ndim;
    memcpy(g->size, x->size, sizeof *g->size * (size_t)g->nd);
    return true;
}
static bool select_scatter_of(const ir_node *n, loop_gather *g)
{
    const tp_tensor *t = ir_type(n);
    if (n->arg[3].kind != VAL_int || !counts_from_start(n->arg[3].i))
        return false;
    symint lo = n->arg[3].i;
    if (!sym_is_expr(lo) && lo < 0)
        lo = sym_add(lo, t->size[dim_arg(n, 2, t->ndim)]);
    return part_written(n, g, lo, true);
}
static bool slice_scatter_of(const ir_node *n, loop_gather *g)
{
    const tp_tensor *t = ir_type(n);
    symint lo = int_arg(n, 3, 0);
    if (int_arg(n, 5, 1) != 1 || sym_is_expr(lo))
        return false;
    if (lo < 0)
        lo = sym_max(sym_add(lo, t->size[dim_arg(n, 2, t->ndim)]), 0);
    return part_written(n, g, lo, false);
}

static void zeros_operands(planner *pl, ir_node *n) /* else it would be computed for the zeros too */
{
    if (n->nuse <= 1 && is_inline(pl, n))
        operand_in_memory(pl, n->arg[0].node);
}
const lowering lower_select_scatter = { .fits = selected_fits,
                                        .value = select_scatter_at,
                                        .gather = select_scatter_of };
const lowering lower_select_backward = { .fits = selected_fits,
                                         .value = select_backward_at,
                                         .operands = zeros_operands };
const lowering lower_slice_scatter = { .fits = sliced_fits,
                                       .value = slice_scatter_at,
                                       .gather = slice_scatter_of };
const lowering lower_slice_backward = { .fits = sliced_fits,
                                        .value = slice_backward_at,
                                        .operands = zeros_operands };
