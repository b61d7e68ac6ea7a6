/* step.c - see step.h. */
#include "run/step.h"
#include "base/crumb.h"
#include "events/events.h"
#include "ops/random.h"

static void program_unref(step_program *p)
{
    if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
        return;
    for (step_variant *v = p->variants, *next; v; v = next) {
        next = v->next;
        step_variant_free(v);
    }
    ir_graph_free(p->g);
    free(p->through);
    p->compiler->free(p);
}

void step_variant_free(step_variant *v)
{
    aot_unit_free(v->u);
    free(v->reached);
    free(v->made);
    run_program_free(v->fw);
    run_program_free(v->bw);
    v->owner->compiler->variant_free(v);
}

static run_program *backward_of(step_variant *v, tp_err *err)
{
    pthread_mutex_lock(&v->lock);
    bool ok = v->bw || v->owner->compiler->backward(v, err);
    pthread_mutex_unlock(&v->lock);
    return ok ? v->bw : NULL;
}

/* ---- tiers: while a variant waits for its code, the captured graph runs on the tape, backward passes of those calls too ---- */
typedef enum { TIER_failed, TIER_tape, TIER_compiled } tier;
static step_stats stats;
step_stats step_get_stats(void)
{
    return (step_stats){ __atomic_load_n(&stats.first, __ATOMIC_RELAXED),
                         __atomic_load_n(&stats.taken_over, __ATOMIC_RELAXED) };
}

/* Under the lock: is it known whether both programs can run? The backward program is begun when the forward program is there; what goes
 * wrong with it shows in the backward pass. */
static bool both_known(step_variant *v, bool wait)
{
    tp_err err = { 0 };
    if (!run_program_ready(v->fw, wait, &err))
        return err_is_set(&err);
    if (!v->has_bw || (!v->bw && (wait || !v->owner->compiler->backward(v, &err))) ||
        run_program_ready(v->bw, wait, &err))
        return true;
    if (!err_is_set(&err))
        return false;
    run_program_free(v->bw);
    v->bw = NULL;
    return true;
}

/* What a call runs. Between calls is the time for compiled code to take over. wait: now. */
static tier tier_of(step_variant *v, bool wait, tp_err *err)
{
    tier t = TIER_compiled;
    if (TP_LIKELY(!__atomic_load_n(&v->waits, __ATOMIC_ACQUIRE)))
        return t;
    pthread_mutex_lock(&v->lock);
    if (v->waits && both_known(v, wait)) {
        if (v->owner->compiler->settle(v, err)) {
            __atomic_add_fetch(&stats.taken_over, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&v->waits, false, __ATOMIC_RELEASE);
        } else
            t = TIER_failed;
    } else if (v->waits) {
        t = TIER_tape;
        v->first_calls++;
        __atomic_add_fetch(&stats.first, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&v->lock);
    return t;
}

static bool run_on_tape(step_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                        tp_err *err)
{
    static const ir_hook on_tape = { .call = grad_call, .opaque = run_opaque, .link = grad_link };
    return ir_run(cx, p->g, in, nin, out, nout, &on_tape, err);
}

/* The call, with the numbers that compiled code would draw. Operators one by one may need more memory than compiled code: where there
 * is none left, and nothing was written, the call begins again with that. */
static bool run_first(step_variant *v, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                      bool *again, tp_err *err)
{
    step_program *p = v->owner;
    gen_state *rng = &gen_default()->s, was = *rng;
    rng->counted |= p->counted;
    bool ok = run_on_tape(p, cx, in, nin, out, nout, err);
    rng->counted = was.counted;
    *again = !ok && err->kind == ERR_oom && !v->u->nmut && !v->u->nflag;
    if (*again) {
        err_clear(err);
        memset(out, 0, sizeof *out * (size_t)nout);
        *rng = was;
    }
    return ok;
}

/* ---- the step on the tape ---- */
typedef struct step {
    grad_node n;
    step_variant *v;
    tp_val *saved;     /* owned */
    uint32_t *version; /* of the saved tensors' storage, to notice writes */
    tp_val *in;        /* inputs and their versions, for a backward that must be differentiable itself */
    uint32_t *in_version;
    gen_state *rng;      /* before forward drew; NULL where it draws nothing */
    tp_tensor **tangent; /* types of the tangents, borrowed from the backward graph */
    grad_pack *pack;     /* saved tensors went through saved_tensors_hooks: handles instead */
    void **handle;
    struct step_view { /* items that are views of inputs, on the tape */
        int item;
        grad_node *fn; /* one count */
    } * view;
    int nview;
} step;

static const char *step_name(const grad_node *n) { return "CompiledFunctionBackward"; }

static void step_release(grad_node *n)
{
    step *s = (step *)n;
    for (int i = 0; s->saved && i < s->v->u->nsaved; i++)
        val_clear(&s->saved[i]);
    for (int i = 0; s->in && i < s->v->u->nin; i++)
        val_clear(&s->in[i]);
    for (int i = 0; s->handle && i < s->v->u->nsaved; i++)
        if (s->handle[i])
            s->pack->drop(s->pack->data, s->handle[i]);
    free(s->handle);
    grad_pack_unref(s->pack);
    s->handle = NULL;
    s->pack = NULL;
    free(s->in);
    free(s->in_version);
    free(s->saved);
    free(s->version);
    free(s->rng);
    s->rng = NULL;
    s->in = NULL;
    s->in_version = NULL;
    s->saved = NULL;
    s->version = NULL;
}

static void step_free(grad_node *n)
{
    step *s = (step *)n;
    step_release(n);
    for (int i = 0; i < s->nview; i++)
        grad_node_unref(s->view[i].fn);
    free(s->view);
    program_unref(s->v->owner);
}

/* The written input whose history the t-th tangent ends, -1 where it is that of a value. */
static int written_by(const aot_unit *u, int t)
{
    int k = u->tangent[t] - u->nvalue;
    return k < 0 ? -1 : u->mut[k];
}

/* Kernels are made for one memory layout: a gradient that comes in another is copied into it. */
static tp_tensor *with_strides(tp_tensor *g, const tp_tensor *type, tp_err *err)
{
    if (g->ndim == type->ndim && !tensor_is_fake(g) && !sym_all_const(type->stride, type->ndim)) {
        if (tensor_is_contiguous(g)) /* symbolic sizes: kernels were made for contiguous memory */
            return tensor_ref(g);
        tp_tensor *t = tensor_new_strided((dtype)g->dt, g->ndim, g->size, NULL, tensor_device(g), err);
        if (t && !tensor_copy(t, g, err)) {
            tensor_unref(t);
            t = NULL;
        }
        return t;
    }
    if (g->ndim != type->ndim || !sym_all_const(type->stride, type->ndim) || tensor_is_fake(g) ||
        (!memcmp(g->stride, type->stride, sizeof(symint) * g->ndim)))
        return tensor_ref(g);
    tp_tensor *t = tensor_new_strided((dtype)g->dt, g->ndim, g->size, type->stride, tensor_device(g), err);
    if (t && !tensor_copy(t, g, err)) {
        tensor_unref(t);
        t = NULL;
    }
    return t;
}

/* The item that the t-th tangent is the gradient of, or a view of what it is the gradient of. */
static int item_of(const aot_unit *u, int t)
{
    for (int want = AOT_value; want <= AOT_result_view; want += AOT_result_view - AOT_value)
        for (int k = 0; k < u->nout; k++)
            if (u->out[k].kind == want && u->out[k].index == u->tangent[t] && !u->out[k].leaf)
                return k;
    return -1;
}

/* Why the captured graph cannot run a second time, or NULL. */
static const char *runs_once(const aot_unit *u)
{
    return u->nmut ? "writes to its inputs" : u->nflag ? "says requires_grad_() of its inputs" : NULL;
}

/* The captured graph on its second run. */
typedef struct second {
    step *s;
    bld *b;
    tp_val *in;      /* the inputs; where gradients end, aliases of them: their hooks run later, and once */
    tp_tensor **end; /* per gradient: the same of a leaf that the graph made and returned, owned, or NULL */
} second;

/* A leaf that is known outside is not made once more: what stands for it now leads to it. */
static bool second_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    second *a = data;
    const aot_unit *u = a->s->v->u;
    const ir_graph *g = a->s->v->owner->g;
    for (int i = 0; aot_makes_leaf(n) && n->arg[1].b && i < u->ngrad; i++) {
        int k = u->grad[i] - u->nin, nr = 0;
        if (k < 0 || g->output->arg[k].node != n->arg[0].node || !a->s->n.edge[i].node || a->end[i])
            continue;
        op_ctx *cx = a->b->cx;
        bool mode = cx->grad_mode;
        tp_val leaf = vT(grad_acc_tensor(a->s->n.edge[i].node)), alias = vNone;
        cx->grad_mode = true;
        bool ok = grad_call(cx, OP_alias, OPV_fn, &leaf, &alias, err);
        cx->grad_mode = mode;
        grad_node *fn = ok ? grad_grad_fn(alias.t, &nr, err) : NULL;
        a->end[i] = ok ? alias.t : NULL;
        return fn && grad_set_history(arg[0].t, fn, nr, err);
    }
    return run_opaque(NULL, n, arg, out, err);
}

/* The tensor of the second run at which gradient i ends; NULL: it is not on the way. */
static tp_tensor *second_end(const second *a, int i)
{
    int at = a->s->v->u->grad[i];
    return at < 0 ? NULL : at < a->s->v->u->nin ? a->in[at].t : a->end[i];
}

/* Where the compiled backward is not enough, the captured graph runs once more on the tape, with the random numbers it
 * had, and gradients are taken of that. seen: also those of the results that are watched, whose hooks run; may be NULL. */
static bool backward_again(step *s, bld *b, tp_tensor *const *dy, const bool *need, const bool *watched,
                           tp_tensor **dx, tp_tensor **seen, tp_err *err)
{
    step_program *p = s->v->owner;
    aot_unit *u = s->v->u;
    int nout = u->nout, nroot = 0, nwant = 0;
    const char *why =
        seen ? "a gradient of a result that other results are made of was asked for"
             : "its backward was asked for with create_graph=True, and compiled backwards cannot be "
               "differentiated";
    if (runs_once(u))
        return err_set(
            err, ERR_runtime,
            "%s runs a compiled function's graph again, which is not possible "
            "here: the graph %s. Run the function without taper.compile.",
            seen ? "backward through a result that other results are made of, with hooks or as an input,"
                 : "backward with create_graph=True",
            runs_once(u));
    if (!s->in)
        return err_set(err, ERR_runtime,
                       "Trying to backward through the graph a second time (or directly access saved tensors "
                       "after they have already been freed). Specify retain_graph=True for the first one.");
    for (int i = 0; i < u->nin; i++)
        if (s->in[i].kind == VAL_tensor && tensor_version(s->in[i].t) != s->in_version[i])
            return grad_changed(s->in[i].t, s->in_version[i], (grad_edge){ NULL, 0 }, err);
    if (ev_log_on(EVC_aot, EV_WARNING))
        ev_log(EVC_aot, EV_WARNING, NULL, "%s runs again eagerly: %s", p->g->name, why);
    tp_gen *rng = gen_default();
    gen_state was = rng->s;
    int most = u->ngrad + u->ntangent;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(u->nin, 1)),
           *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    tp_tensor **root = mem_zalloc(sizeof *root * (size_t)MAX(u->ntangent, 1)),
              **tan = mem_zalloc(sizeof *tan * (size_t)MAX(u->ntangent, 1)),
              **want = mem_zalloc(sizeof *want * (size_t)MAX(most, 1)),
              **got = mem_zalloc(sizeof *got * (size_t)MAX(most, 1));
    second again = { s, b, in, mem_zalloc(sizeof *again.end * (size_t)MAX(u->ngrad, 1)) };
    ir_hook h = { .call = grad_call, .opaque = second_opaque, .link = grad_link, .data = &again };
    bool ok = true, mode = b->cx->grad_mode;
    b->cx->grad_mode = true;
    for (int i = 0; i < u->nin; i++)
        if (ok && s->in[i].kind == VAL_tensor && grad_requires_grad(s->in[i].t))
            ok = grad_call(b->cx, OP_alias, OPV_fn, &s->in[i], &in[i], err);
        else {
            in[i] = s->in[i];
            if (in[i].kind == VAL_tensor)
                tensor_ref(in[i].t);
        }
    if (s->rng) {
        rng->s = *s->rng;
        rng->s.counted |= s->v->owner->counted;
    }
    ok = ok && ir_run(b->cx, p->g, in, u->nin, out, nout, &h, err);
    rng->s = was;
    b->cx->grad_mode = mode;
    for (int i = 0; ok && i < u->ngrad; i++)
        if (need[i] && second_end(&again, i))
            want[nwant++] = second_end(&again, i);
    for (int t = 0; ok && t < u->ntangent; t++) {
        int k = item_of(u, t);
        tp_tensor *x = k >= 0 && out[k].kind == VAL_tensor ? out[k].t : NULL;
        if (x && u->out[k].kind == AOT_result_view)
            x = x->base;
        if (!x || !grad_requires_grad(x))
            continue;
        if (dy[t]) {
            root[nroot] = x;
            tan[nroot++] = dy[t];
        }
        if (seen && watched[t]) {
            ok = grad_share_hooks(&s->n, t, x, err);
            want[nwant++] = x;
        }
    }
    grad_options o = { .create_graph = mode,
                       .retain_graph = true,
                       .allow_unused = true,
                       .inputs = want,
                       .ninput = nwant,
                       .result = got };
    if (ok && nroot && nwant)
        ok = grad_backward(b->cx, root, nroot, tan, &o, err);
    int k = 0;
    for (int i = 0; ok && i < u->ngrad; i++)
        if (need[i] && second_end(&again, i))
            dx[i] = got[k++];
    for (int t = 0; ok && seen && t < u->ntangent && k < nwant; t++) {
        int item = item_of(u, t);
        if (watched[t] && item >= 0 && (want[k] == out[item].t || want[k] == out[item].t->base))
            seen[t] = got[k++];
    }
    for (int i = 0; i < nout; i++)
        val_clear(&out[i]);
    for (int i = 0; i < u->nin; i++)
        if (in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    for (int i = 0; i < u->ngrad; i++)
        tensor_unref(again.end[i]);
    free(again.end);
    free(in);
    free(out);
    free(root);
    free(tan);
    free(want);
    free(got);
    return ok;
}

/* What can be reached from a node, over operands and over memory that is shared. */
typedef struct reach {
    bool *hit; /* by id */
    map memory;
    bool now;
} reach;

static void reach_operand(void *arg, ir_node *x)
{
    reach *r = arg;
    const tp_tensor *type = ir_type(x);
    r->now |= r->hit[x->id] ||
              (type && type->storage && map_geti(&r->memory, (uint64_t)(uintptr_t)type->storage));
}

static bool step_opens(const grad_node *n, tp_tensor *const *dy, const bool *watched)
{
    const step *s = (const step *)n;
    const aot_unit *u = s->v->u;
    const ir_graph *g = s->v->owner->g;
    bool yes = false;
    for (int t = 0; t < u->ntangent && !yes; t++) {
        int from = watched[t] ? item_of(u, t) : -1, others = 0;
        for (int j = 0; j < u->ntangent; j++)
            others += j != t && dy[j];
        if (watched[t] && others && written_by(u, t) >= 0) /* others may be made of what was written */
            return true;
        if (from < 0 || !others)
            continue;
        reach r = { .hit = mem_zalloc((size_t)MAX(g->next_id, 1)) };
        IR_EACH (x, g) {
            const tp_tensor *type = ir_type(x);
            r.now = x == g->output->arg[from].node;
            ir_each_operand(x, reach_operand, &r);
            r.hit[x->id] = r.now;
            if (r.now && type && type->storage)
                map_puti(&r.memory, (uint64_t)(uintptr_t)type->storage, (void *)type);
        }
        for (int j = 0; j < u->ntangent && !yes; j++)
            yes = j != t && dy[j] && item_of(u, j) >= 0 && r.hit[g->output->arg[item_of(u, j)].node->id];
        map_free(&r.memory);
        free(r.hit);
    }
    return yes;
}

/* ---- which tangents an input reaches ---- */
enum { REACH_BITS = 64 }; /* tangents beyond share the last bit */
static uint64_t tangent_bit(int t) { return 1ull << MIN(t, REACH_BITS - 1); }

typedef struct reaching {
    map at; /* memory, or a node that has none -> tangents */
    uint64_t now;
    bool more;
} reaching;

static uint64_t reaching_key(const ir_node *x)
{
    const tp_tensor *type = ir_type(x);
    return (uint64_t)(uintptr_t)(type && type->storage ? (const void *)type->storage : (const void *)x);
}
static uint64_t reaching_get(const reaching *r, const ir_node *x)
{
    return (uint64_t)(uintptr_t)map_geti(&r->at, reaching_key(x));
}
static void reaching_add(reaching *r, const ir_node *x, uint64_t bits)
{
    uint64_t was = reaching_get(r, x);
    if ((was | bits) == was)
        return;
    map_puti(&r->at, reaching_key(x), (void *)(uintptr_t)(was | bits));
    r->more = true;
}
static void reaching_operand(void *arg, ir_node *x) { reaching_add(arg, x, ((reaching *)arg)->now); }

/* What shares memory reaches the same: writes are seen by all of it, at whatever time. That is more than the tape of
 * eager execution would reach, never less. */
static uint64_t *reached_of(const step_variant *v)
{
    const aot_unit *u = v->u;
    const ir_graph *g = v->owner->g;
    uint64_t *out = mem_alloc(sizeof *out * (g->inputs.n + 1)), all = 0;
    reaching r = { 0 };
    for (int t = 0; t < u->ntangent; t++) {
        int item = item_of(u, t), in = written_by(u, t);
        const ir_node *x = in >= 0 && in < (int)g->inputs.n                     ? g->inputs.at[in]
                           : item >= 0 && g->output->arg[item].kind == VAL_node ? g->output->arg[item].node
                                                                                : NULL;
        if (x)
            reaching_add(&r, x, tangent_bit(t));
        else
            all |= tangent_bit(t);
    }
    for (r.more = true; r.more;) {
        r.more = false;
        for (ir_node *x = g->last; x; x = x->prev)
            if (x != g->output && (r.now = reaching_get(&r, x)))
                ir_each_operand(x, reaching_operand, &r);
    }
    for (size_t i = 0; i < g->inputs.n; i++)
        out[i] = all | reaching_get(&r, g->inputs.at[i]);
    map_free(&r.at);
    return out;
}

static uint64_t reached_from(step_variant *v, int input)
{
    pthread_mutex_lock(&v->lock);
    if (!v->reached)
        v->reached = reached_of(v);
    pthread_mutex_unlock(&v->lock);
    return input >= 0 && input < (int)v->owner->g->inputs.n ? v->reached[input] : UINT64_MAX;
}

/* Zeros would tell hooks, and leaves, of a gradient that eager execution never brings there. */
static void step_narrow(grad_node *n, tp_tensor *const *dy, bool *need)
{
    step_variant *v = ((step *)n)->v;
    uint64_t here = 0;
    bool missing = false;
    for (int t = 0; t < v->u->ntangent; t++) {
        here |= dy[t] ? tangent_bit(t) : 0;
        missing |= !dy[t];
    }
    if (!missing)
        return;
    for (int i = 0; i < v->u->ngrad; i++)
        need[i] &= (reached_from(v, v->u->grad[i]) & here) != 0;
}

static void made_of(void *arg, ir_node *x) { ((reach *)arg)->now |= ((reach *)arg)->hit[x->id]; }

/* Node by node, not over memory: what is made of the input itself is not made of a view of it. */
static uint64_t *tangents_of_views(const step_variant *v)
{
    const aot_unit *u = v->u;
    const ir_graph *g = v->owner->g;
    uint64_t *out = mem_zalloc(sizeof *out * (size_t)MAX(u->nout, 1));
    for (int i = 0; i < u->nout && !u->nmut; i++) {
        if (u->out[i].kind != AOT_view)
            continue;
        reach r = { .hit = mem_zalloc((size_t)MAX(g->next_id, 1)) };
        IR_EACH (x, g) {
            r.now = x == g->output->arg[i].node;
            if (x != g->output)
                ir_each_operand(x, made_of, &r);
            r.hit[x->id] = r.now;
        }
        for (int t = 0; t < u->ntangent; t++) {
            int item = item_of(u, t);
            if (item >= 0 && g->output->arg[item].kind == VAL_node && r.hit[g->output->arg[item].node->id])
                out[i] |= tangent_bit(t);
        }
        free(r.hit);
    }
    return out;
}

static grad_node *step_bypassed(grad_node *n, tp_tensor *const *dy, int i)
{
    step *s = (step *)n;
    step_variant *v = s->v;
    uint64_t here = 0;
    if (i >= s->nview)
        return NULL;
    pthread_mutex_lock(&v->lock);
    if (!v->made)
        v->made = tangents_of_views(v);
    pthread_mutex_unlock(&v->lock);
    for (int t = 0; t < v->u->ntangent; t++)
        here |= dy[t] ? tangent_bit(t) : 0;
    for (int k = 0; k < s->nview; k++)
        if ((v->made[s->view[k].item] & here) && i-- == 0)
            return s->view[k].fn;
    return NULL;
}

/* Views of inputs have histories of their own, which the step must know of. */
static bool note_views(step *s, const tp_val *out, tp_err *err)
{
    const aot_unit *u = s->v->u;
    for (int i = 0; i < u->nout; i++) {
        if (u->out[i].kind != AOT_view || !u->out[i].requires_grad || u->out[i].no_grad || u->out[i].leaf ||
            out[i].kind != VAL_tensor)
            continue;
        grad_node *fn = grad_grad_fn(out[i].t, NULL, err);
        if (!fn) {
            if (err_is_set(err))
                return false;
            continue;
        }
        s->view = mem_realloc(s->view, sizeof *s->view * (size_t)(s->nview + 1));
        s->view[s->nview++] = (struct step_view){ i, grad_node_ref(fn) };
    }
    return true;
}

static bool step_open(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, const bool *watched,
                      tp_tensor **dx, tp_tensor **seen, tp_err *err)
{
    if (n->released)
        return err_set(err, ERR_runtime, "%s", grad_again);
    return backward_again((step *)n, b, dy, need, watched, dx, seen, err);
}

/* Saved tensor i as the unpack hook gives it back, in the form that the backward graph was made for; counted. */
static tp_tensor *unpacked(step *s, int i, tp_err *err)
{
    const tp_tensor *type = ir_type(s->v->u->bw->inputs.at[i]);
    tp_tensor *t = s->pack->unpack(s->pack->data, s->handle[i], err), *fit = NULL;
    bool same = t && t->dt == type->dt && t->ndim == type->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = sym_is_expr(type->size[d]) || type->size[d] == t->size[d];
    if (t && !same)
        err_set(err, ERR_runtime,
                "an unpack hook gave back a tensor of another type than the one that was packed");
    else if (t)
        fit = with_strides(t, type, err);
    tensor_unref(t);
    return fit;
}

/* Tensors are also kept for their sizes alone: nothing is lost when somebody writes to one of those. */
static bool saved_is_read(const aot_unit *u, int i) { return u->bw->inputs.at[i]->nuse > 0; }

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    step *s = (step *)n;
    step_variant *v = s->v;
    aot_unit *u = v->u;
    int nin = u->nsaved + u->ntangent, made = 0;
    bool ok = false;

    if (n->released && u->nsaved)
        return err_set(err, ERR_runtime, "%s", grad_again);
    if (!u->ngrad) /* results that require a gradient which leads nowhere */
        return true;
    if (b->cx->grad_mode)
        return backward_again(s, b, dy, need, NULL, dx, NULL, err);
    crumb_drop("backward", v->owner->g->name);
    run_program *bw = backward_of(v, err);
    if (!bw)
        return false;
    crumb_drop("backward", v->owner->g->name); /* it may have been compiled in between */
    for (int i = 0; i < u->nsaved; i++)
        if (s->saved[i].kind == VAL_tensor && saved_is_read(u, i) &&
            tensor_version(s->saved[i].t) != s->version[i])
            return grad_changed(s->saved[i].t, s->version[i], (grad_edge){ NULL, 0 }, err);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(nin, 1)),
           *out = mem_zalloc(sizeof *out * (size_t)MAX(u->ngrad, 1));
    for (int i = 0; i < u->nsaved; i++)
        in[i] = s->saved[i];
    for (int i = 0; i < u->nsaved && s->handle; i++)
        if (s->handle[i] && !(in[i] = vT(unpacked(s, i, err))).t) {
            in[i] = vNone;
            for (int k = 0; k < i && n->last; k++)
                if (s->handle[k])
                    val_clear(&in[k]);
            goto done;
        }
    if (n->last) /* given back as the program goes along */
        memset(s->saved, 0, sizeof *s->saved * (size_t)u->nsaved);
    for (; made < u->ntangent; made++) {
        const tp_tensor *type = ir_type(u->bw->inputs.at[u->nsaved + made]);
        tp_tensor *g = with_strides(dy[made], type, err);
        if (!g)
            goto done;
        in[u->nsaved + made] = vT(g);
    }
    for (int i = 0; i < u->ntangent && n->last && !n->after;
         i++) { /* the engine's counts: they go on the way, too */
        tensor_unref(dy[i]);
        ((tp_tensor **)dy)[i] = NULL;
    }
    bool ran = n->last ? run_program_take(bw, b->cx, in, nin, out, u->ngrad, err)
                       : run_program_call(bw, b->cx, in, nin, out, u->ngrad, err);
    ev_settle(); /* hooks of the program may follow */
    if (n->last)
        made = 0;
    if (!ran)
        goto done;
    for (int i = 0; i < u->ngrad; i++)
        if (out[i].kind == VAL_tensor) {
            if (need[i])
                dx[i] = out[i].t;
            else
                tensor_unref(out[i].t);
        }
    ok = true;
    crumb_drop(CRUMB_PROGRAM, "");
done:
    for (int i = 0; i < made; i++)
        tensor_unref(in[u->nsaved + i].t);
    for (int i = 0; i < u->nsaved && n->last && made; i++) /* a tangent failed before the call */
        val_clear(&in[i]);
    for (int i = 0; i < u->nsaved && s->handle && !n->last; i++)
        if (s->handle[i])
            val_clear(&in[i]);
    free(in);
    free(out);
    return ok;
}

static const grad_vt step_vt = { step_name,  step_apply, step_release, step_free,
                                 step_opens, step_open,  step_narrow,  step_bypassed };

/* ---- the call ---- */
uint64_t step_key(const step_program *p, const op_ctx *cx, const tp_val *in, bool *needs, bool *any)
{
    uint64_t k = 1;
    int nin = (int)p->g->inputs.n;
    *any = grad_records(cx) && p->leaves;
    for (int i = 0; i < nin; i++) {
        needs[i] = grad_records(cx) && in[i].kind == VAL_tensor && grad_requires_grad(in[i].t) &&
                   dtype_has_grad((dtype)in[i].t->dt);
        *any |= needs[i];
        k = hash_mix(k, needs[i]);
    }
    return k;
}

static step_variant *variant_known(const step_program *p, uint64_t key, bool grad)
{
    step_variant *v = p->variants;
    while (v && (v->key != key || v->grad != grad))
        v = v->next;
    return v;
}

static step_variant *variant_for(step_program *p, op_ctx *cx, const tp_val *in, bool *needs, tp_err *err)
{
    bool any;
    if (p->trusted && p->variants && !p->variants->next)
        return p->variants;
    uint64_t key = step_key(p, cx, in, needs, &any);
    step_variant *v = variant_known(p, key, any);
    if (v)
        return v;
    pthread_mutex_lock(&p->lock);
    v = variant_known(p, key, any); /* another thread may have been faster */
    v = v ? v : p->compiler->variant(p, needs, any, key, err);
    pthread_mutex_unlock(&p->lock);
    return v;
}

static bool same_place(const tp_tensor *a, const tp_tensor *b)
{
    return a->storage == b->storage && a->offset == b->offset && a->dt == b->dt && tensor_same_size(a, b) &&
           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim);
}

static bool copy_into(tp_tensor *to, tp_val from, op_dispatch_fn *call, op_ctx *cx, tp_err *err)
{
    tp_val arg[3] = { vT(to), from, vB(false) }, out = vNone;
    bool ok = call(cx, OP_copy_, OPV_fn, arg, &out, err);
    val_clear(&out);
    return ok;
}

/* Writes on the tape are refused before anything is written. */
static bool may_write(const aot_unit *u, op_ctx *cx, const tp_val *in, tp_err *err)
{
    for (int i = 0; i < u->ntangent; i++)
        if (written_by(u, i) >= 0 && !grad_check_inplace(cx, in[written_by(u, i)].t, true, err))
            return false;
    return true;
}

/* The t-th tangent's tensor is result t of the step from now on. A written input that is a view gets its history by a
 * copy on the tape, so that its base gets one, too. */
static bool set_history(const aot_unit *u, op_ctx *cx, step *s, int t, const tp_val *in, tp_val *res,
                        tp_err *err)
{
    tp_val *r = &res[u->tangent[t]];
    int w = written_by(u, t);
    if (w < 0)
        return grad_set_history(r->t, &s->n, t, err);
    if (!in[w].t->base)
        return grad_set_history(in[w].t, &s->n, t, err);
    tp_tensor *own = tensor_alias(r->t);
    in[w].t->storage->version--; /* copy_back has counted the write */
    bool ok = grad_set_history(own, &s->n, t, err) && copy_into(in[w].t, vT(own), grad_call, cx, err);
    tensor_unref(own);
    return ok;
}

/* Other results may be made of what an input holds after it was written. Then its gradient passes through it, which no
 * step for the whole graph shows: to retain_grad(), and where the input is a view, whose history is that of its base. */
static bool wants_tape(step_variant *v, const tp_val *in)
{
    for (int t = 0; t < v->u->ntangent; t++) {
        int w = written_by(v->u, t);
        if (w >= 0 &&
            (grad_retains_grad(in[w].t) || (in[w].t->base && (reached_from(v, w) & ~tangent_bit(t)))))
            return true;
    }
    return false;
}

static bool copy_back(aot_unit *u, op_ctx *cx, const tp_val *in, tp_val *res, tp_err *err)
{
    for (int i = 0; i < u->nmut; i++) {
        tp_tensor *to = in[u->mut[i]].t;
        uint32_t version = to->storage->version;
        if (res[u->nvalue + i].kind != VAL_tensor || !same_place(res[u->nvalue + i].t, to)) {
            if (!copy_into(to, res[u->nvalue + i], ops_call, cx, err))
                return false;
        } else {
            tensor_bump(to); /* it was written where it belongs */
        }
        if (to->spare & AGF_data)
            to->storage->version = version;
    }
    return true;
}

static bool pack_saved(step *s, op_ctx *cx, int i, tp_tensor *t, tp_err *err)
{
    grad_pack *p = cx->hooks;
    tp_tensor *own = tensor_alias(t);
    if (!s->handle) {
        s->handle = mem_zalloc(sizeof *s->handle * (size_t)s->v->u->nsaved);
        s->pack = grad_pack_ref(p);
    }
    cx->hooks = NULL; /* operations inside pack are not packed again */
    s->handle[i] = p->pack(p->data, own, err);
    cx->hooks = p;
    tensor_unref(own);
    return s->handle[i] != NULL;
}

static step *record_step(step_variant *v, const op_ctx *cx, const tp_val *in, tp_val *res, const tp_val *item,
                         const gen_state *rng, tp_err *err)
{
    aot_unit *u = v->u;
    step *s = (step *)grad_node_new(&step_vt, sizeof *s, u->ntangent, u->ngrad);
    s->n.zeros = true;
    s->v = v;
    __atomic_add_fetch(&v->owner->refs, 1, __ATOMIC_RELAXED);
    s->n.saves = u->nsaved > 0;
    s->in = mem_zalloc(sizeof *s->in * (size_t)MAX(u->nin, 1));
    s->in_version = mem_zalloc(sizeof *s->in_version * (size_t)MAX(u->nin, 1));
    if (rng) {
        s->rng = mem_alloc(sizeof *s->rng);
        *s->rng = *rng;
    }
    for (int i = 0; i < u->nin; i++) {
        s->in[i] = in[i];
        if (in[i].kind == VAL_tensor) {
            tensor_ref(in[i].t);
            s->in_version[i] = tensor_version(in[i].t);
        }
    }
    s->saved = mem_zalloc(sizeof *s->saved * (size_t)MAX(u->nsaved, 1));
    s->version = mem_zalloc(sizeof *s->version * (size_t)MAX(u->nsaved, 1));
    for (int i = 0; i < u->ngrad; i++)
        grad_node_set_edge(&s->n, i,
                           u->grad[i] < 0        ? NULL
                           : u->grad[i] < u->nin ? in[u->grad[i]].t
                                                 : item[u->grad[i] - u->nin].t);
    for (int i = 0; i < u->ntangent; i++)
        grad_node_set_shape(&s->n, i, res[u->tangent[i]].t);
    for (int i = 0; i < u->nsaved; i++) {
        tp_val *r = &res[u->nvalue + u->nmut + i];
        if (r->kind == VAL_tensor && (r->t->flags & TF_inference) && !cx->inference_mode) {
            /* Eager keeps what was made of it; whether it may be kept itself is what the trace has found out. */
            tp_tensor *own = tensor_new_strided((dtype)r->t->dt, r->t->ndim, r->t->size, r->t->stride,
                                                tensor_device(r->t), err);
            if (!own || !tensor_copy(own, r->t, err)) {
                tensor_unref(own);
                grad_node_unref(&s->n);
                return NULL;
            }
            tensor_unref(r->t);
            r->t = own;
        }
        if (TP_UNLIKELY(cx->hooks != NULL) && r->kind == VAL_tensor) {
            if (!pack_saved(s, (op_ctx *)cx, i, r->t, err)) {
                grad_node_unref(&s->n);
                return NULL;
            }
            continue;
        }
        s->saved[i] = *r;
        if (r->kind ==
            VAL_tensor) { /* a header of its own: a result must not keep itself alive through the tape */
            s->saved[i] = vT(tensor_alias(r->t));
            s->version[i] = tensor_version(r->t);
        }
    }
    return s;
}

typedef struct list {
    sym_bind *at;
    int n;
} list;
static void list_add(void *list_of, symint symbol, int64_t value)
{
    list *l = list_of;
    l->n = ir_bind_add(l->at, l->n, symbol, value);
}

/* The numbers of a symbolic type, by the sizes of the inputs. `ahead`: one more expression, or NULL. */
static bool numbers_of(const tp_tensor *type, const ir_graph *g, const tp_val *in, int nin, symint *size,
                       symint *stride, symint *ahead)
{
    const symint *from[2] = { type->size, type->stride };
    symint *to[2] = { size, stride };
    sym_bind *bind = NULL;
    int nb = 0;
    bool ok = true;
    for (int i = 0; i < nin; i++) { /* symbols from the inputs' sizes */
        const ir_node *p = g->inputs.at[i];
        if (p->val.kind == VAL_tensor && in[i].kind == VAL_tensor)
            nb += p->val.t->ndim * 2 + 1;
        else
            nb++;
    }
    bind = mem_alloc(sizeof *bind * (size_t)MAX(nb, 1));
    nb = 0;
    list l = { bind, 0 };
    for (int pass = 0; pass < IR_BIND_PASSES; pass++)
        for (int i = 0; i < nin; i++)
            ir_bind(&g->inputs.at[i]->val, &in[i], pass, list_add, &l);
    nb = l.n;
    for (int k = 0; k < 2 && ok; k++)
        for (int d = 0; d < type->ndim && ok; d++)
            ok = sym_is_expr(from[k][d]) ? sym_eval(from[k][d], bind, nb, &to[k][d])
                                         : (to[k][d] = from[k][d], true);
    if (ok && ahead && sym_is_expr(*ahead))
        ok = sym_eval(*ahead, bind, nb, ahead);
    free(bind);
    return ok;
}

/* A view of base as the graph's types say: `type` is what the result is when the base is `as`. Where the base really
 * begins is not guarded, so that only the distance counts. taped: a view for gradients, too. */
static tp_tensor *geometry(op_ctx *cx, tp_tensor *base, const tp_tensor *as, const tp_tensor *type,
                           const ir_graph *g, const tp_val *in, int nin, bool taped, tp_err *err)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], offset = sym_sub(type->offset, as->offset);
    bool ok = numbers_of(type, g, in, nin, size, stride, &offset);
    if (ok && type->dt != base->dt && !sym_is_expr(type->offset) && !sym_is_expr(as->offset)) {
        /* the same bytes read as another type (view.dtype), which no gradient passes */
        int64_t sz = (int64_t)dtype_size((dtype)type->dt), bsz = (int64_t)dtype_size((dtype)base->dt);
        int64_t at = type->offset * sz - as->offset * bsz + base->offset * bsz;
        if (at % sz) {
            err_set(err, ERR_runtime,
                    "self.storage_offset() must be divisible by %lld to view %s as %s (different element "
                    "sizes), but got %lld",
                    (long long)(sz / bsz), dtype_rows[base->dt].gname, dtype_rows[type->dt].gname,
                    (long long)base->offset);
            return NULL;
        }
        return tensor_on(base->storage, (dtype)type->dt, type->ndim, size, stride, at / sz);
    }
    offset += base->offset;
    if (!ok) {
        err_set(err, ERR_internal, "a size of an aliasing result has no value in these inputs");
        return NULL;
    }
    if (!taped)
        return tensor_on(base->storage, (dtype)type->dt, type->ndim, size, stride, offset);
    tp_val arg[4] = { vT(base), vIs(size, type->ndim), vIs(stride, type->ndim), vI(offset) }, out = vNone;
    return grad_call(cx, OP_as_strided, OPV_fn, arg, &out, err) ? out.t : NULL;
}

/* Results that belong into the memory of another or of an input, or into memory with gaps. */
static bool place_results(step_program *p, aot_unit *u, op_ctx *cx, const tp_val *in, int nin, tp_val *res,
                          tp_err *err)
{
    for (int i = 0; i < u->nplace; i++) {
        const aot_out *o = &u->place[i].at;
        tp_tensor **t = &res[u->place[i].value].t, *now;
        if (o->kind == AOT_value) {
            symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
            if (!numbers_of(o->type, p->g, in, nin, size, stride, NULL))
                return err_set(err, ERR_internal, "a stride of a result has no value in these inputs");
            now = tensor_new_strided((dtype)o->type->dt, o->type->ndim, size, stride, tensor_device(*t), err);
            if (!now || !tensor_copy(now, *t, err)) {
                tensor_unref(now);
                return false;
            }
        } else {
            const tp_tensor *as = o->kind == AOT_view ? p->g->inputs.at[o->index]->val.t
                                                      : u->fw->output->arg[o->index].node->val.t;
            bool mode = cx->grad_mode;
            cx->grad_mode = false;
            now = geometry(cx, o->kind == AOT_view ? in[o->index].t : res[o->index].t, as, o->type, p->g, in,
                           nin, o->no_grad, err);
            cx->grad_mode = mode;
            if (!now)
                return false;
        }
        tensor_unref(*t);
        *t = now;
    }
    return true;
}

/* Item i of what the captured graph returned; counted. */
static bool make_item(step_program *p, aot_unit *u, op_ctx *cx, int i, const tp_val *in, int nin, tp_val *res,
                      tp_val *out, tp_err *err)
{
    const aot_out *o = &u->out[i];
    tp_tensor *t = NULL;
    switch (o->kind) {
    case AOT_value:
        out[i] = res[o->index];
        if (out[i].kind != VAL_tensor)
            return true;
        if (!o->leaf) {
            tensor_ref(out[i].t);
            return true;
        }
        t = tensor_alias(out[i].t); /* other items may be the same value, and no leaf */
        t->flags |= out[i].t->flags & TF_inference;
        break;
    case AOT_input: out[i] = vT(tensor_ref(in[o->index].t)); return true;
    case AOT_view:
    case AOT_result_view: {
        tp_tensor *base = o->of >= 0 ? out[o->of].t : o->kind == AOT_view ? in[o->index].t : res[o->index].t;
        tp_val cut = vNone;
        bool mode = cx->grad_mode;
        if (((!o->requires_grad && !o->no_grad) || o->leaf) &&
            grad_requires_grad(base)) { /* x.detach(): off the tape */
            if (!grad_call(cx, OP_detach, OPV_fn, (tp_val[]){ vT(base) }, &cut, err))
                return false;
            base = cut.t;
        }
        const tp_tensor *as = o->kind == AOT_view ? p->g->inputs.at[o->index]->val.t
                                                  : u->fw->output->arg[o->index].node->val.t;
        if (o->of >= 0 && u->out[o->of].type)
            as = u->out[o->of].type;
        cx->grad_mode = mode && !(o->no_grad && grad_requires_grad(base));
        t = geometry(cx, base, as, o->type, p->g, in, nin, true, err);
        cx->grad_mode = mode;
        val_clear(&cut);
        if (!t)
            return false;
        if (o->detached) { /* writes to it end at itself, views of it are views of a leaf */
            tp_tensor *own = tensor_alias(t);
            own->flags |= t->flags & TF_inference;
            tensor_unref(t);
            t = own;
        }
        break;
    }
    default: out[i] = o->num; return true;
    }
    if (o->leaf && !grad_set_requires_grad(cx, t, true, err)) {
        tensor_unref(t);
        return false;
    }
    out[i] = vT(t);
    return true;
}

/* What requires_grad_() in the graph did to inputs: on before the step is recorded, for gradients may end there, off
 * after it. */
static bool set_flags(const aot_unit *u, op_ctx *cx, const tp_val *in, bool before, tp_err *err)
{
    for (int i = 0; i < u->nflag; i++)
        if ((before || !u->flag[i].on) && !grad_set_requires_grad(cx, in[u->flag[i].in].t, before, err))
            return false;
    return true;
}

static void base_done(void *storage, void *data) { storage_unref(storage); }

/* The inputs and, behind them, the memory that several of them share; owned. */
static tp_val *with_bases(const aot_unit *u, const tp_val *in, int nin, const ir_graph *g)
{
    tp_val *all = mem_zalloc(sizeof *all * (size_t)u->nin);
    memcpy(all, in, sizeof *all * (size_t)nin);
    for (int b = 0; b < u->nbase; b++) {
        const aot_base *o = &u->base[b];
        tp_tensor *x = in[o->of].t;
        int64_t size = (int64_t)dtype_size((dtype)x->dt),
                ahead = ir_type(g->inputs.at[o->of])->offset - o->lo; /* guards keep their distances */
        tp_storage *s = storage_wrap_on(tensor_device(x), (char *)tensor_data(x) - ahead * size,
                                        o->len * size, base_done, storage_ref(x->storage));
        all[nin + b] = vT(tensor_on(s, (dtype)x->dt, 1, (symint[]){ o->len }, (symint[]){ 1 }, 0));
        storage_unref(s);
    }
    return all;
}

/* Writes to a base count, unless all were by Tensor.data. */
static bool base_counts(step_program *p, const tp_tensor *base, const tp_val *in, int nin)
{
    bool counts = false;
    pthread_mutex_lock(&p->lock);
    if (!p->through)
        p->through = aot_writes_through(p->g);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < nin; i++)
        counts |= p->through[i] && in[i].kind == VAL_tensor && in[i].t->storage == base->storage &&
                  !(in[i].t->spare & AGF_data);
    return counts;
}

static void bases_written(step_program *p, const aot_unit *u, const tp_val *in, tp_val *all, int nin)
{
    for (int b = 0; b < u->nbase; b++) {
        tp_tensor *x = in[u->base[b].of].t;
        if (base_counts(p, x, in, nin))
            tensor_bump(x);
        tensor_unref(all[nin + b].t);
    }
    free(all);
}

/* What items are views of, or what gets a history, is no view itself: writes to it end at its own gradient. */
static void no_view(tp_val *r)
{
    if (r->kind != VAL_tensor || !r->t->base || (r->t->spare & AGF_nograd_view))
        return;
    tp_tensor *own = tensor_alias(r->t);
    own->flags |= r->t->flags & TF_inference;
    tensor_unref(r->t);
    r->t = own;
}

static bool on_an_input(const tp_tensor *x, const tp_val *in, int nin)
{
    for (int i = 0; i < nin; i++)
        if (in[i].kind == VAL_tensor && in[i].t->storage == x->storage)
            return true;
    return false;
}

static void own_bases(const aot_unit *u, const tp_val *in, int nin, tp_val *res, int nout)
{
    for (int i = 0; i < u->nvalue; i++) /* of memory that nobody else sees, whichever operator ended there */
        if (res[i].kind == VAL_tensor && res[i].t->base && !on_an_input(res[i].t, in, nin))
            no_view(&res[i]);
    for (int i = 0; i < nout; i++)
        if (u->out[i].kind == AOT_result_view && u->out[i].of < 0)
            no_view(&res[u->out[i].index]);
    for (int i = 0; i < u->ntangent; i++)
        no_view(&res[u->tangent[i]]);
}

/* Nobody but the results, and views among them, holds it. */
static bool made_here(const tp_tensor *t, const tp_val *res, int nres)
{
    int held = 0;
    for (int i = 0; i < nres && held < t->refs; i++)
        held += res[i].kind == VAL_tensor ? (res[i].t == t) + (res[i].t->base == t) : 0;
    return held == t->refs;
}

static tp_tensor *tensor_of(const tp_val *v) { return v->kind == VAL_tensor ? v->t : NULL; }

/* Values that are views of others are so for writes to come. */
static void relate(const aot_unit *u, tp_val *out)
{
    for (int i = 0; i < u->nout; i++) {
        if (u->out[i].kind != AOT_value || u->out[i].of < 0)
            continue;
        tp_tensor *t = tensor_of(&out[i]), *b = tensor_of(&out[u->out[i].of]);
        if (t && b && t != b && t->storage == b->storage && !t->base && !b->base)
            t->base = tensor_ref(b);
    }
}

/* In inference mode what shares memory with no ordinary input was made here, views of it too. */
static void mark_inference(const tp_val *in, int nin, tp_val *out, int nout)
{
    for (int i = 0; i < nout; i++) {
        tp_tensor *t = tensor_of(&out[i]);
        bool given = false;
        for (int k = 0; t && k < nin && !given; k++)
            given = in[k].kind == VAL_tensor && in[k].t->storage == t->storage &&
                    !(in[k].t->flags & TF_inference);
        if (t && !given)
            t->flags |= TF_inference;
    }
}

static bool step_call(run_program *rp, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                      tp_err *err)
{
    step_program *p = (step_program *)rp;
    bool small[64], *needs = nin <= 64 ? small : mem_alloc((size_t)nin), ok = false;
    tp_val few[16], *res = NULL;
    step *s = NULL;
    int nres = 0;

    memset(out, 0, sizeof *out * (size_t)nout);
    if (nin != (int)p->g->inputs.n) {
        err_set(err, ERR_type, "the graph takes %d inputs but %d were given", (int)p->g->inputs.n, nin);
        goto done;
    }
    step_variant *v = variant_for(p, cx, in, needs, err);
    if (!v)
        goto done;
    aot_unit *u = v->u;
    if (nout != u->nout) {
        err_set(err, ERR_type, "the graph returns %d values, not %d", u->nout, nout);
        goto done;
    }
    if (!may_write(u, cx, in, err))
        goto done;
    if (wants_tape(v, in)) {
        ok = run_on_tape(p, cx, in, nin, out, nout, err);
        goto done;
    }
    tier t = tier_of(v, false, err);
    if (TP_UNLIKELY(t == TIER_tape)) {
        bool again;
        ok = run_first(v, cx, in, nin, out, nout, &again, err);
        if (!again)
            goto done;
        t = tier_of(v, true, err);
    }
    if (t == TIER_failed)
        goto done;
    gen_state rng;
    if (p->draws)
        rng = gen_default()->s;
    nres = u->nvalue + u->nmut + u->nsaved;
    res = nres <= (int)COUNT(few) ? few : mem_alloc(sizeof *res * (size_t)nres);
    memset(res, 0, sizeof *res * (size_t)nres);
    op_ctx *here = op_ctx_cur(); /* callees outside must not record: the step below is the record */
    bool was = here->grad_mode;
    here->grad_mode = false;
    tp_val *all = u->nbase ? with_bases(u, in, nin, p->g) : NULL;
    bool ran = run_program_call(v->fw, cx, all ? all : in, u->nin, res, nres, err);
    here->grad_mode = was;
    ran = ran && copy_back(u, cx, all ? all : in, res, err);
    for (int i = 0; ran && cx->inference_mode && i < u->nvalue; i++)
        if (res[i].kind == VAL_tensor && !(res[i].t->flags & TF_inference) && made_here(res[i].t, res, nres))
            res[i].t->flags |= TF_inference;
    ran = ran && place_results(p, u, cx, in, nin, res, err);
    if (all)
        bases_written(p, u, in, all, nin);
    if (!ran)
        goto done;
    if (!set_flags(u, cx, in, true, err))
        goto done;
    for (int i = 0; p->leaves && i < nout; i++) /* gradients end at them, so they come first */
        if (u->out[i].leaf && !make_item(p, u, cx, i, in, nin, res, out, err))
            goto done;
    own_bases(u, in, nin, res, nout);
    if ((v->has_bw || u->ntangent) && !(s = record_step(v, cx, in, res, out, p->draws ? &rng : NULL, err)))
        goto done;
    for (int i = 0; s && i < u->ntangent; i++)
        if (!set_history(u, cx, s, i, in, res, err))
            goto done;
    if (!set_flags(u, cx, in, false, err))
        goto done;
    for (int i = 0; i < nout; i++)
        if (!(p->leaves && u->out[i].leaf) && !make_item(p, u, cx, i, in, nin, res, out, err))
            goto done;
    relate(u, out);
    if (s && !note_views(s, out, err))
        goto done;
    if (TP_UNLIKELY(cx->inference_mode))
        mark_inference(in, nin, out, nout);
    ok = true;
done:
    if (s)
        grad_node_unref(&s->n);
    for (int i = 0; i < nres; i++)
        if (res[i].kind == VAL_tensor)
            tensor_unref(res[i].t);
    if (res != few)
        free(res);
    if (needs != small)
        free(needs);
    if (!ok)
        for (int i = 0; i < nout; i++)
            val_clear(&out[i]);
    return ok;
}

static void program_free(run_program *p) { program_unref((step_program *)p); }

void step_program_init(step_program *p, const step_compiler *compiler, ir_graph *g)
{
    p->base = (run_program){ step_call, program_free };
    p->compiler = compiler;
    p->g = g;
    p->refs = 1;
    p->leaves = aot_makes_leaves(g);
    IR_EACH (n, g)
        p->draws |= n->kind == IR_call && (op_row_of((op_id)n->op)->flags & OPF_RAND) != 0;
    pthread_mutex_init(&p->lock, NULL);
}
