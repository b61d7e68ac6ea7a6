/* guard.h - what must still hold for an entry to be used. */
#ifndef TAPER_CAPTURE_GUARD_H
#define TAPER_CAPTURE_GUARD_H
#include "capture/source.h"

typedef enum {
#define GUARD(id) G_##id,
#include "capture/guard.def"
    G_COUNT
} guard_kind;

typedef struct guard_tensor {
    PyTypeObject *type;
    uint8_t dt, ndim;
    bool requires_grad;
    bool inference; /* made in inference mode */
    bool bare;      /* the graph computes its gradient: it must stay a leaf without hooks */
    bool unwatched; /* the same of one that is no leaf: without hooks */
    bool computed;  /* the graph writes it on the tape: it must stay a computed tensor */
    tp_device dev;
    int64_t *size, *stride; /* -1: symbolic */
} guard_tensor;

/* Of MODULE_ATTR, besides the number of the dictionary: neither the instance nor its class has the name. */
#define GUARD_ABSENT 8

typedef struct guard {
    uint8_t kind;
    source *src, *src2;
    PyObject *obj, *obj2; /* kept by the entry */
    int64_t n;
    guard_tensor *t;
    const char *text; /* what failed, exactly as the log prints it; made when asked for */
    const char *hint; /* the part of it that only Python knows (guard_prepare) */
    bool prepared;
    struct entry *e;
    const char *where;     /* "return x + 1  # file:line in fn", or NULL */
    int older;             /* guard of the same source + 1 */
    const char *file, *fn; /* where it was made, for the trace; NULL: nobody asked */
    int line;
} guard;

/* What was found in a class or namespace (tlook.c): value NULL, nothing. */
typedef struct look {
    PyObject *owner, *name, *value; /* owner: a class, or the dictionary of a module; kept by the entry */
    int older;                      /* of the same name + 1 */
} look;
typedef struct look_group {
    PyObject *owner;
    uint64_t version; /* for which all of them hold */
    int from, to;
} look_group;
#endif
