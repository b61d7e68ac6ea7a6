/* generator.c - the Mersenne Twister (mt19937) that eager operators draw from, in the order and with the arithmetic of
 * PyTorch's CPU operators, so that one seed gives the same numbers; and its state as bytes. */
#include "ops/random.h"
#include "ops/pw.h"
#include <math.h>

ISA_DECL(void, normal_sixteens, (int64_t n, float *x, float mean, float std));

static tp_gen global = { 1, { .seed = GEN_SEED } };

tp_gen *gen_new(uint64_t seed)
{
    tp_gen *g = mem_zalloc(sizeof *g);
    g->refs = 1;
    g->s.seed = seed;
    return g;
}
tp_gen *gen_ref(tp_gen *g)
{
    g->refs++;
    return g;
}
void gen_unref(tp_gen *g)
{
    if (g && !--g->refs)
        free(g);
}
tp_gen *gen_default(void) { return &global; }

void gen_seed(tp_gen *g, uint64_t seed)
{
    gen_state *s = &g->s;
    s->seed = seed;
    s->offset = s->rounds = 0;
    s->seeded = s->has_normal = false;
}
uint64_t gen_reserve(tp_gen *g, uint64_t n)
{
    uint64_t at = g->s.offset;
    g->s.offset += n;
    return at;
}
uint64_t gen_position(const tp_gen *g)
{
    const gen_state *s = &g->s;
    return s->offset + s->rounds * (GEN_WORDS + 1) + (s->seeded ? (uint64_t)s->next : 0) + s->has_normal;
}

/* ---- mt19937 ---- */
static void fill_from_seed(gen_state *s)
{
    s->word[0] = (uint32_t)s->seed;
    for (uint32_t i = 1; i < GEN_WORDS; i++)
        s->word[i] = 1812433253u * (s->word[i - 1] ^ s->word[i - 1] >> 30) + i;
    s->left = 1;
    s->next = 0;
    s->seeded = true;
}
static uint32_t mixed(uint32_t u, uint32_t v)
{
    uint32_t y = (u & 0x80000000u) | (v & 0x7fffffffu);
    return y >> 1 ^ (v & 1 ? 0x9908b0dfu : 0);
}
static void next_words(gen_state *s)
{
    enum { N = GEN_WORDS, M = 397 };
    uint32_t *w = s->word;
    for (int i = 0; i < N - M; i++)
        w[i] = w[i + M] ^ mixed(w[i], w[i + 1]);
    for (int i = N - M; i < N - 1; i++)
        w[i] = w[i + M - N] ^ mixed(w[i], w[i + 1]);
    w[N - 1] = w[M - 1] ^ mixed(w[N - 1], w[0]);
    s->left = N;
    s->next = 0;
    s->rounds++;
}
uint32_t gen_u32(tp_gen *g)
{
    gen_state *s = &g->s;
    if (TP_UNLIKELY(!s->seeded))
        fill_from_seed(s);
    if (--s->left == 0)
        next_words(s);
    uint32_t y = s->word[s->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ y >> 18;
}
uint64_t gen_u64(tp_gen *g)
{
    uint64_t high = gen_u32(g);
    return high << 32 | gen_u32(g);
}
double gen_uniform(tp_gen *g) { return (double)(gen_u64(g) & ((1ull << 53) - 1)) * 0x1p-53; }
float gen_uniform_f32(tp_gen *g) { return (float)(gen_u32(g) & ((1u << 24) - 1)) * 0x1p-24f; }

/* Box and Muller's pair: the second one waits for the next call. */
double gen_normal(tp_gen *g)
{
    gen_state *s = &g->s;
    if (s->has_normal) {
        s->has_normal = false;
        return s->normal;
    }
    double u = gen_uniform(g), v = gen_uniform(g);
    double r = sqrt(-2 * log1p(-v)), angle = 2 * M_PI * u;
    s->normal = r * sin(angle);
    s->has_normal = true;
    return r * cos(angle);
}

/* ---- sixteen normal numbers of sixteen uniform ones: element i pairs with element i + 8 ---- */
static void sixteen_f64(double *x, double mean, double std)
{
    for (int i = 0; i < 8; i++) {
        double r = sqrt(-2 * log(1 - x[i])), angle = 2 * M_PI * x[i + 8];
        x[i] = fma(r * cos(angle), std, mean);
        x[i + 8] = fma(r * sin(angle), std, mean);
    }
}

/* What does not fill the last sixteen is drawn once more, over the end; 16-bit floats (round) draw the end once only. */
void gen_normals_f32(tp_gen *g, int64_t n, float *o, float mean, float std, bool round)
{
    int64_t whole = n / 16 * 16;
    for (int64_t i = 0; i < (round ? whole : n); i++)
        o[i] = gen_uniform_f32(g);
    ISA_PICK(normal_sixteens)(whole / 16, o, mean, std);
    if (n % 16) {
        for (int64_t i = n - 16; i < n; i++)
            o[i] = gen_uniform_f32(g);
        ISA_PICK(normal_sixteens)(1, o + n - 16, mean, std);
    }
}
void gen_normals_f64(tp_gen *g, int64_t n, double *o, double mean, double std)
{
    for (int64_t i = 0; i < n; i++)
        o[i] = gen_uniform(g);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        sixteen_f64(o + i, mean, std);
    if (n % 16) {
        for (int64_t i = n - 16; i < n; i++)
            o[i] = gen_uniform(g);
        sixteen_f64(o + n - 16, mean, std);
    }
}

/* ---- the state as bytes: PyTorch's layout. Its unused number normal_x holds the counter of compiled code. ---- */
typedef struct packed {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, word[GEN_WORDS];
    uint64_t offset;
    double normal, rho;
    int32_t has_normal, pad;
    float normal_f32;
    int32_t has_normal_f32;
} packed;
_Static_assert(sizeof(packed) == GEN_STATE_BYTES, "the size of PyTorch's state");

void gen_pack(const tp_gen *g, void *to)
{
    gen_state s = g->s;
    if (!s.seeded)
        fill_from_seed(&s);
    packed p = { .seed = s.seed, .left = s.left, .seeded = 1, .next = (uint64_t)s.next, .offset = s.offset };
    for (int i = 0; i < GEN_WORDS; i++)
        p.word[i] = s.word[i];
    p.normal = s.has_normal ? s.normal : 0;
    p.has_normal = s.has_normal;
    memcpy(to, &p, sizeof p);
}
bool gen_unpack(tp_gen *g, const void *from)
{
    packed p;
    memcpy(&p, from, sizeof p);
    if (p.left < 1 || p.left > GEN_WORDS || p.next > GEN_WORDS)
        return false;
    gen_state s = { .seed = p.seed,
                    .offset = p.offset,
                    .rounds = g->s.rounds + 1,
                    .seeded = true,
                    .counted = g->s.counted,
                    .narrow = g->s.narrow,
                    .has_normal = p.has_normal != 0,
                    .normal = p.normal,
                    .left = p.left,
                    .next = (int)p.next };
    for (int i = 0; i < GEN_WORDS; i++)
        s.word[i] = (uint32_t)p.word[i];
    g->s = s;
    return true;
}
