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

/* Capture sets these: who.name(*args), which a trace follows, and what happens when a mode is entered (1) or left (-1). */
extern PyObject *(*py_ask)(PyObject *who, PyObject *name, PyObject *const *args, Py_ssize_t n);
extern void (*py_mode_entered)(int by);
/* What takes calls over on this thread, as capture saves and restores it around a trace. */
typedef struct py_overriding {
    VEC(PyObject *) calls; /* owned */
    int classes_off, all_off;
} py_overriding;
void py_overriding_get(py_overriding *s);
bool py_overriding_same(const py_overriding *s);
void py_overriding_set(const py_overriding *s);
void py_overriding_free(py_overriding *s);
void py_overriding_pause(int by); /* neither classes nor modes take calls over while the sum is above zero */
/* ---- index_check.c ---- */
/* Under an audit: does r, which is t[index], lie where the index says? */
void py_index_check(const tp_tensor *t, PyObject *index, const tp_tensor *r);
#endif
