/* fuzz.h - a fuzz target is one file here with this function. It aborts when a property does not hold.
 * Built by -DTAPER_FUZZ=ON (clang) as build/fuzz_NAME; tests/c/test_base_fuzz.c runs each on mutated seeds.
 */
#ifndef TAPER_FUZZ_H
#define TAPER_FUZZ_H
#include "base/base.h"
#include <stdio.h>

#define MUST(c)                                                     \
    do {                                                            \
        if (!(c)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
            abort();                                                \
        }                                                           \
    } while (0)
#ifndef FUZZ_ENTRY
#define FUZZ_ENTRY LLVMFuzzerTestOneInput
#endif
int FUZZ_ENTRY(const uint8_t *data, size_t n);
#endif
