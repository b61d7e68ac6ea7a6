/* decide.c - names of the kinds, and the slow path of asking. */
#include "ir/decide.h"

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
    if (n->loc && n->loc->file) { /* the file's own name: directories differ between machines */
        const char *slash = strrchr(n->loc->file, '/');
        strbuf_addf(&b, "@%s:%d", slash ? slash + 1 : n->loc->file, n->loc->line);
    }
    bool yes = decide_ask(c, k, strbuf_str(&b));
    strbuf_free(&b);
    return yes;
}
