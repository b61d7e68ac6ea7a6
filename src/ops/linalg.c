/* linalg.c - matrix products (BLAS when it was found at build time) and linear algebra. */
#include "ops/op.h"

bool shape_mm(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    if (a->ndim != 2)
        return err_set(c->err, ERR_runtime, "self must be a matrix");
    if (b->ndim != 2)
        return err_set(c->err, ERR_runtime, "mat2 must be a matrix");
    if (!sym_eq(a->size[1], b->size[0])) {
        strbuf s = { 0 };
        const symint v[4] = { a->size[0], a->size[1], b->size[0], b->size[1] };
        static const char *const sep[4] = { "", "x", " and ", "x" };
        for (int i = 0; i < 4; i++) {
            strbuf_add(&s, sep[i]);
            sym_is_expr(v[i]) ? sym_print(&s, v[i]) : strbuf_addf(&s, "%lld", (long long)v[i]);
        }
        err_set(c->err, ERR_runtime, "mat1 and mat2 shapes cannot be multiplied (%s)", strbuf_str(&s));
        strbuf_free(&s);
        return false;
    }
    if (a->dt != b->dt)
        return err_set(c->err, ERR_runtime, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                       dtype_rows[a->dt].gname, dtype_rows[b->dt].gname);
    return out_new(c, (dtype)a->dt, 2, (symint[]){ a->size[0], b->size[1] }) != NULL;
}

#if TAPER_HAVE_BLAS
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
            const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
            const int *ldc);
void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc);
#endif

/* Plain triple loop for every type, also the fallback without BLAS. */
static void gemm_plain(const tp_tensor *a, const tp_tensor *b, tp_tensor *out)
{
    dtype dt = (dtype)a->dt;
    size_t es = dtype_size(dt);
    int64_t m = a->size[0], k = a->size[1], n = b->size[1];
    const char *pa = tensor_data(a), *pb = tensor_data(b);
    char *po = tensor_data(out);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double f = 0;
            int64_t s = 0;
            for (int64_t l = 0; l < k; l++) {
                const void *x = pa + (size_t)(i * a->stride[0] + l * a->stride[1]) * es;
                const void *y = pb + (size_t)(l * b->stride[0] + j * b->stride[1]) * es;
                if (dtype_is_float(dt))
                    f += elem_get_f(dt, x) * elem_get_f(dt, y);
                else
                    s += elem_get_i(dt, x) * elem_get_i(dt, y);
            }
            void *o = po + (size_t)(i * out->stride[0] + j * out->stride[1]) * es;
            dtype_is_float(dt) ? elem_set_f(dt, o, f) : elem_set_i(dt, o, s);
        }
}

/* Can BLAS read t as stored? *trans tells whether as its transpose (row-major views seen column-major). */
static bool blas_layout(const tp_tensor *t, char *trans, int *ld)
{
    int64_t rows = t->size[0], cols = t->size[1];
    if (t->stride[1] == 1 && (rows == 1 || t->stride[0] >= MAX(cols, 1)) && t->stride[0] < INT32_MAX) {
        *trans = 'N';
        *ld = (int)(rows == 1 ? MAX(cols, 1) : t->stride[0]);
        return true;
    }
    if (t->stride[0] == 1 && (cols == 1 || t->stride[1] >= MAX(rows, 1)) && t->stride[1] < INT32_MAX) {
        *trans = 'T';
        *ld = (int)(cols == 1 ? MAX(rows, 1) : t->stride[1]);
        return true;
    }
    return false;
}

bool eager_mm(op_call *c)
{
    tp_tensor *a = tensor_ref(arg_t(c, 0)), *b = tensor_ref(arg_t(c, 1)), *out = c->res[0];
    bool ok = true;
    if (out->numel == 0)
        goto done;
#if TAPER_HAVE_BLAS
    if ((out->dt == DT_f32 || out->dt == DT_f64) && a->size[1] > 0 && a->size[0] < INT32_MAX &&
        a->size[1] < INT32_MAX && b->size[1] < INT32_MAX && tensor_is_contiguous(out)) {
        char ta, tb;
        int lda, ldb, m = (int)a->size[0], k = (int)a->size[1], n = (int)b->size[1];
        tp_tensor **side[2] = { &a, &b };
        for (int i = 0; i < 2; i++)
            if (!blas_layout(*side[i], &ta, &lda)) {
                tp_tensor *copy = tensor_contiguous(*side[i], c->err);
                if (!copy) {
                    ok = false;
                    goto done;
                }
                tensor_unref(*side[i]);
                *side[i] = copy;
            }
        blas_layout(a, &ta, &lda);
        blas_layout(b, &tb, &ldb);
        /* Row-major out = a b is column-major out' = b' a'. */
        if (out->dt == DT_f32)
            sgemm_(&tb, &ta, &n, &m, &k, &(float){ 1 }, tensor_data(b), &ldb, tensor_data(a), &lda,
                   &(float){ 0 }, tensor_data(out), &n);
        else
            dgemm_(&tb, &ta, &n, &m, &k, &(double){ 1 }, tensor_data(b), &ldb, tensor_data(a), &lda,
                   &(double){ 0 }, tensor_data(out), &n);
        goto done;
    }
#endif
    gemm_plain(a, b, out);
done:
    tensor_unref(a);
    tensor_unref(b);
    return ok;
}
