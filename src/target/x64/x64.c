/* x64.c - the driver of the x64 emitter, the lane-by-lane helper it calls, and unwind information. */
#include "target/x64/mir.h"
#include "vir/math/vnum.h"
#include <stdlib.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

const char *gen_isa_name(gen_isa isa)
{
    return isa == ISA_avx512 ? "avx512" : isa == ISA_avx2 ? "avx2" : "none";
}

#if defined(__x86_64__)
static gen_isa detect(void)
{
    unsigned a, b, c, d, lo, hi;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA) || !(c & bit_F16C))
        return ISA_none;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    if ((lo & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || !(b & bit_BMI2))
        return ISA_none;
    unsigned need = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return (lo & 0xe0) == 0xe0 && (b & need) == need ? ISA_avx512 : ISA_avx2;
}

static bool two_wide(void)
{
    unsigned a, b, c, d, family;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return false;
    if (b == signature_INTEL_ebx)
        return true;
    __get_cpuid(1, &a, &b, &c, &d);
    family = (a >> 8 & 15) + (a >> 20 & 255);
    return family >= 0x1a; /* Zen 5 */
}

/* Linux gives a process the room for tiles when it asks for it: ARCH_REQ_XCOMP_PERM, feature 18. */
static bool ask_for_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}

/* Eight tiles of sixteen rows of 64 bytes: what products are written for. */
static bool usual_tiles(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && b >> 16 >= 8 && (b & 0xffff) >= 64 &&
           (c & 0xffff) >= 16;
}

static void find_units(gen_units *u)
{
    unsigned a, b, c, d, lo, hi, most;
    if (!__get_cpuid_count(7, 0, &most, &b, &c, &d))
        return;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    u->vnni = c >> 11 & 1;
    bool tiles = (d >> 24 & 1) && (lo >> 17 & 3) == 3 && usual_tiles();
    u->tile_bf16 = tiles && (d >> 22 & 1);
    u->tile_int8 = tiles && (d >> 25 & 1);
    if (most >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        u->bf16 = a >> 5 & 1;
}
#else
static gen_isa detect(void) { return ISA_none; }
static bool ask_for_tiles(void) { return false; }
static void find_units(gen_units *u) {}
static bool two_wide(void) { return false; }
#endif

bool gen_two_wide_fma(void)
{
    static int cached = -1;
    if (cached < 0)
        __atomic_store_n(&cached, two_wide(), __ATOMIC_RELAXED);
    return cached;
}

gen_isa gen_isa_host(void)
{
    static int cached = -1; /* racing threads compute the same answer */
    if (cached < 0) {
        gen_isa isa = detect();
        const char *env = getenv("TAPER_ISA");
        if (env && (!strcmp(env, "base") || !strcmp(env, "none")))
            isa = ISA_none;
        else if (env && !strcmp(env, "avx2") && isa == ISA_avx512)
            isa = ISA_avx2;
        __atomic_store_n(&cached, (int)isa, __ATOMIC_RELAXED);
    }
    return (gen_isa)cached;
}

static gen_units units;
static void set_units(void)
{
    const char *env = getenv("TAPER_UNITS");
    if (gen_isa_host() != ISA_avx512 || (env && !strcmp(env, "none")))
        return;
    find_units(&units);
    if ((env && !strcmp(env, "avx512")) || !(units.tile_bf16 || units.tile_int8) || !ask_for_tiles())
        units.tile_bf16 = units.tile_int8 = false;
}
const gen_units *gen_units_host(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_units);
    return &units;
}

/* --- the helper: rare things, one lane after the other, in C
 * -------------------------------------------------- */
int64_t x64_help_word(x64_help what, int sub, int type, int from, int lanes)
{
    return (int64_t)what | (int64_t)sub << 8 | (int64_t)type << 24 | (int64_t)from << 32 |
           (int64_t)lanes << 40;
}

static int64_t div64(int sub, int64_t a, int64_t b)
{
    if (b == 0)
        return sub >= 2 ? a : 0;
    if (b == -1)
        return sub >= 2 ? 0 : (int64_t)(0 - (uint64_t)a);
    int64_t q = a / b, r = a % b;
    if ((sub & 1) && r && (r < 0) != (b < 0))
        q--, r += b;
    return sub >= 2 ? r : q;
}

static void help_convert(char *dst, const char *src, int to, int from, int lane)
{
    double d = 0;
    float f = 0;
    int64_t i = 0;
    if (from == VT_f64)
        memcpy(&d, src + 8 * lane, 8);
    else if (from == VT_f32)
        memcpy(&f, src + 4 * lane, 4), d = f;
    else
        memcpy(&i, src + 8 * lane, 8);
    if (to == VT_f64) {
        d = (double)i;
        memcpy(dst + 8 * lane, &d, 8);
    } else if (to == VT_f32) {
        f = (float)i;
        memcpy(dst + 4 * lane, &f, 4);
    } else {
        i = vnum_to_i64(d);
        memcpy(dst + 8 * lane, &i, 8);
    }
}

static void help_call(char *frame, int row, int type, int lane)
{
    const vir_call_row *c = &vir_calls[row];
    if (type == VT_f64) {
        double *a = (double *)(void *)(frame + AREA0), *b = (double *)(void *)(frame + AREA1);
        ((double *)(void *)(frame + AREA2))[lane] = c->nargs == 1 ? c->d1(a[lane]) : c->d2(a[lane], b[lane]);
    } else {
        float *a = (float *)(void *)(frame + AREA0), *b = (float *)(void *)(frame + AREA1);
        ((float *)(void *)(frame + AREA2))[lane] = c->nargs == 1 ? c->f1(a[lane]) : c->f2(a[lane], b[lane]);
    }
}

void taper_lane_helper(char *frame) __attribute__((used, visibility("hidden")));
void taper_lane_helper(char *frame)
{
    int64_t word, mask;
    memcpy(&word, frame + AREA_CALL, 8);
    memcpy(&mask, frame + AREA_MASK, 8);
    int what = word & 255, sub = word >> 8 & 0xffff, type = word >> 24 & 255, from = word >> 32 & 255;
    int lanes = word >> 40 & 255;
    for (int lane = 0; lane < lanes; lane++) {
        if (!(mask >> lane & 1))
            continue;
        if (what == HC_call) {
            help_call(frame, sub, type, lane);
        } else if (what == HC_cvt) {
            help_convert(frame + AREA2, frame + AREA0, type, from, lane);
        } else {
            int64_t a, b, r;
            memcpy(&a, frame + AREA0 + 8 * lane, 8);
            memcpy(&b, frame + AREA1 + 8 * lane, 8);
            r = div64(sub, a, b);
            memcpy(frame + AREA2 + 8 * lane, &r, 8);
        }
    }
}

/* The way into the helper: every register a kernel may hold a value in is kept, so that a call costs nothing
 * where it is not made. */
#if defined(__x86_64__)
#define SAVE_GPR \
    "push %rbp\n mov %rsp,%rbp\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %rbx\n"
#define LOAD_GPR                                                                       \
    "mov -8(%rbp),%rsi\n mov -16(%rbp),%rdi\n mov -24(%rbp),%r8\n mov -32(%rbp),%r9\n" \
    "mov -40(%rbp),%r10\n mov -48(%rbp),%rbx\n leave\n ret\n"
#define N16         "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define N32         N16 ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define CALL_HELPER "mov %rdx,%rdi\n mov %rsp,%rbx\n vzeroupper\n call taper_lane_helper\n mov %rbx,%rsp\n"
__asm__(".text\n.balign 16\n.type taper_help_avx512,@function\ntaper_help_avx512:\n" SAVE_GPR
        "sub $2176,%rsp\n and $-64,%rsp\n"
        ".irp i," N32 "\n vmovups %zmm\\i,\\i*64(%rsp)\n.endr\n"
        ".irp i,1,2,3,4,5,6,7\n kmovq %k\\i,2048+\\i*8(%rsp)\n.endr\n" CALL_HELPER ".irp i," N32
        "\n vmovups \\i*64(%rsp),%zmm\\i\n.endr\n"
        ".irp i,1,2,3,4,5,6,7\n kmovq 2048+\\i*8(%rsp),%k\\i\n.endr\n" LOAD_GPR
        ".size taper_help_avx512,.-taper_help_avx512\n"
        ".balign 16\n.type taper_help_avx2,@function\ntaper_help_avx2:\n" SAVE_GPR
        "sub $576,%rsp\n and $-64,%rsp\n"
        ".irp i," N16 "\n vmovups %ymm\\i,\\i*32(%rsp)\n.endr\n" CALL_HELPER ".irp i," N16
        "\n vmovups \\i*32(%rsp),%ymm\\i\n.endr\n" LOAD_GPR ".size taper_help_avx2,.-taper_help_avx2\n");
void taper_help_avx512(void) __attribute__((visibility("hidden")));
void taper_help_avx2(void) __attribute__((visibility("hidden")));
void (*x64_helper(bool avx512))(void) { return avx512 ? taper_help_avx512 : taper_help_avx2; }
#else
void (*x64_helper(bool avx512))(void) { return NULL; }
#endif

/* --- the driver
 * ----------------------------------------------------------------------------------------------- */
bool gen_x64(const vir *k, gen_isa isa, gen_code *out, strbuf *listing, tp_err *err)
{
    static _Thread_local x64 e; /* its buffers serve kernel after kernel */
    arena a = { 0 };
    mir m = { .a = &a, .avx512 = isa == ISA_avx512 };
    bool ok = false;
    *out = (gen_code){ 0 };
    if (isa == ISA_none)
        return err_set(err, ERR_notimpl, "kernel '%s': this machine has no AVX2 and FMA", k->name);
    if (!k->lanes)
        return err_set(err, ERR_internal, "kernel '%s' was not finished", k->name);
    if (!x64_lower(&m, k, err))
        goto done;
    out->frame = x64_allocate(&m);
    if (out->frame > 1 << 18) { /* threads have small stacks */
        err_set(err, ERR_notimpl, "kernel '%s' needs %d bytes of stack: too many values live at once",
                k->name, out->frame);
        goto done;
    }
    x64_reset(&e);
    e.avx512 = m.avx512;
    e.text = listing;
    x64_encode(&m, &e, out->frame);
    size_t at = (e.n + 63) & ~(size_t)63;
    if (!x64_link(&e, at)) {
        err_set(err, ERR_internal, "the machine code of kernel '%s' jumps to nowhere", k->name);
        goto done;
    }
    out->ncode = e.n;
    out->n = at + (size_t)m.npool + 64; /* whole-vector loads of the last constant stay inside */
    out->bytes = mem_zalloc(out->n);
    memcpy(out->bytes, e.code, e.n);
    if (m.npool)
        memcpy(out->bytes + at, m.pool, (size_t)m.npool);
    for (int r = 1; r < m.nv; r++)
        out->nspills += m.v[r].reg < 0 && !m.v[r].is_const && m.v[r].start >= 0;
    ok = true;
done:
    e.text = NULL;
    arena_free(&a);
    return ok;
}

void gen_code_free(gen_code *c)
{
    free(c->bytes);
    *c = (gen_code){ 0 };
}

/* --- unwinding
 * ------------------------------------------------------------------------------------------------ */
/* One CIE and one FDE. Every kernel starts push rbp (1 byte); mov rbp, rsp (3 bytes); then pushes rbx,
 * r12..r15. */
size_t gen_x64_eh_frame(uint8_t *p, const void *code, size_t ncode, bool leaf)
{
    static const uint8_t cie[] = {
        0x14, 0, 0, 0,    0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x00, /* addresses: absolute, 8 bytes */
        0x0c, 7, 8, 0x90, 1, 0, 0,                                          /* cfa rsp+8, return at cfa-8 */
    };
    static const uint8_t rules[] = {
        0x41, 0x0e, 16,   0x86, 2, /* after push rbp */
        0x43, 0x0d, 6,             /* after mov rbp, rsp: cfa is rbp+16 */
        0x83, 3,    0x8c, 4,    0x8d, 5, 0x8e, 6, 0x8f, 7, 0, 0, 0, 0, 0, /* rbx, r12..r15 */
    };
    uint8_t *q = p;
    uint32_t len, back;
    uint64_t word;
    memcpy(q, cie, sizeof cie);
    q += sizeof cie;
    len = (uint32_t)(4 + 8 + 8 + 1 + sizeof rules);
    len = (len + 7) & ~7u;
    memset(q, 0, len + 8);
    memcpy(q, &len, 4);
    back = (uint32_t)(q + 4 - p);
    memcpy(q + 4, &back, 4);
    word = (uint64_t)(uintptr_t)code;
    memcpy(q + 8, &word, 8);
    word = ncode;
    memcpy(q + 16, &word, 8);
    q[24] = 0;
    memcpy(q + 25, rules, leaf ? 8 : sizeof rules); /* the rest are no-ops */
    q += 4 + len;
    memset(q, 0, 4);
    return (size_t)(q + 4 - p);
}
