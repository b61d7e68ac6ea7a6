/* backends.h - backends that fail on purpose, to test the tools that find failures. */
#ifndef TAPER_DEBUG_BACKENDS_H
#define TAPER_DEBUG_BACKENDS_H
#include "compile/backend.h"

/* relu_compile_error_TESTING_ONLY, relu_runtime_error_TESTING_ONLY, relu_accuracy_error_TESTING_ONLY,
 * non_leaf_compile_error_TESTING_ONLY; cheap to repeat. */
void debug_backends_register(void);
#endif
