/* compat.h - the only place that tests the Python version. */
#ifndef TAPER_COMPAT_H
#define TAPER_COMPAT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "Taper needs CPython 3.11, 3.12, 3.13 or 3.14; this one is older"
#elif PY_VERSION_HEX >= 0x030F0000
#error "Taper runs on CPython 3.11, 3.12, 3.13 and 3.14; capture does not know this one's bytecode yet"
#elif defined Py_GIL_DISABLED
#error "Taper needs a CPython with the global lock; this one was built without it"
#endif
#define TP_PY312 (PY_VERSION_HEX >= 0x030C0000)
#define TP_PY313 (PY_VERSION_HEX >= 0x030D0000)
#define TP_PY314 (PY_VERSION_HEX >= 0x030E0000)
#if TP_PY313 /* from here on HAVE_ARGUMENT is the last that has none */
#define OP_HAS_ARG(op) ((op) > HAVE_ARGUMENT)
#else
#define OP_HAS_ARG(op) ((op) >= HAVE_ARGUMENT)
#endif
#if PY_VERSION_HEX >= 0x030C0000 /* the same functions under their newer names */
#define _PyCode_GetExtra              PyUnstable_Code_GetExtra
#define _PyCode_SetExtra              PyUnstable_Code_SetExtra
#define _PyEval_RequestCodeExtraIndex PyUnstable_Eval_RequestCodeExtraIndex
#endif
#if TP_PY313 /* exported as ever, no longer in the public headers */
extern PyObject *_PyList_Extend(PyListObject *, PyObject *);
extern int _PySet_Update(PyObject *, PyObject *);
extern int _PySet_NextEntry(PyObject *, Py_ssize_t *, PyObject **, Py_hash_t *);
extern int _PyDict_MergeEx(PyObject *, PyObject *, int);
extern PyObject *_PyErr_FormatFromCause(PyObject *, const char *, ...);
typedef struct {
    PyObject_HEAD PyDictObject *dv_dict;
} _PyDictViewObject;
#endif
/* The type of o.__len__ and the like of builtin types, which is not exported by all versions. */
static inline PyTypeObject *method_wrapper_type(void)
{
    static PyTypeObject *t;
    PyObject *m = t ? NULL : PyObject_GetAttrString(Py_None, "__bool__");
    t = m ? Py_TYPE(m) : t;
    Py_XDECREF(m);
    return t;
}
static inline int compare_arg(int arg) /* which comparison COMPARE_OP asks for */
{
    return arg >> (TP_PY313 ? 5 : TP_PY312 ? 4 : 0);
}
/* A type's own attributes, borrowed. From 3.12 on static types keep theirs elsewhere. */
static inline PyObject *type_dict(PyTypeObject *t)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *d = PyType_GetDict(t);
    Py_XDECREF(d); /* the type holds on to it */
    return d;
#else
    return t->tp_dict;
#endif
}

/* A tuple of a certain class, to be filled. New reference or NULL. From 3.14 on tuples remember their hash; -1: not known. */
static inline PyObject *tuple_alloc(PyTypeObject *type, Py_ssize_t n)
{
    PyObject *o = type->tp_alloc(type, n);
#if TP_PY314
    if (o)
        ((PyTupleObject *)o)->ob_hash = -1;
#endif
    return o;
}

/* An object that came back to life may be finalised again when it goes for good: clears the collector's mark, the lowest
 * bit of the second word of the head in front of it. */
static inline void gc_not_finalized(void *o)
{
    uintptr_t *head = (uintptr_t *)o - 2;
    head[1] &= ~(uintptr_t)1;
}

/* A class that Python code made. C code makes classes on the heap, too (all of itertools from 3.12 on), but those cannot
 * be changed. */
static inline int type_is_python(PyTypeObject *t)
{
    return (t->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

/* Depth of captured calls. From 3.12 on CPython's own counter allows far more C frames than a stack holds of ours,
 * so Python's recursion limit is counted here; before, it is the same counter as CPython's. */
#if PY_VERSION_HEX >= 0x030C0000
extern _Thread_local int recursion_depth;
static inline int recursion_enter(const char *where)
{
    if (recursion_depth < Py_GetRecursionLimit()) {
        recursion_depth++;
        return 0;
    }
    PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded%s", where);
    return -1;
}
static inline void recursion_leave(void) { recursion_depth--; }
#else
static inline int recursion_enter(const char *where) { return Py_EnterRecursiveCall(where); }
static inline void recursion_leave(void) { Py_LeaveRecursiveCall(); }
#endif
#endif
