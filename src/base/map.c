#include "base/map.h"

enum { EMPTY = 0 };
#define DELETED ((size_t)-1)

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15ULL), w;

    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = hash_mix(h, w);
    }
    w = 0;
    memcpy(&w, s, n);
    return hash_mix(h, w);
}

static void key_free(map_slot *s)
{
    if (map_slot_len(s) > sizeof s->key.here)
        free(s->key.far);
}

void map_free(map *m)
{
    for (size_t i = 0; i < m->cap; i++)
        if (map_slot_live(&m->slots[i]))
            key_free(&m->slots[i]);
    free(m->slots);
    memset(m, 0, sizeof *m);
}

static map_slot *find(const map *m, const void *key, size_t klen, uint64_t h)
{
    for (size_t i = h & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        map_slot *s = &m->slots[i];
        if (s->state == EMPTY)
            return NULL;
        if (s->hash == h && s->state == klen + 1 && !memcmp(map_slot_key(s), key, klen))
            return s;
    }
}

static void rehash(map *m, size_t cap)
{
    map_slot *old = m->slots;
    size_t oldcap = m->cap;

    m->slots = mem_zalloc(cap * sizeof *m->slots);
    m->cap = cap;
    m->used = m->n;
    for (size_t j = 0; j < oldcap; j++) {
        if (!map_slot_live(&old[j]))
            continue;
        size_t i = old[j].hash & (cap - 1);
        while (m->slots[i].state != EMPTY)
            i = (i + 1) & (cap - 1);
        m->slots[i] = old[j];
    }
    free(old);
}

void *map_getn(const map *m, const void *key, size_t klen)
{
    map_slot *s = m->cap ? find(m, key, klen, hash_bytes(key, klen, 0)) : NULL;
    return s ? s->val : NULL;
}

void *map_putn(map *m, const void *key, size_t klen, void *val)
{
    uint64_t h = hash_bytes(key, klen, 0);
    map_slot *s = m->cap ? find(m, key, klen, h) : NULL;

    if (s) {
        void *old = s->val;
        s->val = val;
        return old;
    }
    if ((m->used + 1) * 4 > m->cap * 3)
        rehash(m, m->n * 2 + 2 > m->cap / 2 ? (m->cap ? m->cap * 2 : 16) : m->cap);
    size_t i = h & (m->cap - 1);
    while (map_slot_live(&m->slots[i]))
        i = (i + 1) & (m->cap - 1);
    s = &m->slots[i];
    if (s->state == EMPTY)
        m->used++;
    m->n++;
    s->hash = h;
    s->state = klen + 1;
    if (klen <= sizeof s->key.here)
        memcpy(s->key.here, key, klen);
    else
        s->key.far = mem_strndup(key, klen);
    s->val = val;
    return NULL;
}

void *map_deln(map *m, const void *key, size_t klen)
{
    map_slot *s = m->cap ? find(m, key, klen, hash_bytes(key, klen, 0)) : NULL;
    if (!s)
        return NULL;
    void *old = s->val;
    key_free(s);
    s->state = DELETED;
    m->n--;
    return old;
}
