/* Expressions: what parses prints, and parses again to the same pointer; ranges hold the hint; evaluation
 * with the hints agrees with it; the guards of a question hold for the inputs that asked it. */
#include "fuzz.h"
#include "sym/env.h"

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    sym_env *env = sym_env_new(NULL);
    tp_err err = { 0 };
    symint s[4], v, again;
    int64_t hints[4] = { 3, 5, 0, 7 }, x, lo, hi;
    strbuf b = { 0 };
    bool ok;

    s[0] = sym_env_size(env, 3, "L['x'].size()[0]", SYM_duck);
    s[1] = sym_env_size(env, 5, "L['x'].size()[1]", SYM_duck);
    s[2] = sym_env_unbacked(env, 0, SYM_OO);
    s[3] = sym_env_int(env, 7, "L['n']");
    if (!sym_parse(env, (const char *)data, n, &v, &err)) {
        MUST(err.kind == ERR_syntax);
        goto done;
    }
    sym_print(&b, v);
    if (b.n < 1000) { /* longer texts may be cut */
        MUST(sym_parse(env, b.s, b.n, &again, &err));
        /* What is too large to be expanded keeps a shape that depends on how it was built. */
        int64_t one = sym_hint(v, &ok), two = ok ? sym_hint(again, &ok) : 0;
        MUST(again == v ||
             ((strstr(b.s, "**") || strstr(b.s, "*(") || strstr(b.s, ")*")) && (!ok || one == two)));
    }
    sym_bind binds[4];
    for (int i = 0; i < 4; i++)
        binds[i] = (sym_bind){ sym_expr_of(s[i]), hints[i] };
    int64_t h = sym_hint(v, &ok);
    if (ok) {
        sym_range(v, &lo, &hi);
        MUST(lo <= h && h <= hi);
        MUST(!sym_eval(v, binds, 4, &x) || x == h);
    }
    if (sym_is_bool(v) && !sym_is_unbacked(v)) {
        bool yes = sym_truth(v);
        MUST(!ok || yes == (h != 0));
        sym_guards *g = sym_guards_new(env);
        if (sym_env_err(env)->kind == ERR_none)
            MUST(sym_guards_check(g, (int64_t[]){ 3, 5, 7 }) == -1);
        sym_guards_free(g);
    }
done:
    strbuf_free(&b);
    sym_env_free(env);
    return 0;
}
