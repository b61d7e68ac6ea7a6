/* program.c - runs a plan: a flat list of kernels and library calls over preplanned memory. */
#include "run/program.h"
#include "ops/ondevice.h"
#include "base/clock.h"
#include "base/crumb.h"
#include "base/pool.h"
#include "base/profile.h"
#include "events/metrics.h"
#include "ir/hop.h"
#include "ir/planted.h"
#include "loop/lower.h"
#include "ops/provider.h"
#include "run/recording.h"
#include <stdatomic.h>

enum { BLOCK_KEPT = 96 << 20, SPAN_LEAST = 2 /* launches that are worth a recording */ };

typedef struct kstep {
    const target_code *k;
    loop_kernel *lk;
    sym_prog *ints; /* symbolic arguments, then par and work; NULL when all are constants */
    int64_t *cints; /* their constant values otherwise */
    int64_t cpar, cwork;
    bool alone; /* one thread does all of it */
} kstep;

typedef struct late { /* of a check of indices whose answer comes later */
    target_late l;
    const ir_node *node;
    int dim;
} late;
typedef struct span { /* steps that launch and do nothing else */
    size_t n;         /* 0: none begins here */
    recordings *made;
} span;

typedef struct program {
    run_program base;
    program_nested *sub; /* by step; NULL: there are none */
    loop_plan *p;
    const target *on;
    tp_device device; /* of its memory */
    kstep *ks;        /* by step; unused for calls */
    bool symbolic;
    int nsym; /* symbols of the environment at compile time */
    loop_memory m;
    tp_storage *_Atomic kept;    /* the block of the last call, where it is large */
    tp_storage *_Atomic between; /* the same of what is between the products of attention */
    tp_storage *_Atomic
        *result; /* by slot: memory of the last result, used again once nobody else holds it; NULL: never */
    late *late;  /* by step */
    span *span;  /* by step; NULL: nothing is recorded */
} program;

/* The results of a call, each by itself: one that is wanted to the end does not keep the others. */
static void take_items(program *pr, tp_val *slot, size_t step)
{
    if (pr->m.item_at[step] == pr->m.item_at[step + 1])
        return;
    tp_val *list = &slot[pr->p->step.at[step].slot];
    if (list->kind != VAL_tensors)
        return;
    for (int d = pr->m.item_at[step]; d < pr->m.item_at[step + 1]; d++) {
        int64_t k = pr->p->slot.at[pr->m.item[d]].node->arg[1].i;
        if (k >= 0 && k < list->n && list->ts[k])
            slot[pr->m.item[d]] = vT(tensor_ref(list->ts[k]));
    }
    val_clear(list);
    *list = vNone;
}

/* ---- one call ---- */
typedef struct sent { /* a tensor of the host that is written on the device */
    tp_tensor *home, *there;
} sent;
typedef struct program_at {
    program *pr;
    op_ctx *cx;
    const tp_val *in;
    tp_val *take; /* the same, owned: inputs go when they were read last; or NULL */
    tp_val *slot; /* owned values, by slot */
    int64_t *sym; /* values of symbols, by sym_index */
    sym_bind *bind;
    int nbind;
    tp_storage *block;
    tp_storage *between; /* products of attention */
    bool
        apart; /* launches are recorded by the caller: memory of other calls is not used, nor kept for them */
    bool visited; /* somebody looks at the value of each step */
    arena scratch;
    tp_val tried[OP_MAX_RETURNS]; /* results of a call that somebody tried; owned */
    VEC(tp_tensor *) moved;       /* tensors of the host on the device; owned */
    VEC(sent) sent;               /* those that a kernel writes, until it is launched */
} call;

/* Recordings name addresses, so they want the same block again. */
static bool keeps_block(const program *pr) { return pr->span || pr->m.block > BLOCK_KEPT; }

static void release_dead(call *c, size_t step)
{
    program *pr = c->pr;
    tp_val *slot = c->slot;
    for (int d = pr->m.dead_at[step]; d < pr->m.dead_at[step + 1]; d++) {
        tp_val *v = &slot[pr->m.dead[d]];
        if (v->kind == VAL_tensor || v->kind == VAL_tensors) {
            val_clear(v);
            *v = vNone;
        }
    }
    if ((int)step == pr->m.block_last && !keeps_block(pr)) {
        storage_unref(c->block);
        c->block = NULL;
    }
}

static void bind_symbol(void *call_of, symint s, int64_t v)
{
    call *c = call_of;
    int i = sym_index(s), n = ir_bind_add(c->bind, c->nbind, s, v);
    if (n > c->nbind && i < c->pr->nsym)
        c->sym[i] = v;
    c->nbind = n;
}

static void bind_symbols(call *c)
{
    loop_plan *p = c->pr->p;
    int most = 0;
    for (size_t i = 0; i < p->g->inputs.n; i++) {
        const tp_tensor *t = ir_type(p->g->inputs.at[i]);
        most += t ? 2 * t->ndim + 2 : 1;
    }
    c->sym = arena_zalloc(&c->scratch, sizeof *c->sym * (size_t)MAX(c->pr->nsym, 1));
    c->bind = arena_alloc(&c->scratch, sizeof *c->bind * (size_t)MAX(most, 1));
    for (int pass = 0; pass < IR_BIND_PASSES; pass++)
        for (size_t i = 0; i < p->g->inputs.n; i++)
            ir_bind(&p->g->inputs.at[i]->val, &c->in[i], pass, bind_symbol, c);
}

static bool concrete(call *c, symint v, symint *out, tp_err *err)
{
    *out = v;
    if (!sym_is_expr(v) || sym_eval(v, c->bind, c->nbind, out))
        return true;
    strbuf b = { 0 };
    sym_print(&b, v);
    err_set(err, ERR_internal, "the size %s has no value in these inputs", strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

/* A result in the memory of the one before, if that is ours alone. */
static tp_tensor *result_make(call *c, int i, tp_err *err)
{
    program *pr = c->pr;
    const tp_tensor *t = pr->p->slot.at[i].type;
    tp_storage *s = atomic_exchange(&pr->result[i], NULL);
    tp_tensor *r;
    if (s && __atomic_load_n(&s->refs, __ATOMIC_ACQUIRE) == 1)
        r = tensor_on(s, (dtype)t->dt, t->ndim, t->size, t->stride, 0);
    else
        r = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, tensor_device(t), err);
    storage_unref(s);
    if (r)
        storage_unref(atomic_exchange(&pr->result[i], storage_ref(r->storage)));
    return r;
}

static tp_tensor *buffer_make(call *c, int i, tp_err *err)
{
    program *pr = c->pr;
    const loop_slot *s = &pr->p->slot.at[i];
    const tp_tensor *t = s->type;
    if (!pr->symbolic || loop_const_type(t)) {
        if (pr->m.offset[i] >= 0 && c->block) /* there is none for buffers without elements alone */
            return tensor_on(c->block, (dtype)t->dt, t->ndim, t->size, t->stride,
                             pr->m.offset[i] / (int64_t)dtype_size((dtype)t->dt));
        if (pr->result && s->output && !c->apart)
            return result_make(c, i, err);
        return tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, tensor_device(t), err);
    }
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++)
        if (!concrete(c, t->size[d], &size[d], err) || !concrete(c, t->stride[d], &stride[d], err))
            return NULL;
    return tensor_new_strided((dtype)t->dt, t->ndim, size, stride, tensor_device(t), err);
}

static bool slot_get(call *c, int i, tp_val *out, tp_err *err);

static bool node_arg(call *c, const tp_val *v, tp_val *out, tp_err *err)
{
    loop_plan *p = c->pr->p;
    *out = *v;
    switch (v->kind) {
    case VAL_node:
        return slot_get(c, (int)(uintptr_t)map_geti(&p->slot_of, (uintptr_t)v->node) - 1, out, err);
    case VAL_nodes: {
        tp_tensor **ts = ARENA_ARR(&c->scratch, tp_tensor *, MAX(v->n, 1));
        for (int i = 0; i < v->n; i++) {
            tp_val e = vNone;
            if (v->nodes[i] &&
                !slot_get(c, (int)(uintptr_t)map_geti(&p->slot_of, (uintptr_t)v->nodes[i]) - 1, &e, err))
                return false;
            ts[i] = e.kind == VAL_tensor ? e.t : NULL;
        }
        *out = vTs(ts, v->n);
        return true;
    }
    case VAL_int: return concrete(c, v->i, &out->i, err);
    case VAL_ints:
        if (!sym_all_const(v->ints, v->n)) {
            symint *iv = ARENA_ARR(&c->scratch, symint, v->n);
            for (int i = 0; i < v->n; i++)
                if (!concrete(c, v->ints[i], &iv[i], err))
                    return false;
            out->ints = iv;
        }
        return true;
    default: return true;
    }
}

static bool run_row(call *c, const ir_node *n, tp_val *out, tp_err *err)
{
    tp_val arg[OP_MAX_PARAMS];
    for (int i = 0; i < n->narg; i++)
        if (!node_arg(c, &n->arg[i], &arg[i], err))
            return false;
    /* It counts from the beginning of the storage; here that is a buffer's place in the block. */
    if ((op_row_of((op_id)n->op)->flags & OPF_STORAGE) && arg[3].kind == VAL_int &&
        arg[0].t->storage == c->block && n->arg[0].kind == VAL_node && ir_type(n->arg[0].node))
        arg[3].i += arg[0].t->offset - ir_type(n->arg[0].node)->offset;
    return ops_call(c->cx, (op_id)n->op, (op_variant)n->variant, arg, out, err);
}

/* Faults planted in library calls that stand for pointwise rows; the others have a kernel that carries theirs. */
static bool plant_call(const ir_node *n, tp_val *res, tp_err *err)
{
    char buf[64];
    fault_kind f = ir_fault_at("gen", n);
    if (f == FAULT_none && !fault_is_sudden(ir_fault_at("lower", n)))
        f = ir_fault_at("lower", n);
    if (f == FAULT_none)
        return true;
    if (!fault_strike(f, ir_stands_for(n, buf, sizeof buf), err))
        return false;
    tp_tensor *t = res[0].kind == VAL_tensor ? res[0].t : NULL;
    bool wrong = f == FAULT_accuracy || f == FAULT_nan || (f == FAULT_flaky && fault_coin());
    tp_tensor *here = wrong && t && t->numel ? tensor_to(t, DEVICE_CPU, err) : NULL;
    for (int64_t k = 0; here && k < t->numel; k++) {
        void *p = tensor_elem(here, k);
        double v = elem_get_f((dtype)t->dt, p);
        elem_set_f((dtype)t->dt, p, f == FAULT_nan ? __builtin_nan("") : t->dt == DT_bool ? !v : v + 1);
    }
    bool ok = !here || here == t || tensor_copy(t, here, err);
    tensor_unref(here);
    return ok;
}

typedef struct nest {
    hop_host host;
    call *c;
    program_nested *sub;
} nest;

/* Kernels are made for one memory layout: an operand that comes in another is copied into it. */
static tp_tensor *in_layout(tp_tensor *x, const tp_tensor *type, tp_err *err)
{
    if (!type || x->ndim != type->ndim || !sym_all_const(type->stride, type->ndim) ||
        !memcmp(x->stride, type->stride, sizeof(symint) * x->ndim))
        return tensor_ref(x);
    tp_tensor *t = tensor_new_strided((dtype)x->dt, x->ndim, x->size, type->stride, tensor_device(x), err);
    if (t && !tensor_copy(t, x, err)) {
        tensor_unref(t);
        t = NULL;
    }
    return t;
}

static bool nest_sub(hop_host *h, int which, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    nest *x = (nest *)h;
    program_nested *s = x->sub;
    if (s->interp[which]) {
        ir_hook hook = { .opaque = run_opaque };
        return ir_prog_run_nested(s->interp[which], h->cx, in, nin, out, nout, &hook, x->c->bind, x->c->nbind,
                                  err);
    }
    if (nin != (int)s->g[which]->inputs.n)
        return err_set(err, ERR_type, "the nested graph takes %d inputs", (int)s->g[which]->inputs.n);
    tp_val *v = mem_zalloc(sizeof *v * (size_t)MAX(nin, 1));
    bool ok = true;
    for (int i = 0; ok && i < nin; i++) {
        if (in[i].kind != VAL_tensor)
            v[i] = in[i];
        else
            v[i] = vT(in_layout(in[i].t, ir_type(s->g[which]->inputs.at[i]), err));
        ok = v[i].kind != VAL_none;
    }
    ok = ok && run_program_call(s->prog[which], h->cx, v, nin, out, nout, err);
    for (int i = 0; i < nin; i++)
        if (v[i].kind == VAL_tensor)
            tensor_unref(v[i].t);
    free(v);
    return ok;
}

/* What a call outside returned must be what its node says: kernels read it so. */
static bool fit_result(const ir_node *n, tp_tensor **t, const tp_tensor *type, tp_err *err)
{
    if (!*t || !type)
        return true;
    bool same = (*t)->dt == type->dt && (*t)->ndim == type->ndim;
    for (int d = 0; same && d < type->ndim; d++)
        same = sym_is_expr(type->size[d]) || type->size[d] == (*t)->size[d];
    if (!same) {
        strbuf a = { 0 }, b = { 0 };
        tp_val got = vT(*t), want = vT((tp_tensor *)type);
        ir_type_print(&a, &got);
        ir_type_print(&b, &want);
        err_set(err, ERR_runtime, "'%s' returned %s but its shape function says %s", n->target,
                strbuf_str(&a), strbuf_str(&b));
        if (ev_log_on(EVC_fake_tensor, EV_INFO))
            ev_log(EVC_fake_tensor, EV_INFO, NULL, "%s", err->msg);
        if (ev_trace_on(EV_mismatched_fake_kernel)) {
            strbuf meta = { 0 };
            json_w w = { &meta };
            json_obj(&w);
            json_key(&w, "op");
            json_str(&w, n->target);
            json_key(&w, "reason");
            json_str(&w, err->msg);
            json_end(&w);
            ev_json(EV_mismatched_fake_kernel, NULL, strbuf_str(&meta), NULL);
            strbuf_free(&meta);
        }
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    tp_tensor *x = in_layout(*t, type, err);
    if (x)
        tensor_unref(*t);
    *t = x ? x : *t;
    return x != NULL;
}

static bool fit_results(const ir_node *n, tp_val *out, tp_err *err)
{
    if (out->kind == VAL_tensor && n->val.kind == VAL_tensor)
        return fit_result(n, &out->t, n->val.t, err);
    for (int i = 0; out->kind == VAL_tensors && n->val.kind == VAL_tensors && i < out->n && i < n->val.n; i++)
        if (!fit_result(n, &out->ts[i], n->val.ts[i], err))
            return false;
    return true;
}

static bool run_custom(call *c, const ir_node *n, program_nested *sub, tp_val *out, tp_err *err)
{
    tp_val *arg = ARENA_ARR(&c->scratch, tp_val, MAX(n->narg, 1));
    for (int i = 0; i < n->narg; i++)
        if (!node_arg(c, &n->arg[i], &arg[i], err))
            return false;
    if (sub && (sub->prog[0] || sub->interp[0])) {
        nest x = { { c->cx, ops_call, nest_sub, NULL }, c, sub };
        return ir_hop_run(&x.host, n, arg, out, err) && fit_results(n, out, err);
    }
    bool ok = run_opaque(NULL, (ir_node *)n, arg, out, err);
    return ok && fit_results(n, out, err);
}

/* The value of a slot, made on demand where it is a view, a constant or an input. Borrowed. */
static bool slot_get(call *c, int i, tp_val *out, tp_err *err)
{
    if (i < 0)
        return err_set(err, ERR_internal, "a value of the plan has no slot");
    loop_slot *s = &c->pr->p->slot.at[i];
    tp_val *v = &c->slot[i];
    if (v->kind == VAL_none) {
        switch (s->kind) {
        case SLOT_input:
            *v = c->in[s->index];
            if (c->take)
                c->take[s->index] = vNone;
            else if (v->kind == VAL_tensor)
                tensor_ref(v->t);
            break;
        case SLOT_number: *v = c->in[s->index]; break;
        case SLOT_const: *v = vT(tensor_ref(s->konst)); break;
        case SLOT_view:
            if (!run_row(c, s->node, v, err))
                return false;
            break;
        case SLOT_extern:
            if (s->index >= 0) { /* an item of a list */
                tp_val list;
                if (!slot_get(c, s->index, &list, err))
                    return false;
                int64_t k = s->node->arg[1].i;
                if (list.kind != VAL_tensors || k >= list.n || !list.ts[k])
                    return err_set(err, ERR_internal, "'%s' is missing from the results of a call",
                                   s->node->name);
                *v = vT(tensor_ref(list.ts[k]));
            }
            break;
        case SLOT_buffer: {
            tp_val other;
            if (s->reuses && !slot_get(c, s->reuses - 1, &other, err))
                return false;
            tp_tensor *t = s->reuses ? tensor_ref(other.t) : buffer_make(c, i, err);
            if (!t)
                return false;
            *v = vT(t);
            break;
        }
        }
    }
    *out = *v;
    return true;
}

typedef struct kargs { /* of one launch */
    void *bufs[80];
    int64_t vals[64], *ints, par, work;
} kargs;

/* A tensor of the host that a kernel of a device uses: a graph may compute numbers of both. It is moved, and moved back where it
 * is written. Operators that mix devices were refused when the graph was made. */
static bool to_device(call *c, const kstep *k, int buf, tp_val *v, tp_err *err)
{
    tp_device dev = { (int8_t)c->pr->on->device, -1 };
    tp_storage *from = v->t->storage, *s = storage_new(MAX(from->nbytes, 1), dev, err);
    if (!s || (from->nbytes && !device_copy(dev, s->data, from->device, from->data, from->nbytes, err))) {
        storage_unref(s);
        return false;
    }
    tp_tensor *t = tensor_on(s, (dtype)v->t->dt, v->t->ndim, v->t->size, v->t->stride, v->t->offset);
    storage_unref(s);
    vec_push(&c->moved, t);
    if (k->lk->k->bufs[buf].flags & VIR_OUT && from->nbytes)
        vec_push(&c->sent, ((sent){ v->t, t }));
    v->t = t;
    return true;
}

/* What the kernel wrote for the host. */
static bool bring_back(call *c, tp_err *err)
{
    bool ok = true;
    for (size_t i = 0; i < c->sent.n && ok; i++) {
        tp_storage *to = c->sent.at[i].home->storage, *from = c->sent.at[i].there->storage;
        ok = device_copy(to->device, to->data, from->device, from->data, to->nbytes, err);
    }
    c->sent.n = 0;
    return ok;
}

static bool kernel_args(call *c, kstep *k, kargs *a, tp_err *err)
{
    a->ints = k->cints;
    a->par = k->cpar;
    a->work = k->cwork;
    for (int i = 0; i < k->lk->nbuf; i++) {
        tp_val v;
        if (!slot_get(c, k->lk->buf[i], &v, err))
            return false;
        if (TP_UNLIKELY(tensor_device(v.t).kind != c->pr->on->device) && !to_device(c, k, i, &v, err))
            return false;
        a->bufs[i] = tensor_data(v.t);
    }
    if (k->ints) {
        a->ints = k->lk->nint + 2 <= 64 ? a->vals : ARENA_ARR(&c->scratch, int64_t, k->lk->nint + 2);
        if (!sym_prog_run(k->ints, c->sym, a->ints))
            return err_set(err, ERR_runtime, "a size overflows 64 bits");
        a->par = a->ints[k->lk->nint];
        a->work = a->ints[k->lk->nint + 1];
    }
    return !TP_UNLIKELY(k->lk->fault) || k->lk->fault == FAULT_late ||
           fault_strike((fault_kind)k->lk->fault, k->lk->fault_op, err);
}

/* Which node: the one with a planted fault, or the last one a kernel computes. */
static bool kernel_failed(const loop_kernel *k, tp_err *err)
{
    const ir_node *n = k->fault_node ? k->fault_node : k->nodes.n ? k->nodes.at[k->nodes.n - 1] : NULL;
    if (n)
        err_note(err, "in node '%s'", n->name);
    return ir_err_place(err, n);
}

static void report_late(void *arg, int64_t from,
                        int64_t to) /* a planted fault, found on a worker where there is one */
{
    tp_err e = { 0 };
    if (to < 2)
        return;
    fault_strike(FAULT_runtime_error, ((const loop_kernel *)arg)->fault_op, &e);
    kernel_failed(arg, &e);
    pool_report(&e);
}

static void kernel_flaky(call *c, kstep *k, const kargs *a) /* a planted fault */
{
    if (TP_UNLIKELY(k->lk->fault == FAULT_late))
        pool_for(2, 1, report_late, (void *)k->lk);
    if (TP_LIKELY(k->lk->fault != FAULT_flaky) || !fault_coin())
        return;
    for (int i = 0; i < k->lk->nbuf; i++)
        if (k->lk->k->bufs[i].flags & VIR_OUT) { /* the first element of what it wrote */
            const tp_tensor *t = c->slot[k->lk->buf[i]].t;
            int64_t es = (int64_t)dtype_size((dtype)t->dt);
            uint64_t v = 0;
            if (!t->numel || !dtype_is_float((dtype)t->dt) ||
                !device_copy(DEVICE_CPU, &v, tensor_device(t), a->bufs[i], es, NULL))
                continue;
            elem_set_f((dtype)t->dt, &v, elem_get_f((dtype)t->dt, &v) + 1);
            device_copy(tensor_device(t), a->bufs[i], DEVICE_CPU, &v, es, NULL);
        }
}

static target_args launch_args(const call *c, const kstep *k, const kargs *a)
{
    return (target_args){
        a->bufs, a->ints, NULL, a->par, a->work, k->alone ? SHARE_alone : k->lk->share, c->pr->device.index
    };
}

/* For whoever looks after a crash: the memory that the kernel was given. */
static void crumb_kernel(call *c, const kstep *k, const kargs *a)
{
    for (int i = 0; i < k->lk->nbuf; i++) {
        const ir_node *of = c->pr->p->slot.at[k->lk->buf[i]].node;
        tp_val v;
        if (slot_get(c, k->lk->buf[i], &v, NULL) && v.kind == VAL_tensor && v.t)
            crumb_put_buffer(of ? of->name : "", a->bufs[i], (size_t)v.t->numel * dtype_size((dtype)v.t->dt));
    }
}

static bool run_kernel_step(call *c, kstep *k, tp_err *err)
{
    kargs a;
    if (!kernel_args(c, k, &a, err))
        return kernel_failed(k->lk, err);
    target_args args = launch_args(c, k, &a);
    if (crumb_on())
        crumb_kernel(c, k, &a);
    if (!k->k->on->launch(k->k, &args, err) || (TP_UNLIKELY(c->sent.n) && !bring_back(c, err)))
        return kernel_failed(k->lk, err);
    kernel_flaky(c, k, &a);
    return true;
}

/* The kernel behind a product or a convolution. */
static target_follow follow(const call *c, const kstep *k, const kargs *a)
{
    return k ? (target_follow){ k->k, launch_args(c, k, a) } : (target_follow){ 0 };
}

/* Memory for what is between products, or of a convolution: that of the last call where it is enough. */
static target_result chain_memory(call *c, int64_t bytes, void **out, tp_err *err)
{
    if (!c->between && !c->apart)
        c->between = atomic_exchange(&c->pr->between, NULL);
    if (!c->between || c->between->nbytes < bytes) {
        storage_unref(c->between);
        c->between = storage_new(bytes, c->pr->device, err);
    }
    *out = c->between ? c->between->data : NULL;
    return c->between ? TARGET_done : TARGET_failed;
}

/* The convolution of a step, its memory included; declined: the target cannot. arg: room for its arguments. */
static target_result convolution_args(call *c, const loop_step *s, target_convolution *p, tp_val *arg,
                                      tp_err *err)
{
    int kind = lower_row(s->node)->conv - 1;
    const target *on = c->pr->on;
    tp_val o;
    *p = (target_convolution){ .form = s->form };
    if (!slot_get(c, s->slot, &o, err))
        return TARGET_failed;
    for (int i = 0; i < s->node->narg; i++)
        if (!node_arg(c, &s->node->arg[i], &arg[i], err))
            return TARGET_failed;
    if (kind < 0) {
        p->x = arg[0].t, p->w = arg[1].t, p->y = o.t;
        p->bias = arg[2].kind == VAL_tensor ? arg[2].t : NULL;
        p->g = conv_geom_of(p->x, p->w, p->y, &arg[3]);
        return TARGET_done;
    }
    tp_tensor *t[3];
    p->kind = (uint8_t)kind;
    p->g = conv_geom_row((conv_kind)kind, o.t, arg, t);
    p->x = t[0], p->w = t[1], p->y = t[2];
    int64_t bytes = on->convolve_bytes ? on->convolve_bytes(p) : 0;
    return bytes < 0 ? TARGET_declined : bytes ? chain_memory(c, bytes, &p->scratch, err) : TARGET_done;
}

/* The row's kernel in place of the target's: on the host, where there is no other. */
static bool convolution_by_row(call *c, const loop_step *s, tp_err *err)
{
    tp_val res[OP_MAX_RETURNS] = { 0 }, o;
    if (!run_row(c, s->node, res, err))
        return false;
    bool ok = slot_get(c, s->slot, &o, err) && tensor_copy(o.t, res[0].t, err);
    val_clear(&res[0]);
    return ok;
}

/* A convolution, and where `k` is given the kernel that follows, on planes as they are finished. */
static bool run_convolution_step(call *c, const loop_step *s, kstep *k, tp_err *err)
{
    target_convolution p;
    tp_val arg[OP_MAX_PARAMS];
    kargs ka;
    target_result r = convolution_args(c, s, &p, arg, err);
    if (r == TARGET_failed)
        return false;
    if (k && !kernel_args(c, k, &ka, err))
        return kernel_failed(k->lk, err);
    p.then = follow(c, k, &ka);
    r = r == TARGET_done ? c->pr->on->convolve(&p, err) : r;
    if (r == TARGET_failed || (r == TARGET_declined && !convolution_by_row(c, s, err)) ||
        (TP_UNLIKELY(c->sent.n) && !bring_back(c, err)))
        return false;
    if (k)
        kernel_flaky(c, k, &ka);
    return true;
}

/* A kernel reads where an index points without looking: every element of it must lie inside. */
static bool run_check_step(call *c, const loop_step *s, tp_err *err)
{
    loop_gather g;
    tp_val v;
    symint size;
    bool inside;
    int64_t bad;
    if (!loop_gather_of(s->node, &g))
        return err_set(err, ERR_internal, "'%s' has no index", s->node->name);
    return slot_get(c, s->slot, &v, err) &&
           concrete(c, ir_type(s->node->arg[0].node)->size[s->nslot], &size, err) &&
           c->pr->on->inside(v.t, g.wrap ? -size : 0, size, &c->pr->late[s - c->pr->p->step.at].l, &inside,
                             &bad, err) &&
           (inside || loop_check_fail(s->node, s->nslot, bad, size, err));
}

/* What a check found after its call had ended. */
static bool found_late(const void *data, int64_t bad, int64_t size, tp_err *err)
{
    const late *l = data;
    loop_check_fail(l->node, l->dim, bad, size, err);
    err_note(err, "in node '%s', found when the device had got there", l->node->name);
    return ir_err_place(err, l->node);
}

/* The slots of the results of such a step, in their order; -1: nobody wants it. */
static void item_slots(const loop_plan *p, const ir_node *n, int slot[OP_MAX_RETURNS])
{
    for (int i = 0; i < OP_MAX_RETURNS; i++)
        slot[i] = -1;
    for (const ir_use *u = n->uses; u; u = u->next) /* item nodes alone */
        if (u->user->arg[1].i >= 0 && u->user->arg[1].i < OP_MAX_RETURNS)
            slot[u->user->arg[1].i] = (int)(uintptr_t)map_geti(&p->slot_of, (uintptr_t)u->user) - 1;
}

/* A row of several results by the device's own kernels, into memory of the plan. */
static bool run_items_step(call *c, const loop_step *s, tp_err *err)
{
    tp_val arg[OP_MAX_PARAMS], v, got[OP_MAX_RETURNS] = { 0 };
    tp_tensor *res[OP_MAX_RETURNS] = { NULL };
    int slot[OP_MAX_RETURNS];
    item_slots(c->pr->p, s->node, slot);
    for (int i = 0; i < s->node->narg; i++)
        if (!node_arg(c, &s->node->arg[i], &arg[i], err))
            return false;
    for (int i = 0; i < OP_MAX_RETURNS; i++) {
        if (slot[i] >= 0 && !slot_get(c, slot[i], &v, err))
            return false;
        res[i] = slot[i] >= 0 ? v.t : NULL;
    }
    op_call x = { .op = (op_id)s->node->op,
                  .variant = OPV_fn,
                  .row = op_row_of((op_id)s->node->op),
                  .arg = arg,
                  .cx = c->cx,
                  .err = err,
                  .res = res,
                  .on_device = true };
    own_result r = ops_run_own(&x);
    if (r != OWN_declined)
        return r == OWN_done;
    bool ok = run_row(c, s->node, got, err);
    for (int i = 0; i < OP_MAX_RETURNS; i++) {
        ok = ok && (!res[i] || tensor_copy(res[i], got[i].t, err));
        val_clear(&got[i]);
    }
    return ok;
}

/* A product, and where `k` is given the kernel that follows, on rows as they are finished. */
static bool run_product_step(call *c, const loop_step *s, kstep *k, tp_err *err)
{
    const lowering *l = lower_row(s->node);
    if (l->items)
        return run_items_step(c, s, err);
    if (l->planes || l->conv)
        return run_convolution_step(c, s, k, err);
    int first = l->factor - 1;
    tp_val o, row = vNone, a, b;
    kargs ka;
    int over = c->pr->p->slot.at[s->slot].reuses - 1;
    if (over >= 0) { /* added to what lies there */
        if (!slot_get(c, over, &o, err))
            return false;
        if (c->slot[s->slot].kind == VAL_none)
            c->slot[s->slot] = vT(tensor_ref(o.t));
        first = 1;
    }
    if (!slot_get(c, s->slot, &o, err) || !node_arg(c, &s->node->arg[first], &a, err) ||
        !node_arg(c, &s->node->arg[first + 1], &b, err) ||
        (first && over < 0 && !node_arg(c, &s->node->arg[0], &row, err)))
        return false;
    if (k && !kernel_args(c, k, &ka, err))
        return kernel_failed(k->lk, err);
    target_product p = {
        o.t, row.kind == VAL_tensor ? row.t : NULL, a.t, b.t, over >= 0, s->form, follow(c, k, &ka)
    };
    if (k && s->act && !c->visited && s->acted < k->lk->nbuf) {
        p.act = s->act;
        p.acted = ka.bufs[s->acted];
    }
    if (!c->pr->on->product(&p, err) || (TP_UNLIKELY(c->sent.n) && !bring_back(c, err)))
        return false;
    if (k)
        kernel_flaky(c, k, &ka);
    return true;
}

/* How many steps run block by block from step i on: products, the kernel on their rows, and products of those; 0: it is no
 * such step. */
static size_t chain_length(const loop_plan *p, size_t i)
{
    size_t k = i + 1 + p->step.at[i].joins, n = k + 1;
    if (n >= p->step.n || !p->step.at[k].epilogue || !p->step.at[n].attention)
        return 0;
    while (n < p->step.n && p->step.at[n].attention)
        n++;
    return n - i;
}

static int base_slot(const loop_plan *p, const ir_node *n) /* whose memory a view looks at */
{
    int s = (int)(uintptr_t)map_geti(&p->slot_of, (uintptr_t)n) - 1;
    while (s >= 0 && p->slot.at[s].kind == SLOT_view)
        s = p->slot.at[s].index;
    return s;
}

typedef struct chain { /* arguments of a run of attention */
    target_attend a;
    kargs ka;
} chain;

static bool soft_args(call *c, const loop_soft *from, const loop_kernel *lk, attend_soft *to, tp_err *err)
{
    int slot[2] = { from->top, from->part };
    void **at[2] = { &to->top, &to->part };
    *to = (attend_soft){
        .kind = (attend_kind)from->kind, .scale = from->scale, .second = from->second, .probs = -1
    };
    for (int b = 0; b < lk->nbuf; b++)
        if (lk->buf[b] == from->probs - 1)
            to->probs = b;
    for (int i = 0; i < 2; i++) {
        tp_val x;
        if (slot[i] && !slot_get(c, slot[i] - 1, &x, err))
            return false;
        if (slot[i])
            *at[i] = tensor_data(x.t);
    }
    return true;
}

static target_result chain_args(call *c, size_t i, size_t n, chain *ch, tp_err *err)
{
    const loop_plan *p = c->pr->p;
    const loop_step *s = &p->step.at[i], *end = s + n, *last = s + 2 + s->joins;
    const kstep *k = &c->pr->ks[i + 1 + s->joins];
    *ch = (chain){ .a = { .nbuf = k->lk->nbuf, .reach = last->reach, .nof = 1 + s->joins },
                   .ka = { .ints = k->cints } };
    target_attend *a = &ch->a;
    kargs *ka = &ch->ka;
    if (k->lk->fault || k->lk->nbuf > (int)COUNT(ka->bufs) || end - last > ATTEND_TO)
        return TARGET_declined;
    bool made[COUNT(ka->bufs)] = { false }; /* by a product, or read by one: no memory of the plan */
    tp_val x;
    for (int q = 0; q < a->nof; q++) {
        tp_val y;
        if (!node_arg(c, &s[q].node->arg[0], &x, err) || !node_arg(c, &s[q].node->arg[1], &y, err))
            return TARGET_failed;
        a->of[q] = (attend_of){ x.t, y.t, -1, (dtype)ir_type(s[q].node)->dt };
        for (int b = 0; b < k->lk->nbuf; b++)
            if (k->lk->buf[b] == s[q].slot)
                made[a->of[q].buf = b] = true;
    }
    for (; last < end; last++) {
        bool second = last->attention & ATTENTION_second;
        int slot = base_slot(p, last->node->arg[second].node), at = -1;
        tp_val o;
        for (int b = 0; b < k->lk->nbuf; b++)
            if (k->lk->buf[b] == slot)
                made[at = b] = true;
        if (at < 0)
            return TARGET_declined;
        if (!node_arg(c, &last->node->arg[!second], &x, err) || !slot_get(c, last->slot, &o, err))
            return TARGET_failed;
        a->to[a->nto++] = (attend_to){ x.t, o.t, at, last->attention & ATTENTION_adds, second };
    }
    for (int q = 0; q < a->nof; q++)
        if (a->of[q].buf < 0)
            return TARGET_declined;
    for (int b = 0; b < k->lk->nbuf; b++)
        if (!made[b]) {
            if (!slot_get(c, k->lk->buf[b], &x, err))
                return TARGET_failed;
            ka->bufs[b] = tensor_data(x.t);
        }
    if (k->ints) {
        ka->ints = k->lk->nint + 2 <= 64 ? ka->vals : ARENA_ARR(&c->scratch, int64_t, k->lk->nint + 2);
        if (!sym_prog_run(k->ints, c->sym, ka->ints)) {
            err_set(err, ERR_runtime, "a size overflows 64 bits");
            return TARGET_failed;
        }
    }
    if (!soft_args(c, &s[2 + s->joins].soft, k->lk, &a->soft, err))
        return TARGET_failed;
    a->kernel = (target_follow){ k->k, { .bufs = ka->bufs, .ints = ka->ints, .index = c->pr->device.index } };
    int64_t bytes = c->pr->on->attend_bytes ? c->pr->on->attend_bytes(a) : 0;
    if (!c->pr->on->attend_bytes)
        return TARGET_done;
    return bytes ? chain_memory(c, bytes, &a->scratch, err) : TARGET_declined;
}

static target_result run_attend(call *c, size_t i, size_t n, tp_err *err)
{
    chain ch;
    target_result r = chain_args(c, i, n, &ch, err);
    return r == TARGET_done ? c->pr->on->attend(&ch.a, err) : r;
}

/* From here on inputs are written, so nothing may fail: memory for the rest is asked for now. */
static bool make_rest(call *c, tp_err *err)
{
    const loop_plan *p = c->pr->p;
    tp_val v;
    for (int i = 0; i < (int)p->slot.n; i++)
        if (p->slot.at[i].kind == SLOT_buffer && p->slot.at[i].first >= c->pr->m.commit &&
            !slot_get(c, i, &v, err))
            return false;
    return true;
}

/* Says where a step failed; known: unless a kernel said so. False. */
static bool step_failed(const loop_step *s, bool known, tp_err *err)
{
    if (!known || !err->notes[0])
        err_note(err, "in node '%s'", s->node->name);
    return known && err->line ? false : ir_err_place(err, s->node);
}

static bool run_call_step(call *c, size_t i, tp_err *err)
{
    program *pr = c->pr;
    const loop_step *s = &pr->p->step.at[i];
    tp_val res[OP_MAX_RETURNS] = { 0 };
    if (s->node->kind != IR_call) {
        if (!run_custom(c, s->node, pr->sub ? &pr->sub[i] : NULL, &c->slot[s->slot], err))
            return false;
        take_items(pr, c->slot, i);
        return true;
    }
    if (!run_row(c, s->node, res, err) || (TP_UNLIKELY(fault_state > 0) && !plant_call(s->node, res, err)))
        return false;
    const op_schema *sc = &op_row_of((op_id)s->node->op)->schema;
    if (sc->nret > 1 && !sc->ret_list) {
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)sc->nret);
        for (int q = 0; q < sc->nret; q++)
            ts[q] = res[q].kind == VAL_tensor ? res[q].t : NULL;
        c->slot[s->slot] = vTs(ts, sc->nret);
    } else
        c->slot[s->slot] = res[0];
    take_items(pr, c->slot, i);
    return true;
}

/* Step i and those that run with it: how many, 0 where it failed. */
static size_t run_step(call *c, size_t i, tp_err *err)
{
    program *pr = c->pr;
    loop_plan *p = pr->p;
    const loop_step *s = &p->step.at[i];
    ops_provider_skip(TP_UNLIKELY(s->plain));
    if ((int)i == pr->m.commit && !make_rest(c, err))
        return 0;
    crumb_drop(s->kind == STEP_kernel ? "kernel"
               : s->product           ? "product"
                                      : "call",
               s->kind == STEP_kernel ? pr->ks[i].lk->name
               : s->node              ? s->node->name
                                      : "");
    const ir_node *at = s->node;
    if (s->kind == STEP_kernel && pr->ks[i].lk->nodes.n)
        at = pr->ks[i].lk->nodes.at[pr->ks[i].lk->nodes.n - 1];
    if (crumb_on() && at)
        ir_crumb(at);
    if (s->kind == STEP_kernel)
        return run_kernel_step(c, &pr->ks[i], err);
    if (s->kind == STEP_check)
        return run_check_step(c, s, err) || step_failed(s, false, err);
    if (!s->product)
        return run_call_step(c, i, err) || step_failed(s, false, err);
    bool rider = i + 1 < p->step.n && p->step.at[i + 1].epilogue;
    size_t chain = chain_length(p, i);
    if (chain) {
        target_result r = run_attend(c, i, chain, err);
        if (r == TARGET_failed)
            return step_failed(s, true, err);
        if (r == TARGET_done)
            return chain;
    }
    if (!run_product_step(c, s, rider ? &pr->ks[i + 1] : NULL, err))
        return step_failed(s, true, err);
    return rider ? 2 : 1;
}

/* --- recordings --- */
typedef struct span_key {
    VEC(uint64_t) v;
    bool host; /* something lies on the host: it is moved at every call */
} span_key;

static void key_add_tensor(call *c, span_key *k, const tp_tensor *t)
{
    k->host |= tensor_device(t).kind != c->pr->on->device;
    vec_push(&k->v, (uint64_t)(uintptr_t)tensor_data(t));
}
static bool key_add(call *c, span_key *k, const tp_val *v)
{
    if (v->kind == VAL_tensor)
        key_add_tensor(c, k, v->t);
    return true;
}

static bool key_of_convolution(call *c, const loop_step *s, span_key *k, tp_err *err)
{
    target_convolution p;
    tp_val arg[OP_MAX_PARAMS];
    target_result r = convolution_args(c, s, &p, arg, err);
    k->host |= r == TARGET_declined; /* computed there at every call */
    vec_push(&k->v, (uint64_t)(uintptr_t)p.scratch);
    return r != TARGET_failed;
}

static bool key_of_items(call *c, const loop_step *s, span_key *k, tp_err *err)
{
    int slot[OP_MAX_RETURNS];
    tp_val v;
    item_slots(c->pr->p, s->node, slot);
    for (int i = 0; i < OP_MAX_RETURNS; i++)
        if (slot[i] >= 0 && (!slot_get(c, slot[i], &v, err) || !key_add(c, k, &v)))
            return false;
    for (int i = 0; i < s->node->narg; i++) {
        if (s->node->arg[i].kind != VAL_node || !node_arg(c, &s->node->arg[i], &v, err))
            continue;
        const own_kernels *own = v.kind == VAL_tensor ? ops_owner(tensor_device(v.t)) : NULL;
        k->host |= v.kind == VAL_tensor && v.t->ndim == 4 && dtype_size((dtype)v.t->dt) == 2 &&
                   (!own || !own->attends_in_place(v.t)); /* copied at every call */
    }
    return !err_is_set(err);
}

/* The addresses and numbers that the launches of a step are made of. */
static bool key_of_step(call *c, size_t i, span_key *k, tp_err *err)
{
    const loop_step *s = &c->pr->p->step.at[i];
    const kstep *ks = &c->pr->ks[i];
    tp_val v;
    for (int b = 0; s->kind == STEP_kernel && b < ks->lk->nbuf; b++)
        if (!slot_get(c, ks->lk->buf[b], &v, err) || !key_add(c, k, &v))
            return false;
    if (s->kind == STEP_kernel)
        return true;
    int over = s->product ? c->pr->p->slot.at[s->slot].reuses - 1 : -1;
    if (over >= 0) {
        if (!slot_get(c, over, &v, err) || !key_add(c, k, &v))
            return false;
    } else if (!slot_get(c, s->slot, &v, err) || !key_add(c, k, &v))
        return false;
    for (int a = 0; s->product && a < s->node->narg; a++)
        if (s->node->arg[a].kind == VAL_node && (over < 0 || a > 0) &&
            (!node_arg(c, &s->node->arg[a], &v, err) || !key_add(c, k, &v)))
            return false;
    if (s->product && lower_row(s->node)->items)
        return key_of_items(c, s, k, err);
    return !s->product || !lower_row(s->node)->conv || key_of_convolution(c, s, k, err);
}

/* The same of n steps that run block by block; 0: they run one by one. */
static size_t key_of_chain(call *c, size_t i, size_t n, span_key *k, tp_err *err)
{
    chain ch;
    target_result r = chain_args(c, i, n, &ch, err);
    if (r != TARGET_done) {
        k->host = true; /* what would be between them is made at every call */
        return r == TARGET_failed ? 0 : n;
    }
    for (int q = 0; q < ch.a.nof; q++) {
        key_add_tensor(c, k, ch.a.of[q].a);
        key_add_tensor(c, k, ch.a.of[q].b);
    }
    for (int q = 0; q < ch.a.nto; q++) {
        key_add_tensor(c, k, ch.a.to[q].x);
        key_add_tensor(c, k, ch.a.to[q].o);
    }
    for (int q = 0; q < ch.a.nbuf; q++)
        vec_push(&k->v, (uint64_t)(uintptr_t)ch.ka.bufs[q]);
    vec_push(&k->v, (uint64_t)(uintptr_t)ch.a.scratch);
    return n;
}

/* The steps from i on by a recording: how many, 0 where they have to be launched one by one, or where it failed. */
static size_t run_span(call *c, size_t i, tp_err *err)
{
    program *pr = c->pr;
    span *s = &pr->span[i];
    span_key k = { 0 };
    recording *r;
    size_t done = 0, j = i;
    for (size_t q = i; q < i + s->n; q++)
        if ((int)q == pr->m.commit && !make_rest(c, err))
            goto end;
    for (int q = 0; pr->symbolic && q < pr->nsym; q++)
        vec_push(&k.v, (uint64_t)c->sym[q]);
    for (size_t q = i, n; q < i + s->n; q += n) {
        n = pr->p->step.at[q].product ? chain_length(pr->p, q) : 0;
        if (n ? !key_of_chain(c, q, n, &k, err) : !key_of_step(c, q, &k, err))
            goto end;
        n = MAX(n, (size_t)1);
    }
    recording_what what = k.host ? RECORDING_run : recording_look(s->made, pr->on, k.v.at, k.v.n, &r);
    if (what == RECORDING_run)
        goto end;
    if (what == RECORDING_make) {
        tp_err own = { 0 };
        bool began = pr->on->record(pr->device.index, &own), ok = began;
        while (ok && j < i + s->n) {
            size_t n = run_step(c, j, &own);
            ok = n > 0;
            j += n;
        }
        void *made = began ? pr->on->recorded(&own) : NULL;
        if (made && !ok) {
            pr->on->drop(made);
            made = NULL;
        }
        recording_keep(r, made);
        if (!made && ev_log_on(EVC_inductor, EV_INFO))
            ev_log(EVC_inductor, EV_INFO, NULL, "launches are not recorded: %s", own.msg);
    }
    if (r->made && pr->on->replay(r->made, err))
        done = s->n;
    recording_end(s->made);
end:
    vec_free(&k.v);
    return done;
}

/* A product for which the target allocates while it runs. */
static bool allocates(const program *pr, const loop_step *s)
{
    int first = lower_row(s->node)->factor - 1;
    if (!pr->on->product_allocates || first < 0)
        return false;
    const tp_tensor *t[3] = { ir_type(s->node) };
    for (int i = 0; i < 2; i++)
        t[1 + i] = s->node->arg[first + i].kind == VAL_node ? ir_type(s->node->arg[first + i].node) : NULL;
    return t[0] && t[1] && t[2] && pr->on->product_allocates(t[0], t[1], t[2]);
}

/* Launches and nothing else: no call of the host, no fault to plant. */
static bool only_launches(const program *pr, size_t i)
{
    const loop_step *s = &pr->p->step.at[i];
    if (s->kind == STEP_kernel)
        return !pr->ks[i].lk->fault && pr->ks[i].k->on == pr->on;
    return s->kind == STEP_check || (s->product && !allocates(pr, s));
}

/* 1: the step behind product i runs with it. */
static size_t follows(const loop_plan *p, size_t i)
{
    return i + 1 < p->step.n && p->step.at[i + 1].epilogue;
}

/* Step i and those that run with it, where they are nothing else: how many. */
static size_t launches_from(const program *pr, size_t i)
{
    size_t n = pr->p->step.at[i].product ? MAX(chain_length(pr->p, i), 1 + follows(pr->p, i)) : 1;
    for (size_t k = i; k < i + n; k++)
        if (!only_launches(pr, k))
            return 0;
    return n;
}

static void find_spans(program *pr)
{
    size_t n = pr->p->step.n;
    pr->span = mem_zalloc(sizeof *pr->span * MAX(n, (size_t)1));
    for (size_t i = 0, j, m; i < n; i = j + 1 + (j < n && follows(pr->p, j))) {
        for (j = i; j < n && (m = launches_from(pr, j)); j += m)
            ;
        if (j - i >= SPAN_LEAST)
            pr->span[i] = (span){ j - i, recordings_new() };
    }
}

/* For a profiler: what n steps from i on were, and the user's line. */
static void profile_steps(call *c, size_t i, size_t n, int64_t from)
{
    strbuf name = { 0 };
    const ir_loc *at = NULL;
    if (c->pr->device.kind != DEV_cpu) /* its work is queued */
        device_sync(c->pr->device, NULL);
    for (size_t k = i; k < i + n; k++) {
        const loop_step *s = &c->pr->p->step.at[k];
        const ir_node *of = s->kind != STEP_kernel ? s->node
                            : s->kernel->nodes.n   ? s->kernel->nodes.at[s->kernel->nodes.n - 1]
                                                   : NULL;
        at = ir_place(of) ? ir_place(of) : at;
        strbuf_addf(&name, "%s%s", k > i ? " + " : "",
                    s->kind == STEP_kernel ? s->kernel->name : s->node->name);
    }
    profile_add(c->pr->p->step.at[i].kind == STEP_kernel ? PROFILE_kernel : PROFILE_call, strbuf_str(&name),
                at ? at->file : NULL, at ? at->line : 0, from);
    strbuf_free(&name);
}

static void drop_tried(call *c)
{
    for (size_t i = 0; i < COUNT(c->tried); i++)
        if (c->tried[i].kind == VAL_tensor || c->tried[i].kind == VAL_tensors) {
            val_clear(&c->tried[i]);
            c->tried[i] = vNone;
        }
}

static bool program_run(run_program *rp, op_ctx *cx, const tp_val *in, tp_val *take, int nin, tp_val *out,
                        int nout, const program_visit *visit, tp_err *err)
{
    program *pr = (program *)rp;
    loop_plan *p = pr->p;
    call c = { .pr = pr, .cx = cx, .in = in, .take = take };
    _Alignas(16) char small[1024];
    bool ok = false;
    int made = 0;

    if (nin != (int)p->g->inputs.n || nout != p->nout)
        return err_set(err, ERR_type, "the compiled graph takes %d inputs and returns %d values",
                       (int)p->g->inputs.n, p->nout);
    arena_init_in(&c.scratch, small, sizeof small);
    c.slot = arena_zalloc(&c.scratch, sizeof *c.slot * (size_t)MAX(p->slot.n, 1));
    if (TP_UNLIKELY(pool_reported) &&
        !pool_sync(err)) /* what went wrong before shows here, unless somebody asked */
        goto done;
    if (pr->symbolic)
        bind_symbols(&c);
    c.apart = pr->on->records && pr->on->records();
    c.visited = visit != NULL;
    if (pr->m.block && (c.apart || !(c.block = atomic_exchange(&pr->kept, NULL))) &&
        !(c.block = storage_new(pr->m.block, pr->device, err)))
        goto done;
    for (size_t i = 0; i < p->step.n;) {
        if (TP_UNLIKELY(visit != NULL))
            visit->fn(visit->data, &c, i);
        if (TP_UNLIKELY(visit != NULL))
            drop_tried(&c);
        int64_t t = profile_start();
        size_t n = 0;
        if (pr->span && pr->span[i].n && !visit && !t && !c.apart && TP_LIKELY(fault_state <= 0)) {
            n = run_span(&c, i, err);
            if (!n && err_is_set(err))
                goto done;
        }
        if (!n)
            n = run_step(&c, i, err);
        if (!n)
            goto done;
        if (TP_UNLIKELY(t))
            profile_steps(&c, i, n, t);
        for (; n; n--)
            release_dead(&c, i++);
    }
    crumb_drop("results", p->g->name);
    for (; made < nout; made++) {
        if (p->out[made] < 0) {
            if (!node_arg(&c, &p->g->output->arg[made], &out[made], err))
                goto done;
            continue;
        }
        tp_val v;
        if (!slot_get(&c, p->out[made], &v, err))
            goto done;
        out[made] = v;
        if (v.kind == VAL_tensor)
            tensor_ref(v.t);
    }
    ok = true;
done:
    ops_provider_skip(false);
    drop_tried(&c);
    for (size_t i = 0; i < c.moved.n; i++)
        tensor_unref(c.moved.at[i]);
    vec_free(&c.moved);
    vec_free(&c.sent);
    for (size_t i = 0; i < p->slot.n; i++)
        if (c.slot[i].kind == VAL_tensor || c.slot[i].kind == VAL_tensors)
            val_clear(&c.slot[i]);
    /* the next call finds a small one among the freed blocks that storage keeps; a large one would drive those out */
    if (c.block && keeps_block(pr) && c.block->refs == 1 && !c.apart)
        c.block = atomic_exchange(&pr->kept, c.block);
    storage_unref(c.block);
    /* recordings need it at the same address; others find it again in the cache of the device */
    storage_unref(c.apart || !pr->span ? c.between : atomic_exchange(&pr->between, c.between));
    arena_free(&c.scratch);
    if (!ok)
        for (int i = 0; i < made; i++)
            val_clear(&out[i]);
    return ok;
}

static bool program_call(run_program *rp, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                         tp_err *err)
{
    return program_run(rp, cx, in, NULL, nin, out, nout, NULL, err);
}
static bool program_take(run_program *rp, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    return program_run(rp, cx, in, in, nin, out, nout, NULL, err);
}

/* A recording is no time to run something else: it would be replayed for ever. */
static bool program_ready(run_program *rp, bool wait, tp_err *err)
{
    program *pr = (program *)rp;
    wait |= pr->on->records && pr->on->records();
    for (size_t i = 0; i < pr->p->step.n; i++) {
        const target_code *k = pr->p->step.at[i].kind == STEP_kernel ? pr->ks[i].k : NULL;
        if (k && k->on->ready && !k->on->ready(k, wait, err))
            return false;
        for (int j = 0; pr->sub && j < 2; j++)
            if (pr->sub[i].prog[j] && !run_program_ready(pr->sub[i].prog[j], wait, err))
                return false;
    }
    return true;
}

/* ---- for who measures ---- */
bool program_look(run_program *p, op_ctx *cx, const tp_val *in, int nin, const program_visit *v, tp_err *err)
{
    int nout = ((program *)p)->p->nout;
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    bool ok = program_run(p, cx, in, NULL, nin, out, nout, v, err);
    for (int i = 0; ok && i < nout; i++)
        val_clear(&out[i]);
    free(out);
    return ok;
}

bool program_at_run(program_at *at, size_t step, tp_err *err)
{
    const loop_step *s = &at->pr->p->step.at[step];
    if (s->kind == STEP_kernel || s->product)
        return run_step(at, step, err) > 0;
    drop_tried(at);
    ops_provider_skip(s->plain);
    return run_row(at, s->node, at->tried, err);
}

static int add_piece(const tp_val *v, program_piece *out, int n, int most)
{
    if (v->kind != VAL_tensor || !v->t || !v->t->numel || n >= most)
        return n;
    int64_t last = 0;
    for (int d = 0; d < v->t->ndim; d++)
        last += (v->t->size[d] - 1) * v->t->stride[d];
    out[n] = (program_piece){ tensor_data(v->t), (last + 1) * (int64_t)dtype_size((dtype)v->t->dt),
                              (dtype)v->t->dt };
    return n + 1;
}

int program_at_written(program_at *at, size_t step, size_t nstep, program_piece *out, int most)
{
    const loop_plan *p = at->pr->p;
    int n = 0;
    tp_err err = { 0 };
    tp_val v;
    bool call = p->step.at[step].kind == STEP_extern && !p->step.at[step].product;
    for (size_t i = 0; call && i < COUNT(at->tried); i++)
        n = add_piece(&at->tried[i], out, n, most);
    for (size_t i = step; !call && i < step + nstep; i++) {
        const loop_step *s = &p->step.at[i];
        int over = s->product ? p->slot.at[s->slot].reuses : 0;
        if (s->product && !p->slot.at[s->slot].transient && slot_get(at, over ? over - 1 : s->slot, &v, &err))
            n = add_piece(&v, out, n, most);
        for (int b = 0; s->kind == STEP_kernel && b < s->kernel->nbuf; b++)
            if ((s->kernel->k->bufs[b].flags & VIR_OUT) && !p->slot.at[s->kernel->buf[b]].transient &&
                slot_get(at, s->kernel->buf[b], &v, &err))
                n = add_piece(&v, out, n, most);
    }
    return n;
}

void program_use(run_program *p, size_t step, loop_kernel *lk, const target_code *k)
{
    kstep *s = &((program *)p)->ks[step];
    s->k = k;
    s->lk = ((program *)p)->p->step.at[step].kernel = lk;
    if (!s->ints) {
        s->cpar = lk->par;
        s->cwork = lk->work;
    }
}

void program_nested_free(program_nested *sub, size_t nstep)
{
    for (size_t i = 0; sub && i < nstep; i++)
        for (int k = 0; k < 2; k++) {
            run_program_free(sub[i].prog[k]);
            ir_prog_free(sub[i].interp[k]);
        }
    free(sub);
}

static void program_free(run_program *rp)
{
    program *pr = (program *)rp;
    for (size_t i = 0; pr->ks && i < pr->p->step.n; i++) {
        sym_prog_free(pr->ks[i].ints);
        free(pr->ks[i].cints);
    }
    program_nested_free(pr->sub, pr->p->step.n);
    for (size_t i = 0; i < pr->p->step.n; i++) {
        if (pr->on->forget)
            pr->on->forget(&pr->late[i].l);
        if (pr->span)
            recordings_free(pr->span[i].made, pr->on);
    }
    free(pr->late), free(pr->span);
    free(pr->ks);
    loop_memory_free(&pr->m);
    storage_unref(pr->kept);
    storage_unref(pr->between);
    for (size_t i = 0; pr->result && i < pr->p->slot.n; i++)
        storage_unref(pr->result[i]);
    free((void *)pr->result);
    loop_plan_free(pr->p);
    free(pr);
}

static void ready_kernel(kstep *k, loop_kernel *lk, const target_code *made, bool alone)
{
    k->lk = lk;
    k->k = made;
    k->alone = alone;
    bool sym = sym_is_expr(lk->par) || sym_is_expr(lk->work) || lk->nint > 0;
    if (sym) {
        symint *v = mem_alloc(sizeof *v * (size_t)(lk->nint + 2));
        if (lk->nint)
            memcpy(v, lk->ints, sizeof *v * (size_t)lk->nint);
        v[lk->nint] = lk->par;
        v[lk->nint + 1] = lk->work;
        k->ints = sym_prog_new(v, lk->nint + 2);
        free(v);
    } else {
        k->cpar = lk->par;
        k->cwork = lk->work;
    }
}

/* A program has one device, which its values name. */
static tp_device device_of(const loop_plan *p, const target *t)
{
    for (size_t i = 0; i < p->slot.n; i++) {
        const tp_tensor *x = p->slot.at[i].type;
        if (x && tensor_device(x).kind == t->device)
            return tensor_device(x);
    }
    return (tp_device){ (int8_t)t->device, -1 };
}

run_program *program_new(const program_parts *x)
{
    program *pr = mem_zalloc(sizeof *pr);
    loop_plan *p = x->plan;
    const ir_graph *g = p->g;
    pr->base = (run_program){ program_call, program_free, program_take, program_ready };
    pr->p = p;
    pr->on = x->target;
    pr->device = device_of(p, x->target);
    pr->sub = x->nested;
    pr->m = x->memory;
    pr->symbolic = g->env && sym_env_n_symbols(g->env) > 0;
    pr->nsym = g->env ? sym_env_n_symbols(g->env) : 0;
    pr->ks = mem_zalloc(sizeof *pr->ks * MAX(p->step.n, (size_t)1));
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_kernel)
            ready_kernel(&pr->ks[i], p->step.at[i].kernel, x->kernel[i], x->alone[i]);
    pr->late = mem_zalloc(sizeof *pr->late * MAX(p->step.n, (size_t)1));
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_check)
            pr->late[i] = (late){ { found_late, &pr->late[i], 0 }, p->step.at[i].node, p->step.at[i].nslot };
    if (x->record && pr->on->record)
        find_spans(pr);
    if (x->keep_results)
        pr->result = mem_zalloc(sizeof *pr->result * MAX(p->slot.n, (size_t)1));
    return &pr->base;
}

const loop_plan *program_plan(const run_program *p)
{
    return p->call == program_call ? ((const program *)p)->p : NULL;
}

const target_code *program_kernel(const run_program *p, size_t step)
{
    return ((const program *)p)->ks[step].k;
}
