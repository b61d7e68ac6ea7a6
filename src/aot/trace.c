/* trace.c - the captured graph is run once on fake tensors through the tape; what that does is the joint graph. */
#include "aot/trace.h"
#include "base/crumb.h"
#include "base/envvars.h"
#include "ir/hop.h"
#include "ops/custom.h"
#include "ops/host.h"
#include "base/clock.h"
#include "ir/planted.h"
#include "events/metrics.h"
#include "sym/env.h"
#include <stdio.h>

void aot_unit_free(aot_unit *u)
{
    if (!u)
        return;
    for (int i = 0; i < u->nout; i++)
        tensor_unref(u->out[i].type);
    for (int i = 0; i < u->nplace; i++)
        tensor_unref(u->place[i].at.type);
    free(u->place);
    ir_graph_free(u->joint);
    ir_graph_free(u->fw);
    ir_graph_free(u->bw);
    free(u->out);
    free(u->mut);
    free(u->tangent);
    free(u->grad);
    free(u->flag);
    free(u->base);
    free(u);
}

bool aot_inlines(const ir_node *n)
{
    return host.inlined && n->kind == IR_opaque && n->opaque && n->meta &&
           strstr(n->meta, "\"inline\": true");
}

bool aot_makes_leaf(const ir_node *n)
{
    return n->kind == IR_opaque && n->narg == 2 && n->arg[0].kind == VAL_node && n->arg[1].kind == VAL_bool &&
           n->target && strstr(n->target, "_set_requires_grad");
}

bool aot_makes_leaves(const ir_graph *g)
{
    IR_EACH (n, g) {
        if (aot_makes_leaf(n))
            return true;
    }
    return false;
}

/* Faults planted to test the debugging tools (base/fault.h). The call made the nodes from number `since` on. */
static bool spoil(trace *t, tp_tensor **x, double by, bool in_place, tp_err *err)
{
    tp_val arg[3] = { vT(*x), by == 1 ? vI(1) : vF(by), vI(1) }, sum = vNone;
    if ((*x)->dt == DT_bool) {
        if (!grad_call(&t->cx, OP_logical_not, in_place ? OPV_inplace : OPV_fn, arg, &sum, err))
            return false;
    } else if (!grad_call(&t->cx, OP_add_Tensor, in_place ? OPV_inplace : OPV_fn, arg, &sum, err))
        return false;
    tensor_unref(*x);
    *x = sum.t;
    return true;
}

static bool plant(trace *t, const ir_node *n, int since, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of((op_id)n->op);
    fault_kind f = fault_at("aot", row->name);
    tp_tensor **x = out[0].kind == VAL_tensor                ? &out[0].t
                    : out[0].kind == VAL_tensors && out[0].n ? &out[0].ts[0]
                                                             : NULL;
    if (x && *x && fault_later(row->name))
        ir_pass_on(fn_node(t->fn, &t->cx, *x, err), since, row->name, NULL);
    if (f == FAULT_compile_error)
        return err_set(err, ERR_compiler, "planted fault: the autograd stage cannot take '%s'", row->name);
    if (f == FAULT_runtime_error) { /* the graph fails when it runs */
        strbuf b = { 0 };
        strbuf_addf(&b, "planted fault: the autograd stage made a graph that fails at '%s'", row->name);
        tp_val arg[3] = { vI(0),
                          { .kind = VAL_str, .s = arena_strdup(&t->g->mem, strbuf_str(&b)) },
                          vI(ERR_runtime) },
               none = vNone;
        strbuf_free(&b);
        return grad_call(&t->cx, OP__check_scalar, OPV_fn, arg, &none, err);
    }
    if (fault_is_sudden(f))
        return fault_strike(f, row->name, err);
    if (f == FAULT_flaky && fault_coin())
        f = FAULT_accuracy;
    if ((f == FAULT_accuracy || (f == FAULT_nan && x && *x && dtype_has_grad((dtype)(*x)->dt))) && x && *x)
        return spoil(t, x, f == FAULT_nan ? __builtin_nan("") : 1,
                     n->variant == OPV_inplace || row->flags & OPF_MUT, err);
    return true;
}

/* The inputs of the captured graph; the memory that several of them share comes after them. */
static int own_inputs(const trace *t) { return t->nin - t->nbase; }

static tp_val replay_input(aot_replay *r, ir_node *n, int i)
{
    trace *t = r->data;
    return t->in[i] ? vT(tensor_ref(t->in[i])) : n->val; /* a number: symbols stay symbols */
}

static bool replay_call(aot_replay *r, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    int since = ((trace *)r->data)->g->next_id;
    return grad_call(r->cx, (op_id)n->op, (op_variant)n->variant, arg, out, err) &&
           (TP_LIKELY(fault_state == 0) || plant(r->data, n, since, out, err));
}

static int replay_opaque(aot_replay *r, const ir_node *n, tp_err *err)
{
    trace *t = r->data;
    if (ir_hop(n))
        return (ir_hop(n) == HOP_function ? trace_function : trace_hop)(t, n, err) ? 1 : -1;
    if (custom_find(n->target, NULL) && !n->opaque)
        return trace_custom(t, n, err) ? 1 : -1;
    if (aot_inlines(n)) {
        tp_val *arg = ARENA_ARR(&r->scratch, tp_val, MAX(n->narg, 1));
        for (int i = 0; i < n->narg; i++)
            arg[i] = aot_replay_operand(r, &n->arg[i]);
        return host.inlined(&t->cx, n, arg, &r->val[n->id], err) ? 1 : -1;
    }
    if (aot_makes_leaf(n)) {
        tp_val x = aot_replay_operand(r, &n->arg[0]);
        for (int i = 0; i < own_inputs(t); i++)
            t->flagged[i] |= t->in[i] == x.t;
        return grad_set_requires_grad(&t->cx, x.t, n->arg[1].b, err) ? 1 : -1;
    }
    if (!ir_switches_grad(n))
        return 0;
    t->cx.grad_mode = n->arg[0].b && t->g->grad_mode; /* obeyed here; the joint graph holds what came of it */
    return 1;
}

static ir_node *replay_of(aot_replay *r, tp_tensor *x, tp_err *err)
{
    return fn_node(((trace *)r->data)->fn, r->cx, x, err);
}

static bool begin(trace *t, tp_comp *c, const ir_graph *g, const bool *needs_grad, bool grad_mode,
                  tp_err *err)
{
    t->c = c;
    t->cx = *(c->cx ? c->cx : op_ctx_cur());
    t->cx.grad_mode = grad_mode;
    t->cx.inference_mode = false;
    t->cx.env = g->env;
    t->cx.hooks = NULL;
    t->g = ir_graph_new(g->name);
    t->g->env = g->env;
    t->g->grad_mode = grad_mode;
    t->rec = (ir_rec){ .g = t->g, .flags = REC_composites, .loc = aot_replay_where, .loc_data = &t->r };
    t->fn = fn_new(&t->rec);
    t->cx.rec = &t->rec;
    t->r = (aot_replay){ .cx = &t->cx,
                         .rec = &t->rec,
                         .input = replay_input,
                         .call = replay_call,
                         .opaque = replay_opaque,
                         .node = replay_of,
                         .data = t };
    t->nin = (int)g->inputs.n;
    t->in = mem_zalloc(sizeof *t->in * (size_t)MAX(t->nin + t->nbase, 1));
    for (int i = 0; i < t->nin; i++) {
        const ir_node *p = g->inputs.at[i];
        char name[32];
        snprintf(name, sizeof name, "primals_%d", i + 1);
        if (p->val.kind != VAL_tensor) {
            ir_add_placeholder_val(t->g, name, p->target, p->val);
            continue;
        }
        tp_tensor *fake = tensor_fake_of(p->val.t);
        ir_node *m = ir_add_placeholder(t->g, name, p->target, fake);
        tensor_unref(fake);
        t->in[i] = ir_proxy(&t->rec, m);
        if (!(c->cx ? c->cx : op_ctx_cur())->inference_mode)
            t->in[i]->flags |= p->val.t->flags & TF_inference; /* the tape may not keep it */
        if (needs_grad && needs_grad[i] && dtype_has_grad((dtype)t->in[i]->dt)) {
            if (!grad_set_requires_grad(&t->cx, t->in[i], true, err))
                return false;
            t->in[i]->spare |=
                AGF_computed; /* a write that a leaf refuses is refused at the call (run/step.c) */
        }
    }
    return bases_add(t, g, err);
}

static void end(trace *t)
{
    aot_replay_end(&t->r);
    for (int i = 0; i < t->nin; i++)
        tensor_unref(t->in[i]);
    free(t->in);
    free(t->flagged);
    free(t->base_of);
    free(t->base);
    fn_free(t->fn);
}

/* Results of the joint graph being collected. */
typedef struct results {
    VEC(tp_val) list;
} results;

static int add_result(results *r, ir_node *n, bool once)
{
    if (once)
        for (size_t i = 0; i < r->list.n; i++)
            if (r->list.at[i].kind == VAL_node && r->list.at[i].node == n)
                return (int)i;
    vec_push(&r->list, ((tp_val){ .kind = VAL_node, .node = n }));
    return (int)r->list.n - 1;
}

/* The leaf at which gradients of input i end. */
static tp_tensor *end_of(const trace *t, int i)
{
    tp_tensor *before = t->in[i] ? grad_before_write(t->in[i]) : NULL;
    return before ? before : t->in[i];
}

static int input_of_storage(const trace *t, const tp_tensor *x)
{
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] && t->in[i]->storage == x->storage)
            return i;
    return -1;
}

static bool same_view(const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt && a->ndim == b->ndim && a->offset == b->offset &&
           !memcmp(a->size, b->size, sizeof(symint) * a->ndim) &&
           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim);
}

static bool expanded(const tp_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d] == 0 && (sym_is_expr(t->size[d]) || t->size[d] > 1))
            return true;
    return false;
}

/* Does x lie in memory otherwise than a dense value; of symbolic strides, than the value `now`, which is as near as a value
 * comes? */
static bool has_gaps(const tp_tensor *x, const tp_tensor *now)
{
    if (sym_all_const(x->size, x->ndim) && sym_all_const(x->stride, x->ndim))
        return !tensor_is_dense(x);
    for (int d = 0; d < x->ndim; d++)
        if (x->size[d] != 1 && x->stride[d] != now->stride[d] &&
            !sym_known(SYM_eq, x->stride[d], now->stride[d]))
            return true;
    return false;
}

/* Gradients of x, which lies on the memory of an input, end at a tensor that requires_grad_() made a leaf: -1 no; the item
 * that is this leaf; g's number of items, when no item is. */
static int ends_inside(const trace *t, const ir_graph *g, tp_tensor *x)
{
    int n = 0, item = -1, nout = g->output->narg;
    tp_tensor **leaf = t->leaves ? grad_leaves(&x, 1, &n) : NULL;
    for (int i = 0; i < n && item < 0; i++) {
        bool inside = true;
        for (int k = 0; k < t->nin; k++)
            inside &= leaf[i] != end_of(t, k);
        for (item = inside ? 0 : -1; inside && item < nout; item++) {
            const tp_val *v = &g->output->arg[item];
            if (v->kind == VAL_node && t->r.val[v->node->id].kind == VAL_tensor &&
                t->r.val[v->node->id].t == leaf[i])
                break;
        }
    }
    free(leaf);
    return item;
}

/* The items that the captured graph returns, while it is found out how each is made. */
typedef struct items {
    trace *t;
    aot_unit *u;
    const ir_graph *g;
    results *res;
    tp_tensor **root; /* by result: the tensor whose gradient its tangent is */
    tp_tensor **x;    /* by item: the tensor, or NULL */
    int n;
    tp_tensor **head; /* by result: the tensor that it is, or NULL */
    map results;      /* such a tensor -> its result + 1 */
    map memory;       /* storage -> the first item on it + 1 ... */
    int *next;        /* ... by item: the next one, or n */
    map inputs;       /* storage -> the first input on it + 1 */
} items;

/* Items on the memory of x, in their order: for (int k = first_on(s, x); k < s->n; k = s->next[k]) */
static int first_on(const items *s, const tp_tensor *x)
{
    uintptr_t k = (uintptr_t)map_geti(&s->memory, (uintptr_t)x->storage);
    return k ? (int)k - 1 : s->n;
}

static void set_head(items *s, int at, tp_tensor *x)
{
    s->head[at] = x;
    if (!map_geti(&s->results, (uintptr_t)x))
        map_puti(&s->results, (uintptr_t)x, (void *)((uintptr_t)at + 1));
}

/* The tensor whose history x's follows: its base, unless x was made from a view that no_grad had cut off. */
static tp_tensor *head_of(tp_tensor *x)
{
    bool cut = (x->spare & AGF_nograd_view) && grad_requires_grad(x) && !grad_is_nograd_view(x);
    return x->base && !cut ? x->base : x;
}

static bool is_an_input(const trace *t, const tp_tensor *x)
{
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] == x)
            return true;
    return false;
}

/* The forward result that holds `head`, added when there is none; -1 on failure. */
static int value_of(items *s, tp_tensor *head, tp_err *err)
{
    uintptr_t had = (uintptr_t)map_geti(&s->results, (uintptr_t)head);
    if (had)
        return (int)had - 1;
    ir_node *n = fn_node(s->t->fn, &s->t->cx, head, err);
    if (!n)
        return -1;
    int at = add_result(s->res, n, false);
    set_head(s, at, head);
    s->root[at] = head;
    return at;
}

static void place(items *s, int value, aot_out_kind kind, int index, const tp_tensor *type)
{
    aot_place *p = &s->u->place[s->u->nplace++];
    *p = (aot_place){ value, { .kind = (uint8_t)kind, .index = index, .of = -1 } };
    p->at.type = tensor_fake_of(type);
    p->at.no_grad = kind == AOT_view && type->base && (type->spare & AGF_nograd_view);
    if (kind == AOT_view && s->t->nbase && s->t->base_of[index])
        p->at.type->offset += s->t->base[s->t->base_of[index] - 1].lo;
}

/* Items that share the memory of item i, none of the inputs', and must go on doing so for writes and gradients to come. */
static bool shares_memory(const items *s, int i)
{
    tp_tensor *x = s->x[i];
    bool written = fn_written(s->t->fn, x), need = false, single = true, multi = !written;
    for (int k = first_on(s, x); k < s->n; k = s->next[k]) {
        single &= s->x[k] == x;
        need |= grad_requires_grad(s->x[k]);
        multi &= (s->x[k]->spare & AGF_multi_view) != 0; /* in-place writes to these are refused */
    }
    return grad_is_nograd_view(x) || (!single && !multi && (need || written));
}

/* Is all that y shows part of what x shows? Only ever a question between tensors on one storage. */
static bool covers(const tp_tensor *x, const tp_tensor *y)
{
    return x->offset == 0 && x->dt == y->dt && tensor_is_dense(x) &&
           (x->numel == y->numel ||
            (!sym_is_expr(x->numel) && !sym_is_expr(y->numel) && x->numel >= y->numel));
}

/* One item of several on one storage: results hold whole histories, items are these or views of them; one result is the
 * memory and the others lie in it. */
static bool shared_item(items *s, int i, tp_err *err)
{
    trace *t = s->t;
    aot_out *a = &s->u->out[i];
    tp_tensor *x = s->x[i], *head = head_of(x), *all = fn_base(t->fn, x);
    for (int k = first_on(s, x); k < s->n; k = s->next[k]) {
        tp_tensor *y = head_of(s->x[k]);
        if (!all || (!covers(all, y) && covers(y, all)))
            all = y;
        if (all && same_view(y, all) && grad_requires_grad(y) && !grad_requires_grad(all))
            all = y;
    }
    for (size_t k = 0; k < s->res->list.n; k++) /* the one that an earlier item has found */
        if (s->head[k] && s->head[k]->storage == x->storage && covers(s->head[k], all)) {
            all = s->head[k];
            break;
        }
    int owner = value_of(s, all, err), at = owner;
    if (owner < 0)
        return false;
    const tp_tensor *now = ir_type(s->res->list.at[owner].node);
    if (!covers(all, head) || !covers(all, x) || now->offset || !same_view(now, all))
        return err_set(
            err, ERR_notimpl,
            "results share memory that was written in a form that cannot be made again; this graph runs "
            "eagerly instead");
    if (head != all) {
        int had = (int)s->res->list.n;
        at = value_of(s, head, err);
        if (at == had)
            place(s, at, AOT_result_view, owner, head);
    }
    a->kind = x == head ? AOT_value : AOT_result_view;
    a->index = at;
    if (x != head)
        a->type = tensor_fake_of(x);
    return at >= 0;
}

/* Does x, a view that was written, lie elsewhere in its memory than n, its value? */
static bool moved(const trace *t, const ir_node *n, const tp_tensor *x)
{
    const tp_tensor *now = ir_type(n);
    if (!x->base || !fn_written(t->fn, x) || x->numel == 0 || sym_is_expr(x->numel) ||
        sym_is_expr(x->offset) || !sym_all_const(x->stride, x->ndim))
        return false;
    bool other = now->offset != x->offset;
    for (int d = 0; d < x->ndim; d++)
        other |= x->size[d] > 1 && x->stride[d] != now->stride[d];
    return other;
}

/* An item on the memory of input `in` with a history that is not the input's: v = a.detach(); v -= a. */
static bool own_history(items *s, int i, int in, tp_err *err)
{
    aot_out *a = &s->u->out[i];
    tp_tensor *x = s->x[i], *head = head_of(x);
    int had = (int)s->res->list.n, at = value_of(s, head, err);
    if (at == had)
        place(s, at, AOT_view, in, head);
    a->kind = x == head ? AOT_value : AOT_result_view;
    a->index = at;
    if (x != head)
        a->type = tensor_fake_of(x);
    return at >= 0;
}

/* The item that is a leaf, made by requires_grad_() in memory of the graph's own, of which x is a view; -1: none. */
static int leaf_under(const items *s, tp_tensor *x, tp_err *err)
{
    tp_tensor *leaf = x->base && grad_requires_grad(x) ? head_of(x) : x;
    if (leaf == x || !grad_is_leaf(leaf))
        return -1;
    for (int k = first_on(s, x); k < s->n; k = s->next[k])
        if (s->x[k] == leaf) {
            ir_node *n = fn_node(s->t->fn, &s->t->cx, leaf, err);
            return n && same_view(ir_type(n), leaf) ? k : -1;
        }
    return -1;
}

static bool collect_item(items *s, int i, tp_err *err)
{
    trace *t = s->t;
    aot_unit *u = s->u;
    aot_out *a = &u->out[i];
    tp_tensor *x = s->x[i];
    int in = (int)(uintptr_t)map_geti(&s->inputs, (uintptr_t)x->storage) - 1;
    a->requires_grad = grad_requires_grad(x);
    a->of = -1;
    a->no_grad = (x->spare & AGF_nograd_view) && (!a->requires_grad || grad_is_nograd_view(x)) &&
                 (in < 0 || is_an_input(t, head_of(x))); /* and not of x.detach() */
    a->leaf = a->requires_grad && !a->no_grad && grad_is_leaf(x) && (in < 0 || x != t->in[in]);
    a->detached = a->leaf && !x->base;
    if (in >= 0 && a->requires_grad && !a->leaf)
        a->of = ends_inside(t, s->g, x);
    if (a->of >= u->nout)
        return err_set(err, ERR_notimpl,
                       "a view of a tensor is returned that requires_grad_() made a leaf on the memory of an "
                       "input, and not that tensor; this graph runs eagerly instead");
    if (in >= 0 && a->requires_grad && !a->leaf && a->of < 0 && !t->nbase && !is_an_input(t, head_of(x)))
        return own_history(s, i, in, err);
    /* Where elements of the input share memory, the place of a view does not tell which of them it shows, and so
     * not whose its gradient is. Traced on its own it would be no view: writes to it would pass the input by. */
    if (in >= 0 && a->requires_grad && expanded(t->in[in]) && !same_view(x, t->in[in]))
        return err_set(
            err, ERR_notimpl,
            "a view of an input whose elements share memory is returned, and gradients are wanted; "
            "this graph runs eagerly instead");
    if (in >= 0 && x->node) {
        for (int k = in; k < u->nin && in < u->nin; k++) /* of those that share it, the one that it is */
            in = t->in[k] == x ? k : in;
        a->kind = x == t->in[in] ? AOT_input : AOT_view; /* x.view(-1) is another tensor than x */
        a->detached |= !x->base;
        a->index = in;
        a->type = tensor_fake_of(x);
        if (t->nbase && t->base_of[in])
            a->type->offset += t->base[t->base_of[in] - 1].lo;
        return true;
    }
    if (in < 0 && !a->leaf && (a->of = leaf_under(s, x, err)) >= 0) {
        a->kind = AOT_result_view; /* of what the leaf is, which may be found later */
        a->type = tensor_fake_of(x);
        return true;
    }
    if (in < 0 && !a->leaf && shares_memory(s, i))
        return shared_item(s, i, err);
    ir_node *n = fn_node(t->fn, &t->cx, x, err);
    if (!n)
        return false;
    if (in < 0 && !a->leaf && moved(t, n, x))
        return shared_item(s, i, err);
    for (
        int k = first_on(s, x); k < i;
        k = s->next
                [k]) /* two items that share memory must go on sharing it: all of it, dense and from its start */
        if (u->out[k].kind == AOT_value && !same_view(s->x[k], x) && s->x[k]->numel == x->numel &&
            s->x[k]->offset == 0 && x->offset == 0 && tensor_is_contiguous(s->x[k]) && tensor_is_dense(x) &&
            !fn_written(t->fn, x)) {
            a->kind = AOT_result_view;
            a->index = u->out[k].index;
            a->of = u->out[k].leaf && a->requires_grad && !a->leaf ? k : -1;
            a->detached |= !x->base && s->x[k]->base != x;
            a->type = tensor_fake_of(x);
            return true;
        }
    a->kind = AOT_value;
    for (int k = first_on(s, x); k < i; k = s->next[k]) /* one tensor returned twice */
        if (s->x[k] == x && u->out[k].kind == AOT_value) {
            a->index = u->out[k].index;
            return true;
        }
    a->index = add_result(s->res, n, a->leaf);
    if (!s->root[a->index] && !a->leaf) {
        s->root[a->index] = x;
        set_head(s, a->index, x);
    }
    if (!x->base && in < 0 && has_gaps(x, ir_type(n)) && !expanded(x) &&
        (ir_type(n)->storage != x->storage || !same_view(ir_type(n), x)))
        place(s, a->index, AOT_value, a->index, x);
    return true;
}

/* Values on one memory, of which one is a view of the other: so they are outside, for writes with a history to come. */
static void relate_values(items *s)
{
    for (int i = 0; i < s->n; i++) {
        aot_out *a = &s->u->out[i];
        const tp_tensor *x = s->x[i];
        if (!x || !x->base || a->kind != AOT_value || a->leaf || a->requires_grad)
            continue;
        for (int k = first_on(s, x); k < s->n; k = s->next[k]) {
            const aot_out *o = &s->u->out[k];
            const tp_tensor *y = s->x[k];
            bool whole = y == x->base, beside = k < i && y->base == x->base && covers(y, x) && o->of < 0;
            if (o->kind == AOT_value && !o->leaf && !o->requires_grad && o->index != a->index &&
                (whole || (beside && a->of < 0)))
                a->of = k;
        }
    }
}

static bool collect_outputs(trace *t, aot_unit *u, const ir_graph *g, results *res, tp_tensor **root,
                            tp_err *err)
{
    const ir_node *o = g->output;
    size_t n = (size_t)MAX(o->narg, 1);
    items s = {
        t, u, g, res, root, mem_zalloc(sizeof *s.x * n), o->narg, mem_zalloc(sizeof *s.head * n * 2)
    };
    bool ok = true;
    u->nout = o->narg;
    u->out = mem_zalloc(sizeof *u->out * n);
    u->place = mem_zalloc(sizeof *u->place * n * 2);
    for (int i = 0; i < u->nout; i++)
        u->out[i].of = -1;
    for (int i = 0; i < u->nout; i++) {
        tp_val v = o->arg[i].kind == VAL_node ? t->r.val[o->arg[i].node->id] : o->arg[i];
        s.x[i] = v.kind == VAL_tensor ? v.t : NULL;
    }
    s.next = mem_zalloc(sizeof *s.next * n);
    for (int i = u->nout - 1; i >= 0; i--)
        if (s.x[i]) {
            s.next[i] = first_on(&s, s.x[i]);
            map_puti(&s.memory, (uintptr_t)s.x[i]->storage, (void *)((uintptr_t)i + 1));
        }
    for (int i = t->nin - 1; i >= 0; i--)
        if (t->in[i])
            map_puti(&s.inputs, (uintptr_t)t->in[i]->storage, (void *)((uintptr_t)i + 1));
    for (int i = 0; i < u->nout && ok; i++) {
        aot_out *a = &u->out[i];
        tp_val v = o->arg[i].kind == VAL_node ? t->r.val[o->arg[i].node->id] : o->arg[i];
        if (v.kind == VAL_int &&
            sym_is_unbacked(v.i)) { /* only the run knows it: the forward graph returns it */
            a->kind = AOT_value;
            a->index = (int)res->list.n;
            vec_push(&res->list, v);
        } else if (v.kind != VAL_tensor) {
            a->kind = AOT_number;
            a->num = v;
        } else {
            ok = collect_item(&s, i, err);
        }
    }
    if (ok)
        relate_values(&s);
    for (int i = 0; i < u->nout && ok; i++)
        if (u->out[i].kind == AOT_result_view && u->out[i].of >= 0)
            u->out[i].index = u->out[u->out[i].of].index;
    free(s.x);
    free(s.head);
    free(s.next);
    map_free(&s.results);
    map_free(&s.memory);
    map_free(&s.inputs);
    u->nvalue = (int)res->list.n;
    return ok;
}

/* Inputs that the graph wrote. root: as for values, the written input where the write is on the tape. */
static bool collect_writes(trace *t, aot_unit *u, results *res, tp_tensor **root, tp_err *err)
{
    u->mut = mem_zalloc(sizeof *u->mut * (size_t)MAX(t->nin, 1));
    for (int i = 0; i < t->nin; i++) {
        if (!t->in[i] || !fn_written(t->fn, t->in[i]) || (t->nbase && i < t->nin - t->nbase && t->base_of[i]))
            continue;
        ir_node *n = fn_node(t->fn, &t->cx, t->in[i], err);
        if (!n)
            return false;
        u->mut[u->nmut++] = i;
        root[add_result(res, n, false)] = grad_requires_grad(t->in[i]) && !grad_is_leaf(t->in[i]) ? t->in[i]
                                                                                                  : NULL;
    }
    return true;
}

static void collect_flags(const trace *t, aot_unit *u)
{
    u->flag = mem_zalloc(sizeof *u->flag * (size_t)MAX(t->nin, 1));
    for (int i = 0; t->leaves && i < own_inputs(t); i++)
        if (t->in[i] && t->flagged[i])
            u->flag[u->nflag++] = (struct aot_flag){ i, grad_requires_grad(t->in[i]) };
}

/* Backward of the forward results that need it, recorded into the same graph. */
static bool trace_backward(trace *t, aot_unit *u, const ir_graph *g, results *res, tp_tensor *const *root,
                           const bool *needs, tp_err *err)
{
    int most = t->nin + u->nout + 1, nfw = u->nvalue + u->nmut;
    tp_tensor **roots = mem_zalloc(sizeof *roots * (size_t)MAX(nfw, 1));
    tp_tensor **tan = mem_zalloc(sizeof *tan * (size_t)MAX(nfw, 1));
    tp_tensor **want = mem_zalloc(sizeof *want * (size_t)most);
    tp_tensor **got = mem_zalloc(sizeof *got * (size_t)most);
    int nroot = 0, nwant = 0;
    bool ok = true;

    u->tangent = mem_zalloc(sizeof *u->tangent * (size_t)MAX(nfw, 1));
    u->grad = mem_zalloc(sizeof *u->grad * (size_t)most);
    for (int i = 0; i < nfw; i++) {
        if (!root[i] || !grad_requires_grad(root[i]))
            continue;
        char name[32];
        snprintf(name, sizeof name, "tangents_%d", nroot + 1);
        /* Laid out like the result, or, where that has gaps or sizes are symbols, contiguous: what comes is copied so. */
        bool like = sym_all_const(root[i]->size, root[i]->ndim) &&
                    sym_all_const(root[i]->stride, root[i]->ndim) && tensor_is_dense(root[i]);
        tp_tensor *fake = tensor_new_fake((dtype)root[i]->dt, root[i]->ndim, root[i]->size,
                                          like ? root[i]->stride : NULL, tensor_device(root[i]));
        ir_node *p = ir_add_placeholder(t->g, name, name, fake);
        tensor_unref(fake);
        tan[nroot] = ir_proxy(&t->rec, p);
        roots[nroot] = root[i];
        u->tangent[nroot++] = i;
    }
    for (int i = 0; i < own_inputs(t); i++)
        if (t->in[i] && (t->leaves && t->flagged[i] ? grad_set_requires_grad(&t->cx, t->in[i], true, NULL)
                                                    : needs[i] && grad_requires_grad(t->in[i]))) {
            u->grad[nwant] = i;
            want[nwant++] = end_of(t, i);
        }
    for (int i = 0; t->leaves && i < u->nout; i++)
        if (u->out[i].leaf) {
            u->grad[nwant] = t->nin + i;
            want[nwant++] = t->r.val[g->output->arg[i].node->id].t;
        }
    if (t->leaves && nroot) { /* a leaf that nobody will see still makes a backward */
        int n = 0, seen = 0;
        tp_tensor **leaf = grad_leaves(roots, nroot, &n);
        for (int i = 0; i < nwant; i++)
            for (int k = 0; k < n; k++)
                seen += leaf[k] == want[i];
        if (n && !seen) {
            u->grad[nwant] = -1;
            want[nwant++] = leaf[0];
        }
        free(leaf);
    }
    if (nroot && nwant) {
        t->cx.grad_mode = false;
        grad_options o = { .allow_unused = true, .inputs = want, .ninput = nwant, .result = got };
        ok = grad_backward(&t->cx, roots, nroot, tan, &o, err);
    }
    u->ntangent = nroot;
    for (int i = 0; i < nwant && ok; i++) { /* inputs without influence keep no gradient */
        if (!got[i])
            continue;
        ir_node *n = fn_node(t->fn, &t->cx, got[i], err);
        if (!n) {
            ok = false;
            break;
        }
        u->grad[u->ngrad++] = u->grad[i];
        add_result(res, n, false);
    }
    for (int i = 0; i < most; i++)
        tensor_unref(got[i]);
    for (int i = 0; i < nroot; i++)
        tensor_unref(tan[i]);
    free(roots);
    free(tan);
    free(want);
    free(got);
    return ok;
}

static const char *const clean_passes = "noop,cse,dce";

/* ---- nested graphs ---- */
static bool nested_results(trace *t, const ir_graph *g, tp_tensor **out, results *res, tp_err *err)
{
    for (int i = 0; i < g->output->narg; i++) {
        const tp_val *v = &g->output->arg[i];
        tp_tensor *x = v->kind == VAL_node && t->r.val[v->node->id].kind == VAL_tensor
                           ? t->r.val[v->node->id].t
                           : NULL;
        if (!x)
            return err_set(err, ERR_notimpl, "a nested graph returns something that is no tensor");
        out[i] = tensor_ref(x);
        if (input_of_storage(t, x) >= 0) { /* a result of its own, whatever happens to the input's memory */
            tp_val arg[2] = { vT(x), vNone }, copy = vNone;
            if (!grad_call(&t->cx, OP_clone, OPV_fn, arg, &copy, err))
                return false;
            tensor_unref(out[i]);
            out[i] = copy.t;
        }
        ir_node *n = res ? fn_node(t->fn, &t->cx, out[i], err) : NULL;
        if (res && !n)
            return false;
        if (res)
            add_result(res, n, false);
    }
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] && fn_written(t->fn, t->in[i]))
            return err_set(err, ERR_notimpl, "a nested graph writes to its input '%s'",
                           g->inputs.at[i]->name);
    return true;
}

static bool nested_gradients(trace *t, tp_tensor *const *out, int nout, const bool *needs, results *res,
                             tp_err *err)
{
    tp_tensor **root = mem_zalloc(sizeof *root * (size_t)MAX(nout, 1)),
              **tan = mem_zalloc(sizeof *tan * (size_t)MAX(nout, 1)),
              **want = mem_zalloc(sizeof *want * (size_t)MAX(t->nin, 1)),
              **got = mem_zalloc(sizeof *got * (size_t)MAX(t->nin, 1));
    int nroot = 0, nwant = 0, ntan = 0;
    bool ok = true;
    for (int i = 0; i < nout; i++) {
        if (!dtype_has_grad((dtype)out[i]->dt))
            continue;
        char name[32];
        snprintf(name, sizeof name, "tangents_%d", ++ntan);
        tp_tensor *fake = tensor_new_fake((dtype)out[i]->dt, out[i]->ndim, out[i]->size, out[i]->stride,
                                          tensor_device(out[i]));
        ir_node *p = ir_add_placeholder(t->g, name, name, fake);
        tensor_unref(fake);
        if (!grad_requires_grad(out[i]))
            continue;
        tan[nroot] = ir_proxy(&t->rec, p);
        root[nroot++] = out[i];
    }
    for (int i = 0; i < t->nin; i++)
        if (needs[i] && t->in[i])
            want[nwant++] = t->in[i];
    t->cx.grad_mode = false;
    grad_options o = { .allow_unused = true, .inputs = want, .ninput = nwant, .result = got };
    if (nroot && nwant)
        ok = grad_backward(&t->cx, root, nroot, tan, &o, err);
    for (int i = 0; ok && i < nwant; i++) {
        if (!got[i]) { /* no influence: zeros, so that every branch returns the same things */
            tp_val arg[6] = { vT(want[i]), vNone, vNone, vNone, vNone, vNone }, zero = vNone;
            if (!(ok = grad_call(&t->cx, OP_zeros_like, OPV_fn, arg, &zero, err)))
                break;
            got[i] = zero.t;
        }
        ir_node *n = fn_node(t->fn, &t->cx, got[i], err);
        ok = n != NULL;
        if (n)
            add_result(res, n, false);
    }
    for (int i = 0; i < nwant; i++)
        tensor_unref(got[i]);
    for (int i = 0; i < nroot; i++)
        tensor_unref(tan[i]);
    free(root);
    free(tan);
    free(want);
    free(got);
    return ok;
}

ir_graph *aot_nested(tp_comp *c, const ir_graph *g, const bool *needs)
{
    trace t = { 0 };
    results res = { { 0 } };
    int nout = g->output ? g->output->narg : 0;
    tp_tensor **out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    ir_graph *done = NULL;
    ir_renumber((ir_graph *)g);
    t.flagged = mem_zalloc(MAX(g->inputs.n, 1));
    if (!g->output || !begin(&t, c, g, needs, needs != NULL, c->err) ||
        !aot_replay_run(&t.r, (ir_graph *)g, c->err) ||
        !nested_results(&t, g, out, needs ? NULL : &res, c->err) ||
        (needs && !nested_gradients(&t, out, nout, needs, &res, c->err)))
        goto done;
    ir_set_output(t.g, res.list.at, (int)res.list.n);
    if (!pass_run_named(c, t.g, clean_passes))
        goto done;
    done = t.g;
    t.g = NULL;
done:
    for (int i = 0; i < nout; i++)
        tensor_unref(out[i]);
    free(out);
    end(&t);
    ir_graph_free(t.g);
    vec_free(&res.list);
    return done;
}

static void log_graph(ev_kind text, ev_kind trace, const char *title, const ir_graph *g)
{
    if (!ev_text_on(text) && !ev_trace_on(trace))
        return;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    if (ev_text_on(text))
        ev_text(text, NULL, "TRACED GRAPH\n ===== %s %s =====\n%s", title, g->name, strbuf_str(&b));
    if (ev_trace_on(trace))
        ev_json(trace, NULL, "{}", strbuf_str(&b));
    strbuf_free(&b);
}

typedef struct one_graph {
    const ir_graph *g;
    ev_kind k;
} one_graph;

static void trace_graph(void *arg)
{
    one_graph *a = arg;
    strbuf *b = ev_scratch();
    ir_print(b, a->g, IR_PRINT_log | IR_PRINT_brand);
    ev_json(a->k, NULL, "{}", strbuf_str(b));
    ev_scratch_done(b);
}

/* To the trace alone, and the graphs have no symbols (printing them asks the environment, which changes): then another
 * thread prints them. */
static bool for_trace_alone(const ir_graph *g)
{
    return !ev_text_on(EV_aot_joint_graph) && !ev_text_on(EV_aot_graphs) &&
           ev_trace_on(EV_aot_forward_graph) && g->nnode >= EV_LATER_NODES &&
           !(g->env && sym_env_n_symbols(g->env));
}

static void tell_graph(ev_kind text, ev_kind trace, const char *title, const ir_graph *g)
{
    one_graph a = { g, trace };
    if (for_trace_alone(g))
        ev_later(trace_graph, &a, sizeof a, g, NULL);
    else if (!ev_text_on(text) && ev_trace_on(trace))
        ev_now(trace_graph, &a);
    else
        log_graph(text, trace, title, g);
}

static void tell_halves(const aot_unit *u)
{
    tell_graph(EV_aot_graphs, u->bw ? EV_aot_forward_graph : EV_aot_inference_graph, "Forward graph", u->fw);
    if (u->bw && for_trace_alone(u->bw)) { /* the forward graph is being printed */
        one_graph a = { u->bw, EV_aot_backward_graph };
        ev_put_off(trace_graph, &a, sizeof a, u->bw);
    } else if (u->bw) {
        tell_graph(EV_aot_graphs, EV_aot_backward_graph, "Backward graph", u->bw);
    }
}

/* What backward keeps, in the detailed trace, and what forward does besides returning values. */
static void trace_details(const aot_unit *u)
{
    strbuf b = { 0 };
    if (!ev_trace_on(EV_graph_dump))
        return;
    strbuf_addf(&b, "%d input%s, %d result%s of the program\n", u->nin - u->nbase, plural(u->nin - u->nbase),
                u->nout, plural(u->nout));
    for (int i = 0; i < u->nmut; i++)
        strbuf_addf(&b, "writes to input %d (%s)\n", u->mut[i], u->fw->inputs.at[u->mut[i]]->name);
    for (int i = 0; i < u->nout; i++) {
        const aot_out *o = &u->out[i];
        strbuf_addf(&b, "result %d: %s", i,
                    o->kind == AOT_value         ? "a value of the graph"
                    : o->kind == AOT_input       ? "an input itself"
                    : o->kind == AOT_view        ? "a view of an input"
                    : o->kind == AOT_result_view ? "a view of another result"
                                                 : "a number");
        if (o->kind != AOT_number)
            strbuf_addf(&b, " (%d)", o->index);
        strbuf_addc(&b, '\n');
    }
    ev_artifact("aot_forward_graph_fw_metadata", "string", NULL, strbuf_str(&b));
    strbuf_clear(&b);
    if (u->bw) {
        strbuf_addf(
            &b,
            "forward keeps %d value%s for backward: %lld bytes, beside inputs; keeping all that backward "
            "reads would take %lld bytes\n",
            u->nsaved, plural(u->nsaved), (long long)u->saved_bytes, (long long)u->all_bytes);
        for (int i = 0; i < u->nsaved; i++) {
            strbuf_addf(&b, "%s: ", u->bw->inputs.at[i]->name);
            ir_type_print(&b, &u->bw->inputs.at[i]->val);
            strbuf_addc(&b, '\n');
        }
        ev_artifact("min_cut_information", "string", NULL, strbuf_str(&b));
    }
    strbuf_free(&b);
}

/* A graph under its name in the detailed trace. */
static void trace_named(const char *name, const ir_graph *g)
{
    if (!ev_trace_on(EV_graph_dump))
        return;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    ev_artifact(name, "string", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

/* How far tracing came before it failed. */
static void trace_partial(ir_graph *g)
{
    if (!ev_trace_on(EV_artifact))
        return;
    strbuf b = { 0 };
    ir_set_output(g, NULL, 0);
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    ev_artifact("make_fx_fail_partial", "string", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

static void log_unit(const ir_graph *g, const aot_unit *u, int64_t ns)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "%s: %d captured node%s became %d in %.3f ms", g->name, g->nnode, plural(g->nnode),
                u->joint->nnode, (double)ns / 1e6);
    if (u->bw)
        strbuf_addf(&b, "; forward keeps %lld bytes in %d value%s for backward, which reads %lld bytes of it",
                    (long long)u->saved_bytes, u->nsaved, plural(u->nsaved), (long long)u->all_bytes);
    ev_log(EVC_aot, EV_INFO, NULL, "%s", strbuf_str(&b));
    strbuf_free(&b);
}

/* What somebody else cut must fit what the joint graph said. */
static bool check_cut(aot_unit *u, int nfw, tp_err *err)
{
    int nout = u->fw->output ? u->fw->output->narg : 0;
    u->nsaved = nout - nfw;
    if ((int)u->fw->inputs.n != u->nin || u->nsaved < 0)
        return err_set(
            err, ERR_runtime,
            "the partition's forward graph takes %d inputs and returns %d values; it must take %d and "
            "return at least %d",
            (int)u->fw->inputs.n, nout, u->nin, nfw);
    if ((int)u->bw->inputs.n != u->nsaved + u->ntangent || !u->bw->output || u->bw->output->narg != u->ngrad)
        return err_set(
            err, ERR_runtime,
            "the partition's backward graph takes %d inputs and returns %d values; it must take the %d "
            "values that forward saves and %d tangents, and return %d gradients",
            (int)u->bw->inputs.n, u->bw->output ? u->bw->output->narg : 0, u->nsaved, u->ntangent, u->ngrad);
    for (int i = 0; i < u->nsaved; i++) {
        const tp_val *v = &u->fw->output->arg[nfw + i];
        const tp_tensor *a = v->kind == VAL_node ? ir_type(v->node) : NULL, *b = ir_type(u->bw->inputs.at[i]);
        if (v->kind != VAL_node || !a != !b || (a && (a->dt != b->dt || !tensor_same_size(a, b))))
            return err_set(err, ERR_runtime,
                           "the partition's forward graph saves value %d in another form than the backward "
                           "graph's input '%s' has",
                           i, u->bw->inputs.at[i]->name);
        u->saved_bytes += a && v->node->kind != IR_placeholder && !sym_is_expr(a->numel)
                              ? a->numel * (int64_t)dtype_size((dtype)a->dt)
                              : 0;
    }
    return ir_verify(u->fw, err) && ir_verify(u->bw, err);
}

static bool replace(ir_graph **g, ir_graph *by)
{
    if (by) {
        ir_graph_free(*g);
        *g = by;
    }
    return by != NULL;
}

static bool any_waits(const ir_graph *g, bool (*waits)(op_id op))
{
    IR_EACH (n, g)
        if (n->kind == IR_call && waits((op_id)n->op) &&
            strcmp(op_row_of((op_id)n->op)->decomp_name, "none") != 0)
            return true;
    return g->subs.n > 0;
}

static bool decompose(tp_comp *c, ir_graph **g)
{
    if (!c->joined)
        return replace(g, aot_decompose(c, *g, NULL));
    if (!replace(g, aot_decompose(c, *g, c->joins_whole)) || !pass_run_named(c, *g, clean_passes))
        return false;
    replace(g, c->joined(c, *g));
    return !any_waits(*g, c->joins_whole) || replace(g, aot_decompose(c, *g, NULL));
}

aot_unit *aot_trace(tp_comp *c, const ir_graph *g, const bool *needs_grad, bool grad_mode, uint32_t flags,
                    const aot_cut *cut)
{
    tp_err *err = c->err;
    trace t = { 0 };
    aot_unit *u = mem_zalloc(sizeof *u);
    results res = { { 0 } };
    tp_tensor **root = NULL;
    bool ok = false, any = false, traced = false;
    int64_t spent = -clock_ns(); /* without the time it takes to print */

    ir_renumber((ir_graph *)g);
    u->nin = (int)g->inputs.n;
    for (int i = 0; i < u->nin; i++)
        any |= grad_mode && needs_grad && needs_grad[i];
    t.leaves = aot_makes_leaves(g);
    t.flagged = mem_zalloc((size_t)MAX(u->nin, 1));
    any |= grad_mode && t.leaves;
    crumb_drop("autograd stage", "functionalisation and derivatives");
    if (!bases_find(&t, g, any, err))
        goto done;
    root = mem_zalloc(sizeof *root *
                      (2 * (size_t)(g->output ? g->output->narg : 0) + g->inputs.n + (size_t)t.nbase + 1));
    if (!begin(&t, c, g, any ? needs_grad : NULL, any, err) || !aot_replay_run(&t.r, (ir_graph *)g, err))
        goto done;
    ev_catch_up();
    if (!collect_outputs(&t, u, g, &res, root, err) || !collect_writes(&t, u, &res, root, err))
        goto done;
    collect_flags(&t, u);
    int nfw = (int)res.list.n;
    if (any && !trace_backward(&t, u, g, &res, root, needs_grad, err)) {
        if (err->kind == ERR_runtime) { /* the program's own mistake: it shows where eager shows it */
            tp_err why = *err;
            err_clear(err);
            err_set(err, ERR_notimpl, "backward of this graph cannot work, so it runs eagerly: %s", why.msg);
        }
        goto done;
    }
    ir_set_output(t.g, res.list.at, (int)res.list.n);
    traced = true;
    trace_named("before_joint_graph", t.g);
    int64_t passes = -clock_ns();
    if (!pass_run_named(c, t.g, clean_passes))
        goto done;
    if (c->traced)
        c->traced(c, t.g);
    if ((flags & AOT_min_cut) && (any || g->backward) && !aot_pool_offsets(c, t.g))
        goto done;
    if (flags & AOT_decompose) {
        crumb_drop("autograd stage", "decompositions");
        if (!decompose(c, &t.g))
            goto done;
        if (!pass_run_named(c, t.g, clean_passes) ||
            ((flags & (AOT_min_cut | AOT_draw_calls)) == AOT_min_cut && !aot_draws(c, t.g)))
            goto done;
    }
    ev_metrics_part(EVP_joint_passes, passes + clock_ns());
    trace_named("after_joint_graph", t.g);
    u->joint = t.g;
    t.g = NULL;
    u->nin += t.nbase;
    u->nbase = t.nbase;
    u->base = t.base;
    t.base = NULL;
    spent += clock_ns();
    if (u->ngrad)
        tell_graph(EV_aot_joint_graph, EV_aot_joint_graph, "Joint graph", u->joint);
    if (cut)
        ev_settle(); /* it may change the graph, and do anything else */
    spent -= clock_ns();
    crumb_drop("autograd stage", "partition: the cut between forward and backward");
    if (cut && u->ngrad ? !cut->fn(cut, c, u, nfw) || !check_cut(u, nfw, err)
                        : !aot_partition(c, u, nfw, flags & AOT_min_cut))
        goto done;
    u->fw->ninto = u->nvalue + u->nmut;
    u->fw->into = ARENA_ARR(&u->fw->mem, int, MAX(u->fw->ninto, 1));
    for (int i = 0; i < u->nmut; i++)
        u->fw->into[u->nvalue + i] = u->mut[i] + 1;
    if (u->bw ? !aot_keep_old_values(u, nfw, err)
              : (flags & AOT_min_cut) && g->backward && !aot_recompute(c, u->fw))
        goto done;
    spent += clock_ns();
    if (ev_log_on(EVC_aot, EV_INFO))
        log_unit(g, u, spent);
    trace_details(u);
    tell_halves(u);
    ok = aot_unit_check(u, err) &&
         (!env_get(ENV_check_text) ||
          (ir_verify(u->joint, err) && ir_verify(u->fw, err) && (!u->bw || ir_verify(u->bw, err))));
done:
    end(&t);
    if (!ok && !traced && t.g)
        trace_partial(t.g);
    ir_graph_free(t.g);
    vec_free(&res.list);
    free(root);
    if (!ok) {
        aot_unit_free(u);
        u = NULL;
    }
    return u;
}
