/* x64.h - vector IR to x86-64 machine code.
 * Knows the IR and the instruction set. May not know where code runs: run/kernel_cache.h makes it executable. */
#ifndef TAPER_GEN_X64_H
#define TAPER_GEN_X64_H
#include "vir/vir.h"

typedef enum { ISA_none, ISA_avx2, ISA_avx512 } gen_isa;

/* What this machine has (cpuid and the operating system's word); TAPER_ISA=base|avx2|avx512 lowers it. */
gen_isa gen_isa_host(void);
const char *gen_isa_name(gen_isa isa);
bool gen_two_wide_fma(
    void); /* two 512-bit multiplications a cycle (Intel's servers), or one (Zen 4 and before) */

/* What multiplies narrow numbers: AVX512-BF16, AVX512-VNNI, and AMX, for which Linux is asked at the first call.
 * TAPER_UNITS=none|avx512|amx lowers it, as does TAPER_ISA below avx512. */
typedef struct gen_units {
    bool bf16, vnni, tile_bf16, tile_int8;
} gen_units;
const gen_units *gen_units_host(void);

typedef struct gen_code {
    uint8_t *bytes; /* position-independent: code, then constants; owned, freed by gen_code_free */
    size_t n;       /* with constants */
    size_t ncode;   /* the code alone */
    int nspills, frame;
    bool leaf; /* saves no register but rbp */
} gen_code;

/* k must be finished. listing: NULL, or gets one line an instruction. */
bool gen_x64(const vir *k, gen_isa isa, gen_code *out, strbuf *listing, tp_err *err);
void gen_code_free(gen_code *c);

/* The unwind description every kernel shares (same prologue); n bytes at p describe code at [code, code +
 * ncode). */
size_t gen_x64_eh_frame(uint8_t *p, const void *code, size_t ncode, bool leaf);
#endif
