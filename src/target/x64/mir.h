/* mir.h - machine instructions over virtual registers: what lowering writes and allocation reads.
 * Private to target/x64/. */
#ifndef TAPER_GEN_X64MIR_H
#define TAPER_GEN_X64MIR_H
#include "target/x64/x64.h"
#include "target/x64/asm.h"
#include "base/arena.h"

typedef enum {
    MI_vec,    /* row `vop`: d, s1, s2 or memory                                             */
    MI_fma,    /* d = s1 * s2 + s3; vop is the 231 form of the type                          */
    MI_blend,  /* d = mask s3 ? s2 : s1; wide: 64-bit lanes                                   */
    MI_gather, /* d = memory[base + s1 * scale + disp] where mask s3 (0: everywhere)          */
    MI_movv,   /* d = s1 (vector or mask register)                                            */
    MI_k3,
    MI_knot,
    MI_kfrom,
    MI_kto,
    MI_kortest, /* imm: operation; width in vl               */
    MI_movd,
    MI_movd_from,
    MI_bcastg,
    MI_si2,
    MI_2si,
    MI_movmsk, /* between register files; wide: 64-bit */
    MI_gmov,
    MI_gimm,
    MI_gload,
    MI_gstore,
    MI_glea, /* size, sign in vl and z                  */
    MI_galu,
    MI_galui,
    MI_gimul,
    MI_gimuli,
    MI_gshift,
    MI_gshx,
    MI_gun,
    MI_gdiv,
    MI_gsx,
    MI_gbzhi,
    MI_gcmp,
    MI_gcmpi,
    MI_gtest,
    MI_setcc,
    MI_cmov,
    MI_label,
    MI_jmp,
    MI_jcc,
    MI_lanes, /* memory lane by lane through the frame                                       */
    MI_call,  /* the helper, over the frame's areas                                          */
} mi_kind;

enum { MB_NONE = 0, MB_FRAME = -1, MB_CONST = -2 };
enum { CLASS_v, CLASS_g, CLASS_k };

/* Frame layout, from rsp: three lane areas, then what the helper reads, the arguments, then spills. */
enum {
    AREA0 = 0,
    AREA1 = 64,
    AREA2 = 128,
    AREA_CALL = 192,
    AREA_MASK = 200,
    AREA_ARGS = 208,
    AREA_SPILL = 256
};

typedef struct mi {
    uint8_t kind, vop;
    int8_t vl;
    bool z, bcast, wide, mem, dread;
    int8_t scale;
    int32_t d, s1, s2, s3;
    int32_t k;           /* mask register of an EVEX instruction */
    int32_t base, index; /* virtual registers, or MB_* */
    int32_t disp;
    int64_t imm;
} mi;

typedef struct vreg {
    uint8_t cls, is_const, wide; /* constants: wide says 8-byte elements */
    int8_t reg;                  /* -1: on the stack (or, a constant, in the pool) */
    int32_t start, end;          /* instruction numbers; start -1 until defined */
    int32_t depth, endloop;      /* loop depth of the definition; loop it lives to the end of */
    int32_t slot;                /* frame offset, or offset in the constants */
    int32_t next;
    float weight;
} vreg;

typedef struct mloop {
    int32_t end;
} mloop;

typedef struct mir {
    arena *a;
    mi *code;
    int n, cap;
    vreg *v;
    int nv, capv;
    mloop *loops;
    int nloops, caploops;
    int stack[64], depth; /* open loops */
    uint8_t *pool;        /* constants */
    int npool, cappool;
    int32_t chash[256]; /* constant lookup: heads of chains through vreg.next */
    int32_t cons[2];    /* first and last constant register */
    int nlabels;
    bool avx512;
    int L; /* lanes of a physical vector */
} mir;

int mir_vreg(mir *m, int cls);
mi *mir_add(mir *m, mi i);                           /* registers uses and the definition */
int mir_const(mir *m, uint64_t bits, bool wide);     /* the same in every lane */
int mir_const_vec(mir *m, const void *bytes, int n); /* n bytes as they are */
int mir_label(mir *m);
void mir_loop_begin(mir *m);
void mir_loop_end(mir *m);
/* The straight pieces [a, b) and [b, end) of the code, two of `copies` of the same work, become one, an instruction of each in
 * turn. Neither may need the other's memory. Not where registers would not do or the order matters otherwise. */
void mir_zip(mir *m, int a, int b, int copies);

typedef enum { HC_call, HC_div64, HC_cvt } x64_help; /* what the helper does, lane by lane, in C */
int64_t x64_help_word(x64_help what, int sub, int type, int from, int lanes);
void (*x64_helper(bool avx512))(void); /* keeps every register; rdx points to the frame's areas */

bool x64_lower(mir *m, const vir *k, tp_err *err); /* x64low.c */
int x64_allocate(mir *m);                          /* x64ra.c: bytes of frame */
void x64_encode(mir *m, x64 *e, int frame);        /* x64ra.c */
#endif
