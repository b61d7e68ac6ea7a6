/* py.h - the Python objects of taper._C and the conversions between them and the core.
 * Every function says whether it returns a new or a borrowed reference. */
#ifndef TAPER_PY_H
#define TAPER_PY_H
#include "python/compat.h"
#include "grad/grad.h"
#include "ops/random.h"

typedef struct PyTensor {
    PyObject_HEAD tp_tensor *t; /* one count */
    PyObject *dict;             /* user attributes, made on demand */
    PyObject *weakrefs;
    struct sym_env
        *env; /* fakes with symbolic sizes: held, for the user may keep them longer than the graph */
} PyTensor;
typedef struct PyDtype {
    PyObject_HEAD dtype dt;
    int8_t absent; /* not 0: a type that no tensor has, see types.c */
} PyDtype;
typedef struct PyDevice {
    PyObject_HEAD tp_device dev;
} PyDevice;
typedef struct PyEnumObj { /* memory formats and layouts */
    PyObject_HEAD int value;
    const char *name;
} PyEnumObj;
typedef struct PyRng {
    PyObject_HEAD tp_gen *g;
} PyRng;

extern PyTypeObject PyTensor_Type, PyDtype_Type, PyDevice_Type, PyMemfmt_Type, PyLayout_Type, PyRng_Type,
    PyOpFunc_Type, PyOpMethod_Type;
extern PyTypeObject *PySize_Type; /* subclass of tuple */
/* No class can be both a tensor and one of these: their objects are laid out differently. */
enum {
    PY_NO_TENSOR = Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS |
                   Py_TPFLAGS_BYTES_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS
};
static inline bool py_is_tensor(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == &PyTensor_Type || (!(t->tp_flags & PY_NO_TENSOR) && PyType_IsSubtype(t, &PyTensor_Type));
}
static inline tp_tensor *py_tensor(PyObject *o) { return ((PyTensor *)o)->t; } /* borrowed */

/* --- wrapping
 * ------------------------------------------------------------------------------------------------ */
PyObject *py_wrap(tp_tensor *t); /* steals t; new reference (the same object as before if alive) */
PyObject *py_wrap_as(PyTypeObject *type, tp_tensor *t); /* steals t; new object of a subtype */
PyObject *py_val(tp_val *v);                            /* steals v; new reference */
PyObject *py_val_tuple(tp_val *v, int n);               /* steals all of them */
/* What a graph takes: tensors (borrowed) and sizes. False with a TypeError that says which one is neither. */
bool py_graph_inputs(PyObject *const *args, Py_ssize_t n, tp_val *in);
PyObject *py_dtype(dtype dt);                    /* borrowed */
PyObject *py_device(tp_device d);                /* new */
PyObject *py_memfmt(memfmt f);                   /* borrowed */
PyObject *py_size(int ndim, const symint *size); /* new taper.Size */
PyObject *py_int(symint v);                      /* new int, or SymInt for expressions */
PyObject *py_rng(tp_gen *g);
PyObject *py_from_val(const tp_val *v); /* new; v stays */
PyObject *py_tensor_list(tp_tensor *const *ts, int n);
/* Notes below the exception that is set: the module it happened in, what to do next. */
void py_add_hints(void);
PyObject *py_raise(tp_err *e); /* always NULL; keeps an exception that is already set */
void py_forget(void);          /* as PyErr_Clear(), but what signal handlers raised is raised again later: */
void py_put_off(void);         /* takes the exception that is set, */
extern __thread PyObject *py_put_off_exc;     /* this one, the last */
bool py_raise_put_off(void);                  /* and sets it again; false: there is none */
extern _Thread_local unsigned long py_raised; /* how often an operator's failure became an exception */
extern __thread bool
    py_signaled; /* a stage stopped because a signal handler raised; set until somebody asks */

/* SymInt objects (python/symint.c). */
extern PyTypeObject PySymInt_Type;
PyObject *py_symint(symint v); /* new; v is an expression */
static inline bool py_is_symint(PyObject *o) { return Py_TYPE(o) == &PySymInt_Type; }
symint py_symint_value(PyObject *o);

/* --- calling operators from C
 * ------------------------------------------------------------------------------- */
/* One Python name: the rows behind it in the order they are tried. */
typedef struct op_name {
    const char *name;  /* "add", "add_" */
    const char *space; /* "" taper, "nn.functional", "linalg", "special" */
    op_variant variant;
    int nrow;
    uint16_t *row; /* op_id */
    PyObject *obj; /* the function or method of this name; NULL before it was asked for */
    struct op_name *next;
} op_name;
/* Vectorcall of a name; method: the first argument is self and is not nameable. New reference. */
PyObject *py_op_call(const op_name *n, bool method, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames);
const op_name *py_op_name(const char *name, const char *space); /* or NULL */
/* Convenience: taper.<name>(*args). New reference. */
PyObject *py_op(const char *name, PyObject *const *args, Py_ssize_t nargs);

/* One row by its full name from C, through the tape and the recorder. Trailing defaults are filled in. */
typedef struct py_row_ref {
    const char *full; /* "select.int", "index_put_" */
    op_id op;
    op_variant variant;
    bool found;
} py_row_ref;
#define PY_ROW(name)   \
    {                  \
        .full = (name) \
    }
bool py_row(py_row_ref *r, const tp_val *arg, int narg, tp_val *out, tp_err *err);
tp_tensor *py_row_t(py_row_ref *r, const tp_val *arg, int narg, tp_err *err); /* the one tensor; new count */

/* Hand-written functions: positional and keyword arguments into out[nname] (NULL where absent), with
 * PyTorch's texts for what does not fit. The first npos may be positional, the first nreq must be there. */
bool py_take(const char *fn, const char *const *names, int nname, int npos, int nreq, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames, PyObject **out);
bool py_take_bool(const char *fn, const char *name, PyObject *o, bool *out); /* NULL and None leave *out */

/* New tensor with the contents of a Python number, nested sequence, NumPy array or tensor; dt may be DT_none.
 * NULL with an exception set. */
tp_tensor *py_tensor_of(PyObject *data, int dt);
tp_tensor *py_tensor_of_array(PyObject *array, bool share); /* anything with the buffer protocol */
tp_tensor *py_tensor_of_cuda_array(PyObject *o);            /* shares what __cuda_array_interface__ names */
extern const char *py_prefix;                               /* "taper", or "torch" under the alias */

/* --- argument conversion: false means not this type (no exception set unless *hard)
 * -------------------------- */
PyObject *py_storage_tensor(PyObject *o, dtype dt); /* new; NULL without an exception: no storage */
bool py_to_dtype(PyObject *o, dtype *dt);
bool py_absent_dtype(PyObject *o, tp_err *err); /* true with an error: a type that no tensor has */
bool py_to_device(PyObject *o, tp_device *d, tp_err *err);
bool py_to_symint(PyObject *o, symint *v); /* int, numpy int, SymInt; not bool */

/* --- registration
 * ----------------------------------------------------------------------------------------------- */
/* Parts of the module register in python/parts.def. */

/* Adds methods/getsets to Tensor before or after it is readied (files own their tables). */
int py_tensor_add_methods(PyMethodDef *defs);
int py_tensor_add_getset(PyGetSetDef *defs);
/* Slots of Tensor that have files of their own. */
PyObject *py_tensor_pynew(PyTypeObject *type, PyObject *args, PyObject *kw); /* convert.c */
int py_tensor_pyinit(PyObject *o, PyObject *args, PyObject *kw);
PyObject *py_tensor_repr(PyObject *o);                     /* repr.c */
PyObject *py_tensor_getitem(PyObject *o, PyObject *index); /* index.c */
int py_tensor_setitem(PyObject *o, PyObject *index, PyObject *value);
PyObject *py_tensor_iter(PyObject *o);
int py_tensor_contains(PyObject *o, PyObject *item);
int py_tensor_getbuffer(PyObject *o, Py_buffer *view, int flags); /* exchange.c */
void py_tensor_releasebuffer(PyObject *o, Py_buffer *view);
bool py_batch_rows(PyObject *rows); /* appends what vmap ran once for each element, as lines of the ledger */
extern PyObject *py_fake_error;     /* class: the data of a fake tensor was asked for (a RuntimeError) */
extern PyObject *py_module;         /* taper._C, borrowed */

/* The thread's operator context; a fresh thread starts from the process defaults. */
#define CX op_ctx_cur()

/* --- nnmodule.c: dictionaries of nn.Module ---------------------------------------------------------------- */
enum { PY_MODULE_HOOKS = 4, PY_MODULE_PARTS = 3 };
PyObject *py_module_name(bool hooks, int i); /* of one of them; borrowed */
PyObject *py_module_dict(PyObject *module, bool hooks,
                         int i); /* borrowed; NULL: not there, or no plain one */
PyObject *py_module_missing(PyObject *module, PyObject *name); /* NULL, with the AttributeError set */

/* --- what the binding asks of capture, which fills it in before the first call (capture/compile.c) ------ */
typedef struct py_capture {
    bool (*tracing)(void);
    bool (*keeps_relations)(void); /* does a comparison of sizes stay a question? */
    PyObject *(*size_arith)(char op, PyObject *a, PyObject *b); /* + - * / p(ower) */
    int (*brand_changed)(bool torch);                           /* settings come from TORCH_* too */
    void (*note_saved)(void); /* the exception that is set says where its failure was saved, if it was */
    PyObject *(*traced_calls)(
        void); /* those without frames of Python: new list of (code, first argument or None), the innermost first */
} py_capture;
extern py_capture py_asks;
#endif
