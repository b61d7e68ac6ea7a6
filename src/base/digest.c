/* digest.c - RFC 1321, RFC 3174 and FIPS 180-4. All three eat 64-byte blocks and pad alike; they differ in
 * the block step, the byte order and the number of words. */
#include "base/digest.h"

static uint32_t rol(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t ror(uint32_t x, int n) { return x >> n | x << (32 - n); }
static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint32_t be32(const unsigned char *p) { return __builtin_bswap32(le32(p)); }

/* floor(2^32 * |sin(i + 1)|), the RFC's definition written out. */
static const uint32_t md5_k[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

/* Four loops of sixteen, unrolled, so that every index and shift is a constant. Each step waits for b of the one before,
 * so what does not need it is added up first (the compiler would mix the sums again). */
static void md5_block(uint32_t *h, const unsigned char *p)
{
    static const unsigned char shift[4][4] = {
        { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 }
    };
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3];

#define MD5_ROUND(round, early, late, word)                                         \
    _Pragma("GCC unroll 16") for (int i = 16 * (round); i < 16 * (round) + 16; i++) \
    {                                                                               \
        uint32_t t = a + md5_k[i] + le32(p + 4 * ((word) % 16)) + (early);          \
        __asm__("" : "+r"(t));                                                      \
        t += (late);                                                                \
        a = d, d = c, c = b;                                                        \
        b += rol(t, shift[round][i % 4]);                                           \
    }
    MD5_ROUND(0, 0, d ^ (b & (c ^ d)), i)
    MD5_ROUND(1, c & ~d, b & d, 5 * i + 1)
    MD5_ROUND(2, 0, b ^ (c ^ d), 3 * i + 5)
    MD5_ROUND(3, 0, c ^ (b | ~d), 7 * i)
#undef MD5_ROUND
    h[0] += a, h[1] += b, h[2] += c, h[3] += d;
}

static void sha1_block(uint32_t *h, const unsigned char *p)
{
    static const uint32_t k[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (int i = 0; i < 80; i++)
        w[i] = i < 16 ? be32(p + 4 * i) : rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        int round = i / 20;
        uint32_t f = round == 0 ? (b & c) | (~b & d) : round == 2 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t t = rol(a, 5) + f + e + k[round] + w[i];
        e = d, d = c, c = rol(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static void sha256_block(uint32_t *h, const unsigned char *p)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 64; i++) {
        if (i < 16) {
            w[i] = be32(p + 4 * i);
            continue;
        }
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
    }
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t t1 = s[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                      sha256_k[i] + w[i];
        uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

static const struct {
    void (*block)(uint32_t *h, const unsigned char *p);
    int words;
    bool big;
    uint32_t h[8];
} kinds[] = {
    [DIGEST_md5] = { md5_block, 4, false, { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 } },
    [DIGEST_sha1] = { sha1_block, 5, true, { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 } },
    [DIGEST_sha256] = { sha256_block,
                        8,
                        true,
                        { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                          0x5be0cd19 } },
};

void digest_init(digest *d, digest_kind k)
{
    d->kind = k;
    d->total = 0;
    memcpy(d->h, kinds[k].h, sizeof d->h);
}

void digest_add(digest *d, const void *p, size_t n)
{
    const unsigned char *s = p;
    size_t have = d->total % 64;

    d->total += n;
    if (have) {
        size_t take = MIN(n, 64 - have);
        memcpy(d->block + have, s, take);
        s += take, n -= take;
        if (have + take < 64)
            return;
        kinds[d->kind].block(d->h, d->block);
    }
    for (; n >= 64; s += 64, n -= 64)
        kinds[d->kind].block(d->h, s);
    if (n)
        memcpy(d->block, s, n);
}

void digest_hex(digest *d, char out[DIGEST_HEX])
{
    static const unsigned char pad[64] = { 0x80 };
    bool big = kinds[d->kind].big;
    uint64_t bits = d->total * 8;
    unsigned char len[8];

    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)(bits >> 8 * (big ? 7 - i : i));
    digest_add(d, pad, 64 - (d->total + 8) % 64);
    digest_add(d, len, 8);
    for (int i = 0; i < kinds[d->kind].words; i++, out += 8)
        for (int k = 0; k < 8; k++)
            out[k] = "0123456789abcdef"[(big ? d->h[i] : __builtin_bswap32(d->h[i])) >> (28 - 4 * k) & 15];
    *out = 0;
}

void digest_of(digest_kind k, const void *p, size_t n, char out[DIGEST_HEX])
{
    digest d;
    digest_init(&d, k);
    digest_add(&d, p, n);
    digest_hex(&d, out);
}
