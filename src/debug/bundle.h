/* bundle.h - a failure as one directory. Holds nothing executable for its readers; every file is written whole or
 * not at all, failure.json last; read as untrusted.
 *   graph.py             the graph (docs/graph.md), big constants beside it
 *   inputs.safetensors   the bytes of the inputs' storages, each under its SHA-1
 *   failure.json         backend, signature, geometry of the inputs, digests of the other files
 *   events               a trace of its compile (`taper report DIR/events`); nobody reads it back
 *   state.json           versions, machine, settings, random state, environment variables of ours */
#ifndef TAPER_BUNDLE_H
#define TAPER_BUNDLE_H
#include "base/json.h"
#include "debug/trial.h"

bool bundle_write(const char *dir, const repro *r, const signature *s, tp_err *err); /* makes the directory */
/* Compiles r once more in a child, with a trace, and keeps that as DIR/events: what the compiler did until it failed. For
 * reading only: when it cannot be made there is none. */
void bundle_events(const char *dir, const repro *r);
/* s may be NULL. Inputs that were saved without bytes get random numbers (floats) or zeros. Plants the faults it was made
 * with when plant is set. */
repro *bundle_read(const char *dir, signature *s, bool plant, tp_err *err);
/* <root>/taper_compile_debug/run_<time>-pid_<pid>/minifier, the same for the whole process. Owned by the caller. */
char *bundle_dir(void);
/* A directory instead of the environment's: config.debug_dir_root. Copied; NULL: the environment's. */
void bundle_set_root(const char *root);

typedef struct saved_storage { /* the distinct storages of a repro's inputs, in order of first use */
    tp_storage *s;
    char sha1[41]; /* empty: no bytes */
} saved_storage;
int bundle_storages(const repro *r, saved_storage *out); /* room for nin; returns how many */
int bundle_storage_of(const saved_storage *s, int n, const tp_tensor *t);
void bundle_state(strbuf *out, const repro *r); /* state.json */
#endif
