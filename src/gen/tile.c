/* tile.c - see tile.h. */
#include "gen/tile.h"
#include "gen/publish.h"

void *tile_get(tile_cache *c, const void *tile, size_t n, tile_build *build, tp_err *err)
{
    pthread_mutex_lock(&c->lock);
    void *p = map_getn(&c->made, tile, n);
    if (!p && (p = build(tile, err)))
        map_putn(&c->made, tile, n, p);
    pthread_mutex_unlock(&c->lock);
    return p;
}

void *tile_publish(x64 *e, const void *consts, size_t nconst, const char *name, tp_err *err)
{
    size_t at = (e->n + 63) & ~(size_t)63;
    x64_link(e, at);
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
