/* map.h - hash map from byte strings or integers to pointers. Keys are copied. */
#ifndef TAPER_MAP_H
#define TAPER_MAP_H
#include "base/base.h"

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}
static inline uint64_t hash_mix(uint64_t h, uint64_t x) { return hash_u64(h * 0x9e3779b97f4a7c15ULL + x); }

typedef struct map_slot {
    uint32_t hash;  /* private */
    uint32_t state; /* private: 0 empty, -1 deleted, else the length of the key + 1 */
    void *val;
    union { /* private: short keys lie in the slot */
        char here[16];
        char *far;
    } key;
} map_slot;
typedef struct map {
    map_slot *slots; /* read-only: iterate over cap, skipping what is not map_slot_live */
    size_t n, cap;   /* n live entries */
    size_t used;     /* private: live + deleted */
} map;

void map_free(map *m);
void map_reserve(map *m, size_t n);                              /* room for so many without growing */
void *map_getn(const map *m, const void *key, size_t klen);      /* NULL when absent */
void *map_putn(map *m, const void *key, size_t klen, void *val); /* returns the old value or NULL */
void *map_addn(map *m, const void *key, size_t klen,
               void *val);                            /* only if absent, NULL; else what is there */
void *map_deln(map *m, const void *key, size_t klen); /* returns the old value or NULL */
static inline void *map_get(const map *m, const char *key) { return map_getn(m, key, strlen(key)); }
static inline void *map_put(map *m, const char *key, void *v) { return map_putn(m, key, strlen(key), v); }
static inline void *map_geti(const map *m, uint64_t key) { return map_getn(m, &key, sizeof key); }
static inline void *map_puti(map *m, uint64_t key, void *v) { return map_putn(m, &key, sizeof key, v); }
static inline bool map_slot_live(const map_slot *s) { return s->state + 1u > 1; }
static inline size_t map_slot_len(const map_slot *s)
{
    return s->state - 1u;
} /* of the key; live ones only */
static inline const char *map_slot_key(const map_slot *s)
{
    return s->state <= sizeof s->key.here + 1 ? s->key.here : s->key.far;
}
#endif
