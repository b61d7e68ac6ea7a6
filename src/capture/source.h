/* source.h - how an object is reached from the frame. */
#ifndef TAPER_CAPTURE_SOURCE_H
#define TAPER_CAPTURE_SOURCE_H

#include "base/map.h"
#include "base/vec.h"
#include "python/py.h"
#include "ir/graph.h"
#include "events/events.h"
#include "grad/tape.h"
#include "compile/backend.h"
#include "sym/env.h"

typedef struct cap_code cap_code;
typedef struct frame frame;
typedef struct trace trace;
typedef struct entry entry;
typedef struct region region;

typedef enum {
    SRC_local,      /* frame slot index */
    SRC_stack,      /* stack slot index */
    SRC_global,     /* obj: the globals dict, key: name */
    SRC_const,      /* obj: the object itself */
    SRC_instattr,   /* base.__dict__[key] */
    SRC_attr,       /* getattr(base, key) through a C descriptor (slots, tensor attributes) */
    SRC_typeattr,   /* type(base).key, not hidden by the instance (base is a class: its own MRO) */
    SRC_item,       /* base[index] of a list or tuple */
    SRC_key,        /* base[key] of a dict */
    SRC_dictkey,    /* the index-th key of a dict */
    SRC_cell,       /* contents of the cell base */
    SRC_closure,    /* base.__closure__[index] of a function */
    SRC_default,    /* base.__defaults__[index] */
    SRC_kwdefault,  /* base.__kwdefaults__[key] */
    SRC_dict,       /* base.__dict__ */
    SRC_func,       /* base.__func__ */
    SRC_self,       /* base.__self__ */
    SRC_type,       /* type(base) */
    SRC_deque,      /* base[index] of a deque */
    SRC_proxied,    /* the dictionary behind a mappingproxy */
    SRC_array,      /* the tensor on the memory of a NumPy array */
    SRC_number,     /* a 0-d float64 tensor with the float base */
    SRC_subclasses, /* base.__subclasses__() */
    SRC_cached,     /* obj: the dictionary of a functools.lru_cache, key, index: does it hold links? */
} src_kind;

typedef struct source {
    uint8_t kind;
    bool used; /* evaluated when the guards run */
    bool kept; /* what is rebuilt after the graph needs it */
    int id;    /* register */
    int index;
    struct source *base;
    PyObject *obj, *key; /* kept by the entry */
    const char *text;    /* src_text() */
    PyObject *
        held; /* SRC_attr, SRC_array, SRC_number: an object that only we keep (the wrapper of a gradient), until the next use */
    struct entry *e;
    int guards;          /* its newest guard + 1; older ones follow guard.older */
    bool cached;         /* follows from unchanged dicts and types */
    bool plain;          /* guard_prepare was here: any thread can write its text */
    struct source *next; /* hash chain */
} source;
#endif
