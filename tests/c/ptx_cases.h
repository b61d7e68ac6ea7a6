/* ptx_cases.h - one kernel of each family that the CUDA target writes; golden texts and the device test share them. */
#ifndef TAPER_PTX_CASES_H
#define TAPER_PTX_CASES_H
#include "vir/vir.h"

typedef struct ptx_case {
    const char *name;
    vir *(*make)(
        arena *a); /* unfinished; int arguments: rows, n; no buffer has more than rows * n elements */
    bool flat;     /* no parallel loop: rows is 1                             */
} ptx_case;
extern const ptx_case ptx_cases[];
extern const int nptx_cases;
#endif
