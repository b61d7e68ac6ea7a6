/* walk.c - questions about a tape without running it, and steps that stand for one that has run. */
#include "grad/tape.h"

const char grad_again[] =
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
    "if "
    "you need to access saved tensors after calling backward.";

/* Every step behind these roots, each once. stop: ends the walk by returning true. */
static bool walk(tp_tensor *const *root, int nroot, bool (*stop)(void *data, grad_node *n), void *data)
{
    map seen = { 0 };
    VEC(grad_node *) todo = { 0 }, held = { 0 };
    bool found = false;
    for (int i = 0; i < nroot; i++) {
        grad_edge e = grad_edge_of(root[i], NULL);
        vec_push(&held, e.node); /* a leaf's step lives only as long as somebody holds it */
        if (e.node && !map_puti(&seen, (uintptr_t)e.node, e.node))
            vec_push(&todo, e.node);
    }
    while (todo.n && !found) {
        grad_node *n = vec_pop(&todo);
        found = stop(data, n);
        for (int i = 0; i < n->nedge; i++) {
            grad_node *to = n->edge[i].node;
            if (to && !map_puti(&seen, (uintptr_t)to, to))
                vec_push(&todo, to);
        }
    }
    while (held.n)
        grad_node_unref(vec_pop(&held));
    vec_free(&held);
    vec_free(&todo);
    map_free(&seen);
    return found;
}

typedef struct leaves {
    VEC(tp_tensor *) list;
} leaves;

static bool is_leaf(void *data, grad_node *n)
{
    if (n->leaf)
        vec_push(&((leaves *)data)->list, grad_acc_tensor(n));
    return false;
}

tp_tensor **grad_leaves(tp_tensor *const *root, int nroot, int *n)
{
    leaves l = { { 0 } };
    walk(root, nroot, is_leaf, &l);
    *n = (int)l.list.n;
    return l.list.at;
}

static bool has_run(void *data, grad_node *n) { return n->released && n->saves; }
bool grad_is_spent(tp_tensor *t) { return grad_requires_grad(t) && walk(&t, 1, has_run, NULL); }

bool grad_is_bare_leaf(const tp_tensor *t)
{
    const grad_meta *m = grad_meta_of(t);
    if (!m)
        return !t->base || !grad_requires_grad(t);
    return !m->fn && !(m->hooks && m->hooks->list.n) && !(m->post && m->post->list.n) &&
           !(m->acc && (m->acc->before || m->acc->after));
}

bool grad_is_unwatched(const tp_tensor *t)
{
    const grad_meta *m = grad_meta_of(t);
    return !m || (!(m->hooks && m->hooks->list.n) && !(m->fn && (m->fn->before || m->fn->after)));
}

/* ---- steps that have run ---- */
typedef struct spent {
    grad_node n;
    char name[];
} spent;
static const char *spent_name(const grad_node *n) { return ((const spent *)n)->name; }
static bool spent_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                        tp_err *err)
{
    return err_set(err, ERR_runtime, "%s", grad_again);
}
static const grad_vt spent_vt = { spent_name, spent_apply, NULL, NULL };

bool grad_set_spent(tp_tensor *t, const char *name, tp_err *err)
{
    grad_node *n = grad_node_new(&spent_vt, sizeof(spent) + strlen(name) + 1, 1, 0);
    n->released = n->saves = true;
    strcpy(((spent *)n)->name, name);
    bool ok = grad_set_history(t, n, 0, err);
    grad_node_unref(n);
    return ok;
}

/* ---- writes that have no derivative ---- */
static const char *refusal_name(const grad_node *n) { return "NotImplemented"; }
static bool refusal_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                          tp_err *err)
{
    return err_set(err, ERR_runtime, "derivative for %s is not implemented", ((const spent *)n)->name);
}
static const grad_vt refusal_vt = { refusal_name, refusal_apply, NULL, NULL };

bool grad_set_refusal(tp_tensor *t, const char *name, tp_err *err)
{
    grad_node *n = grad_node_new(&refusal_vt, sizeof(spent) + strlen(name) + 1, 1, 1);
    strcpy(((spent *)n)->name, name);
    grad_node_set_edge(n, 0, t); /* on the way to what was asked for */
    bool ok = grad_set_history(t, n, 0, err);
    grad_node_unref(n);
    return ok;
}
