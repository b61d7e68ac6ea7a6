/* The vector IR: building, checking, printing, interpreting. */
#include "test.h"
#include "ops/random.h"
#include "vir/vir.h"
#include "vir/math/vnum.h"
#include <math.h>

static vir *rows_softmax(arena *a, vir_type t, vir_mem m)
{
    vir *k = vir_make(a, "softmax");
    int x = vir_buffer(k, m, VIR_IN, "x"), y = vir_buffer(k, m, VIR_OUT, "y");
    vir_ref rows = vir_int_arg(k, "rows"), n = vir_int_arg(k, "n"), zero = vir_int(k, 0);
    vir_ref r = vir_loop(k, LOOP_parallel, zero, rows);
    int mx = vir_red(k, RED_max, t), sum = vir_red(k, RED_sum, t);
    vir_ref i = vir_loop(k, LOOP_vector, zero, n);
    vir_step(k, mx, vir_load(k, x, vir_add(k, vir_mul(k, r, n), i), 0), 0);
    vir_end(k);
    vir_ref top = vir_fold(k, mx);
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_step(k, sum, vir_exp(k, vir_sub(k, vir_load(k, x, vir_add(k, vir_mul(k, r, n), i), 0), top)), 0);
    vir_end(k);
    vir_ref total = vir_fold(k, sum);
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_ref e = vir_exp(k, vir_sub(k, vir_load(k, x, vir_add(k, vir_mul(k, r, n), i), 0), top));
    vir_store(k, y, vir_add(k, vir_mul(k, r, n), i), vir_div(k, e, total), 0);
    vir_end(k);
    vir_end(k);
    return k;
}

TEST(vir_softmax_by_interpreter)
{
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = rows_softmax(&a, VT_f32, VM_f32);
    CHECK(vir_finish(k, &err));
    CHECK_STR(err.msg, "");
    CHECK_INT(k->lanes, 16);
    float x[3 * 37], y[3 * 37];
    for (int i = 0; i < 3 * 37; i++)
        x[i] = (float)((i * 7919) % 23) * 0.25f;
    void *bufs[] = { x, y };
    int64_t ints[] = { 3, 37 };
    CHECK(vir_interp(k, bufs, ints, NULL, 0, 3, &err));
    for (int r = 0; r < 3; r++) {
        double sum = 0, ref = 0;
        for (int i = 0; i < 37; i++)
            sum += y[r * 37 + i], ref += exp(x[r * 37 + i]);
        CHECK(fabs(sum - 1) < 1e-5);
        CHECK(fabs(y[r * 37 + 5] - exp(x[r * 37 + 5]) / ref) < 1e-6);
    }
    arena_free(&a);
}

/* An index that is taken apart and put together again is not divided: rows of three dimensions, read as rows of two. */
TEST(vir_quotient_and_rest_meet)
{
    static const int64_t by[3] = { 197 * 8, 197 * 8, 100 };
    for (int order = 0; order < 3; order++) { /* the last one lies in memory with gaps: it stays */
        arena a = { 0 };
        tp_err err = { 0 };
        strbuf b = { 0 };
        vir *k = vir_make(&a, "k");
        int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y");
        vir_ref r = vir_loop(k, LOOP_parallel, vir_int(k, 0), vir_int(k, 5)), n = vir_int(k, 197);
        vir_ref at = vir_add(k, vir_mul(k, r, vir_int(k, 97)), vir_int(k, 3));
        vir_ref quot = vir_mul(k, vir_divf(k, at, n), vir_int(k, by[order])),
                rest = vir_mul(k, vir_modf(k, at, n), vir_int(k, 8));
        vir_ref all = order == 1 ? vir_add(k, rest, quot) : vir_add(k, quot, rest);
        vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 8));
        vir_store(k, y, vir_add(k, vir_mul(k, r, vir_int(k, 8)), i), vir_load(k, x, vir_add(k, all, i), 0),
                  0);
        vir_end(k);
        vir_end(k);
        CHECK(vir_finish(k, &err));
        vir_print(k, &b);
        CHECK((strstr(strbuf_str(&b), "divf") != NULL) == (order == 2));
        static float from[400 * 8], to[5 * 8];
        for (int q = 0; q < 400 * 8; q++)
            from[q] = (float)q;
        CHECK(vir_interp(k, (void *[]){ from, to }, NULL, NULL, 0, 5, &err));
        for (int q = 0; q < 5; q++) {
            int row = q * 97 + 3;
            CHECK_INT((int)to[q * 8 + 2], row / 197 * (int)by[order] + row % 197 * 8 + 2);
        }
        strbuf_free(&b);
        arena_free(&a);
    }
}

TEST(vir_invariants_leave_the_loop)
{
    arena a = { 0 };
    tp_err err = { 0 };
    strbuf b = { 0 };
    vir *k = vir_make(&a, "k");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y");
    vir_ref n = vir_int_arg(k, "n"), s = vir_int_arg(k, "s");
    vir_ref i = vir_loop(k, LOOP_serial, vir_int(k, 0), n);
    vir_ref j = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    vir_ref row = vir_mul(k, i, s);
    CHECK_INT(k->ins[row].region, k->ins[i].region);
    CHECK_INT(vir_mul(k, i, s), row);
    vir_ref bias = vir_load(k, x, vir_add(k, i, vir_int(k, 3)), 0); /* does not depend on j */
    CHECK_INT(k->ins[bias].region, k->ins[i].region);
    CHECK(!k->ins[bias].varying);
    CHECK_INT(k->ins[bias].imm, 12);
    vir_ref v = vir_load(k, x, vir_add(k, row, vir_mul(k, j, vir_int(k, 2))), 0);
    CHECK_INT(k->ins[v].access, VA_strided);
    vir_store(k, y, vir_add(k, vir_int(k, 5), vir_add(k, row, j)), vir_add(k, v, bias), 0);
    vir_end(k);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    vir_print(k, &b);
    CHECK(strstr(strbuf_str(&b), "vector for") != NULL);
    CHECK(strstr(strbuf_str(&b), "+20 + lane]") != NULL);
    strbuf_free(&b);
    arena_free(&a);
}

TEST(vir_misuse_is_an_error)
{
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = vir_make(&a, "bad");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 4));
    vir_end(k);
    vir_add(k, i, i);
    CHECK(!vir_finish(k, &err));
    CHECK(strstr(err.msg, "outside the loop") != NULL);
    err_clear(&err);
    k = vir_make(&a, "bad");
    vir_add(k, vir_int(k, 1), vir_flt(k, VT_f32, 1));
    CHECK(!vir_finish(k, &err));
    CHECK(strstr(err.msg, "different types") != NULL);
    err_clear(&err);
    k = vir_make(&a, "bad");
    vir_loop(k, LOOP_serial, vir_int(k, 0), vir_int(k, 4));
    CHECK(!vir_finish(k, &err));
    CHECK(strstr(err.msg, "left open") != NULL);
    arena_free(&a);
}

TEST(vir_key_ignores_names)
{
    arena a = { 0 };
    tp_err err = { 0 };
    vir *p = rows_softmax(&a, VT_f32, VM_f32), *q = rows_softmax(&a, VT_f32, VM_f32);
    vir *r = rows_softmax(&a, VT_f32, VM_bf16);
    q->name = "other";
    vir_flt(q, VT_f32, 77); /* dead */
    CHECK(vir_finish(p, &err) && vir_finish(q, &err) && vir_finish(r, &err));
    CHECK(vir_hash(p) == vir_hash(q));
    CHECK(vir_hash(p) != vir_hash(r));
    arena_free(&a);
}

TEST(vir_half_formats)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = vnum_from_f16((uint16_t)h), g = vnum_from_bf16((uint16_t)h);
        if (f == f)
            CHECK_INT(vnum_to_f16(f), h);
        if (g == g)
            CHECK_INT(vnum_to_bf16(g), h);
    }
    CHECK_INT(vnum_to_f16(65519.9f), 0x7bff);
    CHECK_INT(vnum_to_f16(65520.0f), 0x7c00);
    CHECK_INT(vnum_to_f16(0x1p-25f), 0);
    CHECK_INT(vnum_to_f16(0x1.8p-25f), 1);
}

/* Element n of a draw is word n % 4 of block first + n / 4, or two words of block first + n / 2, counted by the loop or not. */
TEST(vir_draw_counts_words)
{
    enum { N = 203 };
    for (int way = 0; way < 4; way++) {
        arena a = { 0 };
        tp_err err = { 0 };
        int odd = way & 1, wide = way >> 1, bad = 0;
        vir *k = vir_make(&a, "draw");
        int y = vir_buffer(k, wide ? VM_i64 : VM_i32, VIR_OUT, "y");
        vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, N));
        vir_ref first = vir_int(k, 0xfffffffaLL), seed = vir_int(k, 0x7a9e5eed11LL);
        vir_store(k, y, i,
                  vir_draw(k, wide ? VT_i64 : VT_i32, seed, first, vir_add(k, i, vir_int(k, 8 + odd))), 0);
        vir_end(k);
        CHECK(vir_finish(k, &err));
        int64_t got[N];
        CHECK(vir_interp(k, (void *[]){ got }, NULL, NULL, 0, 0, &err));
        for (int n = 0; n < N; n++) {
            uint32_t w[4];
            int at = n + 8 + odd, h = at % 2 * 2;
            philox(0x7a9e5eed11ULL, 0xfffffffaULL, (uint64_t)at / (wide ? 2 : 4), w);
            bad += wide ? (uint64_t)got[n] != ((uint64_t)w[h] << 32 | w[h + 1])
                        : ((uint32_t *)got)[n] != w[at % 4];
        }
        CHECK(bad == 0);
        arena_free(&a);
    }
}

/* Philox4x32-10, the published test vectors: zero key and counter, and all ones. */
TEST(vir_philox_vectors)
{
    static const uint32_t want[2][4] = { { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
                                         { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } };
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = vir_make(&a, "philox");
    int y = vir_buffer(k, VM_i32, VIR_OUT, "y");
    vir_ref v = vir_int_arg(k, "v");
    for (int w = 0; w < 4; w++)
        vir_store(k, y, vir_int(k, w), vir_philox(k, v, v, v, w), 0);
    CHECK(vir_finish(k, &err));
    for (int c = 0; c < 2; c++) {
        uint32_t out[4];
        void *bufs[] = { out };
        int64_t ints[] = { -c };
        CHECK(vir_interp(k, bufs, ints, NULL, 0, 0, &err));
        for (int w = 0; w < 4; w++)
            CHECK_INT(out[w], want[c][w]);
    }
    arena_free(&a);
}
