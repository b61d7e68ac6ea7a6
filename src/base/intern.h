/* intern.h - equal strings become one pointer and one small number. */
#ifndef TAPER_INTERN_H
#define TAPER_INTERN_H
#include "base/map.h"
#include "base/vec.h"

typedef struct interns {       /* zeroed is valid */
    map ids;                   /* private */
    VEC(const char *) strings; /* read-only: by number; NUL-terminated */
} interns;

uint32_t intern_id(interns *t, const char *s, size_t n, bool *fresh); /* 0, 1, 2, ...; fresh may be NULL */
const char *intern_str(interns *t, const char *s, size_t n);          /* lives until interns_free */
void interns_free(interns *t);
#endif
