/* product.c - products into buffers of the plan, and kernels that run on their rows as they are finished. */
#include "loop/internal.h"
#include "events/events.h"
#include "ir/planted.h"

/* May the kernel run on rows of a product as they are finished? Step i of its parallel loop must be row i. */
bool rides(const walk *w, const nest *t, bool red, const ir_node *product)
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
        if (a->n && a->n != product && behind_views((ir_node *)a->n) == product)
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

/* Does it only reserve a stretch of a random sequence? */
bool reserves(const group *g) { return g->ext && lower_row(g->ext)->reserves; }

void write_call(planner *pl, const group *g, bool own)
{
    loop_step s = { .kind = STEP_extern,
                    .product = own,
                    .plain = lower_row(g->ext)->tiles && refuses_tiles(pl, g->ext),
                    .node = g->ext,
                    .slot = slot_of(pl, g->ext),
                    .nslot = 1 };
    vec_push(&pl->p->step, s);
    pl->p->nextern += !own;
    pl->p->nproduct += own;
}

/* Small things that what follows a product also needs (a mask, a place to draw from) come before it, so that it may run on its
 * rows. */
static bool write_needed(planner *pl, const group *g, const int *order, size_t at, uint64_t *written)
{
    for (size_t i = at + 1; i < pl->groups.n; i++) {
        const group *h = pl->groups.at[order[i]];
        int missing = 0;
        if (h->ext || !bit_has(h->before, g->id) || bit_has(written, h->id) || pl->writes[h->id])
            continue;
        for (int q = 0; q < pl->words; q++)
            for (uint64_t left = h->before[q] & ~written[q]; left && missing <= 2; left &= left - 1) {
                const group *m = pl->groups.at[q * 64 + __builtin_ctzll(left)];
                if (m != g)
                    missing += bit_has(m->before, g->id) ? 3 : reserves(m) ? 0 : m->ext ? 3 : 1;
            }
        if (missing > 2)
            continue;
        for (size_t k = at + 1; k < i; k++) { /* in their order */
            group *m = pl->groups.at[order[k]];
            if (!bit_has(h->before, m->id) || bit_has(written, m->id))
                continue;
            bit_set(written, m->id);
            if (m->ext)
                write_call(pl, m, false);
            else if (!write_group(pl, m))
                return false;
        }
        return true;
    }
    return true;
}

/* What follows a product and needs nothing later may run on its rows while they are in cache. */
static bool write_riders(planner *pl, group *g, const int *order, size_t at, uint64_t *written, chain *ch)
{
    for (size_t i = at + 1; i < pl->groups.n; i++) {
        group *h = pl->groups.at[order[i]];
        bool fits = false;
        if (h->ext || !bit_has(h->before, g->id) || bit_has(written, h->id) || pl->writes[h->id] ||
            !bits_within(h->before, written, NULL, pl->words))
            continue;
        const char *why = "its rows are not the product's";
        if (h->n == 1 && (pl->in[h->member[0]->id].put || part_count(h->member[0])))
            continue;
        if (!decide(pl->c, DECIDE_fuse, h->member[0]))
            why = "refused";
        else if (!write_kernel(pl, h, g->ext, &fits, ch))
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

/* A product, with what runs on its rows or block by block with it. at: of the order. */
static bool write_product(planner *pl, group *g, const int *order, size_t at, uint64_t *written)
{
    chain ch = pl->c->caps->attends ? find_chain(pl, g, written) : (chain){ 0 };
    if (ch.kernel && !chain_allowed(pl, &ch)) {
        log_fusion(pl, ch.last[0]->ext, g, false, "refused");
        ch.kernel = NULL;
    }
    if (ch.kernel && !write_factors(pl, &ch, order, written))
        return false;
    if (!write_needed(pl, g, order, at, written))
        return false;
    write_call(pl, g, true);
    if (!pl->c->caps->epilogues)
        return true;
    if (ch.kernel && ch.also ? !write_also(pl, &ch, written) : !write_riders(pl, g, order, at, written, &ch))
        return false;
    if (!ch.kernel)
        return true;
    log_fusion(pl, ch.last[0]->ext, g, ch.fits,
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
    uint64_t *written = ARENA_ARR(&pl->tmp, uint64_t, pl->words);
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *g = pl->groups.at[order[i]];
        if (bit_has(written, g->id)) /* on the rows of a product */
            continue;
        bit_set(written, g->id);
        if (!g->ext) {
            if (!write_group(pl, g))
                return fails_at(err, g->member[g->n - 1]);
            continue;
        }
        if (TP_UNLIKELY(fault_state != 0) && ir_fault_at("gen", g->ext) == FAULT_compile_error) {
            err_set(err, ERR_compiler, "planted fault: the emitter cannot compile '%s'",
                    row_of(g->ext)->name);
            return fails_at(err, g->ext);
        }
        if (!pl->in[g->ext->id].product)
            write_call(pl, g, false);
        else if (!write_product(pl, g, order, i, written))
            return false;
    }
    return true;
}
