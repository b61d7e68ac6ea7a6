/* lower_shape.c - operators that move or fill: views, copies, fills, triangles, ranges, cat, pads, slices written into a value. */
#include "loop/internal.h"
#include "ir/planted.h"

/* Views: index of the result -> index of the operand. False: not a view this stage knows. */
bool view_index(walk *w, ir_node *n, const lin *idx, lin *out)
{
    const tp_tensor *t = ir_type(n), *s = ir_type(n->arg[0].node);
    switch ((op_id)n->op) {
    case OP_alias:
    case OP_detach: lins_set(out, idx, t->ndim); return true;
    case OP_view:
    case OP_squeeze:
    case OP_squeeze_dim:
    case OP_squeeze_dims:
    case OP_unsqueeze: reshape_index(w, t->ndim, t->size, idx, s->ndim, s->size, out); return true;
    case OP_expand: {
        int off = t->ndim - s->ndim;
        for (int d = 0; d < s->ndim; d++)
            out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0) : idx[d + off];
        return true;
    }
    case OP_permute:
        for (int d = 0; d < t->ndim; d++) {
            int from = 0;
            dim_wrap(n->arg[1].ints[d], s->ndim, &from, NULL);
            out[from] = idx[d];
        }
        return true;
    case OP_transpose_int:
    case OP_t: {
        lins_set(out, idx, t->ndim);
        if (t->ndim < 2)
            return true;
        int a = n->op == OP_t ? 0 : dim_arg(n, 1, s->ndim), b = n->op == OP_t ? 1 : dim_arg(n, 2, s->ndim);
        out[a] = idx[b];
        out[b] = idx[a];
        return true;
    }
    case OP_select_int: {
        int d = dim_arg(n, 1, s->ndim);
        symint i = n->arg[2].i;
        for (int k = 0, j = 0; k < s->ndim; k++)
            out[k] = k == d ? lin_const(!sym_is_expr(i) && i < 0 ? sym_add(i, s->size[d]) : i) : idx[j++];
        return true;
    }
    case OP_slice_Tensor: {
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
        lins_set(out, idx, t->ndim);
        out[d] = ladd(w, lscale(w, idx[d], step), lin_const(start));
        return true;
    }
    case OP_repeat: {
        int off = t->ndim - s->ndim;
        for (int d = 0; d < s->ndim; d++)
            out[d] = is_spread(s->size[d], t->size[d + off]) ? lin_const(0)
                     : n->arg[1].ints[d + off] == 1          ? idx[d + off]
                                                             : lrest(w, &idx[d + off], s->size[d]);
        return true;
    }
    case OP_flip: /* no view of memory, but a value at another index all the same */
        lins_set(out, idx, t->ndim);
        for (int i = 0; i < n->arg[1].n; i++) {
            int d;
            dim_wrap(n->arg[1].ints[i], t->ndim, &d, NULL);
            out[d] = ladd(w, lscale(w, idx[d], -1), lin_const(sym_sub(t->size[d], 1)));
        }
        return true;
    default: return false;
    }
}

static bool counts_from_start(symint i) /* or is known to count from the end */
{
    return !sym_is_expr(i) || sym_known(SYM_ge, i, 0);
}

bool known_view(const planner *pl, const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn)
        return false;
    switch ((op_id)n->op) {
    case OP_alias:
    case OP_detach:
    case OP_view:
    case OP_squeeze:
    case OP_squeeze_dim:
    case OP_squeeze_dims:
    case OP_unsqueeze:
    case OP_expand:
    case OP_permute:
    case OP_transpose_int:
    case OP_t: return true;
    case OP_repeat:
    case OP_flip: return pl->in[n->id].folds;
    case OP_select_int:
        return n->arg[2].kind == VAL_int && counts_from_start(n->arg[2].i) &&
               (!sym_is_expr(n->arg[2].i) || pl->in[n->id].folds);
    case OP_slice_Tensor: {
        symint st = n->arg[2].kind == VAL_int ? n->arg[2].i : 0,
               step = n->arg[4].kind == VAL_int ? n->arg[4].i : 1;
        return !sym_is_expr(step) && (!sym_is_expr(st) || (pl->in[n->id].folds && sym_known(SYM_ge, st, 0)));
    }
    default: return false;
    }
}

bool is_fill(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn)
        return false;
    switch ((op_id)n->op) {
    case OP_full:
    case OP_full_like:
    case OP_fill_Scalar: return n->arg[1].kind != VAL_node && number_is_ready(&n->arg[1]);
    case OP_new_full: return n->arg[2].kind != VAL_node && number_is_ready(&n->arg[2]);
    case OP_scalar_tensor: return n->arg[0].kind != VAL_node && number_is_ready(&n->arg[0]);
    case OP_zeros:
    case OP_ones:
    case OP_zeros_like:
    case OP_ones_like:
    case OP_new_zeros:
    case OP_new_ones: return true;
    default: return false;
    }
}

tp_val fill_value(const ir_node *n)
{
    switch ((op_id)n->op) {
    case OP_full:
    case OP_full_like:
    case OP_fill_Scalar: return n->arg[1];
    case OP_new_full: return n->arg[2];
    case OP_scalar_tensor: return n->arg[0];
    case OP_ones:
    case OP_ones_like:
    case OP_new_ones: return vI(1);
    default: return vI(0);
    }
}

bool is_copy(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && (n->op == OP_clone || n->op == OP_to_dtype) &&
           n->arg[0].kind == VAL_node;
}

bool is_tri(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && (n->op == OP_tril || n->op == OP_triu) &&
           ir_type(n)->ndim >= 2 && n->arg[1].kind == VAL_int;
}

bool is_arange(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || !dtype_is_int((dtype)ir_type(n)->dt))
        return false;
    if (n->op == OP_arange)
        return true;
    return n->op == OP_arange_start && n->arg[0].kind == VAL_int;
}

bool is_cat(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->op != OP_cat || n->arg[0].kind != VAL_nodes ||
        n->arg[0].n > MAX_PARTS)
        return false;
    for (int i = 0; i < n->arg[0].n; i++)
        if (!n->arg[0].nodes[i] || ir_type(n->arg[0].nodes[i])->ndim != ir_type(n)->ndim ||
            ir_type(n->arg[0].nodes[i])->dt != ir_type(n)->dt)
            return false;
    return true;
}

/* A choice of so many for each element costs more than memory does: it is written for itself, a copy an operand. */
bool is_long_cat(const ir_node *n) { return is_cat(n) && n->arg[0].n > 6; }

bool is_pad(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && n->op == OP_constant_pad_nd &&
           is_known_number(&n->arg[2]);
}

static bool mirrors(const ir_node *n)
{
    return n->op == OP_reflection_pad1d || n->op == OP_reflection_pad2d || n->op == OP_reflection_pad3d;
}

bool is_mirror(const ir_node *n) /* a pad of what lies at the edge, outwards only */
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->arg[0].kind != VAL_node ||
        (!mirrors(n) && n->op != OP_replication_pad1d && n->op != OP_replication_pad2d &&
         n->op != OP_replication_pad3d) ||
        n->arg[1].kind != VAL_ints)
        return false;
    for (int i = 0; i < n->arg[1].n; i++)
        if (sym_is_expr(n->arg[1].ints[i]) || n->arg[1].ints[i] < 0)
            return false;
    return true;
}

bool is_scatter(const ir_node *n) /* slices written into a value */
{
    if (n->kind != IR_call || n->variant != OPV_fn)
        return false;
    if (n->op == OP_select_scatter || n->op == OP_select_backward)
        return n->arg[3].kind == VAL_int && counts_from_start(n->arg[3].i);
    if (n->op != OP_slice_scatter && n->op != OP_slice_backward)
        return false;
    symint step = int_arg(n, 5, 1), start = int_arg(n, 3, 0);
    return step == 1 && !sym_is_expr(start);
}

/* Values that are written in parts, a kernel each, so that no element asks which one it belongs to: the operands of a cat, and
 * what a mirroring pad has left of, in and right of the image. */
int part_dim(const ir_node *n)
{
    return n->op == OP_cat ? dim_arg(n, 1, ir_type(n)->ndim) : ir_type(n)->ndim - 1;
}

int part_count(const ir_node *n)
{
    return is_cat(n) ? n->arg[0].n : is_mirror(n) && (n->arg[1].ints[0] || n->arg[1].ints[1]) ? 3 : 0;
}

symint part_size(const ir_node *n, int i)
{
    if (n->op == OP_cat)
        return ir_type(n->arg[0].nodes[i])->size[part_dim(n)];
    return i == 1 ? ir_type(n->arg[0].node)->size[part_dim(n)] : n->arg[1].ints[i / 2];
}

symint part_at(const ir_node *n, int i)
{
    symint at = 0;
    for (int k = 0; k < i; k++)
        at = sym_add(at, part_size(n, k));
    return at;
}

/* A mirrored or repeated edge: rows are found by arithmetic on the index, and so are columns outside of parts. */
__attribute__((noinline)) vir_ref eval_mirror(walk *w, ir_node *n, const lin *idx)
{
    ir_node *a = n->arg[0].node;
    const tp_tensor *s = ir_type(a);
    bool reflect = mirrors(n);
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

__attribute__((noinline)) vir_ref eval_special(walk *w, ir_node *n, const lin *idx)
{
    const tp_tensor *t = ir_type(n);
    vir *k = w->k;
    if (is_fill(n)) {
        if (w->dry)
            return 0;
        tp_val v = fill_value(n);
        return number_now(w, &v, (dtype)t->dt);
    }
    if (is_copy(n)) {
        ir_node *a = n->arg[0].node;
        vir_ref v = eval(w, a, idx);
        if (w->dry)
            return 0;
        v = loop_convert(k, v, (dtype)ir_type(a)->dt, (dtype)t->dt);
        if (ir_type(a)->dt != t->dt)
            v = vir_narrow(k, loop_mem((dtype)t->dt), v); /* the program asks for the rounding */
        return TP_LIKELY(fault_state == 0) ? v : plant(w, n, v);
    }
    if (is_arange(n)) {
        lin i = idx[0];
        if (n->op == OP_arange_start)
            i = ladd(w, i, lin_const(n->arg[0].i));
        use_raw(w, &i);
        return w->dry ? 0 : loop_convert(k, emit_lin(w, &i), DT_i64, (dtype)t->dt);
    }
    if (is_tri(n)) {
        lin r = idx[t->ndim - 2], c = idx[t->ndim - 1];
        use_raw(w, &r);
        use_raw(w, &c);
        vir_ref v = eval(w, n->arg[0].node, idx);
        if (w->dry)
            return 0;
        vir_ref d = vir_sub(k, emit_lin(w, &c), emit_lin(w, &r)), lim = emit_int(w, n->arg[1].i);
        vir_ref keep = n->op == OP_tril ? vir_le(k, d, lim) : vir_ge(k, d, lim);
        return vir_select(k, keep, v, number(k, &vI(0), (dtype)t->dt));
    }
    if (is_cat(n) && n == w->self && w->g->part) {
        int d = dim_arg(n, 1, t->ndim);
        lin sub[TP_MAX_DIMS];
        memcpy(sub, idx, sizeof *sub * t->ndim);
        sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, part_at(n, w->g->part - 1))));
        return eval(w, n->arg[0].nodes[w->g->part - 1], sub);
    }
    if (is_cat(n)) {
        int d = dim_arg(n, 1, t->ndim);
        symint at = 0;
        vir_ref v = 0, pos = 0;
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
    if (is_pad(n)) {
        ir_node *a = n->arg[0].node;
        const tp_tensor *s = ir_type(a);
        lin sub[TP_MAX_DIMS];
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
    /* slice_scatter, select_scatter; their arguments lie alike in slice_backward, select_backward: into zeros */
    bool zeros = n->op == OP_select_backward || n->op == OP_slice_backward;
    ir_node *base = zeros ? NULL : n->arg[0].node, *src = n->arg[zeros ? 0 : 1].node;
    int d = dim_arg(n, 2, t->ndim);
    lin sub[TP_MAX_DIMS];
    symint lo, hi;
    if (n->op == OP_select_scatter || n->op == OP_select_backward) {
        lo = n->arg[3].i;
        if (!sym_is_expr(lo) && lo < 0)
            lo = sym_add(lo, t->size[d]);
        hi = sym_add(lo, 1);
        for (int i = 0, j = 0; i < t->ndim; i++)
            if (i != d)
                sub[j++] = idx[i];
    } else {
        lo = int_arg(n, 3, 0);
        if (lo < 0)
            lo = sym_max(sym_add(lo, t->size[d]), 0);
        hi = sym_add(lo, ir_type(src)->size[d]);
        memcpy(sub, idx, sizeof *sub * t->ndim);
        sub[d] = ladd(w, idx[d], lin_const(sym_sub(0, lo)));
    }
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

__attribute__((noinline)) vir_ref eval_view(walk *w, ir_node *n, const lin *idx)
{
    lin sub[TP_MAX_DIMS];
    if (view_index(w, n, idx, sub))
        return eval(w, n->arg[0].node, sub);
    w->fail = true;
    return 0;
}
