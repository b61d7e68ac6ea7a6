/* attention.c - two products with a kernel between them: run block by block, and only up to the diagonal of a causal mask. */
#include "loop/internal.h"
#include <limits.h>
#include <math.h>

static bool in_attention(const attention *ch, const group *g)
{
    bool in = g == ch->first || g == ch->kernel || g == ch->also;
    for (int i = 0; i < ch->nlast; i++)
        in |= g == ch->last[i];
    return in;
}

/* The products that read n, through views, each as one factor. False: somebody outside the kernel does, too. */
static bool only_products(planner *pl, ir_node *n, const tp_tensor *rows, attention *ch)
{
    if (!n->uses)
        return false;
    for (const ir_use *use = n->uses; use; use = use->next) {
        ir_node *u = use->user;
        const info *f = &pl->in[u->id];
        if (f->product) {
            const tp_tensor *t = ir_type(n);
            bool second = is_plain_bmm(pl, u) && u->arg[1].node == n, plain = t->ndim == 3 && is_packed(t);
            symint turned[3] = { rows->size[0], rows->size[2], rows->size[1] };
            if (!is_plain_bmm(pl, u) || in_attention(ch, f->g) || ch->nlast == ATTENTION_LASTS ||
                !same_sizes(3, t->size, 3, plain ? rows->size : turned) ||
                (!plain && (t->stride[1] != 1 || !sym_known(SYM_eq, t->stride[2], rows->size[2]) ||
                            !sym_known(SYM_eq, t->stride[0], sym_mul(rows->size[1], rows->size[2])))))
                return false;
            ch->how[ch->nlast] = (uint8_t)(ATTENTION_product | (plain == second ? ATTENTION_adds : 0) |
                                           (second ? ATTENTION_second : 0));
            ch->last[ch->nlast++] = f->g;
            continue;
        }
        if (f->g == ch->kernel || (!f->materialized && !f->memview && u->kind == IR_call && u->nuse &&
                                   !used_outside(pl, ch->kernel, u)))
            continue;
        if (f->materialized || f->library_call || u->kind != IR_call || !(row_of(u)->flags & OPF_VIEW) ||
            u->arg[0].node != n || !only_products(pl, u, rows, ch))
            return false;
    }
    return true;
}

static causal_band causal_band_not(causal_band b)
{
    return (causal_band){ !b.up_to, b.up_to ? b.diag + 1 : b.diag - 1 };
}

bool causal_band_of(const ir_node *n, causal_band *b)
{
    bool flip = false;
    causal_band at;
    for (const ir_node *x; lower_row(n)->same_band; n = x)
        if (!(x = lower_row(n)->same_band(n, &flip)))
            return false;
    if (!lower_row(n)->causal_band || !lower_row(n)->causal_band(n, &at))
        return false;
    if (b)
        *b = flip ? causal_band_not(at) : at;
    return true;
}

typedef struct known_masks {
    planner *pl;
    const attention *ch;
    const tp_tensor *t; /* of the products */
    map seen;           /* node -> known_mask + 1 */
    int64_t diag;       /* the farthest of those that conditions name; -1: none does */
    bool open;          /* a sum or an extreme reads what depends on them */
    bool adds;          /* a last product is a sum over rows */
} known_masks;

static known_mask known_mask_of(known_masks *b, ir_node *n);

static known_mask known_value(known_masks *b, const tp_val *v)
{
    tp_val x = *v;
    if (v->kind == VAL_node)
        fill_value(v->node, &x);
    if (is_known_number(&x))
        return val_as_f(&x) == 0 ? KNOWN_zero : val_as_f(&x) == -INFINITY ? KNOWN_lowest : KNOWN_free;
    return v->kind == VAL_node ? known_mask_of(b, v->node) : KNOWN_free;
}

static bool has_rows(const known_masks *b,
                     const ir_node *n) /* its last two dimensions are those of the products */
{
    const tp_tensor *t = ir_type(n);
    return t->ndim >= 2 && same_sizes(2, t->size + t->ndim - 2, 2, b->t->size + 1);
}

/* Is x one of the products times a number? Its maximum along a row is no -inf then. */
static bool is_scaled_product(const known_masks *b, const ir_node *x)
{
    while (x && x != b->ch->first->library_call && (!b->ch->also || x != b->ch->also->library_call)) {
        bool scaled = lower_row(x)->scales && is_known_number(&x->arg[1]);
        x = scaled || lower_row(x)->regroups ? operand(x, 0) : NULL;
    }
    return x != NULL;
}

/* A choice by a condition on places: what is chosen beyond its diagonal. */
static known_mask known_choice(known_masks *b, const ir_node *n)
{
    const lowering *l = lower_row(n);
    const tp_val *yes = &n->arg[l->yes], *no = &n->arg[l->no];
    const ir_node *cond = operand(n, l->cond);
    known_mask y = known_value(b, yes), x = known_value(b, no);
    causal_band at;
    if (!cond || !causal_band_of(cond, &at) || !has_rows(b, cond) || !has_rows(b, n)) {
        if (!cond || known_mask_of(b, (ir_node *)cond) < KNOWN_free)
            return KNOWN_nothing;
        return x == y ? x : MIN(MIN(x, y), KNOWN_free);
    }
    known_mask is = at.up_to ? x : y;
    int64_t diag = at.up_to ? at.diag : at.diag - 1;
    const tp_val *kept = at.up_to ? yes : no;
    /* A row of nothing but -inf is NaN beyond the diagonal as well, and so are gradients that are sums over rows. */
    if (is == KNOWN_lowest && b->adds && (kept->kind != VAL_node || !is_scaled_product(b, kept->node)))
        return KNOWN_nothing;
    if (diag < 0)
        return x == y ? x : KNOWN_nothing;
    if (is >= KNOWN_free)
        b->diag = MAX(b->diag, diag);
    return is;
}

static known_mask known_call(known_masks *b, const ir_node *n)
{
    known_mask x = KNOWN_free, y = KNOWN_free, all = KNOWN_free;
    const lowering *l = lower_row(n);
    if (l->chooses)
        return known_choice(b, n);
    for (int i = n->narg - 1; i >= 0; i--) {
        known_mask k = n->arg[i].kind == VAL_node ? known_value(b, &n->arg[i]) : KNOWN_free;
        for (int q = 0; n->arg[i].kind == VAL_nodes && q < n->arg[i].n; q++)
            if (n->arg[i].nodes[q] && known_mask_of(b, n->arg[i].nodes[q]) < KNOWN_free)
                k = KNOWN_nothing;
        all = MIN(all, k);
        y = i == 1 ? k : y;
        x = i == 0 ? k : x;
    }
    bool view = row_of(n)->flags & OPF_VIEW;
    if (l->known)
        return l->known(x, y, all);
    if ((view || is_copy(n)) && x != KNOWN_free)
        return has_rows(b, n) && (!view || l->regroups) ? x : KNOWN_nothing;
    return all < KNOWN_free ? KNOWN_nothing : KNOWN_free;
}

static known_mask known_mask_of(known_masks *b, ir_node *n)
{
    uintptr_t had = (uintptr_t)map_geti(&b->seen, (uintptr_t)n);
    const info *f = &b->pl->in[n->id];
    known_mask is = KNOWN_free;
    if (had)
        return (known_mask)(had - 1);
    if (n == b->ch->first->library_call || (b->ch->also && n == b->ch->also->library_call))
        is = KNOWN_finite;
    else if (n->kind == IR_call && f->red && f->g == b->ch->kernel) {
        ir_node *x = operand(n, 0);
        b->open |= !x || f->mask != 1u << (ir_type(x)->ndim - 1) || known_mask_of(b, x) < KNOWN_free;
    } else if (n->kind == IR_call && (!f->materialized || f->g == b->ch->kernel))
        is = known_call(b, n);
    map_puti(&b->seen, (uintptr_t)n, (void *)(uintptr_t)(is + 1));
    return is;
}

/* Is all that the kernel writes 0 beyond some diagonal, as the probabilities of causal attention and their gradients are, whatever
 * the products hold there? Row r needs its first r + reach elements alone then; 0: no such thing is known. */
static int64_t reach_of_rows(planner *pl, const attention *ch)
{
    known_masks b = { .pl = pl, .ch = ch, .t = ir_type(ch->first->library_call), .diag = -1 };
    bool zero = true;
    for (int i = 0; i < ch->nlast; i++)
        b.adds |= (ch->how[i] & ATTENTION_adds) != 0;
    for (int m = 0; m < ch->kernel->n; m++) {
        ir_node *n = ch->kernel->member[m];
        known_mask is = known_mask_of(&b, n);
        if (pl->in[n->id].stored && !pl->in[n->id].outer)
            zero &= is == KNOWN_zero && has_rows(&b, n);
    }
    map_free(&b.seen);
    return zero && !b.open && b.diag >= 0 && decide(pl->c, DECIDE_range, ch->between[0]) ? b.diag + 1 : 0;
}

/* Another product whose rows only the kernel reads. */
static group *other_product(planner *pl, const group *g, const group *kernel, const uint64_t *written)
{
    group *other = NULL;
    for (size_t i = 0; i < kernel->before.n; i++) {
        group *h = kernel->before.at[i];
        const tp_tensor *t = h->library_call ? ir_type(h->library_call) : NULL;
        if (h != g && t && (!other || h->id < other->id) && !bit_has(written, h->id) &&
            h->library_call->nuse && is_plain_bmm(pl, h->library_call) && is_packed(t) &&
            same_sizes(3, t->size, 3, ir_type(g->library_call)->size) &&
            !used_outside(pl, kernel, h->library_call))
            other = h;
    }
    return other;
}

/* What product g could be the first of. */
attention find_attention(planner *pl, group *g, const uint64_t *written)
{
    ir_node *n = g->library_call;
    attention none = { 0 };
    if (!is_plain_bmm(pl, n) || !is_packed(ir_type(n)) || is_half(ir_type(n)))
        return none;
    for (size_t i = 0; i < g->after.n; i++) { /* one of them at most has all its readers */
        group *h = g->after.at[i];
        attention ch = { .kernel = h, .first = g };
        if (h->library_call || !h->n || used_outside(pl, h, n))
            continue;
        for (int m = 0; m < h->n; m++) {
            ir_node *s = h->member[m];
            if (!pl->in[s->id].stored || pl->in[s->id].outer)
                continue;
            if (ch.nbetween == ATTENTION_BETWEEN || !is_packed(ir_type(s)) ||
                !only_products(pl, s, ir_type(n), &ch))
                return none; /* one of them would have to exist as a whole anyway */
            ch.between[ch.nbetween++] = s;
        }
        if (!ch.nlast)
            return none;
        ch.also = other_product(pl, g, h, written);
        ch.reach = reach_of_rows(pl, &ch);
        find_softmax(pl, &ch);
        return ch;
    }
    return none;
}

/* The other factors of the products must be there before the first one starts: small kernels are, by then. */
bool write_factors(planner *pl, attention *ch, uint64_t *written)
{
    group_list all = { 0 }, missing = { 0 };
    int walk = ++pl->nwalk;
    unwritten_before(pl, ch->kernel, written, walk, INT_MAX, &all);
    if (ch->also)
        unwritten_before(pl, ch->also, written, walk, INT_MAX, &all);
    for (int i = 0; i < ch->nlast; i++)
        unwritten_before(pl, ch->last[i], written, walk, INT_MAX, &all);
    for (size_t i = 0; i < all.n && ch->kernel; i++) {
        group *m = all.at[i];
        if (in_attention(ch, m))
            continue;
        vec_push(&missing, m);
        if ((m->library_call && !reserves(m)) || comes_before(pl, ch->first, m)) {
            log_fusion(pl, ch->last[0]->library_call, ch->first, false,
                       "another step must come between the products");
            ch->kernel = NULL;
            missing.n = 0;
        }
    }
    vec_free(&all);
    return write_missing(pl, &missing, written); /* in their order */
}

/* The second product that the kernel reads, and the kernel on its rows. */
bool write_also(planner *pl, attention *ch, uint64_t *written)
{
    loop_plan *p = pl->p;
    bool fits = false;
    size_t at = p->step.n - 1;
    bit_set(written, ch->also->id);
    write_call(pl, ch->also, true);
    if (!write_kernel(pl, ch->kernel, ch->also->library_call, &fits, ch))
        return false;
    log_fusion(pl, ch->kernel->member[0], ch->also, fits,
               fits ? "on the rows of the product" : "its rows are not the product's");
    if (!fits)
        return true;
    bit_set(written, ch->kernel->id);
    p->nfused++;
    loop_step first = p->step.at[at]; /* whatever came between goes in front of both products */
    memmove(&p->step.at[at], &p->step.at[at + 1], sizeof first * (p->step.n - 3 - at));
    p->step.at[p->step.n - 3] = first;
    p->step.at[p->step.n - 3].joins = ch->fits;
    return true;
}

void write_lasts(planner *pl, const attention *ch, uint64_t *written)
{
    pl->p->slot.at[slot_of(pl, ch->first->library_call)].transient = true;
    if (ch->also)
        pl->p->slot.at[slot_of(pl, ch->also->library_call)].transient = true;
    for (int i = 0; i < ch->nbetween; i++)
        pl->p->slot.at[slot_of(pl, ch->between[i])].transient = true;
    loop_soft soft = { .kind = ch->soft,
                       .second = ch->second,
                       .scale = ch->scale,
                       .top = ch->top ? slot_of(pl, ch->top) + 1 : 0,
                       .part = ch->part ? slot_of(pl, ch->part) + 1 : 0,
                       .probs = ch->probs ? slot_of(pl, ch->probs) + 1 : 0 };
    for (int i = 0; i < ch->nlast; i++) {
        ir_node *n = ch->last[i]->library_call;
        int s = slot_of(pl, n);
        vec_push(&pl->p->step, ((loop_step){ .kind = STEP_extern,
                                             .product = true,
                                             .attention = ch->how[i],
                                             .node = n,
                                             .slot = s,
                                             .nslot = 1,
                                             .reach = ch->reach,
                                             .soft = soft }));
        pl->p->nproduct++;
        pl->p->nfused++;
        bit_set(written, ch->last[i]->id);
    }
}

/* May its products run block by block? */
bool attention_allowed(planner *pl, const attention *ch)
{
    bool ok = !ch->also || !refuses_tiles(pl, ch->also->library_call);
    for (int i = 0; i < ch->nlast && ok; i++)
        ok = decide(pl->c, DECIDE_fuse, ch->last[i]->library_call) &&
             !refuses_tiles(pl, ch->last[i]->library_call);
    return ok;
}
