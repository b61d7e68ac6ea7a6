/* interpreter.c - the list of backends, and the first of them: the interpreter. */
#include "compile/backend.h"
#include "aot/aot.h"
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

run_program *backend_compile(tp_comp *c, const char *name, const ir_graph *g)
{
    const backend *b = backend_find(name, c->err);
    if (!b || !(c->verify ? ir_verify : ir_verify_changed)(g, c->err))
        return NULL;
    run_program *p = b->compile(b, c, g);
    if (!p)
        err_note(c->err, "in backend '%s'", b->name);
    return p;
}

bool run_program_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                      tp_err *err)
{
    return p->call(p, cx, in, nin, out, nout, err);
}

bool run_program_take(run_program *p, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    bool ok = p->take ? p->take(p, cx, in, nin, out, nout, err) : p->call(p, cx, in, nin, out, nout, err);
    for (int i = 0; i < nin; i++)
        val_clear(&in[i]);
    return ok;
}

void run_program_free(run_program *p)
{
    if (p)
        p->free(p);
}

bool run_core_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    if (aot_makes_leaf(n))
        return ag_set_requires_grad(op_ctx_cur(), arg[0].t, arg[1].b, err);
    return ir_run_custom(n, arg, out, err);
}
run_opaque_fn *run_opaque = run_core_opaque;
void run_set_opaque(run_opaque_fn *fn) { run_opaque = fn; }

/* ---- eager ---- */
typedef struct eager {
    run_program base;
    ir_graph *g; /* a copy */
    ir_prog *prog;
} eager;

static bool eager_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                       tp_err *err)
{
    ir_hook h = { .opaque = run_opaque };
    return ir_prog_run(((eager *)p)->prog, cx, in, nin, out, nout, &h, err);
}

static void eager_free(run_program *p)
{
    eager *e = (eager *)p;
    ir_prog_free(e->prog);
    ir_graph_free(e->g);
    free(e);
}

static run_program *eager_compile(const backend *b, tp_comp *c, const ir_graph *g)
{
    eager *e = mem_zalloc(sizeof *e);
    e->base = (run_program){ b, eager_call, eager_free };
    e->g = ir_graph_copy(g);
    e->prog = ir_prog_new(e->g);
    return &e->base;
}

const backend backend_eager = { "eager", "runs the graph one operator at a time", eager_compile, NULL, NULL };
