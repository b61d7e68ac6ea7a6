/* cuda.c - taper.cuda: what the driver and the memory pool tell. */
#include "compile/eager.h"
#include "python/py.h"
#include "target/cuda/conv.h"
#include "target/cuda/driver.h"
#include "target/cuda/flash.h"

static PyObject *c_available(PyObject *m, PyObject *x) { return PyBool_FromLong(cuda_available()); }
static PyObject *c_why(PyObject *m, PyObject *x)
{
    tp_err err = { 0 };
    return cuda_init(&err) ? Py_NewRef(Py_None) : PyUnicode_FromString(err.msg);
}
static PyObject *c_count(PyObject *m, PyObject *x) { return PyLong_FromLong(cuda_device_count()); }
static PyObject *c_driver(PyObject *m, PyObject *x) { return PyLong_FromLong(cuda_driver_version()); }
static PyObject *c_current(PyObject *m, PyObject *x) { return PyLong_FromLong(cuda_current_device()); }

static bool take_device(PyObject *o, int *device)
{
    *device = (int)PyLong_AsLong(o);
    return !(*device == -1 && PyErr_Occurred());
}
static PyObject *done(bool ok, tp_err *err) { return ok ? Py_NewRef(Py_None) : py_raise(err); }

static PyObject *c_set(PyObject *m, PyObject *o)
{
    tp_err err = { 0 };
    int d;
    return take_device(o, &d) ? done(cuda_set_device(d, &err), &err) : NULL;
}
static PyObject *c_sync(PyObject *m, PyObject *o)
{
    tp_err err = { 0 };
    int d;
    bool ok;
    if (!take_device(o, &d))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    ok = cuda_sync(d, &err);
    Py_END_ALLOW_THREADS;
    return done(ok, &err);
}
static PyObject *c_empty(PyObject *m, PyObject *x)
{
    for (int i = 0; i < CUDA_MAX_DEVICES; i++)
        cuda_empty_cache(i);
    Py_RETURN_NONE;
}
static PyObject *c_reset_peaks(PyObject *m, PyObject *o)
{
    int d;
    if (!take_device(o, &d))
        return NULL;
    cuda_reset_peaks(d);
    Py_RETURN_NONE;
}
static PyObject *c_stats(PyObject *m, PyObject *o)
{
    cuda_pool_stats s;
    int d;
    if (!take_device(o, &d))
        return NULL;
    cuda_stats(d, &s);
    eager_stats e = eager_get_stats();
    int64_t made, run;
    cuda_recordings(&made, &run);
    return Py_BuildValue(
        "{s:n,s:n,s:n,s:n,s:n,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "allocated",
        (Py_ssize_t)s.allocated, "reserved", (Py_ssize_t)s.reserved, "allocated_peak",
        (Py_ssize_t)s.allocated_peak, "reserved_peak", (Py_ssize_t)s.reserved_peak, "inactive",
        (Py_ssize_t)s.inactive, "requests", (long long)s.nalloc, "frees", (long long)s.nfree, "segments",
        (long long)s.nsegment, "retries", (long long)s.nretry, "ooms", (long long)s.noom, "programs",
        (long long)e.programs, "calls", (long long)e.calls, "hosted", (long long)e.hosted, "own",
        (long long)e.own, "assembled", (long long)cuda_assembled(), "recorded", (long long)made, "replayed",
        (long long)run, "flashes", (long long)cuda_flashes(), "convolved", (long long)cuda_convolved(),
        "first", (long long)e.first, "taken_over", (long long)e.taken_over);
}
/* (folders of packages, with ':' between them) */
static PyObject *c_packages(PyObject *m, PyObject *s)
{
    const char *text = PyUnicode_AsUTF8(s);
    if (!text)
        return NULL;
    cuda_packages(text);
    Py_RETURN_NONE;
}
static PyObject *c_memory(PyObject *m, PyObject *o)
{
    size_t left, total;
    tp_err err = { 0 };
    int d;
    if (!take_device(o, &d))
        return NULL;
    return cuda_memory(d, &left, &total, &err) ? Py_BuildValue("(nn)", (Py_ssize_t)left, (Py_ssize_t)total)
                                               : py_raise(&err);
}
static PyObject *c_props(PyObject *m, PyObject *o)
{
    tp_err err = { 0 };
    int d;
    if (!take_device(o, &d))
        return NULL;
    const cuda_props *p = cuda_props_of(d, &err);
    if (!p)
        return py_raise(&err);
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:n}", "name", p->name, "major",
                         p->major, "minor", p->minor, "multi_processor_count", p->multiprocessors,
                         "max_threads_per_multi_processor", p->max_threads, "warp_size", p->warp,
                         "L2_cache_size", p->l2_bytes, "shared_memory_per_block_optin", p->shared_optin,
                         "pci_domain_id", p->pci_domain, "pci_bus_id", p->pci_bus, "pci_device_id",
                         p->pci_device, "total_memory", (Py_ssize_t)p->total_memory);
}

/* --- events and queues: addresses as numbers, classes around them in taper/cuda/__init__.py ----------------------- */
static PyObject *c_event_new(PyObject *m, PyObject *timing)
{
    tp_err err = { 0 };
    cuda_event e;
    return cuda_event_new(-1, PyObject_IsTrue(timing), &e, &err) ? PyLong_FromVoidPtr(e) : py_raise(&err);
}
static PyObject *c_event_free(PyObject *m, PyObject *e)
{
    cuda_event_free(-1, PyLong_AsVoidPtr(e));
    Py_RETURN_NONE;
}
static PyObject *c_event_record(PyObject *m, PyObject *args)
{
    tp_err err = { 0 };
    Py_ssize_t e, q;
    if (!PyArg_ParseTuple(args, "nn", &e, &q))
        return NULL;
    return done(cuda_event_record(-1, (cuda_event)e, (cuda_queue)q, &err), &err);
}
static PyObject *c_event_wait(PyObject *m, PyObject *e)
{
    tp_err err = { 0 };
    bool ok;
    cuda_event ev = PyLong_AsVoidPtr(e);
    Py_BEGIN_ALLOW_THREADS;
    ok = cuda_event_wait(-1, ev, &err);
    Py_END_ALLOW_THREADS;
    return done(ok, &err);
}
static PyObject *c_event_ms(PyObject *m, PyObject *args)
{
    tp_err err = { 0 };
    Py_ssize_t a, b;
    float ms;
    if (!PyArg_ParseTuple(args, "nn", &a, &b))
        return NULL;
    return cuda_event_ms(-1, (cuda_event)a, (cuda_event)b, &ms, &err) ? PyFloat_FromDouble((double)ms)
                                                                      : py_raise(&err);
}
static PyObject *c_queue_new(PyObject *m, PyObject *x)
{
    tp_err err = { 0 };
    cuda_queue q;
    return cuda_queue_new(-1, &q, &err) ? PyLong_FromVoidPtr(q) : py_raise(&err);
}
static PyObject *c_queue_free(PyObject *m, PyObject *q)
{
    cuda_queue_free(-1, PyLong_AsVoidPtr(q));
    Py_RETURN_NONE;
}
static PyObject *c_queue_current(PyObject *m, PyObject *x)
{
    return PyLong_FromVoidPtr(cuda_current_queue(-1));
}
static PyObject *c_queue_set(PyObject *m, PyObject *q)
{
    cuda_set_queue(cuda_current_device(), PyLong_AsVoidPtr(q));
    Py_RETURN_NONE;
}
static PyObject *c_queue_sync(PyObject *m, PyObject *q)
{
    tp_err err = { 0 };
    bool ok;
    cuda_queue at = PyLong_AsVoidPtr(q);
    Py_BEGIN_ALLOW_THREADS;
    ok = cuda_queue_sync(-1, at, &err);
    Py_END_ALLOW_THREADS;
    return done(ok, &err);
}
static PyObject *c_queue_wait(PyObject *m, PyObject *args)
{
    tp_err err = { 0 };
    Py_ssize_t q, e;
    if (!PyArg_ParseTuple(args, "nn", &q, &e))
        return NULL;
    return done(cuda_queue_wait(-1, (cuda_queue)q, (cuda_event)e, &err), &err);
}

static PyObject *c_event_done(PyObject *m, PyObject *e)
{
    tp_err err = { 0 };
    bool yes;
    return cuda_event_done(-1, PyLong_AsVoidPtr(e), &yes, &err) ? PyBool_FromLong(yes) : py_raise(&err);
}
static PyObject *c_queue_done(PyObject *m, PyObject *q)
{
    tp_err err = { 0 };
    bool yes;
    return cuda_queue_done(-1, PyLong_AsVoidPtr(q), &yes, &err) ? PyBool_FromLong(yes) : py_raise(&err);
}

/* --- recordings of launches --------------------------------------------------------------------------------------- */
static PyObject *c_recording(PyObject *m, PyObject *x) { return PyBool_FromLong(cuda_recording()); }
static PyObject *c_keep_queue(PyObject *m, PyObject *args) /* (queue, keep) */
{
    Py_ssize_t q;
    int keep;
    if (!PyArg_ParseTuple(args, "np", &q, &keep))
        return NULL;
    cuda_keep_queue(-1, (cuda_queue)q, keep);
    Py_RETURN_NONE;
}
static PyObject *c_record_begin(PyObject *m, PyObject *q)
{
    tp_err err = { 0 };
    return done(cuda_record_begin(-1, PyLong_AsVoidPtr(q), &err), &err);
}
static PyObject *c_record_end(PyObject *m, PyObject *q)
{
    tp_err err = { 0 };
    cuda_graph g;
    return cuda_record_end(-1, PyLong_AsVoidPtr(q), &g, &err) ? PyLong_FromVoidPtr(g) : py_raise(&err);
}
static PyObject *c_graph_launch(PyObject *m, PyObject *g)
{
    tp_err err = { 0 };
    return done(cuda_graph_launch(-1, PyLong_AsVoidPtr(g), cuda_current_queue(-1), &err), &err);
}
static PyObject *c_graph_free(PyObject *m, PyObject *g)
{
    cuda_graph_free(-1, PyLong_AsVoidPtr(g));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = { { "_cuda_is_available", c_available, METH_NOARGS, NULL },
                                   { "_cuda_why", c_why, METH_NOARGS, NULL },
                                   { "_cuda_device_count", c_count, METH_NOARGS, NULL },
                                   { "_cuda_driver_version", c_driver, METH_NOARGS, NULL },
                                   { "_cuda_current_device", c_current, METH_NOARGS, NULL },
                                   { "_cuda_set_device", c_set, METH_O, NULL },
                                   { "_cuda_synchronize", c_sync, METH_O, NULL },
                                   { "_cuda_empty_cache", c_empty, METH_NOARGS, NULL },
                                   { "_cuda_reset_peaks", c_reset_peaks, METH_O, NULL },
                                   { "_cuda_stats", c_stats, METH_O, NULL },
                                   { "_cuda_packages", c_packages, METH_O, NULL },
                                   { "_cuda_mem_get_info", c_memory, METH_O, NULL },
                                   { "_cuda_properties", c_props, METH_O, NULL },
                                   { "_cuda_event_new", c_event_new, METH_O, NULL },
                                   { "_cuda_event_free", c_event_free, METH_O, NULL },
                                   { "_cuda_event_record", c_event_record, METH_VARARGS, NULL },
                                   { "_cuda_event_wait", c_event_wait, METH_O, NULL },
                                   { "_cuda_event_ms", c_event_ms, METH_VARARGS, NULL },
                                   { "_cuda_queue_new", c_queue_new, METH_NOARGS, NULL },
                                   { "_cuda_queue_free", c_queue_free, METH_O, NULL },
                                   { "_cuda_queue_current", c_queue_current, METH_NOARGS, NULL },
                                   { "_cuda_queue_set", c_queue_set, METH_O, NULL },
                                   { "_cuda_queue_sync", c_queue_sync, METH_O, NULL },
                                   { "_cuda_queue_wait", c_queue_wait, METH_VARARGS, NULL },
                                   { "_cuda_event_done", c_event_done, METH_O, NULL },
                                   { "_cuda_queue_done", c_queue_done, METH_O, NULL },
                                   { "_cuda_recording", c_recording, METH_NOARGS, NULL },
                                   { "_cuda_keep_queue", c_keep_queue, METH_VARARGS, NULL },
                                   { "_cuda_record_begin", c_record_begin, METH_O, NULL },
                                   { "_cuda_record_end", c_record_end, METH_O, NULL },
                                   { "_cuda_graph_launch", c_graph_launch, METH_O, NULL },
                                   { "_cuda_graph_free", c_graph_free, METH_O, NULL },
                                   { NULL } };
int py_init_cuda(PyObject *m) { return PyModule_AddFunctions(m, functions); }
