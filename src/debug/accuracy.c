/* accuracy.c - the numeric rules of `same`: a result passes when it is close to eager, or when it is about as far
 * from a float64 reference as eager is. */
#include "debug/accuracy.h"
#include <math.h>

static double at(const tp_tensor *t, int64_t k) { return elem_get_f((dtype)t->dt, tensor_elem(t, k)); }

static bool close_all(const tp_tensor *a, const tp_tensor *b, double tol, bool equal_nan)
{
    for (int64_t k = 0; k < a->numel; k++) {
        double x = at(a, k), y = at(b, k);
        if (x == y || (equal_nan && isnan(x) && isnan(y)))
            continue;
        if (!(fabs(x - y) <= tol + tol * fabs(y)) || isinf(y))
            return false;
    }
    return true;
}

static double rmse(const tp_tensor *a, const tp_tensor *b)
{
    double s = 0;
    for (int64_t k = 0; k < a->numel; k++) {
        double d = at(a, k) - at(b, k);
        s += d * d;
    }
    return a->numel ? sqrt(s / (double)a->numel) : 0;
}

static bool has_nan(const tp_tensor *t)
{
    for (int64_t k = 0; k < t->numel; k++)
        if (isnan(at(t, k)))
            return true;
    return false;
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

acc_worst acc_largest(const tp_tensor *ref, const tp_tensor *res, const tp_tensor *fp64)
{
    acc_worst w = { -1, 0, 0, 0, -1 };
    for (int64_t k = 0; k < ref->numel && tensor_same_size(ref, res); k++) {
        double x = at(ref, k), y = at(res, k), d = isnan(x) != isnan(y) ? INFINITY : fabs(x - y);
        if (d > w.diff)
            w = (acc_worst){ k, x, y, fp64 ? at(fp64, k) : NAN, d };
    }
    return w;
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
    bool flt = dtype_is_float((dtype)ref->dt);
    if (!flt && o->ignore_non_fp)
        return true;
    if (ref->dt == DT_bool)
        return close_all(ref, res, 0, false) || no(why, "Accuracy failed: uint8 tensor did not match");
    if (o->cosine) {
        double xy = 0, xx = 0, yy = 0;
        if (close_all(ref, res, o->tol, true))
            return true;
        for (int64_t k = 0; k < ref->numel; k++) {
            double x = at(ref, k), y = at(res, k);
            xy += x * y, xx += x * x, yy += y * y;
        }
        double c = xy / fmax(sqrt(xx * yy), 1e-6);
        return c >= 0.99 || no(why, "Similarity score=%g", c);
    }
    if (close_all(ref, res, o->tol, o->equal_nan))
        return true;
    if (!fp64 || fp64->dt != DT_f64 || !flt)
        return no(why, "Accuracy failed: allclose not within tol=%g", o->tol);
    if (!has_nan(fp64) && !has_nan(res) && has_nan(ref) && close_all(fp64, res, 4e-2, o->equal_nan))
        return true;
    double re = rmse(fp64, ref), se = rmse(fp64, res), m = res->dt == DT_f16 || res->dt == DT_bf16 ? 3 : 2;
    if (o->max_multiplier)
        m = 10;
    else if (o->larger_multiplier && res->numel <= 10)
        m = 10;
    else if (o->larger_multiplier && res->numel <= 500)
        m = 8;
    else if (res->numel < 1000 || (ref->ndim == 4 && ref->size[2] == 1 && ref->size[3] == 1) ||
             o->tol >= 2e-2)
        m = 3;
    if (se <= m * re + o->tol / 10 || (isnan(re) && isnan(se) && o->equal_nan))
        return true;
    acc_worst w = acc_largest(ref, res, fp64);
    return no(why,
              "RMSE (res-fp64): %.5f, (ref-fp64): %.5f and multiplier: %f, tol: %f; largest deviation at "
              "element %lld: "
              "%g, eager %g, float64 %g",
              se, re, m, o->tol, (long long)w.at, w.res, w.ref, w.fp64);
}
