/* vec.h - a growable array of any type: VEC(int) v = {0}; vec_push(&v, 3); v.at[0]; vec_free(&v). */
#ifndef TAPER_VEC_H
#define TAPER_VEC_H
#include "base/base.h"

#define VEC(T)         \
    struct {           \
        T *at;         \
        size_t n, cap; \
    }
#define vec_reserve(v, want)                                             \
    do {                                                                 \
        if ((v)->cap < (want)) {                                         \
            (v)->cap = MAX((size_t)(want), (v)->cap ? (v)->cap * 2 : 8); \
            (v)->at = mem_realloc((v)->at, (v)->cap * sizeof *(v)->at);  \
        }                                                                \
    } while (0)
#define vec_push(v, x)              \
    do {                            \
        vec_reserve(v, (v)->n + 1); \
        (v)->at[(v)->n++] = (x);    \
    } while (0)
#define vec_pop(v)  ((v)->at[--(v)->n])
#define vec_last(v) ((v)->at[(v)->n - 1])
#define vec_free(v) (free((v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)
#endif
