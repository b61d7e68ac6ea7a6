/* link.c - a derivative that is a graph, on the tape: autograd.Function as it was captured. */
#include "grad/tape.h"
#include "ir/hop.h"
#include "ops/host.h"
#include "sym/env.h"

typedef struct kept { /* what the nested graph takes beside gradients */
    tp_tensor *t;
    uint32_t version;
    int out; /* it is this result of the step: its history is given back to it when it is used; -1: no */
    void *handle;
} kept;

typedef struct link_step {
    grad_node n;
    ir_graph *g; /* owned: the step may outlive the program */
    ir_prog *prog;
    sym_env *env;
    sym_bind *bind;
    int nbind, nkept;
    kept *kept;
    grad_pack *pack; /* what is kept went through hooks: handles instead */
} link_step;

static const char *link_name(const grad_node *n) { return "FunctionBackward"; }

static void link_release(grad_node *n)
{
    link_step *s = (link_step *)n;
    for (int i = 0; i < s->nkept; i++) {
        tensor_unref(s->kept[i].t);
        if (s->kept[i].handle)
            s->pack->drop(s->pack->data, s->kept[i].handle);
        s->kept[i].t = NULL;
        s->kept[i].handle = NULL;
    }
}

static void link_free(grad_node *n)
{
    link_step *s = (link_step *)n;
    link_release(n);
    if (s->pack)
        grad_pack_unref(s->pack);
    ir_prog_free(s->prog);
    ir_graph_free(s->g);
    if (s->env)
        sym_env_unref(s->env);
    free(s->bind);
    free(s->kept);
}

static tp_tensor *keep_alias(tp_tensor *t) /* without a history: the step must not hold itself */
{
    tp_tensor *a = tensor_alias(t);
    a->node = t->node;
    a->rec = t->rec;
    return a;
}

static tp_tensor *unpack(link_step *s, int i, tp_err *err) /* counted or NULL */
{
    kept *k = &s->kept[i];
    if (k->handle)
        return s->pack->unpack(s->pack->data, k->handle, err);
    if (tensor_version(k->t) != k->version) {
        grad_changed(k->t, k->version, (grad_edge){ NULL, 0 }, err);
        return NULL;
    }
    if (k->out < 0)
        return tensor_ref(k->t);
    tp_tensor *a = keep_alias(k->t);
    grad_set_history(a, &s->n, k->out, NULL);
    return a;
}

static bool link_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    link_step *s = (link_step *)n;
    int nin = n->nin + s->nkept, nout = n->nedge;
    if (n->released && s->nkept)
        return err_set(err, ERR_runtime, "%s", grad_again);
    ir_hook h = { .call = grad_call, .opaque = host.opaque, .link = grad_link };
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + nout + 1)), *out = in + nin;
    bool ok = true;
    for (int i = 0; i < n->nin; i++)
        in[i] = vT(tensor_ref(dy[i]));
    for (int i = 0; ok && i < s->nkept; i++) {
        tp_tensor *t = unpack(s, i, err);
        in[n->nin + i] = t ? vT(t) : vNone;
        ok = t != NULL;
    }
    if (!s->prog)
        s->prog = ir_prog_new(s->g);
    ok = ok && ir_prog_run_nested(s->prog, b->cx, in, nin, out, nout, &h, s->bind, s->nbind, err);
    for (int i = 0; ok && i < nout; i++)
        if (need[i] && out[i].kind == VAL_tensor)
            dx[i] = out[i].t;
        else
            val_clear(&out[i]);
    for (int i = 0; i < nin; i++)
        val_clear(&in[i]);
    free(in);
    return ok;
}

static const grad_vt link_vt = { link_name, link_apply, link_release, link_free };

static bool keep(link_step *s, op_ctx *cx, const tp_val *others, const tp_val *outputs, tp_err *err)
{
    s->nkept = others->kind == VAL_tensors ? others->n : 0;
    s->kept = mem_zalloc(sizeof *s->kept * (size_t)MAX(s->nkept, 1));
    s->n.saves = s->nkept > 0;
    if (cx->hooks && s->nkept)
        s->pack = grad_pack_ref(cx->hooks);
    for (int i = 0; i < s->nkept; i++) {
        kept *k = &s->kept[i];
        tp_tensor *t = others->ts[i];
        k->out = -1;
        for (int o = 0; o < outputs->n; o++)
            if (outputs->ts[o] == t)
                k->out = o;
        k->version = tensor_version(t);
        if (!s->pack) {
            k->t = k->out < 0 ? tensor_ref(t) : keep_alias(t);
            continue;
        }
        tp_tensor *a = k->out < 0 ? tensor_ref(t) : keep_alias(t);
        cx->hooks = NULL;
        k->handle = s->pack->pack(s->pack->data, a, err);
        cx->hooks = s->pack;
        tensor_unref(a);
        if (!k->handle)
            return false;
    }
    return true;
}

tp_tensor *grad_function_result(grad_node *n, int nr, tp_tensor *t, tp_err *err)
{
    tp_tensor *r;
    if (grad_requires_grad(t)) {
        bool view = t->base && !t->rec; /* in graphs it is a value of its own, not made of the base again */
        r = view ? tensor_view(t, t->ndim, t->size, t->stride, t->offset) : keep_alias(t);
        r->node = t->node;
        r->rec = t->rec;
        r->spare |= view ? AGF_custom_view : 0;
    } else {
        r = tensor_ref(t);
        if (t->base) /* a view of an input: its history is the function's, not its base's */
            t->spare = (uint8_t)((t->spare & ~AGF_nograd_view) | AGF_custom_view);
    }
    grad_node_set_shape(n, nr, r);
    if (grad_set_history(r, n, nr, err))
        return r;
    tensor_unref(r);
    return NULL;
}

bool grad_link(op_ctx *cx, const ir_node *n, const tp_val *arg, const sym_bind *bind, int nbind, tp_val *out,
               tp_err *err)
{
    const tp_val *in = &arg[1], *res = &arg[2];
    int nin = in->kind == VAL_tensors ? in->n : 0, nres = res->kind == VAL_tensors ? res->n : 0;
    bool any = false;
    if (!ir_hop_function_fits(n, arg, err))
        return false;
    for (int i = 0; i < nin; i++)
        any |= grad_requires_grad(in->ts[i]);
    if (!any || !grad_records(cx))
        return ir_hop_run(NULL, n, arg, out, err);
    link_step *s = (link_step *)grad_node_new(&link_vt, sizeof *s, nres, nin);
    s->n.zeros = true;
    s->g = ir_graph_copy(n->arg[0].graph);
    if ((s->env = s->g->env))
        sym_env_ref(s->env);
    s->bind = mem_alloc(sizeof *s->bind * (size_t)MAX(nbind, 1));
    if (nbind)
        memcpy(s->bind, bind, sizeof *bind * (size_t)nbind);
    s->nbind = nbind;
    for (int i = 0; i < nin; i++)
        grad_node_set_edge(&s->n, i, in->ts[i]);
    bool ok = keep(s, cx, &arg[3], res, err);
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(nres, 1));
    for (int i = 0; ok && i < nres; i++)
        ok = (ts[i] = grad_function_result(&s->n, i, res->ts[i], err)) != NULL;
    grad_node_unref(&s->n);
    *out = vTs(ts, nres);
    if (!ok)
        val_clear(out);
    return ok;
}
