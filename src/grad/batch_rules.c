/* batch_rules.c - the VMAP column: rows whose elements lie side by side in one call of the same row. */
#include "grad/batch.h"
#include "ops/decomp.h"
#include "ops/random.h"

static bool is_name(const op_param *p, const char *names) /* is it one of these words? */
{
    size_t n = strlen(p->name);
    for (const char *s = names; *s; s += strcspn(s, " "), s += *s == ' ')
        if (strcspn(s, " ") == n && !strncmp(s, p->name, n))
            return true;
    return false;
}

/* A layout said in words is one of the element's dimensions, which are not the whole's. */
static void drop_layout(const batch_call *x, tp_val *a)
{
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (a[i].kind == VAL_memfmt && a[i].i != MF_preserve)
            a[i] = vMF(MF_contiguous);
}

static void copy_args(const batch_call *x, tp_val *a)
{
    memcpy(a, x->arg, sizeof *a * (size_t)x->row->schema.nparam);
    drop_layout(x, a);
}

/* Elements meet elements: shorter tensors get sizes of 1 between the batch and their own. */
bool batch_pointwise(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    int rank = 0;
    copy_args(x, a);
    if (x->lparam >= 0)
        return false;
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (a[i].kind == VAL_tensor)
            rank = MAX(rank, a[i].t->ndim);
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (x->whole[i])
            a[i] = vT(batch_pad(x, x->whole[i], rank));
    return !x->b->failed && batch_run(x, x->op, a);
}

/* The row takes any number of dimensions in front. */
static bool lead_all(batch_call *x, tp_val *a)
{
    copy_args(x, a);
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (a[i].kind == VAL_tensor)
            a[i] = vT(batch_lead(x, i));
    return !x->b->failed && x->lparam < 0;
}
bool batch_leading(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    return lead_all(x, a) && batch_run(x, x->op, a);
}

/* As long as only the first argument differs between elements. */
bool batch_first(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    for (int i = 1; i < x->row->schema.nparam; i++)
        if (x->whole[i])
            return false;
    if (!x->whole[0])
        return false;
    copy_args(x, a);
    a[0] = vT(x->whole[0]);
    return batch_run(x, x->op, a);
}

/* Dimensions are counted one further; those that are not named are made one. */
bool batch_along(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    symint dims[OP_MAX_PARAMS][TP_MAX_DIMS + 1];
    bool flat = false, scalar = true; /* no tensor has dimensions */
    const op_schema *s = &x->row->schema;
    if (!lead_all(x, a))
        return false;
    for (int i = 0; i < s->nparam; i++) {
        const op_param *p = &s->param[i];
        if (a[i].kind == VAL_tensor)
            scalar &= a[i].t->ndim == 1;
        if (p->type == PT_int && is_name(p, "dim dim0 dim1 dim2 dimension start_dim end_dim")) {
            if (a[i].kind == VAL_none) {
                flat = true;
                a[i] = vI(1);
            } else if (a[i].i >= 0)
                a[i].i++;
        } else if (p->type == PT_ints && is_name(p, "dim dims")) {
            if (a[i].kind == VAL_none || !a[i].n) {
                if (a[i].kind != VAL_none && x->row->flags & OPF_NODIMS)
                    return false;
                flat = true;
                dims[i][0] = 1;
                a[i] = vIs(dims[i], 1);
                continue;
            }
            for (int k = 0; k < a[i].n; k++)
                dims[i][k] = a[i].ints[k] < 0 ? a[i].ints[k] : a[i].ints[k] + 1;
            a[i] = vIs(dims[i], a[i].n);
        } else if (p->type == PT_ints && is_name(p, "input_sizes")) {
            dims[i][0] = x->n;
            memcpy(dims[i] + 1, a[i].ints, sizeof(symint) * (size_t)a[i].n);
            a[i] = vIs(dims[i], a[i].n + 1);
            scalar = false; /* the dimensions are those of what is made */
        }
    }
    for (int i = 0; i < s->nparam; i++)
        if (a[i].kind == VAL_tensor && (flat || (scalar && a[i].t->ndim == 1))) {
            symint size[2] = { x->n, x->arg[i].t->numel }; /* a tensor without dimensions as one of size 1 */
            a[i] = vT(batch_shape(x, a[i].t, 2, size));
        }
    return !x->b->failed && batch_run(x, x->op, a);
}

/* Rows for images: the batch joins the dimension of the images, the first of `rank`. */
static bool fold(batch_call *x, int rank)
{
    tp_val a[OP_MAX_PARAMS];
    symint size[TP_MAX_DIMS], input[TP_MAX_DIMS];
    const op_schema *s = &x->row->schema;
    if (!lead_all(x, a))
        return false;
    for (int i = 0; i < s->nparam; i++) {
        if (a[i].kind == VAL_tensor && a[i].t->ndim == rank + 1) {
            size[0] = sym_mul(x->n, a[i].t->size[1]);
            memcpy(size + 1, a[i].t->size + 2, sizeof *size * (size_t)(rank - 1));
            a[i] = vT(batch_shape(x, a[i].t, rank, size));
        } else if (a[i].kind == VAL_ints && a[i].n == rank && is_name(&s->param[i], "input_size")) {
            memcpy(input, a[i].ints, sizeof *input * (size_t)rank);
            input[0] = sym_mul(x->n, input[0]);
            a[i] = vIs(input, rank);
        }
    }
    return !x->b->failed && batch_run(x, x->op, a);
}
bool batch_fold2(batch_call *x) { return fold(x, 2); }
bool batch_fold3(batch_call *x) { return fold(x, 3); }
bool batch_fold4(batch_call *x) { return fold(x, 4); }
bool batch_fold5(batch_call *x) { return fold(x, 5); }

/* New tensors of a given size: the batch in front of it. */
bool batch_sized(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    symint size[TP_MAX_DIMS + 1];
    copy_args(x, a);
    if (x->whole[0])
        a[0] = vT(x->whole[0]);
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (x->row->schema.param[i].type == PT_ints && is_name(&x->row->schema.param[i], "size")) {
            size[0] = x->n;
            memcpy(size + 1, a[i].ints, sizeof *size * (size_t)a[i].n);
            a[i] = vIs(size, a[i].n + 1);
        }
    return batch_run(x, x->op, a);
}

bool batch_repeat(batch_call *x)
{
    symint many[TP_MAX_DIMS + 1] = { 1 };
    tp_tensor *w = batch_pad(x, x->whole[0], x->arg[1].n);
    memcpy(many + 1, x->arg[1].ints, sizeof *many * (size_t)x->arg[1].n);
    return batch_give(x, b_op(x->b, repeat, vT(w), vIs(many, x->arg[1].n + 1)));
}

/* ---- of all elements ---- */
static tp_tensor *flat(batch_call *x)
{
    symint size[2] = { x->n, x->arg[0].t->numel };
    return batch_shape(x, x->whole[0], 2, size);
}
static const symint one_dim[] = { 1 };
bool batch_sum_all(batch_call *x)
{
    return batch_give(x, b_op(x->b, sum_dim_IntList, vT(flat(x)), vIs(one_dim, 1), vB(false), x->arg[1]));
}
bool batch_prod_all(batch_call *x)
{
    return batch_give(x, b_op(x->b, prod_dim_int, vT(flat(x)), vI(1), vB(false), x->arg[1]));
}
bool batch_amax_all(batch_call *x) { return batch_give(x, b_op(x->b, amax, vT(flat(x)), vIs(one_dim, 1))); }
bool batch_amin_all(batch_call *x) { return batch_give(x, b_op(x->b, amin, vT(flat(x)), vIs(one_dim, 1))); }
bool batch_any_all(batch_call *x) { return batch_give(x, b_op(x->b, any_dim, vT(flat(x)), vI(1))); }
bool batch_all_all(batch_call *x) { return batch_give(x, b_op(x->b, all_dim, vT(flat(x)), vI(1))); }
bool batch_median_all(batch_call *x) { return batch_give(x, b_op(x->b, median_dim, vT(flat(x)), vI(1))); }
bool batch_nanmedian_all(batch_call *x)
{
    return batch_give(x, b_op(x->b, nanmedian_dim, vT(flat(x)), vI(1)));
}

bool batch_cat(batch_call *x)
{
    int n = x->arg[0].n;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    int64_t dim = x->arg[1].i;
    for (int k = 0; k < n; k++)
        ts[k] = batch_lead_list(x, k);
    bool ok = !x->b->failed && batch_give(x, b_op(x->b, cat, vTs(ts, n), vI(dim < 0 ? dim : dim + 1)));
    free(ts);
    return ok;
}

/* searchsorted: one sequence for each row of what is looked for, or one for all. */
bool batch_sorted(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    if (!x->whole[0] && x->arg[0].t->ndim == 1 && x->whole[1]) { /* one for all */
        copy_args(x, a);
        a[1] = vT(x->whole[1]);
        return batch_run(x, x->op, a);
    }
    if (!lead_all(x, a))
        return false;
    if (x->arg[0].t->ndim == 1) {
        symint size[2] = { x->n, x->arg[1].t->numel };
        a[1] = vT(batch_shape(x, a[1].t, 2, size));
    }
    return !x->b->failed && batch_run(x, x->op, a);
}
bool batch_bucketize(batch_call *x)
{
    if (!x->whole[1])
        return batch_first(x);
    return batch_give(x, b_op(x->b, searchsorted_Tensor, vT(x->whole[1]),
                              vT(batch_shape(x, batch_lead(x, 0), 2, (symint[]){ x->n, x->arg[0].t->numel })),
                              x->arg[2], x->arg[3]));
}

bool batch_layer_norm(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    if (!x->whole[0] || x->whole[2] || x->whole[3])
        return false;
    copy_args(x, a);
    a[0] = vT(x->whole[0]);
    return batch_run(x, x->op, a);
}

bool batch_fill(batch_call *x) /* a value for each element: as a copy of it */
{
    symint rank = x->arg[0].t->ndim;
    tp_tensor *value = batch_pad(x, batch_lead(x, 1), (int)rank);
    return value && b_callv(x->b, OP_copy_, OPV_fn, B_ARGS(vT(x->whole[0]), vT(value))) != NULL;
}

/* ---- random numbers ---- */
static bool may_draw(batch_call *x)
{
    if (x->level->draws != DRAWS_error)
        return true;
    return err_set(x->b->err, ERR_runtime,
                   "vmap: called random operation while in randomness error mode. Please either use the "
                   "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
                   "of vmap");
}

static bool draw_same(batch_call *x, bool writes)
{
    tp_val a[OP_MAX_PARAMS];
    const op_schema *s = &x->row->schema;
    copy_args(x, a);
    for (int i = 0; i < s->nparam; i++)
        if (x->whole[i] && (i || !(writes || x->row->flags & OPF_LIKE)))
            return err_set(
                x->b->err, ERR_runtime,
                "vmap: %s() with randomness='same' draws once for the whole batch, but its argument '%s' is "
                "different for each element. Use randomness='different'",
                x->row->name, s->param[i].name);
    if (writes && x->whole[0]) { /* drawn once, copied to all */
        tp_tensor *one = b_op(x->b, empty_like, vT(b_op(x->b, select_int, vT(x->whole[0]), vI(0), vI(0))));
        if (!one)
            return false;
        a[0] = vT(one);
        return batch_run(x, x->op, a) &&
               b_callv(x->b, OP_copy_, OPV_fn, B_ARGS(vT(x->whole[0]), vT(one))) != NULL;
    }
    if (x->whole[0])
        a[0] = vT(b_op(x->b, select_int, vT(x->whole[0]), vI(0), vI(0)));
    x->same = true;
    return !x->b->failed && batch_run(x, x->op, a);
}

static bool has_size(const batch_call *x)
{
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (x->row->schema.param[i].type == PT_ints && is_name(&x->row->schema.param[i], "size"))
            return true;
    return false;
}

bool batch_multinomial(batch_call *x) /* the rows of a matrix */
{
    if (!may_draw(x))
        return false;
    return x->level->draws == DRAWS_same ? draw_same(x, false) : fold(x, 2);
}

bool batch_random(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    bool writes = x->row->flags & OPF_MUT, tensors = false;
    if (!may_draw(x))
        return false;
    if (x->level->draws == DRAWS_same)
        return draw_same(x, writes);
    if (writes && !x->whole[0])
        return err_set(x->b->err, ERR_runtime,
                       "vmap: %s() with randomness='different' writes to a tensor that is the same for all "
                       "elements of the "
                       "batch. Use the call that makes a new tensor",
                       x->row->name);
    for (int i = 0; i < x->row->schema.nparam; i++)
        tensors |= x->arg[i].kind == VAL_tensor;
    if (!tensors)
        return has_size(x) && batch_sized(x);
    if (writes)
        return batch_pointwise(x);
    int rank = 0;
    copy_args(x, a);
    for (int i = 0; i < x->row->schema.nparam; i++)
        rank = a[i].kind == VAL_tensor ? MAX(rank, a[i].t->ndim) : rank;
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (a[i].kind ==
            VAL_tensor) { /* memory of its own for each element, since as many numbers are drawn */
            tp_tensor *t = batch_pad(x, batch_lead(x, i), rank);
            a[i] = vT(x->whole[i] || !t ? t : b_op(x->b, clone, vT(t), vMF(MF_contiguous)));
        }
    return !x->b->failed && batch_run(x, x->op, a);
}
