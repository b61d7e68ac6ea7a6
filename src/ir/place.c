/* place.c - where nodes come from in the user's program. Front ends record all frames; who shows one asks here which. */
#include "ir/graph.h"
#include "base/source.h"

const ir_loc *ir_loc_user(const ir_loc *l)
{
    for (const ir_loc *f = l; f; f = f->outer)
        if (!f->library)
            return f;
    return l;
}

const ir_loc *ir_loc_root(const ir_loc *l)
{
    const ir_loc *user = NULL, *last = NULL;
    for (; l; l = l->outer) {
        last = l->calls ? last : l;
        if (!l->library && !l->calls)
            user = l;
    }
    return user ? user : last;
}

const ir_loc *ir_place(const ir_node *n) { return n ? ir_loc_user(n->loc) : NULL; }

void ir_crumb_put(const ir_node *n)
{
    const ir_loc *l = ir_place(n);
    crumb_node(n->name, l ? l->file : NULL, l ? l->line : 0);
}

const char *ir_loc_code(const ir_loc *l)
{
    return l->unread && l->file ? source_line_stripped(l->file, l->line) : l->code;
}

void ir_unread(ir_graph *g)
{
    IR_EACH (n, g) {
        for (ir_loc *l = (ir_loc *)n->loc; l; l = (ir_loc *)l->outer)
            l->unread |= !l->code;
    }
    for (size_t i = 0; i < g->subs.n; i++)
        ir_unread(g->subs.at[i]);
}

bool ir_err_place(tp_err *err, const ir_node *n)
{
    const ir_loc *l = ir_place(n);
    if (l)
        err_place(err, l->file, l->line, l->func);
    return false;
}

const ir_loc *ir_loc_copy(arena *a, map *done, const ir_loc *l)
{
    if (!l)
        return NULL;
    ir_loc *r = map_geti(done, (uintptr_t)l);
    if (r)
        return r;
    r = arena_dup(a, l, sizeof *l);
    map_puti(done, (uintptr_t)l, r);
    r->file = l->file ? arena_strdup(a, l->file) : NULL;
    r->func = l->func ? arena_strdup(a, l->func) : NULL;
    r->code = l->code ? arena_strdup(a, l->code) : NULL;
    r->outer = ir_loc_copy(a, done, l->outer);
    return r;
}
