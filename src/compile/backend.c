/* backend.c - the list of backends. */
#include "compile/backend.h"
#include <pthread.h>

#define BACKEND(name) extern const backend backend_##name;
#include "compile/backends.def"
static const backend *const builtin[] = {
#define BACKEND(name) &backend_##name,
#include "compile/backends.def"
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(const backend *) added;

void backend_register(const backend *b)
{
    size_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < added.n && strcmp(added.at[i]->name, b->name))
        i++;
    if (i < added.n)
        added.at[i] = b;
    else
        vec_push(&added, b);
    pthread_mutex_unlock(&lock);
}

const backend *backend_at(int i)
{
    const backend *b = NULL;
    if (i < (int)COUNT(builtin))
        return builtin[i];
    pthread_mutex_lock(&lock);
    if ((size_t)i - COUNT(builtin) < added.n)
        b = added.at[(size_t)i - COUNT(builtin)];
    pthread_mutex_unlock(&lock);
    return b;
}

const backend *backend_find(const char *name, tp_err *err)
{
    const backend *b, *hit = NULL;
    for (int i = 0; (b = backend_at(i)); i++)
        if (!strcmp(b->name, name))
            hit = b; /* a registered one hides a built-in one */
    if (hit)
        return hit;
    strbuf names = { 0 };
    for (int i = 0; (b = backend_at(i)); i++)
        strbuf_addf(&names, "%s%s", i ? ", " : "", b->name);
    err_set(err, ERR_value, "there is no backend '%.60s'; there are: %s", name, strbuf_str(&names));
    strbuf_free(&names);
    return NULL;
}

run_program *backend_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    if (!(c->verify ? ir_verify : ir_verify_changed)(g, c->err))
        return NULL;
    run_program *p = b->compile(b, c, g, example);
    if (!p)
        err_note(c->err, "in backend '%s'", b->name);
    return p;
}

bool backend_mark_inputs(ir_graph *g, const tp_val *example, tp_err *err)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        tp_tensor *t = ir_type(g->inputs.at[i]);
        if (t && example[i].kind == VAL_tensor && dtype_has_grad((dtype)t->dt) &&
            grad_requires_grad(example[i].t) && !grad_set_requires_grad(op_ctx_cur(), t, true, err))
            return false;
    }
    return true;
}
