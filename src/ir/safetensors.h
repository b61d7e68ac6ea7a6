/* safetensors.h - named tensors in one file: a JSON header and their bytes. Files are read as hostile. */
#ifndef TAPER_SAFETENSORS_H
#define TAPER_SAFETENSORS_H
#include "tensor/tensor.h"

typedef struct safetensors safetensors;
safetensors *safetensors_new(void);
void safetensors_free(safetensors *st); /* NULL is allowed */
/* Contiguous tensors in the order of the file; NULL with err. Checks sizes, ranges and overlap. */
safetensors *safetensors_read(const char *path, tp_err *err);
bool safetensors_write(const safetensors *st, const char *path, tp_err *err);
void safetensors_add(safetensors *st, const char *name, tp_tensor *t);      /* refs t; contiguous */
void safetensors_note(safetensors *st, const char *key, const char *value); /* __metadata__ */
tp_tensor *safetensors_get(const safetensors *st, const char *name);        /* borrowed; NULL when absent */
const char *safetensors_meta(const safetensors *st, const char *key);       /* NULL when absent */
int safetensors_count(const safetensors *st);
const char *safetensors_name(const safetensors *st, int i);
tp_tensor *safetensors_at(const safetensors *st, int i); /* borrowed */
#endif
