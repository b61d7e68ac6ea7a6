#include "base/map.h"

enum { EMPTY = 0 };
#define DELETED UINT32_MAX

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

/* Keys of maps: short, and never seen outside. */
static inline uint64_t load(const void *p, size_t n) /* n: 4 or 8 */
{
    uint64_t w = 0;
    memcpy(&w, p, n);
    return w;
}
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}
static inline uint32_t key_hash(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0x9e3779b97f4a7c15ULL ^ n, a, b;
    for (size_t left = n; left > 16; left -= 16, s += 16)
        h = fold(load(s, 8) ^ h, load(s + 8, 8) ^ 0xff51afd7ed558ccdULL);
    n -= (size_t)(s - (const unsigned char *)p);
    if (n >= 8)
        a = load(s, 8), b = load(s + n - 8, 8);
    else if (n >= 4)
        a = load(s, 4), b = load(s + n - 4, 4);
    else
        a = n ? (uint64_t)s[0] << 16 | (uint64_t)s[n / 2] << 8 | s[n - 1] : 0, b = 0;
    return (uint32_t)fold(fold(a ^ h, b ^ 0xc4ceb9fe1a85ec53ULL) ^ h, 0x9e3779b97f4a7c15ULL);
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

/* *end: where the key would go, which is the first slot on its way that was freed. */
static inline map_slot *find(const map *m, const void *key, size_t klen, uint32_t h, size_t *end)
{
    size_t i = h & (m->cap - 1), freed = SIZE_MAX;
    for (;; i = (i + 1) & (m->cap - 1)) {
        map_slot *s = &m->slots[i];
        if (s->state == EMPTY) {
            *end = freed != SIZE_MAX ? freed : i;
            return NULL;
        }
        if (s->state == DELETED && freed == SIZE_MAX)
            freed = i;
        if (s->hash == h && s->state == (uint32_t)klen + 1 && !memcmp(map_slot_key(s), key, klen))
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

void map_reserve(map *m, size_t n)
{
    size_t cap = m->cap ? m->cap : 16;
    while (n * 4 > cap * 3)
        cap *= 2;
    if (cap > m->cap)
        rehash(m, cap);
}

void *map_getn(const map *m, const void *key, size_t klen)
{
    size_t end;
    map_slot *s = m->cap ? find(m, key, klen, key_hash(key, klen), &end) : NULL;
    return s ? s->val : NULL;
}

static inline map_slot *at_key(map *m, const void *key, size_t klen, void *val) /* NULL: added */
{
    uint32_t h = key_hash(key, klen);
    size_t i = 0;
    assert(klen < UINT32_MAX - 1);
    map_slot *s = m->cap ? find(m, key, klen, h, &i) : NULL;

    if (s)
        return s;
    bool again = m->cap && m->slots[i].state == DELETED;
    if (!again && (m->used + 1) * 4 > m->cap * 3) {
        rehash(m, m->n * 2 + 2 > m->cap / 2 ? (m->cap ? m->cap * 2 : 16) : m->cap);
        i = h & (m->cap - 1);
        while (m->slots[i].state != EMPTY)
            i = (i + 1) & (m->cap - 1);
    }
    s = &m->slots[i];
    m->used += !again;
    m->n++;
    s->hash = h;
    s->state = (uint32_t)klen + 1;
    if (klen <= sizeof s->key.here)
        memcpy(s->key.here, key, klen);
    else
        s->key.far = mem_strndup(key, klen);
    s->val = val;
    return NULL;
}

void *map_putn(map *m, const void *key, size_t klen, void *val)
{
    map_slot *s = at_key(m, key, klen, val);
    void *old = s ? s->val : NULL;
    if (s)
        s->val = val;
    return old;
}

void *map_addn(map *m, const void *key, size_t klen, void *val)
{
    map_slot *s = at_key(m, key, klen, val);
    return s ? s->val : NULL;
}

void *map_deln(map *m, const void *key, size_t klen)
{
    size_t end;
    map_slot *s = m->cap ? find(m, key, klen, key_hash(key, klen), &end) : NULL;
    if (!s)
        return NULL;
    void *old = s->val;
    key_free(s);
    s->state = DELETED;
    m->n--;
    return old;
}
