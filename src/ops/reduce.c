/* reduce.c - shape rules and kernels of reductions over dimensions. */
#include "ops/red.h"
#include <math.h>

/* ---- shapes ---- */
/* Output of a reduction over the dimensions in mask. */
static op_out *reduced(op_call *c, tp_tensor *t, uint32_t mask, bool keep, dtype dt)
{
    symint size[TP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (!(mask >> d & 1))
            size[n++] = t->size[d];
        else if (keep)
            size[n++] = 1;
    }
    return out_new(c, dt, n, size);
}

static dtype sum_type(dtype in) { return dtype_is_exact(in) ? DT_i64 : in; }

/* Where a row keeps its arguments: position of dim, keepdim and dtype, or -1. */
typedef struct red_args {
    int dim, keep, dt;
} red_args;
static red_args args_of(const op_call *c)
{
    red_args a = { -1, -1, -1 };
    const op_schema *s = &c->row->schema;
    for (int i = 0; i < s->nparam; i++) {
        if (!strcmp(s->param[i].name, "dim"))
            a.dim = i;
        else if (!strcmp(s->param[i].name, "keepdim"))
            a.keep = i;
        else if (!strcmp(s->param[i].name, "dtype"))
            a.dt = i;
    }
    return a;
}

/* The dimensions to reduce, as a mask. A zero-dim tensor has one dimension to name but none to reduce. */
static bool mask_of(op_call *c, const red_args *a, tp_tensor *t, uint32_t *mask)
{
    if (a->dim < 0 || c->arg[a->dim].kind == VAL_none) {
        *mask = t->ndim >= 32 ? ~0u : (1u << t->ndim) - 1;
        return true;
    }
    if (c->arg[a->dim].kind == VAL_int) {
        int d;
        if (!arg_dim(c, a->dim, t->ndim, &d))
            return false;
        *mask = t->ndim ? 1u << d : 0;
        return true;
    }
    bool ok = arg_dims(c, a->dim, t->ndim, !(c->row->flags & OPF_NODIMS), mask);
    if (!t->ndim)
        *mask = 0;
    return ok;
}

static bool general(op_call *c, dtype dt)
{
    red_args a = args_of(c);
    tp_tensor *t = arg_t(c, 0);
    uint32_t mask;
    if (!mask_of(c, &a, t, &mask))
        return false;
    reduced(c, t, mask, a.keep >= 0 && arg_b(c, a.keep, false), a.dt >= 0 ? arg_dt(c, a.dt, dt) : dt);
    return true;
}

bool shape_sum(op_call *c) { return general(c, sum_type((dtype)arg_t(c, 0)->dt)); }
bool shape_reduce_same(op_call *c) { return general(c, (dtype)arg_t(c, 0)->dt); }
bool shape_reduce_count(op_call *c) { return general(c, DT_i64); }
bool shape_any(op_call *c) { return general(c, arg_t(c, 0)->dt == DT_u8 ? DT_u8 : DT_bool); }

bool shape_mean(op_call *c)
{
    red_args a = args_of(c);
    dtype in = (dtype)arg_t(c, 0)->dt, dt = arg_dt(c, a.dt, in);
    if (!dtype_is_float(dt))
        return c->arg[a.dt].kind == VAL_none
                   ? err_set(c->err, ERR_runtime,
                             "mean(): could not infer output dtype. Input dtype must be either a floating "
                             "point or complex dtype. Got: %s",
                             dtype_rows[in].gname)
                   : err_set(c->err, ERR_runtime,
                             "mean(): could not infer output dtype. Optional dtype must be either a floating "
                             "point or complex dtype. Got: %s",
                             dtype_rows[dt].gname);
    return general(c, in);
}

bool shape_nanmean(op_call *c)
{
    dtype in = (dtype)arg_t(c, 0)->dt;
    if (!dtype_is_float(in))
        return err_set(c->err, ERR_runtime,
                       "nanmean(): expected input to have floating point or complex dtype but got %s",
                       dtype_rows[in].gname);
    return general(c, in);
}

/* Reductions without a neutral element refuse to reduce nothing. */
static bool not_empty(op_call *c, tp_tensor *t, const red_args *a, uint32_t mask)
{
    if (!sym_eq(t->numel, 0))
        return true;
    const tp_val *dim = a->dim < 0 ? NULL : &c->arg[a->dim];
    if (!dim || dim->kind == VAL_none || (dim->kind == VAL_ints && !dim->n))
        return err_set(c->err, c->row->name[0] == 'a' && c->row->name[1] == 'r' ? ERR_index : ERR_runtime,
                       "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                       "reduction dim with the 'dim' argument.",
                       c->row->name);
    for (int d = 0; d < t->ndim; d++)
        if ((mask >> d & 1) && sym_eq(t->size[d], 0))
            return err_set(c->err, ERR_index, "%s(): Expected reduction dim %d to have non-zero size.",
                           c->row->name, d);
    return true;
}

bool shape_amax(op_call *c)
{
    red_args a = args_of(c);
    tp_tensor *t = arg_t(c, 0);
    uint32_t mask;
    return mask_of(c, &a, t, &mask) && not_empty(c, t, &a, mask) && general(c, (dtype)t->dt);
}

bool shape_aminmax(op_call *c)
{
    red_args a = args_of(c);
    tp_tensor *t = arg_t(c, 0);
    uint32_t mask;
    return mask_of(c, &a, t, &mask) && not_empty(c, t, &a, mask) && general(c, (dtype)t->dt) &&
           general(c, (dtype)t->dt);
}

bool shape_var(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (!dtype_is_float((dtype)t->dt))
        return err_set(c->err, ERR_runtime, "std and var only support floating point or complex dtypes");
    return general(c, (dtype)t->dt) && (c->row->schema.nret < 2 || general(c, (dtype)t->dt));
}

bool shape_vector_norm(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    dtype dt = arg_dt(c, 4, (dtype)t->dt);
    uint32_t mask;
    red_args a = args_of(c);
    if (!dtype_has_grad((dtype)t->dt))
        return err_set(c->err, ERR_runtime,
                       "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
                       dtype_rows[t->dt].gname);
    if (!dtype_is_float(dt))
        return err_set(c->err, ERR_runtime,
                       "linalg.vector_norm: dtype should be floating point or complex. Got %s",
                       dtype_rows[dt].gname);
    double p = val_as_f(&c->arg[1]);
    if (!mask_of(c, &a, t, &mask))
        return false;
    if (sym_eq(t->numel, 0) && (p < 0 || p == INFINITY))
        for (int d = 0; d < MAX(t->ndim, 1); d++)
            if ((mask >> d & 1) && sym_eq(t->size[d], 0))
                return err_set(c->err, ERR_runtime,
                               "linalg.vector_norm cannot compute the %g norm on an empty tensor because the "
                               "operation does not have an identity",
                               p);
    return general(c, dt);
}

/* ---- kernels ---- */
/* Accumulators -> result. */
static bool finish(op_call *c, tp_tensor *acc, int k)
{
    bool ok = acc && tensor_copy(c->res[k], acc, c->err);
    tensor_unref(acc);
    return ok;
}

/* t itself, or a copy in the type asked for when the category of values changes. */
static tp_tensor *input_as(op_call *c, const red_args *a)
{
    tp_tensor *t = arg_t(c, 0);
    dtype dt = a->dt >= 0 ? arg_dt(c, a->dt, (dtype)t->dt) : (dtype)t->dt;
    if (dtype_is_float(dt) != dtype_is_float((dtype)t->dt) || (dt == DT_f64 && t->dt != DT_f64) ||
        (dt == DT_bool && t->dt != DT_bool))
        return tensor_cast(t, dt, c->err);
    return tensor_ref(t);
}

static tp_tensor *fold(op_call *c, red_id id, tp_tensor *t, uint32_t mask, const red_par *par)
{
    return red_run(id, t, mask, c->res[0]->ndim, c->res[0]->size, par, c->err);
}

static bool plain(op_call *c, red_id id)
{
    red_args a = args_of(c);
    uint32_t mask;
    if (!mask_of(c, &a, arg_t(c, 0), &mask))
        return false;
    tp_tensor *t = input_as(c, &a);
    bool ok = t && finish(c, fold(c, id, t, mask, NULL), 0);
    tensor_unref(t);
    return ok;
}
bool eager_sum(op_call *c) { return plain(c, RED_sum); }
bool eager_prod(op_call *c) { return plain(c, RED_prod); }
bool eager_amax(op_call *c) { return plain(c, RED_max); }
bool eager_amin(op_call *c) { return plain(c, RED_min); }
bool eager_any(op_call *c) { return plain(c, RED_any); }
bool eager_all(op_call *c) { return plain(c, RED_all); }
bool eager_count_nonzero(op_call *c) { return plain(c, RED_nz); }
bool eager_nansum(op_call *c)
{
    return plain(c, dtype_is_float((dtype)c->res[0]->dt) ? RED_nansum
                                                         : RED_sum); /* summed in the result's type */
}
bool eager_aminmax(op_call *c)
{
    red_args a = args_of(c);
    uint32_t mask;
    tp_tensor *t = arg_t(c, 0);
    return mask_of(c, &a, t, &mask) && finish(c, fold(c, RED_min, t, mask, NULL), 0) &&
           finish(c, fold(c, RED_max, t, mask, NULL), 1);
}

static int64_t count_of(const tp_tensor *t, uint32_t mask)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (mask >> d & 1)
            n *= t->size[d];
    return n;
}

bool eager_mean(op_call *c)
{
    red_args a = args_of(c);
    uint32_t mask;
    if (!mask_of(c, &a, arg_t(c, 0), &mask))
        return false;
    tp_tensor *t = input_as(c, &a), *acc = t ? fold(c, RED_sum, t, mask, NULL) : NULL;
    if (acc) {
        double n = (double)count_of(t, mask), *p = tensor_host(acc);
        for (int64_t i = 0; i < acc->numel; i++)
            p[i] /= n;
    }
    tensor_unref(t);
    return finish(c, acc, 0);
}

bool eager_nanmean(op_call *c)
{
    red_args a = args_of(c);
    uint32_t mask;
    tp_tensor *t = arg_t(c, 0);
    if (!mask_of(c, &a, t, &mask))
        return false;
    tp_tensor *acc = fold(c, RED_nansum, t, mask, NULL), *n = fold(c, RED_notnan, t, mask, NULL);
    if (acc && n)
        for (int64_t i = 0; i < acc->numel; i++)
            ((double *)tensor_host(acc))[i] /= ((double *)tensor_host(n))[i];
    bool ok = n != NULL;
    tensor_unref(n);
    return finish(c, acc, 0) && ok;
}

/* Mean first, then squares of the differences: exact where the textbook one-pass formula cancels. */
static bool variance(op_call *c, bool root)
{
    red_args a = args_of(c);
    tp_tensor *t = arg_t(c, 0), *mean, *acc = NULL;
    uint32_t mask;
    if (!mask_of(c, &a, t, &mask) || !(mean = fold(c, RED_sum, t, mask, NULL)))
        return false;
    double n = (double)count_of(t, mask), corr = arg_f(c, 2, 1), dof = MAX(n - corr, 0);
    double *m = tensor_host(mean);
    for (int64_t i = 0; i < mean->numel; i++)
        m[i] /= n;
    red_par par = { 0, m };
    acc = fold(c, RED_sqdiff, t, mask, &par);
    if (acc) {
        double *p = tensor_host(acc);
        for (int64_t i = 0; i < acc->numel; i++)
            p[i] = root ? sqrt(p[i] / dof) : p[i] / dof;
    }
    bool ok = finish(c, acc, 0);
    if (c->nout > 1)
        ok = ok && finish(c, tensor_ref(mean), 1);
    tensor_unref(mean);
    return ok;
}
bool eager_var(op_call *c) { return variance(c, false); }
bool eager_std(op_call *c) { return variance(c, true); }

bool eager_vector_norm(op_call *c)
{
    red_args a = args_of(c);
    uint32_t mask;
    if (!mask_of(c, &a, arg_t(c, 0), &mask))
        return false;
    double p = val_as_f(&c->arg[1]);
    red_par par = { p, NULL };
    red_id id = p == 0           ? RED_nz
                : p == 1         ? RED_sumabs
                : p == 2         ? RED_sumsq
                : p == 3         ? RED_sumcube
                : p == INFINITY  ? RED_maxabs
                : p == -INFINITY ? RED_minabs
                                 : RED_sumpow;
    tp_tensor *acc = fold(c, id, arg_t(c, 0), mask, &par);
    if (acc && (id == RED_sumsq || id == RED_sumcube || id == RED_sumpow)) {
        double *v = tensor_host(acc);
        for (int64_t i = 0; i < acc->numel; i++)
            v[i] = p == 2 ? sqrt(v[i]) : pow(v[i], 1 / p);
    }
    return finish(c, acc, 0);
}
