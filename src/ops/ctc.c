/* ctc.c - connectionist temporal classification: the likelihood of a label sequence summed over all alignments, by the
 * forward recursion; its gradient by forward and backward recursion. Everything in logarithms. */
#include "ops/decomp.h"
#include "base/pool.h"
#include <math.h>

/* (log_probs T N C, targets N S or concatenated, input_lengths, target_lengths, blank, zero_infinity) */
static bool ctc_check(op_call *c, tp_tensor *lp, tp_tensor *tg, const tp_val *il, const tp_val *tl,
                      int64_t blank, int64_t *longest)
{
    size_text s;
    if (lp->ndim != 3)
        return err_set(c->err, ERR_runtime,
                       "ctc_loss: expected log_probs to have 3 dimensions, but got sizes %s",
                       sizes_str(&s, lp->ndim, lp->size));
    if (lp->dt != DT_f32 && lp->dt != DT_f64)
        return err_set(c->err, ERR_runtime, "\"ctc_loss_cpu\" not implemented for '%s'",
                       dtype_rows[lp->dt].gname);
    if (tg->dt != DT_i64 && tg->dt != DT_i32)
        return err_set(c->err, ERR_runtime, "ctc_loss: targets must be integers of 32 or 64 bits, but got %s",
                       dtype_rows[tg->dt].gname);
    for (int i = 0; i < 3; i++)
        if (sym_is_expr(lp->size[i]))
            return err_set(c->err, ERR_notimpl, "ctc_loss needs sizes that are known");
    int64_t T = lp->size[0], n = lp->size[1], classes = lp->size[2], total = 0;
    if (blank < 0 || blank >= classes)
        return err_set(c->err, ERR_runtime, "blank must be in label range");
    if (il->n != n || tl->n != n)
        return err_set(c->err, ERR_runtime, "%s_lengths must be of size batch_size",
                       il->n != n ? "input" : "target");
    if (T == 0)
        return err_set(c->err, ERR_runtime,
                       "Expected tensor to have size at least 1 at dimension 0, but got size 0");
    *longest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (il->ints[i] < 0 || il->ints[i] > T)
            return err_set(c->err, ERR_runtime,
                           "Expected input_lengths to have value at most %lld, but got value %lld",
                           (long long)T, (long long)il->ints[i]);
        if (tl->ints[i] < 0)
            return err_set(c->err, ERR_runtime,
                           "Expected target_lengths to have value at least 0, but got value %lld",
                           (long long)tl->ints[i]);
        *longest = MAX(*longest, tl->ints[i]);
        total += tl->ints[i];
    }
    if (tg->ndim == 1 ? tg->size[0] != total : tg->ndim != 2 || tg->size[0] != n || tg->size[1] < *longest)
        return err_set(
            c->err, ERR_runtime,
            "ctc_loss: expected targets of %lld labels in all, or one row for each of %lld sequences with "
            "room for %lld labels, but got sizes %s",
            (long long)total, (long long)n, (long long)*longest, sizes_str(&s, tg->ndim, tg->size));
    return true;
}

typedef struct job {
    const double *lp; /* T N C */
    const int64_t *tg, *tstart, *ilen, *tlen;
    int64_t T, n, classes, blank, width; /* width: 2 * longest + 1 */
    bool zero_inf;
    double *loss, *alpha;          /* N; N T width */
    const double *dloss, *in_loss; /* backward */
    double *grad;                  /* T N C */
} job;

static double log_add(double a, double b)
{
    double m = a > b ? a : b;
    return m == -INFINITY ? m : m + log(exp(a - m) + exp(b - m));
}
/* Label at place s of blank l1 blank l2 ... blank. */
static int64_t label(const job *j, int64_t i, int64_t s)
{
    return s & 1 ? j->tg[j->tstart[i] + s / 2] : j->blank;
}
static double prob(const job *j, int64_t t, int64_t i, int64_t k)
{
    return j->lp[(t * j->n + i) * j->classes + k];
}
/* May a path step over the blank between s - 2 and s? */
static bool skips(const job *j, int64_t i, int64_t s)
{
    return (s & 1) && s > 1 && label(j, i, s) != label(j, i, s - 2);
}

static void forward_one(const job *j, int64_t i)
{
    int64_t len = j->ilen[i], S = 2 * j->tlen[i] + 1;
    double *a = j->alpha + i * j->T * j->width;
    for (int64_t k = 0; k < j->T * j->width; k++)
        a[k] = -INFINITY;
    if (!len) {
        j->loss[i] = j->tlen[i] ? INFINITY : 0;
        return;
    }
    a[0] = prob(j, 0, i, j->blank);
    if (S > 1)
        a[1] = prob(j, 0, i, label(j, i, 1));
    for (int64_t t = 1; t < len; t++)
        for (int64_t s = 0; s < S; s++) {
            const double *p = a + (t - 1) * j->width;
            double v = p[s];
            if (s > 0)
                v = log_add(v, p[s - 1]);
            if (skips(j, i, s))
                v = log_add(v, p[s - 2]);
            a[t * j->width + s] = v + prob(j, t, i, label(j, i, s));
        }
    const double *last = a + (len - 1) * j->width;
    j->loss[i] = -(S > 1 ? log_add(last[S - 1], last[S - 2]) : last[0]);
}
static void forward(void *arg, int64_t b, int64_t e)
{
    for (int64_t i = b; i < e; i++)
        forward_one(arg, i);
}

/* d loss / d log_prob[t][k] = exp(lp) - (paths through k at t) / (all paths); PyTorch's gradient is of log_softmax'd
 * inputs, so the first term is there. */
static void backward_one(const job *j, int64_t i)
{
    int64_t len = j->ilen[i], S = 2 * j->tlen[i] + 1, C = j->classes;
    double nll = j->in_loss[i], g = j->dloss[i];
    const double *a = j->alpha + i * j->T * j->width;
    for (int64_t t = 0; t < j->T; t++)
        memset(j->grad + (t * j->n + i) * C, 0, sizeof(double) * (size_t)C);
    if (!len || (j->zero_inf && nll == INFINITY))
        return;
    double *beta = mem_alloc(sizeof(double) * (size_t)(2 * S + C)), *next = beta + S, *sum = next + S;
    for (int64_t t = len - 1; t >= 0; t--) {
        for (int64_t s = 0; s < S; s++) {
            double v = -INFINITY;
            if (t == len - 1)
                v = s >= S - 2 ? 0 : -INFINITY;
            else {
                v = next[s];
                if (s + 1 < S)
                    v = log_add(v, next[s + 1]);
                if (s + 2 < S && skips(j, i, s + 2))
                    v = log_add(v, next[s + 2]);
            }
            beta[s] = v + prob(j, t, i, label(j, i, s));
        }
        for (int64_t k = 0; k < C; k++)
            sum[k] = -INFINITY;
        for (int64_t s = 0; s < S; s++) {
            int64_t k = label(j, i, s);
            sum[k] = log_add(sum[k], a[t * j->width + s] + beta[s]);
        }
        for (int64_t k = 0; k < C; k++) {
            double lp = prob(j, t, i, k);
            j->grad[(t * j->n + i) * C + k] = (exp(lp) - exp(sum[k] + nll - lp)) * g;
        }
        memcpy(next, beta, sizeof(double) * (size_t)S);
    }
    free(beta);
}
static void backward(void *arg, int64_t b, int64_t e)
{
    for (int64_t i = b; i < e; i++)
        backward_one(arg, i);
}

/* The arguments at `at`, as packed doubles and integers; false when a label is out of range. */
static bool job_open(op_call *c, int at, job *j, scratch *s, int64_t longest)
{
    tp_tensor *lp = arg_t(c, at), *tg = arg_t(c, at + 1), *l = scratch_in(s, lp, DT_f64),
              *t = scratch_in(s, tg, DT_i64);
    if (!l || !t)
        return false;
    j->T = lp->size[0], j->n = lp->size[1], j->classes = lp->size[2];
    j->lp = tensor_host(l), j->tg = tensor_host(t);
    j->ilen = c->arg[at + 2].ints, j->tlen = c->arg[at + 3].ints;
    j->width = 2 * longest + 1;
    int64_t *start = mem_alloc(sizeof(int64_t) * (size_t)MAX(j->n, 1)), sum = 0;
    for (int64_t i = 0; i < j->n; i++) {
        start[i] = tg->ndim == 2 ? i * tg->size[1] : sum;
        sum += j->tlen[i];
    }
    j->tstart = start;
    for (int64_t i = 0; i < j->n; i++)
        for (int64_t k = 0; k < j->tlen[i]; k++)
            if (j->tg[start[i] + k] < 0 || j->tg[start[i] + k] >= j->classes)
                return err_set(c->err, ERR_runtime, "ctc_loss: label %lld is not in [0, %lld)",
                               (long long)j->tg[start[i] + k], (long long)j->classes);
    return true;
}

bool shape_ctc_loss(op_call *c)
{
    tp_tensor *lp = arg_t(c, 0);
    int64_t longest;
    if (!ctc_check(c, lp, arg_t(c, 1), &c->arg[2], &c->arg[3], c->arg[4].i, &longest))
        return false;
    out_new(c, (dtype)lp->dt, 1, &lp->size[1]);
    return out_new(c, (dtype)lp->dt, 3, (symint[]){ lp->size[1], lp->size[0], 2 * longest + 1 }) != NULL;
}
bool eager_ctc_loss(op_call *c)
{
    scratch s = { .err = c->err };
    job j = { .blank = c->arg[4].i, .zero_inf = c->arg[5].b };
    tp_tensor *loss = scratch_out(&s, c->res[0], DT_f64), *alpha = scratch_out(&s, c->res[1], DT_f64);
    bool ok = loss && alpha && job_open(c, 0, &j, &s, (c->res[1]->size[2] - 1) / 2);
    if (ok) {
        j.loss = tensor_host(loss), j.alpha = tensor_host(alpha);
        pool_for(j.n, 1, forward, &j);
        for (int64_t i = 0; i < j.n && j.zero_inf; i++)
            j.loss[i] = j.loss[i] == INFINITY ? 0 : j.loss[i];
    }
    free((void *)j.tstart);
    return scratch_end(&s, ok);
}
/* (grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity) */
bool shape_ctc_backward(op_call *c)
{
    tp_tensor *lp = arg_t(c, 1);
    int64_t longest;
    return ctc_check(c, lp, arg_t(c, 2), &c->arg[3], &c->arg[4], c->arg[7].i, &longest) &&
           grad_is(c, arg_t(c, 0), 1, &lp->size[1]) && out_new(c, (dtype)lp->dt, 3, lp->size);
}
bool eager_ctc_backward(op_call *c)
{
    scratch s = { .err = c->err };
    job j = { .blank = c->arg[7].i, .zero_inf = c->arg[8].b };
    tp_tensor *al = arg_t(c, 6), *g = scratch_in(&s, arg_t(c, 0), DT_f64),
              *nll = scratch_in(&s, arg_t(c, 5), DT_f64), *a = scratch_in(&s, al, DT_f64),
              *o = scratch_out(&s, c->res[0], DT_f64);
    int64_t longest;
    bool ok = g && nll && a && o &&
              ctc_check(c, arg_t(c, 1), arg_t(c, 2), &c->arg[3], &c->arg[4], j.blank, &longest) &&
              job_open(c, 1, &j, &s, longest);
    if (ok && (al->ndim != 3 || al->size[0] != j.n || al->size[1] != j.T || al->size[2] != j.width ||
               nll->numel != j.n))
        ok = err_set(c->err, ERR_runtime, "ctc_loss: the saved recursion does not fit the arguments");
    if (ok) {
        double *loss = mem_alloc(sizeof(double) *
                                 (size_t)MAX(j.n, 1)); /* infinity again where it was set to zero */
        for (int64_t i = 0; i < j.n; i++) {
            int64_t S = 2 * j.tlen[i] + 1, len = j.ilen[i];
            const double *last = (double *)tensor_host(a) + (i * j.T + MAX(len - 1, 0)) * j.width;
            double l = !len ? 0 : S > 1 ? log_add(last[S - 1], last[S - 2]) : last[0];
            loss[i] = -l;
        }
        j.alpha = tensor_host(a), j.in_loss = loss, j.dloss = tensor_host(g), j.grad = tensor_host(o);
        pool_for(j.n, 1, backward, &j);
        free(loss);
    }
    free((void *)j.tstart);
    return scratch_end(&s, ok);
}

/* (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity) */
static bool whole_loss(bld *b, tp_tensor *lp, const tp_val *tg, tp_val il, tp_val tl, const tp_val *arg,
                       tp_val *out)
{
    tp_tensor *r[2];
    bool single = lp->ndim == 2;
    if (single)
        lp = b_op(b, unsqueeze, vT(lp), vI(1));
    if (!lp || !b_opn(b, _ctc_loss, r, 2, vT(lp), *tg, il, tl, arg[0], arg[2]))
        return false;
    tp_tensor *l = r[0];
    if (arg[1].i == 1) { /* the mean of losses by label */
        tp_tensor *t = b_op(b, zeros, vIs(((symint[]){ tl.n }), 1), vDT(lp->dt));
        for (int i = 0; i < tl.n && t; i++)
            b_op(b, fill__Scalar, vT(b_op(b, select_int, vT(t), vI(0), vI(i))), vI(MAX(tl.ints[i], 1)));
        l = b_op(b, mean, vT(b_op(b, div_Tensor, vT(l), vT(t))));
    } else if (arg[1].i == 2)
        l = b_op(b, sum, vT(l));
    else if (single)
        l = b_op(b, squeeze_dim, vT(l), vI(0));
    return comp_ret(b, l, out);
}
bool decomp_ctc_loss_list(bld *b, const tp_val *arg, tp_val *out)
{
    return whole_loss(b, arg[0].t, &arg[1], arg[2], arg[3], &arg[4], out);
}
static bool lengths(bld *b, tp_tensor *t, symint **out, int *n)
{
    if (dtype_is_float((dtype)t->dt))
        return err_set(b->err, ERR_runtime, "input_lengths and target_lengths must be integral");
    if (tensor_is_fake(t))
        return err_set(b->err, ERR_notimpl, "ctc_loss with lengths in a tensor depends on data");
    if (!(t = bld_host(b, t)))
        return false;
    *n = (int)t->numel;
    *out = mem_alloc(sizeof(symint) * (size_t)MAX(*n, 1));
    for (int i = 0; i < *n; i++)
        (*out)[i] = elem_get_i((dtype)t->dt, tensor_elem(t, i));
    return true;
}
bool decomp_ctc_loss(bld *b, const tp_val *arg, tp_val *out) /* lengths as tensors */
{
    symint *il = NULL, *tl = NULL;
    int ni = 0, nt = 0;
    bool ok = lengths(b, arg[2].t, &il, &ni) && lengths(b, arg[3].t, &tl, &nt) &&
              whole_loss(b, arg[0].t, &arg[1], vIs(il, ni), vIs(tl, nt), &arg[4], out);
    free(il);
    free(tl);
    return ok;
}
