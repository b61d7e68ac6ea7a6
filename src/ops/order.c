/* order.c - keys and the sorts on them. */
#include "ops/order.h"

int key_bits(dtype dt)
{
    switch (dtype_size(dt)) {
    case 1: return 8;
    case 2: return dtype_is_float(dt) ? 32 : 16; /* narrow floats go through float */
    case 4: return 32;
    default: return 64;
    }
}
uint64_t key_nan(dtype dt) { return dt == DT_f64 ? UINT64_MAX : UINT32_MAX; }

static inline uint64_t key_f32(float f)
{
    uint32_t u;
    if (f != f)
        return UINT32_MAX;
    f += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &f, 4);
    return u >> 31 ? ~u : u | 0x80000000u;
}
static inline uint64_t key_f64(double f)
{
    uint64_t u;
    if (f != f)
        return UINT64_MAX;
    f += 0.0;
    memcpy(&u, &f, 8);
    return u >> 63 ? ~u : u | (1ull << 63);
}

#define LOAD(T, e)                            \
    for (int64_t i = 0; i < n; i++) {         \
        const T v = *(const T *)(p + i * st); \
        PUT(i, e);                            \
    }                                         \
    break
#define LOADS                                               \
    switch (dt) {                                           \
    case DT_bool: LOAD(uint8_t, v != 0);                    \
    case DT_u8: LOAD(uint8_t, v);                           \
    case DT_i8: LOAD(int8_t, (uint8_t)(v ^ 0x80));          \
    case DT_i16: LOAD(int16_t, (uint16_t)(v ^ 0x8000));     \
    case DT_i32: LOAD(int32_t, (uint32_t)v ^ 0x80000000u);  \
    case DT_i64: LOAD(int64_t, (uint64_t)v ^ (1ull << 63)); \
    case DT_f16: LOAD(uint16_t, key_f32(f16_to_f32(v)));    \
    case DT_bf16: LOAD(uint16_t, key_f32(bf16_to_f32(v)));  \
    case DT_f32: LOAD(float, key_f32(v));                   \
    default: LOAD(double, key_f64(v));                      \
    }
void keys_load(dtype dt, int64_t n, const char *p, int64_t st, keyed *o)
{
#define PUT(i, e) o[i] = (keyed){ e, i }
    LOADS
#undef PUT
}
static void words_load(dtype dt, int64_t n, const char *p, int64_t st, uint64_t *o)
{
#define PUT(i, e) o[i] = e
    LOADS
#undef PUT
}

void keys_flip(int64_t n, keyed *o, int bits)
{
    uint64_t all = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    for (int64_t i = 0; i < n; i++)
        o[i].k = all ^ o[i].k;
}

/* Stable, on bits [low, high) of single words; sorted words end up in the one returned, o or spare. */
static uint64_t *radix(int64_t n, uint64_t *o, uint64_t *spare, int low, int high)
{
    int digit = n < 1 << 14 ? 8 : 11;
    uint64_t *from = o, *to = spare, ones = (1ull << digit) - 1;
    for (int shift = low; shift < high; shift += digit) {
        uint32_t at[1 << 11] = { 0 }, sum = 0;
        for (int64_t i = 0; i < n; i++)
            at[from[i] >> shift & ones]++;
        if (at[from[0] >> shift & ones] == n) /* all equal here: nothing to move */
            continue;
        for (uint64_t b = 0; b <= ones; b++) {
            uint32_t c = at[b];
            at[b] = sum;
            sum += c;
        }
        for (int64_t i = 0; i < n; i++)
            to[at[from[i] >> shift & ones]++] = from[i];
        uint64_t *t = from;
        from = to;
        to = t;
    }
    return from;
}

static void insertion(int64_t n, keyed *o)
{
    for (int64_t i = 1; i < n; i++) {
        keyed v = o[i];
        int64_t j = i;
        for (; j > 0 && o[j - 1].k > v.k; j--)
            o[j] = o[j - 1];
        o[j] = v;
    }
}

/* Stable merge sort for middling lengths. */
static void merge_sort(int64_t n, keyed *o, keyed *spare)
{
    if (n <= 24) {
        insertion(n, o);
        return;
    }
    int64_t h = n / 2;
    merge_sort(h, o, spare);
    merge_sort(n - h, o + h, spare + h);
    if (o[h - 1].k <= o[h].k)
        return;
    memcpy(spare, o, sizeof *o * (size_t)h);
    int64_t a = 0, b = h, w = 0;
    while (a < h && b < n)
        o[w++] = o[b].k < spare[a].k ? o[b++] : spare[a++];
    while (a < h)
        o[w++] = spare[a++];
}

static int bits_in(uint64_t v) { return v ? 64 - __builtin_clzll(v) : 0; }

/* Keys and positions that fit one word together are sorted as such words, by the bits in which keys differ. */
const uint64_t *words_sort(dtype dt, int64_t n, const char *p, int64_t st, bool flip, uint64_t *o, int *place)
{
    uint64_t least = UINT64_MAX, most = 0;
    words_load(dt, n, p, st, o);
    for (int64_t i = 0; i < n; i++) {
        least = MIN(least, o[i]);
        most = MAX(most, o[i]);
    }
    int width = bits_in(most - least);
    *place = bits_in((uint64_t)n - 1);
    if (n < 2 || n > UINT32_MAX || width + *place > 64)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        o[i] = (flip ? most - o[i] : o[i] - least) << *place | (uint64_t)i;
    return radix(n, o, o + n, *place, *place + width);
}

void keys_sort(int64_t n, keyed *o, keyed *spare, int bits)
{
    enum { DIGIT = 11, BUCKETS = 1 << DIGIT };
    if (n < 1500) {
        merge_sort(n, o, spare);
        return;
    }
    keyed *from = o, *to = spare;
    for (int shift = 0; shift < bits; shift += DIGIT) {
        int64_t at[BUCKETS] = { 0 };
        for (int64_t i = 0; i < n; i++)
            at[from[i].k >> shift & (BUCKETS - 1)]++;
        if (at[from[0].k >> shift & (BUCKETS - 1)] == n) /* all equal here: nothing to move */
            continue;
        int64_t sum = 0;
        for (int b = 0; b < BUCKETS; b++) {
            int64_t c = at[b];
            at[b] = sum;
            sum += c;
        }
        for (int64_t i = 0; i < n; i++)
            to[at[from[i].k >> shift & (BUCKETS - 1)]++] = from[i];
        keyed *t = from;
        from = to;
        to = t;
    }
    if (from != o)
        memcpy(o, from, sizeof *o * (size_t)n);
}

static inline bool before(keyed a, keyed b) { return a.k < b.k || (a.k == b.k && a.i < b.i); }

void keys_select(int64_t n, keyed *o, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
#define SWAP(a, b)    \
    do {              \
        keyed t_ = a; \
        a = b;        \
        b = t_;       \
    } while (0)
        if (before(o[mid], o[lo]))
            SWAP(o[mid], o[lo]);
        if (before(o[hi], o[lo]))
            SWAP(o[hi], o[lo]);
        if (before(o[hi], o[mid]))
            SWAP(o[hi], o[mid]);
        keyed pivot = o[mid];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (before(o[i], pivot))
                i++;
            while (before(pivot, o[j]))
                j--;
            if (i <= j) {
                SWAP(o[i], o[j]);
                i++;
                j--;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            return;
    }
}

keyed keys_nth(int64_t n, keyed *o, int64_t k, int bits)
{
    enum { DIGIT = 11, BUCKETS = 1 << DIGIT };
    if (n < 4 * BUCKETS) {
        keys_select(n, o, k);
        return o[k];
    }
    for (int left = bits; left > 0 && n > 1;
         left -= DIGIT) { /* from the top digit down, keeping one bucket */
        int shift = MAX(left - DIGIT, 0);
        int64_t count[BUCKETS] = { 0 }, w = 0;
        for (int64_t i = 0; i < n; i++)
            count[o[i].k >> shift & (BUCKETS - 1)]++;
        uint64_t b = 0;
        for (; k >= count[b]; b++)
            k -= count[b];
        for (int64_t i = 0; i < n; i++) { /* in order, so that equal keys stay in theirs */
            o[w] = o[i];
            w += (o[i].k >> shift & (BUCKETS - 1)) == b;
        }
        n = w;
    }
    return o[k];
}
