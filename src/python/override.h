/* override.h - calls that Python code takes over (__torch_function__, modes). */
#ifndef TAPER_OVERRIDE_H
#define TAPER_OVERRIDE_H
#include "python/py.h"

extern int py_overrides; /* zero as long as no class and no mode in this process takes calls over */
bool py_type_overrides(PyTypeObject *tp);
bool py_is_foreign(PyObject *o); /* a tensor of PyTorch itself, which takes no calls of ours over */
/* Does somebody take this call over? Then *res is what came back: NULL with an exception, or a new reference. */
bool py_taken(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **res);
/* The same for a method of Tensor that no row stands for. */
bool py_taken_method(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames, PyObject **res);
bool py_untaken(PyObject *const *args, Py_ssize_t n); /* is there an argument that would? */
#endif
