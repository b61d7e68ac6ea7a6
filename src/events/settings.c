/* settings.c - TAPER_LOGS and set_logs: which component has which level, which artifacts were named. */
#define _GNU_SOURCE
#include "base/json.h"
#include "events/internal.h"
#include "base/envvars.h"
#include "base/near.h"
#include "base/vec.h"
#include <ctype.h>
#include <stdio.h>

typedef struct {
    char *name;
    int level;
} module;
static struct {
    int root;                 /* 0: not set, so WARNING */
    int component[EVC_COUNT]; /* 0: not named */
    int implied[EVC_COUNT];
    bool artifact[EV_COUNT];
    VEC(module) modules;
} set;
static bool from_env;
static int config_level = EV_WARNING;
static bool config_debug;
static bool (*is_module)(void *, const char *);
static void *module_data;

static const struct {
    const char *alias, *name;
} aliases[] = { { "aot_joint_graphs", "aot_joint_graph" } };

static void clear(void)
{
    for (size_t i = 0; i < set.modules.n; i++)
        free(set.modules.at[i].name);
    vec_free(&set.modules);
    memset(&set, 0, sizeof set);
}

static bool from_config(void) { return !from_env && (config_level <= EV_INFO || config_debug); }

int ev_component_level(ev_component c)
{
    int level = set.component[c] ? set.component[c]
                : set.implied[c] ? set.implied[c]
                : set.root       ? set.root
                                 : EV_WARNING;
    if (c == EVC_cache && set.artifact[EV_caching])
        level = MIN(level, EV_INFO);
    return c == EVC_dynamo && from_config() ? MIN(level, config_level) : level;
}

bool ev_text_wants(ev_kind k)
{
    const ev_row *r = &ev_rows[k];
    if (!(r->flags & EVF_log))
        return false;
    if (from_config() && ((k == EV_graph_breaks && config_level <= EV_INFO) ||
                          (config_debug && (k == EV_graph_code || k == EV_guards))))
        return true;
    return set.artifact[k] || (!(r->flags & EVF_off) && r->level >= ev_component_level(r->component));
}

static bool is_root(const char *s) { return !strcmp(s, "all") || !strcmp(s, "torch") || !strcmp(s, "taper"); }

static int find_component(const char *s)
{
    for (int c = 0; c < EVC_COUNT; c++)
        if (!strcmp(ev_crows[c].name, s))
            return c;
    return -1;
}

static int find_artifact(const char *s)
{
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (!strcmp(aliases[i].alias, s))
            s = aliases[i].name;
    for (int k = 0; k < EV_COUNT; k++)
        if (ev_rows[k].flags & EVF_log && !strcmp(ev_rows[k].name, s))
            return k;
    return -1;
}

static void set_component(int c, int level)
{
    set.component[c] = level;
    for (int i = 0; i < EVC_COUNT; i++)
        if (ev_crows[c].implies >> i & 1)
            set.implied[i] = set.implied[i] ? MIN(set.implied[i], level) : level;
}

static void set_module(const char *name, int level)
{
    module m = { mem_strdup(name), level };
    vec_push(&set.modules, m);
}

int ev_module_level(const char *name)
{
    size_t best = 0;
    int level = 0;
    pthread_mutex_lock(&ev_lock);
    for (size_t i = 0; i < set.modules.n; i++) { /* a package speaks for its submodules; the longest wins */
        size_t n = strlen(set.modules.at[i].name);
        if (!strncmp(name, set.modules.at[i].name, n) && (name[n] == 0 || name[n] == '.') && n >= best) {
            best = n;
            level = set.modules.at[i].level;
        }
    }
    pthread_mutex_unlock(&ev_lock);
    return level;
}

void ev_set_module_test(bool (*test)(void *, const char *), void *data)
{
    is_module = test;
    module_data = data;
}

/* --- words
 * ---------------------------------------------------------------------------------------------------- */
static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void valid_names(strbuf *out)
{
    const char *names[EV_COUNT + EVC_COUNT + 1];
    size_t n = 0;
    names[n++] = "all";
    for (int c = 0; c < EVC_COUNT; c++)
        names[n++] = ev_crows[c].name;
    for (int k = 0; k < EV_COUNT; k++)
        if (ev_rows[k].flags & EVF_log)
            names[n++] = ev_rows[k].name;
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        strbuf_addf(out, "%s%s", i ? ", " : "", names[i]);
}

static bool told(int k, bool all)
{
    int f = ev_rows[k].flags;
    return f & EVF_log && !(f & EVF_none) && (all || f & EVF_vis);
}

/* Names that programs written for others use: accepted, and nothing comes of them. */
static void list_none(strbuf *out)
{
    strbuf_add(out, "\nAccepted, but there is nothing to tell\n");
    for (int k = 0; k < EV_COUNT; k++)
        if (ev_rows[k].flags & EVF_log && ev_rows[k].flags & EVF_none)
            strbuf_addf(out, "   %-26s %s\n", ev_rows[k].name, ev_rows[k].help);
}

void ev_help(strbuf *out, bool all)
{
    const char *var = env_name(ENV_logs);

    strbuf_addf(
        out,
        "%s Info\n"
        "Examples:\n"
        "  %s=\"+dynamo,aot\"       capture in detail, the autograd stage briefly\n"
        "  %s=\"graph_breaks\"      only where and why graphs broke\n"
        "  %s=\"-inductor,guards\"  only errors of inductor, and all guards\n"
        "  %s=\"+help\"             this page with every name\n\n"
        "A component takes a level: + debug, none info, - errors only. An artifact is on when named;\n"
        "most also show when their component is at debug. Names marked * show only when named.\n\n"
        "Components\n  %-26s everything\n",
        var, var, var, var, var, "all");
    for (int c = 0; c < EVC_COUNT; c++)
        strbuf_addf(out, "  %-26s %s\n", ev_crows[c].name, ev_crows[c].help);
    strbuf_add(out, "\nArtifacts\n");
    for (int k = 0; k < EV_COUNT; k++)
        if (told(k, all))
            strbuf_addf(out, "%s %-26s %s\n", ev_rows[k].flags & EVF_off ? " *" : "  ", ev_rows[k].name,
                        ev_rows[k].help);
    if (all)
        list_none(out);
}

/* ---- taper logs ---- */
void ev_list(strbuf *out, bool all)
{
    strbuf_addf(out, "Components: %s=+NAME shows everything it says, NAME the important, -NAME errors only\n",
                env_name(ENV_logs));
    strbuf_addf(out, "  %-26s everything\n", "all");
    for (int c = 0; c < EVC_COUNT; c++)
        strbuf_addf(out, "  %-26s %s\n", ev_crows[c].name, ev_crows[c].help);
    strbuf_addf(out, "\nOne kind of message each: %s=NAME,NAME. Marked *: only when named\n",
                env_name(ENV_logs));
    for (int k = 0; k < EV_COUNT; k++)
        if (told(k, all))
            strbuf_addf(out, "%s %-26s %s\n", ev_rows[k].flags & EVF_off ? " *" : "  ", ev_rows[k].name,
                        ev_rows[k].help);
    for (size_t i = 0; i < COUNT(aliases); i++)
        strbuf_addf(out, "   %-26s the same as %s\n", aliases[i].alias, aliases[i].name);
    if (all)
        list_none(out);
}

void ev_list_json(strbuf *out, bool all)
{
    json_w w = { out };
    json_obj(&w);
    json_key(&w, "components");
    json_arr(&w);
    for (int c = 0; c < EVC_COUNT; c++) {
        json_obj(&w);
        json_key(&w, "name"), json_str(&w, ev_crows[c].name);
        json_key(&w, "shows"), json_str(&w, ev_crows[c].help);
        json_end(&w);
    }
    json_end(&w);
    json_key(&w, "artifacts");
    json_arr(&w);
    for (int k = 0; k < EV_COUNT; k++)
        if (told(k, all)) {
            json_obj(&w);
            json_key(&w, "name"), json_str(&w, ev_rows[k].name);
            json_key(&w, "shows"), json_str(&w, ev_rows[k].help);
            json_key(&w, "only_when_named"), json_bool(&w, ev_rows[k].flags & EVF_off);
            json_end(&w);
        }
    json_end(&w);
    json_end(&w);
    strbuf_addc(out, '\n');
}

static const char *ev_example(ev_kind k)
{
    static const char *const text[EV_COUNT] = {
#define EXAMPLE(kind, s) [EV_##kind] = "Prints, after the head of each line:\n\n" s,
#include "events/examples.def"
    };
    return text[k] ? text[k] : "";
}

bool ev_describe(strbuf *out, const char *name)
{
    int c = find_component(name), k = find_artifact(name);
    const char *var = env_name(ENV_logs);
    if (is_root(name))
        strbuf_addf(out, "%s: everything\nExample: %s=+all python program.py\n", name, var);
    else if (k >= 0)
        strbuf_addf(out, "%s: %s%s\n%sExample: %s=%s python program.py\n%s", name,
                    ev_rows[k].flags & EVF_none ? "nothing: " : "", ev_rows[k].help,
                    ev_rows[k].flags & EVF_off ? "Shown only when named.\n" : "", var, name,
                    ev_example((ev_kind)k));
    else if (c >= 0)
        strbuf_addf(out, "%s: %s\nExample: %s=+%s python program.py\n", name, ev_crows[c].help, var, name);
    return c >= 0 || k >= 0 || is_root(name);
}

/* The name of a log that is nearest to one that does not exist. */
static void near_log(near_word *n)
{
    for (int c = 0; c < EVC_COUNT; c++)
        near_try(n, ev_crows[c].name);
    for (int k = 0; k < EV_COUNT; k++)
        if (find_artifact(ev_rows[k].name) == k)
            near_try(n, ev_rows[k].name);
}

/* name: the one that does not exist, or NULL */
static bool invalid(strbuf *why, const char *settings, const char *name)
{
    near_word near = { name };
    near_log(&near);
    strbuf_clear(why);
    strbuf_addf(why,
                "Invalid log settings: %s, must be a comma separated list of fully qualified module names, "
                "registered "
                "log names or registered artifact names.\n"
                "For more info on various settings, try %s=\"help\"\n"
                "Valid settings:\n",
                settings, env_name(ENV_logs));
    valid_names(why);
    if (near_best(&near))
        strbuf_addf(why, "\nThere is no '%s'%s", name, near_hint(&near));
    return false;
}

/* item ("," ws* item)*, item = [+-]? [A-Za-z0-9_.]+ */
static bool apply_string(const char *settings, strbuf *why)
{
    const char *p = settings;
    char name[128];

    if (!strcmp(p, "help") || !strcmp(p, "+help")) {
        strbuf_clear(why);
        ev_help(why, *p == '+');
        return false;
    }
    while (*p) {
        int level = *p == '+' ? EV_DEBUG : *p == '-' ? EV_ERROR : EV_INFO;
        p += *p == '+' || *p == '-';
        size_t n = 0;
        while ((isalnum((unsigned char)p[n]) && !((unsigned char)p[n] & 0x80)) || p[n] == '_' || p[n] == '.')
            n++;
        if (!n || n >= sizeof name || (p[n] && p[n] != ','))
            return invalid(why, settings, NULL);
        memcpy(name, p, n);
        name[n] = 0;
        int c = find_component(name), k = find_artifact(name);
        if (is_root(name))
            set.root = level;
        else if (c >= 0)
            set_component(c, level);
        else if (k >= 0)
            set.artifact[k] = true;
        else if (is_module && is_module(module_data, name))
            set_module(name, level);
        else
            return invalid(why, settings, name);
        p += n;
        if (*p == ',') {
            for (p++; *p == ' ' || *p == '\t';)
                p++;
            if (!*p)
                return invalid(why, settings, NULL); /* nothing after the comma */
        }
    }
    return true;
}

bool ev_set_logs_string(const char *settings, strbuf *why)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    clear();
    bool ok = apply_string(settings, why);
    if (!ok)
        clear();
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
    return ok;
}

bool ev_init(strbuf *why)
{
    const char *s = env_get(ENV_logs), *t = env_get(ENV_dtrace);
    bool slow = t && *t, ok = true;
    tp_err err = { 0 };

    ev_lock_init();
    ev_text_init();
    from_env = s != NULL && *s;
    if (from_env)
        ok = ev_set_logs_string(s, why);
    if (!slow)
        t = env_get(ENV_trace);
    if (t && *t && !ev_trace_start(t, slow, &err))
        ev_log(EVC_dynamo, EV_WARNING, NULL, "%s: %s; nothing is traced",
               env_name(slow ? ENV_dtrace : ENV_trace), err.msg);
    return ok;
}

void ev_reset_logs(void)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    clear();
    from_env = false;
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
}

/* --- set_logs
 * ------------------------------------------------------------------------------------------------------ */
static bool level_ok(int v) { return v == 0 || v == 10 || v == 20 || v == 30 || v == 40 || v == 50; }

static bool bad_level(strbuf *why, const ev_setting *s)
{
    strbuf_clear(why);
    strbuf_addf(why,
                "Unrecognized log level for log %s: %s, valid level values are: "
                "CRITICAL,FATAL,ERROR,WARN,WARNING,INFO,DEBUG,NOTSET",
                s->name, s->shown);
    return false;
}

static bool apply_one(const ev_setting *s, strbuf *why)
{
    int c = find_component(s->name), k = find_artifact(s->name);

    if (s->type == EV_SET_none)
        return true;
    if (is_root(s->name) || c >= 0) {
        if (s->type != EV_SET_int || !level_ok(s->value))
            return bad_level(why, s);
        if (c >= 0)
            set_component(c, s->value ? s->value : EV_DEBUG);
        else
            set.root = s->value ? s->value : EV_DEBUG;
        return true;
    }
    if (k >= 0) {
        if (s->type != EV_SET_bool) {
            strbuf_clear(why);
            strbuf_addf(why, "Expected bool to enable artifact %s, received %s", s->name, s->shown);
            return false;
        }
        set.artifact[k] = s->value;
        return true;
    }
    if (s->in_modules && is_module && is_module(module_data, s->name)) {
        if (s->type != EV_SET_int || !level_ok(s->value))
            return bad_level(why, s);
        set_module(s->name, s->value);
        return true;
    }
    strbuf_clear(why);
    near_word near = { s->name };
    near_log(&near);
    strbuf_addf(why, "Unrecognized log or artifact name passed to set_logs: %s%s", s->name, near_hint(&near));
    return false;
}

bool ev_set_logs(const ev_setting *s, int n, strbuf *why)
{
    bool ok = true;

    ev_lock_init();
    if (from_env) {
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "Using %s environment variable for log settings, ignoring call to set_logs",
               env_name(ENV_logs));
        return true;
    }
    pthread_mutex_lock(&ev_lock);
    clear();
    for (int i = 0; i < n && ok; i++)
        ok = apply_one(&s[i], why);
    if (!ok)
        clear();
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
    return ok;
}

/* 0: not set. */
int ev_own_level(const char *component)
{
    int c = find_component(component);
    return c < 0 ? 0 : set.component[c];
}

bool ev_set_own_level(const char *component, int level)
{
    int c = find_component(component);
    if (c < 0)
        return false;
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    set.component[c] = (uint8_t)(level < 0 ? 0 : level > UINT8_MAX ? UINT8_MAX : level);
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
    return true;
}

void ev_set_logs_config(int level, bool debug)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    config_level = level < EV_DEBUG ? EV_DEBUG : level;
    config_debug = debug;
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
}

void ev_set_logs_default(void)
{
    static const ev_setting preset[] = {
        { "dynamo", EV_SET_int, EV_INFO, "", false },     { "aot", EV_SET_int, EV_INFO, "", false },
        { "inductor", EV_SET_int, EV_INFO, "", false },   { "fsdp", EV_SET_int, EV_INFO, "", false },
        { "dynamic", EV_SET_int, EV_INFO, "", false },    { "ddp_graphs", EV_SET_bool, true, "", false },
        { "graph_breaks", EV_SET_bool, true, "", false }, { "side_effects", EV_SET_bool, true, "", false },
        { "guards", EV_SET_bool, true, "", false },       { "recompiles", EV_SET_bool, true, "", false },
    };
    strbuf why = { 0 };
    ev_set_logs(preset, COUNT(preset), &why);
    strbuf_free(&why);
}
