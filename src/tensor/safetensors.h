/* safetensors.h - named tensors in one file: an 8-byte little-endian length, a JSON header, the bytes.
 * Files come from anywhere, so every number in them is checked before it is used. */
#ifndef TAPER_SAFETENSORS_H
#define TAPER_SAFETENSORS_H
#include "base/arena.h"
#include "base/json.h"
#include "tensor/tensor.h"

typedef struct st_entry {
    const char *name;
    dtype dt;
    int ndim;
    const symint *size;
    size_t begin, end; /* bytes within the data */
} st_entry;
typedef struct st_file {
    st_entry *at; /* by name */
    int n;
    const json_val *meta; /* "__metadata__": strings by name, or NULL */
    arena mem;            /* private from here */
    const uint8_t *data;
    size_t ndata;
    char *own; /* the bytes of an opened file */
} st_file;

bool st_parse(st_file *f, const void *bytes, size_t n, tp_err *err); /* borrows bytes; st_free on success */
bool st_open(st_file *f, const char *path, tp_err *err);             /* reads the file; likewise */
void st_free(st_file *f);
const st_entry *st_find(const st_file *f, const char *name); /* or NULL */
/* A tensor of its own with an entry's bytes. */
tp_tensor *st_tensor(const st_file *f, const st_entry *e, tp_err *err);

/* Tensors need not be contiguous. meta: key, value, key, value, ..., NULL; or NULL. */
bool st_dump(strbuf *out, const char *const *names, tp_tensor *const *t, int n, const char *const *meta,
             tp_err *err);
bool st_write(const char *path, const char *const *names, tp_tensor *const *t, int n, const char *const *meta,
              tp_err *err);
#endif
