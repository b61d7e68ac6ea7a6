/* product.c - products into buffers of the plan, and kernels that run on their rows as they are finished. */
#include "loop/internal.h"
#include "events/events.h"
#include "ir/planted.h"

/* May the kernel run on rows of a product as they are finished? Step i of its parallel loop must be row i. */
bool is_epilogue(const walk *w, const nest *t, bool red, const ir_node *product)
{
    const tp_tensor *c = ir_type(product);
    symint len = row_of_product(product), run = len;
    int nouter = t->nkeep - !red, inner = red ? t->red[0] : t->nkeep ? t->keep[t->nkeep - 1] : -1;
    bool read = false;
    if (t->column || inner < 0 || (red && t->nred != 1))
        return false;
    bool flat = !red && nouter == 0;
    if (!flat && !sym_known(SYM_eq, t->size[inner], len))
        return false;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (a->n && a->n != product && beyond_views((ir_node *)a->n) == product)
            return false;
        if (a->n != product)
            continue;
        read = true;
        if (a->raw || a->at.opaque || a->at.k != 0 || stride_in(&a->at, inner) != 1)
            return false;
        run = len;
        for (int k = nouter - 1; k >= 0; k--) {
            if (!sym_known(SYM_eq, stride_in(&a->at, t->keep[k]), run))
                return false;
            run = sym_mul(run, t->size[t->keep[k]]);
        }
    }
    return read && sym_known(SYM_eq, flat ? t->size[inner] : run, c->numel);
}

/* Does the kernel write its row i where it reads row i of the product, each counted in its own memory? */
bool same_rows(const walk *w, const ir_node *product, const ir_node *to)
{
    const lin *at = NULL;
    for (size_t i = 0; i < w->seen.n && !at; i++)
        if (w->seen.at[i].to == to)
            at = &w->seen.at[i].at;
    for (size_t i = 0; i < w->seen.n && at; i++)
        if (w->seen.at[i].n == product && !lin_equal(&w->seen.at[i].at, at))
            at = NULL;
    return at != NULL;
}

/* Whoever looks for a miscompile can have the library's products and loops instead. */
bool refuses_tiles(planner *pl, const ir_node *n)
{
    if (n->kind != IR_call || decide(pl->c, DECIDE_tile, n))
        return false;
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s runs without emitted tiles: refused", n->name);
    return true;
}

/* Do loops alone read n, some of them through views, whose strides follow from its own? */
static bool only_loops_read(const ir_node *n)
{
    uint32_t mask;
    uint8_t kind;
    for (const ir_use *u = n->uses; u; u = u->next) {
        ir_node *x = u->user;
        if (x->kind != IR_call || x->variant != OPV_fn || !ir_type(x))
            return false;
        if (row_of(x)->flags & OPF_VIEW
                ? !only_loops_read(x)
                : !lower_of((op_id)x->op) && !lower_row(x)->copies && !reduction(x, &mask, &kind))
            return false;
    }
    return true;
}

typedef struct again { /* a node, and what takes its place */
    ir_node *old, *now;
} again;
enum { MOST_AGAIN = 16 };

static ir_node *build_again(planner *pl, ir_node *old, const tp_val *arg, again *list, int *n)
{
    tp_err quiet = { 0 };
    ir_node *now = *n < MOST_AGAIN
                       ? ir_build(pl->g, (op_id)old->op, (op_variant)old->variant, arg, old->narg, &quiet)
                       : NULL;
    if (now) {
        ir_insert_before(pl->g, old, now);
        now->loc = old->loc;
        now->meta = old->meta;
        now->spell = old->spell;
        list[(*n)++] = (again){ old, now };
    }
    return now;
}

/* Views of `old` once more as views of `now`. */
static bool views_again(planner *pl, ir_node *old, ir_node *now, again *list, int *n)
{
    for (const ir_use *u = old->uses; u; u = u->next) {
        ir_node *x = u->user;
        tp_val arg[OP_MAX_PARAMS];
        if (!(row_of(x)->flags & OPF_VIEW))
            continue;
        memcpy(arg, x->arg, sizeof *arg * (size_t)x->narg);
        arg[0].node = now;
        ir_node *v = build_again(pl, x, arg, list, n);
        if (!v || !views_again(pl, x, v, list, n))
            return false;
    }
    return true;
}

/* Rows of whole accesses: one dimension is packed, the other's steps are multiples of `align`. */
static bool is_aligned(const tp_tensor *t, int align)
{
    return (t->stride[1] == 1 && t->stride[0] % align == 0) ||
           (t->stride[0] == 1 && t->stride[1] % align == 0);
}

/* A large product whose rows are no multiple of what the target wants, and nothing else is odd about it. */
static bool has_odd_rows(planner *pl, const ir_node *n)
{
    enum { LARGE = 1 << 28 };
    int align = pl->c->caps->row_align, f = lower_row(n)->factor - 1;
    const tp_tensor *o = ir_type(n);
    if (n->kind != IR_call || f != 0 || lower_row(n)->batched || !o || !is_half(o) || !is_product(pl, n) ||
        !is_packed(o))
        return false;
    const tp_tensor *t[3] = { o, ir_type(n->arg[0].node), ir_type(n->arg[1].node) };
    for (int i = 0; i < 3; i++)
        if (t[i]->ndim != 2 || !sym_all_const(t[i]->size, 2) || !sym_all_const(t[i]->stride, 2))
            return false;
    return o->size[1] > align && o->size[1] % align && is_aligned(t[1], align) && is_aligned(t[2], align) &&
           o->size[0] * o->size[1] >= LARGE / MAX(t[1]->size[1], 1);
}

/* Loops read any strides: where they alone read such a product, its rows lie further apart. */
void align_rows(planner *pl)
{
    int align = pl->c->caps->row_align;
    for (ir_node *n = pl->g->first, *next; align && n; n = next) {
        again list[MOST_AGAIN];
        int k = 0;
        next = n->next;
        if (!has_odd_rows(pl, n) || !only_loops_read(n) || !decide(pl->c, DECIDE_layout, n))
            continue;
        ir_node *now = build_again(pl, n, n->arg, list, &k);
        bool ok = now != NULL;
        if (ok) {
            symint stride[2] = { (ir_type(n)->size[1] + align - 1) / align * align, 1 };
            ir_set_strides(now, stride);
            ok = views_again(pl, n, now, list, &k);
            next = now->next;
        }
        for (int i = 0; i < k && ok; i++)
            ir_replace_uses(list[i].old, list[i].now);
        for (int i = k - 1; i >= 0; i--) {
            ir_node *gone = ok ? list[i].old : list[i].now;
            next = gone == next ? gone->next : next;
            ir_erase(gone);
        }
        if (ok && ev_text_on(EV_fusion))
            ev_text(EV_fusion, NULL, "%s has rows of %lld elements in memory: the product is faster so",
                    now->name, (long long)ir_type(now)->stride[0]);
    }
}

/* What a kernel of one value computes of a product, where that is all that it does and nobody else wants the product. */
static uint8_t activation_of(planner *pl, const loop_step *product, const loop_kernel *k)
{
    const ir_node *n = k->nodes.n == 1 ? k->nodes.at[0] : NULL, *of = product->node;
    if (!n || k->nbuf != 2 || k->fault || of->nuse != 1 || !is_half(ir_type(of)) || !is_packed(ir_type(of)) ||
        !lower_row(n)->act || n->arg[0].kind != VAL_node || beyond_views(n->arg[0].node) != of)
        return ACT_none;
    for (const ir_node *x = n; x != of; x = x->arg[0].node)
        if (!is_packed(ir_type(x)) || !sym_known(SYM_eq, ir_type(x)->numel, ir_type(of)->numel) ||
            (x != n && x->nuse != 1))
            return ACT_none;
    bool planted = TP_UNLIKELY(fault_state != 0) &&
                   (ir_fault_at("gen", n) != FAULT_none || ir_fault_at("lower", n) != FAULT_none);
    return planted || !decide(pl->c, DECIDE_fuse, n) || ir_type(n)->dt != ir_type(of)->dt
               ? ACT_none
               : lower_row(n)->act(n);
}

void find_activations(planner *pl)
{
    loop_plan *p = pl->p;
    for (size_t i = 0; pl->c->caps->activates && i + 1 < p->step.n; i++) {
        loop_step *s = &p->step.at[i], *next = s + 1;
        const lowering *l = s->kind == STEP_extern ? lower_row(s->node) : NULL;
        if (!s->product || !l->factor || l->batched || l->conv || s->joins || s->attention ||
            next->kind != STEP_kernel || next->epilogue)
            continue;
        s->act = activation_of(pl, s, next->kernel);
        int slot = s->act ? slot_of(pl, (ir_node *)next->kernel->nodes.at[0]) : -1;
        s->acted = next->kernel->buf[1] == slot;
        next->epilogue = s->act != ACT_none;
        if (s->act)
            log_fusion(pl, (ir_node *)next->kernel->nodes.at[0],
                       &(group){ .library_call = (ir_node *)s->node }, true, "the product may apply it");
    }
}

/* Does it only reserve a stretch of a random sequence? */
bool reserves(const group *g) { return g->library_call && lower_row(g->library_call)->reserves; }

void write_call(planner *pl, const group *g, bool own)
{
    loop_step s = { .kind = STEP_extern,
                    .product = own,
                    .plain = lower_row(g->library_call)->tiles && refuses_tiles(pl, g->library_call),
                    .node = g->library_call,
                    .slot = slot_of(pl, g->library_call),
                    .nslot = 1 };
    vec_push(&pl->p->step, s);
    pl->p->nextern += !own;
    pl->p->nproduct += own;
}

static bool write_before(planner *pl, group_list *missing, uint64_t *written)
{
    list_sort(missing);
    for (size_t i = 0; i < missing->n; i++) {
        group *m = missing->at[i];
        bit_set(written, m->id);
        if (m->library_call)
            write_call(pl, m, false);
        else if (!write_group(pl, m))
            return false;
    }
    return true;
}
bool write_missing(planner *pl, group_list *missing, uint64_t *written)
{
    bool ok = write_before(pl, missing, written);
    vec_free(missing);
    return ok;
}

/* Is it little that must still come before h, and does none of it follow g? */
static bool needs_little(planner *pl, const group *g, const group *h, const group_list *missing)
{
    int count = 0;
    for (size_t i = 0; i < missing->n && count <= 2; i++) {
        const group *m = missing->at[i];
        count += list_has(&m->before, g) ? 3 : reserves(m) ? 0 : m->library_call ? 3 : 1;
    }
    return count <= 2;
}

/* Small things that what follows a product also needs (a mask, a place to draw from) come before it, so that it may run on its
 * rows. */
static bool write_needed(planner *pl, group *g, uint64_t *written)
{
    list_sort(&g->after);
    for (size_t i = 0; i < g->after.n; i++) {
        const group *h = g->after.at[i];
        group_list missing = { 0 };
        if (h->library_call || bit_has(written, h->id) || pl->writes[h->id])
            continue;
        unwritten_before(pl, h, written, ++pl->nwalk, 3, &missing);
        if (needs_little(pl, g, h, &missing))
            return write_missing(pl, &missing, written);
        vec_free(&missing);
    }
    return true;
}

/* What follows a product and needs nothing later may run on its rows while they are in cache. */
static bool write_epilogue(planner *pl, group *g, uint64_t *written, attention *ch)
{
    for (size_t i = 0; i < g->after.n; i++) { /* sorted by write_needed */
        group *h = g->after.at[i];
        bool fits = false, all = true;
        for (size_t k = 0; k < h->before.n && all; k++)
            all = bit_has(written, h->before.at[k]->id);
        if (h->library_call || bit_has(written, h->id) || pl->writes[h->id] || !all ||
            (!pl->c->caps->epilogues && h != ch->kernel))
            continue;
        const char *why = "its rows are not the product's";
        if (h->n == 1 && (pl->in[h->member[0]->id].scatter || part_count(h->member[0])))
            continue;
        if (!decide(pl->c, DECIDE_fuse, h->member[0]))
            why = "refused";
        else if (!write_kernel(pl, h, g->library_call, &fits, ch))
            return false;
        log_fusion(pl, h->member[0], g, fits, fits ? "on the rows of the product" : why);
        if (fits) {
            bit_set(written, h->id);
            pl->p->nfused++;
            return true;
        }
    }
    return true;
}

/* What product g begins, with its factors written. ch->kernel is NULL where there is no such thing. */
static bool begin_attention(planner *pl, group *g, uint64_t *written, attention *ch)
{
    *ch = find_attention(pl, g, written);
    if (ch->kernel && !attention_allowed(pl, ch)) {
        log_fusion(pl, ch->last[0]->library_call, g, false, "refused");
        ch->kernel = NULL;
    }
    return !ch->kernel || write_factors(pl, ch, written);
}

/* A product of narrow floats begins no attention. Is one that comes later the first, and g the second that the kernel reads? Then both
 * come now: g alone would have to exist as a whole. */
static bool begin_with_later(planner *pl, group *g, uint64_t *written, attention *ch)
{
    if (!is_half(ir_type(g->library_call)) || !is_plain_bmm(pl, g->library_call))
        return true;
    written[g->id / 64] &= ~(1ull << (g->id % 64)); /* not yet, while others look for it */
    for (size_t i = 0; i < g->after.n; i++) {
        const group *h = g->after.at[i];
        for (size_t k = 0; k < h->before.n && !h->library_call && !bit_has(written, h->id); k++) {
            group *w = h->before.at[k];
            if (w == g || !w->library_call || bit_has(written, w->id) || !is_plain_bmm(pl, w->library_call) ||
                find_attention(pl, w, written).also != g)
                continue;
            if (!begin_attention(pl, w, written, ch))
                return false;
            if (ch->kernel) {
                bit_set(written, w->id);
                return true;
            }
        }
    }
    bit_set(written, g->id);
    return true;
}

/* A product, with what runs on its rows or block by block with it. */
static bool write_product(planner *pl, group *g, uint64_t *written)
{
    attention ch = { 0 };
    if (pl->c->caps->attends &&
        (!begin_attention(pl, g, written, &ch) || (!ch.kernel && !begin_with_later(pl, g, written, &ch))))
        return false;
    if (ch.kernel)
        g = ch.first;
    if (!write_needed(pl, g, written))
        return false;
    write_call(pl, g, true);
    if (!pl->c->caps->epilogues && !ch.kernel)
        return true;
    if (ch.kernel && ch.also ? !write_also(pl, &ch, written) : !write_epilogue(pl, g, written, &ch))
        return false;
    if (!ch.kernel)
        return true;
    log_fusion(pl, ch.last[0]->library_call, g, ch.fits,
               ch.fits && ch.reach
                   ? "the products block by block up to the diagonal, with the kernel between them in cache"
               : ch.fits ? "the products block by block, with the kernel between them in cache"
                         : "what lies between them is not made row by row");
    if (ch.fits)
        write_lasts(pl, &ch, written);
    return true;
}

/* Every group in its order: a kernel, a call, or a product with what follows it. */
bool write_steps(planner *pl, const int *order)
{
    tp_err *err = pl->c->err;
    uint64_t *written = ARENA_ARR(&pl->tmp, uint64_t, pl->groups.n / 64 + 1);
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *g = pl->groups.at[order[i]];
        if (bit_has(written, g->id)) /* on the rows of a product */
            continue;
        bit_set(written, g->id);
        if (!g->library_call) {
            if (!write_group(pl, g))
                return fails_at(err, g->member[g->n - 1]);
            continue;
        }
        if (TP_UNLIKELY(fault_state != 0) && ir_fault_at("gen", g->library_call) == FAULT_compile_error) {
            err_set(err, ERR_compiler, "planted fault: the emitter cannot compile '%s'",
                    row_of(g->library_call)->name);
            return fails_at(err, g->library_call);
        }
        bool own = pl->in[g->library_call->id].product;
        if (!own || lower_row(g->library_call)->items)
            write_call(pl, g, own);
        else if (!write_product(pl, g, written))
            return false;
    }
    return true;
}
