/* fft_loops.h - the stages of a transform in one width. Included once a width by fft.c, which defines T and N(name).
 * A stage of p: element q + s (j + m k), k = 0..p, goes to q + s (p j + r), r = 0..p, times w^(s j r); the results of the
 * last stage are in order. Numbers are pairs; backward transforms conjugate the roots (sign). */
typedef struct N(c) {
    T re, im;
} N(c);

static inline N(c) N(mul)(N(c) a, N(c) w, T sign)
{
    T wi = w.im * sign;
    return (N(c)){ a.re * w.re - a.im * wi, a.re * wi + a.im * w.re };
}
static inline N(c) N(add)(N(c) a, N(c) b) { return (N(c)){ a.re + b.re, a.im + b.im }; }
static inline N(c) N(sub)(N(c) a, N(c) b) { return (N(c)){ a.re - b.re, a.im - b.im }; }
static inline N(c) N(turn)(N(c) a, T sign)
{
    return (N(c)){ sign * a.im, -sign * a.re };
} /* times -i (forward) */

static void N(stage2)(int64_t m, int64_t s, const N(c) * x, N(c) * y, const N(c) * w, T sign)
{
    for (int64_t j = 0; j < m; j++) {
        N(c) w1 = w[s * j];
        for (int64_t q = 0; q < s; q++) {
            N(c) a = x[q + s * j], b = x[q + s * (j + m)];
            y[q + s * 2 * j] = N(add)(a, b);
            y[q + s * (2 * j + 1)] = N(mul)(N(sub)(a, b), w1, sign);
        }
    }
}
static void N(stage4)(int64_t m, int64_t s, const N(c) * x, N(c) * y, const N(c) * w, T sign)
{
    for (int64_t j = 0; j < m; j++) {
        N(c) w1 = w[s * j], w2 = w[2 * s * j], w3 = w[3 * s * j];
        for (int64_t q = 0; q < s; q++) {
            N(c)
            a = x[q + s * j], b = x[q + s * (j + m)], c = x[q + s * (j + 2 * m)], d = x[q + s * (j + 3 * m)];
            N(c) ac = N(add)(a, c), bd = N(add)(b, d), am = N(sub)(a, c), bm = N(turn)(N(sub)(b, d), sign);
            N(c) *o = y + q + s * 4 * j;
            o[0] = N(add)(ac, bd);
            o[s] = N(mul)(N(add)(am, bm), w1, sign);
            o[2 * s] = N(mul)(N(sub)(ac, bd), w2, sign);
            o[3 * s] = N(mul)(N(sub)(am, bm), w3, sign);
        }
    }
}
static void N(stage3)(int64_t m, int64_t s, const N(c) * x, N(c) * y, const N(c) * w, T sign)
{
    const T h = (T)0.86602540378443864676;
    for (int64_t j = 0; j < m; j++) {
        N(c) w1 = w[s * j], w2 = w[2 * s * j];
        for (int64_t q = 0; q < s; q++) {
            N(c) a = x[q + s * j], b = x[q + s * (j + m)], c = x[q + s * (j + 2 * m)];
            N(c) t = N(add)(b, c), d = N(sub)(b, c);
            N(c) u = { a.re - t.re / 2, a.im - t.im / 2 }, v = { sign * h * d.im, -sign * h * d.re };
            N(c) *o = y + q + s * 3 * j;
            o[0] = N(add)(a, t);
            o[s] = N(mul)(N(add)(u, v), w1, sign);
            o[2 * s] = N(mul)(N(sub)(u, v), w2, sign);
        }
    }
}
static void N(stage5)(int64_t m, int64_t s, const N(c) * x, N(c) * y, const N(c) * w, T sign)
{
    const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410, s1 = (T)0.95105651629515357212,
            s2 = (T)0.58778525229247312917;
    for (int64_t j = 0; j < m; j++) {
        N(c) w1 = w[s * j], w2 = w[2 * s * j], w3 = w[3 * s * j], w4 = w[4 * s * j];
        for (int64_t q = 0; q < s; q++) {
            N(c)
            a = x[q + s * j], b = x[q + s * (j + m)], c = x[q + s * (j + 2 * m)], d = x[q + s * (j + 3 * m)],
            e = x[q + s * (j + 4 * m)];
            N(c) be = N(add)(b, e), cd = N(add)(c, d), bm = N(sub)(b, e), cm = N(sub)(c, d);
            N(c) u1 = { a.re + c1 * be.re + c2 * cd.re, a.im + c1 * be.im + c2 * cd.im };
            N(c) u2 = { a.re + c2 * be.re + c1 * cd.re, a.im + c2 * be.im + c1 * cd.im };
            N(c) v1 = N(turn)((N(c)){ s1 * bm.re + s2 * cm.re, s1 * bm.im + s2 * cm.im }, sign);
            N(c) v2 = N(turn)((N(c)){ s2 * bm.re - s1 * cm.re, s2 * bm.im - s1 * cm.im }, sign);
            N(c) *o = y + q + s * 5 * j;
            o[0] = N(add)(a, N(add)(be, cd));
            o[s] = N(mul)(N(add)(u1, v1), w1, sign);
            o[2 * s] = N(mul)(N(add)(u2, v2), w2, sign);
            o[3 * s] = N(mul)(N(sub)(u2, v2), w3, sign);
            o[4 * s] = N(mul)(N(sub)(u1, v1), w4, sign);
        }
    }
}
static void N(stage_any)(int64_t n, int64_t p, int64_t m, int64_t s, const N(c) * x, N(c) * y, const N(c) * w,
                         T sign)
{
    int64_t root = n / p;
    for (int64_t j = 0; j < m; j++)
        for (int64_t r = 0; r < p; r++) {
            N(c) wj = w[s * j * r % n];
            for (int64_t q = 0; q < s; q++) {
                N(c) sum = x[q + s * j];
                for (int64_t k = 1; k < p; k++)
                    sum = N(add)(sum, N(mul)(x[q + s * (j + m * k)], w[root * (k * r % p)], sign));
                y[q + s * (p * j + r)] = N(mul)(sum, wj, sign);
            }
        }
}

/* x is transformed; y is as long. */
static void N(stages)(const fft_plan *f, N(c) * x, N(c) * y, T sign)
{
    int64_t s = 1, m = f->n;
    N(c) *from = x, *to = y;
    const N(c) *w = f->roots;
    for (int i = 0; i < f->nfactor; i++) {
        int64_t p = f->factor[i];
        m /= p;
        switch (p) {
        case 2: N(stage2)(m, s, from, to, w, sign); break;
        case 3: N(stage3)(m, s, from, to, w, sign); break;
        case 4: N(stage4)(m, s, from, to, w, sign); break;
        case 5: N(stage5)(m, s, from, to, w, sign); break;
        default: N(stage_any)(f->n, p, m, s, from, to, w, sign);
        }
        s *= p;
        N(c) *t = from;
        from = to;
        to = t;
    }
    if (from != x)
        memcpy(x, from, sizeof *x * (size_t)f->n);
}

static void N(run)(const fft_plan *f, N(c) * x, N(c) * room, T sign)
{
    if (!f->inner) {
        N(stages)(f, x, room, sign);
        return;
    }
    /* x_k b_k* convolved with b, times b_k*, where b_k = e^(i pi k^2 / n) */
    int64_t n = f->n, big = f->inner->n;
    const N(c) *b = f->roots, *spectrum = f->chirp;
    N(c) *a = room, *more = room + big;
    for (int64_t k = 0; k < n; k++)
        a[k] = N(mul)(x[k], b[k], -sign);
    memset(a + n, 0, sizeof *a * (size_t)(big - n));
    N(stages)(f->inner, a, more, 1);
    for (int64_t k = 0; k < big;
         k++) { /* the chirp of a backward transform is the conjugate: so is its spectrum */
        int64_t at = sign > 0 ? k : (big - k) % big;
        a[k] = N(mul)(a[k], (N(c)){ spectrum[at].re, spectrum[at].im }, sign);
    }
    N(stages)(f->inner, a, more, -1);
    for (int64_t k = 0; k < n; k++) {
        N(c) v = N(mul)(a[k], b[k], -sign);
        x[k] = (N(c)){ v.re / (T)big, v.im / (T)big };
    }
}

/* roots e^(-2 pi i k / n), or the chirp and its spectrum */
static void N(tables)(fft_plan *f)
{
    N(c) *r = mem_alloc(sizeof *r * (size_t)MAX(f->n, 1));
    for (int64_t k = 0; k < f->n; k++) {
        double a = f->inner ? M_PI * (double)((int64_t)((__int128)k * k % (2 * f->n))) / (double)f->n
                            : -2 * M_PI * (double)k / (double)f->n;
        r[k] = (N(c)){ (T)cos(a), (T)sin(a) };
    }
    f->roots = r;
    if (!f->inner)
        return;
    int64_t big = f->inner->n;
    N(c) *s = mem_zalloc(sizeof *s * (size_t)big), *t = mem_alloc(sizeof *t * (size_t)big);
    s[0] = r[0];
    for (int64_t k = 1; k < f->n; k++)
        s[k] = s[big - k] = r[k];
    N(stages)(f->inner, s, t, 1);
    free(t);
    f->chirp = s;
}
#undef T
#undef N
