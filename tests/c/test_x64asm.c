/* Every instruction form the x64 emitter can write, held against GNU as: same text in, same bytes out. */
#include "test.h"
#include "target/x64/asm.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    x64 e;
    strbuf text;
} forms;

static bool is(x64_vop op, const char *word)
{
    static const char *const ids[] = {
#define XV(id, name, form, pp, map, opc, vw, ew, tuple, digit) #id " " #form " " #tuple " ",
#include "target/x64/x64.def"
    };
    return strstr(ids[op], word) != NULL;
}

/* Which combinations of width, registers and memory exist. */
static bool exists(const x64_v *v)
{
    x64_vop op = v->op;
    bool mem = v->rm.is_mem, high = (v->dst | v->src1 | (mem ? 0 : v->rm.reg)) >= 16;
    if (!x64_has_evex(op) && (high || v->vl == 2 || v->k || v->bcast))
        return false;
    if (is(op, " RVMR") && v->src3 >= 16)
        return false;
    if (is(op, " MV") || is(op, "maskmov") || is(op, "movup") || is(op, "movdqu"))
        return mem && !(is(op, " M") && v->z);
    if (is(op, "movss") || is(op, "movsd"))
        return mem && v->vl == 0 && !v->z && !v->bcast;
    if (is(op, "64x4"))
        return v->vl == 2 && !(mem && v->z && is(op, "extract"));
    if (is(op, "bcastsd") || is(op, "permq") || is(op, "32x4"))
        return v->vl > 0 && !v->bcast && !(mem && v->z && is(op, "extract"));
    if (is(op, "permps"))
        return v->vl > 0;
    if (is(op, "i128"))
        return v->vl == 1;
    if (is(op, " VMI"))
        return !mem;
    if (is(op, " MR"))
        return !(mem && v->z);
    if (is(op, " RVMK"))
        return !v->z && v->dst < 8;
    return true;
}

static void put(forms *f, x64_v v)
{
    bool can_bcast = is(v.op, " FV ") || is(v.op, " HV ");
    if (v.bcast && (!v.rm.is_mem || !can_bcast))
        return;
    if (exists(&v))
        x64_vec(&f->e, &v);
}

static const x64_mem mems[] = {
    { RAX, X64_NOREG, 1, 0 },   { RBP, X64_NOREG, 1, 0 }, { RSP, X64_NOREG, 1, 64 },
    { R12, X64_NOREG, 1, 128 }, { R13, R14, 4, 0 },       { RBX, RCX, 8, -256 },
    { R9, RSI, 2, 100000 },     { RDI, R15, 1, 60 },      { RSP, X64_NOREG, 1, 1024 },
};

static void vec_forms(forms *f)
{
    static const int regs[] = { 0, 5, 9, 15, 17, 26, 31 };
    for (int op = 0; op < XV_COUNT; op++)
        for (int vl = 0; vl <= 2; vl++)
            for (int i = 0; i < 16; i++) {
                x64_v v = { .op = (x64_vop)op, .vl = (int8_t)vl, .imm = 1, .dst = (int8_t)regs[i % 7] };
                v.src1 = (int8_t)regs[(i + 1) % 7], v.src3 = (int8_t)regs[(i + 3) % 7];
                if (is(v.op, " RVMK"))
                    v.dst &= 7;
                if (is(v.op, " G ")) { /* distinct destination, index and mask */
                    v.rm = (x64_rm){ .is_mem = true,
                                     .m = { (int8_t)(i % 8 == RSP ? R13 : i), (int8_t)(i + 3), 4, i * 12 } };
                    v.dst = (int8_t)((i + 7) & 15), v.src1 = (int8_t)((i + 11) & 15);
                    v.rm.m.index &= 15;
                    if (vl < 2)
                        x64_vec(&f->e, &v);
                    v.k = 2, v.rm.m.index |= 16, v.dst = (int8_t)(i ^ 31), v.src1 = 0;
                    if (v.dst != v.rm.m.index)
                        x64_vec(&f->e, &v);
                    continue;
                }
                if (i >= 7)
                    v.rm = (x64_rm){ .is_mem = true, .m = mems[i - 7] };
                else
                    v.rm.reg = (int8_t)regs[(i + 2) % 7];
                put(f, v);
                v.dst &= 15, v.src1 &= 15, v.rm.reg &= 15;
                put(f, v);
                v.k = 3;
                put(f, v);
                v.z = true;
                put(f, v);
                v.z = false, v.k = 0, v.bcast = true;
                put(f, v);
            }
}

static void general_forms(forms *f)
{
    x64 *e = &f->e;
    static const int64_t imms[] = { 0,    1,          -1,           127,           128,
                                    -129, 0x7fffffff, 0xffffffffLL, -0x80000000LL, 0x123456789abcLL };
    for (int r = 0; r < 16; r++) {
        int s = (r * 7 + 3) & 15, c = (r * 5 + 1) & 15;
        x64_mem m = mems[r % 9];
        x64_mov(e, r, s), x64_load(e, r, m), x64_store(e, m, r), x64_lea(e, r, m);
        x64_prefetch(e, m, false), x64_prefetch(e, m, true);
        for (size_t i = 0; i < COUNT(imms); i++)
            x64_imm(e, r, imms[i]);
        for (int b = 1; b <= 4; b *= 2) {
            x64_load_n(e, r, m, b, true), x64_load_n(e, r, m, b, false);
            x64_store_n(e, m, r, b);
        }
        for (int op = 0; op < 8; op++) {
            x64_alu_rr(e, (x64_alu)op, r, s), x64_alu_rm(e, (x64_alu)op, r, m);
            x64_alu_ri(e, (x64_alu)op, r, 5), x64_alu_ri(e, (x64_alu)op, r, 5000),
                x64_alu_ri(e, (x64_alu)op, r, -7);
        }
        x64_imul(e, r, s), x64_imul_i(e, r, s, 12), x64_imul_i(e, r, s, 1200);
        for (int d = 4; d <= 7; d += d == 5 ? 2 : 1)
            x64_shift_i(e, d, r, 1), x64_shift_i(e, d, r, 63);
        for (int pp = 1; pp <= 3; pp++)
            x64_shiftx(e, pp, r, s, c, true), x64_shiftx(e, pp, r, s, c, false);
        x64_unary(e, 2, r), x64_unary(e, 3, r), x64_unary(e, 4, r), x64_unary(e, 7, r);
        x64_cqo(e), x64_movsxd(e, r, s), x64_bzhi(e, r, s, c), x64_test(e, r, s), x64_bt(e, r, 13);
        x64_setcc(e, (x64_cc)r, r), x64_cmov(e, (x64_cc)r, r, s), x64_push(e, r), x64_pop(e, r),
            x64_call(e, r);
        for (int w = 0; w <= 1; w++) {
            x64_movd_to(e, r, s, w), x64_movd_from(e, s, r, w), x64_movd_to(e, r + 16, s, w),
                x64_movd_from(e, s, r + 16, w);
            for (int vl = 0; vl < 3; vl++)
                x64_bcast_gpr(e, vl, r + 16 * w, s, w), x64_bcast_gpr(e, vl, r, s, !w);
            x64_cvtsi2(e, w, r, s), x64_cvtsi2(e, w, r + 16, s);
            x64_cvtt2si(e, w, r, s, true), x64_cvtt2si(e, w, r, s + 16, false), x64_movmsk(e, w, w, r, s);
            x64_movmsk(e, w, !w, r, s);
        }
        static const x64_kop kops[] = { K_and, K_or, K_xor, K_andn, K_xnor };
        int k = r & 7, k2 = s & 7;
        for (int w = 0; w < 4; w++) {
            for (size_t i = 0; i < COUNT(kops); i++)
                x64_k3(e, kops[i], w, k, k2, c & 7);
            x64_knot(e, w, k, k2), x64_kortest(e, w, k, k2), x64_kmov_from_gpr(e, w, k, r),
                x64_kmov_to_gpr(e, w, r, k);
        }
        x64_mem rows = { (int8_t)r, (int8_t)(s == RSP ? RAX : s), 1, r * 40 - 64 };
        x64_tile_config(e, m), x64_tile_zero(e, k), x64_tile_release(e);
        x64_tile_load(e, k, rows), x64_tile_store(e, rows, k2);
        x64_tile_dot(e, TDP_bf16ps, k, (k + 1) & 7, (k + 5) & 7),
            x64_tile_dot(e, TDP_bssd, k, (k + 4) & 7, (k + 2) & 7);
        x64_kmov(e, k, k2), x64_kmov_load(e, k, m), x64_kmov_store(e, m, k);
    }
    x64_ret(e), x64_vzeroupper(e);
    int l = x64_label(e);
    x64_place(e, l);
    x64_jmp(e, l);
    for (int cc = 0; cc < 16; cc++)
        x64_jcc(e, (x64_cc)cc, l);
}

/* Assembles the text; the bytes of .text, or NULL when the tools are missing or refuse. */
static uint8_t *assemble(const strbuf *text, size_t *n)
{
    char dir[] = "/tmp/taper-as-XXXXXX", cmd[512];
    uint8_t *out = NULL;
    if (!mkdtemp(dir))
        return NULL;
    snprintf(cmd, sizeof cmd, "%s/t.s", dir);
    FILE *f = fopen(cmd, "w");
    fputs(".intel_syntax noprefix\n", f);
    for (const char *p = strbuf_str(text), *q; *p; p = q + 1) {
        q = strchr(p, '\n');
        while (*p == ' ')
            p++;
        bool jump = *p == 'j', label = *p == '.';
        fprintf(f, "%s%.*s\n", label ? "" : jump ? "{disp32} " : *p == 'v' ? "{load} " : "", (int)(q - p), p);
    }
    fclose(f);
    snprintf(cmd, sizeof cmd, "cd %s && as --64 -o t.o t.s && objcopy -O binary -j .text t.o t.bin", dir);
    if (system(cmd) == 0) {
        snprintf(cmd, sizeof cmd, "%s/t.bin", dir);
        f = fopen(cmd, "rb");
        fseek(f, 0, SEEK_END);
        *n = (size_t)ftell(f);
        rewind(f);
        out = mem_alloc(*n + 1);
        *n = fread(out, 1, *n, f);
        fclose(f);
    }
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    if (system(cmd))
        *n = 0;
    return out;
}

/* The line of text that the first differing byte belongs to: instructions are re-encoded to find where each
 * ends. */
static void check_bytes(forms *f, const char *what)
{
    size_t n = 0;
    x64_link(&f->e, 0);
    uint8_t *want = assemble(&f->text, &n);
    CHECK(want != NULL);
    if (!want)
        return;
    size_t i = 0;
    while (i < n && i < f->e.n && want[i] == f->e.code[i])
        i++;
    if (i < n || i < f->e.n) {
        char hex[2][64] = { "", "" };
        size_t from = i > 8 ? i - 8 : 0;
        for (size_t j = from; j < from + 18 && j < n && j < f->e.n; j++) {
            snprintf(hex[0] + strlen(hex[0]), 4, "%02x ", f->e.code[j]);
            snprintf(hex[1] + strlen(hex[1]), 4, "%02x ", want[j]);
        }
        test_fail(__FILE__, __LINE__, "%s: byte %zu of %zu (as: %zu): ours ...%s as ...%s", what, i, f->e.n,
                  n, hex[0], hex[1]);
    }
    free(want);
}

static void compare(const char *what, void (*make)(forms *))
{
    forms f = { 0 };
    f.e.text = &f.text;
    f.e.avx512 = true;
    make(&f);
    size_t lines = 0;
    for (const char *p = strbuf_str(&f.text); *p; p++)
        lines += *p == '\n';
    CHECK(lines > 500);
    check_bytes(&f, what);
    x64_free(&f.e);
    strbuf_free(&f.text);
}

TEST(x64_instructions_against_as)
{
    if (system("command -v as >/dev/null 2>&1 && command -v objcopy >/dev/null 2>&1")) {
        fprintf(stderr, "SKIP x64_instructions_against_as: GNU as or objcopy is missing\n");
        return;
    }
#if defined(__x86_64__)
    compare("vector", vec_forms);
    compare("general", general_forms);
#endif
}
