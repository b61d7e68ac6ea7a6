/* pass.c - the driver, and what passes ask about memory. */
#include "ir/pass.h"
#include "ir/hop.h"
#include "ops/custom.h"
#include "base/crumb.h"
#include "events/events.h"

const pass_row pass_rows[] = {
    { "noop", pass_noop, "nodes that change nothing go away", FACT_verified, FACT_verified },
    { "fold", pass_fold, "what depends on constants alone is computed now", FACT_verified, FACT_verified },
    { "cse", pass_cse, "equal nodes become one node", FACT_verified, FACT_verified },
    { "dce", pass_dce, "nodes nobody uses go away", FACT_verified, FACT_verified | FACT_functional },
    { NULL, NULL, NULL, 0, 0 },
};

const pass_row *pass_by_name(const char *name, size_t n)
{
    for (const pass_row *p = pass_rows; p->name; p++)
        if (strlen(p->name) == n && !memcmp(p->name, name, n))
            return p;
    return NULL;
}

static bool is_functional(ir_graph *g, tp_err *err)
{
    IR_EACH (n, g)
        if (ir_node_writes(n))
            return err_set(err, ERR_value, "node '%s' works in place, which this pass does not take",
                           n->name);
    return true;
}

/* The dump and the report both read this. */
static void report(const ir_graph *g, const pass_row *p)
{
    if (!ev_trace_on(EV_graph_dump))
        return;
    strbuf code = { 0 }, meta = { 0 };
    json_w w = { &meta };
    json_obj(&w);
    json_key(&w, "name");
    json_strf(&w, "%s_after_%s", g->name, p->name);
    json_key(&w, "type");
    json_str(&w, "graph");
    json_end(&w);
    ir_print(&code, g, IR_PRINT_log | IR_PRINT_brand);
    ev_json(EV_graph_dump, NULL, strbuf_str(&meta), strbuf_str(&code));
    strbuf_free(&code);
    strbuf_free(&meta);
}

static bool run_all(tp_comp *c, ir_graph *g, const pass_row *const *rows, int n)
{
    uint32_t have = 0;
    for (int i = 0; i < n; i++) {
        const pass_row *p = rows[i];
        uint32_t missing = p->needs & ~have;
        if ((missing & FACT_verified && !(c->verify ? ir_verify : ir_verify_changed)(g, c->err)) ||
            (missing & FACT_functional && !is_functional(g, c->err)))
            return err_note(c->err, "before pass '%s'", p->name);
        have |= missing;
        crumb_drop("graph pass", p->name);
        if (!p->run(c, g))
            return err_note(c->err, "in pass '%s'", p->name);
        have &= p->keeps;
        report(g, p);
        if (c->verify && !ir_verify(g, c->err))
            return err_note(c->err, "after pass '%s'", p->name);
        assert(ir_verify(g, c->err));
    }
    return true;
}

bool pass_run(tp_comp *c, ir_graph *g, const pass_row *const *rows, int n)
{
    tp_comp mine = *c;
    pass_walk *w = pass_walk_begin(&mine, g);
    bool ok = run_all(&mine, g, rows, n);
    pass_walk_end(w);
    return ok;
}

bool pass_run_named(tp_comp *c, ir_graph *g, const char *list)
{
    const pass_row *rows[64];
    int n = 0;
    if (!list)
        for (const pass_row *p = pass_rows; p->name; p++)
            rows[n++] = p;
    for (const char *s = list; s && *s; s += strcspn(s, ","), s += *s == ',') {
        size_t k = strcspn(s, ",");
        const pass_row *p = pass_by_name(s, k);
        if (!p || n == COUNT(rows)) {
            strbuf b = { 0 };
            for (const pass_row *r = pass_rows; r->name; r++)
                strbuf_addf(&b, "%s%s", r == pass_rows ? "" : ", ", r->name);
            err_set(c->err, ERR_usage, "there is no pass '%.*s'; there are %s", (int)MIN(k, 60), s,
                    strbuf_str(&b));
            strbuf_free(&b);
            return false;
        }
        rows[n++] = p;
    }
    return pass_run(c, g, rows, n);
}

/* ---- what a node does to memory ---- */
bool ir_node_writes(const ir_node *n)
{
    if (n->kind != IR_call)
        return false;
    return n->variant != OPV_fn || (op_row_of((op_id)n->op)->flags & OPF_MUT);
}

/* A call with nested graphs does what they do. */
static bool nested_effects(const ir_node *n)
{
    int at[2], k = ir_hop_subs(n, at);
    for (int i = 0; i < k; i++)
        IR_EACH (m, n->arg[at[i]].graph)
            if (m->kind != IR_placeholder && m->kind != IR_output && ir_node_is_effect(m))
                return true;
    return k == 0;
}

bool ir_node_is_effect(const ir_node *n)
{
    if (n->kind == IR_opaque && (!nested_effects(n) || custom_is_pure(n->target)))
        return false;
    if (n->kind == IR_opaque || n->kind == IR_placeholder || n->kind == IR_output || ir_node_writes(n))
        return true;
    return n->kind == IR_call && ((op_row_of((op_id)n->op)->flags & (OPF_RAND | OPF_CHECK)) || ir_decides(n));
}

static void note_storage(map *m, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (t)
        map_puti(m, (uintptr_t)t->storage, t->storage);
    if (n->val.kind == VAL_tensors)
        for (int i = 0; i < n->val.n; i++)
            if (n->val.ts[i])
                map_puti(m, (uintptr_t)n->val.ts[i]->storage, n->val.ts[i]->storage);
}
static void note_operand(void *m, ir_node *n) { note_storage(m, n); }

static bool any_in(const map *m, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (t)
        return map_geti(m, (uintptr_t)t->storage) != NULL;
    for (int i = 0; n->val.kind == VAL_tensors && i < n->val.n; i++)
        if (n->val.ts[i] && map_geti(m, (uintptr_t)n->val.ts[i]->storage))
            return true;
    return false;
}
/* A view and what it looks at, where their types do not say so: after writes became values a view keeps the storage of the tensor
 * that the program wrote, and its operand has another one. */
static void note_viewed(map *m, const ir_node *n)
{
    const ir_node *view = n->kind == IR_getitem ? n->arg[0].node : n;
    if (!m->n || view->kind != IR_call || !(op_row_of((op_id)view->op)->flags & OPF_VIEW) || !any_in(m, n))
        return;
    if (view->arg[0].kind == VAL_node)
        note_storage(m, view->arg[0].node);
}

void escape_init(escape *e, ir_graph *g)
{
    memset(e, 0, sizeof *e);
    IR_EACH (n, g) {
        if (n->kind == IR_opaque && (!nested_effects(n) || custom_is_pure(n->target)))
            continue;
        if (n->kind == IR_opaque) {
            e->opaque = true;
            ir_each_operand(n, note_operand, &e->written); /* it may write or keep what it is given */
        } else if (n->kind == IR_output)
            ir_each_operand(n, note_operand, &e->returned);
        else if (ir_node_writes(n))
            for (int i = 0; i < n->narg; i++)
                if (n->arg[i].kind == VAL_node &&
                    (i == 0 || op_row_of((op_id)n->op)->schema.param[i].mutated))
                    note_storage(&e->written, n->arg[i].node);
    }
    for (const ir_node *n = g->last; n; n = n->prev) {
        note_viewed(&e->written, n);
        note_viewed(&e->returned, n);
    }
}

void escape_free(escape *e)
{
    map_free(&e->written);
    map_free(&e->returned);
}

bool escape_written(const escape *e, const ir_node *n) { return any_in(&e->written, n); }
bool escape_returned(const escape *e, const ir_node *n) { return any_in(&e->returned, n); }
