/* Symbolic integers: canonical forms, ranges, questions, guards, text. */
#include "test.h"
#include "base/clock.h"
#include "sym/env.h"

static const char *text(symint v)
{
    static strbuf ring[8];
    static int at;
    strbuf *b = &ring[at++ % 8];
    strbuf_clear(b);
    sym_print(b, v);
    return strbuf_str(b);
}

typedef struct {
    sym_env *env;
    symint s[4];
    tp_err *err;
} fix;

static void where(void *data, strbuf *out) { strbuf_add(out, "play.py:5 in fn"); }

static fix setup(void)
{
    static const char *const src[] = { "L['x'].size()[0]", "L['x'].size()[1]", "L['y'].size()[0]",
                                       "L['y'].size()[1]" };
    fix f = { sym_env_new(&(sym_env_opts){ .where = where }) };
    for (int i = 0; i < 4; i++)
        f.s[i] = sym_env_size(f.env, 3 + 2 * i, src[i], SYM_duck); /* 3 5 7 9 */
    f.err = sym_env_err(f.env);
    return f;
}
#define SETUP        \
    fix f = setup(); \
    symint s0 TP_UNUSED = f.s[0], s1 TP_UNUSED = f.s[1], s2 TP_UNUSED = f.s[2], s3 TP_UNUSED = f.s[3]

static symint parse(sym_env *env, const char *t)
{
    tp_err err = { 0 };
    symint v = -999;
    if (!sym_parse(env, t, strlen(t), &v, &err))
        test_fail(__FILE__, __LINE__, "%s: %s", t, err.msg);
    return v;
}

TEST(sym_constants_are_plain_integers)
{
    CHECK_INT(sym_add(2, 3), 5);
    CHECK_INT(sym_floordiv(-7, 2), -4);
    CHECK_INT(sym_mod(-7, 2), 1);
    CHECK_INT(sym_mod(7, -2), -1);
    CHECK(sym_lt(1, 2) && !sym_is_expr(1) && !sym_is_expr(-1) && !sym_is_expr(INT64_MIN));
    CHECK_INT(sym_pow(3, 4), 81);
}

TEST(sym_equal_polynomials_are_one_pointer)
{
    SETUP;
    symint a = sym_mul(sym_add(s0, s1), sym_sub(s0, s1));
    symint b = sym_sub(sym_mul(s0, s0), sym_mul(s1, s1));
    CHECK(a == b);
    CHECK_STR(text(a), "s0**2 - s1**2");
    CHECK(sym_sub(a, b) == 0);
    CHECK(sym_add(sym_add(s0, s1), s2) == sym_add(s2, sym_add(s1, s0)));
    CHECK(sym_mul(2, sym_mul(s0, sym_mul(3, s1))) == sym_mul(sym_mul(6, s1), s0));
    CHECK_STR(text(sym_add(sym_mul(s0, s1), 3)), "s0*s1 + 3");
    CHECK_STR(text(sym_sub(sym_mul(2, s0), 1)), "2*s0 - 1");
    CHECK_STR(text(sym_sub(1, s0)), "-s0 + 1");
    CHECK_STR(text(sym_mul(s0, 2)), "2*s0");
    CHECK_STR(text(17), "17");
    sym_env_free(f.env);
}

TEST(sym_simplifies_with_ranges)
{
    SETUP;
    CHECK_INT(sym_mod(s0, 1), 0);
    CHECK(sym_floordiv(sym_mul(s0, 4), 4) == s0);
    CHECK(sym_max(1, s0) == s0);
    CHECK_INT(sym_min(1, s0), 1);
    CHECK_INT(sym_mod(sym_mul(s0, 4), 4), 0);
    CHECK(sym_floordiv(sym_mul(s0, s1), s1) == s0);
    CHECK_INT(sym_floordiv(s0, s0), 1);
    CHECK_INT(sym_mod(sym_mul(s0, s1), s0), 0);
    CHECK(sym_floordiv(sym_add(sym_mul(s0, 4), 3), 4) == s0);
    CHECK_STR(text(sym_floordiv(sym_add(sym_mul(s0, 4), s1), 4)), "s0 + (s1//4)");
    CHECK_STR(text(sym_floordiv(sym_floordiv(s0, 2), 3)), "(s0//6)");
    CHECK_STR(text(sym_floordiv(sym_add(sym_mul(s0, 4), 2), 6)), "((2*s0 + 1)//3)");
    CHECK_STR(text(sym_mod(sym_mul(s0, 4), 6)), "2*Mod(2*s0, 3)");
    CHECK_STR(text(sym_mod(sym_add(sym_mul(s0, 5), 7), 2)), "Mod(s0 + 1, 2)");
    CHECK(sym_floordiv(sym_mul(sym_add(s0, s1), sym_add(s2, 1)), sym_add(s0, s1)) == sym_add(s2, 1));
    CHECK_STR(text(sym_max(s0, sym_max(3, s1))), "Max(3, s0, s1)");
    CHECK(sym_max(s0, sym_max(3, s1)) == sym_max(sym_max(s1, s0), 3));
    CHECK(sym_max(s0, sym_add(s0, 1)) == sym_add(s0, 1));
    CHECK(sym_min(sym_mod(s0, 4), 7) == sym_mod(s0, 4));
    CHECK_INT(sym_floordiv(sym_mod(s0, 4), 4), 0);
    CHECK_INT(sym_mod(sym_mod(s0, 4), 4) == sym_mod(s0, 4), 1);
    int n;
    sym_env_guards(f.env, &n);
    CHECK_INT(n, 0);
    sym_env_free(f.env);
}

TEST(sym_known_never_guards)
{
    SETUP;
    int n;
    CHECK(sym_known(SYM_ge, s0, 2) && sym_known(SYM_gt, sym_add(s0, s1), 3));
    CHECK(!sym_known(SYM_eq, s0, 3) && !sym_known(SYM_ne, s0, 3));
    CHECK(sym_known(SYM_ne, s0, 1) && sym_known(SYM_lt, s0, sym_add(s0, 1)));
    CHECK(sym_known(SYM_ge, sym_mul(s0, s1), s0));                        /* s0*(s1 - 1) >= 0 */
    CHECK(sym_known(SYM_ne, sym_mul(2, s0), sym_add(sym_mul(4, s1), 1))); /* parity */
    sym_env_guards(f.env, &n);
    CHECK_INT(n, 0);
    sym_env_free(f.env);
}

/* The guards of env, one a line. */
static const char *guards(sym_env *env)
{
    static strbuf b;
    strbuf_clear(&b);
    sym_guards *g = sym_guards_new(env);
    for (int i = 0; i < sym_guards_n(g); i++)
        strbuf_addf(&b, "%s\n", sym_guards_at(g, i)->text);
    sym_guards_free(g);
    return strbuf_str(&b);
}

TEST(sym_question_records_one_guard_with_its_line)
{
    SETUP;
    int n;
    CHECK(sym_lt(s0, 10));
    CHECK(sym_lt(s0, 10) && sym_le(s0, 12) && !sym_eq(s0, 20)); /* follow from the first */
    const sym_assumed *g = sym_env_guards(f.env, &n);
    CHECK_INT(n, 1);
    CHECK_STR(text(g[0].cond), "s0 <= 9");
    CHECK_STR(g[0].where, "play.py:5 in fn");
    CHECK(!sym_eq(s1, 8));
    CHECK(sym_lt(s1, s2));
    CHECK_STR(guards(f.env), "L['x'].size()[1] != 8\n"
                             "L['x'].size()[1] < L['y'].size()[0]\n"
                             "2 <= L['x'].size()[0] <= 9\n"
                             "2 <= L['x'].size()[1]\n"
                             "2 <= L['y'].size()[0]\n"
                             "2 <= L['y'].size()[1]\n");
    sym_env_free(f.env);
}

TEST(sym_equal_sizes_share_a_symbol)
{
    sym_env *env = sym_env_new(NULL);
    symint a = sym_env_size(env, 3, "L['x'].size()[0]", SYM_duck);
    symint b = sym_env_size(env, 3, "L['y'].size()[0]", SYM_duck);
    symint one = sym_env_size(env, 1, "L['y'].size()[1]", SYM_duck);
    symint zero = sym_env_size(env, 0, "L['y'].size()[2]", SYM_dynamic);
    symint fixed = sym_env_size(env, 8, "L['y'].size()[3]", SYM_static);
    CHECK(a == b && one == 1 && zero == 0 && fixed == 8);
    CHECK_STR(guards(env), "L['x'].size()[0] == L['y'].size()[0]\n2 <= L['x'].size()[0]\n");
    sym_guards *g = sym_guards_new(env);
    CHECK_INT(sym_guards_n_values(g), 5);
    CHECK_INT(sym_guards_check(g, (int64_t[]){ 7, 7, 1, 0, 8 }), -1);
    CHECK_INT(sym_guards_check(g, (int64_t[]){ 7, 6, 1, 0, 8 }), 0);
    CHECK_INT(sym_guards_check(g, (int64_t[]){ 1, 1, 1, 0, 8 }), 1);
    CHECK_STR(sym_guards_at(g, 0)->why, "duck sizing");
    sym_guards_free(g);
    sym_env_free(env);
    env = sym_env_new(&(sym_env_opts){ .no_duck = true, .no_special_01 = true });
    a = sym_env_size(env, 3, "L['x'].size()[0]", SYM_duck);
    b = sym_env_size(env, 3, "L['y'].size()[0]", SYM_duck);
    CHECK(a != b && sym_is_symbol(sym_env_size(env, 1, "L['z'].size()[0]", SYM_duck)));
    CHECK_STR(guards(env), "");
    sym_env_free(env);
}

TEST(sym_equalities_substitute)
{
    sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = true, .where = where });
    symint a = sym_env_size(env, 6, "L['x'].size()[0]", SYM_duck),
           b = sym_env_size(env, 6, "L['y'].size()[0]", SYM_duck);
    symint c = sym_env_size(env, 12, "L['z'].size()[0]", SYM_duck),
           d = sym_env_size(env, 5, "L['z'].size()[1]", SYM_duck);
    CHECK(sym_eq(a, b));
    CHECK(sym_add(a, 1) == sym_add(b, 1));
    CHECK(sym_eq(c, sym_mul(2, b)));
    CHECK_STR(text(sym_add(c, 0)), "2*s0");
    CHECK(sym_known(SYM_eq, c, sym_add(a, a)));
    CHECK(sym_eq(d, 5));
    CHECK_INT(sym_add(d, 1), 6);
    CHECK_STR(guards(env), "L['x'].size()[0] == L['y'].size()[0]\n"
                           "L['z'].size()[1] == 5\n"
                           "2*L['x'].size()[0] == L['z'].size()[0]\n"
                           "2 <= L['x'].size()[0]\n"
                           "2 <= L['z'].size()[0]\n");
    int n;
    sym_env_guards(env, &n);
    CHECK_INT(n, 3);
    /* A bound that was asked of one is known of the other. */
    CHECK(sym_le(b, 10) && sym_known(SYM_le, a, 10) && sym_known(SYM_le, c, 20));
    CHECK_INT(sym_specialize(b), 6);
    CHECK_INT(sym_add(c, 0), 12);
    CHECK_STR(
        guards(env),
        "L['x'].size()[0] == 6\nL['y'].size()[0] == 6\nL['z'].size()[0] == 12\nL['z'].size()[1] == 5\n");
    sym_env_free(env);
}

TEST(sym_text_says_what_is_known)
{
    sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = true });
    symint a = sym_env_size(env, 6, "x", SYM_duck), b = sym_env_size(env, 6, "y", SYM_duck);
    symint m = sym_max(a, sym_add(b, 4)), n = sym_max(4, a);
    CHECK_STR(text(m), "Max(s0, s1 + 4)");
    CHECK_STR(text(n), "Max(4, s0)");
    CHECK(sym_eq(a, b) && sym_ge(a, 5));
    CHECK_STR(text(m), "s0 + 4");
    CHECK_STR(text(b), "s0");
    CHECK_STR(text(n), "s0");
    sym_env_free(env);
}

TEST(sym_divisibility_is_one_guard)
{
    SETUP;
    symint n = sym_mul(s0, sym_add(s1, 1)); /* 18 */
    CHECK(sym_eq(sym_mod(n, 6), 0));
    CHECK(sym_eq(sym_mul(sym_floordiv(n, 6), 6), n));
    int count;
    sym_env_guards(f.env, &count);
    CHECK_INT(count, 1);
    CHECK_STR(text(sym_rel_of(SYM_eq, sym_mul(2, sym_floordiv(s2, 2)), s2)), "Eq(Mod(s2, 2), 0)");
    sym_env_free(f.env);
}

TEST(sym_unbacked_refuses_with_advice)
{
    SETUP;
    symint u = sym_env_unbacked(f.env, SYM_NEG_OO, SYM_OO);
    bool ok;
    CHECK_STR(text(u), "u0");
    CHECK(!sym_eq(u, 4));
    CHECK_INT(f.err->kind, ERR_datadep);
    CHECK(strstr(f.err->msg,
                 "Could not guard on data-dependent expression Eq(u0, 4), asked at play.py:5 in fn"));
    CHECK(strstr(f.err->msg, "taper._check(u0 == 4)"));
    err_clear(f.err);
    CHECK_INT(sym_specialize(u), 0);
    CHECK_INT(f.err->kind, ERR_datadep);
    CHECK(strstr(f.err->msg, "Could not extract specialized integer from data-dependent expression u0"));
    err_clear(f.err);
    sym_hint(u, &ok);
    CHECK(!ok);
    /* What is asserted is known from then on. */
    CHECK(sym_env_assert(f.env, sym_rel_of(SYM_ge, u, 0), NULL));
    CHECK(sym_env_assert(f.env, sym_rel_of(SYM_lt, u, s0), "too big"));
    CHECK(sym_ge(u, 0) && sym_gt(u, -3) && sym_le(u, s0) && !sym_eq(u, s0));
    CHECK_INT(f.err->kind, ERR_none);
    int n;
    const sym_assumed *a = sym_env_asserts(f.env, &n);
    CHECK_INT(n, 2);
    CHECK_STR(text(a[1].cond), "s0 > u0");
    CHECK_STR(a[1].msg, "too big");
    sym_env_guards(f.env, &n);
    CHECK_INT(n, 0);
    CHECK(!sym_env_assert(f.env, sym_rel_of(SYM_lt, u, 0), NULL));
    CHECK_STR(f.err->msg, "Expected cond to be True, but got False");
    err_clear(f.err);
    /* An equality gives it a hint. */
    CHECK(sym_env_assert(f.env, sym_rel_of(SYM_eq, u, sym_sub(s0, 1)), NULL));
    CHECK_INT(sym_hint(u, &ok), 2);
    CHECK(ok && sym_eq(u, 2));
    sym_env_free(f.env);
}

TEST(sym_unbacked_sizes_broadcast_without_questions)
{
    SETUP;
    symint u = sym_env_unbacked_size(f.env, 100);
    CHECK(!sym_eq(u, 1) && !sym_eq(sym_mul(u, s0), 0) && sym_gt(u, 0) && sym_ne(sym_mul(2, u), 2));
    CHECK_INT(f.err->kind, ERR_none);
    CHECK(!sym_known(SYM_ne, u, 1)); /* but it is not a fact */
    CHECK(!sym_truth(sym_rel_of(SYM_eq, u, 0)));
    CHECK_INT(f.err->kind, ERR_datadep); /* the user may not ask that */
    err_clear(f.err);
    CHECK(!sym_eq(u, 5));
    CHECK_INT(f.err->kind, ERR_datadep);
    sym_env_free(f.env);
}

TEST(sym_assert_about_inputs_is_a_guard)
{
    SETUP;
    int n;
    CHECK(sym_env_assert(f.env, sym_rel_of(SYM_le, s0, 100), NULL));
    sym_env_guards(f.env, &n);
    CHECK_INT(n, 1);
    CHECK(!sym_env_assert(f.env, sym_rel_of(SYM_gt, s1, 50), "need more rows"));
    CHECK_STR(f.err->msg, "need more rows");
    CHECK_INT(f.err->kind, ERR_runtime);
    sym_env_free(f.env);
}

TEST(sym_marked_dynamic_must_stay_symbolic)
{
    sym_env *env = sym_env_new(&(sym_env_opts){ .where = where });
    tp_err err = { 0 };
    symint a = sym_env_size_in(env, 8, "L['x'].size()[0]", SYM_dynamic, 4, 64);
    CHECK(sym_env_check_dynamic(env, &err));
    CHECK_STR(guards(env), "4 <= L['x'].size()[0] <= 64\n");
    CHECK(sym_eq(a, 8));
    CHECK(!sym_env_check_dynamic(env, &err));
    CHECK(strstr(err.msg, "L['x'].size()[0] was marked dynamic, but the program only works when it is 8: "
                          "specialized at play.py:5 in fn"));
    sym_env_free(env);
}

TEST(sym_plain_ints_have_no_bounds)
{
    sym_env *env = sym_env_new(NULL);
    symint n = sym_env_int(env, 0, "L['n']");
    CHECK(sym_is_symbol(n));
    CHECK_STR(guards(env), "");
    CHECK(!sym_lt(n, 0) && sym_lt(n, 5));
    CHECK_STR(guards(env), "0 <= L['n'] <= 4\n");
    sym_env_free(env);
}

TEST(sym_errors_do_not_crash)
{
    SETUP;
    CHECK_INT(sym_floordiv_slow(s0, 0), 0);
    CHECK_INT(f.err->kind, ERR_zerodiv);
    err_clear(f.err);
    sym_env_size(f.env, -1, "L['x'].size()[0]", SYM_duck);
    CHECK_INT(f.err->kind, ERR_value);
    err_clear(f.err);
    sym_env_size(f.env, SYM_LIMIT, "L['x'].size()[0]", SYM_duck);
    CHECK_INT(f.err->kind, ERR_value);
    err_clear(f.err);
    sym_env_freeze(f.env);
    CHECK(sym_eq(s0, 3));
    CHECK_STR(f.err->msg, "a guard on Eq(s0, 3) is needed, but guards were already produced");
    sym_env_free(f.env);
}

TEST(sym_eval_and_programs)
{
    SETUP;
    symint e = sym_add(sym_mul(s0, sym_floordiv(s1, 2)), sym_max(s2, sym_mod(s3, 4)));
    int64_t out[3];
    sym_bind b[] = {
        { sym_expr_of(s0), 10 }, { sym_expr_of(s1), 7 }, { sym_expr_of(s2), 2 }, { sym_expr_of(s3), 7 }
    };
    CHECK(sym_eval(e, b, 4, out));
    CHECK_INT(out[0], 33);
    CHECK(!sym_eval(e, b, 3, out));
    bool ok;
    CHECK_INT(sym_hint(e, &ok), 3 * 2 + 7);
    sym_prog *p = sym_prog_new((symint[]){ e, 5, s3 }, 3);
    CHECK(sym_prog_run(p, (int64_t[]){ 10, 7, 2, 7 }, out));
    CHECK(out[0] == 33 && out[1] == 5 && out[2] == 7);
    sym_prog_free(p);
    p = sym_prog_new((symint[]){ sym_mul(s0, s0) }, 1);
    CHECK(!sym_prog_run(p, (int64_t[]){ INT64_MAX, 0, 0, 0 }, out));
    sym_prog_free(p);
    sym_env_free(f.env);
}

TEST(sym_print_and_parse_round_trip)
{
    static const char *const same[] = {
        "s0",
        "2*s0",
        "s0*s1 + 3",
        "(s0//2)",
        "Max(1, s0 - 9)",
        "17",
        "-3",
        "s0**2*s1 - 4*s1",
        "Mod(s0, 3)",
        "((s0 + 1)//(s1 + 2))",
        "Min(s0, s1, s2)",
        "Eq(s0, s1)",
        "Ne(s0, 7)",
        "s0 <= 9",
        "s0 >= s1 + 4",
        "s0 + 3 <= s1",
        "s0 < s1",
        "s0 > s1",
        "Eq(s0, 3) or s1 >= 4",
        "s0 >= 4 and (Eq(s1, 3) or Ne(s2, 4))",
        "(s0 + s1)*(s2//3)",
        "-s0 + 1",
        "2*(s0//2) + 1",
        "1",
        "0",
    };
    SETUP;
    for (size_t i = 0; i < COUNT(same) - 5; i++)
        CHECK_STR(text(parse(f.env, same[i])), same[i]);
    for (size_t i = 0; i < COUNT(same); i++) {
        symint v = parse(f.env, same[i]);
        CHECK(parse(f.env, text(v)) == v);
    }
    CHECK(parse(f.env, "s0 % 3") == sym_mod(s0, 3));
    CHECK(parse(f.env, "FloorDiv(s0, 3)") == sym_floordiv(s0, 3));
    CHECK(parse(f.env, "2 <= s0 and not (s0 == 3)") == sym_rel_of(SYM_ne, s0, 3));
    CHECK(parse(f.env, "4 <= s0 <= 9") == sym_and(sym_rel_of(SYM_ge, s0, 4), sym_rel_of(SYM_le, s0, 9)));
    CHECK(parse(f.env, "-s0**2") == sym_sub(0, sym_mul(s0, s0)));
    CHECK_INT(parse(f.env, "7 // -2 + -7 % 3"), -4 + 2);
    CHECK_INT(parse(f.env, "2**10"), 1024);
    strbuf b = { 0 };
    sym_print_source(&b, parse(f.env, "Eq(Mod(s0, 2), 0) and Max(s0, s1) <= s2*s3"));
    CHECK_STR(b.s, "(L['x'].size()[0] % 2) == 0 and max(L['x'].size()[0], L['x'].size()[1]) <= "
                   "L['y'].size()[0]*L['y'].size()[1]");
    strbuf_free(&b);
    sym_env_free(f.env);
}

TEST(sym_parse_refuses_with_column)
{
    static const struct {
        const char *text, *msg;
    } rows[] = {
        { "", "column 1: expected an expression, found the end" },
        { "s0 +", "column 5: expected an expression, found the end" },
        { "s9", "column 1: unknown symbol 's9'" },
        { "s0 s1", "column 4: expected the end after the expression" },
        { "(s0", "column 4: expected ')'" },
        { "Max(s0)", "column 7: expected ',' and a second argument" },
        { "Mod(s0, s1, s2)", "column 1: takes two arguments" },
        { "s0 // 0", "column 1: division by zero" },
        { "(s0 < 3) + 1", "column 1: expected a number, found a truth value" },
        { "not 7", "column 1: expected a truth value, found a number" },
        { "s0**s1", "column 5: expected a whole number after '**'" },
        { "4611686018427387904", "column 1: number does not fit in 62 bits" },
        { "4611686018427387903 + 1", "column 1: number does not fit in 62 bits" },
        { "2**63", "column 1: number does not fit in 62 bits" },
        { "$", "column 1: expected a number, a symbol or '('" },
    };
    SETUP;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tp_err err = { 0 };
        symint v;
        CHECK(!sym_parse(f.env, rows[i].text, strlen(rows[i].text), &v, &err));
        CHECK_STR(err.msg, rows[i].msg);
    }
    char deep[5000];
    const char *nest[] = { "(", "-", "not " };
    for (size_t i = 0; i < COUNT(nest); i++) {
        tp_err err = { 0 };
        symint v;
        size_t n = 0;
        while (n + 10 < sizeof deep)
            n += (size_t)snprintf(deep + n, sizeof deep - n, "%s", nest[i]);
        CHECK(!sym_parse(f.env, deep, n, &v, &err));
        CHECK(strstr(err.msg, "nested too deeply"));
    }
    sym_env_free(f.env);
}

TEST(sym_declared_symbols)
{
    sym_env *env = sym_env_new(NULL);
    tp_err err = { 0 };
    symint a = sym_env_declare(env, "s7", true, 4, 2, SYM_OO, "L['x'].size()[0]", &err);
    CHECK(sym_is_symbol(a) && sym_env_find(env, "s7", 2) == a);
    CHECK(sym_env_declare(env, "s7", true, 4, 2, SYM_OO, NULL, &err) == a);
    CHECK(!sym_env_declare(env, "s7", true, 5, 2, SYM_OO, NULL, &err));
    CHECK_STR(err.msg, "symbol s7 is declared twice, differently");
    err_clear(&err);
    CHECK(!sym_env_declare(env, "x y", true, 5, 2, SYM_OO, NULL, &err));
    err_clear(&err);
    CHECK(!sym_env_declare(env, "Max", true, 5, 2, SYM_OO, NULL, &err));
    err_clear(&err);
    CHECK(!sym_env_declare(env, "s8", true, 1, 2, SYM_OO, NULL, &err));
    CHECK(sym_env_declare(env, "s0", true, 5, 2, SYM_OO, NULL, &err) != 0);
    CHECK_STR(text(sym_env_size(env, 9, "L['y'].size()[0]", SYM_duck)), "s1"); /* s0 is taken */
    sym_env_free(env);
}

/* --- random programs ----------------------------------------------------------------------------------- */
static uint64_t rng = 88172645463325252ull;
static int rnd(int n)
{
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (int)(rng % (uint64_t)n);
}

/* One expression, built symbolically and evaluated on the side for several bindings. */
enum { SYMS = 4, BINDS = 6 };
typedef struct {
    symint v;
    int64_t x[BINDS];
} both;

static both random_expr(const both *syms, int depth)
{
    both r;
    int op = depth ? rnd(9) : 7;
    if (op >= 7) {
        if (rnd(3))
            return syms[rnd(SYMS)];
        r.v = rnd(9) - 3;
        for (int i = 0; i < BINDS; i++)
            r.x[i] = r.v;
        return r;
    }
    both a = random_expr(syms, depth - 1), b = random_expr(syms, depth - 1);
    bool div = true;
    for (int i = 0; i < BINDS; i++)
        div &= b.x[i] != 0;
    if ((op == 3 || op == 4) && (!div || b.v == 0))
        op = 0;
    switch (op) {
    case 0: r.v = sym_add(a.v, b.v); break;
    case 1: r.v = sym_sub(a.v, b.v); break;
    case 2: r.v = sym_mul(a.v, b.v); break;
    case 3: r.v = sym_floordiv(a.v, b.v); break;
    case 4: r.v = sym_mod(a.v, b.v); break;
    case 5: r.v = sym_min(a.v, b.v); break;
    default: r.v = sym_max(a.v, b.v);
    }
    for (int i = 0; i < BINDS; i++) {
        int64_t x = a.x[i], y = b.x[i];
        r.x[i] = op == 0   ? x + y
                 : op == 1 ? x - y
                 : op == 2 ? x * y
                 : op == 3 ? sym_floordiv(x, y)
                 : op == 4 ? sym_mod(x, y)
                 : op == 5 ? MIN(x, y)
                           : MAX(x, y);
    }
    return r;
}

TEST(sym_random_expressions_evaluate_right)
{
    for (int round = 0; round < 3000; round++) {
        sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = true });
        both syms[SYMS];
        for (int i = 0; i < SYMS; i++) {
            char src[16];
            snprintf(src, sizeof src, "x%d", i);
            for (int j = 0; j < BINDS; j++)
                syms[i].x[j] = 2 + rnd(7);
            syms[i].v = sym_env_size(env, syms[i].x[0], src, SYM_duck);
        }
        both e = random_expr(syms, 4);
        if (sym_env_err(env)->kind == ERR_none) {
            bool ok;
            int64_t lo, hi, got;
            CHECK_INT(sym_hint(e.v, &ok), e.x[0]);
            sym_range(e.v, &lo, &hi);
            for (int j = 0; j < BINDS; j++) {
                sym_bind b[SYMS];
                for (int i = 0; i < SYMS; i++)
                    b[i] = (sym_bind){ sym_expr_of(syms[i].v), syms[i].x[j] };
                if (!sym_eval(e.v, b, SYMS, &got) || got != e.x[j] || e.x[j] < lo || e.x[j] > hi)
                    test_fail(__FILE__, __LINE__, "%s: %lld, want %lld, range %lld..%lld", text(e.v),
                              (long long)got, (long long)e.x[j], (long long)lo, (long long)hi);
            }
            CHECK(parse(env, text(e.v)) == e.v);
        }
        sym_env_free(env);
    }
}

/* Questions asked of a program with the hints; other inputs that pass the guards must get the same answers.
 */
TEST(sym_guards_are_sound)
{
    int passed = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        enum { ASKED = 5 };
        sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = rnd(2) });
        both syms[SYMS], a[ASKED], b[ASKED];
        bool answer[ASKED];
        int rel[ASKED];
        for (int i = 0; i < SYMS; i++) {
            char src[16];
            snprintf(src, sizeof src, "x%d", i);
            for (int j = 0; j < BINDS; j++)
                syms[i].x[j] = j && rnd(2) ? syms[i].x[0] : 2 + rnd(4);
            syms[i].v = sym_env_size(env, syms[i].x[0], src, SYM_duck);
        }
        for (int q = 0; q < ASKED; q++) {
            a[q] = random_expr(syms, 2);
            b[q] = random_expr(syms, 2);
            rel[q] = rnd(6);
            symint cond = sym_rel_of((sym_rel)rel[q], a[q].v, b[q].v);
            answer[q] = sym_truth(cond);
        }
        CHECK_INT(sym_env_err(env)->kind, ERR_none);
        sym_guards *g = sym_guards_new(env);
        for (int j = 0; j < BINDS; j++) {
            int64_t x[SYMS];
            for (int i = 0; i < SYMS; i++)
                x[i] = syms[i].x[j];
            int failed = sym_guards_check(g, x);
            CHECK(j || failed < 0); /* they hold for the inputs that made them */
            failed < 0 ? passed++ : refused++;
            for (int q = 0; q < ASKED && failed < 0; q++)
                if ((sym_rel_of((sym_rel)rel[q], a[q].x[j], b[q].x[j]) != 0) != answer[q])
                    test_fail(__FILE__, __LINE__,
                              "round %d: question %d (%s rel %d %s) has another answer for %d %d %d %d",
                              round, q, text(a[q].v), rel[q], text(b[q].v), (int)x[0], (int)x[1], (int)x[2],
                              (int)x[3]);
        }
        sym_guards_free(g);
        sym_env_free(env);
    }
    CHECK(passed > 3000 && refused > 1000);
}

TEST(sym_sums_that_do_not_fit_are_errors)
{
    SETUP;
    static const char *bad[] = { "s0*18 < s2*91**9 *18 < s2*96**9 +1+139",
                                 "4000000000000000000*s0 + 4000000000000000000*s0",
                                 "1099511627776*s0*1099511627776", "s0*1099511627776*(s1*1099511627776)" };
    static const char *good[] = { "Max(4000000000000000000*s0, -4000000000000000000*s0)", "(s0 - 2)**100",
                                  "3*((1099511627776*s0 + 1)*(1099511627776*s1 + 1)*s1)",
                                  "-((1099511627776*s0 + 1)*(1099511627776*s1 + 1))",
                                  "(4000000000000000000*s0 + 1) // (s1 + 4000000000000000000)" };
    symint v, again;
    for (size_t i = 0; i < COUNT(bad); i++) {
        tp_err err = { 0 };
        CHECK(!sym_parse(f.env, bad[i], strlen(bad[i]), &v, &err));
        CHECK(err.kind == ERR_syntax && strstr(err.msg, "does not fit in 62 bits"));
    }
    for (size_t i = 0; i < COUNT(good); i++) {
        tp_err err = { 0 };
        CHECK(sym_parse(f.env, good[i], strlen(good[i]), &v, &err));
        char *t = strdup(text(v));
        CHECK(sym_parse(f.env, t, strlen(t), &again, &err));
        if (again != v)
            test_fail(__FILE__, __LINE__, "%s reads back as %s", t, text(again));
        free(t);
    }
    sym_env_free(f.env);
}

/* --- never exponential --------------------------------------------------------------------------------- */
/* Of this thread, so that a busy machine does not count. */
static int64_t cpu_ns(void) { return clock_read(CLOCK_THREAD_CPUTIME_ID); }
static double seconds(int64_t from) { return (double)(cpu_ns() - from) / 1e9; }
#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_S 8.0
#else
#define LIMIT_S 1.0
#endif

TEST(sym_chain_of_10000_steps_is_fast)
{
    for (int kind = 0; kind < 6; kind++) {
        SETUP;
        int64_t t = cpu_ns();
        symint x = s0;
        for (int i = 0; i < 10000; i++) {
            symint s = f.s[i % 4];
            switch (kind) {
            case 0: x = sym_add(sym_mul(x, 2), s); break;                /* coefficients overflow */
            case 1: x = sym_add(sym_mul(x, s), f.s[(i + 1) % 4]); break; /* the degree grows */
            case 2: x = sym_mul(x, x); break;
            case 3: x = sym_max(sym_add(x, s), sym_floordiv(sym_mul(x, s), 3)); break;
            case 4: x = sym_add(sym_mod(x, sym_add(s, 7)), sym_min(x, i)); break;
            default:
                x = sym_add(x, sym_floordiv(x, sym_add(s, i)));
                if (i % 100 == 0)
                    sym_ge(x, s);
            }
        }
        err_clear(f.err);
        bool ok;
        sym_hint(x, &ok);
        CHECK(strlen(text(x)) < 20000);
        sym_guards_free(sym_guards_new(f.env));
        if (seconds(t) > LIMIT_S)
            test_fail(__FILE__, __LINE__, "kind %d took %.2f s", kind, seconds(t));
        sym_env_free(f.env);
    }
}

TEST(sym_sum_of_10000_symbols_is_fast)
{
    int64_t t = cpu_ns();
    sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = true });
    symint x = 0;
    for (int i = 0; i < 10000; i++) {
        char src[32];
        snprintf(src, sizeof src, "L['x%d'].size()[0]", i);
        x = sym_add(x, sym_env_size(env, 3, src, SYM_duck));
    }
    bool ok;
    CHECK_INT(sym_hint(x, &ok), 30000);
    if (seconds(t) > LIMIT_S)
        test_fail(__FILE__, __LINE__, "took %.2f s", seconds(t));
    sym_env_free(env);
}

TEST(sym_200_equalities_are_fast)
{
    enum { N = 200 };
    for (int kind = 0; kind < 3; kind++) {
        int64_t t = cpu_ns();
        sym_env *env = sym_env_new(&(sym_env_opts){ .no_duck = true });
        symint s[N];
        for (int i = 0; i < N; i++) {
            char src[32];
            snprintf(src, sizeof src, "L['x%d'].size()[0]", i);
            s[i] = sym_env_size(env, kind == 1 ? 5 + i : 5, src, SYM_duck);
        }
        for (int i = 1; i < N; i++) {
            if (kind == 0)
                CHECK(sym_eq(s[i - 1], s[i]));
            else if (kind == 1)
                CHECK(sym_eq(sym_add(s[i - 1], 1), s[i]));
            else /* pairs of sums: what is left of a dense system */
                CHECK(sym_eq(sym_add(s[i], s[(i * 7) % N]), sym_add(s[(i * 13) % N], s[(i * 29) % N])));
        }
        sym_guards *g = sym_guards_new(env);
        int64_t v[N];
        for (int i = 0; i < N; i++)
            v[i] = kind == 1 ? 50 + i : 50;
        CHECK_INT(sym_guards_check(g, v), -1);
        v[N / 2 + 1]++;
        CHECK(sym_guards_check(g, v) >= 0);
        sym_guards_free(g);
        if (kind < 2)
            CHECK(sym_known(SYM_eq, sym_sub(s[N - 1], s[0]), kind ? N - 1 : 0));
        if (seconds(t) > LIMIT_S)
            test_fail(__FILE__, __LINE__, "kind %d took %.2f s", kind, seconds(t));
        sym_env_free(env);
    }
}
