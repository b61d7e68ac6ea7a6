/* layout.c - see layout.h. */
#include "compile/layout.h"
#include "events/events.h"
#include "loop/lower.h"

typedef struct turning {
    ir_graph *g;
    memfmt to;
    map was;   /* node that was made anew -> its type before, counted */
    map back;  /* such a node -> it in the layout it had */
    map forth; /* a node that was not made anew -> its copy in the layout wanted */
    int turned;
    double moved; /* elements that copies move, of which the size is known */
    tp_err *err;
} turning;

/* --- the LAYOUT column: rows that take any layout and hand it on, + 1; convolutions say how many of their first arguments
 * are images. Pointwise loops do so as well. */
static const uint8_t layouts[OP_COUNT] = {
#define LAYOUT(id, images) [OP_##id] = images + 1,
#include "ops/ops.def"
};

int layout_images(const ir_node *n) { return n->kind == IR_call && layouts[n->op] ? layouts[n->op] - 1 : 0; }

bool layout_waits(op_id op) { return layouts[op] == 1; }

static bool hands_on(const ir_node *n) { return layouts[n->op] || lower_of((op_id)n->op) != NULL; }

/* Is it computed from no tensor? A copy of it moves nothing. */
static bool is_made_up(const ir_node *x)
{
    bool any = x->kind != IR_call;
    for (int i = 0; i < x->narg && !any; i++)
        any = x->arg[i].kind == VAL_node || x->arg[i].kind == VAL_nodes;
    return !any;
}

static ir_node *converted(turning *t, ir_node *x, memfmt f, ir_node *before)
{
    tp_val arg[2] = { { .kind = VAL_node, .node = x }, vMF(f) };
    ir_node *c = ir_build(t->g, OP_clone, (op_variant)0, arg, 2, t->err);
    if (c) {
        ir_insert_before(t->g, before, c);
        c->loc = before->loc;
        t->moved += sym_is_expr(ir_type(c)->numel) || is_made_up(x) ? 0 : (double)ir_type(c)->numel;
    }
    return c;
}

/* x as it was. */
static ir_node *put_back(turning *t, ir_node *x)
{
    tp_tensor *was = map_geti(&t->was, (uintptr_t)x);
    tp_val type = vT(was);
    if (!was || ir_type_equal(&type, &x->val))
        return x;
    ir_node *c = map_geti(&t->back, (uintptr_t)x);
    if (c)
        return c;
    bool last = !tensor_is_contiguous(was) && was->ndim == 4 &&
                tensor_is_contiguous_as(was, MF_channels_last);
    c = converted(t, x, last ? MF_channels_last : MF_contiguous, x->next);
    if (c && !ir_type_equal(&type, &c->val)) {
        err_set(t->err, ERR_notimpl, "'%s' had a layout of its own", x->name);
        return NULL;
    }
    if (c)
        map_puti(&t->back, (uintptr_t)x, c);
    return c;
}

static bool is_new(turning *t, const ir_node *x) { return map_geti(&t->was, (uintptr_t)x) != NULL; }

/* m stands for n from now on. */
static void stands_for(turning *t, ir_node *n, ir_node *m)
{
    ir_insert_before(t->g, n, m);
    m->loc = n->loc;
    m->meta = n->meta;
    m->spell = n->spell;
    if (ir_type(n))
        map_puti(&t->was, (uintptr_t)m, tensor_ref(ir_type(n)));
    else
        map_puti(&t->was, (uintptr_t)m, NULL);
    ir_replace_uses(n, m);
    ir_erase(n);
}

static bool put_all_back(turning *t, ir_node *n)
{
    for (int i = 0; i < n->narg; i++) {
        tp_val v = n->arg[i];
        if (v.kind == VAL_node && is_new(t, v.node)) {
            ir_node *x = put_back(t, v.node);
            if (!x)
                return false;
            if (x != v.node)
                ir_set_arg(n, i, (tp_val){ .kind = VAL_node, .node = x });
        } else if (v.kind == VAL_nodes) {
            ir_node **list = ARENA_ARR(&t->g->mem, ir_node *, MAX(v.n, 1));
            for (int k = 0; k < v.n; k++) {
                list[k] = v.nodes[k] && is_new(t, v.nodes[k]) ? put_back(t, v.nodes[k]) : v.nodes[k];
                if (v.nodes[k] && !list[k])
                    return false;
            }
            ir_set_arg(n, i, (tp_val){ .kind = VAL_nodes, .n = v.n, .nodes = list });
        }
    }
    return true;
}

/* x in the layout wanted, for `before` and what comes later. */
static ir_node *put_forth(turning *t, ir_node *x, ir_node *before)
{
    ir_node *c = map_geti(&t->forth, (uintptr_t)x);
    if (!c && (c = converted(t, x, t->to, before))) {
        map_puti(&t->was, (uintptr_t)c, tensor_ref(ir_type(x)));
        map_puti(&t->forth, (uintptr_t)x, c);
        map_puti(&t->back, (uintptr_t)c, x);
        t->turned++;
    }
    return c;
}

/* The images a convolution reads, in the layout wanted. */
static bool turn_images(turning *t, ir_node *n)
{
    int images = layout_images(n);
    const tp_tensor *x = n->arg[images - 1].kind == VAL_node ? ir_type(n->arg[images - 1].node) : NULL;
    if (!x || x->ndim != 4)
        return true;
    for (int i = 0; i < images; i++) {
        ir_node *a = n->arg[i].node;
        if (tensor_is_contiguous_as(ir_type(a), t->to))
            continue;
        ir_node *c = put_forth(t, a, n);
        if (!c)
            return false;
        ir_set_arg(n, i, (tp_val){ .kind = VAL_node, .node = c });
    }
    return true;
}

/* An image that an operator of elements or windows reads beside one of the layout wanted: the result would lie as the first of them does, and
 * its rows would be read across the other's. */
static bool turn_companions(turning *t, ir_node *n)
{
    const tp_tensor *r = NULL; /* the first image that lies as wanted */
    if (!lower_of((op_id)n->op) && !layout_waits((op_id)n->op))
        return true;
    for (int i = 0; i < n->narg && !r; i++)
        if (n->arg[i].kind == VAL_node && is_new(t, n->arg[i].node))
            r = ir_type(n->arg[i].node);
    if (!r || r->ndim != 4)
        return true;
    for (int i = 0; i < n->narg; i++) {
        ir_node *a = n->arg[i].kind == VAL_node ? n->arg[i].node : NULL;
        const tp_tensor *x = a ? ir_type(a) : NULL;
        if (!x || is_new(t, a) || x->ndim != 4 || memcmp(x->size, r->size, sizeof *x->size * 4) ||
            !tensor_is_contiguous(x) || tensor_is_contiguous_as(x, t->to))
            continue;
        ir_node *c = put_forth(t, a, n);
        if (!c)
            return false;
        ir_set_arg(n, i, (tp_val){ .kind = VAL_node, .node = c });
    }
    return true;
}

static bool touched(turning *t, const ir_node *n)
{
    bool any = false;
    for (int i = 0; i < n->narg; i++) {
        const tp_val *v = &n->arg[i];
        any |= v->kind == VAL_node && is_new(t, v->node);
        for (int k = 0; v->kind == VAL_nodes && k < v->n; k++)
            any |= v->nodes[k] && is_new(t, v->nodes[k]);
    }
    return any;
}

static bool turn_node(turning *t, ir_node *n)
{
    if (n->kind == IR_getitem) {
        if (n->arg[0].node->data != t) /* of a call that was made anew */
            return true;
        ir_node *m = ir_build_item(t->g, n->arg[0].node, (int)n->arg[1].i, t->err);
        if (m)
            stands_for(t, n, m);
        return m != NULL;
    }
    if (layout_images(n) && !turn_images(t, n))
        return false;
    if (n->kind != IR_call || !hands_on(n))
        return put_all_back(t, n);
    if (!touched(t, n))
        return true;
    if (!turn_companions(t, n))
        return false;
    tp_val *arg = ARENA_ARR(&t->g->mem, tp_val, MAX(n->narg, 1));
    memcpy(arg, n->arg, sizeof *arg * (size_t)n->narg);
    ir_node *m = ir_build(t->g, (op_id)n->op, (op_variant)n->variant, arg, n->narg, t->err);
    if (!m)
        return false;
    m->data = t;
    stands_for(t, n, m);
    return true;
}

static void was_free(turning *t)
{
    IR_EACH (n, t->g) {
        tensor_unref(map_geti(&t->was, (uintptr_t)n));
    }
    map_free(&t->was);
    map_free(&t->back);
    map_free(&t->forth);
}

static ir_graph *turn(const ir_graph *g, memfmt to, double *moved, tp_err *err)
{
    turning t = { .g = ir_graph_copy(g), .to = to, .err = err };
    bool ok = true;
    IR_EACH (n, t.g) {
        n->data = NULL;
    }
    IR_EACH_SAFE (n, t.g) {
        ok = ok && turn_node(&t, n);
    }
    was_free(&t);
    *moved = t.moved;
    if (ok && t.turned && ir_verify(t.g, err))
        return t.g;
    ir_graph_free(t.g);
    return NULL;
}

ir_graph *layout_turn(const ir_graph *g, memfmt to, tp_err *err)
{
    double moved;
    return turn(g, to, &moved, err);
}

/* Elements that a convolution of a device turns around in narrow floats; 0: none, or nobody knows. */
static double turned_inside(const ir_node *n)
{
    double sum = 0;
    if (!lower_row(n)->conv || ir_type(n)->ndim != 4 || dtype_size((dtype)ir_type(n)->dt) != 2)
        return 0;
    for (int i = -1; i < 2; i++) {
        const tp_tensor *t = i < 0 ? ir_type(n) : n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
        if (!t || sym_is_expr(t->numel))
            return 0;
        sum += tensor_is_contiguous_as(t, MF_channels_last) ? 0 : (double)t->numel;
    }
    return sum;
}

ir_graph *layout_choose(tp_comp *c, const ir_graph *g)
{
    double inside = 0, moved = 0;
    tp_err err = { 0 };
    if (!c->caps->images_last)
        return NULL;
    IR_EACH (n, g)
        inside += turned_inside(n);
    if (inside == 0 || !decide_at(c, DECIDE_layout, g->name))
        return NULL;
    ir_graph *r = turn(g, MF_channels_last, &moved, &err);
    if (r && moved * 2 > inside) { /* a copy of ours may cost more than one of the library's */
        ir_graph_free(r);
        r = NULL;
    }
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL,
               "%s: images %s (%.0f elements are moved, %.0f inside of convolutions)", g->name,
               r ? "are kept with channels last" : "stay as they are", moved, inside);
    return r;
}
