#include "test.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include <math.h>

TEST(arena_alignment_and_growth)
{
    arena a = { 0 };
    for (int i = 1; i < 5000; i += 7) {
        char *p = arena_alloc(&a, (size_t)i);
        CHECK(((uintptr_t)p & 15) == 0);
        memset(p, 1, (size_t)i);
    }
    CHECK_STR(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    arena_free(&a);
    CHECK(a.used == 0);
}

TEST(vec_push_pop)
{
    VEC(int) v = { 0 };
    for (int i = 0; i < 100; i++)
        vec_push(&v, i);
    CHECK_INT(v.n, 100);
    CHECK_INT(vec_pop(&v), 99);
    vec_free(&v);
}

static const char *dbl(strbuf *b, double v)
{
    strbuf_clear(b);
    strbuf_double(b, v);
    return strbuf_str(b);
}

TEST(strbuf_numbers_read_back)
{
    strbuf b = { 0 };
    CHECK_STR(dbl(&b, 0.1), "0.1");
    CHECK_STR(dbl(&b, 1), "1.0");
    CHECK_STR(dbl(&b, -0.0), "-0.0");
    CHECK_STR(dbl(&b, 1e16), "1e+16");
    CHECK_STR(dbl(&b, 1e22), "1e+22");
    CHECK_STR(dbl(&b, 123456789012345.0), "123456789012345.0");
    CHECK_STR(dbl(&b, 1e-5), "1e-05");
    CHECK_STR(dbl(&b, 1.5e300), "1.5e+300");
    CHECK_STR(dbl(&b, NAN), "nan");
    CHECK_STR(dbl(&b, -INFINITY), "-inf");
    strbuf_clear(&b);
    strbuf_pyrepr(&b, "a'b\n\\", 5);
    CHECK_STR(strbuf_str(&b), "\"a'b\\n\\\\\"");
    strbuf_free(&b);
}

TEST(map_put_get_delete)
{
    map m = { 0 };
    for (uintptr_t i = 1; i <= 1000; i++)
        map_puti(&m, i * 7, (void *)i);
    CHECK_INT(m.n, 1000);
    for (uintptr_t i = 1; i <= 1000; i++)
        CHECK(map_geti(&m, i * 7) == (void *)i);
    uint64_t k = 14;
    CHECK(map_deln(&m, &k, sizeof k) == (void *)2);
    CHECK(!map_geti(&m, 14));
    map_put(&m, "name", (void *)5);
    CHECK(map_get(&m, "name") == (void *)5);
    CHECK(!map_get(&m, "nam"));
    for (int round = 0; round < 1000; round++) { /* deleted slots are reclaimed */
        map_put(&m, "churn", (void *)1);
        map_deln(&m, "churn", 5);
    }
    CHECK(m.cap <= 4096);
    map_free(&m);
}

TEST(err_first_wins_and_notes)
{
    tp_err e = { 0 };
    CHECK(!err_set(&e, ERR_value, "bad %d", 3));
    err_set(&e, ERR_type, "later");
    err_note(&e, "while %s", "testing");
    CHECK_STR(e.msg, "bad 3");
    CHECK_STR(e.notes, "while testing");
    CHECK_STR(err_class(e.kind), "ValueError");
    CHECK(!err_set(NULL, ERR_value, "ignored"));
}
