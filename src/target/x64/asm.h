/* asm.h - writes x86-64 instructions as bytes and, when asked, as Intel-syntax text.
 * Knows encodings. May not know kernels, values or register allocation. */
#ifndef TAPER_GEN_X64ASM_H
#define TAPER_GEN_X64ASM_H
#include "base/strbuf.h"

typedef enum {
#define XV(id, name, form, pp, map, op, vw, ew, tuple, digit) XV_##id,
#include "target/x64/x64.def"
    XV_COUNT
} x64_vop;

enum {
    RAX,
    RCX,
    RDX,
    RBX,
    RSP,
    RBP,
    RSI,
    RDI,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    X64_NOREG = -1,
    X64_RIP = -2
};
typedef enum {
    CC_o,
    CC_no,
    CC_b,
    CC_ae,
    CC_e,
    CC_ne,
    CC_be,
    CC_a,
    CC_s,
    CC_ns,
    CC_p,
    CC_np,
    CC_l,
    CC_ge,
    CC_le,
    CC_g
} x64_cc;

/* An address: base + index * scale + disp. base X64_RIP: disp counts from the constants' start. */
typedef struct x64_mem {
    int8_t base, index, scale;
    int32_t disp;
} x64_mem;

/* The last operand: a register or an address. */
typedef struct x64_rm {
    bool is_mem;
    int8_t reg;
    x64_mem m;
} x64_rm;

typedef struct x64_fix {
    uint32_t at;             /* of the 4 bytes to fill in */
    int32_t target;          /* label, or offset into the constants */
    uint8_t is_const, after; /* bytes between the field's end and the instruction's end */
} x64_fix;

typedef struct x64 {
    uint8_t *code;
    size_t n, cap;
    x64_fix *fix;
    size_t nfix, capfix;
    int32_t *label; /* code offset by label, -1 while unplaced */
    size_t nlabel, caplabel;
    bool avx512;  /* EVEX may be used */
    strbuf *text; /* listing, or NULL */
} x64;

/* Vector: vl 0, 1, 2 for 128, 256, 512 bits. k: mask register or 0; z: zero masked lanes; bcast: the memory
 * operand is one element. src3: RVMR only. evex: force that encoding. */
typedef struct x64_v {
    x64_vop op;
    int8_t vl, dst, src1, src3, k;
    bool z, bcast;
    x64_rm rm;
    uint8_t imm;
} x64_v;
void x64_vec(x64 *e, const x64_v *i);
bool x64_has_evex(x64_vop op);
bool x64_may_bcast(x64_vop op); /* the last operand may be one element in memory, for all lanes */
bool x64_is_wide(x64_vop op);   /* works on 8-byte elements (EVEX.W) */
bool x64_dst_is_rm(x64_vop op); /* the destination is the last operand: stores, extracts, narrowing */
void x64_vec_text(const x64 *e, const x64_v *i, strbuf *out);

/* Whole registers, 64 bits unless w32. */
typedef enum { G_add, G_or, G_adc, G_sbb, G_and, G_sub, G_xor, G_cmp } x64_alu;
void x64_mov(x64 *e, int dst, int src);
void x64_imm(x64 *e, int dst, int64_t v);
void x64_addr(x64 *e, int dst, const void *p, const char *name); /* of this process: texts show the name */
void x64_load(x64 *e, int dst, x64_mem m);
void x64_store(x64 *e, x64_mem m, int src);
void x64_load_n(x64 *e, int dst, x64_mem m, int bytes, bool sign); /* 1, 2, 4 bytes, extended to 64 bits */
void x64_store_n(x64 *e, x64_mem m, int src, int bytes);
void x64_lea(x64 *e, int dst, x64_mem m);
void x64_prefetch(x64 *e, x64_mem m, bool write); /* a hint: never faults */
void x64_alu_rr(x64 *e, x64_alu op, int dst, int src);
void x64_alu_ri(x64 *e, x64_alu op, int dst, int32_t v);
void x64_alu_rm(x64 *e, x64_alu op, int dst, x64_mem m);
void x64_imul(x64 *e, int dst, int src);
void x64_imul_i(x64 *e, int dst, int src, int32_t v);
void x64_shift_i(x64 *e, int digit, int dst, int count);                /* digit 4 shl, 5 shr, 7 sar */
void x64_shiftx(x64 *e, int pp, int dst, int src, int count, bool w32); /* pp 1 shlx, 2 sarx, 3 shrx */
void x64_unary(x64 *e, int digit, int dst);                             /* F7: 2 not, 3 neg, 4 mul, 7 idiv */
void x64_cqo(x64 *e);
void x64_movsxd(x64 *e, int dst, int src);
void x64_bzhi(x64 *e, int dst, int src, int count);
void x64_test(x64 *e, int a, int b);
void x64_bt(x64 *e, int dst, int bit);
void x64_setcc(x64 *e, x64_cc cc, int dst); /* and zero-extended to 64 bits */
void x64_cmov(x64 *e, x64_cc cc, int dst, int src);
void x64_push(x64 *e, int r);
void x64_pop(x64 *e, int r);
void x64_ret(x64 *e);
void x64_vzeroupper(x64 *e);
void x64_call(x64 *e, int r);
int x64_label(x64 *e);             /* a new one, not placed */
void x64_place(x64 *e, int label); /* here */
void x64_jmp(x64 *e, int label);
void x64_jcc(x64 *e, x64_cc cc, int label);

/* Between the register files. w: 64-bit. */
void x64_movd_to(x64 *e, int x, int r, bool w);           /* vmovd/q xmm, r */
void x64_movd_from(x64 *e, int r, int x, bool w);         /* vmovd/q r, xmm */
void x64_bcast_gpr(x64 *e, int vl, int x, int r, bool w); /* EVEX vpbroadcastd/q zmm, r */
void x64_cvtsi2(x64 *e, bool dbl, int x, int r);          /* vcvtsi2ss/sd x, x, r64 */
void x64_cvtt2si(x64 *e, bool dbl, int r, int x, bool w); /* vcvttss/sd2si r, x */
void x64_movmsk(x64 *e, bool dbl, int vl, int r, int x);  /* vmovmskps/pd r32, x */

/* Mask registers; w: 0 byte, 1 word, 2 dword, 3 qword operations. */
typedef enum { K_and = 0x41, K_or = 0x45, K_xor = 0x47, K_andn = 0x42, K_xnor = 0x46 } x64_kop;
void x64_k3(x64 *e, x64_kop op, int w, int dst, int a, int b);
void x64_knot(x64 *e, int w, int dst, int a);
void x64_kmov(x64 *e, int dst, int a); /* kmovq k, k */
void x64_kmov_from_gpr(x64 *e, int w, int k, int r);
void x64_kmov_to_gpr(x64 *e, int w, int r, int k);
void x64_kmov_load(x64 *e, int k, x64_mem m); /* kmovq */
void x64_kmov_store(x64 *e, x64_mem m, int k);
void x64_kortest(x64 *e, int w, int a, int b);

/* Tiles of AMX. Rows in memory lie `m.index` bytes apart, which must be a register. */
typedef enum { TDP_bf16ps, TDP_bssd } x64_tdp;
void x64_tile_config(x64 *e, x64_mem m); /* ldtilecfg: 64 bytes */
void x64_tile_release(x64 *e);
void x64_tile_zero(x64 *e, int t);
void x64_tile_load(x64 *e, int t, x64_mem m);
void x64_tile_store(x64 *e, x64_mem m, int t);
void x64_tile_dot(x64 *e, x64_tdp op, int dst, int a, int b);

/* Fills in jumps and constants; constants will stand `gap` bytes after the code's start. */
bool x64_link(x64 *e, size_t const_at); /* false: a jump leads to a label that was never placed */
void x64_reset(x64 *e);                 /* keeps the memory for the next kernel */
void x64_free(x64 *e);
#endif
