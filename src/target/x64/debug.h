/* debug.h - names for debuggers. */
#ifndef TAPER_GEN_JITELF_H
#define TAPER_GEN_JITELF_H
#include "base/base.h"

void gen_jit_announce(const void *code, size_t n, const char *name);
#endif
