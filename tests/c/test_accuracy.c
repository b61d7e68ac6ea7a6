/* The numeric rules of `same`, on both sides of each threshold. */
#include "test.h"
#include "debug/accuracy.h"
#include <math.h>

static tp_tensor *filled(dtype dt, int64_t n, double v)
{
    tp_tensor *t = tensor_new(dt, 1, &n, NULL);
    for (int64_t k = 0; k < n; k++)
        if (dtype_is_float(dt))
            elem_set_f(dt, tensor_elem(t, k), v);
        else
            *(uint8_t *)tensor_elem(t, k) = (uint8_t)v;
    return t;
}

/* n equal elements in each; fp64 NAN: no reference */
static bool same(dtype dt, int64_t n, double ref, double res, double fp64, const acc_opts *o)
{
    tp_tensor *a = filled(dt, n, ref), *b = filled(dt, n, res),
              *c = isnan(fp64) ? NULL : filled(DT_f64, n, fp64);
    bool yes = acc_same(a, b, c, o, NULL);
    tensor_unref(a);
    tensor_unref(b);
    if (c)
        tensor_unref(c);
    return yes;
}

TEST(accuracy_tolerance_and_nan)
{
    acc_opts o = ACC_DEFAULT, nan_ok = { .tol = 1e-4, .equal_nan = true };
    CHECK(same(DT_f64, 4, 1, 1 + 1.9e-4, NAN, &o)); /* absolute and relative part together */
    CHECK(!same(DT_f64, 4, 1, 1 + 2.1e-4, NAN, &o));
    CHECK(same(DT_f64, 4, 1, 1 + 2.1e-4, NAN, &(acc_opts){ .tol = 2e-4 }));
    CHECK(!same(DT_f64, 4, NAN, NAN, NAN, &o));
    CHECK(same(DT_f64, 4, NAN, NAN, NAN, &nan_ok));
    CHECK(!same(DT_f64, 4, 1, NAN, NAN, &nan_ok));
}

TEST(accuracy_float64_reference)
{
    acc_opts o = ACC_DEFAULT;
    CHECK(same(DT_f32, 4, 1.01, 1.0, 1.0, &o));  /* nearer to the truth than eager */
    CHECK(!same(DT_f32, 4, 1.01, 1.0, NAN, &o)); /* no reference, no excuse */
    CHECK(!same(DT_f32, 4, 1.0, 1.01, 1.0, &o));
}

/* One element that is no number, in eager, the result and float64; the other elements are 1, the result `off` from it. */
static bool odd_one(double ref, double res, double fp64, double off)
{
    tp_tensor *a = filled(DT_f32, 8, 1), *b = filled(DT_f32, 8, 1 + off), *c = filled(DT_f64, 8, 1);
    elem_set_f(DT_f32, tensor_elem(a, 3), ref);
    elem_set_f(DT_f32, tensor_elem(b, 3), res);
    elem_set_f(DT_f64, tensor_elem(c, 3), fp64);
    bool yes = acc_same(a, b, c, &(acc_opts){ .tol = 1e-3, .equal_nan = true }, NULL);
    tensor_unref(a);
    tensor_unref(b);
    tensor_unref(c);
    return yes;
}

TEST(accuracy_what_is_no_number_excuses_nothing_else)
{
    double row[][3] = { { NAN, NAN, NAN },
                        { NAN, NAN, 1 },
                        { INFINITY, INFINITY, INFINITY },
                        { INFINITY, INFINITY, 1e300 },
                        { NAN, 1, 1 },
                        { INFINITY, 1, 1 },
                        { 1, 1, NAN },
                        { 1, 1, INFINITY } };
    for (size_t i = 0; i < COUNT(row); i++) {
        CHECK(odd_one(row[i][0], row[i][1], row[i][2], 0));
        CHECK(!odd_one(row[i][0], row[i][1], row[i][2], 0.02));
        CHECK(!odd_one(row[i][0], row[i][1], row[i][2], 5));
    }
    double bad[][3] = { { NAN, 1, NAN },       { 1, NAN, NAN }, { 1, NAN, 1 },
                        { 1, INFINITY, 1 },    { NAN, 1, 5 },   { INFINITY, -INFINITY, INFINITY },
                        { NAN, INFINITY, NAN } };
    for (size_t i = 0; i < COUNT(bad); i++)
        CHECK(!odd_one(bad[i][0], bad[i][1], bad[i][2], 0));
}

TEST(accuracy_multipliers)
{
    acc_opts o = ACC_DEFAULT, larger = { .tol = 1e-4, .larger_multiplier = true },
             most = { .tol = 1e-4, .max_multiplier = true };
    struct {
        int64_t n;
        const acc_opts *o;
        double m;
    } row[] = { { 2000, &o, 2 },     { 999, &o, 3 },       { 10, &larger, 10 }, { 500, &larger, 8 },
                { 501, &larger, 3 }, { 2000, &larger, 2 }, { 2000, &most, 10 } };
    for (size_t i = 0; i < COUNT(row); i++) { /* eager is 0.01 off, on the other side */
        CHECK(same(DT_f64, row[i].n, 0.99, 1 + 0.01 * (row[i].m - 0.1), 1, row[i].o));
        CHECK(!same(DT_f64, row[i].n, 0.99, 1 + 0.01 * (row[i].m + 0.1), 1, row[i].o));
    }
}

TEST(accuracy_types_and_cosine)
{
    acc_opts o = ACC_DEFAULT, cosine = { .tol = 1e-4, .cosine = true };
    int64_t n = 2;
    tp_tensor *a = filled(DT_f32, n, 1), *b = filled(DT_f64, n, 1);
    strbuf why = { 0 };
    CHECK(!acc_same(a, b, NULL, &o, &why) && strstr(strbuf_str(&why), "dtype mismatch"));
    CHECK(acc_same(a, b, NULL, &(acc_opts){ .tol = 1e-4, .any_dtype = true }, NULL));
    CHECK(same(DT_bool, 3, 1, 1, NAN, &o) && !same(DT_bool, 3, 1, 0, NAN, &o));
    CHECK(same(DT_bool, 3, 1, 0, NAN, &(acc_opts){ .tol = 1e-4, .ignore_non_fp = true }));
    CHECK(same(DT_f32, 2, 1, 5, NAN, &cosine)); /* the same direction */
    tp_tensor *near = filled(DT_f32, n, 1), *far = filled(DT_f32, n, 1);
    elem_set_f(DT_f32, tensor_elem(near, 1), tan(M_PI / 4 - acos(0.991)));
    elem_set_f(DT_f32, tensor_elem(far, 1), tan(M_PI / 4 - acos(0.989)));
    CHECK(acc_same(a, near, NULL, &cosine, NULL));
    strbuf_clear(&why);
    CHECK(!acc_same(a, far, NULL, &cosine, &why) && strstr(strbuf_str(&why), "Similarity score="));
    tensor_unref(a);
    tensor_unref(b);
    tensor_unref(near);
    tensor_unref(far);
    strbuf_free(&why);
}
