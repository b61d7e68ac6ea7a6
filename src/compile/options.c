/* options.c - reading and printing options. */
#include "compile/options.h"
#include "base/near.h"
#include "base/envvars.h"
#include "events/events.h"
#include <stdio.h>

static const option_row rows[] = {
#define OPTION(name, def, values, help) { #name, def, values, help },
#include "compile/options.def"
};

const option_row *option_row_of(option_id o) { return &rows[o]; }

static const char *values_of(const option_row *r)
{
    return strcmp(r->values, "bool") ? r->values : "False|True";
}

const char *option_word_at(option_id o, int v, size_t *n)
{
    const char *s = values_of(&rows[o]);
    while (v-- > 0 && (s = strchr(s, '|')))
        s++;
    *n = s ? strcspn(s, "|") : 0;
    return s ? s : "";
}

const char *option_word(option_id o, int v, char *buf, size_t n)
{
    size_t len;
    const char *s = option_word_at(o, v, &len);
    snprintf(buf, n, "%.*s", (int)len, s);
    return buf;
}

static int find_word(const option_row *r, const char *value)
{
    size_t n = strlen(value);
    int i = 0;
    for (const char *s = values_of(r); s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, i++)
        if (n == strcspn(s, "|") && !strncmp(s, value, n))
            return i;
    return -1;
}

bool options_set(run_options *o, const char *name, const char *value, tp_err *err)
{
    for (int i = 0; i < OPT_COUNT; i++)
        if (!strcmp(rows[i].name, name)) {
            int v = find_word(&rows[i], value);
            if (v < 0) {
                strbuf b = { 0 };
                for (const char *s = values_of(&rows[i]); *s; s++)
                    strbuf_add(&b, *s == '|' ? ", " : (char[]){ *s, 0 });
                err_set(err, ERR_value, "option '%s' cannot be '%.60s'; it is one of: %s", name, value,
                        strbuf_str(&b));
                strbuf_free(&b);
                return false;
            }
            o->v[i] = (int8_t)v;
            return true;
        }
    strbuf b = { 0 };
    near_word near = { name };
    for (int i = 0; i < OPT_COUNT; i++) {
        strbuf_addf(&b, "%s%s", i ? ", " : "", rows[i].name);
        near_try(&near, rows[i].name);
    }
    err_set(err, ERR_runtime, "Unexpected optimization option %.60s, known options are: %s%s", name,
            strbuf_str(&b), near_hint(&near));
    strbuf_free(&b);
    return false;
}

void options_environment(run_options *o)
{
    tp_err err = { 0 };
    const char *e = env_get(ENV_emitter);
    static bool said;
    if (e && *e && !options_set(o, "emitter", e, &err) && !said) {
        said = true;
        ev_log(EVC_inductor, EV_WARNING, NULL, "%s: %s; it is ignored", env_name(ENV_emitter), err.msg);
    }
    if (env_on(ENV_fallback_random))
        options_set(o, "fallback_random", "True", &err);
}

run_options options_default(void)
{
    run_options o;
    for (int i = 0; i < OPT_COUNT; i++)
        o.v[i] = (int8_t)find_word(&rows[i], rows[i].def);
    options_environment(&o);
    return o;
}

void options_own(strbuf *b, const run_options *o)
{
    run_options plain = options_default();
    char w[40];
    for (int i = 0; i < OPT_COUNT; i++)
        if (o->v[i] != plain.v[i])
            strbuf_addf(b, "%s%s=%s", b->n ? " " : "", rows[i].name,
                        option_word((option_id)i, o->v[i], w, sizeof w));
}

void options_parse(run_options *o, const char *text)
{
    while (text && *text) {
        size_t n = strcspn(text, " "), k = strcspn(text, "=");
        if (k < n) {
            char *name = mem_strndup(text, k), *value = mem_strndup(text + k + 1, n - k - 1);
            options_set(o, name, value, &(tp_err){ 0 });
            free(name);
            free(value);
        }
        text += n + (text[n] == ' ');
    }
    options_environment(o);
}

const target *options_target(const run_options *o, dev_kind device, const char **why)
{
    char name[16] = "auto", level[16] = "auto";
    const char *reason;
    if (device == DEV_cpu) { /* both speak of the targets of the CPU */
        option_word(OPT_emitter, o->v[OPT_emitter], name, sizeof name);
        option_word(OPT_isa, o->v[OPT_isa], level, sizeof level);
    }
    const target *t = target_named(device, name, level, &reason);
    if (why)
        *why = !t                                              ? reason
               : !strcmp(name, t->name) && t == &target_interp ? "the options ask for it"
               : strcmp(name, t->name) && strcmp(name, "auto") ? reason
                                                               : "";
    return t;
}

target_caps options_caps(const run_options *o, const target *t)
{
    target_caps c = t->caps;
    if (o->v[OPT_unroll])
        c.ways = 1 << (o->v[OPT_unroll] - 1);
    return c;
}

void options_print(strbuf *b, const run_options *o)
{
    char w[40];
    for (int i = 0; i < OPT_COUNT; i++)
        strbuf_addf(b, "%s%s=%s", i ? " " : "", rows[i].name,
                    option_word((option_id)i, o->v[i], w, sizeof w));
}
