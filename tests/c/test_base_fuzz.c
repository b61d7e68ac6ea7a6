/* The fuzz targets on seeds and simple mutations of them: a short run that needs no fuzzer. */
#include "test.h"
#define FUZZ_ENTRY fuzz_json
#include "../fuzz/fuzz_json.c"
#undef FUZZ_ENTRY
#define FUZZ_ENTRY fuzz_sym
#include "../fuzz/fuzz_sym.c"
#undef FUZZ_ENTRY
#define FUZZ_ENTRY fuzz_logs
#include "../fuzz/fuzz_logs.c"

static uint64_t state = 0x2545f4914f6cdd1d;
static size_t rnd(size_t n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return n ? state % n : 0;
}

/* Replaces, inserts, deletes, or copies a piece of another seed. */
static size_t mutate(char *s, size_t n, size_t cap, const char *const *seeds, size_t n_seeds)
{
    size_t at = rnd(n + 1);
    const char *other = seeds[rnd(n_seeds)];
    size_t len = strlen(other), from = rnd(len), piece = rnd(len - from + 1), cut = rnd(4);
    switch (rnd(4)) {
    case 0:
        if (at < n)
            s[at] = rnd(4) ? other[from] : (char)rnd(256);
        return n;
    case 1:
        cut = MIN(cut, n - at);
        memmove(s + at, s + at + cut, n - at - cut);
        return n - cut;
    default:
        piece = MIN(piece, cap - n);
        memmove(s + at + piece, s + at, n - at);
        memcpy(s + at, other + from, piece);
        return n + piece;
    }
}

static void run_seeds(int (*target)(const uint8_t *, size_t), const char *const *seeds, size_t n_seeds,
                      int rounds)
{
    char s[512];
    for (int i = 0; i < rounds; i++) {
        const char *seed = seeds[rnd(n_seeds)];
        size_t n = strlen(seed);
        memcpy(s, seed, n);
        for (size_t j = rnd(6); j > 0; j--)
            n = mutate(s, n, sizeof s, seeds, n_seeds);
        char *exact = mem_alloc(n); /* so that the sanitizer sees a read past the end */
        memcpy(exact, s, n);
        target((const uint8_t *)exact, n);
        free(exact);
    }
}

TEST(fuzz_json_seeds)
{
    static const char *const seeds[] = {
        "{\"a\": [1, 2.5e-3, null, true], \"b\\u00e9\": {\"c\": \"\\ud83d\\ude00\"}}",
        "[[[[]]], {}, \"\\\\\\\"\", -0, 0.0, -1E+9, 9223372036854775807]", "\"\xc3\xa9\"", "false"
    };
    run_seeds(fuzz_json, seeds, COUNT(seeds), 20000);
}

TEST(fuzz_sym_seeds)
{
    static const char *const seeds[] = { "s0*s1 + 3",
                                         "(s0//2) - 4*s1**3",
                                         "Max(1, s0 - 9, u0)",
                                         "Mod(s0, 3) <= s1 and not (s2 == 4 or s0 > 7)",
                                         "Eq(s0 % 4, 0)",
                                         "2 <= s0 <= 9",
                                         "Min(s2, s0)*(s1 + 2)//(s0 - s2)",
                                         "-(-4611686018427387903)",
                                         "Ne(FloorDiv(s2*s0, 6)*6, s0)",
                                         "s0**622 + s0*(-s0)**311414 < s0**99" };
    run_seeds(fuzz_sym, seeds, COUNT(seeds), 20000);
}

TEST(fuzz_logs_seeds)
{
    static const char *const seeds[] = { "+dynamo,-aot, guards", "all", "help", "+help",
                                         "recompiles_verbose,output_code" };
    run_seeds(fuzz_logs, seeds, COUNT(seeds), 5000);
}
