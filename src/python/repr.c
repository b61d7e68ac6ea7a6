/* repr.c - how a tensor prints: PyTorch's rules for precision, scientific notation, summarising and suffixes.
 */
#include "python/py.h"
#include <math.h>
#include <stdio.h>

static struct {
    int precision, edgeitems, linewidth;
    double threshold; /* elements above which a tensor is summarised; may be inf */
    int sci;          /* 0 no, 1 yes, -1 by the values */
} opts = { 4, 3, 80, 1000, -1 };

typedef struct format { /* how the elements of one tensor print */
    bool is_float, int_mode, sci;
    int width;
    bool is_complex;
    bool im_int_mode, im_sci; /* of the imaginary parts */
    int im_width;
} format;

static int elem_text(const format *f, dtype dt, const void *p, char *buf, size_t cap)
{
    if (dt == DT_bool)
        return snprintf(buf, cap, "%s", elem_get_i(dt, p) ? "True" : "False");
    if (!f->is_float)
        return snprintf(buf, cap, "%lld", (long long)elem_get_i(dt, p));
    double v = elem_get_f(dt, p);
    if (isnan(v))
        return snprintf(buf, cap, "nan");
    if (isinf(v))
        return snprintf(buf, cap, v < 0 ? "-inf" : "inf");
    if (f->sci)
        return snprintf(buf, cap, "%.*e", opts.precision, v);
    if (f->int_mode)
        return snprintf(buf, cap, "%.0f.", v);
    return snprintf(buf, cap, "%.*f", opts.precision, v);
}

/* Visits the elements that will be printed: all, or the edges of every dimension. */
typedef void visit_fn(void *ctx, dtype dt, const void *p);
static void visit(const tp_tensor *t, int d, const char *p, bool summarize, visit_fn *fn, void *ctx)
{
    dtype dt = (dtype)t->dt;
    if (d == t->ndim) {
        fn(ctx, dt, p);
        return;
    }
    bool cut = summarize && t->size[d] > 2 * opts.edgeitems;
    for (int64_t i = 0; i < t->size[d]; i++) {
        if (cut && i == opts.edgeitems)
            i = t->size[d] - opts.edgeitems;
        if (i < t->size[d])
            visit(t, d + 1, p + i * t->stride[d] * (int64_t)dtype_size(dt), summarize, fn, ctx);
    }
}

typedef struct scan {
    double min, max;
    bool any, integral;
    format *f;
    int part; /* of complex numbers: 0 real, 1 imaginary */
} scan;
/* The real number at p that the scan looks at. */
static const void *part_of(const scan *s, dtype *dt, const void *p)
{
    if (!dtype_is_complex(*dt))
        return p;
    *dt = dtype_real_of(*dt);
    return (const char *)p + (size_t)s->part * dtype_size(*dt);
}
static void scan_range(void *ctx, dtype dt, const void *p)
{
    scan *s = ctx;
    p = part_of(s, &dt, p);
    double v = elem_get_f(dt, p), a = fabs(v);
    if (!isfinite(v) || v == 0)
        return;
    s->min = s->any ? fmin(s->min, a) : a;
    s->max = s->any ? fmax(s->max, a) : a;
    s->any = true;
    s->integral &= v == ceil(v);
}
static void scan_width(void *ctx, dtype dt, const void *p)
{
    scan *s = ctx;
    char buf[512];
    p = part_of(s, &dt, p);
    if (s->f->is_float) {
        double v = elem_get_f(dt, p);
        if (!isfinite(v) || v == 0)
            return;
    }
    int n = elem_text(s->f, dt, p, buf, sizeof buf);
    s->f->width = MAX(s->f->width, n);
}

static format part_format(const tp_tensor *t, bool summarize, int part)
{
    format f = { .is_float = !dtype_is_exact((dtype)t->dt), .int_mode = true, .width = 1 };
    scan s = { .integral = true, .f = &f, .part = part };
    const char *p = tensor_host(t);
    if (f.is_float) {
        visit(t, 0, p, summarize, scan_range, &s);
        if (s.any) {
            f.int_mode = s.integral;
            f.sci = opts.sci >= 0 ? opts.sci
                                  : s.max / s.min > 1000. || s.max > 1e8 || (!s.integral && s.min < 1e-4);
        }
    }
    visit(t, 0, p, summarize, scan_width, &s);
    return f;
}

static format format_of(const tp_tensor *t, bool summarize)
{
    format f = part_format(t, summarize, 0);
    if (dtype_is_complex((dtype)t->dt)) {
        format im = part_format(t, summarize, 1);
        f.is_complex = true;
        f.im_int_mode = im.int_mode;
        f.im_sci = im.sci;
        f.im_width = im.width;
    }
    return f;
}

static void pad(strbuf *b, int n)
{
    while (n-- > 0)
        strbuf_addc(b, ' ');
}

static void add_elem(strbuf *b, const format *f, dtype dt, const void *p)
{
    char buf[512];
    dtype real = dtype_real_of(dt);
    int n = elem_text(f, real, p, buf, sizeof buf);
    pad(b, f->width - n);
    strbuf_add(b, buf);
    if (!f->is_complex)
        return;
    format im = { .is_float = true, .int_mode = f->im_int_mode, .sci = f->im_sci };
    elem_text(&im, real, (const char *)p + dtype_size(real), buf, sizeof buf);
    if (*buf != '-')
        strbuf_addc(b, '+');
    strbuf_add(b, buf);
    strbuf_addc(b, 'j');
}

static void add_vector(strbuf *b, const format *f, const tp_tensor *t, int d, const char *p, int indent,
                       bool summarize)
{
    int64_t n = t->size[d], step = t->stride[d] * (int64_t)dtype_size((dtype)t->dt);
    int width = f->width + 2 + (f->is_complex ? f->im_width + 1 : 0);
    int per_line = MAX(1, (opts.linewidth - indent) / width), k = 0;
    bool cut = summarize && n > 2 * opts.edgeitems;
    strbuf_addc(b, '[');
    for (int64_t i = 0; i < n || (cut && i == n && !opts.edgeitems && k == 0); i++, k++) {
        if (k) {
            strbuf_add(b, k % per_line ? ", " : ",\n");
            if (k % per_line == 0)
                pad(b, indent + 1);
        }
        if (cut && i == opts.edgeitems) {
            strbuf_add(b, opts.edgeitems ? " ..." : "...");
            i = n - opts.edgeitems - 1;
            if (!opts.edgeitems)
                break;
            continue;
        }
        add_elem(b, f, (dtype)t->dt, p + i * step);
    }
    strbuf_addc(b, ']');
}

static void add_tensor(strbuf *b, const format *f, const tp_tensor *t, int d, const char *p, int indent,
                       bool summarize)
{
    if (d == t->ndim) {
        add_elem(b, f, (dtype)t->dt, p);
        return;
    }
    if (d == t->ndim - 1) {
        add_vector(b, f, t, d, p, indent, summarize);
        return;
    }
    int64_t n = t->size[d], step = t->stride[d] * (int64_t)dtype_size((dtype)t->dt);
    bool cut = summarize && n > 2 * opts.edgeitems;
    strbuf_addc(b, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i) {
            strbuf_addc(b, ',');
            for (int k = 0; k < t->ndim - d - 1; k++)
                strbuf_addc(b, '\n');
            pad(b, indent + 1);
        }
        if (cut && i == opts.edgeitems) {
            strbuf_add(b, "...");
            i = n - opts.edgeitems - 1;
            if (!opts.edgeitems)
                break;
            continue;
        }
        add_tensor(b, f, t, d + 1, p + i * step, indent + 1, summarize);
    }
    strbuf_addc(b, ']');
}

typedef struct suffixes {
    strbuf *out;
    int indent, last; /* length of the last line so far */
} suffixes;

static void suffix(suffixes *s, const char *text)
{
    int n = (int)strlen(text);
    if (s->last + n + 2 > opts.linewidth) {
        strbuf_add(s->out, ",\n");
        pad(s->out, s->indent);
        s->last = s->indent + n;
    } else {
        strbuf_add(s->out, ", ");
        s->last += n + 2;
    }
    strbuf_add(s->out, text);
}

static void suffix_dtype(suffixes *s, dtype dt)
{
    char buf[64];
    snprintf(buf, sizeof buf, "dtype=%s.%s", py_prefix, dtype_name(dt));
    suffix(s, buf);
}

static void suffix_size(suffixes *s, const tp_tensor *t)
{
    strbuf b = { 0 };
    strbuf_add(&b, "size=(");
    for (int i = 0; i < t->ndim; i++) {
        strbuf_add(&b, i ? ", " : "");
        sym_is_expr(t->size[i]) ? sym_print(&b, t->size[i])
                                : (void)strbuf_addf(&b, "%lld", (long long)t->size[i]);
    }
    strbuf_add(&b, t->ndim == 1 ? ",)" : ")");
    suffix(s, strbuf_str(&b));
    strbuf_free(&b);
}

/* grad_fn=<SinBackward0> or requires_grad=True; quiet when autograd is not there. */
static bool suffix_grad(suffixes *s, PyObject *o)
{
    PyObject *fn = PyObject_GetAttrString(o, "grad_fn"), *name = NULL;
    if (fn && fn != Py_None) {
        char buf[160];
        name = PyObject_GetAttrString((PyObject *)Py_TYPE(fn), "__name__");
        if (name && PyUnicode_Check(name)) {
            snprintf(buf, sizeof buf, "grad_fn=<%s>", PyUnicode_AsUTF8(name));
            suffix(s, buf);
        }
    } else {
        PyErr_Clear();
        PyObject *rg = PyObject_GetAttrString(o, "requires_grad");
        if (rg == Py_True)
            suffix(s, "requires_grad=True");
        Py_XDECREF(rg);
    }
    Py_XDECREF(name);
    Py_XDECREF(fn);
    PyErr_Clear();
    return true;
}

/* _tensor_text(tensor, indent): its numbers as repr shows them, for a line that begins at column indent */
static PyObject *f_text(PyObject *m, PyObject *args)
{
    PyObject *o;
    int indent;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "O!i:_tensor_text", &PyTensor_Type, &o, &indent))
        return NULL;
    tp_tensor *t = py_tensor(o), *here;
    if (tensor_is_fake(t))
        return PyUnicode_FromString("...");
    if (t->numel == 0)
        return PyUnicode_FromString("[]");
    if (!(here = tensor_to(t, DEVICE_CPU, &err)))
        return py_raise(&err);
    strbuf b = { 0 };
    bool summarize = (double)t->numel > opts.threshold;
    format f = format_of(here, summarize);
    add_tensor(&b, &f, here, 0, tensor_host(here), indent, summarize);
    tensor_unref(here);
    PyObject *r = PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace");
    strbuf_free(&b);
    return r;
}

PyObject *py_tensor_repr(PyObject *o)
{
    tp_tensor *t = py_tensor(o);
    strbuf b = { 0 };
    dtype dt = (dtype)t->dt;
    bool meta = tensor_device(t).kind == DEV_meta, fake = tensor_is_fake(t);
    const char *name = Py_TYPE(o)->tp_name, *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    if (!strcmp(name, "Tensor") || !strcmp(name, "Parameter") || !strcmp(name, "Buffer"))
        name = t->storage->flags & ST_batched ? "BatchedTensor" : fake && !meta ? "FakeTensor" : "tensor";
    strbuf_addf(&b, "%s(", name);
    int indent = (int)b.n;
    suffixes s = { &b, indent, 0 };
    bool empty = !fake && t->numel == 0;
    if (fake)
        strbuf_add(&b, "...");
    else if (empty)
        strbuf_add(&b, "[]");
    else {
        bool summarize = (double)t->numel > opts.threshold;
        tp_err err = { 0 };
        tp_tensor *here = tensor_to(t, DEVICE_CPU, &err);
        if (!here) {
            strbuf_free(&b);
            return py_raise(&err);
        }
        format f = format_of(here, summarize);
        add_tensor(&b, &f, here, 0, tensor_host(here), indent, summarize);
        tensor_unref(here);
    }
    const char *text = strbuf_str(&b), *nl = strrchr(text, '\n');
    s.last = (int)(nl ? strlen(nl) + 1 : b.n + 2); /* as PyTorch counts: rfind gives -1 without a newline */
    if (meta || tensor_device(t).kind != CX->default_device.kind) {
        strbuf d = { 0 };
        strbuf_add(&d, "device='");
        device_print(&d, tensor_device(t));
        strbuf_add(&d, "'");
        suffix(&s, strbuf_str(&d));
        strbuf_free(&d);
    }
    if (fake || (empty && t->ndim != 1))
        suffix_size(&s, t);
    if (dt != CX->default_dtype && !(dt == dtype_complex_of(CX->default_dtype) && !fake && !empty) &&
        (fake || empty || (dt != DT_i64 && dt != DT_bool)))
        suffix_dtype(&s, dt);
    suffix_grad(&s, o);
    strbuf_addc(&b, ')');
    PyObject *r = PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace");
    strbuf_free(&b);
    return r;
}

/* __format__: numbers of zero-dim tensors take a format specification. */
static PyObject *m_format(PyObject *o, PyObject *spec)
{
    if (py_tensor(o)->ndim == 0 && !tensor_is_fake(py_tensor(o)) && PyUnicode_Check(spec) &&
        Py_TYPE(o) == &PyTensor_Type) {
        PyObject *v = PyObject_CallMethod(o, "item", NULL), *r = v ? PyObject_Format(v, spec) : NULL;
        Py_XDECREF(v);
        return r;
    }
    if (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0)
        return PyObject_Str(o);
    return PyErr_Format(PyExc_TypeError, "unsupported format string passed to %s.__format__",
                        Py_TYPE(o) == &PyTensor_Type ? "Tensor" : Py_TYPE(o)->tp_name);
}

/* _printoptions(precision, threshold, edgeitems, linewidth, sci_mode): sets those that are not None, returns
 * them all. */
static PyObject *f_options(PyObject *m, PyObject *args)
{
    PyObject *p = Py_None, *t = Py_None, *e = Py_None, *l = Py_None, *s = Py_False;
    if (!PyArg_ParseTuple(args, "|OOOOO:_printoptions", &p, &t, &e, &l, &s))
        return NULL;
    long prec = p == Py_None ? opts.precision : PyLong_AsLong(p),
         edge = e == Py_None ? opts.edgeitems : PyLong_AsLong(e),
         width = l == Py_None ? opts.linewidth : PyLong_AsLong(l);
    double thr = t == Py_None ? opts.threshold : PyFloat_AsDouble(t);
    if (PyErr_Occurred())
        return NULL;
    if (prec < 0 || prec > 64 || edge < 0 || edge > 1 << 28 || width < 0 || width > 1 << 28) {
        PyErr_SetString(PyExc_ValueError,
                        "precision must be in 0..64, edgeitems and linewidth must not be negative");
        return NULL;
    }
    opts.precision = (int)prec;
    opts.edgeitems = (int)edge;
    opts.linewidth = (int)width;
    opts.threshold = thr;
    if (PyTuple_GET_SIZE(args) > 4)
        opts.sci = s == Py_None ? -1 : PyObject_IsTrue(s);
    return Py_BuildValue("(idiiO)", opts.precision, opts.threshold, opts.edgeitems, opts.linewidth,
                         opts.sci < 0 ? Py_None
                         : opts.sci   ? Py_True
                                      : Py_False);
}

static PyMethodDef methods[] = { { "__format__", m_format, METH_O, NULL }, { NULL } };
static PyMethodDef functions[] = { { "_tensor_text", f_text, METH_VARARGS,
                                     "_tensor_text(tensor, indent): its numbers as repr shows them" },
                                   { "_printoptions", f_options, METH_VARARGS,
                                     "_printoptions(precision, threshold, edgeitems, linewidth, sci_mode)" },
                                   { NULL } };
int py_init_repr(PyObject *m)
{
    return py_tensor_add_methods(methods) < 0 ? -1 : PyModule_AddFunctions(m, functions);
}
