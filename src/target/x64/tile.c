/* tile.c - see tile.h. */
#include "target/x64/tile.h"
#include "target/x64/publish.h"

void *tile_get(tile_cache *c, const void *tile, size_t n, tile_build *build, tp_err *err)
{
    pthread_mutex_lock(&c->lock);
    void *p = map_getn(&c->made, tile, n);
    if (!p && (p = build(tile, err)))
        map_putn(&c->made, tile, n, p);
    pthread_mutex_unlock(&c->lock);
    return p;
}

static void advance(x64 *e, const tile_go *go, int ngo, int steps)
{
    for (int i = 0; i < ngo; i++)
        x64_alu_ri(e, G_add, go[i].reg, steps * go[i].bytes);
}

void tile_k_loop(x64 *e, int unroll, void (*step)(void *tile, int u), void *tile, const tile_go *go, int ngo)
{
    int top = x64_label(e), rest = x64_label(e), one = x64_label(e), out = x64_label(e);
    x64_alu_ri(e, G_sub, RCX, unroll);
    x64_jcc(e, CC_l, rest);
    x64_place(e, top);
    for (int u = 0; u < unroll; u++)
        step(tile, u);
    advance(e, go, ngo, unroll);
    x64_alu_ri(e, G_sub, RCX, unroll);
    x64_jcc(e, CC_ge, top);
    x64_place(e, rest);
    x64_alu_ri(e, G_add, RCX, unroll);
    x64_jcc(e, CC_e, out);
    x64_place(e, one);
    step(tile, 0);
    advance(e, go, ngo, 1);
    x64_alu_ri(e, G_sub, RCX, 1);
    x64_jcc(e, CC_g, one);
    x64_place(e, out);
}

void *tile_publish(x64 *e, const void *consts, size_t nconst, const char *name, tp_err *err)
{
    size_t at = (e->n + 63) & ~(size_t)63;
    if (!x64_link(e, at)) {
        err_set(err, ERR_internal, "the machine code of '%s' jumps to nowhere", name);
        return NULL;
    }
    gen_code c = { .ncode = e->n, .leaf = true, .n = nconst ? at + nconst : e->n };
    c.bytes = mem_zalloc(c.n);
    memcpy(c.bytes, e->code, e->n);
    if (nconst)
        memcpy(c.bytes + at, consts, nconst);
    void *p = gen_publish(&c, name, err);
    gen_code_free(&c);
    x64_free(e);
    return p;
}
