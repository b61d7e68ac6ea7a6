/* plan.c - decides what exists in memory, which values share a kernel, and writes the kernels.
 *
 * Scheduled values are those that must be computed at a place of their own: results, operands of library calls,
 * reductions, values used more than once. Everything else is computed where it is used. Scheduled values with one
 * iteration space and no way around form a group; a group is one kernel:
 *
 *   parallel over the kept dimensions
 *     pass 0: loops over the reduced dimensions: inner values, steps of reductions; then what depends on those
 *     pass 1: again, with what pass 0 gave (softmax: maximum, then sum, then quotient)
 *
 * A group without reductions has one pass over all dimensions. Either the last loop over reduced dimensions is the
 * vector loop (rows lie in memory), or the last kept dimension is and each lane keeps its own sum (columns do). */
#include "loop/loop.h"
#include "loop/lin.h"
#include "ir/planted.h"
#include "base/clock.h"
#include "events/metrics.h"
#include <math.h>
#include <stdio.h>

enum {
    MAX_VARS = 32,
    MAX_MEMBERS = 48,
    MAX_BUFS = 64,
    MAX_LEAVES = 32,
    CHUNK = 4096,
    PUT_CHUNK = 512,
    MAX_PARTS = 64
};

typedef struct group group;
typedef struct info { /* per node, by id */
    bool sched;       /* scheduled */
    bool stored;      /* exists in memory */
    bool ext;         /* a library call */
    bool product;     /* a matrix product into a buffer of the plan */
    bool red;         /* a reduction */
    bool scan;        /* a running sum or product: mask and rkind as of a reduction, a value for every step */
    bool put;         /* a copy of a value into which others are written where indices point: two kernels */
    uint32_t mask;    /* reduction: which dimensions of its input */
    uint8_t rkind;    /* vir_red_kind */
    group *g;
    int level;  /* pass of its group */
    bool outer; /* one value per row: reductions and what follows from them alone */
    int slot;   /* + 1 */
    bool covered, tested;
    bool memview;  /* a view that the runtime makes over memory */
    bool folds;    /* computed where it is used although that is a choice */
    bool low;      /* its operand is known not to be positive */
    bool checked;  /* its indices are checked by a step */
    bool last;     /* stored when its kernel has read everything: it may lie where something is read */
    ir_node *into; /* the input that it becomes the value of */
    int depth;     /* operators from the values in memory that its expression reads up to it */
    int leaves;    /* values in memory that its expression reads, counted with repeats */
    int walked;    /* the last walk over sources that met it */
} info;

enum { DEEP = 100 }; /* operators in one expression */

struct group {
    bool deep;  /* a cut was made at its end: nothing joins it any more */
    bool split; /* loops are taken apart for a member */
    bool rides; /* it runs on the rows of a product */
    bool scan;  /* steps along `red` follow one another; each has its own value */
    int id;
    int nd;
    symint size[TP_MAX_DIMS]; /* full iteration space, logical order */
    uint32_t red;             /* reduced dimensions; 0 without reductions */
    ir_node *member[MAX_MEMBERS];
    int n;
    ir_node *load[MAX_BUFS]; /* what its members read from memory */
    int nload;
    uint64_t *before; /* bit set of groups and calls that must come first */
    int order;        /* position among steps */
    ir_node *ext;     /* a library call instead of a kernel */
    int part;         /* + 1: which part of its only member this kernel writes; size is the part's */
};

typedef struct over { /* step `step` writes each element of n where it reads that of x, after it was read */
    ir_node *n, *x;
    int step;
} over;

typedef struct planner {
    tp_comp *c;
    loop_plan *p;
    ir_graph *g;
    info *in; /* by node id */
    VEC(group *) groups;
    group *effect; /* the last call made for more than its result */
    bool *writes;  /* by group: new values of inputs that nothing else waits for */
    int words;     /* of bit sets */
    int nwalk;     /* walks over sources so far */
    map lowers;    /* calls that were tried -> 2: covered, 1: not */
    arena tmp;
    VEC(ir_node *) check; /* what the group being surveyed reads by indices */
    VEC(over) over;
    vir_room room;
} planner;

static const op_row *row_of(const ir_node *n) { return op_row_of((op_id)n->op); }
static bool is_dear(const ir_node *n) { return n->kind == IR_call && row_of(n)->flags & OPF_DEAR; }
static bool in_order(const ir_node *n);
static const char *token(const ir_node *n) { return n->kind == IR_call ? row_of(n)->lower_name : ""; }
static bool is(const ir_node *n, const char *t) { return !strcmp(token(n), t); }
static int64_t hint(symint v)
{
    bool ok = true;
    int64_t h = sym_hint(v, &ok);
    return ok ? h : 4096;
}
/* Is a dimension of size `from` broadcast to `to`? A guard fixed the answer when the shape was made, by hint; the sizes
 * themselves need not be simple enough to see it. */
static bool is_spread(symint from, symint to)
{
    return from != to && (from == 1 || (sym_is_expr(from) && hint(from) == 1 && hint(to) != 1));
}
static bool same_sizes(int nd, const symint *a, int nd2, const symint *b)
{
    if (nd != nd2)
        return false;
    for (int i = 0; i < nd; i++)
        if (a[i] != b[i] && !sym_known(SYM_eq, a[i], b[i]))
            return false;
    return true;
}

/* ---- walking an expression --------------------------------------------------------------------------------------- */
typedef struct access {
    lin at;
    bool raw;          /* an index used as a value, not an address */
    bool part;         /* what is linear of an address that is not: says which loop walks memory */
    const ir_node *n;  /* what is read there; NULL: written */
    const ir_node *to; /* what is written there */
    ir_node *drawn;    /* which numbers are drawn for it */
} access;
typedef struct walk {
    planner *pl;
    group *g;
    const symint *vsize; /* of the group's variables */
    int nvar;
    /* dry runs */
    bool dry, fail;
    VEC(access) seen;
    VEC(ir_node *) loads; /* buffers read */
    ir_node *self;        /* the member being computed: not a reference to itself */
    int level;            /* of what was referenced: the pass this can be computed in */
    bool inner;           /* referenced an inner member */
    /* splits wanted: dimension var -> two variables */
    int split_var;
    symint split_in;
    /* emitting */
    vir *k;
    vir_ref *var; /* value of each merged variable */
    int *merged;  /* variable -> merged variable, or -1 when an inner one carries it */
    int pass;
    vir_ref mask;
    struct emit *e;
    loop_kernel *out; /* the kernel being written */
} walk;

static vir_ref eval(walk *w, ir_node *n, const lin *idx);
static vir_ref emit_int(walk *w, symint v);
static vir_ref emit_lin(walk *w, const lin *a);
static vir_ref emit_load(walk *w, ir_node *n, const lin *idx);
static vir_ref member_value(walk *w, ir_node *n);
static lin address(walk *w, const tp_tensor *t, const lin *idx);
static ir_node *behind_views(ir_node *n);
static lin linear_part(walk *w, const tp_tensor *t, const lin *idx);
static int buffer_of(walk *w, ir_node *n, int flags);

static void lins_set(lin *to, const lin *from, int n)
{
    for (int d = 0; d < n; d++)
        lin_set(&to[d], &from[d]);
}
static lin opaque(walk *w, vir_ref r) { return (lin){ .opaque = true, .ref = r }; }
static void use_raw(walk *w, const lin *a)
{
    if (w->dry)
        vec_push(&w->seen, ((access){ .at = *a, .raw = true }));
}

/* Arithmetic that falls back to emitted instructions where it is not linear. */
static lin ladd(walk *w, lin a, lin b)
{
    bool ok = true;
    lin r = lin_add(a, &b, &ok);
    if (ok)
        return r;
    use_raw(w, &a);
    use_raw(w, &b);
    return opaque(w, w->dry ? 0 : vir_add(w->k, emit_lin(w, &a), emit_lin(w, &b)));
}
static lin lscale(walk *w, lin a, symint c)
{
    if (!a.opaque)
        return lin_scale(a, c);
    return opaque(w, w->dry ? 0 : vir_mul(w->k, emit_lin(w, &a), emit_int(w, c)));
}
static void lacc(walk *w, lin *a, const lin *b, symint c) /* a += c b */
{
    if (!lin_acc(a, b, c))
        *a = ladd(w, *a, lscale(w, *b, c));
}
/* A quotient by `by` that does not come out: v = q * in + r would, where a term c v has c in = by. */
static void want_split(walk *w, const lin *a, symint by)
{
    if (!w->dry || a->opaque || w->split_var >= 0 || !sym_known(SYM_eq, sym_mod(a->k, by), 0))
        return;
    for (int i = 0; i < a->n; i++) {
        symint c = a->t[i].c, size = w->vsize[a->t[i].var];
        if (!sym_known(SYM_gt, c, 0) || sym_known(SYM_eq, sym_mod(c, by), 0) ||
            !sym_known(SYM_eq, sym_mod(by, c), 0))
            continue;
        symint in = sym_floordiv(by, c);
        if (!sym_known(SYM_eq, sym_mod(size, in), 0) || (a->n > 1 && !sym_known(SYM_gt, size, in)))
            continue;
        w->split_var = a->t[i].var;
        w->split_in = in;
        return;
    }
}
static lin lquot(walk *w, const lin *a, symint by)
{
    bool ok = true;
    lin r = lin_div(a, by, w->vsize, &ok);
    if (ok)
        return r;
    want_split(w, a, by);
    use_raw(w, a);
    return opaque(w, w->dry ? 0 : vir_divf(w->k, emit_lin(w, a), emit_int(w, by)));
}
static lin lrest(walk *w, const lin *a, symint by)
{
    bool ok = true;
    lin r = lin_mod(a, by, w->vsize, &ok);
    if (ok)
        return r;
    want_split(w, a, by);
    use_raw(w, a);
    return opaque(w, w->dry ? 0 : vir_modf(w->k, emit_lin(w, a), emit_int(w, by)));
}

/* Index of a tensor of sizes `from` at idx -> index of the same elements seen with sizes `to`. */
static void reshape_index(walk *w, int nf, const symint *from, const lin *idx, int nt, const symint *to,
                          lin *out)
{
    int i = nf - 1, j = nt - 1;
    while (i >= 0 || j >= 0) { /* blocks of dimensions with equal products, from the right */
        while (i >= 0 && from[i] == 1)
            i--;
        while (j >= 0 && to[j] == 1)
            lin_set_const(&out[j--], 0);
        if (j < 0)
            break;
        int i0 = i, j0 = j;
        symint pf = i >= 0 ? from[i] : 1, pt = to[j];
        while (i > 0 || j > 0) {
            if (pf == pt || sym_known(SYM_eq, pf, pt))
                break;
            if (j > 0 && (i <= 0 || (hint(pt) <= hint(pf))))
                pt = sym_mul(pt, to[--j]);
            else
                pf = sym_mul(pf, from[--i]);
        }
        if (i == i0 && j == j0 && i >= 0) { /* one dimension as it was */
            lin_set(&out[j--], &idx[i--]);
            continue;
        }
        lin flat;
        symint s = 1;
        lin_set_const(&flat, 0);
        for (int d = i0; d >= i && d >= 0; d--) {
            lacc(w, &flat, &idx[d], s);
            s = sym_mul(s, from[d]);
        }
        s = 1;
        for (int d = j0; d >= j; d--) {
            lin q;
            if (s == 1)
                lin_set(&q, &flat);
            else
                q = lquot(w, &flat, s);
            if (d == j)
                lin_set(&out[d], &q);
            else
                out[d] = lrest(w, &q, to[d]);
            s = sym_mul(s, to[d]);
        }
        i--;
        j--;
    }
    for (; j >= 0; j--)
        lin_set_const(&out[j], 0);
}

static symint int_arg(const ir_node *n, int i, symint none)
{
    return n->arg[i].kind == VAL_int ? n->arg[i].i : none;
}
static int dim_arg_of(symint v, int nd)
{
    int d = 0;
    dim_wrap(v, nd, &d, NULL);
    return d;
}
static int dim_arg(const ir_node *n, int i, int nd) { return dim_arg_of(n->arg[i].i, nd); }

/* Views: index of the result -> index of the operand. False: not a view this stage knows. */
static bool view_index(walk *w, ir_node *n, const lin *idx, lin *out)
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

static bool known_view(const planner *pl, const ir_node *n)
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

/* ---- pointwise ---- */
static bool keeps_mask(const ir_node *n, int operand) /* a bool operand that is a condition */
{
    return (is(n, "where") && operand == 0) || (is(n, "masked_fill") && operand == 1);
}

static dtype compute_dtype(const ir_node *n)
{
    const op_schema *s = &row_of(n)->schema;
    dtype out = (dtype)ir_type(n)->dt;
    if (out != DT_bool || is(n, "where") || is(n, "masked_fill"))
        return out;
    dtype_join j = DTYPE_JOIN_INIT;
    for (int i = 0; i < s->nparam; i++) {
        if (s->param[i].type != PT_tensor)
            continue;
        if (n->arg[i].kind == VAL_node) {
            const tp_tensor *t = ir_type(n->arg[i].node);
            dtype_join_add(&j, (dtype)t->dt, t->ndim, t->flags & TF_wrapped);
        } else if (val_is_number(&n->arg[i]))
            dtype_join_add(&j, val_number_dtype(&n->arg[i], DT_f32), 0, true);
    }
    return dtype_join_result(&j);
}

static vir_ref number(vir *k, const tp_val *v, dtype dt)
{
    vir_type t = loop_type(dt);
    if (t == VT_f32 || t == VT_f64)
        return vir_flt(k, t, val_as_f(v));
    if (t == VT_mask)
        return vir_imm(k, t, val_as_f(v) != 0);
    int64_t i = val_as_i(v);
    if (dt == DT_u8)
        i = (uint8_t)i;
    else if (dt == DT_i8)
        i = (int8_t)i;
    else if (dt == DT_i16)
        i = (int16_t)i;
    return vir_imm(k, t, i);
}

/* The same where it may be symbolic: an argument of the kernel. */
static vir_ref number_now(walk *w, const tp_val *v, dtype dt)
{
    if (v->kind != VAL_int || !sym_is_expr(v->i))
        return number(w->k, v, dt);
    return loop_convert(w->k, emit_int(w, v->i), DT_i64, dt);
}

/* Faults planted to test the debugging tools (base/fault.h). A copy that carries the fault of what it copies is no company. */
static bool alone(const walk *w, const ir_node *n)
{
    const ir_node *x = n->op == OP_clone && n->meta ? n->arg[0].node : NULL;
    if (w->g->rides)
        return false;
    for (int i = 0; i < w->g->n; i++)
        if (w->g->member[i] != n && w->g->member[i] != x)
            return false;
    return w->g->n > 0 && (w->g->member[0] == n || w->g->member[w->g->n - 1] == n);
}

/* The failure is at n, unless it says where it is. False. */
static bool fails_at(tp_err *err, const ir_node *n)
{
    if (!err || err->line)
        return false;
    err_note(err, "in node '%s'", n->name);
    return ir_err_place(err, n);
}

static vir_ref plant(walk *w, const ir_node *n, vir_ref v)
{
    fault_kind f = ir_fault_at("gen", n);
    char buf[64];
    if (f == FAULT_none && !fault_is_sudden(ir_fault_at("lower", n)))
        f = ir_fault_at("lower", n);
    if (f == FAULT_none && !alone(w, n))
        f = ir_fault_at("fuse", n);
    if (f == FAULT_none)
        return v;
    vir_type t = vir_type_of(w->k, v);
    const char *op = ir_stands_for(n, buf, sizeof buf);
    if (f == FAULT_accuracy)
        return t == VT_mask ? vir_not(w->k, v) : vir_add(w->k, v, vir_imm(w->k, t, 1));
    if (f == FAULT_nan && (t == VT_f32 || t == VT_f64))
        return vir_flt(w->k, t, __builtin_nan(""));
    if (f == FAULT_compile_error) {
        err_set(w->pl->c->err, ERR_compiler, "planted fault: the emitter cannot compile '%s'", op);
        fails_at(w->pl->c->err, n);
    }
    w->out->fault = (uint8_t)f;
    w->out->fault_op = arena_strdup(&w->pl->p->mem, op);
    w->out->fault_node = n;
    return v;
}

static __attribute__((noinline)) vir_ref eval_pointwise(walk *w, ir_node *n, const lin *idx)
{
    const op_schema *s = &row_of(n)->schema;
    const tp_tensor *t = ir_type(n);
    lower_in l = { .k = w->k,
                   .n = n,
                   .dt = compute_dtype(n),
                   .out = (dtype)t->dt,
                   .low = w->pl->in[n->id].low,
                   .err = w->pl->c->err };
    for (int i = 0; i < s->nparam; i++) {
        if (s->param[i].type != PT_tensor || n->arg[i].kind == VAL_none)
            continue;
        if (n->arg[i].kind != VAL_node) {
            if (!w->dry)
                l.x[l.nx] = number_now(w, &n->arg[i], keeps_mask(n, i) ? DT_bool : l.dt);
            l.nx++;
            continue;
        }
        ir_node *a = n->arg[i].node;
        const tp_tensor *at = ir_type(a);
        lin sub[TP_MAX_DIMS];
        int off = t->ndim - at->ndim;
        for (int d = 0; d < at->ndim; d++)
            if (is_spread(at->size[d], t->size[d + off]))
                lin_set_const(&sub[d], 0);
            else
                lin_set(&sub[d], &idx[d + off]);
        vir_ref v = eval(w, a, sub);
        if (w->fail)
            return 0;
        if (!w->dry)
            v = loop_convert(w->k, v, (dtype)at->dt, keeps_mask(n, i) ? DT_bool : l.dt);
        l.x[l.nx++] = v;
    }
    if (w->dry)
        return 0;
    vir_note(w->k, ir_place(n));
    vir_ref v = lower_of((op_id)n->op)(&l);
    return TP_LIKELY(fault_state == 0) ? v : plant(w, n, v);
}

static bool sym_has_hint(symint v);
/* All that a lowering looks at; 0 bytes where that is more than a few numbers. */
static size_t lowering_key(const ir_node *n, dtype dt, int64_t *key, size_t cap)
{
    size_t k = 0;
    key[k++] = n->op | (int64_t)dt << 16 | (int64_t)ir_type(n)->dt << 24 | (int64_t)n->narg << 32;
    for (int i = 0; i < n->narg && k + 2 <= cap; i++) {
        const tp_val *v = &n->arg[i];
        key[k++] = v->kind;
        switch (v->kind) {
        case VAL_none:
        case VAL_node: break;
        case VAL_int:
        case VAL_dtype: key[k++] = v->i; break;
        case VAL_bool: key[k++] = v->b; break;
        case VAL_float: memcpy(&key[k++], &v->f, sizeof v->f); break;
        default: return 0;
        }
    }
    return k + 2 <= cap ? k * sizeof *key : 0;
}

static bool lowers(const ir_node *n, lower_fn *fn, dtype dt) /* tried on a scratch kernel */
{
    const op_row *r = row_of(n);
    arena a = { 0 };
    vir *k = vir_make(&a, "try");
    lower_in l = { .k = k, .n = n, .dt = dt, .out = (dtype)ir_type(n)->dt };
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 64));
    bool ok = true;
    for (int p = 0; p < r->schema.nparam; p++) {
        if (r->schema.param[p].type != PT_tensor || n->arg[p].kind == VAL_none)
            continue;
        dtype want = keeps_mask(n, p) ? DT_bool : dt;
        if (l.nx < 6)
            l.x[l.nx++] = vir_load(k, vir_buffer(k, loop_mem(want), VIR_IN, "x"), i, 0);
    }
    for (int p = 0; p < n->narg; p++) /* lowerings look at the other numbers */
        if (n->arg[p].kind == VAL_int && sym_is_expr(n->arg[p].i) &&
            (r->schema.param[p].type != PT_tensor || !sym_has_hint(n->arg[p].i)))
            ok = false;
    vir_ref v = ok ? fn(&l) : 0;
    ok = v && !k->err && vir_type_of(k, v) == loop_type((dtype)ir_type(n)->dt);
    arena_free(&a);
    return ok;
}

/* Does the lowering cover this node's types? Tried once for all that are alike. */
static bool covered(planner *pl, ir_node *n)
{
    info *f = &pl->in[n->id];
    if (f->tested)
        return f->covered;
    f->tested = true;
    lower_fn *fn = n->kind == IR_call ? lower_of((op_id)n->op) : NULL;
    const op_row *r = row_of(n);
    if (!fn || !(r->flags & OPF_PW) || r->schema.nret != 1 || n->variant != OPV_fn)
        return false;
    int64_t key[32];
    dtype dt = compute_dtype(n);
    size_t nkey = lowering_key(n, dt, key, COUNT(key));
    intptr_t had = nkey ? (intptr_t)map_getn(&pl->lowers, key, nkey) : 0;
    f->covered = had ? had == 2 : lowers(n, fn, dt);
    if (nkey && !had)
        map_putn(&pl->lowers, key, nkey, (void *)(intptr_t)(1 + f->covered));
    return f->covered;
}

static bool sym_has_hint(symint v)
{
    bool ok = true;
    sym_hint(v, &ok);
    return ok;
}
static bool number_is_ready(const tp_val *v) /* what data decides is known to the calls alone */
{
    return v->kind != VAL_int || !sym_is_expr(v->i) || sym_has_hint(v->i);
}

static bool is_fill(const ir_node *n)
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

static tp_val fill_value(const ir_node *n)
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

static bool is_copy(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && (n->op == OP_clone || n->op == OP_to_dtype) &&
           n->arg[0].kind == VAL_node;
}

static bool is_tri(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && (n->op == OP_tril || n->op == OP_triu) &&
           ir_type(n)->ndim >= 2 && n->arg[1].kind == VAL_int;
}

static bool is_arange(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || !dtype_is_int((dtype)ir_type(n)->dt))
        return false;
    if (n->op == OP_arange)
        return true;
    return n->op == OP_arange_start && n->arg[0].kind == VAL_int;
}

static bool is_cat(const ir_node *n)
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
static bool is_long_cat(const ir_node *n) { return is_cat(n) && n->arg[0].n > 6; }

static bool is_known_number(const tp_val *v)
{
    return val_is_number(v) && !(v->kind == VAL_int && sym_is_expr(v->i));
}

static bool is_pad(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn && n->op == OP_constant_pad_nd &&
           is_known_number(&n->arg[2]);
}

static bool mirrors(const ir_node *n)
{
    return n->op == OP_reflection_pad1d || n->op == OP_reflection_pad2d || n->op == OP_reflection_pad3d;
}
static bool is_mirror(const ir_node *n) /* a pad of what lies at the edge, outwards only */
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

static bool is_scatter(const ir_node *n) /* slices written into a value */
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

/* Computed element by element from its operands: no loop of its own. */
static bool is_inline(planner *pl, ir_node *n)
{
    if (n->kind != IR_call || n->val.kind != VAL_tensor)
        return false;
    return known_view(pl, n) || pl->in[n->id].folds || is_fill(n) || is_copy(n) || is_tri(n) ||
           is_arange(n) || is_cat(n) || is_pad(n) || is_scatter(n) || covered(pl, n);
}

static vir_ref under_mask(walk *w, vir_ref m, ir_node *n, const lin *idx) /* eval where m holds */
{
    vir_ref old = w->mask;
    if (!w->dry)
        w->mask = old ? vir_and(w->k, old, m) : m;
    vir_ref v = eval(w, n, idx);
    w->mask = old;
    return v;
}

/* Values that are written in parts, a kernel each, so that no element asks which one it belongs to: the operands of a cat, and
 * what a mirroring pad has left of, in and right of the image. */
static int part_dim(const ir_node *n)
{
    return n->op == OP_cat ? dim_arg(n, 1, ir_type(n)->ndim) : ir_type(n)->ndim - 1;
}
static int part_count(const ir_node *n)
{
    return is_cat(n) ? n->arg[0].n : is_mirror(n) && (n->arg[1].ints[0] || n->arg[1].ints[1]) ? 3 : 0;
}
static symint part_size(const ir_node *n, int i)
{
    if (n->op == OP_cat)
        return ir_type(n->arg[0].nodes[i])->size[part_dim(n)];
    return i == 1 ? ir_type(n->arg[0].node)->size[part_dim(n)] : n->arg[1].ints[i / 2];
}
static symint part_at(const ir_node *n, int i)
{
    symint at = 0;
    for (int k = 0; k < i; k++)
        at = sym_add(at, part_size(n, k));
    return at;
}

/* A mirrored or repeated edge: rows are found by arithmetic on the index, and so are columns outside of parts. */
static __attribute__((noinline)) vir_ref eval_mirror(walk *w, ir_node *n, const lin *idx)
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

static __attribute__((noinline)) vir_ref eval_special(walk *w, ir_node *n, const lin *idx)
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

/* ---- references to scheduled values ---- */
/* The index at which a member of the group is computed, in the group's variables. */
static void member_index(walk *w, ir_node *n, lin *out);

static bool at_home(walk *w, ir_node *n, const lin *idx)
{
    lin home[TP_MAX_DIMS];
    bool dry = w->dry;
    w->dry = true; /* computing the home index emits nothing */
    size_t keep = w->seen.n;
    int sv = w->split_var;
    w->split_var = 0;
    member_index(w, n, home);
    w->seen.n = keep;
    w->split_var = sv;
    w->dry = dry;
    for (int d = 0; d < ir_type(n)->ndim; d++)
        if (!lin_equal(&home[d], &idx[d]) && ir_type(n)->size[d] != 1)
            return false;
    return true;
}

/* Windows of a pooling: rows and columns, steps between and inside them. */
typedef struct windows {
    int64_t k[2], step[2], gap[2], pad[2];
    bool over[2]; /* some reach over the edge */
} windows;

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
static const char *windows_of(const tp_val *arg, bool max, const tp_tensor *x, windows *w)
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

static __attribute__((noinline)) vir_ref eval_spread(walk *w, ir_node *n, const lin *idx)
{
    bool pool = n->op == OP__max_pool2d_offsets_backward;
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

static __attribute__((noinline)) vir_ref eval_pool(walk *w, ir_node *n, const lin *idx)
{
    ir_node *x = n->arg[0].node;
    bool max = n->op == OP_max_pool2d;
    int nd = ir_type(n)->ndim;
    windows p = { .gap = { 1, 1 } };
    lin at[TP_MAX_DIMS];
    vir_ref v = 0;
    if (n->op == OP_upsample_nearest2d_backward) {
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
    if (w->dry || w->fail || n->op != OP_avg_pool2d)
        return v;
    return vir_div(w->k, v, window_count(w, n, &p, &idx[nd - 2]));
}

static bool is_draw(const ir_node *n)
{
    return n->op == OP__philox_uniform || n->op == OP__philox_normal || n->op == OP__philox_int;
}

/* An integer from low to high - 1, as the eager kernel makes it of a word or of two. */
static vir_ref draw_int(vir *k, vir_ref seed, vir_ref first, vir_ref at, int64_t lo, int64_t span, int bits,
                        dtype dt)
{
    bool narrow = !bits && lo >= INT32_MIN && lo + span - 1 <= INT32_MAX;
    if (bits) {
        vir_ref v = vir_draw(k, VT_i64, seed, first, at);
        v = bits < 64 ? vir_and(k, v, vir_int(k, (int64_t)((1ull << bits) - 1))) : v;
        return loop_convert(k, vir_add(k, v, vir_int(k, lo)), DT_i64, dt);
    }
    vir_ref v = vir_draw(k, VT_i32, seed, first, at);
    if (span < 1ll << 32)
        v = vir_mulhu(k, v, vir_imm(k, VT_i32, (int32_t)(uint32_t)span));
    if (narrow && dtype_size(dt) < 8)
        return loop_convert(k, vir_add(k, v, vir_imm(k, VT_i32, lo)), DT_i32, dt);
    v = vir_cvt(k, VT_i64, v);
    if (span > 1ll << 31)
        v = vir_and(k, v, vir_int(k, 0xffffffff));
    return loop_convert(k, vir_add(k, v, vir_int(k, lo)), DT_i64, dt);
}

/* A number of the words that its element has in the sequence. */
static __attribute__((noinline)) vir_ref eval_draw(walk *w, ir_node *n, const lin *idx)
{
    lin at = address(w, ir_type(n), idx), seed = lin_const(0), first = lin_const(1);
    vir *k = w->k;
    ir_node *state = n->arg[0].node;
    dtype dt = (dtype)ir_type(n)->dt;
    if (w->dry)
        vec_push(&w->seen, ((access){ .at = at, .drawn = n }));
    vir_ref mask = w->mask;
    w->mask = 0;
    vir_ref s = emit_load(w, state, &seed), b = emit_load(w, state, &first);
    w->mask = mask;
    if (w->dry)
        return 0;
    vir_ref i = vir_cvt(k, VT_i64, emit_lin(w, &at));
    if (n->op == OP__philox_normal)
        return vir_draw(k, loop_type(dt), s, b, i);
    if (n->op == OP__philox_int)
        return draw_int(k, s, b, i, n->arg[2].i, n->arg[3].i, (int)n->arg[4].i, dt);
    bool wide = dt == DT_f64;
    vir_type it = wide ? VT_i64 : VT_i32;
    vir_ref bits = vir_shr(k, vir_draw(k, it, s, b, i), vir_imm(k, it, wide ? 11 : 8));
    return vir_mul(k, vir_cvt(k, loop_type(dt), bits), vir_flt(k, loop_type(dt), wide ? 0x1p-53 : 0x1p-24));
}

/* An index that counts 0, 1, 2, ... inside the size that it indexes: no memory is read and nothing checked. */
static ir_node *counts_up(const planner *pl, ir_node *index, symint size)
{
    while (known_view(pl, index))
        index = index->arg[0].node;
    if (!is_arange(index))
        return NULL;
    symint first = index->op == OP_arange_start ? index->arg[0].i : 0;
    bool in = sym_known(SYM_ge, first, 0) && sym_known(SYM_le, sym_add(first, ir_type(index)->size[0]), size);
    return in ? index : NULL;
}

/* The value of an index at `at`, as an index. */
static __attribute__((noinline)) lin eval_index(walk *w, ir_node *index, const lin *at, symint size,
                                                bool wrap)
{
    lin sub[2][TP_MAX_DIMS];
    int side = 0;
    ir_node *up = counts_up(w->pl, index, size);
    if (up) {
        memcpy(sub[0], at, sizeof *at * ir_type(index)->ndim);
        for (; index != up; index = index->arg[0].node, side = !side)
            if (!view_index(w, index, sub[side], sub[!side]))
                w->fail = true;
        return up->op == OP_arange_start ? ladd(w, sub[side][0], lin_const(up->arg[0].i)) : sub[side][0];
    }
    if (w->g && w->pl->in[behind_views(index)->id].g == w->g) /* not there yet when it is checked */
        w->fail = true;
    vir_ref v = w->fail ? 0 : eval(w, index, at);
    if (w->dry || w->fail)
        return opaque(w, 0);
    v = vir_cvt(w->k, VT_i64, v);
    if (wrap)
        v = vir_add(w->k, v, vir_and(w->k, vir_sra(w->k, v, vir_int(w->k, 63)), emit_int(w, size)));
    return opaque(w, v);
}

/* Where dimension d of the first operand is read or written; idx counts in sizes `size`. */
static lin indexed(walk *w, const ir_node *n, const loop_gather *g, int d, const symint *size, const lin *idx)
{
    ir_node *index = g->d[d].index;
    if (!index)
        return idx[g->d[d].from];
    const tp_tensor *x = ir_type(index);
    lin at[TP_MAX_DIMS];
    for (int k = 0; k < x->ndim; k++)
        at[k] = is_spread(x->size[k], size[g->d[d].from + k]) ? lin_const(0) : idx[g->d[d].from + k];
    return eval_index(w, index, at, ir_type(n->arg[0].node)->size[d], g->wrap);
}

static __attribute__((noinline)) vir_ref eval_gather(walk *w, ir_node *n, const lin *idx)
{
    loop_gather g;
    loop_gather_of(n, &g);
    ir_node *src = n->arg[0].node;
    lin sub[TP_MAX_DIMS];
    for (int d = 0; d < g.n && !w->fail; d++)
        sub[d] = indexed(w, n, &g, d, ir_type(n)->size, idx);
    if (w->fail)
        return 0;
    if (w->dry)
        vec_push(&w->pl->check, n);
    return eval(w, src, sub);
}

/* One element, or a vector of them, written where its index points. */
static __attribute__((noinline)) void eval_put(walk *w, ir_node *n, const lin *home)
{
    loop_gather g;
    const tp_tensor *t = ir_type(n);
    const tp_val *src;
    lin sub[TP_MAX_DIMS], at[TP_MAX_DIMS];
    vir_ref v = 0;
    loop_gather_of(n, &g);
    src = &n->arg[g.src];
    for (int d = 0; d < g.n && !w->fail; d++)
        sub[d] = indexed(w, n, &g, d, g.size, home);
    if (src->kind == VAL_node) {
        const tp_tensor *x = ir_type(src->node);
        for (int d = 0, off = g.nd - x->ndim; d < x->ndim; d++)
            at[d] = is_spread(x->size[d], g.size[d + off]) ? lin_const(0) : home[d + off];
        v = w->fail ? 0 : eval(w, src->node, at);
    } else if (!w->dry)
        v = number(w->k, src, (dtype)t->dt);
    if (w->fail)
        return;
    lin to = address(w, t, sub);
    if (w->dry) {
        vec_push(&w->pl->check, n);
        vec_push(&w->seen, ((access){ .at = linear_part(w, t, sub), .part = to.opaque }));
        return;
    }
    int buf = buffer_of(w, n, g.adds ? VIR_INOUT : VIR_OUT);
    vir_ref place = emit_lin(w, &to);
    if (g.adds)
        v = vir_add(w->k, vir_load(w->k, buf, place, 0), v);
    vir_store(w->k, buf, place, v, 0);
}

static __attribute__((noinline)) vir_ref eval_view(walk *w, ir_node *n, const lin *idx)
{
    lin sub[TP_MAX_DIMS];
    if (view_index(w, n, idx, sub))
        return eval(w, n->arg[0].node, sub);
    w->fail = true;
    return 0;
}

static vir_ref eval(walk *w, ir_node *n, const lin *idx)
{
    info *f = &w->pl->in[n->id];
    if (n == w->self && f->put)
        return eval(w, n->arg[0].node, idx);
    if (n != w->self) {
        if (f->g && f->g == w->g && !f->ext) {
            if (!at_home(w, n, idx)) {
                w->fail = true;
                return 0;
            }
            if (w->dry) {
                w->level = MAX(w->level, f->outer ? f->level + 1 : f->level);
                w->inner |= !f->outer;
                return 0;
            }
            return member_value(w, n);
        }
        if (f->sched || f->memview || n->kind == IR_placeholder || n->kind == IR_const ||
            n->kind == IR_getitem)
            return emit_load(w, n, idx);
    }
    /* none of these is part of this frame, which deep expressions have a hundred of */
    if (known_view(w->pl, n))
        return eval_view(w, n, idx);
    if (f->folds && (n->op == OP_gather || n->op == OP_index_select || n->op == OP_index_Tensor))
        return eval_gather(w, n, idx);
    if (f->folds && is_mirror(n))
        return eval_mirror(w, n, idx);
    if (f->folds && is_draw(n))
        return eval_draw(w, n, idx);
    if (f->folds &&
        (n->op == OP_max_pool2d || n->op == OP_avg_pool2d || n->op == OP_upsample_nearest2d_backward))
        return eval_pool(w, n, idx);
    if (f->folds && (n->op == OP_upsample_nearest2d || n->op == OP__max_pool2d_offsets_backward))
        return eval_spread(w, n, idx);
    if (is_fill(n) || is_copy(n) || is_tri(n) || is_arange(n) || is_cat(n) || is_pad(n) || is_scatter(n))
        return eval_special(w, n, idx);
    return eval_pointwise(w, n, idx);
}

/* ---- reductions ---- */
static bool is_place(uint8_t kind) { return vir_red_places((vir_red_kind)kind); }
static bool reduction(ir_node *n, uint32_t *mask, uint8_t *kind)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensor || n->arg[0].kind != VAL_node)
        return false;
    const tp_tensor *t = ir_type(n->arg[0].node);
    uint32_t all = t->ndim >= 32 ? ~0u : (1u << t->ndim) - 1;
    const tp_val *dims = NULL;
    bool flt = dtype_is_float((dtype)t->dt);
    switch ((op_id)n->op) {
    case OP_sum: *kind = RED_sum; break;
    case OP_sum_dim_IntList:
        *kind = RED_sum;
        dims = &n->arg[1];
        break;
    case OP_prod: *kind = RED_prod; break;
    case OP_prod_dim_int:
        *kind = RED_prod;
        dims = &n->arg[1];
        break;
    case OP_amax:
        *kind = RED_max;
        dims = &n->arg[1];
        break;
    case OP_amin:
        *kind = RED_min;
        dims = &n->arg[1];
        break;
    case OP_argmax:
    case OP_argmin: /* without a dimension, places count through all of them */
        *kind = n->op == OP_argmax ? RED_argmax : RED_argmin;
        if (n->arg[1].kind != VAL_int && t->ndim != 1)
            return false;
        dims = &n->arg[1];
        break;
    case OP_any: *kind = RED_any; break;
    case OP_any_dim:
    case OP_any_dims:
        *kind = RED_any;
        dims = &n->arg[1];
        break;
    default: return false;
    }
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
static dtype red_dtype(const ir_node *n)
{
    bool place = n->op == OP_argmax || n->op == OP_argmin;
    dtype out = (dtype)ir_type(place ? n->arg[0].node : n)->dt;
    return out == DT_f16 || out == DT_bf16 ? DT_f32 : out;
}

/* ---- groups ---- */
/* Variables of a group: one per dimension, more where a view asks for a split. */
typedef struct space {
    int nvar;
    symint size[MAX_VARS];
    int dim[MAX_VARS];   /* which dimension of the group */
    lin at[TP_MAX_DIMS]; /* index of each dimension */
} space;

static void space_init(space *s, const group *g)
{
    s->nvar = g->nd;
    for (int d = 0; d < g->nd; d++) {
        s->size[d] = g->size[d];
        s->dim[d] = d;
        s->at[d] = lin_var(d);
    }
}

static bool space_split(space *s, int var, symint inner) /* var = q * inner + r; q keeps the number */
{
    if (s->nvar >= MAX_VARS || s->at[s->dim[var]].n >= LIN_MAX)
        return false;
    int r = s->nvar++;
    s->size[r] = inner;
    s->dim[r] = s->dim[var];
    s->size[var] = sym_floordiv(s->size[var], inner);
    lin *a = &s->at[s->dim[var]];
    for (int i = 0; i < a->n; i++)
        if (a->t[i].var == var) {
            a->t[a->n].var = r;
            a->t[a->n].c = a->t[i].c;
            a->n++;
            a->t[i].c = sym_mul(a->t[i].c, inner);
            break;
        }
    return true;
}

static _Thread_local const space *space_now;
static void along(const group *g, int d, lin *out) /* the index of dimension d of g */
{
    if (g->size[d] == 1)
        lin_set_const(out, 0);
    else
        lin_set(out, &space_now->at[d]);
}

static void member_index(walk *w, ir_node *n, lin *out)
{
    const tp_tensor *t = ir_type(n);
    const group *g = w->g;
    const info *f = &w->pl->in[n->id];
    if (f->put) { /* of the copy, or of what is written into it */
        for (int d = 0; d < g->nd; d++)
            along(g, d, &out[d]);
        return;
    }
    if (g->part) {
        int cat = part_dim(n);
        for (int d = 0; d < t->ndim; d++)
            along(g, d, &out[d]);
        out[cat] = ladd(w, out[cat], lin_const(part_at(n, g->part - 1)));
        return;
    }
    if (!f->outer) {
        if (same_sizes(t->ndim, t->size, g->nd, g->size)) {
            for (int d = 0; d < t->ndim; d++)
                along(g, d, &out[d]);
        } else {
            lin at[TP_MAX_DIMS];
            for (int d = 0; d < g->nd; d++)
                along(g, d, &at[d]);
            reshape_index(w, g->nd, g->size, at, t->ndim, t->size, out);
        }
        return;
    }
    if (t->ndim == g->nd) { /* keepdim form */
        for (int d = 0; d < t->ndim; d++)
            if (g->red >> d & 1)
                lin_set_const(&out[d], 0);
            else
                along(g, d, &out[d]);
        return;
    }
    for (int d = 0, j = 0; d < g->nd; d++)
        if (!(g->red >> d & 1))
            along(g, d, &out[j++]);
}

/* Is t's shape one value per row of (nd, size, red)? */
static bool outer_shape(const tp_tensor *t, int nd, const symint *size, uint32_t red)
{
    if (t->ndim == nd) {
        for (int d = 0; d < nd; d++)
            if ((red >> d & 1) ? t->size[d] != 1
                               : t->size[d] != size[d] && !sym_known(SYM_eq, t->size[d], size[d]))
                return false;
        return true;
    }
    int j = 0;
    for (int d = 0; d < nd; d++)
        if (!(red >> d & 1)) {
            if (j >= t->ndim || (t->size[j] != size[d] && !sym_known(SYM_eq, t->size[j], size[d])))
                return false;
            j++;
        }
    return j == t->ndim;
}

typedef struct trial {
    bool outer, split; /* split: a loop was taken apart for it */
    int level;
    ir_node *load[MAX_BUFS];
    int nload; /* MAX_BUFS + 1: more than fit */
} trial;

/* Adds n to a set of buffers; the count stays at MAX_BUFS + 1 once they do not fit. */
static int load_add(ir_node **load, int n, ir_node *x)
{
    for (int i = 0; i < MIN(n, MAX_BUFS); i++)
        if (load[i] == x)
            return n;
    if (n >= MAX_BUFS)
        return MAX_BUFS + 1;
    load[n] = x;
    return n + 1;
}

/* A dry run of n as a member of its group: sets level; false when it does not fit. */
static bool try_member(planner *pl, group *g, ir_node *n, bool outer, trial *out)
{
    space s;
    space_init(&s, g);
    info *f = &pl->in[n->id];
    for (int round = 0; round < 8; round++) {
        walk w = {
            .pl = pl, .g = g, .vsize = s.size, .nvar = s.nvar, .dry = true, .self = n, .split_var = -1
        };
        space_now = &s;
        bool was = f->outer;
        group *wasg = f->g;
        f->g = NULL;
        f->outer = outer;
        lin home[TP_MAX_DIMS];
        ir_node *root = n;
        if (f->red || f->scan) { /* walks its operand over the full space */
            root = n->arg[0].node;
            for (int d = 0; d < g->nd; d++)
                home[d] = g->size[d] == 1 ? lin_const(0) : s.at[d];
            if (!same_sizes(ir_type(root)->ndim, ir_type(root)->size, g->nd, g->size)) {
                lin at[TP_MAX_DIMS];
                memcpy(at, home, sizeof at);
                reshape_index(&w, g->nd, g->size, at, ir_type(root)->ndim, ir_type(root)->size, home);
            }
            w.self = NULL;
            if (f->red && is_place(f->rkind))
                use_raw(&w, &home[__builtin_ctz(f->mask)]);
        } else
            member_index(&w, n, home);
        eval(&w, root, home);
        f->outer = was;
        f->g = wasg;
        int sv = w.split_var;
        symint si = w.split_in;
        bool fail = w.fail;
        bool opaque_home = false;
        for (int d = 0; d < ir_type(root)->ndim; d++)
            opaque_home |= home[d].opaque;
        out->level = w.level;
        out->nload = 0;
        for (size_t i = 0; i < w.loads.n; i++)
            out->nload = load_add(out->load, out->nload, w.loads.at[i]);
        bool inner = w.inner;
        vec_free(&w.seen);
        vec_free(&w.loads);
        if (sv >= 0 && round < 7) { /* taken apart, values may meet */
            if (!space_split(&s, sv, si))
                return false;
            continue;
        }
        out->split = round > 0;
        if (fail || opaque_home || (outer && !f->red && inner))
            return false;
        out->outer = outer;
        if (f->red || outer) {
            /* a reduction is computed in the pass its operands allow; it is there afterwards */
            if (outer && !f->red)
                out->level = MAX(out->level - 1, 0);
        }
        return true;
    }
    return false;
}

static void bit_set(uint64_t *b, int i) { b[i / 64] |= 1ull << (i % 64); }
static bool bit_has(const uint64_t *b, int i) { return b[i / 64] >> (i % 64) & 1; }
static bool bits_within(const uint64_t *b, const uint64_t *in, const uint64_t *or_in,
                        int words) /* or_in may be NULL */
{
    for (int q = 0; q < words; q++)
        if (b[q] & ~in[q] & ~(or_in ? or_in[q] : 0))
            return false;
    return true;
}

/* Groups that n's operands (through inlined values) come from. */
typedef struct depwalk {
    planner *pl;
    uint64_t *bits;
    int before; /* id of the node that is placed */
    VEC(ir_node *) stack;
    int walk; /* number of this one */
} depwalk;
static void dep_operand(void *arg, ir_node *n)
{
    depwalk *d = arg;
    info *f = &d->pl->in[n->id];
    if (f->g) {
        bit_set(d->bits, f->g->id);
        return;
    }
    if (n->kind == IR_placeholder || n->kind == IR_const)
        return;
    if (f->walked == d->walk)
        return;
    f->walked = d->walk;
    vec_push(&d->stack, n);
}
static void dep_beside(void *arg, ir_node *n) /* what was placed already of what a reader needs */
{
    if (!n->late && n->id < ((depwalk *)arg)->before)
        dep_operand(arg, n);
}

/* The first reader that does not wait itself. */
static ir_node *first_reader(planner *pl, ir_node *n)
{
    VEC(ir_node *) stack = { 0 };
    ir_node *first = NULL;
    map seen = { 0 };
    vec_push(&stack, n);
    while (stack.n)
        for (ir_use *u = vec_pop(&stack)->uses; u; u = u->next) {
            if (u->user->late && !map_puti(&seen, (uintptr_t)u->user, u->user))
                vec_push(&stack, u->user);
            if (!u->user->late && u->user->kind != IR_output && (!first || u->user->id < first->id))
                first = u->user;
        }
    vec_free(&stack);
    map_free(&seen);
    return first;
}

static void node_deps(planner *pl, ir_node *n, uint64_t *bits)
{
    depwalk d = { .pl = pl, .bits = bits, .walk = ++pl->nwalk, .before = n->id };
    ir_each_operand(n, dep_operand, &d);
    ir_node *reader = n->late ? first_reader(pl, n) : NULL;
    if (reader)
        ir_each_operand(reader, dep_beside, &d);
    while (d.stack.n)
        ir_each_operand(vec_pop(&d.stack), dep_operand, &d);
    vec_free(&d.stack);
}

static group *group_new(planner *pl)
{
    group *g = ARENA_NEW(&pl->tmp, group);
    g->id = (int)pl->groups.n;
    g->before = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
    vec_push(&pl->groups, g);
    return g;
}

/* Everything before a group, transitively, is in `before`: when n joins g, its sources come before g and before all
 * that follow g. */
static void add_before(planner *pl, group *g, const uint64_t *deps)
{
    uint64_t *add = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
    for (int w = 0; w < pl->words; w++)
        for (uint64_t left = deps[w]; left; left &= left - 1) {
            int i = w * 64 + __builtin_ctzll(left);
            if (i == g->id)
                continue;
            bit_set(add, i);
            for (int q = 0; q < pl->words; q++)
                add[q] |= pl->groups.at[i]->before[q];
        }
    if (bits_within(add, g->before, NULL, pl->words)) /* then all that follow g have it, too */
        return;
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *h = pl->groups.at[i];
        if (h == g || bit_has(h->before, g->id))
            for (int q = 0; q < pl->words; q++)
                h->before[q] |= add[q];
    }
}

static bool would_cycle(planner *pl, const group *g, const uint64_t *deps)
{
    for (int w = 0; w < pl->words; w++)
        for (uint64_t left = deps[w]; left; left &= left - 1) {
            int i = w * 64 + __builtin_ctzll(left);
            if (i != g->id && bit_has(pl->groups.at[i]->before, g->id))
                return true;
        }
    return false;
}

static void log_fusion(planner *pl, ir_node *n, const group *g, bool yes, const char *why)
{
    loop_decision d = { n, g->n ? g->member[0] : g->ext, why, g->id, yes };
    if (ev_trace_on(EV_artifact))
        vec_push(&pl->p->decisions, d);
    if (ev_text_on(EV_fusion)) {
        strbuf b = { 0 };
        loop_decision_print(&b, &d);
        ev_text(EV_fusion, NULL, "%s", b.s);
        strbuf_free(&b);
    }
}

static int64_t product_hint(int nd, const symint *size, uint32_t mask)
{
    int64_t p = 1;
    for (int d = 0; d < nd; d++)
        if (mask >> d & 1)
            p *= MAX(hint(size[d]), 1);
    return p;
}

/* Loop structure of a kernel after merging: kept variables outermost first, then reduced ones. */
typedef struct nest {
    int nkeep, keep[MAX_VARS];
    int nred, red[MAX_VARS];
    symint size[MAX_VARS]; /* of merged variables, by the number of the inner one */
    int merged[MAX_VARS];
    bool column; /* the vector loop is the last kept one, reductions run inside it */
} nest;

static bool survey(planner *pl, group *g, space *s, walk *w);
static void make_nest(planner *pl, group *g, space *s, walk *w, nest *t);
/* Do the loops still serve all members when n is one, and fill vectors? */
static bool fits_together(planner *pl, group *g, ir_node *n, bool outer)
{
    info *f = &pl->in[n->id], was = *f;
    space s;
    walk w;
    f->g = g;
    f->outer = outer;
    g->member[g->n++] = n;
    space_init(&s, g);
    bool ok = survey(pl, g, &s, &w);
    if (ok) {
        nest t;
        make_nest(pl, g, &s, &w, &t);
        int inner = g->red && !t.column ? (t.nred ? t.red[t.nred - 1] : -1)
                    : t.nkeep           ? t.keep[t.nkeep - 1]
                                        : -1;
        ok = inner < 0 || hint(t.size[inner]) >= 8;
    }
    vec_free(&w.seen);
    vec_free(&w.loads);
    g->n--;
    *f = was;
    return ok;
}

/* Try to compute n in g. */
static bool join(planner *pl, group *g, ir_node *n, const uint64_t *deps)
{
    info *f = &pl->in[n->id];
    const tp_tensor *t = ir_type(n);
    group save = *g;
    trial tr;
    bool related = bit_has(deps, g->id), outer = false;
    const char *why = "values meet at another index";

    if (!related)
        return false;
    if (ir_type(n) && ir_type(n)->numel == 0) { /* behind a reduction it would still be written once */
        log_fusion(pl, n, g, false, "it has no elements");
        return false;
    }
    if (g->scan && is_dear(n) && in_order(g->member[0]) && g->red >> (g->nd - 1) & 1 && !pl->c->portable) {
        log_fusion(pl, n, g, false,
                   "it would wait for the steps of that group in vectors of half a register");
        return false;
    }
    if (g->scan && f->red) {
        log_fusion(pl, n, g, false, "steps of that group follow one another");
        return false;
    }
    if (g->ext || g->n >= MAX_MEMBERS) {
        log_fusion(pl, n, g, false,
                   g->ext && pl->in[g->ext->id].product ? "that group is a matrix product"
                   : g->ext                             ? "that group is a library call"
                                                        : "the kernel is large enough");
        return false;
    }
    if (would_cycle(pl, g, deps)) {
        log_fusion(pl, n, g, false, "another step must come between");
        return false;
    }
    if (f->into && g->red) { /* there it would have to wait in memory of its own */
        log_fusion(pl, n, g, false, "it is written into an input when nothing can fail any more");
        return false;
    }
    uint32_t all = g->nd >= 32 ? ~0u : (1u << g->nd) - 1;
    if (f->red) {
        const tp_tensor *x = ir_type(n->arg[0].node);
        if (!same_sizes(x->ndim, x->size, g->nd, g->size)) {
            why = "other loops";
            goto no;
        }
        if (g->red && g->red != f->mask) {
            why = "reduces other dimensions";
            goto no;
        }
        if (!g->red) {
            /* threads work on rows: do not give up parallel work for a saved trip through memory */
            int64_t kept = product_hint(g->nd, g->size, all & ~f->mask),
                    total = product_hint(g->nd, g->size, all);
            if (kept < 32 && total > 65536) {
                why = "too few rows to share among threads";
                goto no;
            }
            g->red = f->mask;
        }
        outer = true;
    } else if (same_sizes(t->ndim, t->size, g->nd, g->size))
        outer = false;
    else if (g->red && !g->scan && outer_shape(t, g->nd, g->size, g->red))
        outer = true;
    else if (sym_known(SYM_eq, t->numel, shape_numel(g->nd, g->size)))
        outer = false;
    else {
        why = "other loops";
        goto no;
    }
    if (g->red && !f->red && !outer && product_hint(g->nd, g->size, all & ~g->red) < 4 &&
        product_hint(g->nd, g->size, all) > 65536) {
        why = "too few rows to share among threads";
        goto no;
    }
    if (!try_member(pl, g, n, outer, &tr))
        goto no;
    for (int i = 0; i < MIN(tr.nload, MAX_BUFS); i++)
        g->nload = load_add(g->load, g->nload, tr.load[i]);
    if (tr.nload > MAX_BUFS || g->nload + g->n + 1 > MAX_BUFS) { /* every member may be stored */
        why = "too many buffers";
        goto no;
    }
    g->split |= tr.split;
    if (g->split && !fits_together(pl, g, n, outer)) {
        why = "loops would be taken apart too far";
        goto no;
    }
    if (!decide(pl->c, DECIDE_fuse, n)) {
        why = "refused";
        goto no;
    }
    f->g = g;
    f->outer = outer;
    f->level = tr.level;
    g->member[g->n++] = n;
    add_before(pl, g, deps);
    log_fusion(pl, n, g, true, outer ? "one value per row" : "same loops");
    pl->p->nfused++;
    return true;
no:
    *g = save;
    log_fusion(pl, n, g, false, why);
    return false;
}

/* The kernel that copies what is written into, or the one that writes. */
static group put_part(const group *g, const ir_node *n, int part)
{
    group p = *g;
    loop_gather of;
    p.part = part + 1;
    if (part == 0 || !loop_gather_of(n, &of))
        return p;
    p.nd = of.nd;
    memcpy(p.size, of.size, sizeof(symint) * (size_t)of.nd);
    p.red = of.serial;
    return p;
}

static bool survey(planner *pl, group *g, space *s, walk *w);
static bool start_put(planner *pl, ir_node *n, const uint64_t *deps)
{
    info *f = &pl->in[n->id];
    group *g = group_new(pl);
    bool ok = true;
    g->nd = ir_type(n)->ndim;
    memcpy(g->size, ir_type(n)->size, sizeof(symint) * (size_t)g->nd);
    g->member[g->n++] = n;
    f->g = g;
    for (int i = 0; i < 2 && ok; i++) {
        group part = put_part(g, n, i);
        space s;
        walk w;
        int nload = 0;
        ir_node *load[MAX_BUFS];
        f->g = &part;
        space_init(&s, &part);
        ok = survey(pl, &part, &s, &w);
        for (size_t k = 0; k < w.loads.n; k++)
            nload = load_add(load, nload, w.loads.at[k]);
        ok = ok && nload < MAX_BUFS;
        vec_free(&w.seen);
        vec_free(&w.loads);
    }
    f->g = ok ? g : NULL;
    if (ok)
        add_before(pl, g, deps);
    return ok;
}

static bool start_group(planner *pl, ir_node *n, const uint64_t *deps)
{
    info *f = &pl->in[n->id];
    group *g = group_new(pl);
    const tp_tensor *t = f->red ? ir_type(n->arg[0].node) : ir_type(n);
    trial tr = { 0 };
    g->nd = t->ndim;
    memcpy(g->size, t->size, sizeof(symint) * t->ndim);
    g->red = f->red || f->scan ? f->mask : 0;
    g->scan = f->scan;
    if (!try_member(pl, g, n, f->red, &tr) || tr.nload >= MAX_BUFS)
        return false;
    memcpy(g->load, tr.load, sizeof g->load);
    g->nload = tr.nload;
    g->split = tr.split;
    f->g = g;
    f->outer = f->red;
    f->level = tr.level;
    g->member[g->n++] = n;
    add_before(pl, g, deps);
    return true;
}

/* Products whose memory the plan can hold: one type, and what is added is a row or nothing. */
static bool is_product(const ir_node *n);
/* addmm(x, a, b) where x is the result of a product that nobody else wants: it is added to in place. */
static bool adds_to_product(const ir_node *n)
{
    if (n->kind != IR_call || n->op != OP_addmm || n->arg[0].kind != VAL_node)
        return false;
    const ir_node *x = n->arg[0].node;
    return x->nuse == 1 && ir_type(x) && ir_type(x)->ndim == 2 && is_product(x) &&
           same_sizes(2, ir_type(x)->size, 2, ir_type(n)->size) &&
           same_sizes(2, ir_type(x)->stride, 2, ir_type(n)->stride);
}

static bool is_product(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensor)
        return false;
    int a = n->op == OP_addmm;
    if (n->op != OP_mm && n->op != OP_bmm && !a)
        return false;
    const tp_tensor *t = ir_type(n);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || n->arg[a].kind != VAL_node ||
        n->arg[a + 1].kind != VAL_node || ir_type(n->arg[a].node)->dt != t->dt ||
        ir_type(n->arg[a + 1].node)->dt != t->dt)
        return false;
    if (!a)
        return true;
    const tp_tensor *row = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    bool fits = row && row->dt == t->dt && row->ndim == 1 && sym_known(SYM_eq, row->size[0], t->size[1]);
    return row && row->dt == t->dt && (fits || adds_to_product(n)) && is_known_number(&n->arg[3]) &&
           is_known_number(&n->arg[4]) && val_as_f(&n->arg[3]) == 1 && val_as_f(&n->arg[4]) == 1;
}

static bool is_packed(const tp_tensor *t)
{
    symint want[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, want);
    return same_sizes(t->ndim, t->stride, t->ndim, want);
}

/* Convolutions whose memory the plan can hold: one type, everything where it lies. */
static bool is_convolution(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->op != OP_convolution || n->val.kind != VAL_tensor ||
        n->arg[6].kind != VAL_bool || n->arg[6].b)
        return false;
    const tp_tensor *t = ir_type(n);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || t->ndim < 3 || !is_packed(t))
        return false;
    for (int i = 0; i < 3; i++) {
        const tp_tensor *x = n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
        if (x ? x->dt != t->dt || !is_packed(x) : i < 2)
            return false;
    }
    return true;
}

/* Elements that are finished together: a row of a product, a plane of a convolution. */
static symint row_of_product(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    symint len = t->size[t->ndim - 1];
    for (int d = 2; n->op == OP_convolution && d < t->ndim - 1; d++)
        len = sym_mul(len, t->size[d]);
    return len;
}

static void start_call(planner *pl, ir_node *n, const uint64_t *deps)
{
    group *g = group_new(pl);
    uint64_t *all = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
    memcpy(all, deps, sizeof *all * (size_t)pl->words);
    if (ir_node_is_effect(n)) { /* numbers are drawn, and things done, in the order of the program */
        if (pl->effect)
            bit_set(all, pl->effect->id);
        pl->effect = g;
    }
    g->ext = n;
    pl->in[n->id].g = g;
    pl->in[n->id].ext = true;
    pl->in[n->id].product = is_product(n) || is_convolution(n);
    add_before(pl, g, all);
}

/* ---- what is scheduled ---- */
static void mark_sched(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (n->kind == IR_call || n->kind == IR_opaque)
        pl->in[n->id].sched = true;
}

static bool reserves(const group *g);
typedef struct band band;
static bool band_of(const ir_node *n, band *b);

static bool cheap_to_repeat(const planner *pl, const ir_node *n)
{
    return known_view(pl, n) || is_fill(n) || is_arange(n) || is_copy(n) || band_of(n, NULL);
}

/* A library call reads memory: views of something that exists are made by the runtime, other values are stored. */
static ir_node *behind_views(ir_node *n)
{
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->variant == OPV_fn &&
           n->val.kind == VAL_tensor && n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    return n;
}
static void operand_in_memory(void *arg, ir_node *n) { mark_sched(arg, behind_views(n)); }

typedef struct leaf_count {
    planner *pl;
    int sum;
} leaf_count;
/* Long sums and the like are cut into parts that a kernel has buffers for. */
static void count_leaf(void *arg, ir_node *n)
{
    planner *pl = ((leaf_count *)arg)->pl;
    info *f = &pl->in[n->id];
    ((leaf_count *)arg)->sum += f->sched || f->memview || n->kind != IR_call ? 1 : f->leaves;
}
static void cut_operand(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (pl->in[n->id].leaves > 1)
        mark_sched(pl, behind_views(n));
}
static void count_leaves(planner *pl)
{
    IR_EACH (n, pl->g) {
        if (n->kind != IR_call)
            continue;
        leaf_count c = { pl, 0 };
        ir_each_operand(n, count_leaf, &c);
        if (c.sum > MAX_LEAVES) {
            ir_each_operand(n, cut_operand, pl);
            c.sum = 0;
            ir_each_operand(n, count_leaf, &c);
        }
        pl->in[n->id].leaves = c.sum;
    }
}

typedef struct deeper {
    planner *pl;
    int most;
} deeper;
static void operand_depth(void *arg, ir_node *x)
{
    deeper *d = arg;
    const info *f = &d->pl->in[x->id];
    d->most = MAX(d->most, f->sched ? 0 : f->depth);
}

/* An expression of a thousand operators is no kernel, and whoever walks it recursively runs out of stack. */
static void cut_deep(planner *pl)
{
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || f->sched || n->val.kind != VAL_tensor)
            continue;
        deeper d = { pl, 0 };
        ir_each_operand(n, operand_depth, &d);
        f->depth = d.most + 1;
        if (f->depth >= DEEP && !known_view(pl, n) && !f->memview)
            f->sched = true;
    }
}

/* Reductions of empty values are left to the library: loops that never run have nothing to index. */
static bool of_nothing(const ir_node *n)
{
    const tp_tensor *t = n->narg && n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    return t && t->numel == 0;
}

static void log_lower(const ir_node *n, bool yes, const char *why)
{
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s %s: %s", yes ? "computed inside kernels:" : "left as a call:", n->name,
                why);
}

/* Does another step of a kernel read it? */
static bool feeds_kernels(planner *pl, const ir_node *n)
{
    uint32_t mask;
    uint8_t kind;
    for (const ir_use *u = n->uses; u; u = u->next)
        if (is_inline(pl, u->user) || reduction(u->user, &mask, &kind))
            return true;
    return false;
}

/* Why a gather is better called, or NULL. Where each lane has an index of its own, a vector is read element by element in
 * any case: nothing is won without other work in the same loop. */
static const char *gather_as_call(planner *pl, const ir_node *n, const loop_gather *g)
{
    const tp_tensor *t = ir_type(n);
    bool lanes = false, slices = false;
    for (int d = 0; d < g->n; d++) {
        const tp_tensor *x = g->d[d].index ? ir_type(g->d[d].index) : NULL;
        slices |= !x;
        lanes |= x && x->ndim && g->d[d].from + x->ndim == t->ndim && x->size[x->ndim - 1] != 1;
    }
    if (!lanes)
        return NULL;
    if (pl->c->portable)
        return NULL;
    if (dtype_size((dtype)t->dt) < 4)
        return "elements of fewer than four bytes are not gathered by one instruction";
    bool quick = n->op != OP_index_Tensor || slices; /* the call knows a faster way than a table of places */
    return quick && !feeds_kernels(pl, n) ? "each lane has its own index, and no other work shares the loop"
                                          : NULL;
}

/* Operators that are calls as well: which of them are computed in the kernels of their users? */
static void choose_folds(planner *pl)
{
    for (ir_node *n = pl->g->last; n; n = n->prev) { /* users first */
        loop_gather g;
        const char *what = NULL, *call = NULL;
        if (n->kind != IR_call || n->variant != OPV_fn || !ir_type(n) || ir_type(n)->numel == 0)
            continue;
        if (n->op == OP_flip) {
            what = "a value at another index";
            for (int i = 0; i < n->arg[1].n; i++)
                if (dim_arg_of(n->arg[1].ints[i], ir_type(n)->ndim) == ir_type(n)->ndim - 1 &&
                    dtype_size((dtype)ir_type(n)->dt) != 4 && !pl->c->portable)
                    call = "only elements of four bytes are turned round in a vector";
        } else if (n->op == OP_repeat && n->arg[1].kind == VAL_ints && n->arg[1].n == ir_type(n)->ndim) {
            const tp_tensor *s = ir_type(n->arg[0].node);
            symint len = s->ndim ? s->size[s->ndim - 1] : 1;
            what = "a value at another index";
            if (len != 1 && n->arg[1].ints[n->arg[1].n - 1] != 1 && !sym_known(SYM_ge, len, 16) &&
                !pl->c->portable)
                call = "what is repeated is shorter than a vector";
        } else if ((n->op == OP_select_int || n->op == OP_slice_Tensor) && n->arg[2].kind == VAL_int &&
                   sym_is_expr(n->arg[2].i)) {
            what = "a symbolic place is part of the index";
            if (!sym_known(SYM_ge, n->arg[2].i, 0))
                call = "it may count from the end: the run makes the view";
            else if (n->op == OP_slice_Tensor && sym_is_expr(int_arg(n, 4, 1)))
                call = "its step is symbolic, too: the run makes the view";
        } else if (is_mirror(n)) {
            what = "a value at another index";
            if (ir_type(n)->stride[ir_type(n)->ndim - 1] != 1)
                call = "channels are mirrored one by one";
        } else if (n->op == OP_upsample_nearest2d || n->op == OP_upsample_nearest2d_backward) {
            bool back = n->op == OP_upsample_nearest2d_backward;
            const tp_tensor *o = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
            int64_t k[2];
            what = back ? "elements that came of one are summed where the sum is used"
                        : "each element is read for several places";
            if (back ? !o || !enlarges(n, ir_type(n), o, 3, k) || k[1] > 2
                     : !enlarges(n, o, ir_type(n), 2, k))
                call = "places are not those of whole blocks";
        } else if (n->op == OP__max_pool2d_offsets_backward) {
            int64_t k[2];
            what = "each gradient is read for the places of its window";
            if (!tiles_image(n, k))
                call = "windows do not fill the image in blocks of two or four";
        } else if (n->op == OP_max_pool2d) /* made of max_pool2d_with_indices, see pools_alone */
            what = "windows are read where their maxima are used";
        else if (n->op == OP_avg_pool2d && n->arg[0].kind == VAL_node) {
            windows p;
            what = "windows are read where their means are used";
            call = n->arg[6].kind == VAL_int && (sym_is_expr(n->arg[6].i) || n->arg[6].i <= 0)
                       ? "its divisor is not a number yet"
                       : windows_of(n->arg, false, ir_type(n->arg[0].node), &p);
        } else if (is_draw(n) && n->arg[0].kind == VAL_node)
            what = "numbers are drawn where they are used";
        else if (loop_gather_of(n, &g) && !g.writes) {
            what = "read where its index points";
            call = gather_as_call(pl, n, &g);
        }
        if (!what)
            continue;
        if (!call && !decide(pl->c, DECIDE_lower, n))
            call = "refused";
        pl->in[n->id].folds = !call;
        log_lower(n, !call, call ? call : what);
    }
}

/* What a gather reads: its indices lie in memory, and so does its source where elements are read more than once. */
static void gather_operands(planner *pl, ir_node *n)
{
    loop_gather g;
    windows p;
    if (pl->in[n->id].folds && (n->op == OP_max_pool2d || n->op == OP_avg_pool2d) &&
        !windows_of(n->arg, n->op == OP_max_pool2d, ir_type(n->arg[0].node), &p) &&
        (p.k[0] * p.k[1] > 4 || p.step[0] < p.k[0] ||
         p.step[1] < p.k[1])) /* else elements are computed once */
        operand_in_memory(pl, n->arg[0].node);
    if (is_long_cat(n) || (pl->in[n->id].folds && is_mirror(n) && part_count(n)))
        pl->in[n->id].sched = true;
    if (pl->in[n->id].folds && (n->op == OP_upsample_nearest2d || n->op == OP_upsample_nearest2d_backward)) {
        if (n->op == OP_upsample_nearest2d) /* else elements are read once */
            operand_in_memory(pl, n->arg[0].node);
    } else if (pl->in[n->id].folds && n->op == OP__max_pool2d_offsets_backward) {
        operand_in_memory(pl, n->arg[0].node);
        operand_in_memory(pl, n->arg[1].node);
    } else if (pl->in[n->id].folds && (is_draw(n) || n->op == OP_repeat))
        operand_in_memory(pl, n->arg[0].node);
    if (!pl->in[n->id].folds || !loop_gather_of(n, &g))
        return;
    ir_node *src = n->arg[0].node;
    for (int d = 0; d < g.n; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, ir_type(src)->size[d]))
            operand_in_memory(pl, g.d[d].index);
    if (hint(ir_type(n)->numel) > hint(ir_type(src)->numel))
        operand_in_memory(pl, src);
}

/* Is it computed on the way, by operators that cost little? */
static bool is_cheap(const ir_node *x, int depth)
{
    const op_schema *s;
    x = behind_views((ir_node *)x);
    if (x->kind != IR_call || !(row_of(x)->flags & OPF_PW) || !lower_of((op_id)x->op))
        return depth > 0;
    if (is_dear(x) || depth > 5)
        return false;
    s = &row_of(x)->schema;
    for (int i = 0; i < s->nparam; i++)
        if (x->arg[i].kind == VAL_node && !is_cheap(x->arg[i].node, depth + 1))
            return false;
    return true;
}

static uint8_t scan_kind_of(const ir_node *n)
{
    switch ((op_id)n->op) {
    case OP_cumsum: return RED_sum;
    case OP_cumprod: return RED_prod;
    case OP_logcumsumexp: return RED_lse;
    case OP__cum_extreme: return n->arg[2].b ? RED_max : RED_min;
    case OP__cum_place: return n->arg[2].b ? RED_cummax : RED_cummin;
    default: return RED_COUNT;
    }
}

/* Floats are added in their order, one at a time. */
static bool in_order(const ir_node *n)
{
    return (n->op == OP_cumsum || n->op == OP_cumprod) && dtype_is_float((dtype)ir_type(n)->dt);
}

/* Running results. Down columns lanes hold columns, and each keeps its own; along rows every step waits for the one before, in a
 * kernel as in the call, but neighbours are computed in vectors on the way. */
static bool scan_fits(planner *pl, const ir_node *n)
{
    uint8_t kind = n->variant == OPV_fn ? scan_kind_of(n) : RED_COUNT;
    if (kind == RED_COUNT || n->arg[0].kind != VAL_node)
        return false;
    info *f = &pl->in[n->id];
    const tp_tensor *t = ir_type(n), *x = ir_type(n->arg[0].node);
    dtype in = (dtype)x->dt, out = (dtype)t->dt;
    int dim = t->ndim ? dim_arg(n, 1, t->ndim) : 0;
    int64_t step = t->ndim ? hint(x->stride[dim]) * (int64_t)dtype_size(in) : 0;
    bool rows = t->ndim && dim == t->ndim - 1;
    bool far = dtype_is_float(in) && step % 4096 == 0 && t->ndim && !rows &&
               hint(t->size[dim]) > 64; /* one set of the cache */
    bool any = pl->c->portable, extreme = n->op == OP__cum_extreme || n->op == OP__cum_place;
    const char *why = !t->ndim ? "it is one element"
                      : !any && !rows && hint(t->size[t->ndim - 1]) < (dtype_is_float(in) ? 32 : 8)
                          ? "there are too few columns"
                      : !any && rows && hint(t->size[dim]) < 16 ? "rows are shorter than vectors"
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
    f->rkind = kind;
    return !why;
}

/* Why the place of an extreme is better called for, or NULL. Down columns and over one long row the call looks for the extreme
 * first and for its place afterwards, which only an operand that exists in memory allows. */
static const char *place_as_call(const tp_comp *c, const ir_node *n)
{
    const ir_node *x = n->arg[0].node;
    const tp_tensor *t = ir_type(x);
    while (x->kind == IR_call && (row_of(x)->flags & OPF_VIEW) && x->arg[0].kind == VAL_node)
        x = x->arg[0].node;
    bool computed = x->kind == IR_call && (row_of(x)->flags & OPF_PW) && lower_of((op_id)x->op);
    bool rows = t->ndim > 1 && n->arg[1].kind == VAL_int && dim_arg(n, 1, t->ndim) == t->ndim - 1;
    return computed || rows || c->portable
               ? NULL
               : "nothing is computed on the way, and the call knows a faster one";
}

/* Is n written where indices point by a kernel of ours? Lanes hold elements that never meet, and those that may are written
 * one after the other, in the order of the call: the result does not depend on threads. */
static bool put_fits(planner *pl, ir_node *n)
{
    loop_gather g;
    if (!loop_gather_of(n, &g) || !g.writes)
        return false;
    const tp_tensor *t = ir_type(n);
    const tp_val *src = &n->arg[g.src];
    const ir_node *x = src->kind == VAL_node ? behind_views(src->node) : NULL;
    bool computed = x && x->nuse == 1 && x->kind == IR_call && (row_of(x)->flags & OPF_PW) &&
                    lower_of((op_id)x->op);
    const char *why = NULL;
    if (t->numel == 0 || sym_known(SYM_eq, shape_numel(g.nd, g.size), 0))
        why = "it has no elements";
    else if (g.serial >> (g.nd - 1) & 1 || t->stride[t->ndim - 1] != 1 || g.nd - 1 != g.d[t->ndim - 1].from)
        why = "neighbours may go to one place";
    else if (g.adds && t->dt != DT_f32 && t->dt != DT_f64 && t->dt != DT_i64 && t->dt != DT_i32)
        why = "not in its element type";
    else if (src->kind != VAL_node && !is_known_number(src))
        why = "its number is not known yet";
    else if (!computed && !pl->c->portable)
        why = "nothing is computed on the way";
    else if (!decide(pl->c, DECIDE_lower, n))
        why = "refused";
    log_lower(n, !why, why ? why : "written where its index points");
    for (int d = 0; d < g.n && !why; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, t->size[d]))
            operand_in_memory(pl, g.d[d].index);
    return !why;
}

/* Is it x less the largest of the x it is compared with? Rounding keeps the sign of a difference. */
static bool below_maximum(const ir_node *n)
{
    if (n->kind != IR_call || n->op != OP_sub_Tensor || n->variant != OPV_fn || n->arg[0].kind != VAL_node ||
        n->arg[1].kind != VAL_node || !val_is_number(&n->arg[2]) || val_as_f(&n->arg[2]) != 1)
        return false;
    const ir_node *top = n->arg[1].node;
    if (top->kind != IR_call || top->op != OP_amax || top->variant != OPV_fn)
        return false;
    bool keeps = top->arg[2].kind == VAL_bool && top->arg[2].b;
    return top->arg[0].kind == VAL_node && top->arg[0].node == n->arg[0].node &&
           (keeps || ir_type(top)->ndim == 0);
}
static void find_low(planner *pl)
{
    IR_EACH (n, pl->g)
        if (n->kind == IR_call && n->op == OP_exp && n->arg[0].kind == VAL_node &&
            below_maximum(n->arg[0].node))
            pl->in[n->id].low = decide(pl->c, DECIDE_range, n);
}

static void choose_sched(planner *pl)
{
    find_low(pl);
    choose_folds(pl);
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        gather_operands(pl, n);
        if (n->kind == IR_opaque || (n->kind == IR_call && !is_inline(pl, n))) {
            f->sched = true;
            const char *why = NULL;
            if (n->kind == IR_call && !of_nothing(n) && reduction(n, &f->mask, &f->rkind)) {
                why = is_place(f->rkind) ? place_as_call(pl->c, n) : NULL;
                f->red = !why;
                if (f->red)
                    continue;
                log_lower(n, false, why);
            }
            if (n->kind == IR_call && scan_fits(pl, n)) {
                f->scan = true;
                continue;
            }
            if (n->kind == IR_call && put_fits(pl, n)) {
                f->put = true;
                continue;
            }
            f->ext = !(n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->val.kind == VAL_tensor);
            if (!f->ext) { /* a view this stage does not know: made by the runtime over memory */
                f->sched = false;
                f->memview = true;
                mark_sched(pl, behind_views(n));
            } else
                ir_each_operand(n, operand_in_memory, pl);
        } else if (n->kind == IR_call && n->nuse > 1 && !cheap_to_repeat(pl, n))
            f->sched = true;
        else if (n->kind == IR_call && covered(pl, n) && !decide(pl->c, DECIDE_fuse, n))
            f->sched = true; /* a loop of its own for what could be computed where it is used */
        else if (n->kind == IR_call && (n->op == OP_select_backward || n->op == OP_slice_backward))
            operand_in_memory(pl, n->arg[0].node); /* else it would be computed for the zeros too */
        else if (n->kind == IR_output)
            ir_each_operand(n, operand_in_memory, pl);
    }
    /* operands of reductions through several uses etc. are inlined as any other; views that the runtime makes must
     * have memory under them */
    IR_EACH (n, pl->g)
        if (pl->in[n->id].memview)
            mark_sched(pl, behind_views(n));
    cut_deep(pl);
    for (ir_node *n = pl->g->last; n; n = n->prev) { /* no kernels for values without elements */
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || !f->sched || f->ext || f->red || !ir_type(n) || ir_type(n)->numel != 0)
            continue;
        f->ext = true;
        ir_each_operand(n, operand_in_memory, pl);
    }
    count_leaves(pl);
}

/* Numbers that share a block of the sequence lie in one row. */
static int64_t block_of(const ir_node *n)
{
    bool wide = n->op == OP__philox_int ? n->arg[4].i != 0 : ir_type(n)->dt == DT_f64;
    return wide ? 2 : 4;
}
static bool rows_in_blocks(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    symint row = t->ndim ? t->size[t->ndim - 1] : 1;
    return t->ndim < 2 || (!sym_is_expr(row) && row % block_of(n) == 0);
}

/* n reads the newest group, a value that came of inputs alone (which elements a dropout keeps), and an older one: the value joins the
 * older one first, or n would part the two. True: what n depends on has changed. */
static bool absorb_newest(planner *pl, const uint64_t *deps)
{
    group *g = pl->groups.n ? pl->groups.at[pl->groups.n - 1] : NULL;
    if (!g || !bit_has(deps, g->id) || g->ext || g->n != 1 || g->red || g->scan || g->deep || g->part ||
        pl->in[g->member[0]->id].put)
        return false;
    for (int i = 0; i < g->id; i++)
        if (bit_has(g->before, i) && !reserves(pl->groups.at[i]))
            return false;
    for (int i = g->id - 1; i >= 0; i--) {
        group *h = pl->groups.at[i];
        if (!bit_has(deps, i) || h->ext || h->deep || h->scan || !same_sizes(g->nd, g->size, h->nd, h->size))
            continue;
        for (int k = 0; k < g->id; k++) /* who reads it elsewhere would have to follow all of h */
            if (k != i && bit_has(pl->groups.at[k]->before, g->id))
                return false;
        uint64_t *with = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
        memcpy(with, g->before, sizeof *with * (size_t)pl->words);
        bit_set(with, i);
        if (!join(pl, h, g->member[0], with))
            return false;
        h->before[g->id / 64] &= ~((uint64_t)1 << g->id % 64); /* the next group gets this number */
        pl->groups.n--;
        return true;
    }
    return false;
}

static void form_groups(planner *pl)
{
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        if (!f->sched || n->kind == IR_placeholder || n->kind == IR_const || n->kind == IR_output ||
            n->kind == IR_getitem)
            continue;
        uint64_t *deps = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
        node_deps(pl, n, deps);
        if (f->ext) {
            start_call(pl, n, deps);
            continue;
        }
        if (!f->scan && !f->put && absorb_newest(pl, deps)) {
            memset(deps, 0, sizeof *deps * (size_t)pl->words);
            node_deps(pl, n, deps);
        }
        bool in = false;
        bool parts = n->kind == IR_call &&
                     (f->put || is_long_cat(n) || (f->folds && is_mirror(n) && part_count(n)) ||
                      (is_draw(n) && !rows_in_blocks(n)));
        for (int i = (int)pl->groups.n - 1; i >= 0 && !in && !f->scan && !parts;
             i--) /* newest first: the likely producer */
            if (bit_has(deps, i) && !pl->groups.at[i]->deep)
                in = join(pl, pl->groups.at[i], n, deps);
        if (!in && !(f->put ? start_put(pl, n, deps) : start_group(pl, n, deps))) {
            pl->groups.n--; /* the empty group */
            f->red = f->scan = f->put = false;
            start_call(pl, n, deps);
            ir_each_operand(n, operand_in_memory, pl);
        }
        if ((f->depth >= DEEP || parts) && f->g)
            f->g->deep = true;
    }
}

/* ---- slots ---- */
static int slot_add(planner *pl, slot_kind kind, const ir_node *n, int index)
{
    loop_slot s = { .kind = (uint8_t)kind,
                    .index = index,
                    .node = n,
                    .type = n->val.kind == VAL_tensor ? n->val.t : NULL,
                    .konst = n->konst,
                    .first = -1,
                    .last = -1 };
    vec_push(&pl->p->slot, s);
    pl->in[n->id].slot = (int)pl->p->slot.n;
    map_puti(&pl->p->slot_of, (uintptr_t)n, (void *)(uintptr_t)pl->p->slot.n);
    return (int)pl->p->slot.n - 1;
}

static int slot_of(planner *pl, ir_node *n)
{
    info *f = &pl->in[n->id];
    if (f->slot)
        return f->slot - 1;
    switch (n->kind) {
    case IR_const: return slot_add(pl, SLOT_const, n, 0);
    case IR_getitem: {
        int of = slot_of(pl, n->arg[0].node);
        slot_add(pl, SLOT_extern, n, of);
        return f->slot - 1;
    }
    default:
        if (!f->sched && n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->arg[0].kind == VAL_node) {
            int base = slot_of(pl, n->arg[0].node);
            return slot_add(pl, SLOT_view, n, base);
        }
        if (f->product && n->op == OP_addmm && ir_type(n->arg[0].node)->ndim == 2) {
            int over = slot_of(pl, n->arg[0].node), s = slot_add(pl, SLOT_extern, n, -1);
            pl->p->slot.at[s].over = over + 1;
            return s;
        }
        return slot_add(pl, f->ext && !f->product ? SLOT_extern : SLOT_buffer, n, -1);
    }
}

/* ---- writing a kernel ---- */
typedef struct emit {
    vir *k;
    loop_kernel *out;
    int nbuf;
    ir_node *buf_node[MAX_BUFS];
    bool overflow;
    VEC(symint) ints;
    VEC(vir_ref) int_ref;
    /* per member */
    vir_ref *value;  /* inner values in this pass; outer values */
    int *value_pass; /* pass the inner value was computed in, or -1 */
    ir_node **park;  /* inner values too dear to compute again: in whose memory they wait for later passes */
    int *park_first, *park_last; /* the passes that store them there and read them last */
} emit;

static vir_ref emit_int(walk *w, symint v)
{
    emit *e = w->e;
    if (!sym_is_expr(v))
        return vir_int(w->k, v);
    for (size_t i = 0; i < e->ints.n; i++)
        if (e->ints.at[i] == v)
            return e->int_ref.at[i];
    char name[16];
    snprintf(name, sizeof name, "i%d", (int)e->ints.n);
    vec_push(&e->ints, v);
    vec_push(&e->int_ref, vir_int_arg(w->k, name));
    return vec_last(&e->int_ref);
}

static vir_ref emit_lin(walk *w, const lin *a)
{
    vir *k = w->k;
    if (a->opaque)
        return a->ref;
    vir_ref r = 0;
    for (int i = 0; i < a->n; i++) {
        int m = w->merged[a->t[i].var];
        if (m < 0)
            continue; /* carried by the inner variable it was merged with */
        vir_ref v = w->var[m];
        if (a->t[i].c != 1)
            v = vir_mul(k, v, emit_int(w, a->t[i].c));
        r = r ? vir_add(k, r, v) : v;
    }
    if (a->k != 0 || !r) {
        vir_ref c = emit_int(w, a->k);
        r = r ? vir_add(k, r, c) : c;
    }
    return r;
}

static int buffer_of(walk *w, ir_node *n, int flags)
{
    emit *e = w->e;
    for (int i = 0; i < e->nbuf; i++)
        if (e->buf_node[i] == n)
            return i;
    if (e->nbuf >= MAX_BUFS) {
        e->overflow = true;
        return 0;
    }
    e->buf_node[e->nbuf] = n;
    for (int i = 0; i < w->g->n; i++)
        if (e->park[i] == n)
            flags = VIR_INOUT;
    vir_buffer(w->k, loop_mem((dtype)ir_type(n)->dt), flags, n->name);
    return e->nbuf++;
}

static lin address(walk *w, const tp_tensor *t, const lin *idx)
{
    lin a;
    lin_set_const(&a, 0);
    for (int d = 0; d < t->ndim; d++)
        if (t->size[d] != 1)
            lacc(w, &a, &idx[d], t->stride[d]);
    return a;
}

static lin linear_part(walk *w, const tp_tensor *t, const lin *idx)
{
    lin a;
    lin_set_const(&a, 0);
    for (int d = 0; d < t->ndim; d++)
        if (t->size[d] != 1 && !idx[d].opaque)
            lacc(w, &a, &idx[d], t->stride[d]);
    return a;
}

/* Whose memory a view that is not folded into the index looks at. */
static ir_node *memory_of(planner *pl, ir_node *n)
{
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && !pl->in[n->id].sched &&
           n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    return n;
}

static vir_ref emit_load(walk *w, ir_node *n, const lin *idx)
{
    lin a = address(w, ir_type(n), idx);
    if (w->dry) {
        ir_node *of = memory_of(w->pl, n);
        if (of != n && w->g && w->pl->in[of->id].g == w->g) /* it is only there when the group is done */
            w->fail = true;
        vec_push(&w->seen, ((access){ .at = a, .n = n }));
        vec_push(&w->loads, n);
        if (a.opaque)
            vec_push(&w->seen, ((access){ .at = linear_part(w, ir_type(n), idx), .part = true }));
        return 0;
    }
    return vir_load(w->k, buffer_of(w, n, VIR_IN), emit_lin(w, &a), w->mask);
}

static int member_number(const group *g, const ir_node *n)
{
    for (int i = 0; i < g->n; i++)
        if (g->member[i] == n)
            return i;
    return -1;
}

static vir_ref compute(walk *w, ir_node *n)
{
    lin home[TP_MAX_DIMS];
    ir_node *self = w->self;
    member_index(w, n, home);
    w->self = n;
    vir_ref v = eval(w, n, home);
    w->self = self;
    return v;
}

static vir_ref member_value(walk *w, ir_node *n)
{
    emit *e = w->e;
    int i = member_number(w->g, n);
    info *f = &w->pl->in[n->id];
    if (f->outer || e->value_pass[i] == w->pass)
        return e->value[i];
    vir_ref mask = w->mask; /* a member's value is shared: computed without the mask of this use */
    w->mask = 0;
    e->value[i] = compute(w, n);
    e->value_pass[i] = w->pass;
    w->mask = mask;
    return e->value[i];
}

static void store_member(walk *w, ir_node *n, vir_ref v)
{
    lin home[TP_MAX_DIMS];
    member_index(w, n, home);
    lin a = address(w, ir_type(n), home);
    vir_store(w->k, buffer_of(w, n, VIR_OUT), emit_lin(w, &a), v, 0);
}

/* What may lie where this kernel reads: every value that needs those elements has been computed by now. */
static void store_last(walk *w)
{
    for (int i = 0; i < w->g->n; i++)
        if (w->pl->in[w->g->member[i]->id].last)
            store_member(w, w->g->member[i], member_value(w, w->g->member[i]));
}

/* ---- values that wait for a later pass ----
 * Softmax reads its exponentials twice: for their sum and for the quotient. Instead of computing them again, the pass that
 * sums them stores them where the result will lie, and the pass that writes the result reads them back. */
enum { PARK_BYTES = 1 << 18 }; /* of a row: more than that would leave the cache in between */

typedef struct reach { /* what the expression of a member reads of its group */
    planner *pl;
    const group *g;
    uint64_t members; /* inner ones, by number */
    bool dear;
    VEC(ir_node *) stack;
    map seen;
} reach;
static void reach_operand(void *arg, ir_node *n)
{
    reach *r = arg;
    const info *f = &r->pl->in[n->id];
    if (f->g && f->g == r->g && !f->ext) {
        if (!f->outer)
            r->members |= 1ull << member_number(r->g, n);
        return;
    }
    if (n->kind == IR_call && !f->sched && !f->memview && !map_puti(&r->seen, (uintptr_t)n, n))
        vec_push(&r->stack, n);
}
static reach reach_of(planner *pl, const group *g, ir_node *n)
{
    reach r = { .pl = pl, .g = g, .dear = is_dear(n) };
    vec_push(&r.stack, n);
    while (r.stack.n) {
        ir_node *x = vec_pop(&r.stack);
        r.dear |= is_dear(x);
        if (!is_fill(x)) /* full_like(y, 1) looks at the sizes of y alone */
            ir_each_operand(x, reach_operand, &r);
    }
    vec_free(&r.stack);
    map_free(&r.seen);
    return r;
}

/* A result whose memory can hold member i from pass `first` to pass `last`, or NULL. */
static ir_node *park_place(walk *w, int i, int first, int last, int64_t row)
{
    const group *g = w->g;
    const emit *e = w->e;
    const tp_tensor *t = ir_type(g->member[i]);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || row * (int64_t)dtype_size((dtype)t->dt) > PARK_BYTES)
        return NULL;                 /* narrow types would lose digits */
    for (int k = i; k < g->n; k++) { /* best in its own */
        ir_node *m = g->member[k];
        const info *f = &w->pl->in[m->id];
        const tp_tensor *mt = ir_type(m);
        if (f->outer || !f->stored || mt->dt != t->dt || (k != i && f->level < last) ||
            !same_sizes(mt->ndim, mt->size, t->ndim, t->size))
            continue;
        bool taken = false; /* in the same passes */
        for (int q = 0; q < g->n; q++)
            taken |= e->park[q] == m && e->park_first[q] < last && first < e->park_last[q];
        if (!taken)
            return m;
    }
    return NULL;
}

static void park_members(walk *w, int64_t row)
{
    planner *pl = w->pl;
    group *g = w->g;
    emit *e = w->e;
    uint32_t wanted[MAX_MEMBERS] = { 0 }; /* bit p: its value is computed in pass p */
    uint64_t reads[MAX_MEMBERS];
    bool dear[MAX_MEMBERS];
    for (int i = 0; i < g->n; i++) {
        reach r = reach_of(pl, g, g->member[i]);
        reads[i] = r.members;
        dear[i] = r.dear;
        for (int k = 0; k < i; k++)
            dear[i] |= (r.members >> k & 1) && dear[k];
    }
    for (int i = g->n - 1; i >= 0; i--) { /* users are decided before what they use */
        ir_node *n = g->member[i];
        const info *f = &pl->in[n->id];
        if (f->outer && !f->red)
            continue;
        if (f->red || f->stored)
            wanted[i] |= 1u << f->level;
        if (!f->red && dear[i] && (wanted[i] & (wanted[i] - 1))) {
            int first = __builtin_ctz(wanted[i]), last = 31 - __builtin_clz(wanted[i]);
            ir_node *m = park_place(w, i, first, last, row);
            if (m && decide(pl->c, DECIDE_fuse, n)) {
                e->park[i] = m;
                e->park_first[i] = first;
                e->park_last[i] = last;
                wanted[i] = 1u << first;
                if (ev_text_on(EV_fusion))
                    ev_text(EV_fusion, NULL, "%s waits for later passes in the memory of %s", n->name,
                            m->name);
            }
        }
        for (int k = 0; k < i; k++)
            if (reads[i] >> k & 1)
                wanted[k] |= wanted[i];
    }
}

static vir_ref parked_at(walk *w, ir_node *n, int *buf)
{
    lin home[TP_MAX_DIMS];
    member_index(w, n, home);
    lin a = address(w, ir_type(n), home);
    *buf = buffer_of(w, n, VIR_INOUT);
    return emit_lin(w, &a);
}

/* At the beginning of a pass's body: before anything is stored there. */
static void load_parked(walk *w, int pass)
{
    emit *e = w->e;
    for (int i = 0, buf; i < w->g->n; i++)
        if (e->park[i] && e->park_first[i] < pass && pass <= e->park_last[i]) {
            vir_ref at = parked_at(w, e->park[i], &buf);
            e->value[i] = vir_load(w->k, buf, at, 0);
            e->value_pass[i] = pass;
        }
}

static void store_parked(walk *w, int pass)
{
    emit *e = w->e;
    for (int i = 0, buf; i < w->g->n; i++)
        if (e->park[i] && e->park[i] != w->g->member[i] && e->park_first[i] == pass) {
            vir_ref at = parked_at(w, e->park[i], &buf), v = member_value(w, w->g->member[i]);
            vir_store(w->k, buf, at, v, 0);
        }
}

static symint stride_in(const lin *a, int var)
{
    for (int i = 0; i < a->n; i++)
        if (a->t[i].var == var)
            return a->t[i].c;
    return 0;
}

static bool can_merge(const walk *w, const space *s, int outer, int inner)
{
    for (size_t i = 0; i < w->seen.n; i++) {
        const lin *a = &w->seen.at[i].at;
        if (a->opaque || w->seen.at[i].part)
            continue; /* its parts were seen on their own */
        symint co = stride_in(a, outer), ci = stride_in(a, inner), want = sym_mul(ci, s->size[inner]);
        if (co != want && !sym_known(SYM_eq, co, want))
            return false;
    }
    return true;
}

static void merge_list(const walk *w, space *s, nest *t, int *list, int *n)
{
    for (int i = *n - 2; i >= 0; i--) {
        int outer = list[i], inner = list[i + 1];
        if (!can_merge(w, s, outer, inner))
            continue;
        t->merged[outer] = -1;
        s->size[inner] = t->size[inner] = sym_mul(s->size[outer], s->size[inner]);
        memmove(&list[i], &list[i + 1], sizeof(int) * (size_t)(*n - 1 - i));
        (*n)--;
    }
}

/* Order variables by how far they step in memory, outermost first. */
static void order_list(const walk *w, int *list, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            int64_t a = 0, b = 0; /* the first access that can tell decides: results come first */
            for (size_t q = 0; q < w->seen.n && a == b; q++) {
                const access *at = &w->seen.at[w->pl->c->loops == LOOPS_operands ? w->seen.n - 1 - q : q];
                if (at->raw || at->at.opaque)
                    continue;
                int64_t x = llabs(hint(stride_in(&at->at, list[j - 1]))),
                        y = llabs(hint(stride_in(&at->at, list[j])));
                if (x && y)
                    a = x, b = y;
            }
            if (a >= b)
                break;
            int t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
}

/* Dry run of the whole group: splits and accesses. */
static bool survey(planner *pl, group *g, space *s, walk *w)
{
    for (int round = 0, last = 16; round <= last; round++) { /* the last one takes indices as they are */
        bool more = round < last;
        *w = (walk){ .pl = pl, .g = g, .vsize = s->size, .nvar = s->nvar, .dry = true };
        w->split_var = more ? -1 : 0;
        pl->check.n = 0;
        space_now = s;
        for (int pass = 0; pass < 2; pass++) /* results first: they decide the order of loops */
            for (int i = 0; i < g->n; i++) {
                ir_node *n = g->member[i];
                info *f = &pl->in[n->id];
                lin home[TP_MAX_DIMS];
                if (pass == 0) {
                    if (f->stored && !(f->put && g->part == 2)) {
                        member_index(w, n, home);
                        access at = { .at = address(w, ir_type(n), home),
                                      .to = n }; /* which may see more on its way */
                        vec_push(&w->seen, at);
                    }
                    continue;
                }
                ir_node *root = n;
                w->self = n;
                if (f->red || f->scan) {
                    root = n->arg[0].node;
                    w->self = NULL;
                    for (int d = 0; d < g->nd; d++)
                        home[d] = g->size[d] == 1 ? lin_const(0) : s->at[d];
                    if (is_place(f->rkind))
                        use_raw(w, &home[__builtin_ctz(f->mask)]);
                } else
                    member_index(w, n, home);
                if (f->put && g->part == 2)
                    eval_put(w, n, home);
                else
                    eval(w, root, home);
                if (w->fail && (w->split_var < 0 || !more))
                    return false;
                w->fail = false;
            }
        if (w->split_var < 0 || !more)
            return true;
        int v = w->split_var;
        symint by = w->split_in;
        vec_free(&w->seen);
        vec_free(&w->loads);
        if (!space_split(s, v, by))
            last = round + 1;
    }
    return false;
}

static void make_nest(planner *pl, group *g, space *s, walk *w, nest *t)
{
    memset(t, 0, sizeof *t);
    for (int v = 0; v < s->nvar; v++) {
        t->size[v] = s->size[v];
        t->merged[v] = v;
        if (s->size[v] == 1)
            continue;
        if (g->red >> s->dim[v] & 1)
            t->red[t->nred++] = v;
        else
            t->keep[t->nkeep++] = v;
    }
    order_list(w, t->keep, t->nkeep);
    order_list(w, t->red, t->nred);
    merge_list(w, s, t, t->keep, &t->nkeep);
    merge_list(w, s, t, t->red, &t->nred);
    if (g->red && t->nkeep) { /* which of the two walks memory element by element? */
        int k = t->keep[t->nkeep - 1], r = t->nred ? t->red[t->nred - 1] : -1;
        int64_t ku = 0, ru = 0;
        for (size_t i = 0; i < w->seen.n; i++) {
            const access *a = &w->seen.at[i];
            if (a->raw || a->at.opaque)
                continue;
            bool each = t->nred == 0 || a->part; /* touched in every step, not once a row */
            for (int q = 0; q < t->nred; q++)
                each |= stride_in(&a->at, t->red[q]) != 0;
            int votes = a->part ? 2 : 1; /* the other way round it would be gathered */
            ku += votes * (each && stride_in(&a->at, k) == 1);
            ru += votes * (each && r >= 0 && stride_in(&a->at, r) == 1);
        }
        t->column = g->part || (ku > ru && hint(t->size[k]) >= 8);
        if (r < 0)
            t->column = true;
    }
}

static void declare_var(walk *w, int v, vir_ref value) { w->var[v] = value; }

/* Which element along the reduced dimension this is: in 32 bits where it fits, so that lanes are not halved. */
static vir_ref place_now(walk *w, const ir_node *n, const lin *home)
{
    const tp_tensor *x = ir_type(n->arg[0].node);
    int d = __builtin_ctz(w->pl->in[n->id].mask);
    vir_ref at = emit_lin(w, &home[d]);
    return sym_known(SYM_lt, x->size[d], INT32_MAX) ? vir_cvt(w->k, VT_i32, at) : at;
}

/* What a running result is computed in: in 64 bits, as the call does it, but for extremes. */
static dtype scan_dtype(const ir_node *n)
{
    const tp_tensor *x = ir_type(n->arg[0].node);
    if (n->op == OP_cumsum || n->op == OP_cumprod || n->op == OP_logcumsumexp)
        return dtype_is_float((dtype)ir_type(n)->dt) ? DT_f64 : DT_i64;
    return (dtype)x->dt;
}

static void emit_pass(walk *w, const nest *t, int pass, bool vector)
{
    planner *pl = w->pl;
    group *g = w->g;
    emit *e = w->e;
    vir *k = w->k;
    int reds[MAX_MEMBERS], nred = 0, which[MAX_MEMBERS];
    bool any = false;

    w->pass = pass;
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        any |= f->level == pass && (f->red || (!f->outer && f->stored));
    }
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        if (f->red && f->level == pass) {
            which[nred] = i;
            reds[nred++] = vir_red(k, (vir_red_kind)f->rkind,
                                   f->rkind == RED_any ? VT_mask : loop_type(red_dtype(g->member[i])));
        }
    }
    int running[MAX_MEMBERS] = { 0 };
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        if (f->scan && f->level == pass)
            running[i] = vir_scan(k, (vir_red_kind)f->rkind, loop_type(scan_dtype(g->member[i])));
    }
    if (any) {
        for (int i = 0; i < t->nred; i++) {
            int v = t->red[i];
            bool vec = vector && i == t->nred - 1;
            declare_var(w, v,
                        vir_loop(k, vec ? LOOP_vector : LOOP_serial, vir_int(k, 0), emit_int(w, t->size[v])));
        }
        load_parked(w, pass);
        for (int i = 0; i < g->n; i++) {
            ir_node *n = g->member[i];
            info *f = &pl->in[n->id];
            if (f->level != pass || (f->outer && !f->red))
                continue;
            if (f->red) {
                int r = 0;
                while (which[r] != i)
                    r++;
                ir_node *x = n->arg[0].node;
                lin home[TP_MAX_DIMS];
                for (int d = 0; d < g->nd; d++)
                    along(g, d, &home[d]);
                vir_ref v = eval(w, x, home);
                dtype from = (dtype)ir_type(x)->dt;
                v = loop_convert(k, v, from, f->rkind == RED_any ? DT_bool : red_dtype(n));
                vir_step(k, reds[r], v, is_place(f->rkind) ? place_now(w, n, home) : 0);
            } else if (f->scan) {
                ir_node *x = n->arg[0].node;
                dtype wide = scan_dtype(n);
                bool place = is_place(f->rkind);
                lin home[TP_MAX_DIMS];
                for (int d = 0; d < g->nd; d++)
                    along(g, d, &home[d]);
                vir_ref v = loop_convert(k, eval(w, x, home), (dtype)ir_type(x)->dt, wide);
                if (place && dtype_is_float(wide) &&
                    dtype_size(wide) < 4) /* equal is what memory would hold */
                    v = vir_narrow(k, loop_mem(wide), v);
                vir_step(k, running[i], v, place ? place_now(w, n, home) : 0);
                v = vir_part(k, running[i], place);
                e->value[i] = place ? vir_cvt(k, VT_i64, v) : loop_convert(k, v, wide, (dtype)ir_type(n)->dt);
                e->value_pass[i] = pass;
                if (f->stored)
                    store_member(w, n, e->value[i]);
            } else if (f->stored) {
                vir_ref v = member_value(w, n);
                if (!f->last)
                    store_member(w, n, v);
            }
        }
        store_parked(w, pass);
        store_last(w);
        for (int i = 0; i < t->nred; i++)
            vir_end(k);
    }
    for (int r = 0; r < nred; r++) {
        ir_node *n = g->member[which[r]];
        vir_ref v = vir_fold(k, reds[r]);
        dtype at = pl->in[n->id].rkind == RED_any ? DT_bool : red_dtype(n);
        if (is_place(pl->in[n->id].rkind))
            e->value[which[r]] = vir_cvt(k, VT_i64, vir_part(k, reds[r], 1));
        else
            e->value[which[r]] = loop_convert(k, v, at, (dtype)ir_type(n)->dt);
        if (pl->in[n->id].stored)
            store_member(w, n, e->value[which[r]]);
    }
    for (int i = 0; i < g->n; i++) { /* what follows from them, one value per row */
        ir_node *n = g->member[i];
        info *f = &pl->in[n->id];
        if (!f->outer || f->red || f->level != pass)
            continue;
        e->value[i] = compute(w, n);
        if (f->stored)
            store_member(w, n, e->value[i]);
    }
}

static const char *kernel_name(planner *pl, const group *g)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "k%d_%s", pl->p->nkernel, g->red ? "red" : "fused");
    for (int i = 0, m = 0; i < g->n && m < 4; i++, m++)
        strbuf_addf(&b, "_%s", row_of(g->member[i])->name);
    char *s = arena_strdup(&pl->p->mem, strbuf_str(&b));
    strbuf_free(&b);
    return s;
}

/* May the kernel run on rows of a product as they are finished? Step i of its parallel loop must be row i. */
static bool rides(const walk *w, const nest *t, bool red, const ir_node *product)
{
    const tp_tensor *c = ir_type(product);
    symint len = row_of_product(product), run = len;
    int nouter = t->nkeep - !red, inner = red ? t->red[0] : t->nkeep ? t->keep[t->nkeep - 1] : -1;
    bool read = false;
    if (t->column || inner < 0 || (red && t->nred != 1))
        return false;
    bool flat = !red && nouter == 0;
    if (!flat && !sym_known(SYM_eq, t->size[inner], len))
        return false;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (a->n && a->n != product && behind_views((ir_node *)a->n) == product)
            return false;
        if (a->n != product)
            continue;
        read = true;
        if (a->raw || a->at.opaque || a->at.k != 0 || stride_in(&a->at, inner) != 1)
            return false;
        run = len;
        for (int k = nouter - 1; k >= 0; k--) {
            if (!sym_known(SYM_eq, stride_in(&a->at, t->keep[k]), run))
                return false;
            run = sym_mul(run, t->size[t->keep[k]]);
        }
    }
    return read && sym_known(SYM_eq, flat ? t->size[inner] : run, c->numel);
}

/* Does the kernel write its row i where it reads row i of the product, each counted in its own memory? */
static bool same_rows(const walk *w, const ir_node *product, const ir_node *to)
{
    const lin *at = NULL;
    for (size_t i = 0; i < w->seen.n && !at; i++)
        if (w->seen.at[i].to == to)
            at = &w->seen.at[i].at;
    for (size_t i = 0; i < w->seen.n && at; i++)
        if (w->seen.at[i].n == product && !lin_equal(&w->seen.at[i].at, at))
            at = NULL;
    return at != NULL;
}

/* Does the kernel read x only where it writes n, and is all of it there? */
static bool reads_where_written(const walk *w, const ir_node *x, const ir_node *n)
{
    if (!ir_type_equal(&x->val, &n->val) || !tensor_is_dense(ir_type(x)) || !same_rows(w, x, n))
        return false;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (a->at.opaque && (a->n == x || a->to == n))
            return false;
        if (a->n && a->n != x && behind_views((ir_node *)a->n) == x)
            return false;
    }
    return true;
}

static bool reads_any(const walk *w, const ir_node *x)
{
    for (size_t i = 0; i < w->seen.n; i++)
        if (w->seen.at[i].n && behind_views((ir_node *)w->seen.at[i].n) == x)
            return true;
    return false;
}

/* New values of inputs, and the last value of the kernel that has a reader, may lie where it reads. In one pass: another
 * would read what was written over. */
static void find_over(planner *pl, const group *g, const walk *w)
{
    for (int i = 0; i < g->n; i++) {
        const info *f = &pl->in[g->member[i]->id];
        if (f->level || f->put)
            return;
    }
    if (g->scan || g->part)
        return;
    bool found = false;
    for (int i = g->n - 1; i >= 0; i--) {
        ir_node *n = g->member[i];
        info *f = &pl->in[n->id];
        if (!f->stored || f->outer || (found && !f->into) || !decide(pl->c, DECIDE_inplace, n))
            continue;
        for (size_t k = 0; k < w->loads.n; k++) {
            ir_node *x = w->loads.at[k];
            bool input = x->kind == IR_placeholder;
            if ((f->into ? x != f->into
                         : input || pl->in[x->id].ext != pl->in[x->id].product || !pl->in[x->id].sched) ||
                !reads_where_written(w, x, n))
                continue;
            vec_push(&pl->over, ((over){ n, x, -1 }));
            f->last = found = true;
        }
        if (f->into && !f->last && !reads_any(w, f->into)) { /* written without being read: a copy, a fill */
            vec_push(&pl->over, ((over){ n, f->into, -1 }));
            f->last = found = true;
        }
    }
}

enum { CHAIN_BETWEEN = 2 };
typedef struct chain { /* a product or two, a kernel on their rows, and products of those rows */
    group *kernel, *first;
    group *also;                     /* the second product that the kernel reads; NULL: there is none */
    ir_node *between[CHAIN_BETWEEN]; /* what the kernel writes and only the last products read */
    group *last[CHAIN_LASTS];
    uint8_t how[CHAIN_LASTS]; /* see loop_step */
    int nbetween, nlast;
    bool fits;
    int64_t reach; /* see loop_step */
} chain;

static int slot_of(planner *pl, ir_node *n);
/* Before the kernel that was surveyed runs: are its indices inside? In front of the product, where it runs on its rows. */
static void write_checks(planner *pl, bool rides)
{
    loop_plan *p = pl->p;
    for (size_t i = 0; i < pl->check.n; i++) {
        ir_node *n = pl->check.at[i];
        loop_gather g;
        if (pl->in[n->id].checked || !loop_gather_of(n, &g))
            continue;
        pl->in[n->id].checked = true;
        for (int d = 0; d < g.n; d++) {
            if (!g.d[d].index || counts_up(pl, g.d[d].index, ir_type(n->arg[0].node)->size[d]))
                continue;
            loop_step s = { .kind = STEP_check, .node = n, .slot = slot_of(pl, g.d[d].index), .nslot = d };
            vec_push(&p->step, s);
            if (rides) {
                p->step.at[p->step.n - 1] = p->step.at[p->step.n - 2];
                p->step.at[p->step.n - 2] = s;
            }
        }
    }
}

/* An operand that is walked across while results are walked along: which loop walks along it? -1: there is none. And how
 * many elements of the result are made before it goes on there: as many lines as the first cache holds, which are few where
 * they lie a multiple of a large power of two apart; 0: what is read stays in cache anyway. */
static int crossed(const walk *w, const nest *t, int along, int *strip)
{
    enum { FEW = 16, MANY = 64, STAYS = 1 << 15 };
    for (size_t i = 0; i < w->seen.n; i++) {
        const lin *a = &w->seen.at[i].at;
        int64_t stride = w->seen.at[i].raw || a->opaque ? 0 : llabs(hint(stride_in(a, along)));
        for (int q = 0; stride >= FEW && q < t->nkeep; q++)
            if (t->keep[q] != along && stride_in(a, t->keep[q]) == 1 && hint(t->size[t->keep[q]]) >= 8) {
                bool stays = hint(t->size[t->keep[q]]) * hint(t->size[along]) < STAYS;
                *strip = stays ? 0 : stride % 256 == 0 ? FEW : MANY;
                return q;
            }
    }
    return -1;
}

static bool write_kernel(planner *pl, group *g, const ir_node *product, bool *fits, chain *ch);

/* What is drawn in loops that do not count through its sequence, where every lane would make a block of its own; or NULL. */
static ir_node *drawn_apart(const group *g, const walk *w, const nest *t)
{
    bool keep = t->nkeep && (!g->red || t->column);
    int v = keep ? t->keep[t->nkeep - 1] : t->nred ? t->red[t->nred - 1] : -1;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (!a->drawn || w->pl->in[a->drawn->id].sched || hint(ir_type(a->drawn)->numel) < 256)
            continue;
        int64_t block = block_of(a->drawn);
        bool apart = v < 0 || a->at.opaque || stride_in(&a->at, v) != 1 || sym_is_expr(a->at.k) ||
                     a->at.k % block;
        for (int k = 0; k < t->nkeep + t->nred && !apart; k++) {
            int u = k < t->nkeep ? t->keep[k] : t->red[k - t->nkeep];
            symint step = stride_in(&a->at, u);
            apart = u != v && (sym_is_expr(step) || step % block);
        }
        if (apart)
            return a->drawn;
    }
    return NULL;
}

/* A kernel that draws n into memory, in front of the kernel being written and of the product on whose rows that one runs. */
static bool write_drawn(planner *pl, ir_node *n, bool rides)
{
    const tp_tensor *t = ir_type(n);
    info *f = &pl->in[n->id];
    group *g = ARENA_NEW(&pl->tmp, group);
    *g = (group){ .id = (int)pl->groups.n, .nd = t->ndim, .member = { n }, .n = 1 };
    memcpy(g->size, t->size, sizeof(symint) * (size_t)t->ndim);
    f->sched = f->stored = true;
    f->g = g;
    f->level = 0;
    size_t over = pl->over.n;
    if (!write_kernel(pl, g, NULL, NULL, NULL))
        return false;
    pl->over.n = over; /* it has memory of its own, whatever its place among the steps */
    if (rides) {
        loop_step *s = &pl->p->step.at[pl->p->step.n - 2], last = s[1];
        s[1] = s[0];
        s[0] = last;
    }
    return true;
}

/* fits, where given: the kernel is to run on the rows of a product; false there: it cannot, nothing was written. */
static bool write_kernel(planner *pl, group *g, const ir_node *product, bool *fits, chain *ch)
{
    loop_plan *p = pl->p;
    tp_err *err = pl->c->err;
    space s;
    walk w;
    nest t;
    bool ok = false;
    emit e = { 0 };
    vir_ref var[MAX_VARS] = { 0 };
    vir_ref value[MAX_MEMBERS] = { 0 };
    int value_pass[MAX_MEMBERS], passes = 1;
    ir_node *park[MAX_MEMBERS] = { 0 };
    int park_first[MAX_MEMBERS], park_last[MAX_MEMBERS];

again:
    space_init(&s, g);
    if (!survey(pl, g, &s, &w)) {
        vec_free(&w.seen);
        vec_free(&w.loads);
        return err_set(err, ERR_internal, "the loops of group %d do not fit together", g->id);
    }
    symint vsize[MAX_VARS];
    memcpy(vsize, s.size, sizeof vsize); /* before merging: index arithmetic needs the parts */
    make_nest(pl, g, &s, &w, &t);
    if (product)
        *fits = g->rides = rides(&w, &t, g->red != 0, product);
    if (product && *fits && ch && ch->kernel == g) {
        const ir_node *other = ch->also ? ch->first->ext : product;
        ch->fits = other == product || rides(&w, &t, g->red != 0, other);
        for (int i = 0; i < ch->nbetween; i++)
            ch->fits &= same_rows(&w, product, ch->between[i]) && same_rows(&w, other, ch->between[i]);
    }
    int strip = 0, cross = -1;
    if (!g->red && !product && t.nkeep > 1 && pl->c->loops != LOOPS_whole)
        cross = crossed(&w, &t, t.keep[t.nkeep - 1], &strip);
    if (pl->c->loops >= LOOPS_strips_16)
        strip = pl->c->loops == LOOPS_strips_16 ? 16 : 64;
    cross = cross >= 0 && strip && hint(t.size[t.keep[t.nkeep - 1]]) > strip ? cross : -1;
    ir_node *drawn = product && !*fits ? NULL : drawn_apart(g, &w, &t);
    size_t over_from = pl->over.n;
    if (!drawn && (!product || *fits))
        find_over(pl, g, &w);
    vec_free(&w.seen);
    vec_free(&w.loads);
    if (product && !*fits)
        return true;
    if (drawn) {
        if (!write_drawn(pl, drawn, product != NULL))
            return false;
        goto again;
    }
    if (cross >= 0) { /* next to the vectors, whatever its place */
        int v = t.keep[cross];
        memmove(&t.keep[cross], &t.keep[cross + 1], sizeof *t.keep * (size_t)(t.nkeep - 2 - cross));
        t.keep[t.nkeep - 2] = v;
    }
    for (int i = 0; i < g->n; i++) {
        value_pass[i] = -1;
        passes = MAX(passes, pl->in[g->member[i]->id].level + 1);
    }
    vir *k = vir_make_in(&p->mem, kernel_name(pl, g), &pl->room);
    k->ways = pl->c->unroll;
    loop_kernel *lk = ARENA_NEW(&p->mem, loop_kernel);
    e.k = k;
    e.out = lk;
    e.value = value;
    e.value_pass = value_pass;
    e.park = park;
    e.park_first = park_first;
    e.park_last = park_last;
    w = (walk){ .pl = pl,
                .g = g,
                .vsize = vsize,
                .nvar = s.nvar,
                .split_var = 0,
                .k = k,
                .var = var,
                .merged = t.merged,
                .out = lk,
                .e = &e };
    space_now = &s;

    /* kept loops: all but the vector one are one parallel loop whose counter is taken apart */
    bool put = pl->in[g->member[0]->id].put && g->part == 2;
    bool vec_keep = t.nkeep && (!g->red || t.column);
    bool strips = cross >= 0;
    int nouter = t.nkeep - (vec_keep ? 1 : 0) - (strips ? 1 : 0);
    symint outer = 1, chunks = 1;
    for (int i = 0; i < nouter; i++)
        outer = sym_mul(outer, t.size[t.keep[i]]);
    int vv = vec_keep ? t.keep[t.nkeep - 1] : -1;
    symint len = put ? PUT_CHUNK : CHUNK;
    bool chunked = vec_keep && hint(t.size[vv]) > len;
    if (product && vec_keep) {
        len = row_of_product(product);
        chunked = nouter == 0;
    }
    if (strips) {
        len = strip;
        chunked = true;
    }
    if (chunked)
        chunks = sym_floordiv(sym_add(t.size[vv], sym_sub(len, 1)), len);
    symint par = sym_mul(outer, chunks);
    vir_ref counter = vir_loop(k, LOOP_parallel, vir_int(k, 0), emit_int(&w, par));
    vir_ref rest = counter, chunk = 0;
    if (chunked) {
        vir_ref nc = emit_int(&w, chunks);
        if (outer == 1)
            chunk = counter;
        else {
            chunk = vir_modf(k, counter, nc);
            rest = vir_divf(k, counter, nc);
        }
    }
    for (int i = nouter - 1; i >= 0; i--) {
        int v = t.keep[i];
        if (i == 0)
            declare_var(&w, v, rest);
        else {
            vir_ref sz = emit_int(&w, t.size[v]);
            declare_var(&w, v, vir_modf(k, rest, sz));
            rest = vir_divf(k, rest, sz);
        }
    }
    for (int i = 0; i < t.nred && put; i++) /* around the vectors: memory is walked row by row */
        declare_var(&w, t.red[i], vir_loop(k, LOOP_serial, vir_int(k, 0), emit_int(&w, t.size[t.red[i]])));
    if (strips)
        declare_var(&w, t.keep[nouter],
                    vir_loop(k, LOOP_serial, vir_int(k, 0), emit_int(&w, t.size[t.keep[nouter]])));
    if (vec_keep) {
        vir_ref lo = vir_int(k, 0), hi = emit_int(&w, t.size[vv]);
        if (chunked) {
            lo = vir_mul(k, chunk, emit_int(&w, len));
            hi = vir_min(k, vir_add(k, lo, emit_int(&w, len)), hi);
        }
        declare_var(&w, vv, vir_loop(k, LOOP_vector, lo, hi));
    }
    if (put) {
        lin home[TP_MAX_DIMS];
        member_index(&w, g->member[0], home);
        w.self = g->member[0];
        eval_put(&w, g->member[0], home);
        for (int i = 0; i < t.nred; i++)
            vir_end(k);
    } else if (!g->red) {
        w.pass = 0;
        for (int i = 0; i < g->n; i++)
            if (pl->in[g->member[i]->id].stored) {
                vir_ref v = member_value(&w, g->member[i]);
                if (!pl->in[g->member[i]->id].last)
                    store_member(&w, g->member[i], v);
            }
        store_last(&w);
    } else {
        symint row = 1;
        for (int i = 0; i < t.nred; i++)
            row = sym_mul(row, t.size[t.red[i]]);
        if (passes > 1 && passes < 32)
            park_members(&w, hint(row));
        for (int pass = 0; pass < passes; pass++)
            emit_pass(&w, &t, pass, !vec_keep);
    }
    for (int i = 0; i < 1 + vec_keep + strips; i++)
        vir_end(k);
    if (err->kind == ERR_compiler)
        goto done;
    if (w.fail || e.overflow) {
        err_set(err, ERR_internal, "kernel '%s' has too many buffers or indices", k->name);
        goto done;
    }
    if (!vir_finish(k, err)) {
        err_note(err, "finishing kernel '%s'", k->name);
        goto done;
    }
    lk->k = k;
    lk->name = k->name;
    lk->nbuf = e.nbuf;
    lk->buf = ARENA_ARR(&p->mem, int, MAX(e.nbuf, 1));
    for (int i = 0; i < e.nbuf; i++) {
        lk->buf[i] = slot_of(pl, e.buf_node[i]);
        lk->bytes += MAX(hint(ir_type(e.buf_node[i])->numel), 1) *
                     (int64_t)dtype_size((dtype)ir_type(e.buf_node[i])->dt);
    }
    lk->nint = (int)e.ints.n;
    lk->ints = arena_dup(&p->mem, e.ints.at, sizeof(symint) * e.ints.n);
    lk->par = par;
    symint work = 1;
    for (int i = 0; i < t.nred; i++)
        work = sym_mul(work, t.size[t.red[i]]);
    if (vec_keep)
        work = sym_mul(work, chunked ? len : t.size[vv]);
    if (strips)
        work = sym_mul(work, t.size[t.keep[nouter]]);
    lk->work = work;
    for (int i = 0; i < g->n; i++)
        vec_push(&lk->nodes, (const ir_node *)g->member[i]);
    write_checks(pl, product != NULL);
    vec_push(&p->step, ((loop_step){ .kind = STEP_kernel, .kernel = lk, .rides = product != NULL }));
    for (size_t i = over_from; i < pl->over.n; i++)
        pl->over.at[i].step = (int)p->step.n - 1;
    p->nkernel++;
    ok = true;
done:
    vec_free(&e.ints);
    vec_free(&e.int_ref);
    return ok;
}

static bool write_group(planner *pl, group *g)
{
    ir_node *n = g->n == 1 ? g->member[0] : NULL;
    if (n && pl->in[n->id].put) {
        group copy = put_part(g, n, 0), put = put_part(g, n, 1);
        return write_kernel(pl, &copy, NULL, NULL, NULL) && write_kernel(pl, &put, NULL, NULL, NULL);
    }
    if (!n || g->red || part_count(n) < 2 || !decide(pl->c, DECIDE_fuse, n))
        return write_kernel(pl, g, NULL, NULL, NULL);
    for (int i = 0; i < part_count(n); i++) {
        group part = *g;
        part.part = i + 1;
        part.size[part_dim(n)] = part_size(n, i);
        if (part_size(n, i) != 0 && !write_kernel(pl, &part, NULL, NULL, NULL))
            return false;
    }
    return true;
}

/* Whoever looks for a miscompile can have the library's products and loops instead. */
static bool refuses_tiles(planner *pl, const ir_node *n)
{
    if (n->kind != IR_call || decide(pl->c, DECIDE_tile, n))
        return false;
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s runs without emitted tiles: refused", n->name);
    return true;
}
static bool has_tiles(const ir_node *n)
{
    return n->kind == IR_call &&
           (n->op == OP_mm || n->op == OP_bmm || n->op == OP_addmm || n->op == OP_baddbmm ||
            n->op == OP_convolution || n->op == OP_convolution_backward);
}

static bool reserves(const group *g)
{
    return g->ext && g->ext->kind == IR_call && g->ext->op == OP__rng_reserve;
}
static void write_call(planner *pl, const group *g, bool own)
{
    loop_step s = { .kind = STEP_extern,
                    .product = own,
                    .plain = has_tiles(g->ext) && refuses_tiles(pl, g->ext),
                    .node = g->ext,
                    .slot = slot_of(pl, g->ext),
                    .nslot = 1 };
    vec_push(&pl->p->step, s);
    pl->p->nextern += !own;
    pl->p->nproduct += own;
}

/* Small things that what follows a product also needs (a mask, a place to draw from) come before it, so that it may run on its
 * rows. */
static bool write_needed(planner *pl, const group *g, const int *order, size_t at, uint64_t *written)
{
    for (size_t i = at + 1; i < pl->groups.n; i++) {
        const group *h = pl->groups.at[order[i]];
        int missing = 0;
        if (h->ext || !bit_has(h->before, g->id) || bit_has(written, h->id) || pl->writes[h->id])
            continue;
        for (int q = 0; q < pl->words; q++)
            for (uint64_t left = h->before[q] & ~written[q]; left && missing <= 2; left &= left - 1) {
                const group *m = pl->groups.at[q * 64 + __builtin_ctzll(left)];
                if (m != g)
                    missing += bit_has(m->before, g->id) ? 3 : reserves(m) ? 0 : m->ext ? 3 : 1;
            }
        if (missing > 2)
            continue;
        for (size_t k = at + 1; k < i; k++) { /* in their order */
            group *m = pl->groups.at[order[k]];
            if (!bit_has(h->before, m->id) || bit_has(written, m->id))
                continue;
            bit_set(written, m->id);
            if (m->ext)
                write_call(pl, m, false);
            else if (!write_group(pl, m))
                return false;
        }
        return true;
    }
    return true;
}

/* What follows a product and needs nothing later may run on its rows while they are in cache. */
static bool write_riders(planner *pl, group *g, const int *order, size_t at, uint64_t *written, chain *ch)
{
    for (size_t i = at + 1; i < pl->groups.n; i++) {
        group *h = pl->groups.at[order[i]];
        bool fits = false;
        if (h->ext || !bit_has(h->before, g->id) || bit_has(written, h->id) || pl->writes[h->id] ||
            !bits_within(h->before, written, NULL, pl->words))
            continue;
        const char *why = "its rows are not the product's";
        if (h->n == 1 && (pl->in[h->member[0]->id].put || part_count(h->member[0])))
            continue;
        if (!decide(pl->c, DECIDE_fuse, h->member[0]))
            why = "refused";
        else if (!write_kernel(pl, h, g->ext, &fits, ch))
            return false;
        log_fusion(pl, h->member[0], g, fits, fits ? "on the rows of the product" : why);
        if (fits) {
            bit_set(written, h->id);
            pl->p->nfused++;
            return true;
        }
    }
    return true;
}

/* ---- attention: two products with a kernel between them ---- */
static bool used_outside(planner *pl, const group *g, ir_node *n);

static bool is_plain_bmm(planner *pl, const ir_node *n)
{
    return n && n->kind == IR_call && n->op == OP_bmm && pl->in[n->id].product &&
           n->arg[0].kind == VAL_node && n->arg[1].kind == VAL_node;
}

static bool in_chain(const chain *ch, const group *g)
{
    bool in = g == ch->first || g == ch->kernel || g == ch->also;
    for (int i = 0; i < ch->nlast; i++)
        in |= g == ch->last[i];
    return in;
}

/* The products that read n, through views, each as one factor. False: somebody outside the kernel does, too. */
static bool only_products(planner *pl, ir_node *n, const tp_tensor *rows, chain *ch)
{
    if (!n->uses)
        return false;
    for (const ir_use *use = n->uses; use; use = use->next) {
        ir_node *u = use->user;
        const info *f = &pl->in[u->id];
        if (f->product) {
            const tp_tensor *t = ir_type(n);
            bool second = is_plain_bmm(pl, u) && u->arg[1].node == n, plain = t->ndim == 3 && is_packed(t);
            symint turned[3] = { rows->size[0], rows->size[2], rows->size[1] };
            if (!is_plain_bmm(pl, u) || in_chain(ch, f->g) || ch->nlast == CHAIN_LASTS ||
                !same_sizes(3, t->size, 3, plain ? rows->size : turned) ||
                (!plain && (t->stride[1] != 1 || !sym_known(SYM_eq, t->stride[2], rows->size[2]) ||
                            !sym_known(SYM_eq, t->stride[0], sym_mul(rows->size[1], rows->size[2])))))
                return false;
            ch->how[ch->nlast] = (uint8_t)(CHAIN_product | (plain == second ? CHAIN_adds : 0) |
                                           (second ? CHAIN_second : 0));
            ch->last[ch->nlast++] = f->g;
            continue;
        }
        if (f->g == ch->kernel ||
            (!f->sched && !f->memview && u->kind == IR_call && u->nuse && !used_outside(pl, ch->kernel, u)))
            continue;
        if (f->sched || f->ext || u->kind != IR_call || !(row_of(u)->flags & OPF_VIEW) ||
            u->arg[0].node != n || !only_products(pl, u, rows, ch))
            return false;
    }
    return true;
}

static ir_node *operand(const ir_node *n, int i)
{
    return n->arg[i].kind == VAL_node ? n->arg[i].node : NULL;
}
static bool calls(const ir_node *n, op_id op)
{
    return n && n->kind == IR_call && n->variant == OPV_fn && n->op == op;
}

/* Where a condition on the places of a matrix holds: up to the diagonal `diag`, or from it on. */
struct band {
    bool up_to;
    int64_t diag;
};
static band band_not(band b) { return (band){ !b.up_to, b.up_to ? b.diag + 1 : b.diag - 1 }; }

static bool band_of(const ir_node *n, band *b)
{
    bool flip = false;
    for (; n; n = operand(n, 0)) {
        bool zero = (calls(n, OP_eq_Tensor) || calls(n, OP_ne_Tensor)) && is_known_number(&n->arg[1]) &&
                    val_as_f(&n->arg[1]) == 0;
        if (calls(n, OP_logical_not) || (zero && n->op == OP_eq_Tensor) ||
            (calls(n, OP_bitwise_not) && ir_type(n)->dt == DT_bool))
            flip = !flip;
        else if (!zero && !(calls(n, OP_to_dtype) && ir_type(n)->dt == DT_bool))
            break;
    }
    const ir_node *ones = n && is_tri(n) ? operand(n, 0) : NULL;
    if (!ones || !is_fill(ones) || ir_type(n)->ndim != 2)
        return false;
    tp_val one = fill_value(ones);
    symint diag = n->arg[1].i;
    if (!is_known_number(&one) || val_as_f(&one) == 0 || sym_is_expr(diag) || diag < -INT32_MAX ||
        diag > INT32_MAX)
        return false;
    if (!b)
        return true;
    *b = (band){ n->op == OP_tril, diag };
    if (flip)
        *b = band_not(*b);
    return true;
}

/* What is known of the elements of a value behind a diagonal, whatever the products that the kernel reads hold there: nothing;
 * that they are finite where the products are, or left at 0; that they do not depend on the products; which number they are. */
typedef enum { BEHIND_wild, BEHIND_open, BEHIND_known, BEHIND_zero, BEHIND_lowest } behind;
typedef struct behinds {
    planner *pl;
    const chain *ch;
    const tp_tensor *t; /* of the products */
    map seen;           /* node -> behind + 1 */
    int64_t diag;       /* the farthest of those that conditions name; -1: none does */
    bool open;          /* a sum or an extreme reads what depends on them */
    bool adds;          /* a product of the chain is a sum over rows */
} behinds;
static behind behind_of(behinds *b, ir_node *n);

static behind behind_value(behinds *b, const tp_val *v)
{
    tp_val x = v->kind == VAL_node && is_fill(v->node) ? fill_value(v->node) : *v;
    if (is_known_number(&x))
        return val_as_f(&x) == 0 ? BEHIND_zero : val_as_f(&x) == -INFINITY ? BEHIND_lowest : BEHIND_known;
    return v->kind == VAL_node ? behind_of(b, v->node) : BEHIND_known;
}

static bool has_rows(const behinds *b,
                     const ir_node *n) /* its last two dimensions are those of the products */
{
    const tp_tensor *t = ir_type(n);
    return t->ndim >= 2 && same_sizes(2, t->size + t->ndim - 2, 2, b->t->size + 1);
}

/* Is x one of the products times a number? Its maximum along a row is no -inf then. */
static bool is_scaled_product(const behinds *b, const ir_node *x)
{
    while (x && x != b->ch->first->ext && (!b->ch->also || x != b->ch->also->ext)) {
        bool scaled = (calls(x, OP_mul_Tensor) || calls(x, OP_div_Tensor)) && is_known_number(&x->arg[1]);
        x = scaled || calls(x, OP_view) ? operand(x, 0) : NULL;
    }
    return x != NULL;
}

/* A choice by a condition on places: what is chosen behind its diagonal. */
static behind behind_choice(behinds *b, const ir_node *n)
{
    bool where = calls(n, OP_where_self);
    const tp_val *yes = &n->arg[where ? 1 : 2], *no = &n->arg[where ? 2 : 0];
    const ir_node *cond = operand(n, where ? 0 : 1);
    behind y = behind_value(b, yes), x = behind_value(b, no);
    band at;
    if (!cond || !band_of(cond, &at) || !has_rows(b, cond) || !has_rows(b, n)) {
        if (!cond || behind_of(b, (ir_node *)cond) < BEHIND_known)
            return BEHIND_wild;
        return x == y ? x : MIN(MIN(x, y), BEHIND_known);
    }
    behind is = at.up_to ? x : y;
    int64_t diag = at.up_to ? at.diag : at.diag - 1;
    const tp_val *kept = at.up_to ? yes : no;
    /* A row of nothing but -inf is NaN behind the diagonal as well, and so are gradients that are sums over rows. */
    if (is == BEHIND_lowest && b->adds && (kept->kind != VAL_node || !is_scaled_product(b, kept->node)))
        return BEHIND_wild;
    if (diag < 0)
        return x == y ? x : BEHIND_wild;
    if (is >= BEHIND_known)
        b->diag = MAX(b->diag, diag);
    return is;
}

static behind behind_call(behinds *b, const ir_node *n)
{
    behind x = BEHIND_known, y = BEHIND_known, all = BEHIND_known;
    if (calls(n, OP_where_self) || calls(n, OP_masked_fill_Scalar))
        return behind_choice(b, n);
    for (int i = n->narg - 1; i >= 0; i--) {
        behind k = n->arg[i].kind == VAL_node ? behind_value(b, &n->arg[i]) : BEHIND_known;
        for (int q = 0; n->arg[i].kind == VAL_nodes && q < n->arg[i].n; q++)
            if (n->arg[i].nodes[q] && behind_of(b, n->arg[i].nodes[q]) < BEHIND_known)
                k = BEHIND_wild;
        all = MIN(all, k);
        y = i == 1 ? k : y;
        x = i == 0 ? k : x;
    }
    bool view = row_of(n)->flags & OPF_VIEW, zero = x == BEHIND_zero || y == BEHIND_zero;
    if (calls(n, OP_mul_Tensor))
        return zero && all >= BEHIND_open ? BEHIND_zero : all;
    if (calls(n, OP_div_Tensor) && y >= BEHIND_known)
        return x == BEHIND_zero ? x : all;
    if (calls(n, OP_sub_Tensor) || calls(n, OP_add_Tensor))
        return x == y && zero ? x : x == BEHIND_lowest && y == BEHIND_known ? x : all;
    if (calls(n, OP_exp) && x == BEHIND_lowest)
        return BEHIND_zero;
    if (calls(n, OP_neg) && x != BEHIND_lowest)
        return x;
    if ((view || is_copy(n)) && x != BEHIND_known)
        return has_rows(b, n) && (!view || calls(n, OP_view)) ? x : BEHIND_wild;
    return all < BEHIND_known ? BEHIND_wild : BEHIND_known;
}

static behind behind_of(behinds *b, ir_node *n)
{
    uintptr_t had = (uintptr_t)map_geti(&b->seen, (uintptr_t)n);
    const info *f = &b->pl->in[n->id];
    behind is = BEHIND_known;
    if (had)
        return (behind)(had - 1);
    if (n == b->ch->first->ext || (b->ch->also && n == b->ch->also->ext))
        is = BEHIND_open;
    else if (n->kind == IR_call && f->red && f->g == b->ch->kernel) {
        ir_node *x = operand(n, 0);
        b->open |= !x || f->mask != 1u << (ir_type(x)->ndim - 1) || behind_of(b, x) < BEHIND_known;
    } else if (n->kind == IR_call && (!f->sched || f->g == b->ch->kernel))
        is = behind_call(b, n);
    map_puti(&b->seen, (uintptr_t)n, (void *)(uintptr_t)(is + 1));
    return is;
}

/* Is all that the kernel writes 0 behind some diagonal, as the probabilities of causal attention and their gradients are, whatever
 * the products hold there? Row r needs its first r + reach elements alone then; 0: no such thing is known. */
static int64_t reach_of_rows(planner *pl, const chain *ch)
{
    behinds b = { .pl = pl, .ch = ch, .t = ir_type(ch->first->ext), .diag = -1 };
    bool zero = true;
    for (int i = 0; i < ch->nlast; i++)
        b.adds |= (ch->how[i] & CHAIN_adds) != 0;
    for (int m = 0; m < ch->kernel->n; m++) {
        ir_node *n = ch->kernel->member[m];
        behind is = behind_of(&b, n);
        if (pl->in[n->id].stored && !pl->in[n->id].outer)
            zero &= is == BEHIND_zero && has_rows(&b, n);
    }
    map_free(&b.seen);
    return zero && !b.open && b.diag >= 0 && decide(pl->c, DECIDE_range, ch->between[0]) ? b.diag + 1 : 0;
}

/* Another product whose rows only the kernel reads. */
static group *other_product(planner *pl, const group *g, const group *kernel, const uint64_t *written)
{
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *h = pl->groups.at[i];
        const tp_tensor *t = h->ext ? ir_type(h->ext) : NULL;
        if (h != g && t && bit_has(kernel->before, h->id) && !bit_has(written, h->id) && h->ext->nuse &&
            is_plain_bmm(pl, h->ext) && is_packed(t) && same_sizes(3, t->size, 3, ir_type(g->ext)->size) &&
            t->dt == ir_type(g->ext)->dt && !used_outside(pl, kernel, h->ext))
            return h;
    }
    return NULL;
}

/* What product g could be the first of. */
static chain find_chain(planner *pl, group *g, const uint64_t *written)
{
    ir_node *n = g->ext;
    chain none = { 0 };
    if (!is_plain_bmm(pl, n) || !is_packed(ir_type(n)))
        return none;
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *h = pl->groups.at[i];
        chain ch = { .kernel = h, .first = g };
        if (h->ext || !h->n || !bit_has(h->before, g->id) || used_outside(pl, h, n))
            continue;
        for (int m = 0; m < h->n; m++) {
            ir_node *s = h->member[m];
            if (!pl->in[s->id].stored || pl->in[s->id].outer)
                continue;
            if (ch.nbetween == CHAIN_BETWEEN || ir_type(s)->dt != ir_type(n)->dt || !is_packed(ir_type(s)) ||
                !only_products(pl, s, ir_type(n), &ch))
                return none; /* one of them would have to exist as a whole anyway */
            ch.between[ch.nbetween++] = s;
        }
        if (!ch.nlast)
            return none;
        ch.also = other_product(pl, g, h, written);
        ch.reach = reach_of_rows(pl, &ch);
        return ch;
    }
    return none;
}

static bool chain_needs(const chain *ch, int id)
{
    bool needs = bit_has(ch->kernel->before, id) || (ch->also && bit_has(ch->also->before, id));
    for (int i = 0; i < ch->nlast; i++)
        needs |= bit_has(ch->last[i]->before, id);
    return needs;
}

/* The other factors of the products must be there before the first one starts: small kernels are, by then. */
static bool write_factors(planner *pl, chain *ch, const int *order, uint64_t *written)
{
    for (int j = 0; j < (int)pl->groups.n; j++) {
        const group *m = pl->groups.at[j];
        if (!chain_needs(ch, j) || bit_has(written, j) || in_chain(ch, m))
            continue;
        if ((m->ext && !reserves(m)) || bit_has(m->before, ch->first->id)) {
            log_fusion(pl, ch->last[0]->ext, ch->first, false, "another step must come between the products");
            ch->kernel = NULL;
            return true;
        }
    }
    for (size_t i = 0; i < pl->groups.n; i++) { /* in their order */
        group *m = pl->groups.at[order[i]];
        if (!chain_needs(ch, m->id) || bit_has(written, m->id) || in_chain(ch, m))
            continue;
        bit_set(written, m->id);
        if (m->ext)
            write_call(pl, m, false);
        else if (!write_group(pl, m))
            return false;
    }
    return true;
}

/* The second product that the kernel reads, and the kernel on its rows. */
static bool write_also(planner *pl, chain *ch, uint64_t *written)
{
    loop_plan *p = pl->p;
    bool fits = false;
    size_t at = p->step.n - 1;
    bit_set(written, ch->also->id);
    write_call(pl, ch->also, true);
    if (!write_kernel(pl, ch->kernel, ch->also->ext, &fits, ch))
        return false;
    log_fusion(pl, ch->kernel->member[0], ch->also, fits,
               fits ? "on the rows of the product" : "its rows are not the product's");
    if (!fits)
        return true;
    bit_set(written, ch->kernel->id);
    p->nfused++;
    loop_step first = p->step.at[at]; /* whatever came between goes in front of both products */
    memmove(&p->step.at[at], &p->step.at[at + 1], sizeof first * (p->step.n - 3 - at));
    p->step.at[p->step.n - 3] = first;
    p->step.at[p->step.n - 3].joins = ch->fits;
    return true;
}

static void write_lasts(planner *pl, const chain *ch, uint64_t *written)
{
    pl->p->slot.at[slot_of(pl, ch->first->ext)].passing = true;
    if (ch->also)
        pl->p->slot.at[slot_of(pl, ch->also->ext)].passing = true;
    for (int i = 0; i < ch->nbetween; i++)
        pl->p->slot.at[slot_of(pl, ch->between[i])].passing = true;
    for (int i = 0; i < ch->nlast; i++) {
        ir_node *n = ch->last[i]->ext;
        int s = slot_of(pl, n);
        vec_push(&pl->p->step, ((loop_step){ .kind = STEP_extern,
                                             .product = true,
                                             .chain = ch->how[i],
                                             .node = n,
                                             .slot = s,
                                             .nslot = 1,
                                             .reach = ch->reach }));
        pl->p->nproduct++;
        pl->p->nfused++;
        bit_set(written, ch->last[i]->id);
    }
}

/* May its products run block by block? */
static bool chain_allowed(planner *pl, const chain *ch)
{
    bool ok = !ch->also || !refuses_tiles(pl, ch->also->ext);
    for (int i = 0; i < ch->nlast && ok; i++)
        ok = decide(pl->c, DECIDE_fuse, ch->last[i]->ext) && !refuses_tiles(pl, ch->last[i]->ext);
    return ok;
}

/* ---- putting it together ---- */
static bool used_outside(planner *pl, const group *g, ir_node *n)
{
    VEC(ir_node *) stack = { 0 };
    bool out = false;
    vec_push(&stack, n);
    while (stack.n && !out) { /* users, through values that are computed where they are used */
        ir_node *x = vec_pop(&stack);
        for (ir_use *u = x->uses; u && !out; u = u->next) {
            info *f = &pl->in[u->user->id];
            if (u->user->kind == IR_output || f->ext || u->user->kind == IR_opaque)
                out = true;
            else if (f->g)
                out = f->g != g;
            else if (f->memview)
                out = true;
            else
                vec_push(&stack, u->user);
        }
    }
    vec_free(&stack);
    return out;
}

typedef struct orderer {
    planner *pl;
    uint64_t *done,
        *floats; /* groups; floats: computed from inputs alone, so it can wait until it is wanted */
    int *order, n;
} orderer;

/* g after everything it needs, lowest number first: stable and close to program order. */
static void place(orderer *o, group *g)
{
    if (bit_has(o->done, g->id))
        return;
    int words = o->pl->words;
    for (int j = 0; j < (int)o->pl->groups.n && !bits_within(g->before, o->done, NULL, words);
         j++) /* `before` is transitive and numbers follow it among what waits */
        if (!bit_has(o->done, j) && j != g->id && bit_has(g->before, j) &&
            bits_within(o->pl->groups.at[j]->before, o->done, NULL, words)) {
            bit_set(o->done, j);
            o->order[o->n++] = j;
            j = -1; /* something lower may be ready now */
        }
    bit_set(o->done, g->id);
    o->order[o->n++] = g->id;
}

static void find_writers(planner *pl)
{
    int n = (int)pl->groups.n;
    bool *writes = pl->writes = ARENA_ARR(&pl->tmp, bool, MAX(n, 1));
    for (int i = 0; i < n; i++)
        for (int m = 0; m < pl->groups.at[i]->n && !pl->groups.at[i]->ext && !pl->groups.at[i]->red; m++)
            writes[i] |= pl->in[pl->groups.at[i]->member[m]->id].into != NULL;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n && writes[i]; j++)
                if (!writes[j] && bit_has(pl->groups.at[j]->before, i)) {
                    writes[i] = false;
                    more = true;
                }
    }
}

/* A product that takes more memory than its factors, which are there anyway. */
static bool is_wider(planner *pl, const ir_node *n)
{
    return is_plain_bmm(pl, n) && hint(ir_type(n)->numel) > hint(ir_type(n->arg[0].node)->numel) +
                                                                hint(ir_type(n->arg[1].node)->numel);
}

/* Program order, but what was moved to the backward pass to be computed again waits for its first user: computed early
 * it would only take memory. */
static void schedule_order(planner *pl, int *order)
{
    int n = (int)pl->groups.n;
    int words = pl->words;
    uint64_t *sets = mem_zalloc(sizeof *sets * 3 * (size_t)words), *followed = sets + 2 * words;
    orderer o = { pl, sets, sets + words, order, 0 };
    for (int i = 0; i < n; i++)
        for (int q = 0; q < words; q++)
            followed[q] |= pl->groups.at[i]->before[q];
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            group *g = pl->groups.at[i];
            bool call = g->ext && !(g->ext->kind == IR_call && (row_of(g->ext)->flags & OPF_VIEW)) &&
                        !is_wider(pl, g->ext);
            bool sum = g->red != 0 &&
                       !bit_has(followed, i); /* one that is only returned frees what it reads */
            if (call || sum || bit_has(o.floats, i) || !bits_within(g->before, o.floats, NULL, words))
                continue;
            more = true;
            bit_set(o.floats, i);
        }
    }
    find_writers(pl);
    for (int pass = 0; pass < 3; pass++) { /* new values of inputs come last */
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < n && !more;
                 i++) { /* lowest number first whose sources are there or can wait */
                if (bit_has(o.done, i) || (pass == 0 && bit_has(o.floats, i)) || (pass < 2 && pl->writes[i]))
                    continue;
                if (bits_within(pl->groups.at[i]->before, o.done, o.floats, words)) {
                    place(&o, pl->groups.at[i]);
                    more = true;
                }
            }
        }
    }
    assert(o.n == n);
    free(sets);
}

/* The slot whose memory this one looks at, or -1. Calls may return their first operand or views of it. */
static int looks_at(planner *pl, int slot)
{
    const loop_slot *s = &pl->p->slot.at[slot];
    if (s->over)
        return s->over - 1;
    if (s->kind == SLOT_view || (s->kind == SLOT_extern && s->index >= 0))
        return s->index;
    if (s->kind != SLOT_extern || s->node->narg < 1 || s->node->arg[0].kind != VAL_node)
        return -1;
    ir_node *a = s->node->arg[0].node;
    bool same = s->type && ir_type(a) && s->type->storage == ir_type(a)->storage;
    if (s->node->kind == IR_call && !same && !(row_of(s->node)->flags & OPF_VIEW))
        return -1;
    return slot_of(pl, a);
}

static void touch(planner *pl, int slot, int step)
{
    for (; slot >= 0; slot = looks_at(pl, slot))
        pl->p->slot.at[slot].last = MAX(pl->p->slot.at[slot].last, step);
}

typedef struct touching {
    planner *pl;
    int step;
} touching;
static void touch_operand(void *arg, ir_node *n)
{
    touching *t = arg;
    touch(t->pl, slot_of(t->pl, n), t->step);
}

/* The first of the steps that run together with step i: what one of them writes is written while it reads its operands. */
static int chain_start(const loop_plan *p, int i)
{
    while (p->step.at[i].chain)
        i--;
    i -= p->step.at[i].rides;
    return i - (i > 0 && p->step.at[i - 1].joins);
}

static void life_times(planner *pl)
{
    loop_plan *p = pl->p;
    for (int i = 0; i < (int)p->step.n; i++) {
        loop_step *s = &p->step.at[i];
        if (s->kind == STEP_kernel)
            for (int b = 0; b < s->kernel->nbuf; b++) {
                loop_slot *sl = &p->slot.at[s->kernel->buf[b]];
                if (sl->kind == SLOT_buffer && sl->first < 0)
                    sl->first = chain_start(p, i); /* written while the product reads its operands */
                touch(pl, s->kernel->buf[b], i);
            }
        else if (s->kind == STEP_check)
            touch(pl, s->slot, i);
        else {
            p->slot.at[s->slot].first = chain_start(p, i);
            touch(pl, s->slot, i);
            /* a call from outside may keep what it was given */
            touching t = { pl, s->node->kind == IR_call ? i : (int)p->step.n };
            ir_each_operand(s->node, touch_operand, &t);
        }
    }
}

typedef struct memory_use {
    planner *pl;
    int slot;
    bool found;
} memory_use;
static void uses_memory(void *arg, ir_node *n)
{
    memory_use *u = arg;
    for (int s = slot_of(u->pl, n); s >= 0; s = looks_at(u->pl, s))
        u->found |= s == u->slot;
}

/* Values that lie in the memory of another: of one that is read for the last time where they are written, or of an input
 * whose new value they are. Inputs are written when nothing can fail any more: a graph that fails has changed nothing. */
static void choose_over(planner *pl)
{
    loop_plan *p = pl->p;
    int nsteps = (int)p->step.n, safe = 0; /* the first step behind all that can fail */
    for (int i = 0; i < nsteps; i++)
        if (p->step.at[i].kind != STEP_kernel || p->step.at[i].rides || fault_state != 0)
            safe = i + 1;
    bool *taken = mem_zalloc(MAX(p->slot.n, (size_t)1));
    for (size_t i = 0; i < pl->over.n; i++) {
        over o = pl->over.at[i];
        int to = pl->in[o.n->id].slot - 1, of = slot_of(pl, o.x);
        loop_slot *t = &p->slot.at[to], *x = &p->slot.at[of];
        if (to < 0 || t->kind != SLOT_buffer || t->over || t->passing || taken[of])
            continue;
        if (x->kind == SLOT_input
                ? o.step < safe || x->last > o.step || x->output
                : x->kind != SLOT_buffer || x->output || x->passing || x->last != o.step || t->output)
            continue;
        if (p->step.at[o.step].rides) { /* the product reads its operands while rows are written */
            memory_use u = { pl, of, false };
            for (int k = chain_start(p, o.step); k < o.step; k++)
                ir_each_operand(p->step.at[k].node, uses_memory, &u);
            if (u.found)
                continue;
        }
        t->over = of + 1;
        taken[of] = true;
        touch(pl, of, t->last);
    }
    free(taken);
}

/* What becomes the value of which input: where nobody else is to have it. */
static void find_into(planner *pl)
{
    const ir_graph *g = pl->g;
    for (int i = 0; i < g->ninto; i++) {
        const tp_val *v = &g->output->arg[i];
        if (!g->into[i] || v->kind != VAL_node)
            continue;
        int returned = 0;
        for (const ir_use *u = v->node->uses; u; u = u->next)
            returned += u->user == g->output;
        ir_node *in = g->inputs.at[g->into[i] - 1];
        if (returned == 1 && ir_type(in) && ir_type_equal(&in->val, &v->node->val) &&
            tensor_is_dense(ir_type(in)))
            pl->in[v->node->id].into = in;
    }
}

static bool plant_lowering(tp_comp *c, const ir_graph *g) /* those that strike while compiling */
{
    char buf[64];
    IR_EACH (n, g) {
        fault_kind f = ir_fault_at("lower", n);
        if (f == FAULT_compile_error)
            err_set(c->err, ERR_compiler, "planted fault: '%s' cannot be lowered",
                    ir_stands_for(n, buf, sizeof buf));
        if (f == FAULT_compile_error ||
            (fault_is_sudden(f) && !fault_strike(f, ir_stands_for(n, buf, sizeof buf), c->err)))
            return fails_at(c->err, n);
    }
    return true;
}

/* Views, reductions, products and library calls: a copy of their result carries the fault, since kernels are made for that. */
static bool plant_carriers(tp_comp *c, ir_graph *g)
{
    char buf[64];
    for (ir_node *n = g->first, *next; n; n = next) {
        const char *op = ir_stands_for(n, buf, sizeof buf);
        ir_node *x = n->kind == IR_call || n->kind == IR_getitem ? n : NULL;
        next = n->next;
        if (!x || !fault_later(op) ||
            (n->kind == IR_call && (is_copy(n) || (row_of(n)->flags & OPF_PW && lower_of((op_id)n->op)))))
            continue;
        for (ir_use *u = n->uses; n->val.kind == VAL_tensors && u; u = u->next)
            if (u->user->kind == IR_getitem && (x == n || u->user->id < x->id))
                x = u->user; /* its first result */
        if (!ir_type(x))
            continue;
        char *name = mem_strdup(op);
        tp_val arg[2] = { { .kind = VAL_node, .node = x }, vNone };
        ir_node *copy = ir_build(g, OP_clone, OPV_fn, arg, 2, c->err);
        if (copy) {
            if (x->next != copy)
                ir_insert_before(g, x->next, copy);
            ir_replace_uses(x, copy);
            ir_set_arg(copy, 0, arg[0]);
            copy->loc = n->loc;
            ir_stand_for(copy, name);
            ir_stand_for(n, "");
            if (x != n)
                ir_stand_for(x, "");
        }
        free(name);
        if (!copy)
            return false;
    }
    return true;
}

/* x + a b, where x is itself a sum of products: the product is added to x where it lies. A weight that is used at every
 * step of a loop gets its gradient this way, without a matrix for each step. */
static void accumulate_products(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->kind == IR_call && n->op == OP_t && n->arg[0].kind == VAL_node &&
            n->arg[0].node->kind == IR_call && n->arg[0].node->op == OP_t &&
            ir_type(n)->ndim == 2) { /* there and back */
            ir_node *back = n->arg[0].node;
            if (back->arg[0].kind == VAL_node && ir_type_equal(&back->arg[0].node->val, &n->val) &&
                decide(c, DECIDE_fuse, n)) {
                ir_replace_uses(n, back->arg[0].node);
                ir_erase(n);
                if (!back->nuse)
                    ir_erase(back);
            }
            continue;
        }
        if (n->kind != IR_call || n->op != OP_add_Tensor || n->variant != OPV_fn ||
            n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_node || !is_known_number(&n->arg[2]) ||
            val_as_f(&n->arg[2]) != 1)
            continue;
        for (int i = 1; i >= 0; i--) {
            ir_node *e = n->arg[i].node, *x = n->arg[1 - i].node;
            if (e == x || e->kind != IR_call || e->op != OP_mm || e->variant != OPV_fn || e->nuse != 1 ||
                x->nuse != 1 || !is_product(e) || !is_product(x) || ir_type(x)->ndim != 2 ||
                !ir_type_equal(&x->val, &n->val) || !ir_type_equal(&e->val, &n->val) ||
                !decide(c, DECIDE_fuse, n))
                continue;
            tp_val arg[5] = { { .kind = VAL_node, .node = x }, e->arg[0], e->arg[1], vI(1), vI(1) };
            ir_node *m = ir_add_call(g, OP_addmm, OPV_fn, arg, 5, vT(tensor_ref(n->val.t)));
            m->loc = n->loc;
            ir_insert_before(g, n, m);
            ir_replace_uses(n, m);
            ir_erase(n);
            ir_erase(e);
            if (ev_text_on(EV_fusion))
                ev_text(EV_fusion, NULL, "fused %s with %s: a product is added to where the sum lies",
                        m->name, x->name);
            break;
        }
    }
}

/* A call of one of two operators on a tensor that has elements, whose results are asked for one by one: they can be made apart.
 * both: more than one of them is wanted. */
static bool pair_of(const ir_node *n, op_id one, op_id other, bool *both)
{
    if (n->kind != IR_call || n->variant != OPV_fn || (n->op != one && n->op != other) || !n->uses ||
        n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_int)
        return false;
    const tp_tensor *x = ir_type(n->arg[0].node);
    bool plain = x->ndim && x->dt != DT_bool;
    *both = false;
    for (int d = 0; d < x->ndim; d++)
        plain &= sym_known(SYM_gt, x->size[d], 0);
    for (const ir_use *u = n->uses; u; u = u->next) {
        plain &= u->user->kind == IR_getitem && u->user->arg[1].kind == VAL_int &&
                 u->user->val.kind == VAL_tensor;
        *both |= u->user->arg[1].i != n->uses->user->arg[1].i;
    }
    return plain;
}

/* The first result of n that is still asked for comes from a call of its own. next: where the caller's walk goes on. */
static void item_apart(ir_graph *g, ir_node *n, op_id op, const tp_val *arg, int narg, ir_node **next)
{
    ir_node *item = n->uses->user, *m = ir_add_call(g, op, OPV_fn, arg, narg, vT(tensor_ref(item->val.t)));
    m->loc = item->loc;
    ir_insert_before(g, item, m);
    ir_replace_uses(item, m);
    if (item == *next)
        *next = item->next;
    ir_erase(item);
}

/* Parts of a split are slices, which fold into the index of whoever reads them; the call itself goes. */
static void split_into_slices(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        bool one = n->kind == IR_call && n->op == OP_unbind_int;
        if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensors ||
            (n->op != OP_split_Tensor && n->op != OP_split_with_sizes && !one) || n->arg[0].kind != VAL_node)
            continue;
        int dim = dim_arg(n, one ? 1 : 2, ir_type(n->arg[0].node)->ndim);
        bool plain = n->val.n > 0;
        for (ir_use *u = n->uses; u; u = u->next)
            plain &= u->user->kind == IR_getitem && u->user->arg[1].kind == VAL_int &&
                     !sym_is_expr(u->user->arg[1].i) && u->user->arg[1].i >= 0 &&
                     u->user->arg[1].i < n->val.n && u->user->val.kind == VAL_tensor;
        if (!plain || !decide(c, DECIDE_fuse, n))
            continue;
        while (n->uses) {
            int at = (int)n->uses->user->arg[1].i;
            symint lo = 0;
            for (int k = 0; k < at && !one; k++)
                lo = sym_add(lo, n->val.ts[k]->size[dim]);
            if (one)
                item_apart(g, n, OP_select_int, (tp_val[]){ n->arg[0], vI(dim), vI(at) }, 3, &next);
            else
                item_apart(g, n, OP_slice_Tensor,
                           (tp_val[]){ n->arg[0], vI(dim), vI(lo), vI(sym_add(lo, n->val.ts[at]->size[dim])),
                                       vI(1) },
                           5, &next);
        }
        if (ev_text_on(EV_fusion))
            ev_text(EV_fusion, NULL, "parts of %s are read where they lie", n->name);
        ir_erase(n);
    }
}

/* The largest of a row and its place are two reductions, of which a kernel computes those that somebody wants. */
static void extremes_apart(tp_comp *c, ir_graph *g)
{
    bool both;
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (!pair_of(n, OP_max_dim, OP_min_dim, &both))
            continue;
        const char *why = place_as_call(c, n);
        if (!why && !decide(c, DECIDE_lower, n))
            why = "refused";
        log_lower(n, !why, why ? why : "an extreme and its place are reductions");
        if (why)
            continue;
        bool max = n->op == OP_max_dim;
        symint dim = dim_arg(n, 1, ir_type(n->arg[0].node)->ndim);
        while (n->uses) {
            bool place = n->uses->user->arg[1].i == 1;
            tp_val arg[3] = { n->arg[0], place ? vI(dim) : vIs(&dim, 1), n->arg[2] };
            item_apart(g, n, place ? (max ? OP_argmax : OP_argmin) : max ? OP_amax : OP_amin, arg, 3, &next);
        }
        ir_erase(n);
    }
}

/* Running extremes and their places are two kernels: where one of them is asked for, and where calls cannot be made. */
static void scans_apart(tp_comp *c, ir_graph *g)
{
    bool both;
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (!pair_of(n, OP_cummax, OP_cummin, &both))
            continue;
        const tp_tensor *x = ir_type(n->arg[0].node);
        bool rows = dim_arg(n, 1, x->ndim) == x->ndim - 1, place = n->uses->user->arg[1].i == 1;
        const char *why = c->portable ? NULL
                          : both      ? "both results are asked for: the call makes them at once"
                          : place && (rows || dtype_size((dtype)x->dt) < 8)
                              ? "the call keeps places in lanes as narrow as its elements"
                          : rows && hint(x->size[x->ndim - 1]) > 4096 && !is_cheap(n->arg[0].node, 0)
                              ? "the call copies what there is where nothing better comes"
                          : decide(c, DECIDE_lower, n) ? NULL
                                                       : "refused";
        log_lower(n, !why, why ? why : "running extremes and their places are kernels");
        if (why)
            continue;
        tp_val arg[3] = { n->arg[0], n->arg[1], vB(n->op == OP_cummax) };
        while (n->uses)
            item_apart(g, n, n->uses->user->arg[1].i == 1 ? OP__cum_place : OP__cum_extreme, arg, 3, &next);
        ir_erase(n);
    }
}

/* One result of many elements would keep one thread busy: it is made of parts, as many whatever the number of threads, and
 * these are then reduced. Narrow types are left alone, because parts of them would be rounded. */
enum { PARTS_WORTH = 1 << 18, MOST_PARTS = 64, LEAST_PARTS = 8 };
static int64_t parts_of(const ir_node *n)
{
    bool sum = n->op == OP_sum || n->op == OP_sum_dim_IntList;
    if (n->kind != IR_call || n->variant != OPV_fn || (!sum && n->op != OP_amax && n->op != OP_amin) ||
        n->arg[0].kind != VAL_node)
        return 0;
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    if (!x || !y || !sym_all_const(x->size, x->ndim) || !tensor_is_contiguous(x) ||
        (y->dt != DT_f32 && y->dt != DT_f64 && y->dt != DT_i64) || (!sum && x->dt != y->dt))
        return 0;
    int64_t all = shape_numel(x->ndim, x->size), parts = MOST_PARTS;
    if (all < PARTS_WORTH || !sym_all_const(y->size, y->ndim) || shape_numel(y->ndim, y->size) != 1)
        return 0;
    while (parts >= LEAST_PARTS && all % parts)
        parts--;
    return parts >= LEAST_PARTS ? parts : 0;
}

static bool reduce_by_parts(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        int64_t parts = parts_of(n);
        if (!parts || !decide(c, DECIDE_thread, n))
            continue;
        const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
        bool sum = n->op == OP_sum || n->op == OP_sum_dim_IntList;
        op_id op = sum ? OP_sum_dim_IntList : (op_id)n->op;
        symint rows[2] = { parts, shape_numel(x->ndim, x->size) / parts }, dim[2] = { 1, 0 };
        tp_val v[2] = { n->arg[0], vIs(rows, 2) }, r[4];
        ir_node *m = ir_build(g, OP_view, OPV_fn, v, 2, c->err), *made[4] = { m };
        for (int k = 0; k < 2 && m; k++) {
            r[0] = (tp_val){ .kind = VAL_node, .node = m };
            r[1] = vIs(&dim[k], 1);
            r[2] = vB(false);
            r[3] = vDT(y->dt);
            made[k + 1] = m = ir_build(g, op, OPV_fn, r, sum ? 4 : 3, c->err);
        }
        if (m && y->ndim) {
            v[0] = (tp_val){ .kind = VAL_node, .node = m };
            v[1] = vIs(y->size, y->ndim);
            made[3] = m = ir_build(g, OP_view, OPV_fn, v, 2, c->err);
        }
        if (!m)
            return false;
        for (int k = 0; k < 4; k++)
            if (made[k]) {
                made[k]->loc = n->loc;
                ir_insert_before(g, n, made[k]);
            }
        if (ev_text_on(EV_fusion))
            ev_text(EV_fusion, NULL, "%s is made of %lld parts, which threads share", n->name,
                    (long long)parts);
        ir_replace_uses(n, m);
        ir_erase(n);
    }
    return true;
}

/* Pooling whose places nobody wants is a value of its own. */
static void pools_alone(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        windows w;
        ir_node *item = n->uses ? n->uses->user : NULL;
        if (n->kind != IR_call || n->op != OP_max_pool2d_with_indices || n->variant != OPV_fn || !item ||
            n->arg[0].kind != VAL_node)
            continue;
        const char *why = windows_of(n->arg, true, ir_type(n->arg[0].node), &w);
        for (const ir_use *u = n->uses; u && !why; u = u->next)
            if (u->user->kind != IR_getitem || u->user->arg[1].i != 0 || u->user != item)
                why = "somebody wants the places of its maxima";
        if (!why && !decide(c, DECIDE_lower, n))
            why = "refused";
        if (why) {
            log_lower(n, false, why);
            continue;
        }
        ir_node *m = ir_add_call(g, OP_max_pool2d, OPV_fn, n->arg, 6, vT(tensor_ref(item->val.t)));
        m->loc = n->loc;
        ir_insert_before(g, n, m);
        ir_replace_uses(item, m);
        if (item == next)
            next = item->next;
        ir_erase(item);
        ir_erase(n);
    }
}

/* x[cut:] and then x[:cut]: two copies, or a choice of two in the kernel that reads them. */
static void roll_into_cat(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->kind != IR_call || n->op != OP_roll || n->variant != OPV_fn || n->arg[0].kind != VAL_node ||
            n->arg[1].kind != VAL_ints || n->arg[2].kind != VAL_ints || n->arg[1].n != 1 ||
            n->arg[2].n != 1 || !ir_type(n)->ndim || ir_type(n)->numel == 0)
            continue;
        int dim = dim_arg_of(n->arg[2].ints[0], ir_type(n)->ndim);
        symint size = ir_type(n)->size[dim], by = n->arg[1].ints[0], cut;
        if (sym_is_expr(by))
            continue;
        if (!sym_is_expr(size))
            by = ((by % size) + size) % size;
        cut = by > 0 ? sym_sub(size, by) : -by;
        if (by == 0 || !sym_known(SYM_gt, cut, 0) || !sym_known(SYM_lt, cut, size) ||
            !decide(c, DECIDE_lower, n))
            continue;
        tp_err quiet = { 0 };
        tp_val hi[5] = { n->arg[0], vI(dim), vI(cut), vI(size), vI(1) },
               lo[5] = { n->arg[0], vI(dim), vI(0), vI(cut), vI(1) };
        ir_node *part[2] = { ir_build(g, OP_slice_Tensor, OPV_fn, hi, 5, &quiet),
                             ir_build(g, OP_slice_Tensor, OPV_fn, lo, 5, &quiet) };
        if (!part[0] || !part[1])
            continue;
        ir_insert_before(g, n, part[0]);
        ir_insert_before(g, n, part[1]);
        tp_val both[2] = { { .kind = VAL_nodes, .nodes = part, .n = 2 }, vI(dim) };
        ir_node *m = ir_build(g, OP_cat, OPV_fn, both, 2, &quiet);
        if (!m)
            continue;
        ir_insert_before(g, n, m);
        part[0]->loc = part[1]->loc = m->loc = n->loc;
        if (!ir_type_equal(&m->val, &n->val)) { /* another layout: the call stays */
            ir_erase(m);
            ir_erase(part[0]);
            ir_erase(part[1]);
            continue;
        }
        log_lower(n, true, "two slices, one after the other");
        ir_replace_uses(n, m);
        ir_erase(n);
    }
}

loop_plan *loop_plan_new(tp_comp *c, const ir_graph *src)
{
    if (TP_UNLIKELY(fault_state != 0) && !plant_lowering(c, src))
        return NULL;
    loop_plan *p = mem_zalloc(sizeof *p);
    planner pl = { .c = c, .p = p };
    bool ok = false;
    int *order = NULL;

    p->g = ir_graph_copy(src);
    pl.g = p->g;
    if (TP_UNLIKELY(fault_state != 0) && !plant_carriers(c, p->g))
        goto done;
    int64_t t0 = clock_ns();
    accumulate_products(c, p->g);
    split_into_slices(c, p->g);
    roll_into_cat(c, p->g);
    pools_alone(c, p->g);
    ev_metrics_part(EVP_post_passes, clock_ns() - t0);
    extremes_apart(c, p->g);
    scans_apart(c, p->g);
    if (!reduce_by_parts(c, p->g))
        goto done;
    ir_renumber(p->g);
    pl.in = arena_zalloc(&pl.tmp, sizeof *pl.in * (size_t)MAX(p->g->next_id, 1));
    pl.words = p->g->next_id / 64 + 1;
    for (size_t i = 0; i < p->g->inputs.n; i++)
        slot_add(&pl, p->g->inputs.at[i]->val.kind == VAL_tensor ? SLOT_input : SLOT_number,
                 p->g->inputs.at[i], (int)i);
    find_into(&pl);
    choose_sched(&pl);
    form_groups(&pl);
    ev_catch_up();
    for (size_t i = 0; i < pl.groups.n; i++) { /* what leaves its group must be stored */
        group *g = pl.groups.at[i];
        for (int m = 0; m < g->n; m++)
            pl.in[g->member[m]->id].stored = used_outside(&pl, g, g->member[m]);
    }
    order = mem_alloc(sizeof *order * (size_t)MAX(pl.groups.n, 1));
    schedule_order(&pl, order);
    uint64_t *written = ARENA_ARR(&pl.tmp, uint64_t, pl.words);
    for (size_t i = 0; i < pl.groups.n; i++) {
        group *g = pl.groups.at[order[i]];
        if (bit_has(written, g->id)) /* on the rows of a product */
            continue;
        bit_set(written, g->id);
        if (!g->ext) {
            if (!write_group(&pl, g)) {
                fails_at(c->err, g->member[g->n - 1]);
                goto done;
            }
            continue;
        }
        if (TP_UNLIKELY(fault_state != 0) && ir_fault_at("gen", g->ext) == FAULT_compile_error) {
            err_set(c->err, ERR_compiler, "planted fault: the emitter cannot compile '%s'",
                    row_of(g->ext)->name);
            fails_at(c->err, g->ext);
            goto done;
        }
        bool own = pl.in[g->ext->id].product;
        chain ch = own ? find_chain(&pl, g, written) : (chain){ 0 };
        if (ch.kernel && !chain_allowed(&pl, &ch)) {
            log_fusion(&pl, ch.last[0]->ext, g, false, "refused");
            ch.kernel = NULL;
        }
        if (ch.kernel && !write_factors(&pl, &ch, order, written))
            goto done;
        if (own && !write_needed(&pl, g, order, i, written))
            goto done;
        write_call(&pl, g, own);
        if (ch.kernel && ch.also ? !write_also(&pl, &ch, written)
                                 : own && !write_riders(&pl, g, order, i, written, &ch))
            goto done;
        if (ch.kernel) {
            log_fusion(
                &pl, ch.last[0]->ext, g, ch.fits,
                ch.fits && ch.reach
                    ? "the products block by block up to the diagonal, with the kernel between them in cache"
                : ch.fits ? "the products block by block, with the kernel between them in cache"
                          : "what lies between them is not made row by row");
            if (ch.fits)
                write_lasts(&pl, &ch, written);
        }
    }
    /* views and constants that only calls or results use */
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_extern) {
            touching t = { &pl, (int)i };
            ir_each_operand(p->step.at[i].node, touch_operand, &t);
        }
    p->nout = p->g->output->narg;
    p->out = arena_alloc(&p->mem, sizeof *p->out * (size_t)MAX(p->nout, 1));
    for (int i = 0; i < p->nout; i++) {
        const tp_val *v = &p->g->output->arg[i];
        p->out[i] = v->kind == VAL_node && v->node->val.kind != VAL_int ? slot_of(&pl, v->node) : -1;
        if (v->kind == VAL_node && p->out[i] >= 0) {
            int s = p->out[i];
            touch(&pl, s, (int)p->step.n);
            for (; s >= 0; s = looks_at(&pl, s))
                p->slot.at[s].output = true;
        }
    }
    life_times(&pl);
    choose_over(&pl);
    if (ev_text_on(EV_schedule)) {
        strbuf b = { 0 };
        loop_plan_print(&b, p);
        ev_text(EV_schedule, NULL, "%s", strbuf_str(&b));
        strbuf_free(&b);
    }
    ok = true;
done:
    free(order);
    vec_free(&pl.groups);
    vec_free(&pl.check);
    map_free(&pl.lowers);
    vec_free(&pl.over);
    arena_free(&pl.tmp);
    vir_room_free(&pl.room);
    if (!ok) {
        loop_plan_free(p);
        p = NULL;
    }
    return p;
}

void loop_plan_free(loop_plan *p)
{
    if (!p)
        return;
    ev_wait(p);
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_kernel)
            vec_free(&p->step.at[i].kernel->nodes);
    vec_free(&p->slot);
    vec_free(&p->step);
    map_free(&p->slot_of);
    vec_free(&p->decisions);
    ir_graph_free(p->g);
    arena_free(&p->mem);
    free(p);
}

void loop_decision_print(strbuf *b, const loop_decision *d)
{
    strbuf_adds(b, d->yes ? "fused " : "did not fuse ", d->n->name, " with group ", NULL);
    strbuf_int(b, d->group);
    strbuf_adds(b, " (", d->first ? d->first->name : "call", "): ", d->why, NULL);
}

void loop_plan_counts(strbuf *b, const loop_plan *p)
{
    strbuf_addf(b, "%d kernel%s, %d product%s, %d library call%s, %d value%s fused", p->nkernel,
                plural(p->nkernel), p->nproduct, plural(p->nproduct), p->nextern, plural(p->nextern),
                p->nfused, plural(p->nfused));
}

void loop_plan_print(strbuf *b, const loop_plan *p)
{
    strbuf_addf(b, "schedule of %s: ", p->g->name);
    loop_plan_counts(b, p);
    strbuf_addc(b, '\n');
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        strbuf_addn(b, "  ", i < 10 ? 2 : i < 100 ? 1 : 0);
        strbuf_int(b, (int64_t)i);
        if (s->kind == STEP_check) {
            strbuf_adds(b, " check  ", p->slot.at[s->slot].node->name, " of ", s->node->name, "\n", NULL);
            continue;
        }
        if (s->kind == STEP_extern) {
            strbuf_adds(b, s->product ? " product " : " call   ", s->node->name, " = ",
                        s->node->kind == IR_call ? op_row_of((op_id)s->node->op)->full : s->node->target,
                        !s->chain  ? "\n"
                        : s->reach ? " of those rows, block by block, up to the diagonal\n"
                                   : " of those rows, block by block\n",
                        NULL);
            continue;
        }
        strbuf_adds(b, " kernel ", s->kernel->name, s->rides ? " on its rows:" : ":", NULL);
        for (size_t k = 0; k < s->kernel->nodes.n; k++)
            strbuf_adds(b, " ", s->kernel->nodes.at[k]->name, NULL);
        strbuf_add(b, "  (about ");
        strbuf_int(b, s->kernel->bytes);
        strbuf_add(b, " bytes moved)\n");
    }
}
