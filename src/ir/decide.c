/* decide.c - names of the kinds, and the slow path of asking. */
#include "ir/decide.h"
#include "base/envvars.h"
#include "base/quarantine.h"
#include "events/events.h"
#include <limits.h>

static const struct {
    const char *name, *what;
} rows[] = {
#define DECIDE(name, what) { #name, what },
#include "ir/decide.def"
};

const char *decide_name(decide_kind k) { return rows[k].name; }
const char *decide_what(decide_kind k) { return rows[k].what; }

bool decide_by_name(const char *name, size_t n, decide_kind *k)
{
    for (int i = 0; i < DECIDE_COUNT; i++)
        if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n)) {
            *k = (decide_kind)i;
            return true;
        }
    return false;
}

bool decide_ask(tp_comp *c, decide_kind k, const char *site)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "%s:%s", rows[k].name, site);
    bool yes = c->decider.fn(c->decider.data, k, strbuf_str(&b), hash_bytes(b.s, b.n, 0));
    strbuf_free(&b);
    return yes;
}

bool decide_ask_node(tp_comp *c, decide_kind k, const ir_node *n)
{
    strbuf b = { 0 };
    strbuf_add(&b, n->name);
    const ir_loc *l = ir_place(n);
    if (l && l->file) { /* the file's own name: directories differ between machines */
        const char *slash = strrchr(l->file, '/');
        strbuf_addf(&b, "@%s:%d", slash ? slash + 1 : l->file, l->line);
    }
    bool yes = decide_ask(c, k, strbuf_str(&b));
    strbuf_free(&b);
    return yes;
}

/* ---- by hand: the environment says which rewrites are made ---- */
static struct {
    decide_kind kind;
    long max;
    long asked; /* sites of that kind so far */
} by_env;

static bool env_answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    if (quarantine_refuses(site))
        return false;
    if (k != by_env.kind)
        return true;
    long i = __atomic_fetch_add(&by_env.asked, 1, __ATOMIC_RELAXED);
    bool yes = i <= by_env.max;
    if (ev_log_on(EVC_debug, EV_INFO))
        ev_log(EVC_debug, EV_INFO, NULL, "rewrite %ld of kind %s: %s, %s", i, rows[k].name, site,
               yes ? "made" : "left out");
    return yes;
}

static bool quarantine_answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    return !quarantine_refuses(site);
}

decider decide_env(void)
{
    const char *name = env_get(ENV_bisect_subsystem);
    static bool said;
    if (!name || !*name)
        return quarantine_any() ? (decider){ quarantine_answer, NULL } : (decider){ 0 };
    if (!decide_by_name(name, strlen(name), &by_env.kind)) {
        strbuf b = { 0 };
        for (int i = 0; i < DECIDE_COUNT; i++)
            strbuf_addf(&b, "%s%s", i ? ", " : "", rows[i].name);
        if (!said)
            ev_log(EVC_debug, EV_WARNING, NULL,
                   "TAPER_BISECT_SUBSYSTEM=%s is no kind of rewrite; there are %s", name, strbuf_str(&b));
        said = true;
        strbuf_free(&b);
        return (decider){ 0 };
    }
    by_env.max = env_int(ENV_bisect_max, LONG_MAX);
    return (decider){ env_answer, NULL };
}
