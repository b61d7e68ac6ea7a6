/* bundle.h - a failure as one directory: graph text, inputs, what happened. Holds nothing executable; written whole
 * or not at all, and read as untrusted.
 *   graph.py             the graph (docs/graph.md), constants beside it
 *   inputs.safetensors   the inputs' bytes (in0, in1, ...); the graph's annotations say their strides
 *   failure.json         backend, kind, message, which inputs need gradients, versions */
#ifndef TAPER_BUNDLE_H
#define TAPER_BUNDLE_H
#include "debug/trial.h"

bool bundle_write(const char *dir, const repro *r, const signature *s, tp_err *err); /* makes the directory */
repro *bundle_read(const char *dir, signature *s, tp_err *err);                      /* s may be NULL */
/* <root>/taper_compile_debug/run_<time>-pid_<pid>/minifier, the same for the whole process. Owned by the caller. */
char *bundle_dir(void);
#endif
