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

/* The shortest digits are found by trying, for numbers of every size. */
TEST(strbuf_double_is_the_shortest)
{
    strbuf b = { 0 };
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        double v;
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t bits = i % 3 ? seed ^ (seed >> 29) : (seed & 0xfffffull << 44) | 0x3ull << 60;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v) || v == 0)
            continue;
        if (i % 5 == 0)
            v = (float)v;
        char t[40];
        int p = 1;
        while (snprintf(t, sizeof t, "%.*e", p - 1, v), strtod(t, NULL) != v)
            p++;
        dbl(&b, v);
        CHECK(strtod(b.s, NULL) == v);
        int digits = 0, zeros = 0;
        for (const char *s = b.s; *s && *s != 'e'; s++)
            if (*s >= '0' && *s <= '9' && (digits || *s != '0')) {
                digits++;
                zeros = *s == '0' ? zeros + 1 : 0;
            }
        CHECK(!isfinite(v) || digits - zeros <= p);
    }
    strbuf_free(&b);
}

#define SAME(fmt, ...)                                 \
    do {                                               \
        char want[600];                                \
        strbuf got = { 0 };                            \
        snprintf(want, sizeof want, fmt, __VA_ARGS__); \
        strbuf_addf(&got, fmt, __VA_ARGS__);           \
        CHECK_STR(strbuf_str(&got), want);             \
        CHECK(got.n == strlen(want));                  \
        strbuf_free(&got);                             \
    } while (0)

TEST(strbuf_formats_like_printf)
{
    char long_text[400];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    SAME("%s|%10s|%-10s|%.3s|%.0s|%-8.2s|%%", "abcdef", "ab", "ab", "abcdef", "abc", "abcdef");
    SAME("%.*s|%.*s|%s", 2, "abcdef", 9, "ab", long_text);
    SAME("%d %i %5d|%-5d|%05d|%05d|%d", 7, -7, 42, 42, 42, -42, INT32_MIN);
    SAME("%lld %lld %ld %zu %zd|%12lld|%-12lld|", (long long)INT64_MIN, (long long)INT64_MAX, -1L, (size_t)-1,
         (ssize_t)-5, -12345LL, 12345LL);
    SAME("%u %x %08x %16llx|%016llx|%lu", 4294967295u, 0xbeefu, 0xbeefu, 0x123456789abcull, 0x1fULL, 99UL);
    SAME("%c%c|%3c|", 'a', '%', 'z');
    SAME("%s %.3f %d %g %s", "before", 2.5, 3, 1e300, "after");
    SAME("%d %*d %5.3d %+d %p", 1, 6, 2, 3, 4, (void *)0x10);
    SAME("%s%s", "", "");
    strbuf b = { 0 };
    arena a = { 0 };
    strbuf_addf(&b, "plain");
    strbuf_addf(&b, "%s", "");
    CHECK_STR(b.s, "plain");
    CHECK_STR(arena_printf(&a, "%s-%d-%.2f", "x", 5, 0.125), "x-5-0.12");
    arena_free(&a);
    strbuf_free(&b);
}

TEST(map_keys_of_every_length)
{
    map m = { 0 };
    char key[64];
    for (size_t n = 0; n < sizeof key; n++) { /* short ones lie in the slot, long ones do not */
        memset(key, 'k', n);
        CHECK(!map_putn(&m, key, n, (void *)(n + 1)));
    }
    CHECK(m.n == sizeof key);
    for (size_t n = 0; n < sizeof key; n += 3)
        CHECK(map_deln(&m, key, n) == (void *)(n + 1));
    for (size_t n = 0; n < sizeof key; n++)
        CHECK(map_getn(&m, key, n) == (n % 3 ? (void *)(n + 1) : NULL));
    size_t seen = 0;
    for (size_t i = 0; i < m.cap; i++)
        if (map_slot_live(&m.slots[i])) {
            size_t n = map_slot_len(&m.slots[i]);
            seen++;
            CHECK(m.slots[i].val == (void *)(n + 1) && !memcmp(map_slot_key(&m.slots[i]), key, n));
        }
    CHECK(seen == m.n);
    map_free(&m);
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
    CHECK(m.used <=
          m.n + 2); /* and are used again: a key that comes and goes finds no longer way each time */
    map_free(&m);
}

TEST(map_add_keeps_what_is_there)
{
    map m = { 0 };
    char key[32];
    for (uintptr_t i = 0; i < 300; i++) {
        int n = snprintf(key, sizeof key, "a key that is far away %d", (int)(i % 100));
        void *was = map_addn(&m, key, (size_t)n, (void *)(i + 1));
        CHECK(was == (i < 100 ? NULL : (void *)(i % 100 + 1)));
    }
    CHECK_INT(m.n, 100);
    map_deln(&m, key, strlen(key));
    CHECK(!map_addn(&m, key, strlen(key), (void *)7) && map_get(&m, key) == (void *)7);
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
