/* ptx_func.h - functions in PTX that kernels call: what the C library computes where the vector math does not. */
#ifndef TAPER_TARGET_CUDA_PTX_FUNC_H
#define TAPER_TARGET_CUDA_PTX_FUNC_H
#include "base/map.h"
#include "base/strbuf.h"

/* Writes function `name` ("tp_fmod_f32") and what it calls to `head`, once. False: there is none of that name. */
bool ptx_func_need(map *seen, strbuf *head, const char *name);
/* A function ("tp_NAME_f32", of 1 or 2 arguments) around its body, which computes r of x and y. */
void ptx_func_add(strbuf *head, const char *name, int nin, const char *body);
#endif
