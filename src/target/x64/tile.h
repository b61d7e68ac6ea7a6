/* tile.h - what every kind of register tile does with its finished code: make it callable, keep it for the next shape.
 * Knows bytes and keys. May not know what a tile computes. */
#ifndef TAPER_GEN_TILE_H
#define TAPER_GEN_TILE_H
#include "target/x64/asm.h"
#include "base/err.h"
#include "base/map.h"
#include <pthread.h>

typedef struct tile_cache { /* process-wide; the key is the description's bytes */
    pthread_mutex_t lock;
    map made;
} tile_cache;
#define TILE_CACHE                        \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

typedef void *tile_build(const void *tile, tp_err *err);
void *tile_get(tile_cache *c, const void *tile, size_t n, tile_build *build, tp_err *err);

/* The loop over k that every tile has: rcx counts down, `unroll` steps a turn, then one by one. step(tile, u) writes the code
 * of step u of a turn; the registers in `go` advance by so many bytes a step. */
typedef struct tile_go {
    int reg;
    int32_t bytes;
} tile_go;
void tile_k_loop(x64 *e, int unroll, void (*step)(void *tile, int u), void *tile, const tile_go *go, int ngo);

/* The code in e with its constants behind it, at an address; frees e. */
void *tile_publish(x64 *e, const void *consts, size_t nconst, const char *name, tp_err *err);
#endif
