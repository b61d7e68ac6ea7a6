/* What the shape environment says in logs and traces. */
#include "test.h"
#include "base/envvars.h"
#include "base/file.h"
#include "events/events.h"
#include "sym/env.h"

static strbuf seen;
/* Keeps the messages, drops the prefixes. */
static void catch (void *data, const char *text, size_t n)
{
    for (const char *p = text, *end = text + n, *nl; p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t)(end - p));
        const char *msg = strstr(p, "] ");
        msg = msg && msg < nl ? msg + 2 : p;
        strbuf_addn(&seen, msg, (size_t)(nl - msg) + 1);
    }
}
static void where(void *data, strbuf *out) { strbuf_add(out, "playground.py:5 in fn"); }
static int stack(void *data, ev_frame *f, int max)
{
    f[0] = (ev_frame){ "playground.py", "fn", "return x + 1", 5 };
    return 1;
}

static void program(void)
{
    sym_env *env = sym_env_new(&(sym_env_opts){ .where = where });
    symint a = sym_env_size(env, 3, "L['x'].size()[0]", SYM_duck);
    sym_env_size(env, 3, "L['y'].size()[0]", SYM_duck);
    symint u = sym_env_unbacked(env, 0, SYM_OO);
    sym_eq(a, 3);
    sym_env_assert(env, sym_rel_of(SYM_le, u, 9), NULL);
    sym_guards_free(sym_guards_new(env));
    sym_env_free(env);
}

TEST(sym_log_lines)
{
    strbuf why = { 0 };
    ev_set_writer(catch, NULL);
    CHECK(ev_set_logs_string("dynamic", &why));
    program();
    CHECK_STR(
        seen.s,
        "create_env\n"
        "create_symbol s0 = 3 for L['x'].size()[0] [2, int_oo] at playground.py:5 in fn (sym/env.c in "
        "sym_env_size), for more info run with TAPER_EXTENDED_DEBUG_CREATE_SYMBOL=\"s0\"\n"
        "create_unbacked_symbol u0 [0, int_oo] at playground.py:5 in fn (sym/env.c in sym_env_unbacked), "
        "for more info run with TAPER_EXTENDED_DEBUG_CREATE_SYMBOL=\"u0\"\n"
        "eval Eq(s0, 3) [guard added] at playground.py:5 in fn\n"
        "runtime_assert u0 <= 9 [guard added] at playground.py:5 in fn\n"
        "produce_guards\n");
    strbuf_clear(&seen);
    CHECK(ev_set_logs_string("+dynamic", &why));
    setenv("TAPER_EXTENDED_DEBUG_CREATE_SYMBOL", "s1,u0", 1);
    ev_set_stack_source(stack, NULL);
    program();
    CHECK(strstr(seen.s, "create_symbol s0 duck sized L['y'].size()[0]\n"));
    CHECK(strstr(seen.s, "set_replacement s0 = 3 at playground.py:5 in fn\n"));
    CHECK(strstr(seen.s, "SYMBOL=\"s0\"\ncreate") &&
          strstr(seen.s, "SYMBOL=\"u0\"\nStack (most recent call last):\n"
                         "  File \"playground.py\", line 5, in fn\n    return x + 1\n"));
    unsetenv("TAPER_EXTENDED_DEBUG_CREATE_SYMBOL");
    ev_set_stack_source(NULL, NULL);
    ev_reset_logs();
    ev_set_writer(NULL, NULL);
    strbuf_free(&seen);
    strbuf_free(&why);
}

TEST(sym_trace_records)
{
    tp_err err = { 0 };
    char *dir = file_temp_dir(NULL, "taper-test-", &err), *text;
    CHECK(ev_trace_start(dir, true, &err));
    ev_set_stack_source(stack, NULL);
    program();
    text = file_read(ev_trace_path(), 1 << 20, NULL, &err);
    CHECK(text &&
          strstr(
              text,
              "{\"create_symbol\": {\"symbol\": \"s0\", \"val\": \"3\", \"vr\": \"[2, int_oo]\", \"source\": "
              "\"L['x'].size()[0]\", \"user_stack\": [{\"line\": 5, \"name\": \"fn\", \"filename\": 0, "
              "\"loc\": \"return x + 1\"}], \"stack\": ["));
    CHECK(strstr(
        text, "{\"create_unbacked_symbol\": {\"symbol\": \"u0\", \"node_id\": 1, \"vr\": \"[0, int_oo]\""));
    CHECK(strstr(text, "{\"guard_added_fast\": {\"expr\": \"Eq(s0, 3)\""));
    CHECK(strstr(text, "{\"guard_added\": {\"expr\": \"Eq(s0, 3)\", \"prefix\": \"eval\""));
    CHECK(strstr(text, "\"symbol_to_sources\": {\"s0\": \"L['x'].size()[0]\""));
    CHECK(strstr(
        text, "{\"symbolic_shape_specialization\": {\"symbol\": \"s0\", \"sources\": [\"L['x'].size()[0]\", "
              "\"L['y'].size()[0]\"], \"value\": \"3\", \"reason\": \"guard at playground.py:5 in fn\""));
    ev_set_stack_source(NULL, NULL);
    ev_trace_stop();
    CHECK(file_remove_tree(dir, &err));
    free(text);
    free(dir);
}
