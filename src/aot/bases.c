/* bases.c - inputs that share memory which the graph writes.
 * A write to one shows in the others. So they become views of one more input, the memory from the first element of any
 * of them to the last; writes to views of one storage are what functional.c is there for. */
#include "aot/trace.h"
#include "ops/custom.h"
#include <stdio.h>

/* Is what operand i of n shows written? */
static bool writes(const ir_node *n, int i)
{
    if (n->kind == IR_opaque) {
        const op_custom *o = custom_find(n->target, NULL);
        return o && i < 32 && (o->mutated >> i & 1);
    }
    return n->kind == IR_call && (op_row_of((op_id)n->op)->schema.param[i].mutated ||
                                  (i == 0 && ir_node_writes(n)) || n->variant == OPV_out);
}

/* Storage of inputs -> how many look at it, and one more when it is written. */
static map shared_of(const ir_graph *g, bool *any)
{
    map at = { 0 };
    *any = false;
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *x = ir_type(g->inputs.at[i]);
        if (x && x->storage)
            map_puti(&at, (uintptr_t)x->storage,
                     (void *)((uintptr_t)map_geti(&at, (uintptr_t)x->storage) + 2));
    }
    IR_EACH (n, g) {
        for (int i = 0; i < n->narg; i++) {
            const tp_tensor *x = n->arg[i].kind == VAL_node && writes(n, i) ? ir_type(n->arg[i].node) : NULL;
            uintptr_t k = x ? (uintptr_t)map_geti(&at, (uintptr_t)x->storage) : 0;
            if (k) {
                map_puti(&at, (uintptr_t)x->storage, (void *)(k | 1));
                *any |= (k | 1) > 3;
            }
        }
    }
    return at;
}

bool aot_writes_shared(const ir_graph *g)
{
    bool any;
    map at = shared_of(g, &any);
    map_free(&at);
    return any;
}

bool *aot_written_inputs(const ir_graph *g)
{
    bool any;
    map at = shared_of(g, &any);
    bool *written = mem_zalloc(g->inputs.n + 1);
    any = false;
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *x = ir_type(g->inputs.at[i]);
        written[i] = x && x->storage && ((uintptr_t)map_geti(&at, (uintptr_t)x->storage) & 1);
        any |= written[i];
    }
    map_free(&at);
    if (any)
        return written;
    free(written);
    return NULL;
}

/* Composites (reshape, flatten) give a view where that is possible: their types say whether they did. */
static bool shares_first(const ir_node *n)
{
    const tp_tensor *x = n->val.kind == VAL_tensors && n->val.n ? n->val.ts[0] : ir_type(n),
                    *of = n->narg && n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    return x && of && x->storage && x->storage == of->storage;
}

/* The input whose value, or a view of it, n is; NULL: it is made here. */
static const ir_node *input_of(const ir_node *n)
{
    while (n->kind != IR_placeholder) {
        bool same = n->kind == IR_getitem ||
                    (n->kind == IR_call &&
                     (ir_node_writes(n) || op_row_of((op_id)n->op)->flags & OPF_VIEW || shares_first(n)));
        if (!same || n->narg < 1 || n->arg[0].kind != VAL_node)
            return NULL;
        n = n->arg[0].node;
    }
    return n;
}

bool *aot_writes_through(const ir_graph *g)
{
    bool *through = mem_zalloc(g->inputs.n + 1);
    IR_EACH (n, g) {
        for (int i = 0; i < n->narg; i++) {
            const ir_node *p = n->arg[i].kind == VAL_node && writes(n, i) ? input_of(n->arg[i].node) : NULL;
            for (size_t k = 0; p && k < g->inputs.n; k++)
                through[k] |= g->inputs.at[k] == p;
        }
    }
    return through;
}

static bool fixed(const tp_tensor *t)
{
    return sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim) && !sym_is_expr(t->offset);
}

bool bases_find(trace *t, const ir_graph *g, bool grads, tp_err *err)
{
    bool any, ok = true;
    map at = shared_of(g, &any);
    int n = (int)g->inputs.n;
    if (!any)
        goto done;
    if (grads) {
        ok = err_set(
            err, ERR_notimpl,
            "it writes to an input that shares its memory with another input, and gradients are wanted");
        goto done;
    }
    t->base = mem_zalloc(sizeof *t->base * (size_t)n);
    t->base_of = mem_zalloc(sizeof *t->base_of * (size_t)n);
    for (int i = 0; i < n && ok; i++) {
        const tp_tensor *x = ir_type(g->inputs.at[i]);
        uintptr_t k = x && x->storage ? (uintptr_t)map_geti(&at, (uintptr_t)x->storage) : 0;
        if (!(k & 1) || k < 4)
            continue;
        int b = 0;
        symint bytes = 0;
        while (b < t->nbase && ir_type(g->inputs.at[t->base[b].of])->storage != x->storage)
            b++;
        if (!fixed(x) || (b < t->nbase && ir_type(g->inputs.at[t->base[b].of])->dt != x->dt)) {
            ok = err_set(err, ERR_notimpl,
                         "it writes to an input that shares its memory with another input, and %s",
                         fixed(x) ? "they have different types" : "their sizes are symbolic");
            break;
        }
        shape_storage_bytes((dtype)x->dt, x->ndim, x->size, x->stride, x->offset, &bytes, NULL);
        int64_t end = MAX(bytes / (int64_t)dtype_size((dtype)x->dt), x->offset);
        if (x->numel == 0) /* it reaches no memory, wherever it begins */
            end = x->offset;
        if (b == t->nbase) {
            t->base[t->nbase++] = (aot_base){ i, x->offset, end - x->offset };
        } else if (t->base[b].len == 0 && x->numel != 0) {
            t->base[b].lo = x->offset;
            t->base[b].len = end - x->offset;
        } else if (x->numel != 0) {
            aot_base *o = &t->base[b];
            int64_t hi = MAX(o->lo + o->len, end);
            o->lo = MIN(o->lo, x->offset);
            o->len = hi - o->lo;
        }
        t->base_of[i] = b + 1;
    }
done:
    map_free(&at);
    return ok;
}

bool bases_add(trace *t, const ir_graph *g, tp_err *err)
{
    for (int b = 0; b < t->nbase; b++) {
        const tp_tensor *x = ir_type(g->inputs.at[t->base[b].of]);
        char name[32];
        snprintf(name, sizeof name, "bases_%d", b + 1);
        tp_tensor *fake = tensor_new_fake((dtype)x->dt, 1, (symint[]){ t->base[b].len }, NULL,
                                          tensor_device(x));
        ir_node *m = ir_add_placeholder(t->g, name, name, fake);
        tensor_unref(fake);
        t->in[t->nin + b] = ir_proxy(&t->rec, m);
        fn_root(t->fn, t->in[t->nin + b]);
    }
    for (int i = 0; i < t->nin && t->nbase; i++) {
        if (!t->base_of[i])
            continue;
        const tp_tensor *x = ir_type(g->inputs.at[i]);
        int b = t->base_of[i] - 1;
        tp_val arg[4] = { vT(t->in[t->nin + b]), vIs(x->size, x->ndim), vIs(x->stride, x->ndim),
                          vI(x->numel == 0 ? 0 : x->offset - t->base[b].lo) },
               out = vNone;
        tensor_unref(t->in[i]);
        t->in[i] = NULL;
        if (!ir_record(&t->cx, &t->rec, OP_as_strided, OPV_fn, arg, &out, err))
            return false;
        t->in[i] = out.t;
    }
    t->nin += t->nbase;
    return true;
}
