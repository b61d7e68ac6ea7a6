/* function.c - derivatives of a program's own in the autograd stage: backward runs their graph under the recorder. */
#include "aot/trace.h"
#include "ir/hop.h"

typedef struct function_step {
    grad_node n;
    trace *t;
    const ir_node *src; /* in the captured graph */
    ir_node *
        *kept; /* what the nested graph takes beside gradients; nodes are values, which stay as they are */
    int nkept;
} function_step;

static const char *step_name(const grad_node *n) { return "FunctionBackward"; }
static void step_free(grad_node *n) { free(((function_step *)n)->kept); }

static tp_val nested_input(aot_replay *r, ir_node *n, int i)
{
    return r->args[i] ? vT(tensor_ref(r->args[i])) : n->val;
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    function_step *s = (function_step *)n;
    trace *t = s->t;
    ir_graph *g = s->src->arg[0].graph;
    int nin = n->nin + s->nkept;
    tp_tensor **in = mem_zalloc(sizeof *in * (size_t)MAX(nin, 1));
    for (int i = 0; i < nin; i++)
        in[i] = i < n->nin ? tensor_ref(dy[i]) : ir_proxy(&t->rec, s->kept[i - n->nin]);
    aot_replay outer = t->r; /* its calls find their operands in t->r */
    t->r = (aot_replay){ .cx = b->cx,
                         .rec = outer.rec,
                         .input = nested_input,
                         .call = outer.call,
                         .opaque = outer.opaque,
                         .node = outer.node,
                         .graph = outer.graph,
                         .data = outer.data,
                         .args = in };
    bool ok = aot_replay_run(&t->r, g, err);
    for (int i = 0; ok && i < n->nedge; i++) {
        const tp_val *v = &g->output->arg[i];
        if (need[i] && v->kind == VAL_node && t->r.val[v->node->id].kind == VAL_tensor)
            dx[i] = tensor_ref(t->r.val[v->node->id].t);
    }
    aot_replay_end(&t->r);
    t->r = outer;
    for (int i = 0; i < nin; i++)
        tensor_unref(in[i]);
    free(in);
    return ok;
}

static const grad_vt step_vt = { step_name, step_apply, NULL, step_free };

bool trace_function(trace *t, const ir_node *n, tp_err *err)
{
    tp_val in = aot_replay_operand(&t->r, &n->arg[1]), out = aot_replay_operand(&t->r, &n->arg[2]),
           kept = aot_replay_operand(&t->r, &n->arg[3]);
    int nin = in.kind == VAL_tensors ? in.n : 0, nout = out.kind == VAL_tensors ? out.n : 0,
        nkept = kept.kind == VAL_tensors ? kept.n : 0;
    bool any = false, ok = true;
    if (!ir_hop_function_fits(n, (tp_val[]){ vNone, in, out, kept }, err))
        return false;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(nout, 1));
    for (int i = 0; i < nin; i++)
        any |= grad_requires_grad(in.ts[i]);
    if (!any || !grad_records(&t->cx)) {
        for (int i = 0; i < nout; i++)
            ts[i] = tensor_ref(out.ts[i]);
        t->r.val[n->id] = vTs(ts, nout);
        return true;
    }
    function_step *s = (function_step *)grad_node_new(&step_vt, sizeof *s, nout, nin);
    s->n.zeros = true;
    s->t = t;
    s->src = n;
    s->nkept = nkept;
    s->kept = mem_zalloc(sizeof *s->kept * (size_t)MAX(nkept, 1));
    for (int i = 0; ok && i < nkept; i++)
        ok = (s->kept[i] = fn_node(t->fn, &t->cx, kept.ts[i], err)) != NULL;
    for (int i = 0; i < nin; i++)
        grad_node_set_edge(&s->n, i, in.ts[i]);
    for (int i = 0; ok && i < nout; i++)
        ok = (ts[i] = grad_function_result(&s->n, i, out.ts[i], err)) != NULL;
    grad_node_unref(&s->n);
    t->r.val[n->id] = vTs(ts, nout);
    return ok;
}
