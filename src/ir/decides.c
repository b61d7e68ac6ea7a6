/* decides.c - values that only the running program knows: which node decides which symbol. */
#include "ir/graph.h"
#include "sym/env.h"

enum { MANY = 16 };
typedef struct found {
    symint at[MANY];
    int n;
} found;

static void note(found *f, symint v)
{
    if (!sym_is_symbol(v) || !sym_is_unbacked(v) || f->n == MANY)
        return;
    int i = f->n;
    for (int k = 0; k < f->n; k++)
        if (f->at[k] == v)
            return;
    for (; i && sym_index(f->at[i - 1]) > sym_index(v); i--)
        f->at[i] = f->at[i - 1];
    f->at[i] = v;
    f->n++;
}

static void of_tensor(found *f, const tp_tensor *t)
{
    for (int d = 0; t && d < t->ndim; d++) {
        note(f, t->size[d]);
        note(f, t->stride[d]);
    }
    if (t)
        note(f, t->offset);
}

static void of_value(found *f, const tp_val *v)
{
    if (v->kind == VAL_int)
        note(f, v->i);
    else if (v->kind == VAL_tensor)
        of_tensor(f, v->t);
    for (int i = 0; v->kind == VAL_tensors && i < v->n; i++)
        of_tensor(f, v->ts[i]);
}

int ir_decided_by(const tp_val *type, const tp_val *arg, int narg, symint *out, int cap)
{
    found mine = { .n = 0 }, theirs = { .n = 0 };
    int k = 0;
    of_value(&mine, type);
    if (!mine.n)
        return 0;
    for (int i = 0; i < narg; i++) {
        const tp_val *a = &arg[i];
        if (a->kind == VAL_node)
            of_value(&theirs, &a->node->val);
        else if (a->kind == VAL_int) /* view([u0, 2]): the size is an argument */
            note(&theirs, a->i);
        for (int j = 0; a->kind == VAL_ints && j < a->n; j++)
            note(&theirs, a->ints[j]);
        for (int j = 0; a->kind == VAL_nodes && j < a->n; j++)
            if (a->nodes[j])
                of_value(&theirs, &a->nodes[j]->val);
    }
    for (int i = 0; i < mine.n && k < cap; i++) {
        bool known = false;
        for (int j = 0; j < theirs.n; j++)
            known |= theirs.at[j] == mine.at[i];
        if (!known)
            out[k++] = mine.at[i];
    }
    return k;
}

int ir_decided(const ir_node *n, symint *out, int cap)
{
    const sym_env *env = n->graph->env;
    if (!env || !sym_env_n_symbols(env) || (n->kind != IR_call && n->kind != IR_opaque))
        return 0;
    return ir_decided_by(&n->val, n->arg, n->narg, out, cap);
}

bool ir_decides(const ir_node *n)
{
    symint one;
    return ir_decided(n, &one, 1) > 0;
}

bool ir_has_unbacked(const ir_graph *g)
{
    if (!g->env || !sym_env_n_symbols(g->env))
        return false;
    IR_EACH (n, g) {
        found f = { .n = 0 };
        if (n->kind == IR_placeholder)
            of_value(&f, &n->val);
        if (f.n || ir_decides(n))
            return true;
    }
    return false;
}
