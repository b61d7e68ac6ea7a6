/* accuracy.c - the numeric rules of `same`: a result passes when it is close to eager, or when it is about as far
 * from a float64 reference as eager is. Values are read into plain arrays first: every rule walks all of them. */
#include "debug/accuracy.h"
#include "ops/complex.h"
#include <math.h>

static double *values(const tp_tensor *t) /* row-major; owned */
{
    double *v = mem_alloc(sizeof *v * (size_t)MAX(t->numel, 1));
    if (t->dt == DT_f32 && tensor_is_contiguous(t)) {
        const float *p = tensor_host(t);
        for (int64_t k = 0; k < t->numel; k++)
            v[k] = p[k];
        return v;
    }
    for (int64_t k = 0; k < t->numel; k++)
        v[k] = elem_get_f((dtype)t->dt, tensor_elem(t, k));
    return v;
}

static bool close_all(const double *a, const double *b, int64_t n, double tol, bool equal_nan)
{
    for (int64_t k = 0; k < n; k++) {
        double x = a[k], y = b[k];
        if (x == y || (equal_nan && isnan(x) && isnan(y)))
            continue;
        if (!(fabs(x - y) <= tol + tol * fabs(y)) || isinf(y))
            return false;
    }
    return true;
}

static bool no(strbuf *why, const char *fmt, ...) TP_PRINTF(2, 3);
static bool no(strbuf *why, const char *fmt, ...)
{
    if (why) {
        va_list ap;
        va_start(ap, fmt);
        strbuf_addv(why, fmt, ap);
        va_end(ap);
    }
    return false;
}

static acc_worst worst_of(const double *a, const double *b, const double *c, int64_t n)
{
    acc_worst w = { -1, 0, 0, NAN, -1 };
    for (int64_t k = 0; k < n; k++) {
        double x = a[k], y = b[k],
               d = x == y || (isnan(x) && isnan(y))               ? 0
                   : isnan(x) || isnan(y) || isinf(x) || isinf(y) ? INFINITY
                                                                  : fabs(x - y);
        if (d > w.diff)
            w = (acc_worst){ k, x, y, c ? c[k] : NAN, d };
    }
    return w;
}

acc_worst acc_largest(const tp_tensor *ref, const tp_tensor *res, const tp_tensor *fp64)
{
    if (!tensor_same_size(ref, res))
        return (acc_worst){ -1, 0, 0, NAN, -1 };
    bool third = fp64 && tensor_same_size(ref, fp64);
    double *a = values(ref), *b = values(res), *c = third ? values(fp64) : NULL;
    acc_worst w = worst_of(a, b, c, ref->numel);
    free(a);
    free(b);
    free(c);
    return w;
}

void acc_worst_print(strbuf *b, const tp_tensor *ref, const acc_worst *w)
{
    int64_t at[TP_MAX_DIMS], k = w->at;
    for (int d = ref->ndim - 1; d >= 0; d--) {
        at[d] = ref->size[d] ? k % ref->size[d] : 0;
        k = ref->size[d] ? k / ref->size[d] : 0;
    }
    strbuf_add(b, "element ");
    shape_print(b, ref->ndim, at);
    strbuf_addf(b, " is %.9g, eager %.9g", w->res, w->ref);
    if (!isnan(w->fp64))
        strbuf_addf(b, ", float64 %.9g", w->fp64);
}

static bool bools_same(const double *a, const double *b, int64_t n, double iou, strbuf *why)
{
    int64_t both = 0, either = 0, differ = 0;
    for (int64_t k = 0; k < n; k++) {
        both += a[k] != 0 && b[k] != 0;
        either += a[k] != 0 || b[k] != 0;
        differ += (a[k] != 0) != (b[k] != 0);
    }
    if (iou <= 0)
        return !differ || no(why, "Accuracy failed: uint8 tensor did not match");
    double have = either ? (double)both / (double)either : 1;
    return have >= iou || no(why, "IoU accuracy failed: %.4f < %.2f", have, iou);
}

static double cosine_of(const double *a, const double *b, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t k = 0; k < n; k++)
        xy += a[k] * b[k], xx += a[k] * a[k], yy += b[k] * b[k];
    return xy / fmax(sqrt(xx * yy), 1e-6);
}

static double multiplier(const tp_tensor *ref, const tp_tensor *res, const acc_opts *o)
{
    if (o->max_multiplier || (o->larger_multiplier && res->numel <= 10))
        return 10;
    if (o->larger_multiplier && res->numel <= 500)
        return 8;
    if (res->numel < 1000 || (ref->ndim == 4 && ref->size[2] == 1 && ref->size[3] == 1) || o->tol >= 2e-2)
        return 3;
    return res->dt == DT_f16 || res->dt == DT_bf16 ? 3 : 2;
}

/* Distances from float64 over the elements that are numbers in eager (r) and in the result (s); where float64 (f) has none,
 * eager is asked. What is no number is judged by itself, so that one NaN or infinity excuses nothing else. */
typedef struct distances {
    double ref, res;
    bool odd; /* an element is a number in one of the two only, and float64 does not side with the result */
} distances;

static distances distances_of(const double *r, const double *s, const double *f, int64_t n, bool equal_nan)
{
    distances d = { 0 };
    int64_t m = 0;
    for (int64_t k = 0; k < n; k++) {
        if (isfinite(r[k]) && isfinite(s[k])) {
            double truth = isfinite(f[k]) ? f[k] : r[k];
            d.ref += (truth - r[k]) * (truth - r[k]);
            d.res += (truth - s[k]) * (truth - s[k]);
            m++;
        } else if (isnan(r[k]) && isnan(s[k]))
            d.odd |= !equal_nan;
        else if (r[k] != s[k] && f[k] != s[k])
            d.odd |= !isfinite(s[k]) || !(fabs(s[k] - f[k]) <= 4e-2 + 4e-2 * fabs(f[k]));
    }
    d.ref = m ? sqrt(d.ref / (double)m) : 0;
    d.res = m ? sqrt(d.res / (double)m) : 0;
    return d;
}

/* The third opinion: r is eager, s the result, f float64. */
static bool near_truth(const tp_tensor *ref, const tp_tensor *res, const double *r, const double *s,
                       const double *f, const acc_opts *o, strbuf *why)
{
    int64_t n = ref->numel;
    distances d = distances_of(r, s, f, n, o->equal_nan);
    double m = multiplier(ref, res, o);
    if (!d.odd && d.res <= m * d.ref + o->tol / 10)
        return true;
    for (int64_t k = 0; k < n; k++)
        if (isnan(r[k])) {
            no(why, "Found nan in reference. Consider running in higher precision. ");
            break;
        }
    strbuf sh = { 0 };
    shape_print(&sh, res->ndim, res->size);
    no(why,
       "RMSE (res-fp64): %.5f, (ref-fp64): %.5f and shape=%s. res.dtype: %s, multiplier: %f, tol: %f, "
       "use_larger_multiplier_for_smaller_tensor: %d; largest deviation: ",
       d.res, d.ref, strbuf_str(&sh), dtype_name((dtype)res->dt), m, o->tol, o->larger_multiplier);
    strbuf_free(&sh);
    acc_worst w = worst_of(r, s, f, n);
    if (why)
        acc_worst_print(why, ref, &w);
    return false;
}

/* Is the result not much farther from float64 than eager and the roundings of its type are? */
static bool near_as_eager(const double *r, const double *s, const double *f, int64_t n, strbuf *why)
{
    double scale = 0, ref = 0, res = 0;
    for (int64_t k = 0; k < n; k++)
        if (isfinite(r[k]) && isfinite(s[k]) && isfinite(f[k])) {
            scale = fmax(scale, fabs(f[k]));
            ref = fmax(ref, fabs(r[k] - f[k]));
            res = fmax(res, fabs(s[k] - f[k]));
        }
    return res <= 50 * ref + 256 * 0x1p-23 * scale ||
           no(why, "it is %.2g away from float64, eager %.2g; largest deviation: ", res, ref);
}

bool acc_same(const tp_tensor *ref, const tp_tensor *res, const tp_tensor *fp64, const acc_opts *o,
              strbuf *why)
{
    if (!o->any_dtype && ref->dt != res->dt)
        return no(why, "dtype mismatch %s, %s", dtype_name((dtype)ref->dt), dtype_name((dtype)res->dt));
    if (!tensor_same_size(ref, res)) {
        strbuf a = { 0 }, b = { 0 };
        shape_print(&a, ref->ndim, ref->size);
        shape_print(&b, res->ndim, res->size);
        no(why, "Accuracy failed: shapes %s and %s differ", strbuf_str(&a), strbuf_str(&b));
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    if (dtype_is_complex((dtype)ref->dt) && ref->dt == res->dt) { /* part by part */
        bool same = true;
        for (int i = 0; same && i < 2; i++) {
            tp_tensor *a = complex_part((tp_tensor *)ref, i), *b = complex_part((tp_tensor *)res, i);
            same = acc_same(a, b, NULL, o, why);
            tensor_unref(a);
            tensor_unref(b);
        }
        return same;
    }
    bool flt = dtype_is_float((dtype)ref->dt),
         third = fp64 && fp64->dt == DT_f64 && flt && tensor_same_size(ref, fp64);
    if (!flt && o->ignore_non_fp)
        return true;
    int64_t n = ref->numel;
    double *r = values(ref), *s = values(res), *f = NULL;
    bool ok;
    if (ref->dt == DT_bool)
        ok = bools_same(r, s, n, o->iou, why);
    else if (o->cosine) {
        ok = close_all(r, s, n, o->tol, true);
        double c = ok ? 1 : cosine_of(r, s, n);
        ok = c >= 0.99 || no(why, "Similarity score=%g", c);
    } else if (close_all(r, s, n, o->tol, o->equal_nan)) {
        f = o->ledger && third && ref->dt == DT_f32 ? values(fp64) : NULL;
        ok = !f || near_as_eager(r, s, f, n, why);
        acc_worst w = ok ? (acc_worst){ 0 } : worst_of(r, s, f, n);
        if (!ok && why)
            acc_worst_print(why, ref, &w);
    } else if (!third) {
        acc_worst w = worst_of(r, s, NULL, n);
        no(why, "Accuracy failed: allclose not within tol=%g; largest deviation: ", o->tol);
        if (why)
            acc_worst_print(why, ref, &w);
        ok = false;
    } else {
        f = values(fp64);
        ok = near_truth(ref, res, r, s, f, o, why);
    }
    free(r);
    free(s);
    free(f);
    return ok;
}

bool acc_form(const tp_tensor *ref, const tp_tensor *res, strbuf *why)
{
    bool same = ref->offset == res->offset;
    for (int d = 0; d < ref->ndim && same && ref->numel; d++)
        same = ref->size[d] <= 1 || ref->stride[d] == res->stride[d];
    if (same)
        return true;
    strbuf a = { 0 }, b = { 0 };
    shape_print(&a, res->ndim, res->stride);
    shape_print(&b, ref->ndim, ref->stride);
    no(why, "it has strides %s at offset %lld, eager %s at %lld", strbuf_str(&a), (long long)res->offset,
       strbuf_str(&b), (long long)ref->offset);
    strbuf_free(&a);
    strbuf_free(&b);
    return false;
}
