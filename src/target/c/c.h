/* c.h - vector IR to readable, portable C: what logs show, exports contain, other machines compile.
 * A unit collects kernels and the helper functions they need, each once. */
#ifndef TAPER_GEN_C_H
#define TAPER_GEN_C_H
#include "vir/vir.h"
#include "base/map.h"
#include "tensor/dtype.h"

typedef struct gen_c_unit {
    strbuf helpers, kernels; /* text so far */
    map seen;                /* helper functions already written */
} gen_c_unit;

/* Adds `void NAME(void *const *bufs, const int64_t *ints, const double *flts, int64_t lo, int64_t hi)`.
 * name must be a C identifier; k must be finished. */
void gen_c_kernel(gen_c_unit *u, const vir *k, const char *name);
/* The whole file: includes, helpers, kernels. */
void gen_c_text(const gen_c_unit *u, strbuf *out);
/* Functions tp_from_bf16, tp_to_bf16, tp_from_f16 and tp_to_f16, for text that calls them. */
void gen_c_halves(gen_c_unit *u);
void gen_c_ready(void); /* makes what the first text would have to make: functions that it is written with */
void gen_c_free(gen_c_unit *u);

/* Data: the C type of an element (f16 and bf16 are uint16_t), and one element as a constant that gives its bits back. */
const char *gen_c_type(dtype dt);
void gen_c_number(strbuf *b, dtype dt, const void *p);

/* The same text through the system's C compiler ($CC, else cc) into a shared library: its bytes. No files stay.
 * flags: NULL or e.g. "-O3". Fails with ERR_os where there is no compiler, ERR_compiler where it fails. */
bool gen_cc_build(const char *text, const char *flags, strbuf *so, tp_err *err);
/* For other machines than this one: a library, or assembly text. */
bool gen_cc_export(const char *text, bool assembly, strbuf *out, tp_err *err);
const char *gen_cc_name(void); /* the command */
typedef struct gen_lib {
    void *dl;
} gen_lib;
bool gen_so_load(const void *so, size_t n, gen_lib *lib, tp_err *err);
bool gen_cc_load(const char *text, const char *flags, gen_lib *lib, tp_err *err); /* both */
vir_fn gen_lib_find(const gen_lib *lib, const char *name);
void gen_lib_free(gen_lib *lib);
#endif
