/* move.c - see ops/move.h; once per instruction set. */
#include "ops/move.h"

static void run(int64_t bytes, void *d_, const void *s_)
{
    char *d = d_;
    const char *s = s_;
    bool level = (((uintptr_t)d ^ (uintptr_t)s) & 63) == 0; /* then memcpy is as good as it gets */
    for (; !level && bytes >= 256; bytes -= 256, d += 256, s += 256) {
        uint64_t w[32];
        memcpy(w, s, 256);
        memcpy(d, w, 256);
    }
    if (bytes)
        memcpy(d, s, (size_t)bytes);
}

#define BACK(T)                                                                   \
    {                                                                             \
        T *o = d;                                                                 \
        const T *a = s;                                                           \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = a[n - 1 - i]; \
        break;                                                                    \
    }
static void back(int64_t n, void *d, const void *s, size_t es)
{
    switch (es) {
    case 1: BACK(uint8_t)
    case 2: BACK(uint16_t)
    case 4: BACK(uint32_t)
    case 16: BACK(wide_elem)
    default: BACK(uint64_t)
    }
}

static bool places(int64_t n, const char *index, int64_t st, int64_t size, bool wrap, int64_t step,
                   int64_t along, int64_t *at)
{
    uint64_t worst = 0;
    const int64_t up = wrap ? size : 0;
    const int64_t *ix = (const int64_t *)index;
    if (st == 8)
        for (int64_t i = 0; i < n; i++) {
            int64_t k = ix[i] + (ix[i] < 0 ? up : 0);
            worst = (uint64_t)k > worst ? (uint64_t)k : worst;
            at[i] = (int64_t)((uint64_t)k * (uint64_t)step) + i * along;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            int64_t v = *(const int64_t *)(index + i * st), k = v + (v < 0 ? up : 0);
            worst = (uint64_t)k > worst ? (uint64_t)k : worst;
            at[i] = (int64_t)((uint64_t)k * (uint64_t)step) + i * along;
        }
    return !n || worst < (uint64_t)size;
}

#define FETCH(T)                                                                                     \
    {                                                                                                \
        if (os == (int64_t)sizeof(T)) {                                                              \
            T *to = (T *)o;                                                                          \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] = *(const T *)(base + at[i]); \
        } else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                          \
                *(T *)(o + i * os) = *(const T *)(base + at[i]);                                     \
        break;                                                                                       \
    }
/* Element by element: instructions that gather are slower where processors had to be mended. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-vectorize")))
#endif
static void
fetch(int64_t n, char *o, int64_t os, const char *base, const int64_t *at, size_t es)
{
    switch (es) {
    case 1: FETCH(uint8_t)
    case 2: FETCH(uint16_t)
    case 4: FETCH(uint32_t)
    case 16: FETCH(wide_elem)
    default: FETCH(uint64_t)
    }
}

#define SPREAD(T)                                                                                \
    {                                                                                            \
        T *o = d;                                                                                \
        const T *a = s;                                                                          \
        if (times == 2)                                                                          \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[2 * i] = o[2 * i + 1] = a[i]; \
        else if (times == 4)                                                                     \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                 \
                o[4 * i] = o[4 * i + 1] = o[4 * i + 2] = o[4 * i + 3] = a[i];                    \
        else                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                      \
                for (int64_t k = 0; k < times; k++)                                              \
                    *o++ = a[i];                                                                 \
        break;                                                                                   \
    }
static void spread(int64_t n, int64_t times, void *d, const void *s, size_t es)
{
    switch (es) {
    case 1: SPREAD(uint8_t)
    case 2: SPREAD(uint16_t)
    case 4: SPREAD(uint32_t)
    case 16: SPREAD(wide_elem)
    default: SPREAD(uint64_t)
    }
}

/* o[i] = a + (at + i) step */
static void ramp_int(int64_t n, int64_t *o, int64_t a, int64_t step, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        o[i] = (int64_t)((uint64_t)a + (uint64_t)step * (uint64_t)(at + i));
}
static void ramp_float(int64_t n, double *o, double a, double step, int64_t at)
{
    const double base = (double)at; /* whole numbers below 2^53: exact */
    for (int32_t i = 0; i < (int32_t)n; i++)
        o[i] = a + step * (base + (double)i);
}

static bool inside64(int64_t n, const int64_t *p, int64_t lo, uint64_t width)
{
    int64_t bad = 0; /* the sign says so */
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(int64_t)p[i] - (uint64_t)lo;
        bad |= (int64_t)(at | (width - 1 - at));
    }
    return bad >= 0;
}

static bool inside32(int64_t n, const int32_t *p, int64_t lo, uint64_t width)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(int64_t)p[i] - (uint64_t)lo;
        bad |= (int64_t)(at | (width - 1 - at));
    }
    return bad >= 0;
}

static int64_t largest(int64_t n, const int64_t *p)
{
    int64_t top = -1, any = 0;
    for (int64_t i = 0; i < n; i++) {
        top = MAX(top, p[i]);
        any |= p[i];
    }
    return any < 0 ? -2 : top;
}

static const move_row row = { run,      back,       places,   fetch,    spread,
                              ramp_int, ramp_float, inside64, inside32, largest };
const move_row *ISA_NAME(move_loops)(void) { return &row; }

int64_t ISA_NAME(count_true)(int64_t n, const uint8_t *m);
int64_t ISA_NAME(count_true)(int64_t n, const uint8_t *m)
{
    int64_t sum = 0;
    for (int64_t at = 0; at < n; at += 4096) { /* 16 bits hold what a lane can gather */
        int64_t end = MIN(n, at + 4096);
        uint16_t part = 0;
        for (int64_t i = at; i < end; i++)
            part = (uint16_t)(part + (m[i] != 0));
        sum += part;
    }
    return sum;
}
