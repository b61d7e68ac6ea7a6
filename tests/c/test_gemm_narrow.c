/* Products of bf16 and of bytes against plain loops. AVX512-BF16 and VNNI run where the machine has them; code for AMX tiles is
 * run by the small interpreter of its instructions below, everywhere. */
#include "test.h"
#include "target/x64/gemm_int.h"
#include "base/pool.h"
#include "vir/math/vnum.h"
#include <math.h>

/* --- the instructions that products on tiles consist of ----------------------------------------------------------------- */
typedef struct machine {
    const uint8_t *at;
    uint64_t r[16];
    int64_t flags; /* of the last comparison with zero */
    uint8_t tile[8][16][64];
    long executed;
} machine;

static uint64_t take(machine *m, int bytes)
{
    uint64_t v = 0;
    memcpy(&v, m->at, (size_t)bytes);
    m->at += bytes;
    return v;
}

/* The address that ModRM with SIB names, and the register that is its index. */
static char *address(machine *m, int modrm, int x, int b, uint64_t *stride)
{
    int sib = (int)take(m, 1), base = (sib & 7) | b << 3, index = (sib >> 3 & 7) | x << 3;
    CHECK((modrm & 7) == 4 && sib >> 6 == 0 && index != 4);
    int64_t disp = modrm >> 6 == 1 ? (int8_t)take(m, 1) : modrm >> 6 == 2 ? (int32_t)take(m, 4) : 0;
    *stride = m->r[index];
    return (char *)(uintptr_t)(m->r[base] + (uint64_t)disp);
}

static void dot(machine *m, int pp, int op, int dst, int a, int b)
{
    CHECK(dst != a && dst != b && a != b && (op == 0x5c ? pp == 2 : pp == 3));
    for (int i = 0; i < 16; i++)
        for (int n = 0; n < 16; n++)
            for (int k = 0; k < 16; k++) {
                void *c = m->tile[dst][i] + 4 * n;
                const uint8_t *x = m->tile[a][i] + 4 * k, *y = m->tile[b][k] + 4 * n;
                for (int q = 0; op == 0x5e && q < 4; q++)
                    *(int32_t *)c += (int8_t)x[q] * (int8_t)y[q];
                for (int q = 0; op == 0x5c && q < 2; q++)
                    *(float *)c += vnum_from_bf16(((const uint16_t *)(const void *)x)[q]) *
                                   vnum_from_bf16(((const uint16_t *)(const void *)y)[q]);
            }
}

static void tile_instruction(machine *m)
{
    unsigned p1 = (unsigned)take(m, 1), p2 = (unsigned)take(m, 1), op = (unsigned)take(m, 1),
             modrm = (unsigned)take(m, 1);
    int x = !(p1 >> 6 & 1), b = !(p1 >> 5 & 1), pp = p2 & 3, v = (int)(~p2 >> 3 & 15);
    int reg = (int)(modrm >> 3 & 7);
    uint64_t stride;
    CHECK((p1 & 31) == 2 && !(p2 & 0x84)); /* map 0F38, W0, 128 bits */
    if (op == 0x49 && pp == 3) {
        memset(m->tile[reg], 0, sizeof m->tile[reg]);
    } else if (op == 0x4b) {
        char *p = address(m, (int)modrm, x, b, &stride);
        for (int i = 0; i < 16; i++, p += stride)
            if (pp == 3)
                memcpy(m->tile[reg][i], p, 64);
            else
                memcpy(p, m->tile[reg][i], 64);
    } else if (op == 0x5c || op == 0x5e) {
        dot(m, pp, (int)op, reg, (int)(modrm & 7), v);
    } else {
        test_fail(__FILE__, __LINE__, "no such tile instruction: %x", op);
    }
}

static void general_instruction(machine *m, unsigned rex, unsigned op)
{
    int R = (int)(rex >> 2 & 1) << 3, B = (int)(rex & 1) << 3;
    if (op >= 0xb8 && op <= 0xbf) {
        m->r[(op & 7) | (unsigned)B] = take(m, 4);
        return;
    }
    unsigned modrm = (unsigned)take(m, 1);
    int reg = (int)(modrm >> 3 & 7), rm = (int)(modrm & 7) | B;
    CHECK(modrm >> 6 == 3);
    switch (op) {
    case 0x89: m->r[rm] = m->r[reg | R]; break;
    case 0x01: m->r[rm] += m->r[reg | R]; break;
    case 0x31: m->r[rm] ^= m->r[reg | R]; break;
    case 0xc1: m->r[rm] <<= take(m, 1); break;
    case 0x81:
    case 0x83: {
        int64_t v = op == 0x83 ? (int8_t)take(m, 1) : (int32_t)take(m, 4);
        m->r[rm] += (uint64_t)(reg == 0 ? v : -v);
        CHECK(reg == 0 || reg == 5);
        m->flags = (int64_t)m->r[rm];
        break;
    }
    default: test_fail(__FILE__, __LINE__, "no such instruction: %x", op);
    }
}

static long run_steps;
static void interpret(gemm_micro code, const void *a, const void *b, void *c, int64_t k, int64_t c_row,
                      const void *ab)
{
    machine m = { 0 };
    memcpy(&m.at, &code, sizeof m.at);
    m.r[7] = (uint64_t)(uintptr_t)a, m.r[6] = (uint64_t)(uintptr_t)b, m.r[2] = (uint64_t)(uintptr_t)c;
    m.r[1] = (uint64_t)k, m.r[8] = (uint64_t)c_row, m.r[9] = (uint64_t)(uintptr_t)ab;
    for (memset(m.tile, 0x5a, sizeof m.tile); m.executed < 1 << 20; m.executed++) {
        unsigned op = (unsigned)take(&m, 1), rex = 0;
        if (op == 0xc3)
            break;
        if (op == 0x55 || op == 0x5d)
            continue;
        if (op == 0xc4) {
            tile_instruction(&m);
        } else if (op == 0x0f) {
            unsigned cc = (unsigned)take(&m, 1) & 15;
            int32_t rel = (int32_t)take(&m, 4);
            bool yes = cc == 0xc   ? m.flags < 0
                       : cc == 0xd ? m.flags >= 0
                       : cc == 0x4 ? m.flags == 0
                                   : m.flags > 0;
            CHECK(cc == 0xc || cc == 0xd || cc == 0x4 || cc == 0xf);
            m.at += yes ? rel : 0;
        } else {
            if ((op & 0xf0) == 0x40)
                rex = op, op = (unsigned)take(&m, 1);
            general_instruction(&m, rex, op);
        }
    }
    __atomic_fetch_add(&run_steps, m.executed, __ATOMIC_RELAXED);
}

/* --- products ----------------------------------------------------------------------------------------------------------- */
static double get(vir_mem t, const void *p, int64_t i)
{
    return t == VM_f32   ? (double)((const float *)p)[i]
           : t == VM_i8  ? (double)((const int8_t *)p)[i]
           : t == VM_i32 ? (double)((const int32_t *)p)[i]
                         : (double)vnum_from_bf16(((const uint16_t *)p)[i]);
}
static void *filled(vir_mem t, int64_t n, uint32_t seed)
{
    void *p = mem_zalloc((size_t)n * 8 + 256);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        int v = (int)(seed >> 16 & 255) - 128;
        if (t == VM_f32)
            ((float *)p)[i] = (float)v / 64.0f;
        else if (t == VM_i8)
            ((int8_t *)p)[i] = (int8_t)v;
        else if (t == VM_i32)
            ((int32_t *)p)[i] = v;
        else
            ((uint16_t *)p)[i] = vnum_to_bf16((float)v / 64.0f);
    }
    return p;
}
static gemm_mat mat(vir_mem t, int64_t rows, int64_t cols, int layout)
{
    gemm_mat m = { t, cols, 1, rows * cols };
    if (layout == 1)
        m.row = 1, m.col = rows;
    if (layout == 2)
        m.row = 2 * cols + 3, m.col = 2, m.batch = rows * (2 * cols + 3);
    return m;
}

static void check(const gemm_desc *d)
{
    tp_err err = { 0 };
    gemm_plan *p = gemm_plan_new(d, ISA_avx512, &err);
    CHECK(p != NULL);
    if (!p)
        return;
    int64_t nc = d->batch * MAX(d->c.batch, 1) + 64;
    void *a = filled(d->a.type, d->batch * d->a.batch + 64, 1),
         *b = filled(d->b.type, d->batch * d->b.batch + 64, 2), *c = filled(d->c.type, nc, 3),
         *old = filled(d->c.type, nc, 3), *row = filled(d->c.type, d->n, 4);
    CHECK(gemm_run(p, a, b, d->bias ? row : NULL, c, NULL, &err));
    uint8_t *touched = mem_zalloc((size_t)nc);
    double worst = 0, eps = d->c.type == VM_bf16 ? 4.2e-3 : d->c.type == VM_f32 ? 2e-6 : 1e-12;
    for (int64_t x = 0; x < d->batch; x++)
        for (int64_t i = 0; i < d->m; i++)
            for (int64_t j = 0; j < d->n; j++) {
                int64_t at = x * d->c.batch + i * d->c.row + j * d->c.col;
                double s = 0, mag = 1;
                for (int64_t k = 0; k < d->k; k++) {
                    double u = get(d->a.type, a, x * d->a.batch + i * d->a.row + k * d->a.col) *
                               get(d->b.type, b, x * d->b.batch + k * d->b.row + j * d->b.col);
                    s += u, mag += fabs(u);
                }
                s = d->alpha * s + (d->beta != 0 ? d->beta * get(d->c.type, old, at) : 0) +
                    (d->bias ? get(d->c.type, row, j) : 0);
                touched[at] = 1;
                worst = fmax(worst, fabs(get(d->c.type, c, at) - s) / mag);
            }
    bool outside = false;
    for (int64_t i = 0; i < nc; i++)
        outside |= !touched[i] && get(d->c.type, c, i) != get(d->c.type, old, i);
    if (!(worst < eps) || outside) {
        strbuf t = { 0 };
        gemm_describe(p, &t);
        test_fail(__FILE__, __LINE__, "%s: error %g%s (beta %g bias %d)", strbuf_str(&t), worst,
                  outside ? ", wrote outside" : "", d->beta, (int)d->bias);
        strbuf_free(&t);
    }
    free(touched), free(a), free(b), free(c), free(old), free(row);
    gemm_plan_free(p);
}

static void all_shapes(gemm_unit unit)
{
    static const int64_t sizes[][3] = { { 5, 3, 64 },    { 13, 32, 7 },    { 16, 16, 32 },   { 32, 32, 64 },
                                        { 15, 49, 129 }, { 29, 31, 37 },   { 64, 64, 64 },   { 33, 250, 70 },
                                        { 70, 17, 700 }, { 48, 96, 1600 }, { 100, 90, 1101 } };
    bool bytes = unit == GEMM_dpbusd || unit == GEMM_tiles8;
    uint32_t r = 7;
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (int way = 0; way < 12; way++) {
            gemm_desc d = { sizes[s][0], sizes[s][1], sizes[s][2], 1, .alpha = 1, .unit = unit };
            if (unit == GEMM_tiles16 || unit == GEMM_tiles8)
                if (d.m * d.n * d.k > 2000000 && way > 3)
                    continue;
            r = r * 1664525u + 1013904223u;
            vir_mem in = bytes ? VM_i8 : way % 3 == 2 ? VM_f32 : VM_bf16;
            vir_mem out = bytes ? VM_i32 : way % 2 ? VM_f32 : VM_bf16;
            d.batch = 1 + (r >> 8) % 2;
            d.a = mat(in, d.m, d.k, (int)(r >> 10) % 3);
            d.b = mat(in, d.k, d.n, (int)(r >> 13) % 3);
            d.c = mat(out, d.m, d.n, (int)(r >> 16) % 3);
            d.rough = in == VM_f32;
            d.beta = bytes ? 0 : (r >> 19) % 2;
            d.bias = !bytes && d.beta == 0 && d.c.col == 1 && (r >> 20) % 2;
            check(&d);
        }
}

TEST(gemm_narrow_units)
{
    const gen_units *u = gen_units_host();
    if (u->bf16)
        all_shapes(GEMM_dpbf16);
    else
        fprintf(stderr, "SKIP gemm_narrow_units: no AVX512-BF16\n");
    if (u->vnni)
        all_shapes(GEMM_dpbusd);
    if (u->tile_bf16)
        all_shapes(GEMM_tiles16);
    if (u->tile_int8)
        all_shapes(GEMM_tiles8);
}

TEST(gemm_tiles_interpreted)
{
    if (gen_isa_host() != ISA_avx512) {
        fprintf(stderr, "SKIP gemm_tiles_interpreted: operands are laid out with AVX-512\n");
        return;
    }
    gemm_amx_instead = interpret;
    all_shapes(GEMM_tiles16);
    all_shapes(GEMM_tiles8);
    gemm_amx_instead = NULL;
    CHECK(run_steps > 10000);
}

/* Parts of a product by any number of threads: the same bits. */
TEST(gemm_narrow_bits_do_not_depend_on_threads)
{
    static const gemm_unit units[] = { GEMM_fma, GEMM_dpbf16, GEMM_tiles16 };
    static const int64_t sizes[][3] = { { 200, 300, 128 }, { 64, 512, 1500 }, { 500, 70, 64 } };
    int was = pool_threads();
    if (gen_isa_host() != ISA_avx512)
        return;
    for (size_t u = 0; u < COUNT(units); u++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
            gemm_desc d = { m,
                            n,
                            k,
                            1,
                            mat(VM_bf16, m, k, 0),
                            mat(VM_bf16, k, n, 1),
                            mat(VM_bf16, m, n, 0),
                            .alpha = 1,
                            .unit = units[u] };
            if (units[u] == GEMM_dpbf16 && !gen_units_host()->bf16)
                continue;
            gemm_amx_instead = units[u] == GEMM_tiles16 ? interpret : NULL;
            void *a = filled(VM_bf16, m * k, 1), *b = filled(VM_bf16, k * n, 2), *first = NULL;
            for (int threads = 1; threads <= 16; threads += threads < 4 ? 1 : threads) {
                tp_err err = { 0 };
                d.share = threads == 1 ? 0 : 1 + threads % 2;
                pool_set_threads(threads);
                gemm_plan *p = gemm_plan_new(&d, ISA_avx512, &err);
                void *c = filled(VM_bf16, m * n, 3);
                CHECK(p && gemm_run(p, a, b, NULL, c, NULL, &err));
                CHECK(!first || !memcmp(c, first, (size_t)(m * n) * 2));
                gemm_plan_free(p);
                if (first)
                    free(c);
                else
                    first = c;
            }
            free(a), free(b), free(first);
        }
    gemm_amx_instead = NULL;
    pool_set_threads(was);
}

/* A B that is laid out once, sums that stop early where A is 0 from there on, and the first rows and columns alone. */
static void packed_once(gemm_unit unit, int64_t m, int64_t n, int64_t k, vir_mem out, int layout)
{
    tp_err err = { 0 };
    gemm_desc d = {
        m,          n,           k, 1, mat(VM_bf16, m, k, 0), mat(VM_bf16, k, n, layout), mat(out, m, n, 0),
        .alpha = 1, .unit = unit
    };
    gemm_plan *p = gemm_plan_new(&d, ISA_avx512, &err);
    CHECK(p && gemm_packs(p));
    uint16_t *a = filled(VM_bf16, m * k, 1);
    void *b = filled(VM_bf16, k * n, 2), *packed = mem_zalloc(gemm_packed_bytes(p) + 64);
    size_t es = vir_mem_size(out);
    gemm_pack_all(p, b, packed);
    for (int64_t depth = k; depth > 0; depth = depth / 2 - 3)
        for (int part = 0; part < 2; part++) {
            char *whole = filled(out, m * n, 3), *some = filled(out, m * n, 3);
            int64_t rows = part ? (m + 1) / 2 : m, cols = part ? (n + 2) / 3 : n;
            for (int64_t i = 0; i < m; i++)
                memset(a + i * k + depth, 0, (size_t)(k - depth) * sizeof *a);
            CHECK(gemm_run(p, a, b, NULL, whole, NULL, &err));
            CHECK(gemm_run_packed(p, a, b, packed, some, rows, cols, depth, NULL));
            for (int64_t i = 0; i < rows; i++)
                CHECK(!memcmp(whole + i * n * es, some + i * n * es, (size_t)cols * es));
            free(whole), free(some);
        }
    free(a), free(b), free(packed);
    gemm_plan_free(p);
}

TEST(gemm_narrow_packed_once)
{
    static const int64_t sizes[][3] = {
        { 64, 512, 64 }, { 49, 77, 40 }, { 64, 64, 3000 }, { 33, 50, 1100 }, { 48, 16, 16 }
    };
    if (gen_isa_host() != ISA_avx512)
        return;
    int was = pool_threads();
    pool_set_threads(1);
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int way = 0; way < 4; way++) {
            vir_mem out = way % 2 ? VM_f32 : VM_bf16;
            if (gen_units_host()->bf16)
                packed_once(GEMM_dpbf16, sizes[i][0], sizes[i][1], sizes[i][2], out, way / 2);
            gemm_amx_instead = interpret;
            packed_once(GEMM_tiles16, sizes[i][0], sizes[i][1], sizes[i][2], out, way / 2);
            gemm_amx_instead = NULL;
        }
    pool_set_threads(was);
}
