/* hook.c - frames that C code starts (callbacks, constructors, `with optimize(...)`) are captured, too.
 * The PEP 523 hook is installed only while a native step of a captured function runs, or inside an
 * optimize() context; otherwise CPython runs at its own speed. */
#define Py_BUILD_CORE 1
#include "capture/capture.h"
#undef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#if TP_PY314 /* where frames are from here on; their values carry a mark */
#include <internal/pycore_interpframe.h>
#endif

static __thread cap_cfg *active; /* how frames are captured now; NULL: not at all */
static int installed;            /* threads and nestings that need the hook */

#if TP_PY314
#define FRAME_CODE(f) ((PyCodeObject *)PyStackRef_AsPyObjectBorrow((f)->f_executable))
#elif TP_PY313
#define FRAME_CODE(f) ((PyCodeObject *)(f)->f_executable)
#else
#define FRAME_CODE(f) ((f)->f_code)
#endif
#if TP_PY314
#define FRAME_FUNC(f) PyStackRef_AsPyObjectBorrow((f)->f_funcobj)
#elif TP_PY312
#define FRAME_FUNC(f) ((f)->f_funcobj)
#else
#define FRAME_FUNC(f) ((PyObject *)(f)->f_func)
#endif

/* From 3.12 on whoever evaluates a frame also ends it, and the function that does so is not exported: a frame that
 * was run here is thrown into instead, which unwinds it at once; what it raises is dropped. */
static void end_frame(PyThreadState *ts, struct _PyInterpreterFrame *f)
{
#if TP_PY312
    PyObject *exc = PyErr_GetRaisedException(), *r;
    PyErr_SetNone(PyExc_StopIteration);
    r = _PyEval_EvalFrameDefault(ts, f, 1);
    Py_XDECREF(r);
    py_forget();
    if (exc)
        PyErr_SetRaisedException(exc);
#endif
}

static PyObject *eval(PyThreadState *ts, struct _PyInterpreterFrame *f, int throwing)
{
    cap_cfg *cfg = active;
    PyObject *func = FRAME_FUNC(f);
    if (!cfg || throwing || cap_here()->tracing || cap_is_disabled() || !func || !PyFunction_Check(func) ||
        !cap_wants(func) || cap_debugged(func))
        return _PyEval_EvalFrameDefault(ts, f, throwing);
    cap_code *cc = cap_code_of(FRAME_CODE(f));
    if (!cc) {
        end_frame(ts, f);
        return NULL;
    }
    if (cc->library)
        return _PyEval_EvalFrameDefault(ts, f, throwing);
    PyCodeObject *co = FRAME_CODE(f);
    int n = co->co_argcount + co->co_kwonlyargcount + !!(co->co_flags & CO_VARARGS) +
            !!(co->co_flags & CO_VARKEYWORDS);
#if TP_PY314
    PyObject **args = mem_zalloc(sizeof *args * (size_t)(n + 1)); /* borrowed from the frame */
    for (int i = 0; i < n; i++)
        args[i] = PyStackRef_AsPyObjectBorrow(f->localsplus[i]);
    PyObject *res = cap_run_bound(cfg, func, args, n);
    free(args);
#else
    PyObject *res = cap_run_bound(cfg, func, f->localsplus, n);
#endif
    end_frame(ts, f);
    return res;
}

/* Frames are captured with cfg until the matching hook_pop. Returns what was active before. */
cap_cfg *hook_push(cap_cfg *cfg)
{
    cap_cfg *was = active;
    active = cfg;
    if (cfg && installed++ == 0)
        _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), eval);
    return was;
}
void hook_pop(cap_cfg *cfg, cap_cfg *was)
{
    active = was;
    if (cfg && --installed == 0)
        _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
}

/* _capture_hook(compiled): frames started from now on are captured as compiled says; None: no longer. */
static PyObject *set_hook(PyObject *m, PyObject *o)
{
    static VEC(PyObject *) stack;
    if (o == Py_None) {
        if (stack.n) {
            PyObject *last = vec_pop(&stack);
            hook_pop(compiled_cfg(last), stack.n ? compiled_cfg(vec_last(&stack)) : NULL);
            Py_DECREF(last);
        }
        Py_RETURN_NONE;
    }
    if (!compiled_cfg(o))
        return PyErr_Format(PyExc_TypeError, "_capture_hook() takes a compiled function or None");
    vec_push(&stack, Py_NewRef(o));
    hook_push(compiled_cfg(o));
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {
    { "_capture_hook", set_hook, METH_O, "capture the frames that are started" }, { NULL }
};
int py_init_hook(PyObject *m) { return PyModule_AddFunctions(m, functions); }
