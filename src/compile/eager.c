/* eager.c - an operator on device tensors is a graph of one node: compiled as any other, kept by the types of its arguments.
 * What has no kernel is computed on the host, between copies, and said once for each operator. */
#include "compile/eager.h"
#include "base/fault.h"
#include "base/map.h"
#include "compile/backend.h"
#include "compile/eager_sizes.h"
#include "compile/inductor.h"
#include "events/events.h"
#include "ops/ondevice.h"
#include "ops/random.h"
#include "run/step.h"
#include <pthread.h>

typedef struct entry {
    run_program *p;    /* NULL: runs on the host */
    bool shared;       /* by sizes: e of a sized */
    bool hosted;       /* said to be so by the run: the program called the operator itself */
    int users;         /* calls that run it now */
    int64_t last;      /* call that asked for it */
    struct sized *any; /* its program is for more than these sizes */
    int uses;          /* of that one */
} entry;
typedef struct sized { /* a program with symbols in the place of sizes; never freed */
    entry e;           /* first */
    sizes_names names;
    struct sized *next; /* for the same sizes otherwise, but other assumptions */
} sized;

enum {
    MOST_ENTRIES = 4096, /* numbers are part of the key: a loop that counts makes an entry each time */
    MOST_SIZED = 4,      /* with different assumptions */
    USES = 64            /* from which on sizes are worth a program of their own */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map entries;  /* key -> entry */
static map seen;     /* key without sizes -> sizes_seen */
static map sized_of; /* that and what sizes_key adds -> sized */
static map told;     /* operators that run on the host */
static eager_stats stats;
static _Thread_local entry *running; /* the innermost one-node program of this thread */
static _Thread_local op_id running_op;

eager_stats eager_get_stats(void)
{
    pthread_mutex_lock(&lock);
    eager_stats s = stats;
    pthread_mutex_unlock(&lock);
    step_stats t = step_get_stats();
    s.first = t.first, s.taken_over = t.taken_over;
    return s;
}

/* --- tensors of a call -------------------------------------------------------------------------------------------- */
typedef struct operands {
    VEC(tp_tensor *) t;      /* each once; owned */
    VEC(tp_tensor **) lists; /* of arguments; owned */
} operands;

static int operand_find(const operands *o, const tp_tensor *t)
{
    for (size_t i = 0; i < o->t.n; i++) {
        const tp_tensor *x = o->t.at[i];
        if (x == t || (x->storage == t->storage && x->dt == t->dt && x->offset == t->offset &&
                       tensor_same_size(x, t) && !memcmp(x->stride, t->stride, sizeof *x->stride * x->ndim)))
            return (int)i;
    }
    return -1;
}

static void operands_free(operands *o)
{
    for (size_t i = 0; i < o->t.n; i++)
        tensor_unref(o->t.at[i]);
    for (size_t i = 0; i < o->lists.n; i++)
        free(o->lists.at[i]);
    vec_free(&o->t);
    vec_free(&o->lists);
}

/* The tensor's number; those of one element that lie on the host are moved. -1 with an error. */
static int operand_add(operands *o, tp_tensor *t, tp_device dev, tp_err *err)
{
    tp_tensor *here = tensor_to(t, dev, err);
    if (!here)
        return -1;
    int i = operand_find(o, here);
    if (i >= 0) {
        tensor_unref(here);
        return i;
    }
    vec_push(&o->t, here);
    return (int)o->t.n - 1;
}

/* --- the key ------------------------------------------------------------------------------------------------------ */
static void key_add(strbuf *b, const void *p, size_t n) { strbuf_addn(b, p, n); }
static void key_int(strbuf *b, int64_t v) { key_add(b, &v, sizeof v); }

/* Numbers and lists; tensors are operands, which take the place of the arguments. */
static bool key_val(strbuf *key, operands *o, tp_val *v, tp_device dev, tp_err *err)
{
    key_int(key, v->kind | (int64_t)(v->kind == VAL_str ? 0 : v->n) << 8); /* of a string nobody sets it */
    switch (v->kind) {
    case VAL_none: return true;
    case VAL_tensor: {
        int i = operand_add(o, v->t, dev, err);
        key_int(key, i);
        if (i >= 0)
            v->t = o->t.at[i];
        return i >= 0;
    }
    case VAL_tensors:
        for (int k = 0; k < v->n; k++) {
            int i = v->ts[k] ? operand_add(o, v->ts[k], dev, err) : -2;
            key_int(key, i);
            if (i == -1)
                return false;
            if (i >= 0)
                v->ts[k] = o->t.at[i];
        }
        return true;
    case VAL_str: key_add(key, v->s, strlen(v->s) + 1); return true;
    case VAL_ints: key_add(key, v->ints, sizeof *v->ints * (size_t)v->n); return true;
    case VAL_complex:
    case VAL_floats: key_add(key, v->floats, sizeof *v->floats * (size_t)v->n); return true;
    case VAL_bools: key_add(key, v->bools, sizeof *v->bools * (size_t)v->n); return true;
    case VAL_bool: key_int(key, v->b); return true;
    case VAL_device: key_int(key, v->dev.kind + v->dev.index * 256); return true;
    default: key_int(key, v->i); return true;
    }
}

static void key_type(strbuf *key, const tp_tensor *t)
{
    key_int(key, t->dt + t->ndim * 256 + tensor_device(t).index * 65536);
    key_add(key, t->size, sizeof *t->size * t->ndim);
    key_add(key, t->stride, sizeof *t->stride * t->ndim);
}

/* --- the program -------------------------------------------------------------------------------------------------- */
/* The kernel writes the first argument, not a new tensor (which the caller may copy there). */
static bool writes_self(const op_call *c)
{
    return c->row->flags & OPF_MUT || (c->variant == OPV_inplace && c->res && c->res[0] == c->arg[0].t);
}
static op_variant variant_of(const op_call *c) { return writes_self(c) ? c->variant : OPV_fn; }

static tp_val in_graph(const tp_val *v, ir_node **in, const operands *o, ir_node **list)
{
    if (v->kind == VAL_tensor)
        return (tp_val){ .kind = VAL_node, .node = in[operand_find(o, v->t)] };
    if (v->kind != VAL_tensors)
        return *v;
    for (int k = 0; k < v->n; k++)
        list[k] = v->ts[k] ? in[operand_find(o, v->ts[k])] : NULL;
    return (tp_val){ .kind = VAL_nodes, .n = v->n, .nodes = list };
}

/* Inputs of the graph: the tensors, else the numbers that have names. */
static void add_inputs(ir_graph *g, const operands *o, const sizes *s, const sizes_names *names, ir_node **in)
{
    for (size_t i = 0; i < o->t.n; i++) {
        const tp_tensor *t = o->t.at[i];
        tp_tensor *type = names
                              ? sizes_type(names, s, o->t.at, (int)i)
                              : tensor_new_fake((dtype)t->dt, t->ndim, t->size, t->stride, tensor_device(t));
        type->flags |= t->flags & TF_wrapped;
        in[i] = ir_add_placeholder(g, "x", "", type);
        tensor_unref(type);
    }
    for (int i = 0; names && !o->t.n && i < s->n; i++)
        ir_add_placeholder_val(g, "s", "", vI(names->name[i]));
    if (names)
        g->env = names->env;
}

/* The arguments of a call without tensors, with names in the place of numbers. ints: room for SIZES_MOST. */
static void name_numbers(tp_val *v, int n, const sizes_names *names, symint *ints)
{
    const symint *at = names->name;
    for (int i = 0; i < n; i++) {
        if (v[i].kind == VAL_int)
            v[i].i = *at++;
        else if (v[i].kind == VAL_ints) {
            memcpy(ints, at, sizeof *ints * (size_t)v[i].n);
            v[i].ints = ints;
            ints += v[i].n, at += v[i].n;
        }
    }
}

/* arg: those of the call, all on the device. names: NULL, or symbols in the place of sizes. */
static ir_graph *one_node(const op_call *c, const tp_val *arg, const operands *o, const sizes *s,
                          const sizes_names *names, tp_err *err)
{
    ir_graph *g = ir_graph_new(c->row->name);
    ir_node *n = NULL, **in = mem_zalloc(sizeof *in * (o->t.n + 1));
    tp_val *v = mem_zalloc(sizeof *v * (size_t)MAX(c->row->schema.nparam, 1)), out[OP_MAX_RETURNS];
    symint ints[SIZES_MOST];
    int nout = 0, nlist = 0;
    add_inputs(g, o, s, names, in);
    for (int i = 0; i < c->row->schema.nparam; i++)
        nlist += arg[i].kind == VAL_tensors ? arg[i].n : 0;
    ir_node **list = mem_zalloc(sizeof *list * (size_t)(nlist + 1)), **at = list;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        v[i] = in_graph(&arg[i], in, o, at);
        at += arg[i].kind == VAL_tensors ? arg[i].n : 0;
    }
    if (names && !o->t.n)
        name_numbers(v, c->row->schema.nparam, names, ints);
    n = ir_build(g, c->op, variant_of(c), v, c->row->schema.nparam, err);
    bool ok = n != NULL, items = c->row->schema.nret > 1 || c->row->schema.ret_list;
    if (ok && !writes_self(c))
        for (int i = 0; i < c->nout && ok; i++) {
            if (c->out[i].kind == OUT_none)
                continue;
            ir_node *r = c->out[i].kind != OUT_new ? NULL : items ? ir_build_item(g, n, i, err) : n;
            ok = r != NULL;
            out[nout++] = (tp_val){ .kind = VAL_node, .node = r };
        }
    if (ok)
        ir_set_output(g, out, nout);
    else {
        ir_graph_free(g);
        g = NULL;
    }
    free(in);
    free(v);
    free(list);
    return g;
}

static void say_hosted(const op_call *c, const char *why)
{
    pthread_mutex_lock(&lock);
    bool first = !map_get(&told, c->row->full);
    map_put(&told, c->row->full, (void *)1);
    pthread_mutex_unlock(&lock);
    if (first && ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL, "'%s' runs on the host, between copies: %s", c->row->full, why);
}

/* stored: only what the disk cache has. */
static run_program *compile(const op_call *c, const tp_val *arg, const operands *o, const sizes *s,
                            const sizes_names *names, bool stored)
{
    tp_err err = { 0 };
    op_ctx cx = *c->cx;
    tp_comp comp = { .err = &err, .cx = &cx, .stored = stored };
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.look = NULL;
    ir_graph *g = one_node(c, arg, o, s, names, &err);
    run_program *p = NULL;
    if (g) {
        g->grad_mode = false;
        p = backend_inductor.compile(&backend_inductor, &comp, g, NULL);
        ir_graph_free(g);
    }
    if (!p && !names && !stored)
        say_hosted(c, err.msg);
    return p;
}

/* May the row be a program at all? Else it is computed on the host. */
static const char *no_program(const op_call *c)
{
    if (c->row->flags & (OPF_DYN | OPF_SYNC))
        return "its result depends on values";
    if (!strcmp(c->row->lower_name, "none") && !strcmp(c->row->decomp_name, "none") && !writes_self(c) &&
        !(c->row->flags & OPF_RAND))
        return "it has no loops";
    if (!c->nout)
        return "it has no result";
    for (int i = 0; i < c->row->schema.nparam; i++)
        if (c->arg[i].kind == VAL_gen && c->arg[i].gen)
            return "it draws from a generator";
    for (int i = 0; i < c->nout; i++)
        if (c->out[i].kind == OUT_num ||
            (!writes_self(c) && c->out[i].kind != OUT_new && c->out[i].kind != OUT_none))
            return "a result is no new tensor";
    if (c->nout > OP_MAX_RETURNS)
        return "it has many results";
    return NULL;
}

static bool same_layout(const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt && tensor_same_size(a, b) &&
           !memcmp(a->stride, b->stride, sizeof *a->stride * a->ndim);
}

/* The results in place of those that were made for the kernel. */
static bool take_results(op_call *c, tp_val *out)
{
    bool ok = true;
    for (int i = 0, at = 0; i < c->nout && !writes_self(c); i++) {
        if (c->out[i].kind == OUT_none)
            continue;
        tp_tensor *r = out[at++].t;
        if (ok && same_layout(r, c->res[i]) && device_eq(tensor_device(r), tensor_device(c->res[i])) &&
            c->res[i]->refs == 1 && c->res[i] != c->into && r->refs == 1 && !r->offset) {
            r->flags |= c->res[i]->flags & TF_inference;
            tensor_unref(c->res[i]);
            c->res[i] = tensor_ref(r);
        } else
            ok = ok && tensor_copy(c->res[i], r, c->err);
        tensor_unref(r);
    }
    return ok;
}

/* numbers: those of a call without tensors, where they are inputs of the program. */
static bool run_entry(op_call *c, entry *e, const operands *o, const sizes *numbers)
{
    op_ctx cx = *c->cx;
    tp_val out[OP_MAX_RETURNS] = { 0 }, *in = mem_zalloc(sizeof *in * (o->t.n + SIZES_MOST));
    entry *outer = running;
    int nin = (int)o->t.n;
    op_id outer_op = running_op;
    int nout = 0;
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.into = NULL;
    for (size_t i = 0; i < o->t.n; i++)
        in[i] = vT(o->t.at[i]);
    if (numbers && !nin)
        for (; nin < numbers->n; nin++)
            in[nin] = vI(numbers->at[nin]);
    for (int i = 0; i < c->nout && !writes_self(c); i++)
        nout += c->out[i].kind != OUT_none;
    running = e;
    running_op = c->op;
    uint32_t version = writes_self(c) ? c->arg[0].t->storage->version : 0;
    bool ok = run_program_call(e->p, &cx, in, nin, out, nout, c->err);
    running = outer;
    running_op = outer_op;
    if (writes_self(c)) /* the caller counts */
        c->arg[0].t->storage->version = version;
    free(in);
    return ok && take_results(c, out);
}

/* --- on the host -------------------------------------------------------------------------------------------------- */
typedef struct hosted {
    tp_storage *from, *to; /* of a device, and its copy */
} hosted;
typedef struct visit {
    VEC(hosted) s;
    VEC(tp_tensor *) made; /* owned */
    tp_err *err;
} visit;

static tp_storage *host_storage(visit *h, tp_storage *s)
{
    for (size_t i = 0; i < h->s.n; i++)
        if (h->s.at[i].from == s)
            return h->s.at[i].to;
    tp_storage *to = storage_new(s->nbytes, DEVICE_CPU, h->err);
    if (to && !device_copy(DEVICE_CPU, to->data, s->device, s->data, s->nbytes, h->err)) {
        storage_unref(to);
        to = NULL;
    }
    if (to)
        vec_push(&h->s, ((hosted){ s, to }));
    return to;
}

static tp_tensor *host_tensor(visit *h, tp_tensor *t)
{
    if (!t || !(t->storage->flags & ST_device))
        return t;
    tp_storage *s = host_storage(h, t->storage);
    if (!s)
        return NULL;
    tp_tensor *r = tensor_on(s, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    r->flags |= t->flags & TF_wrapped;
    vec_push(&h->made, r);
    return r;
}

static bool host_args(visit *h, const op_call *c, tp_val *arg, tp_tensor ***lists)
{
    int total = 0;
    for (int i = 0; i < c->row->schema.nparam; i++)
        total += c->arg[i].kind == VAL_tensors ? c->arg[i].n : 0;
    tp_tensor **at = *lists = mem_zalloc(sizeof *at * (size_t)(total + 1));
    for (int i = 0; i < c->row->schema.nparam; i++) {
        arg[i] = c->arg[i];
        if (arg[i].kind == VAL_device)
            arg[i].dev = DEVICE_CPU;
        else if (arg[i].kind == VAL_tensor && !(arg[i].t = host_tensor(h, arg[i].t)))
            return false;
        else if (arg[i].kind == VAL_tensors) {
            arg[i].ts = at;
            for (int k = 0; k < arg[i].n; k++, at++)
                if (c->arg[i].ts[k] && !(*at = host_tensor(h, c->arg[i].ts[k])))
                    return false;
        }
    }
    return true;
}

/* The row's kernel of the CPU. */
static bool run_hosted(op_call *c)
{
    visit h = { .err = c->err };
    op_call x = *c;
    int n = c->row->schema.nparam, nres = c->row->flags & OPF_DYN ? c->row->schema.nret : c->nout;
    tp_val *arg = mem_zalloc(sizeof *arg * (size_t)MAX(n, 1));
    tp_tensor **lists = NULL, **res = mem_zalloc(sizeof *res * (size_t)MAX(nres, OP_MAX_RETURNS));
    op_out *out = mem_alloc(sizeof *out * (size_t)MAX(c->nout, 1));
    tp_device dev = DEVICE_CPU;
    bool dyn = c->row->flags & OPF_DYN, ok = host_args(&h, c, arg, &lists);
    for (int i = 0; i < n && device_ops_of(dev)->host; i++)
        dev = c->arg[i].kind == VAL_tensor ? tensor_device(c->arg[i].t)
              : c->arg[i].kind == VAL_tensors && c->arg[i].n && c->arg[i].ts[0]
                  ? tensor_device(c->arg[i].ts[0])
                  : dev;
    memcpy(out, c->out, sizeof *out * (size_t)c->nout);
    for (int i = 0; i < c->nout; i++)
        out[i].dev = out[i].dev.kind == DEV_meta ? out[i].dev : DEVICE_CPU;
    for (int i = 0; ok && !dyn && i < c->nout; i++) {
        tp_tensor *t = c->res[i];
        if (!t || c->out[i].kind == OUT_num)
            continue;
        if (c->out[i].kind == OUT_self || writes_self(c) || c->out[i].kind == OUT_view)
            res[i] = host_tensor(&h, t);
        else if ((res[i] = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, c->err)))
            vec_push(&h.made, res[i]);
        ok = res[i] != NULL;
    }
    x.arg = arg;
    x.out = out;
    x.res = res;
    x.into = NULL;
    x.on_device = false;
    ok = ok && op_kernel_of(c)(&x);
    for (int i = 0; ok && i < c->nout; i++)
        if (c->out[i].kind == OUT_num)
            c->out[i].num = out[i].num;
    for (int i = 0; dyn && i < nres; i++) {
        if (ok && res[i])
            ok = (c->res[i] = tensor_to(res[i], dev, c->err)) != NULL;
        tensor_unref(res[i]);
    }
    for (int i = 0; ok && !dyn && i < c->nout; i++)
        if (res[i] && c->out[i].kind == OUT_new && !writes_self(c))
            ok = tensor_copy(c->res[i], res[i], c->err);
    for (int i = 0; ok && i < n; i++) /* what the row wrote */
        if (c->arg[i].kind == VAL_tensor && c->arg[i].t->storage->flags & ST_device &&
            (c->row->schema.param[i].mutated || (writes_self(c) && i == 0))) {
            tp_storage *s = c->arg[i].t->storage;
            ok = device_copy(s->device, s->data, DEVICE_CPU, host_storage(&h, s)->data, s->nbytes, c->err);
        }
    for (size_t i = 0; i < h.made.n; i++)
        tensor_unref(h.made.at[i]);
    for (size_t i = 0; i < h.s.n; i++)
        storage_unref(h.s.at[i].to);
    vec_free(&h.made);
    vec_free(&h.s);
    free(arg);
    free(lists);
    free(res);
    free(out);
    return ok;
}

/* --- copies between devices --------------------------------------------------------------------------------------- */
/* True: it was one. */
static bool copy_between(op_call *c, bool *ok)
{
    bool into = c->row->eager == eager_copy;
    if (!into && c->row->eager != eager_clone)
        return false;
    tp_tensor *dst = into ? c->arg[0].t : c->res[0], *src = c->arg[into].t;
    if (device_eq(tensor_device(dst), tensor_device(src)))
        return false;
    if (same_layout(dst, src) && tensor_is_dense(dst))
        *ok = device_copy(tensor_device(dst), tensor_data(dst), tensor_device(src), tensor_data(src),
                          dst->numel * (int64_t)dtype_size((dtype)dst->dt), c->err);
    else if (device_ops_of(tensor_device(dst))->host) { /* as it is, then converted there */
        tp_tensor *here = tensor_to(src, tensor_device(dst), c->err);
        *ok = here && tensor_copy(dst, here, c->err);
        tensor_unref(here);
    } else { /* converted first: the device gets what it keeps */
        tp_tensor *here = tensor_to(src, DEVICE_CPU, c->err),
                  *as = here ? tensor_new_strided((dtype)dst->dt, dst->ndim, dst->size,
                                                  tensor_is_dense(dst) ? dst->stride : NULL, DEVICE_CPU,
                                                  c->err)
                             : NULL,
                  *there = as && tensor_copy(as, here, c->err) ? tensor_to(as, tensor_device(dst), c->err)
                                                               : NULL;
        *ok = there &&
              (same_layout(dst, there) && tensor_is_dense(dst)
                   ? device_copy(tensor_device(dst), tensor_data(dst), tensor_device(there),
                                 tensor_data(there), dst->numel * (int64_t)dtype_size((dtype)dst->dt), c->err)
                   : tensor_copy(dst, there, c->err));
        tensor_unref(here);
        tensor_unref(as);
        tensor_unref(there);
    }
    return true;
}

/* --- copies between layouts ----------------------------------------------------------------------------------------- */
/* x with its dimensions in the order of `by`, the longest stride first. */
static tp_tensor *in_order_of(const tp_tensor *x, const tp_tensor *by)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int order[TP_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        int at = i;
        for (; at > 0 && by->stride[order[at - 1]] < by->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < x->ndim; i++)
        size[i] = x->size[order[i]], stride[i] = x->stride[order[i]];
    return tensor_on(x->storage, (dtype)x->dt, x->ndim, size, stride, x->offset);
}

/* True: it was a copy into memory without gaps, in another order than the source's. It is read in that order by a kernel, and then
 * copied as it is. */
static bool copy_turned(op_call *c, bool *ok)
{
    if (c->row->eager != eager_copy || c->arg[1].kind != VAL_tensor)
        return false;
    tp_tensor *dst = c->arg[0].t, *src = c->arg[1].t;
    if (dst->dt != src->dt || !dtype_is_plain((dtype)dst->dt) || !tensor_same_size(dst, src) || !dst->numel ||
        !device_eq(tensor_device(dst), tensor_device(src)) || dst->storage == src->storage ||
        same_layout(dst, src) || !tensor_is_dense(dst))
        return false;
    op_ctx cx = *c->cx;
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.into = NULL;
    tp_tensor *as = in_order_of(src, dst);
    tp_val arg[2] = { vT(as), vMF(MF_contiguous) }, out = vNone;
    *ok = ops_call(&cx, OP_clone, OPV_fn, arg, &out, c->err) &&
          device_copy(tensor_device(dst), tensor_data(dst), tensor_device(dst), tensor_data(out.t),
                      dst->numel * (int64_t)dtype_size((dtype)dst->dt), c->err);
    val_clear(&out);
    tensor_unref(as);
    return true;
}

/* True: zeros were written to memory without gaps. */
static bool zeroed(op_call *c, bool *ok)
{
    tp_tensor *t = c->row->eager == eager_zero_ ? c->arg[0].t : NULL;
    if (!t || !tensor_is_dense(t))
        return false;
    *ok = device_ops_of(tensor_device(t))
              ->fill(tensor_device(t), tensor_data(t), 0, t->numel * (int64_t)dtype_size((dtype)t->dt),
                     c->err);
    return true;
}

/* --- one call ----------------------------------------------------------------------------------------------------- */
static bool key_of(const op_call *c, tp_device dev, tp_val *arg, strbuf *key, size_t *head, operands *o)
{
    key_int(key, (int64_t)c->op | (int64_t)variant_of(c) << 32 | (int64_t)c->cx->deterministic << 40 |
                     (int64_t)c->cx->default_dtype << 41);
    for (int i = 0; i < c->row->schema.nparam; i++) {
        arg[i] = c->arg[i];
        if (arg[i].kind == VAL_tensors) {
            arg[i].ts = memcpy(mem_alloc(sizeof *arg[i].ts * (size_t)MAX(arg[i].n, 1)), arg[i].ts,
                               sizeof *arg[i].ts * (size_t)arg[i].n);
            vec_push(&o->lists, arg[i].ts);
        }
        if (!key_val(key, o, &arg[i], dev, c->err))
            return false;
    }
    *head = key->n;
    for (size_t i = 0; i < o->t.n; i++)
        key_type(key, o->t.at[i]);
    return true;
}

static int by_age(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The half that was asked for longest ago goes, but for what runs. */
static void forget_some(void)
{
    int64_t *age = mem_alloc(sizeof *age * (entries.n + 1));
    size_t n = 0;
    for (size_t i = 0; i < entries.cap; i++)
        if (map_slot_live(&entries.slots[i]))
            age[n++] = ((entry *)entries.slots[i].val)->last;
    qsort(age, n, sizeof *age, by_age);
    int64_t middle = age[n / 2];
    for (size_t i = 0; i < entries.cap; i++) {
        entry *e = map_slot_live(&entries.slots[i]) ? entries.slots[i].val : NULL;
        if (!e || e->users || e->last >= middle)
            continue;
        map_deln(&entries, map_slot_key(&entries.slots[i]), map_slot_len(&entries.slots[i]));
        run_program_free(e->p);
        free(e);
    }
    free(age);
}

/* The key of a call without sizes: its tensors by type, its numbers where there are tensors. */
static void loose_key(const op_call *c, const tp_val *arg, const strbuf *key, size_t head, const operands *o,
                      strbuf *out)
{
    if (o->t.n)
        strbuf_addn(out, key->s, head);
    else {
        strbuf_addn(out, key->s, sizeof(int64_t));
        for (int i = 0; i < c->row->schema.nparam; i++) {
            tp_val v = arg[i];
            operands none = { 0 };
            if (v.kind == VAL_int || v.kind == VAL_ints)
                key_int(out, v.kind | (int64_t)v.n << 8);
            else
                key_val(out, &none, &v, DEVICE_CPU, NULL);
        }
    }
    for (size_t i = 0; i < o->t.n; i++)
        key_int(out, o->t.at[i]->dt + o->t.at[i]->ndim * 256 + tensor_device(o->t.at[i]).index * 65536 +
                         (int64_t)(o->t.at[i]->flags & TF_wrapped) * ((int64_t)1 << 32));
}

static sized *sized_new(op_call *c, const tp_val *arg, const operands *o, const sizes *s, uint64_t move,
                        bool stored)
{
    sized *x = mem_zalloc(sizeof *x);
    x->e.shared = true;
    sizes_name(&x->names, s, move);
    x->e.p = x->names.nsym ? compile(c, arg, o, s, &x->names, stored) : NULL;
    if (!x->e.p || !sizes_named(&x->names) || !sizes_hold(&x->names, s)) {
        run_program_free(x->e.p);
        sizes_names_free(&x->names);
        *x = (sized){ .e.hosted = true }; /* stands for the failure */
    }
    return x;
}

/* A program for these sizes and others, made when they change for the first time. NULL: they need one of their own. */
static sized *sized_find(op_call *c, const tp_val *arg, const strbuf *key, size_t head, const operands *o,
                         const sizes *s, bool stored)
{
    strbuf k = { 0 };
    uint64_t move = 0;
    sized *x = NULL;
    int n = 0;
    loose_key(c, arg, key, head, o, &k);
    pthread_mutex_lock(&lock);
    sizes_seen *was = map_getn(&seen, k.s, k.n);
    if (!was && seen.n < MOST_ENTRIES) {
        was = mem_zalloc(sizeof *was);
        was->first = *s;
        map_putn(&seen, k.s, k.n, was);
    } else if (was && sizes_learn(was, s))
        move = was->move;
    if (move) {
        sizes_key(&k, s, move, o->t.at, (int)o->t.n);
        for (x = map_getn(&sized_of, k.s, k.n); x; x = x->next, n++)
            if (x->e.p && sizes_hold(&x->names, s))
                break;
    }
    pthread_mutex_unlock(&lock);
    if (move && !x && n < MOST_SIZED && sized_of.n < MOST_ENTRIES) {
        x = sized_new(c, arg, o, s, move, stored);
        if (stored && !x->e.p) { /* no failure: it was not to be compiled */
            free(x);
            x = NULL;
        }
        pthread_mutex_lock(&lock);
        if (x) {
            stats.programs += x->e.p != NULL;
            x->next = map_getn(&sized_of, k.s, k.n);
            map_putn(&sized_of, k.s, k.n, x);
        }
        pthread_mutex_unlock(&lock);
    }
    strbuf_free(&k);
    return x && x->e.p && !x->e.hosted ? x : NULL;
}

/* A program for the sizes of e alone, in place of the one that e shares. The shared one where e keeps it; NULL: e has its own. */
static sized *own_program(op_call *c, const tp_val *arg, const operands *o, const sizes *s, entry *e)
{
    run_program *own = compile(c, arg, o, s, NULL, false);
    pthread_mutex_lock(&lock);
    if (e->any && (own || e->any->e.hosted)) {
        stats.programs += own != NULL;
        e->p = own, e->any = NULL;
        own = NULL;
    }
    sized *any = e->any;
    pthread_mutex_unlock(&lock);
    run_program_free(own); /* another thread was faster */
    return any;
}

/* Under the lock: the entry of a call, made where there is none; head as below. stored: NULL where that would compile. */
static entry *entry_at(op_call *c, const tp_val *arg, const strbuf *key, size_t head, const operands *o,
                       const sizes *s, bool stored)
{
    entry *e = map_getn(&entries, key->s, key->n);
    if (e)
        return e;
    pthread_mutex_unlock(&lock);
    entry *made = mem_zalloc(sizeof *made);
    made->any = s->n > 0 ? sized_find(c, arg, key, head, o, s, stored) : NULL;
    made->p = made->any ? NULL : compile(c, arg, o, s, NULL, stored);
    pthread_mutex_lock(&lock);
    stats.programs += made->p != NULL;
    e = map_getn(&entries, key->s, key->n);
    if (e || (stored && !made->any && !made->p)) { /* another thread was faster, or there is none */
        run_program_free(made->p);
        free(made);
        return e;
    }
    if (entries.n >= MOST_ENTRIES)
        forget_some();
    map_putn(&entries, key->s, key->n, made);
    return made;
}

/* The entry of a call, which uses it until entry_done. head: where the types begin in the key. *any: its program is that one. */
static entry *entry_of(op_call *c, const tp_val *arg, const strbuf *key, size_t head, const operands *o,
                       const sizes *s, sized **any)
{
    static int64_t now;
    pthread_mutex_lock(&lock);
    entry *e = entry_at(c, arg, key, head, o, s, false);
    e->users++;
    e->last = ++now;
    *any = e->any;
    bool often = e->any && ++e->uses == USES;
    pthread_mutex_unlock(&lock);
    if (*any && (often || (*any)->e.hosted))
        *any = own_program(c, arg, o, s, e);
    return e;
}

static void entry_done(entry *e)
{
    pthread_mutex_lock(&lock);
    e->users--;
    pthread_mutex_unlock(&lock);
}

static void count(int64_t *what)
{
    pthread_mutex_lock(&lock);
    ++*what;
    pthread_mutex_unlock(&lock);
}

static bool on_host(op_call *c, const char *why)
{
    say_hosted(c, why);
    count(&stats.hosted);
    return run_hosted(c);
}

static bool run_eager(op_call *c)
{
    bool ok = true;
    bool nothing = c->nout > 0;
    for (int i = 0; i < c->nout && c->res; i++)
        nothing &= c->out[i].kind == OUT_new && c->res[i] && c->res[i]->numel == 0;
    if (c->row->eager == eager_empty || (nothing && c->res && !writes_self(c) && !(c->row->flags & OPF_DYN)))
        return true;
    if (copy_between(c, &ok) || copy_turned(c, &ok) || zeroed(c, &ok))
        return ok;
    own_result own = ops_run_own(c);
    if (own != OWN_declined) {
        count(&stats.own);
        return own == OWN_done;
    }
    if (running && running_op == c->op) { /* its program calls it: there is no kernel */
        running->hosted = true;
        if (running->shared) /* there may be one for these sizes alone */
            return err_set(c->err, ERR_notimpl, "'%s' has no kernel for all sizes", c->row->name);
        return on_host(c, "its loops are a call");
    }
    const char *why = no_program(c);
    if (why)
        return on_host(c, why);
    tp_device dev = c->out[0].dev;
    strbuf key = { 0 };
    size_t head = 0;
    operands o = { 0 };
    sizes s;
    tp_val *arg = mem_zalloc(sizeof *arg * (size_t)MAX(c->row->schema.nparam, 1));
    if (writes_self(c))
        dev = tensor_device(c->arg[0].t);
    entry *e = NULL;
    sized *any = NULL;
    if (key_of(c, dev, arg, &key, &head, &o)) {
        sizes_of(&s, o.t.at, (int)o.t.n, arg, c->row->schema.nparam);
        e = entry_of(c, arg, &key, head, &o, &s, &any);
    }
    if (any) {
        gen_state drawn = gen_default()->s;
        count(&stats.calls);
        ok = run_entry(c, &any->e, &o, &s);
        if (!ok && any->e.hosted) { /* what it drew is drawn again */
            gen_default()->s = drawn;
            err_clear(c->err);
            any = own_program(c, arg, &o, &s, e);
        }
    }
    if (!e)
        ok = false;
    else if (!any && e->p && !e->hosted) {
        count(&stats.calls);
        ok = run_entry(c, e, &o, NULL);
    } else if (!any)
        ok = on_host(c, "its loops are a call");
    if (e)
        entry_done(e);
    operands_free(&o);
    strbuf_free(&key);
    free(arg);
    return ok;
}

static bool eager(op_call *c)
{
    bool was = fault_pause(true), ok = run_eager(c);
    fault_pause(was);
    return ok;
}

/* --- may a graph run so at once? ---------------------------------------------------------------------------------- */
/* The program of a call on fakes, compiled in no case. */
static bool has_program(op_call *c)
{
    operands o = { 0 };
    strbuf key = { 0 };
    size_t head = 0;
    sizes s;
    tp_device dev = writes_self(c) ? tensor_device(c->arg[0].t) : c->out[0].dev;
    tp_val *arg = mem_zalloc(sizeof *arg * (size_t)MAX(c->row->schema.nparam, 1));
    bool yes = false, was = fault_pause(true);
    if (key_of(c, dev, arg, &key, &head, &o)) {
        sizes_of(&s, o.t.at, (int)o.t.n, arg, c->row->schema.nparam);
        pthread_mutex_lock(&lock);
        yes = entry_at(c, arg, &key, head, &o, &s, true) != NULL;
        pthread_mutex_unlock(&lock);
    }
    fault_pause(was);
    operands_free(&o);
    strbuf_free(&key);
    free(arg);
    return yes;
}

/* The same of the call in place: sums of gradients are so on the tape, and not in a graph. */
static bool has_inplace(const op_call *c)
{
    tp_tensor *self = c->nout == 1 && c->variant == OPV_fn && c->arg[0].kind == VAL_tensor ? c->arg[0].t
                                                                                           : NULL;
    op_call x = *c;
    if (!self || !(c->row->flags & OPF_INP) || self->dt != c->out[0].dt || self->ndim != c->out[0].ndim ||
        memcmp(self->size, c->out[0].size, sizeof *self->size * self->ndim))
        return false;
    x.variant = OPV_inplace;
    x.res = &self;
    return has_program(&x);
}

/* A call on fakes: false where its program would have to be compiled first. As eager() decides. */
static bool there(op_call *c)
{
    if (!c->on_device || c->row->eager == eager_view || c->row->flags & OPF_HEAD ||
        c->row->eager == eager_empty || ops_may_own(c) || no_program(c))
        return true;
    if (c->row->eager == eager_copy ||
        c->row->eager == eager_clone) /* most stand for writes, and copies between devices have none */
        return true;
    return has_program(c) || has_inplace(c) ||
           err_set(c->err, ERR_notimpl, "'%s' is not compiled", c->row->full);
}

/* Of all values that a graph computes, as if none were ever freed. */
static int64_t bytes_of(const ir_graph *g)
{
    int64_t sum = 0;
    IR_EACH (x, g) {
        const tp_tensor *t = ir_type(x);
        if (x->kind == IR_call && t && op_row_of((op_id)x->op)->eager != eager_view)
            sum += t->numel * (int64_t)dtype_size((dtype)t->dt);
        for (int i = 0; x->kind == IR_call && x->val.kind == VAL_tensors && i < x->val.n; i++)
            sum += x->val.ts[i] ? x->val.ts[i]->numel * (int64_t)dtype_size((dtype)x->val.ts[i]->dt) : 0;
    }
    return sum;
}

bool eager_there(ir_graph *g, tp_err *err)
{
    static const ir_hook plain = { 0 };
    int n = (int)g->inputs.n, nout = g->output->narg;
    tp_device dev = ir_graph_device(g);
    IR_EACH (x, g) {
        const op_row *row = x->kind == IR_call ? op_row_of((op_id)x->op) : NULL;
        if (x->kind == IR_opaque || (row && row->flags & (OPF_COMP | OPF_DYN)))
            return err_set(err, ERR_notimpl, "'%s' is no single kernel", row ? row->full : x->target);
    }
    if (g->subs.n || (g->env && sym_env_n_symbols(g->env)))
        return err_set(err, ERR_notimpl, "it has %s", g->subs.n ? "nested graphs" : "symbolic sizes");
    if (device_ops_of(dev)->spare && bytes_of(g) > device_ops_of(dev)->spare(dev))
        return err_set(err, ERR_oom, "its operators may need more memory than is free");
    op_ctx cx = *op_ctx_cur();
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(n + 1)),
           *out = mem_zalloc(sizeof *out * (size_t)(nout + 1));
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.into = NULL;
    cx.look = there;
    for (int i = 0; i < n; i++)
        in[i] = g->inputs.at[i]->val;
    bool ok = ir_run(&cx, g, in, n, out, nout, &plain, err);
    for (int i = 0; ok && i < nout; i++)
        val_clear(&out[i]);
    free(in);
    free(out);
    return ok;
}

void eager_offer(void)
{
    for (int k = 0; k < DEV_COUNT; k++)
        if (k != DEV_cpu && k != DEV_meta)
            ops_on_device((dev_kind)k, eager);
}
