/* Rules that say for which sizes a failure shows. */
#include "test.h"
#include "debug/condition.h"

static void rule_is(const char *want, bool (*bad)(int64_t n))
{
    static const int64_t n[] = { 1,  2,  3,  4,  7,  8,  9,  15, 16,  17,  24,  31,
                                 32, 33, 40, 47, 48, 63, 64, 65, 100, 127, 128, 129 };
    bool fails[COUNT(n)];
    strbuf b = { 0 };
    for (size_t i = 0; i < COUNT(n); i++)
        fails[i] = bad(n[i]);
    bool found = condition_rule(n, fails, COUNT(n), &b);
    CHECK(found == (want != NULL));
    if (found && want)
        CHECK_STR(strbuf_str(&b), want);
    strbuf_free(&b);
}

static bool last_lane(int64_t n) { return n % 16 == 15; }
static bool long_rows(int64_t n) { return n > 64; }
static bool ragged(int64_t n) { return n % 8 != 0; }
static bool ragged_long(int64_t n) { return n % 16 != 0 && n >= 17; }
static bool short_ones(int64_t n) { return n < 4; }
static bool one_size(int64_t n) { return n == 33; }
static bool always(int64_t n) { return true; }
static bool never(int64_t n) { return false; }
static bool no_rule(int64_t n) { return n == 3 || n == 64 || n == 100; }

TEST(condition_rules_of_places)
{
    int64_t place[40];
    bool wrong[40];
    strbuf b = { 0 };
    for (int k = 0; k < 40; k++)
        place[k] = k, wrong[k] = k > 0;
    CHECK(condition_rule(place, wrong, 40, &b));
    CHECK_STR(strbuf_str(&b), "n >= 1");
    for (int k = 0; k < 40; k++)
        wrong[k] = k % 8 == 7;
    strbuf_clear(&b);
    CHECK(condition_rule(place, wrong, 40, &b));
    CHECK_STR(strbuf_str(&b), "n % 8 == 7");
    strbuf_free(&b);
}

TEST(condition_rules)
{
    rule_is("n % 16 == 15", last_lane);
    rule_is("n >= 65", long_rows);
    rule_is("n % 8 != 0", ragged);
    rule_is("n % 16 != 0 and n >= 16", ragged_long);
    rule_is("n <= 3", short_ones);
    rule_is("n == 33", one_size);
    rule_is(NULL, always);
    rule_is(NULL, never);
    rule_is(NULL, no_rule);
}
