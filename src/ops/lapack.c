/* lapack.c - factorisations and solvers through LAPACK's Fortran interface.
 * Results are column-major matrices in a contiguous batch, which is what LAPACK writes. */
#include "ops/decomp.h"
#include "ops/gemm.h"
#include "ops/blas.h"
#include <math.h>
#include <stdio.h>

#define ND(t)   ((t)->ndim)
#define ROWS(t) ((t)->size[ND(t) - 2])
#define COLS(t) ((t)->size[ND(t) - 1])

/* ---- shapes ---- */
/* A result of `batch` dimensions of t and then r x k, column-major. */
static op_out *out_cm(op_call *c, dtype dt, int nb, const symint *batch, symint r, symint k)
{
    symint size[TP_MAX_DIMS];
    memcpy(size, batch, sizeof(symint) * (size_t)nb);
    size[nb] = r;
    size[nb + 1] = k;
    op_out *o = out_new(c, dt, nb + 2, size);
    o->stride[nb] = 1;
    o->stride[nb + 1] = sym_max(r, 1);
    return o;
}
static op_out *out_batch(op_call *c, dtype dt, const tp_tensor *a,
                         symint last) /* last < 0: no more dimension */
{
    symint size[TP_MAX_DIMS];
    int nb = ND(a) - 2;
    memcpy(size, a->size, sizeof(symint) * (size_t)nb);
    if (last < 0)
        return out_new(c, dt, nb, size);
    size[nb] = last;
    return out_new(c, dt, nb + 1, size);
}

static bool is_matrix(op_call *c, const tp_tensor *a, const char *who, const char *arg)
{
    dtype dt = (dtype)a->dt;
    if (ND(a) < 2)
        return err_set(c->err, ERR_runtime, "%s: The input tensor %s must have at least 2 dimensions.", who,
                       arg);
    if (!dtype_is_float(dt))
        return err_set(c->err, ERR_runtime,
                       "%s: Expected a floating point or complex tensor as input. Got %s", who,
                       dtype_rows[dt].gname);
    if (dt == DT_f16 || dt == DT_bf16)
        return err_set(c->err, ERR_runtime, "%s: Low precision dtypes not supported. Got %s", who,
                       dtype_rows[dt].gname);
    return true;
}
static bool is_square(op_call *c, const tp_tensor *a, const char *who)
{
    size_text x, y;
    return is_matrix(c, a, who, "A") &&
           (sym_eq(ROWS(a), COLS(a)) ||
            err_set(c->err, ERR_runtime,
                    "%s: A must be batches of square matrices, but they are %s by %s matrices", who,
                    size_str(&x, ROWS(a)), size_str(&y, COLS(a))));
}

static bool lu_outputs(op_call *c, const tp_tensor *a)
{
    return out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), COLS(a)) &&
           out_batch(c, DT_i32, a, sym_min(ROWS(a), COLS(a)));
}

bool shape_inv_ex(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    return is_square(c, a, "linalg.inv") && out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), COLS(a)) &&
           out_batch(c, DT_i32, a, -1);
}
bool shape_det(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    return is_square(c, a, "linalg.det") && out_batch(c, (dtype)a->dt, a, -1) && lu_outputs(c, a);
}
bool shape_slogdet(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    return is_square(c, a, "linalg.slogdet") && out_batch(c, (dtype)a->dt, a, -1) &&
           out_batch(c, (dtype)a->dt, a, -1) && lu_outputs(c, a);
}
bool shape_lu_factor(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    if (!arg_b(c, 1, true))
        return err_set(c->err, ERR_runtime,
                       "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
    return is_matrix(c, a, "torch.lu_factor", "A") && lu_outputs(c, a) && out_batch(c, DT_i32, a, -1);
}
bool shape_cholesky(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    return is_square(c, a, "linalg.cholesky") &&
           out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), COLS(a)) && out_batch(c, DT_i32, a, -1);
}
bool shape_geqrf(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    if (ND(a) < 2)
        return err_set(c->err, ERR_runtime, "torch.geqrf: input must have at least 2 dimensions.");
    if (a->dt != DT_f32 && a->dt != DT_f64)
        return err_set(c->err, ERR_notimpl, "\"geqrf_cpu\" not implemented for '%s'",
                       dtype_rows[a->dt].gname);
    return out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), COLS(a)) &&
           out_batch(c, (dtype)a->dt, a, sym_min(ROWS(a), COLS(a)));
}
bool shape_ldl_factor(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    if (ND(a) >= 2 && (a->dt == DT_f16 || a->dt == DT_bf16))
        return err_set(c->err, ERR_notimpl, "\"ldl_factor_kernel_cpu\" not implemented for '%s'",
                       dtype_rows[a->dt].gname);
    return is_square(c, a, "torch.linalg.ldl_factor_ex") && lu_outputs(c, a) && out_batch(c, DT_i32, a, -1);
}
bool shape_qr(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    const char *mode = c->arg[1].s;
    bool full = !strcmp(mode, "complete"), r = !strcmp(mode, "r");
    if (!full && !r && strcmp(mode, "reduced"))
        return err_set(
            c->err, ERR_runtime,
            "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or 'complete'",
            mode);
    if (!is_matrix(c, a, "linalg.qr", "A"))
        return false;
    symint m = ROWS(a), k = full ? m : sym_min(m, COLS(a));
    if (r)
        out_new(c, (dtype)a->dt, 1, (symint[]){ 0 });
    else
        out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, m, k);
    return out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, k, COLS(a)) != NULL;
}
bool shape_svd(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    bool full = arg_b(c, 1, false), uv = arg_b(c, 2, true);
    if (!is_matrix(c, a, "linalg.svd", "A"))
        return false;
    symint m = ROWS(a), n = COLS(a), k = sym_min(m, n);
    dtype dt = (dtype)a->dt;
    if (!uv)
        return out_new(c, dt, 1, (symint[]){ 0 }) && out_batch(c, dt, a, k) &&
               out_new(c, dt, 1, (symint[]){ 0 });
    return out_cm(c, dt, ND(a) - 2, a->size, m, full ? m : k) && out_batch(c, dt, a, k) &&
           out_cm(c, dt, ND(a) - 2, a->size, full ? n : k, n);
}
bool shape_eigh(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    const char *uplo = c->arg[1].s;
    if (!is_square(c, a, "linalg.eigh"))
        return false;
    if (strlen(uplo) != 1 || !strchr("LUlu", uplo[0]))
        return err_set(c->err, ERR_runtime, "Expected UPLO argument to be 'L' or 'U', but got %s", uplo);
    out_batch(c, (dtype)a->dt, a, ROWS(a));
    if (!arg_b(c, 2, true))
        return out_new(c, (dtype)a->dt, 1, (symint[]){ 0 }) != NULL;
    return out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), ROWS(a)) != NULL;
}

/* B counts as a vector when it is 1-d or has A's batch and one more dimension. */
static bool is_vector(const tp_tensor *a, const tp_tensor *b)
{
    if (ND(b) == 1)
        return true;
    if (ND(b) != ND(a) - 1)
        return false;
    for (int i = 0; i < ND(b); i++)
        if (!sym_eq(a->size[i], b->size[i]))
            return false;
    return true;
}

static bool batch_of(op_call *c, const tp_tensor *a, int na, const tp_tensor *b, int nb, int *n, symint *size)
{
    *n = na;
    memcpy(size, a->size, sizeof(symint) * (size_t)na);
    return shape_broadcast(n, size, nb, b->size, c->err);
}

static bool solvable(op_call *c, const char *who, tp_tensor *a, tp_tensor *b, bool vec, bool left)
{
    size_text t[4];
    symint r = vec ? b->size[ND(b) - 1] : ROWS(b), k = vec ? 1 : COLS(b);
    if (left ? sym_eq(ROWS(a), r) : sym_eq(COLS(a), k))
        return true;
    return err_set(c->err, ERR_runtime,
                   "%s: Incompatible shapes of A and B for the equation %s = B (%sx%s and %sx%s)", who,
                   left ? "AX" : "XA", size_str(&t[0], ROWS(a)), size_str(&t[1], COLS(a)), size_str(&t[2], r),
                   size_str(&t[3], k));
}

bool shape_solve_ex(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    bool left = arg_b(c, 2, true);
    symint batch[TP_MAX_DIMS];
    int n;
    if (!is_square(c, a, "linalg.solve"))
        return false;
    if (a->dt != b->dt)
        return err_set(
            c->err, ERR_runtime,
            "linalg.solve: Expected A and B to have the same dtype, but found A of type %s and B of type %s "
            "instead",
            dtype_rows[a->dt].gname, dtype_rows[b->dt].gname);
    if (ND(b) == 0)
        return err_set(c->err, ERR_runtime, "linalg.solve: B must have at least 1 dimension");
    bool vec = is_vector(a, b);
    if (!solvable(c, "linalg.solve", a, b, vec, left) ||
        !batch_of(c, a, ND(a) - 2, b, ND(b) - (vec ? 1 : 2), &n, batch))
        return false;
    if (vec) {
        if (n)
            out_cm(c, (dtype)a->dt, n - 1, batch, batch[n - 1], ROWS(a));
        else
            out_new(c, (dtype)a->dt, 1, (symint[]){ ROWS(a) });
    } else if (left)
        out_cm(c, (dtype)a->dt, n, batch, ROWS(a), COLS(b));
    else {
        batch[n] = ROWS(b);
        batch[n + 1] = COLS(a);
        out_new(c, (dtype)a->dt, n + 2, batch);
    }
    return lu_outputs(c, a) && out_batch(c, DT_i32, a, -1);
}

bool shape_solve_triangular(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    symint batch[TP_MAX_DIMS];
    int n;
    return is_square(c, a, "linalg.solve_triangular") && is_matrix(c, b, "linalg.solve_triangular", "B") &&
           (a->dt == b->dt ||
            err_set(c->err, ERR_runtime,
                    "linalg.solve_triangular: Expected A and B to have the same dtype, but found A of "
                    "type %s and B of type %s instead",
                    dtype_rows[a->dt].gname, dtype_rows[b->dt].gname)) &&
           solvable(c, "linalg.solve_triangular", a, b, false, arg_b(c, 3, true)) &&
           batch_of(c, a, ND(a) - 2, b, ND(b) - 2, &n, batch) &&
           out_cm(c, (dtype)a->dt, n, batch, ROWS(b), COLS(b));
}

bool shape_cholesky_solve(op_call *c)
{
    tp_tensor *b = arg_t(c, 0), *a = arg_t(c, 1);
    symint batch[TP_MAX_DIMS];
    size_text t[4];
    int n;
    if (ND(b) < 2)
        return err_set(c->err, ERR_runtime,
                       "b should have at least 2 dimensions, but has %d dimensions instead", ND(b));
    if (ND(a) < 2)
        return err_set(c->err, ERR_runtime,
                       "u should have at least 2 dimensions, but has %d dimensions instead", ND(a));
    if (!is_square(c, a, "cholesky_solve"))
        return false;
    if (!sym_eq(ROWS(a), ROWS(b)))
        return err_set(
            c->err, ERR_runtime,
            "Incompatible matrix sizes for cholesky_solve: each A matrix is %s by %s but each b matrix is %s "
            "by %s",
            size_str(&t[0], ROWS(a)), size_str(&t[1], COLS(a)), size_str(&t[2], ROWS(b)),
            size_str(&t[3], COLS(b)));
    return batch_of(c, a, ND(a) - 2, b, ND(b) - 2, &n, batch) &&
           out_cm(c, (dtype)b->dt, n, batch, ROWS(b), COLS(b));
}
bool shape_cholesky_inverse(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    return is_square(c, a, "cholesky_inverse") &&
           out_cm(c, (dtype)a->dt, ND(a) - 2, a->size, ROWS(a), COLS(a)) != NULL;
}
bool shape_lu_solve(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 2);
    tp_tensor *piv = arg_t(c, 1);
    symint batch[TP_MAX_DIMS];
    int n;
    if (piv->dt != DT_i32)
        return err_set(c->err, ERR_runtime,
                       "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
    if (ND(a) >= 2 && (ND(piv) < 1 || !sym_eq(piv->size[ND(piv) - 1], ROWS(a))))
        return err_set(
            c->err, ERR_runtime,
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix");
    if (!is_square(c, a, "torch.linalg.lu_solve") || !is_matrix(c, b, "torch.linalg.lu_solve", "B") ||
        !solvable(c, "linalg.lu_solve", a, b, false, arg_b(c, 3, true)) ||
        !batch_of(c, a, ND(a) - 2, b, ND(b) - 2, &n, batch))
        return false;
    if (arg_b(c, 3, true))
        return out_cm(c, (dtype)b->dt, n, batch, ROWS(b), COLS(b)) != NULL;
    batch[n] = ROWS(b);
    batch[n + 1] = COLS(b);
    return out_new(c, (dtype)b->dt, n + 2, batch) != NULL;
}

bool shape_ldl_solve(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *piv = arg_t(c, 1), *b = arg_t(c, 2);
    const char *who = "torch.linalg.ldl_solve";
    symint batch[TP_MAX_DIMS];
    size_text t[4];
    int n;
    if (!is_square(c, a, who))
        return false;
    bool same = ND(piv) == ND(a) - 1;
    for (int i = 0; same && i < ND(piv); i++)
        same = sym_eq(piv->size[i], a->size[i]);
    if (!same)
        return err_set(c->err, ERR_runtime,
                       "%s: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
                       "shape %s instead",
                       who, sizes_str(&t[0], ND(piv), piv->size));
    if (dtype_is_float((dtype)piv->dt) || piv->dt == DT_bool)
        return err_set(c->err, ERR_runtime, "%s: Expected pivots to be integers. Got %s", who,
                       dtype_rows[piv->dt].gname);
    if (ND(b) < 2)
        return err_set(c->err, ERR_index,
                       "Dimension out of range (expected to be in range of [-%d, %d], but got -2)",
                       MAX(ND(b), 1), MAX(ND(b) - 1, 0));
    if (!sym_eq(ROWS(b), ROWS(a)))
        return err_set(
            c->err, ERR_runtime,
            "Incompatible matrix sizes for %s: each A matrix is %s by %s but each b matrix is %s by %s", who,
            size_str(&t[0], ROWS(a)), t[0].s, size_str(&t[1], ROWS(b)), size_str(&t[2], COLS(b)));
    if (a->dt != b->dt)
        return err_set(
            c->err, ERR_runtime,
            "Expected b and A to have the same dtype, but found b of type %s and A of type %s instead.",
            dtype_rows[b->dt].gname, dtype_rows[a->dt].gname);
    return batch_of(c, a, ND(a) - 2, b, ND(b) - 2, &n, batch) &&
           out_cm(c, (dtype)b->dt, n, batch, ROWS(b), COLS(b)) != NULL;
}
bool shape_lstsq(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    const char *driver = c->arg[3].kind == VAL_str ? c->arg[3].s : "gelsy";
    symint batch[TP_MAX_DIMS], none = 0;
    int n;
    static const char *const ok[] = { "gels", "gelsy", "gelsd", "gelss" };
    bool known = false;
    for (size_t i = 0; i < COUNT(ok); i++)
        known |= !strcmp(ok[i], driver);
    if (!known)
        return err_set(c->err, ERR_runtime,
                       "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
    if (!is_matrix(c, a, "torch.linalg.lstsq", "input"))
        return false;
    bool vec = ND(b) == ND(a) - 1;
    if (ND(b) < 1 || (!vec && ND(b) < 2) || !sym_eq(ROWS(a), vec ? b->size[ND(b) - 1] : ROWS(b)))
        return err_set(c->err, ERR_runtime, "torch.linalg.lstsq: input.size(-2) should match other.size(-%d)",
                       vec ? 1 : 2);
    if (a->dt != b->dt)
        return err_set(c->err, ERR_runtime, "torch.linalg.lstsq: input and other must have the same dtype");
    symint m = ROWS(a), k = COLS(a), p = vec ? 1 : COLS(b), tall = sym_max(m, k);
    if (!batch_of(c, a, ND(a) - 2, b, ND(b) - (vec ? 1 : 2), &n, batch))
        return false;
    op_out *o = out_cm(c, (dtype)a->dt, n, batch, k, p); /* the first k rows of LAPACK's max(m, k) */
    o->stride[n + 1] = tall;
    symint step = sym_mul(tall, p);
    for (int d = n - 1; d >= 0; d--) {
        o->stride[d] = step;
        step = sym_mul(step, batch[d]);
    }
    if (vec) {
        o->ndim--;
        o->stride[n] = 1;
    }
    bool rank = strcmp(driver, "gels"), sv = !strcmp(driver, "gelsd") || !strcmp(driver, "gelss");
    bool res = sym_gt(m, k) && strcmp(driver, "gelsy");
    if (res) { /* of full-rank problems; the kernel empties it otherwise */
        batch[n] = p;
        out_new(c, (dtype)a->dt, n + 1, batch);
    } else
        out_new(c, (dtype)a->dt, 1, &none);
    if (rank)
        out_batch(c, DT_i64, a, -1);
    else
        out_new(c, DT_i64, 1, &none);
    return sv ? out_batch(c, (dtype)a->dt, a, sym_min(m, k)) != NULL
              : out_new(c, (dtype)a->dt, 1, &none) != NULL;
}

/* ---- kernels ---- */
/* One call for both types; every matrix argument is a void pointer. */
#define CALL(dt, fn, ...) ((dt) == DT_f32 ? blas_s##fn(__VA_ARGS__) : blas_d##fn(__VA_ARGS__))

static int64_t batches(const tp_tensor *t) /* matrices in t */
{
    return t->numel ? t->numel / (ROWS(t) * COLS(t)) : 0;
}
static void *matrix(const tp_tensor *t, int64_t i) /* the i-th of a dense batch */
{
    return (char *)tensor_host(t) + (size_t)(i * ROWS(t) * COLS(t)) * dtype_size((dtype)t->dt);
}
static int ld(const tp_tensor *t) { return (int)MAX(ROWS(t), 1); }

static bool small_enough(op_call *c, const tp_tensor *t)
{
    return (ROWS(t) < INT32_MAX && COLS(t) < INT32_MAX) ||
           err_set(c->err, ERR_runtime, "matrix is too large for LAPACK");
}

/* A column-major copy of t, batch broadcast to (nb, batch). */
static tp_tensor *cm_copy(scratch *s, tp_tensor *t, int nb, const symint *batch, int64_t rows)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int n = nb + 2;
    memcpy(size, batch, sizeof(symint) * (size_t)nb);
    size[nb] = rows;
    size[nb + 1] = COLS(t);
    shape_contiguous_strides(n, size, stride);
    stride[nb] = 1;
    stride[nb + 1] = MAX(rows, 1);
    tp_tensor *r = scratch_take(s, tensor_new_strided((dtype)t->dt, n, size, stride, DEVICE_CPU, s->err));
    if (!r)
        return NULL;
    tp_tensor *top = view_slice(r, nb, 0, ROWS(t), 1);
    if (!tensor_copy(top, t, s->err))
        s->failed = true;
    tensor_unref(top);
    return r;
}

/* "(Batch element 1): " for batches, nothing for a single matrix. */
static const char *element(char *buf, size_t n, const tp_tensor *a, int64_t i)
{
    buf[0] = 0;
    if (ND(a) > 2)
        snprintf(buf, n, "(Batch element %lld): ", (long long)i);
    return buf;
}

/* LU in place of lu, 1-based pivots into piv, info per matrix. */
static void lu_all(tp_tensor *lu, tp_tensor *piv, int32_t *info)
{
    dtype dt = (dtype)lu->dt;
    int m = (int)ROWS(lu), n = (int)COLS(lu), k = MIN(m, n), lda = ld(lu);
    int64_t nb = batches(lu);
    for (int64_t i = 0; i < nb; i++) {
        int inf = 0;
        CALL(dt, getrf, &m, &n, matrix(lu, i), &lda, (int *)tensor_host(piv) + i * k, &inf);
        if (info)
            info[i] = inf;
    }
}
static void no_info(tp_tensor *t)
{
    if (t->numel)
        memset(tensor_host(t), 0, (size_t)t->numel * 4);
}

static bool lapack_inv_ex(op_call *c)
{
    tp_tensor *a = c->res[0], *info = c->res[1];
    dtype dt = (dtype)a->dt;
    char el[64];
    no_info(info);
    if (!small_enough(c, a) || !tensor_copy(a, arg_t(c, 0), c->err))
        return false;
    int n = (int)ROWS(a), lda = ld(a), lw = n * 64 + 1;
    int *piv = mem_alloc(sizeof(int) * (size_t)MAX(n, 1));
    void *work = mem_alloc((size_t)lw * 8);
    bool ok = true;
    for (int64_t i = 0; i < batches(a) && ok; i++) {
        int inf = 0;
        CALL(dt, getrf, &n, &n, matrix(a, i), &lda, piv, &inf);
        if (!inf)
            CALL(dt, getri, &n, matrix(a, i), &lda, piv, work, &lw, &inf);
        ((int32_t *)tensor_host(info))[i] = inf;
        if (inf > 0 && arg_b(c, 1, false))
            ok = err_set(
                c->err, ERR_linalg,
                "linalg.inv: %sThe diagonal element %d is zero, the inversion could not be completed because "
                "the input matrix is singular.",
                element(el, sizeof el, a, i), inf);
    }
    free(piv);
    free(work);
    return ok;
}

static bool factor(op_call *c, tp_tensor *lu, tp_tensor *piv, int32_t *info)
{
    if (!small_enough(c, lu) || !tensor_copy(lu, arg_t(c, 0), c->err))
        return false;
    lu_all(lu, piv, info);
    return true;
}

static double diag_at(const tp_tensor *lu, int64_t b, int64_t i)
{
    dtype dt = (dtype)lu->dt;
    return elem_get_f(dt, (char *)matrix(lu, b) + (size_t)(i * (ROWS(lu) + 1)) * dtype_size(dt));
}
static int parity(const tp_tensor *piv, int64_t b, int64_t n)
{
    int s = 1;
    for (int64_t i = 0; i < n; i++)
        s = ((int32_t *)tensor_host(piv))[b * n + i] != i + 1 ? -s : s;
    return s;
}

static bool lapack_det(op_call *c)
{
    tp_tensor *r = c->res[0], *lu = c->res[1], *piv = c->res[2];
    if (!factor(c, lu, piv, NULL))
        return false;
    int64_t n = ROWS(lu);
    for (int64_t b = 0; b < r->numel; b++) {
        double d = n ? parity(piv, b, n) : 1;
        for (int64_t i = 0; i < n; i++)
            d *= diag_at(lu, b, i);
        elem_set_f((dtype)r->dt, tensor_elem(r, b), d);
    }
    return true;
}
static bool lapack_slogdet(op_call *c)
{
    tp_tensor *sign = c->res[0], *la = c->res[1], *lu = c->res[2], *piv = c->res[3];
    if (!factor(c, lu, piv, NULL))
        return false;
    int64_t n = ROWS(lu);
    for (int64_t b = 0; b < sign->numel; b++) {
        double s = n ? parity(piv, b, n) : 1, l = 0;
        for (int64_t i = 0; i < n; i++) {
            double d = diag_at(lu, b, i);
            s *= d > 0 ? 1 : d < 0 ? -1 : d; /* NaN stays NaN */
            l += log(fabs(d));
        }
        elem_set_f((dtype)sign->dt, tensor_elem(sign, b), s);
        elem_set_f((dtype)la->dt, tensor_elem(la, b), l);
    }
    return true;
}
static bool lapack_lu_factor(op_call *c)
{
    tp_tensor *lu = c->res[0], *info = c->res[2];
    char el[64];
    no_info(info);
    if (!factor(c, lu, c->res[1], tensor_host(info)))
        return false;
    for (int64_t i = 0; i < info->numel && arg_b(c, 2, false); i++) {
        int k = ((int32_t *)tensor_host(info))[i];
        if (k > 0)
            return err_set(
                c->err, ERR_runtime,
                "torch.linalg.lu_factor: %sU[%d,%d] is zero and using it on lu_solve would result in a "
                "division by zero. If you still want to perform the factorization, consider calling "
                "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
                element(el, sizeof el, lu, i), k, k);
    }
    return true;
}

static bool lapack_solve_ex(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1), *x = c->res[0], *lu = c->res[1], *piv = c->res[2],
              *info = c->res[3];
    bool vec = is_vector(a, b), left = arg_b(c, 2, true);
    dtype dt = (dtype)a->dt;
    char el[64];
    no_info(info);
    if (!factor(c, lu, piv, tensor_host(info)))
        return false;
    for (int64_t i = 0; i < info->numel && arg_b(c, 3, false); i++)
        if (((int32_t *)tensor_host(info))[i] > 0)
            return err_set(c->err, ERR_linalg,
                           "torch.linalg.solve: %sThe solver failed because the input matrix is singular.",
                           element(el, sizeof el, lu, i));
    /* Right-hand sides as columns: B itself, a vector as one column, or B' when X A = B. */
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int nb = ND(b) - (vec ? 1 : 2);
    for (int d = 0; d < nb; d++)
        size[d] = b->size[d], stride[d] = b->stride[d];
    int r = vec ? nb : left ? nb : nb + 1, k = vec ? -1 : left ? nb + 1 : nb;
    size[nb] = b->size[r];
    stride[nb] = b->stride[r];
    size[nb + 1] = k < 0 ? 1 : b->size[k];
    stride[nb + 1] = k < 0 ? 0 : b->stride[k];
    tp_tensor *rhs = scratch_take(&s, tensor_on(b->storage, dt, nb + 2, size, stride, b->offset));
    int xb = ND(x) - (vec ? 1 : 2);
    tp_tensor *w = cm_copy(&s, rhs, xb, x->size, size[nb]);
    if (!w)
        return scratch_end(&s, false);
    int n = (int)ROWS(lu), lda = ld(lu), p = (int)COLS(w), ldb = ld(w);
    int64_t nl = batches(lu), nw = batches(w);
    for (int64_t i = 0; i < nw; i++) { /* A's batch may be broadcast: find its matrix */
        int64_t at = 0, rest = i, mul = 1;
        for (int d = xb - 1; d >= 0; d--) {
            int da = d - (xb - (ND(a) - 2));
            int64_t k2 = rest % x->size[d];
            rest /= x->size[d];
            if (da >= 0) {
                at += (a->size[da] == 1 ? 0 : k2) * mul;
                mul *= a->size[da];
            }
        }
        int inf = 0;
        if (nl)
            CALL(dt, getrs, left ? "N" : "T", &n, &p, matrix(lu, at), &lda, (int *)tensor_host(piv) + at * n,
                 matrix(w, i), &ldb, &inf);
    }
    /* back into x's own layout */
    memcpy(size, x->size, sizeof(symint) * (size_t)xb);
    symint wstride[TP_MAX_DIMS];
    memcpy(wstride, w->stride, sizeof(symint) * (size_t)xb);
    if (vec)
        wstride[xb] = 1;
    else {
        wstride[xb] = left ? 1 : w->stride[xb + 1];
        wstride[xb + 1] = left ? w->stride[xb + 1] : 1;
    }
    tp_tensor *view = scratch_take(&s, tensor_on(w->storage, dt, ND(x), x->size, wstride, 0));
    return scratch_end(&s, tensor_copy(x, view, c->err));
}

/* Zero strictly above (lower result) or below (upper result) the diagonal of column-major matrices. */
static void keep_triangle(tp_tensor *t, bool upper)
{
    size_t es = dtype_size((dtype)t->dt);
    int64_t m = ROWS(t), n = COLS(t);
    for (int64_t b = 0; b < batches(t); b++)
        for (int64_t j = 0; j < n; j++) {
            char *col = (char *)matrix(t, b) + (size_t)(j * m) * es;
            if (upper && j + 1 < m)
                memset(col + (size_t)(j + 1) * es, 0, (size_t)(m - j - 1) * es);
            else if (!upper)
                memset(col, 0, (size_t)MIN(j, m) * es);
        }
}

static bool lapack_cholesky(op_call *c)
{
    tp_tensor *l = c->res[0], *info = c->res[1];
    bool upper = arg_b(c, 1, false);
    char el[64];
    no_info(info);
    if (!small_enough(c, l) || !tensor_copy(l, arg_t(c, 0), c->err))
        return false;
    int n = (int)ROWS(l), lda = ld(l);
    for (int64_t i = 0; i < batches(l); i++) {
        int inf = 0;
        CALL((dtype)l->dt, potrf, upper ? "U" : "L", &n, matrix(l, i), &lda, &inf);
        ((int32_t *)tensor_host(info))[i] = inf;
        if (inf > 0 && arg_b(c, 2, false))
            return err_set(
                c->err, ERR_linalg,
                "linalg.cholesky: %sThe factorization could not be completed because the input is not "
                "positive-definite (the leading minor of order %d is not positive-definite).",
                element(el, sizeof el, l, i), inf);
    }
    keep_triangle(l, upper);
    return true;
}

static bool lapack_geqrf(op_call *c)
{
    tp_tensor *a = c->res[0], *tau = c->res[1];
    size_t es = dtype_size((dtype)a->dt);
    if (!small_enough(c, a) || !tensor_copy(a, arg_t(c, 0), c->err))
        return false;
    int m = (int)ROWS(a), n = (int)COLS(a), k = MIN(m, n), lda = ld(a), lw = MAX(n, 1) * 64, inf = 0;
    void *work = mem_alloc((size_t)lw * 8);
    for (int64_t i = 0; i < batches(a); i++)
        CALL((dtype)a->dt, geqrf, &m, &n, matrix(a, i), &lda,
             (void *)((char *)tensor_host(tau) + (size_t)(i * k) * es), work, &lw, &inf);
    free(work);
    return true;
}

/* L D L^T of the lower triangle; D has blocks of one and of two, which the signs of the pivots tell. */
static bool lapack_ldl_factor(op_call *c)
{
    tp_tensor *a = c->res[0], *piv = c->res[1], *info = c->res[2];
    bool ok = true;
    char el[64];
    no_info(info);
    if (!small_enough(c, a) || !tensor_copy(a, arg_t(c, 0), c->err))
        return false;
    int n = (int)ROWS(a), lda = ld(a), lw = MAX(n, 1) * 64;
    void *work = mem_alloc((size_t)lw * 8);
    for (int64_t i = 0; i < batches(a) && ok; i++) {
        int inf = 0;
        CALL((dtype)a->dt, sytrf, "L", &n, matrix(a, i), &lda, (int *)tensor_host(piv) + i * n, work, &lw,
             &inf);
        ((int32_t *)tensor_host(info))[i] = inf;
        if (inf > 0 && arg_b(c, 2, false))
            ok = err_set(
                c->err, ERR_runtime,
                "torch.linalg.ldl_factor_ex: %sD(%d, %d) is zero: the factorization is complete, but D is "
                "singular and cannot be used to solve equations.",
                element(el, sizeof el, a, i), inf, inf);
    }
    free(work);
    keep_triangle(a, false);
    return ok;
}

static bool lapack_ldl_solve(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = c->res[0];
    tp_tensor *a = small_enough(c, x) ? cm_copy(&s, arg_t(c, 0), ND(x) - 2, x->size, ROWS(x)) : NULL;
    symint one[TP_MAX_DIMS]; /* pivots of every matrix of the result */
    memcpy(one, x->size, sizeof(symint) * (size_t)(ND(x) - 1));
    tp_tensor *piv = a ? scratch_new(&s, DT_i32, ND(x) - 1, one) : NULL;
    if (!piv || !tensor_copy(piv, arg_t(c, 1), c->err) || !tensor_copy(x, arg_t(c, 2), c->err))
        return scratch_end(&s, false);
    int n = (int)ROWS(x), nrhs = (int)COLS(x), lda = ld(a), inf = 0;
    bool ok = true; /* LAPACK trusts its pivots */
    for (int64_t i = 0; ok && i < piv->numel; i++) {
        int32_t p = ((int32_t *)tensor_host(piv))[i];
        ok = (p >= 1 && p <= n) || (p <= -1 && p >= -n);
        if (ok && p < 0) { /* the first of two equal ones */
            ok = i % n + 1 < n && ((int32_t *)tensor_host(piv))[i + 1] == p;
            i++;
        }
    }
    if (!ok)
        err_set(c->err, ERR_runtime, "torch.linalg.ldl_solve: the pivots are not those of ldl_factor");
    for (int64_t i = 0; ok && i < batches(x); i++)
        CALL((dtype)x->dt, sytrs, "L", &n, &nrhs, matrix(a, i), &lda, (int *)tensor_host(piv) + i * n,
             matrix(x, i), &lda, &inf);
    return scratch_end(&s, ok);
}

static bool lapack_qr(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *a = arg_t(c, 0), *q = c->res[0], *r = c->res[1];
    const char *mode = c->arg[1].s;
    bool want_q = strcmp(mode, "r") != 0;
    dtype dt = (dtype)a->dt;
    int m = (int)ROWS(a), n = (int)COLS(a), k = MIN(m, n), lda = MAX(m, 1), inf = 0;
    tp_tensor *w = cm_copy(&s, a, ND(a) - 2, a->size, m);
    if (!w || !small_enough(c, a))
        return scratch_end(&s, false);
    size_t es = dtype_size(dt);
    int lw = MAX(MAX(m, n), 1) * 64;
    void *work = mem_alloc((size_t)lw * 8), *tau = mem_zalloc((size_t)MAX(k, 1) * 8);
    int64_t nb = 1;
    for (int d = 0; d < ND(a) - 2; d++)
        nb *= a->size[d];
    for (int64_t i = 0; i < nb; i++) {
        char *p = (char *)tensor_host(w) + (size_t)(i * m * n) * es;
        if (k)
            CALL(dt, geqrf, &m, &n, (void *)p, &lda, tau, work, &lw, &inf);
        if (r->numel)
            for (int64_t j = 0; j < n; j++) {
                char *col = (char *)matrix(r, i) + (size_t)(j * ROWS(r)) * es;
                int64_t top = MIN(j + 1, MIN(ROWS(r), m));
                memcpy(col, p + (size_t)(j * m) * es, (size_t)top * es);
                memset(col + (size_t)top * es, 0, (size_t)(ROWS(r) - top) * es);
            }
        if (want_q && q->numel) {
            int cols = (int)COLS(q);
            char *qp = matrix(q, i);
            memset(qp, 0, (size_t)(m * cols) * es);
            memcpy(qp, p, (size_t)(m * MIN(k, cols)) * es);
            CALL(dt, orgqr, &m, &cols, &k, (void *)qp, &lda, tau, work, &lw, &inf);
        }
    }
    free(work);
    free(tau);
    return scratch_end(&s, true);
}

static bool lapack_svd(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *a = arg_t(c, 0), *u = c->res[0], *sv = c->res[1], *vh = c->res[2];
    bool full = arg_b(c, 1, false), uv = arg_b(c, 2, true), ok = true;
    dtype dt = (dtype)a->dt;
    size_t es = dtype_size(dt);
    int m = (int)ROWS(a), n = (int)COLS(a), k = MIN(m, n), lda = MAX(m, 1);
    char el[64];
    tp_tensor *w = cm_copy(&s, a, ND(a) - 2, a->size, m);
    if (!w || !small_enough(c, a))
        return scratch_end(&s, false);
    if (w->numel == 0) { /* orthogonal factors of an empty matrix are identities */
        tp_tensor *side[2] = { u, vh };
        for (int f = 0; f < 2 && uv; f++) {
            if (side[f]->numel)
                memset(tensor_host(side[f]), 0, (size_t)side[f]->numel * es);
            for (int64_t b = 0; b < batches(side[f]); b++)
                for (int64_t i = 0; i < MIN(ROWS(side[f]), COLS(side[f])); i++)
                    elem_set_f(dt, (char *)matrix(side[f], b) + (size_t)(i * (ROWS(side[f]) + 1)) * es, 1);
        }
        return scratch_end(&s, true);
    }
    int mx = MAX(m, n), lw = 4 * k * k + 7 * k + mx + 64 * (mx + k) + 64, ldu = MAX(m, 1),
        ldv = MAX(full ? n : k, 1);
    void *work = mem_alloc((size_t)lw * 8);
    int *iw = mem_alloc(sizeof(int) * (size_t)(8 * MAX(k, 1)));
    for (int64_t i = 0; i < batches(w) && ok; i++) {
        int inf = 0;
        bool finite = true;
        for (int64_t e = 0; e < (int64_t)m * n && finite; e++)
            finite = isfinite(elem_get_f(dt, (char *)matrix(w, i) + (size_t)e * es));
        char *sp = (char *)tensor_host(sv) + (size_t)(i * k) * es;
        if (finite)
            CALL(dt, gesdd, uv ? (full ? "A" : "S") : "N", &m, &n, matrix(w, i), &lda, (void *)sp,
                 uv ? matrix(u, i) : (void *)sp, &ldu, uv ? matrix(vh, i) : (void *)sp, &ldv, work, &lw, iw,
                 &inf);
        if (!finite)
            ok = err_set(c->err, ERR_linalg,
                         "linalg.svd: %sThe algorithm failed to converge because the input matrix contained "
                         "non-finite "
                         "values.",
                         element(el, sizeof el, a, i));
        else if (inf > 0)
            ok = err_set(c->err, ERR_linalg,
                         "linalg.svd: %sThe algorithm failed to converge because the input matrix is "
                         "ill-conditioned or "
                         "has too many repeated singular values (error code: %d).",
                         element(el, sizeof el, a, i), inf);
    }
    free(work);
    free(iw);
    return scratch_end(&s, ok);
}

static bool lapack_eigh(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *a = arg_t(c, 0), *w = c->res[0], *v = c->res[1];
    bool vec = arg_b(c, 2, true), ok = true;
    dtype dt = (dtype)a->dt;
    int n = (int)ROWS(a), lda = MAX(n, 1);
    const char *uplo = c->arg[1].s[0] == 'U' || c->arg[1].s[0] == 'u' ? "U" : "L";
    char el[64];
    if (!small_enough(c, a))
        return false;
    if (!vec)
        v = cm_copy(&s, a, ND(a) - 2, a->size, n);
    else if (!tensor_copy(v, a, c->err))
        v = NULL;
    if (!v)
        return scratch_end(&s, false);
    int lw = 1 + 6 * n + 2 * n * n, liw = 3 + 5 * n;
    void *work = mem_alloc((size_t)MAX(lw, 1) * 8);
    int *iw = mem_alloc(sizeof(int) * (size_t)MAX(liw, 1));
    for (int64_t i = 0; i < batches(v) && ok; i++) {
        int inf = 0;
        CALL(dt, syevd, vec ? "V" : "N", uplo, &n, matrix(v, i), &lda,
             (void *)((char *)tensor_host(w) + (size_t)(i * n) * dtype_size(dt)), work, &lw, iw, &liw, &inf);
        if (inf > 0)
            ok = err_set(
                c->err, ERR_linalg,
                "linalg.eigh: %sThe algorithm failed to converge because the input matrix is ill-conditioned "
                "or has too many repeated eigenvalues (error code: %d).",
                element(el, sizeof el, a, i), inf);
    }
    free(work);
    free(iw);
    return scratch_end(&s, ok);
}

/* The factor a, copied column-major with its batch broadcast to that of the result. */
static tp_tensor *factor_for(scratch *s, tp_tensor *a, const tp_tensor *x)
{
    return cm_copy(s, a, ND(x) - 2, x->size, ROWS(a));
}

static bool lapack_solve_triangular(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = c->res[0], *a = factor_for(&s, arg_t(c, 0), x);
    bool upper = arg_b(c, 2, false), left = arg_b(c, 3, true), unit = arg_b(c, 4, false);
    if (!a || !small_enough(c, x) || !tensor_copy(x, arg_t(c, 1), c->err))
        return scratch_end(&s, false);
    int m = (int)ROWS(x), n = (int)COLS(x), lda = ld(a), ldb = ld(x);
    float one_s = 1;
    double one_d = 1;
    for (int64_t i = 0; i < batches(x); i++) {
        if (x->dt == DT_f32)
            blas_strsm(left ? "L" : "R", upper ? "U" : "L", "N", unit ? "U" : "N", &m, &n, &one_s,
                       matrix(a, i), &lda, matrix(x, i), &ldb);
        else
            blas_dtrsm(left ? "L" : "R", upper ? "U" : "L", "N", unit ? "U" : "N", &m, &n, &one_d,
                       matrix(a, i), &lda, matrix(x, i), &ldb);
    }
    return scratch_end(&s, true);
}

static bool lapack_cholesky_solve(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = c->res[0], *a = factor_for(&s, arg_t(c, 1), x);
    if (!a || !small_enough(c, x) || !tensor_copy(x, arg_t(c, 0), c->err))
        return scratch_end(&s, false);
    int n = (int)ROWS(x), p = (int)COLS(x), lda = ld(a), ldb = ld(x), inf = 0;
    for (int64_t i = 0; i < batches(x); i++)
        CALL((dtype)x->dt, potrs, arg_b(c, 2, false) ? "U" : "L", &n, &p, matrix(a, i), &lda, matrix(x, i),
             &ldb, &inf);
    return scratch_end(&s, true);
}

static bool lapack_cholesky_inverse(op_call *c)
{
    tp_tensor *x = c->res[0];
    bool upper = arg_b(c, 1, false);
    dtype dt = (dtype)x->dt;
    size_t es = dtype_size(dt);
    if (!small_enough(c, x) || !tensor_copy(x, arg_t(c, 0), c->err))
        return false;
    int n = (int)ROWS(x), lda = ld(x);
    for (int64_t b = 0; b < batches(x); b++) {
        int inf = 0;
        CALL(dt, potri, upper ? "U" : "L", &n, matrix(x, b), &lda, &inf);
        for (int64_t j = 0; j < n; j++) /* LAPACK fills one triangle */
            for (int64_t i = 0; i < j; i++) {
                char *up = (char *)matrix(x, b) + (size_t)(j * n + i) * es,
                     *lo = (char *)matrix(x, b) + (size_t)(i * n + j) * es;
                memcpy(upper ? lo : up, upper ? up : lo, es);
            }
    }
    return true;
}

static bool lapack_lu_solve(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = c->res[0], *lu = factor_for(&s, arg_t(c, 0), x), *piv = arg_t(c, 1);
    bool left = arg_b(c, 3, true), adj = arg_b(c, 4, false);
    symint size[TP_MAX_DIMS];
    if (!lu || !small_enough(c, x))
        return scratch_end(&s, false);
    memcpy(size, x->size, sizeof(symint) * (size_t)(ND(x) - 2));
    size[ND(x) - 2] = ROWS(lu);
    tp_tensor *pv = scratch_new(&s, DT_i32, ND(x) - 1, size);
    tp_tensor *b = arg_t(c, 2), *bt = left ? b
                                           : scratch_take(&s, tensor_on(b->storage, (dtype)b->dt, ND(b),
                                                                        b->size, b->stride, b->offset));
    if (!left) { /* X A = B is A' X' = B' */
        int n = ND(b);
        bt->size[n - 2] = b->size[n - 1], bt->size[n - 1] = b->size[n - 2];
        bt->stride[n - 2] = b->stride[n - 1], bt->stride[n - 1] = b->stride[n - 2];
    }
    tp_tensor *w = cm_copy(&s, bt, ND(x) - 2, x->size, ROWS(bt));
    if (!pv || !w || !tensor_copy(pv, piv, c->err))
        return scratch_end(&s, false);
    for (int64_t i = 0; i < pv->numel; i++) /* LAPACK swaps rows by them without looking */
        if (((int *)tensor_host(pv))[i] < 1 || ((int *)tensor_host(pv))[i] > ROWS(lu)) {
            err_set(c->err, ERR_runtime,
                    ((int *)tensor_host(pv))[i] < 1
                        ? "Pivots given to lu_solve must all be greater or equal to 1. Did you properly pass "
                          "the result of lu_factor?"
                        : "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). Did you "
                          "properly pass the result of lu_factor?");
            return scratch_end(&s, false);
        }
    int n = (int)ROWS(lu), p = (int)COLS(w), lda = ld(lu), ldb = ld(w), inf = 0;
    for (int64_t i = 0; i < batches(w); i++)
        CALL((dtype)x->dt, getrs, adj == left ? "T" : "N", &n, &p, matrix(lu, i), &lda,
             (int *)tensor_host(pv) + i * n, matrix(w, i), &ldb, &inf);
    if (!left) {
        int k = ND(w);
        symint t = w->size[k - 2];
        w->size[k - 2] = w->size[k - 1];
        w->size[k - 1] = t;
        t = w->stride[k - 2];
        w->stride[k - 2] = w->stride[k - 1];
        w->stride[k - 1] = t;
    }
    return scratch_end(&s, tensor_copy(x, w, c->err));
}

static bool lapack_lstsq(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1), *x = c->res[0];
    const char *driver = c->arg[3].kind == VAL_str ? c->arg[3].s : "gelsy";
    bool vec = ND(b) == ND(a) - 1, svd = !strcmp(driver, "gelsd") || !strcmp(driver, "gelss");
    dtype dt = (dtype)a->dt;
    int m = (int)ROWS(a), n = (int)COLS(a), mn = MIN(m, n), tall = MAX(m, n);
    int xb = ND(x) - (vec ? 1 : 2);
    if (!small_enough(c, a))
        return false;
    tp_tensor *rhs = b;
    if (vec) {
        symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
        memcpy(size, b->size, sizeof(symint) * ND(b));
        memcpy(stride, b->stride, sizeof(symint) * ND(b));
        size[ND(b)] = 1;
        stride[ND(b)] = 0;
        rhs = scratch_take(&s, tensor_on(b->storage, dt, ND(b) + 1, size, stride, b->offset));
    }
    tp_tensor *aw = cm_copy(&s, a, xb, x->size, m), *bw = cm_copy(&s, rhs, xb, x->size, tall);
    if (!aw || !bw)
        return scratch_end(&s, false);
    int p = (int)COLS(bw), lda = MAX(m, 1), ldb = MAX(tall, 1),
        lw = 64 * (tall + p) * 16 + 64 * mn * (mn + 8) + 1024;
    void *work = mem_alloc((size_t)lw * 8), *sv = mem_zalloc((size_t)MAX(mn, 1) * 8);
    int *iw = mem_zalloc(sizeof(int) * (size_t)(MAX(n, 1) + 64 * MAX(mn, 1) * 32));
    bool full = true;
    double eps = dt == DT_f32 ? 1.1920928955078125e-07 : 2.220446049250313e-16;
    double rc = c->arg[2].kind == VAL_none ? eps * tall : val_as_f(&c->arg[2]);
    float rcf = (float)rc;
    for (int64_t i = 0; i < batches(bw); i++) {
        int rank = 0, inf = 0;
        void *pa = matrix(aw, i), *pb = matrix(bw, i);
        if (svd) {
            if (dt == DT_f32)
                blas_sgelsd(&m, &n, &p, pa, &lda, pb, &ldb, sv, &rcf, &rank, work, &lw, iw, &inf);
            else
                blas_dgelsd(&m, &n, &p, pa, &lda, pb, &ldb, sv, &rc, &rank, work, &lw, iw, &inf);
            if (c->res[3]->numel)
                memcpy((char *)tensor_host(c->res[3]) + (size_t)(i * mn) * dtype_size(dt), sv,
                       (size_t)mn * dtype_size(dt));
        } else {
            memset(iw, 0, sizeof(int) * (size_t)MAX(n, 1));
            if (dt == DT_f32)
                blas_sgelsy(&m, &n, &p, pa, &lda, pb, &ldb, iw, &rcf, &rank, work, &lw, &inf);
            else
                blas_dgelsy(&m, &n, &p, pa, &lda, pb, &ldb, iw, &rc, &rank, work, &lw, &inf);
        }
        if (c->res[2]->numel && i < c->res[2]->numel)
            ((int64_t *)tensor_host(c->res[2]))[i] = rank;
        full = full && rank == n;
    }
    tp_tensor *top = scratch_take(&s, tensor_on(bw->storage, dt, ND(x), x->size, bw->stride, 0));
    bool ok = tensor_copy(x, top, c->err);
    tp_tensor *res = c->res[1];
    if (res->numel && !full) {
        symint none = 0;
        ok = ok && tensor_reset(res, res->storage, dt, 1, &none, NULL, 0, c->err);
    } else if (res->numel)
        for (int64_t i = 0; i < batches(bw); i++)
            for (int64_t j = 0; j < p; j++) {
                double sum = 0;
                for (int64_t k = n; k < m; k++) {
                    double v = elem_get_f(dt,
                                          (char *)matrix(bw, i) + (size_t)(j * tall + k) * dtype_size(dt));
                    sum += v * v;
                }
                elem_set_f(dt, (char *)tensor_host(res) + (size_t)(i * p + j) * dtype_size(dt), sum);
            }
    free(work);
    free(sv);
    free(iw);
    return scratch_end(&s, ok);
}

/* LAPACK may be missing on the machine that runs this. */
static bool no_lapack(op_call *c)
{
    return err_set(
        c->err, ERR_runtime,
        "%s needs LAPACK, and there is no OpenBLAS on this machine: install libopenblas0 (Debian), "
        "openblas (Fedora) or, with pip, scipy-openblas32",
        c->row->name);
}
#define KERNEL(op) \
    bool eager_##op(op_call *c) { return blas_ready() ? lapack_##op(c) : no_lapack(c); }
KERNEL(inv_ex)
KERNEL(det)
KERNEL(slogdet)
KERNEL(lu_factor)
KERNEL(solve_ex)
KERNEL(cholesky)
KERNEL(geqrf)
KERNEL(ldl_factor)
KERNEL(ldl_solve)
KERNEL(qr)
KERNEL(svd)
KERNEL(eigh)
KERNEL(solve_triangular)
KERNEL(cholesky_solve)
KERNEL(cholesky_inverse)
KERNEL(lu_solve)
KERNEL(lstsq)

/* ---- composites ---- */
static bool firsts(bld *b, bool ok, tp_tensor **r, int n, tp_val *out)
{
    return ok && comp_ret_n(b, r, n, out);
}

bool decomp_inv(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return firsts(b, b_opn(b, linalg_inv_ex, r, 2, arg[0], vB(true)), r, 1, out);
}
bool decomp_det(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return firsts(b, b_opn(b, _linalg_det, r, 3, arg[0]), r, 1, out);
}
bool decomp_slogdet(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[4];
    return firsts(b, b_opn(b, _linalg_slogdet, r, 4, arg[0]), r, 2, out);
}
bool decomp_solve(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[4];
    return firsts(b, b_opn(b, _linalg_solve_ex, r, 4, arg[0], arg[1], arg[2], vB(true)), r, 1, out);
}
bool decomp_solve_ex(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[4];
    if (!b_opn(b, _linalg_solve_ex, r, 4, arg[0], arg[1], arg[2], arg[3]))
        return false;
    tp_tensor *two[2] = { r[0], r[3] };
    return comp_ret_n(b, two, 2, out);
}
bool decomp_cholesky(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return firsts(b, b_opn(b, linalg_cholesky_ex, r, 2, arg[0], arg[1], vB(true)), r, 1, out);
}
bool decomp_lu_factor(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return firsts(b, b_opn(b, linalg_lu_factor_ex, r, 3, arg[0], arg[1], vB(true)), r, 2, out);
}
bool decomp_ldl_factor(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return firsts(b, b_opn(b, linalg_ldl_factor_ex, r, 3, arg[0], arg[1], vB(true)), r, 2, out);
}
bool decomp_qr(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return firsts(b, b_opn(b, linalg_qr, r, 2, arg[0], vS(val_b(&arg[1], true) ? "reduced" : "complete")), r,
                  2, out);
}
bool decomp_svd(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return firsts(b, b_opn(b, _linalg_svd, r, 3, arg[0], arg[1], vB(true)), r, 3, out);
}
bool decomp_svdvals(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return b_opn(b, _linalg_svd, r, 3, arg[0], vB(false), vB(true)) && comp_ret(b, r[1], out);
}
bool decomp_eigh(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return firsts(b, b_opn(b, _linalg_eigh, r, 2, arg[0], arg[1], vB(true)), r, 2, out);
}
bool decomp_eigvalsh(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return firsts(b, b_opn(b, _linalg_eigh, r, 2, arg[0], arg[1], vB(true)), r, 1, out);
}
