/* pw.h - the table of pointwise inner loops, one per instruction set. */
#ifndef TAPER_PW_H
#define TAPER_PW_H
#include "ops/op.h"

typedef enum {
#define PW1(name, f, i, b) PW_##name,
#define PW2(name, f, i, b) PW_##name,
#define PWC(name, e)       PW_##name,
#include "ops/pw.def"
    PW_COUNT
} pw_id;

typedef struct pw_par {
    double f[4];
    int64_t i[4];
} pw_par;

/* p[0] is the result, p[1], p[2] the inputs; st in bytes. */
typedef void pw_loop(int64_t n, char *const *p, const int64_t *st, const pw_par *par);
typedef pw_loop *pw_table[PW_COUNT][DT_COUNT];

extern const pw_table pw_loops_base, pw_loops_avx2, pw_loops_avx512;
const pw_table *pw_loops(void); /* for this machine; TAPER_ISA=base|avx2|avx512 overrides downwards */

/* Runs loop `id` for the call: inputs are converted to the compute type, numbers become broadcast inputs. */
bool pw_run(op_call *c, pw_id id, const pw_par *par);
#endif
