/* comm.c - taper.distributed's view of src/comm/: one job a process, groups as numbers, works as objects. */
#include "comm/comm.h"
#include "python/py.h"

static comm_job *job;
static PyObject *error_class; /* taper.distributed.DistBackendError */
static char *package;         /* files of the package are not the user's */

typedef struct PyWork {
    PyObject_HEAD comm_work *w;
    tp_tensor *in, *out; /* one count each: the buffers */
    bool failed;
} PyWork;

static PyObject *raise_error(tp_err *err)
{
    const char *text = job ? comm_abort_text(job) : NULL;
    if (!text || !error_class || PyErr_Occurred())
        return py_raise(err);
    comm_acknowledge(job);
    PyErr_SetString(error_class, text);
    return NULL;
}
static bool no_job(void)
{
    if (!job)
        PyErr_SetString(PyExc_ValueError,
                        "Default process group has not been initialized, please make sure to call "
                        "init_process_group.");
    return !job;
}

/* --- the user's line ------------------------------------------------------------------------------------ */
static bool is_ours(const char *file)
{
    return (package && strncmp(file, package, strlen(package)) == 0) || file[0] == '<';
}
static void find_where(char *out)
{
    PyFrameObject *f = PyEval_GetFrame();
    Py_XINCREF(f);
    while (f) {
        PyCodeObject *code = PyFrame_GetCode(f);
        const char *file = PyUnicode_AsUTF8(code->co_filename), *name = PyUnicode_AsUTF8(code->co_name);
        bool found = file && name && !is_ours(file);
        if (found) {
            size_t n = strlen(file), room = COMM_WHERE - 50;
            snprintf(out, COMM_WHERE, "%s:%d in %.30s", n > room ? file + n - room : file,
                     PyFrame_GetLineNumber(f), name);
        }
        PyErr_Clear();
        Py_DECREF(code);
        PyFrameObject *back = found ? NULL : PyFrame_GetBack(f);
        Py_DECREF(f);
        f = back;
    }
}

/* --- works ---------------------------------------------------------------------------------------------- */
static bool wait_for(comm_work *w, int64_t ms, bool *done, tp_err *err)
{
    bool ok = comm_test(w, done, err); /* what is done needs no other thread */
    for (int64_t waited = 0; ok && !*done && (ms < 0 || waited < ms); waited += 100) {
        Py_BEGIN_ALLOW_THREADS;
        ok = comm_wait(w, ms < 0 ? 100 : MIN(100, ms - waited), done, err);
        Py_END_ALLOW_THREADS;
        if (ok && !*done && PyErr_CheckSignals() < 0) {
            err_set(err, ERR_python, "interrupted");
            return false;
        }
    }
    return ok;
}
static PyObject *work_wait(PyObject *o, PyObject *args)
{
    PyWork *p = (PyWork *)o;
    tp_err err = { 0 };
    long long ms = -1;
    bool done;
    if (!PyArg_ParseTuple(args, "|L:wait", &ms))
        return NULL;
    if (!wait_for(p->w, ms, &done, &err)) {
        p->failed = true;
        return raise_error(&err);
    }
    return PyBool_FromLong(done);
}
static PyObject *work_test(PyObject *o, PyObject *unused)
{
    PyWork *p = (PyWork *)o;
    tp_err err = { 0 };
    bool done;
    if (comm_test(p->w, &done, &err))
        return PyBool_FromLong(done);
    p->failed = true;
    return raise_error(&err);
}
static PyObject *work_source(PyObject *o, PyObject *unused)
{
    return PyLong_FromLong(comm_work_source(((PyWork *)o)->w));
}
static void work_dealloc(PyObject *o)
{
    PyWork *p = (PyWork *)o;
    bool stuck = false;
    if (p->w && job) {
        Py_BEGIN_ALLOW_THREADS;
        stuck = comm_abort_text(job) != NULL;
        comm_work_free(p->w);
        Py_END_ALLOW_THREADS;
    }
    if (!stuck) { /* after an abort the back end may still write there */
        tensor_unref(p->in);
        tensor_unref(p->out);
    }
    PyObject_Free(o);
}
static PyMethodDef work_methods[] = {
    { "wait", work_wait, METH_VARARGS, "wait(ms=-1) -> bool: is it done" },
    { "test", work_test, METH_NOARGS, "test() -> bool: is it done" },
    { "source", work_source, METH_NOARGS, "source() -> int: the rank a message came from" },
    { NULL },
};
static PyTypeObject PyWork_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C._CommWork",
                                    .tp_basicsize = sizeof(PyWork),
                                    .tp_flags = Py_TPFLAGS_DEFAULT,
                                    .tp_dealloc = work_dealloc,
                                    .tp_methods = work_methods,
                                    .tp_doc = "A call of several processes that was started." };

/* --- calls ---------------------------------------------------------------------------------------------- */
static bool take_tensor(PyObject *o, tp_tensor **t)
{
    *t = NULL;
    if (o == Py_None)
        return true;
    if (!py_is_tensor(o)) {
        PyErr_Format(PyExc_TypeError, "expected a tensor, but got %.80s", Py_TYPE(o)->tp_name);
        return false;
    }
    *t = py_tensor(o);
    if (tensor_is_fake(*t)) {
        PyErr_SetString(PyExc_RuntimeError, "collectives need tensors with values");
        return false;
    }
    if (!tensor_is_contiguous(*t)) {
        PyErr_SetString(PyExc_ValueError, "Tensors must be contiguous");
        return false;
    }
    return true;
}
static bool take_counts(PyObject *o, int n, int64_t *out, int64_t *sum)
{
    if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) != n) {
        PyErr_Format(PyExc_ValueError, "Number of tensor splits not equal to group size (%d)", n);
        return false;
    }
    *sum = 0;
    for (int i = 0; i < n; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(o, i));
        if (out[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a split cannot be negative");
            return false;
        }
        *sum += out[i];
    }
    return true;
}
static bool sizes_fit(comm_call *c, const tp_tensor *in, const tp_tensor *out, const comm_group *g,
                      tp_err *err)
{
    int64_t ni = in ? in->numel : -1, no = out ? out->numel : -1, p = comm_group_size(g);
    bool root = comm_group_rank(g) == c->root;
    switch (c->kind) {
    case COMM_scatter:
    case COMM_reduce_scatter: c->n = no; break;
    case COMM_all_to_all: c->n = c->in_count ? 0 : ni / p; break;
    case COMM_recv: c->n = no; break;
    case COMM_barrier: c->n = 0; break;
    default: c->n = ni;
    }
    bool gathers = c->kind == COMM_all_gather || (c->kind == COMM_gather && root);
    bool spreads = c->kind == COMM_reduce_scatter || (c->kind == COMM_scatter && root);
    if (c->n < 0 || (gathers && no != p * c->n) || (spreads && ni != p * c->n) ||
        (c->kind == COMM_all_to_all && !c->in_count && (ni % p || ni != no)))
        return err_set(
            err, ERR_value,
            "%s in a group of %d ranks: the input has %lld elements and the output %lld, which does not fit",
            comm_kind_name(c->kind), (int)p, (long long)ni, (long long)no);
    if (in && out && in->dt != out->dt)
        return err_set(err, ERR_value, "%s: the input is %s and the output %s", comm_kind_name(c->kind),
                       dtype_name(in->dt), dtype_name(out->dt));
    return true;
}

/* _comm_start(group, kind, in, out, op, root, tag, in_counts, out_counts, background) -> work, or the rank a message came from
 */
static PyObject *c_start(PyObject *m, PyObject *args)
{
    Py_ssize_t group;
    int kind, op, root, tag, background;
    PyObject *pin, *pout, *pic, *poc;
    comm_call c = { 0 };
    tp_err err = { 0 };
    tp_tensor *in, *out;
    int64_t *counts = NULL, si, so;
    bool done;
    if (no_job() || !PyArg_ParseTuple(args, "niOOiiiOOp", &group, &kind, &pin, &pout, &op, &root, &tag, &pic,
                                      &poc, &background))
        return NULL;
    comm_group *g = (comm_group *)group;
    if (kind < 0 || kind >= COMM_KINDS || op < 0 || op >= CRED_COUNT || !take_tensor(pin, &in) ||
        !take_tensor(pout, &out))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no such collective or operation");
    c.kind = (comm_kind)kind;
    c.op = (comm_red)op;
    c.root = root;
    c.tag = tag;
    c.dt = in ? tensor_dtype(in) : out ? tensor_dtype(out) : DT_u8;
    c.on = in ? tensor_device(in) : out ? tensor_device(out) : comm_group_device(g);
    if (in && out && !device_eq(c.on, tensor_device(out)))
        return PyErr_Format(PyExc_RuntimeError, "the tensors of a collective are on one device");
    c.in = in ? tensor_data(in) : NULL;
    c.out = out ? tensor_data(out) : NULL;
    if (pic != Py_None) {
        int n = comm_group_size(g);
        counts = mem_alloc(2 * (size_t)n * sizeof *counts);
        if (!take_counts(pic, n, counts, &si) || !take_counts(poc, n, counts + n, &so))
            goto fail;
        if (si != in->numel || so != out->numel) {
            PyErr_SetString(PyExc_ValueError, "Split sizes doesn't match total dim 0 size");
            goto fail;
        }
        c.in_count = counts;
        c.out_count = counts + n;
    }
    if (!sizes_fit(&c, in, out, g, &err)) {
        py_raise(&err);
        goto fail;
    }
    find_where(c.where);
    comm_work *w = comm_start(g, &c, background, &err);
    free(counts);
    if (!w)
        return raise_error(&err);
    if (out)
        tensor_bump(out);
    PyWork *p = PyObject_New(PyWork, &PyWork_Type);
    if (!p)
        return NULL;
    p->w = w;
    p->in = in ? tensor_ref(in) : NULL;
    p->out = out ? tensor_ref(out) : NULL;
    p->failed = false;
    if (background)
        return (PyObject *)p;
    bool ok = wait_for(w, -1, &done, &err);
    PyObject *r = ok ? PyLong_FromLong(comm_work_source(w)) : raise_error(&err);
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb); /* the end of the work must not see the exception */
    Py_DECREF(p);
    PyErr_Restore(t, v, tb);
    return r;
fail:
    free(counts);
    return NULL;
}

/* --- the job -------------------------------------------------------------------------------------------- */
static PyObject *c_open(PyObject *m, PyObject *args)
{
    comm_spec s = { 0 };
    tp_err err = { 0 };
    long long timeout;
    if (!PyArg_ParseTuple(args, "szziiL", &s.backend, &s.key, &s.shim, &s.rank, &s.size, &timeout))
        return NULL;
    if (job)
        return PyErr_Format(PyExc_ValueError, "trying to initialize the default process group twice!");
    s.timeout_ms = timeout;
    comm_job *j;
    Py_BEGIN_ALLOW_THREADS;
    j = comm_open(&s, &err);
    Py_END_ALLOW_THREADS;
    if (!j)
        return py_raise(&err);
    job = j;
    return Py_BuildValue("(ii)", comm_rank(j), comm_size(j));
}
static PyObject *c_close(PyObject *m, PyObject *unused)
{
    comm_job *j = job;
    if (j) {
        job = NULL; /* works that are freed later belong to no job */
        Py_BEGIN_ALLOW_THREADS;
        comm_close(j);
        Py_END_ALLOW_THREADS;
    }
    Py_RETURN_NONE;
}
static PyObject *c_group(PyObject *m, PyObject *ranks)
{
    tp_err err = { 0 };
    int at[4096], n = PyTuple_Check(ranks) ? (int)PyTuple_GET_SIZE(ranks) : 0;
    if (no_job())
        return NULL;
    if (n < 1 || n > (int)COUNT(at))
        return PyErr_Format(PyExc_ValueError, "a group has 1 to %d ranks", (int)COUNT(at));
    for (int i = 0; i < n; i++)
        if ((at[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(ranks, i))) < 0 || at[i] >= comm_size(job))
            return PyErr_Occurred() ? NULL
                                    : PyErr_Format(PyExc_ValueError,
                                                   "the new group's rank should be within the world_size");
    comm_group *g;
    Py_BEGIN_ALLOW_THREADS;
    g = comm_group_new(job, at, n, &err);
    Py_END_ALLOW_THREADS;
    return g ? PyLong_FromVoidPtr(g) : raise_error(&err);
}
static PyObject *c_group_on(PyObject *m, PyObject *args)
{
    tp_err err = { 0 };
    Py_ssize_t group, nid;
    int index;
    const char *id;
    bool ok;
    if (no_job() || !PyArg_ParseTuple(args, "niy#", &group, &index, &id, &nid))
        return NULL;
    if (nid != COMM_NCCL_ID)
        return PyErr_Format(PyExc_ValueError, "an id of NCCL has %d bytes", (int)COMM_NCCL_ID);
    Py_BEGIN_ALLOW_THREADS;
    ok = comm_group_on((comm_group *)group, (tp_device){ DEV_cuda, (int8_t)index }, id, &err);
    Py_END_ALLOW_THREADS;
    return ok ? Py_NewRef(Py_None) : raise_error(&err);
}
static PyObject *c_nccl_id(PyObject *m, PyObject *folder)
{
    tp_err err = { 0 };
    char id[COMM_NCCL_ID];
    const char *at = folder == Py_None ? NULL : PyUnicode_AsUTF8(folder);
    if (PyErr_Occurred())
        return NULL;
    return comm_nccl_id(at, id, &err) ? PyBytes_FromStringAndSize(id, sizeof id) : py_raise(&err);
}
static PyObject *c_nccl_version(PyObject *m, PyObject *folder)
{
    tp_err err = { 0 };
    int version;
    const char *at = folder == Py_None ? NULL : PyUnicode_AsUTF8(folder);
    if (PyErr_Occurred())
        return NULL;
    return comm_nccl_version(at, &version, &err) ? PyLong_FromLong(version) : py_raise(&err);
}
static PyObject *c_hold(PyObject *m, PyObject *on)
{
    if (no_job())
        return NULL;
    comm_hold(job, on == Py_True);
    Py_RETURN_NONE;
}
static PyObject *c_listen(PyObject *m, PyObject *unused)
{
    comm_job *j = job;
    int what = 0;
    if (j) {
        Py_BEGIN_ALLOW_THREADS;
        what = comm_listen(j);
        Py_END_ALLOW_THREADS;
    }
    return PyLong_FromLong(what);
}
static PyObject *with_text(PyObject *text, void (*f)(comm_job *, const char *))
{
    const char *s = PyUnicode_AsUTF8(text);
    if (!s)
        return NULL;
    if (job)
        f(job, s);
    Py_RETURN_NONE;
}
static PyObject *c_stack(PyObject *m, PyObject *text) { return with_text(text, comm_stack); }
static PyObject *c_abort(PyObject *m, PyObject *text) { return with_text(text, comm_abort); }
static PyObject *c_note(PyObject *m, PyObject *text) { return with_text(text, comm_note); }
static PyObject *c_abort_text(PyObject *m, PyObject *unused)
{
    const char *s = job ? comm_abort_text(job) : NULL;
    return s ? PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace") : Py_NewRef(Py_None);
}
static PyObject *c_acknowledged(PyObject *m, PyObject *unused)
{
    comm_job *j = job;
    Py_BEGIN_ALLOW_THREADS;
    if (j)
        comm_wait_acknowledged(j);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
static PyObject *c_status(PyObject *m, PyObject *unused)
{
    strbuf b = { 0 };
    if (job)
        comm_status(job, &b);
    PyObject *o = PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace");
    strbuf_free(&b);
    return o;
}
static PyObject *c_setup(PyObject *m, PyObject *args)
{
    PyObject *cls;
    const char *dir;
    if (!PyArg_ParseTuple(args, "Os", &cls, &dir))
        return NULL;
    Py_XSETREF(error_class, Py_NewRef(cls));
    free(package);
    package = mem_strdup(dir);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_comm_setup", c_setup, METH_VARARGS, "_comm_setup(exception class, folder of the package)" },
    { "_comm_open", c_open, METH_VARARGS,
      "_comm_open(backend, key, shim, rank, size, timeout_ms) -> (rank, size)" },
    { "_comm_close", c_close, METH_NOARGS, "leaves the job" },
    { "_comm_group", c_group, METH_O, "_comm_group(ranks) -> number of a new group" },
    { "_comm_group_on", c_group_on, METH_VARARGS,
      "_comm_group_on(group, index, id): all ranks join NCCL on a CUDA device" },
    { "_comm_nccl_id", c_nccl_id, METH_O,
      "_comm_nccl_id(folder of the library or None) -> bytes, of one rank for all" },
    { "_comm_nccl_version", c_nccl_version, METH_O,
      "_comm_nccl_version(folder of the library or None) -> its number" },
    { "_comm_hold", c_hold, METH_O, "_comm_hold(bool): sends and receives are collected" },
    { "_comm_start", c_start, METH_VARARGS, "starts a call; waits for it unless it is for the background" },
    { "_comm_listen", c_listen, METH_NOARGS, "blocks; 1: a stack is wanted, 2: end the process, 0: closed" },
    { "_comm_stack", c_stack, METH_O, "_comm_stack(text): where this rank is" },
    { "_comm_abort", c_abort, METH_O, "_comm_abort(text): ends the job on every rank" },
    { "_comm_note", c_note, METH_O, "_comm_note(text): why this rank is about to end" },
    { "_comm_abort_text", c_abort_text, METH_NOARGS, "why the job was aborted, or None" },
    { "_comm_acknowledged", c_acknowledged, METH_NOARGS, "waits until every rank has shown the abort" },
    { "_comm_status", c_status, METH_NOARGS, "where each rank stands, a line each" },
    { NULL },
};

int py_init_comm(PyObject *m)
{
    if (PyType_Ready(&PyWork_Type) < 0)
        return -1;
    PyObject *kinds = PyList_New(0), *ops = PyList_New(0);
    for (int i = 0; i < COMM_KINDS; i++) {
        PyObject *s = PyUnicode_FromString(comm_kind_name((comm_kind)i));
        PyList_Append(kinds, s);
        Py_DECREF(s);
    }
    for (int i = 0; i < CRED_COUNT; i++) {
        PyObject *s = PyUnicode_FromString(comm_red_names[i]);
        PyList_Append(ops, s);
        Py_DECREF(s);
    }
    if (PyModule_AddObject(m, "_comm_kinds", kinds) < 0 || PyModule_AddObject(m, "_comm_reductions", ops) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
