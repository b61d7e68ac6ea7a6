/* api.c - include/taper.h on top of the stages. Nothing the caller passes is trusted further than C allows.
 */
#include "taper.h"
#include "ir/pass.h"
#include "ir/text.h"
#include "api/api_custom.h"
#include "compile/backend.h"
#include "run/checked.h"

const char *tp_version(void) { return TP_VERSION; }
int tp_abi_version(void) { return TP_ABI_VERSION; }
void tp_free(void *p) { free(p); }

/* NULL where an object is wanted. Functions without `err` answer as for an empty one. */
static bool given(const void *p, const char *what, tp_err *err)
{
    return p || err_set(err, ERR_type, "%s is NULL; what made it has failed, and its error says why", what);
}

/* ---- errors ---- */
tp_err *tp_err_new(void) { return mem_zalloc(sizeof(tp_err)); }
void tp_err_free(tp_err *e) { free(e); }
void tp_err_clear(tp_err *e)
{
    if (e)
        err_clear(e);
}
bool tp_err_is_set(const tp_err *e) { return e && err_is_set(e); }
const char *tp_err_message(const tp_err *e) { return e ? e->msg : ""; }
const char *tp_err_class(const tp_err *e) { return e ? err_class(e->kind) : ""; }
const char *tp_err_notes(const tp_err *e) { return e ? e->notes : ""; }

/* ---- tensors ---- */
_Static_assert((int)TP_BOOL == DT_bool && (int)TP_U8 == DT_u8 && (int)TP_I8 == DT_i8 &&
                   (int)TP_I16 == DT_i16 && (int)TP_I32 == DT_i32 && (int)TP_I64 == DT_i64 &&
                   (int)TP_F16 == DT_f16 && (int)TP_BF16 == DT_bf16 && (int)TP_F32 == DT_f32 &&
                   (int)TP_F64 == DT_f64,
               "taper.h numbers element types as the library does");

static bool is_dtype(tp_dtype dt) { return (unsigned)dt < DT_COUNT; }
const char *tp_dtype_name(tp_dtype dt) { return is_dtype(dt) ? dtype_name((dtype)dt) : NULL; }
size_t tp_dtype_size(tp_dtype dt) { return is_dtype(dt) ? dtype_size((dtype)dt) : 0; }

static bool geometry_ok(tp_dtype dt, int ndim, const int64_t *size, const int64_t *stride, tp_err *err)
{
    symint bytes, st[TP_MAX_DIMS];
    if (!is_dtype(dt))
        return err_set(err, ERR_type, "%d is no element type", (int)dt);
    if (ndim < 0 || ndim > TP_MAX_DIMS)
        return err_set(err, ERR_value, "a tensor has 0 to %d dimensions, not %d", TP_MAX_DIMS, ndim);
    if (ndim && !size)
        return err_set(err, ERR_value, "no sizes were given");
    for (int d = 0; d < ndim; d++)
        if (size[d] < 0 || size[d] >= SYM_LIMIT || (stride && (stride[d] < 0 || stride[d] >= SYM_LIMIT)))
            return err_set(err, ERR_value, "size or stride of dimension %d is not between 0 and 2**62", d);
    if (!shape_check_sizes(ndim, size, err))
        return false;
    if (!stride)
        shape_contiguous_strides(ndim, size, st);
    return shape_storage_bytes((dtype)dt, ndim, size, stride ? stride : st, 0, &bytes, err);
}

tp_tensor *tp_tensor_new(tp_dtype dt, int ndim, const int64_t *size, tp_err *err)
{
    return geometry_ok(dt, ndim, size, NULL, err) ? tensor_new((dtype)dt, ndim, size, err) : NULL;
}

tp_tensor *tp_tensor_from_data(tp_dtype dt, int ndim, const int64_t *size, const void *data, tp_err *err)
{
    tp_tensor *t = tp_tensor_new(dt, ndim, size, err);
    if (t && t->numel && data)
        memcpy(tensor_host(t), data, (size_t)t->numel * dtype_size((dtype)dt));
    return t;
}

static void keep_hands_off(void *ctx, void *data) {}

tp_tensor *tp_tensor_wrap(tp_dtype dt, int ndim, const int64_t *size, const int64_t *stride, void *data,
                          void (*release)(void *ctx, void *data), void *ctx, tp_err *err)
{
    symint st[TP_MAX_DIMS], bytes = 0;
    if (!geometry_ok(dt, ndim, size, stride, err))
        return NULL;
    if (!stride)
        shape_contiguous_strides(ndim, size, st);
    shape_storage_bytes((dtype)dt, ndim, size, stride ? stride : st, 0, &bytes, NULL);
    if (bytes && !given(data, "the memory to wrap", err))
        return NULL;
    tp_storage *s = storage_wrap(data, bytes, release ? release : keep_hands_off, ctx);
    tp_tensor *t = tensor_on(s, (dtype)dt, ndim, size, stride ? stride : st, 0);
    storage_unref(s);
    return t;
}

tp_tensor *tp_tensor_ref(tp_tensor *t) { return t ? tensor_ref(t) : NULL; }
void tp_tensor_unref(tp_tensor *t) { tensor_unref(t); }
tp_dtype tp_tensor_dtype(const tp_tensor *t) { return t ? (tp_dtype)t->dt : (tp_dtype)DT_COUNT; }
int tp_tensor_ndim(const tp_tensor *t) { return t ? t->ndim : 0; }
static int wrap(const tp_tensor *t, int d) { return !t ? -1 : d < 0 ? d + t->ndim : d; }
int64_t tp_tensor_size(const tp_tensor *t, int d)
{
    d = wrap(t, d);
    return d >= 0 && d < t->ndim ? t->size[d] : 0;
}
int64_t tp_tensor_stride(const tp_tensor *t, int d)
{
    d = wrap(t, d);
    return d >= 0 && d < t->ndim ? t->stride[d] : 0;
}
int64_t tp_tensor_numel(const tp_tensor *t) { return t ? t->numel : 0; }
void *tp_tensor_data(const tp_tensor *t) { return t ? tensor_data(t) : NULL; }
bool tp_tensor_is_contiguous(const tp_tensor *t) { return t && tensor_is_contiguous(t); }
tp_tensor *tp_tensor_contiguous(tp_tensor *t, tp_err *err)
{
    return given(t, "the tensor", err) ? tensor_contiguous(t, err) : NULL;
}

/* ---- graphs ---- */
static ir_graph *G(const tp_graph *g) { return (ir_graph *)g; }
static tp_graph *give(ir_graph *g) { return (tp_graph *)g; }
static ir_node *N(const tp_node *n) { return (ir_node *)n; }

tp_graph *tp_graph_new(const char *name) { return give(ir_graph_new(name ? name : "forward")); }
void tp_graph_free(tp_graph *g) { ir_graph_free(G(g)); }
tp_graph *tp_graph_parse(const char *text, size_t n, const char *name, tp_err *err)
{
    return given(text, "the text", err) ? give(ir_parse(text, n, name ? name : "text", NULL, err)) : NULL;
}
tp_graph *tp_graph_load(const char *path, tp_err *err)
{
    return given(path, "the path", err) ? give(ir_load(path, NULL, err)) : NULL;
}
bool tp_graph_save(const tp_graph *g, const char *path, tp_err *err)
{
    return given(g, "the graph", err) && given(path, "the path", err) && ir_save(G(g), path, err);
}
bool tp_graph_verify(const tp_graph *g, tp_err *err)
{
    return given(g, "the graph", err) && ir_verify(G(g), err);
}
uint64_t tp_graph_hash(const tp_graph *g) { return g ? ir_hash(G(g)) : 0; }
int tp_graph_n_nodes(const tp_graph *g) { return g ? G(g)->nnode : 0; }
int tp_graph_n_inputs(const tp_graph *g) { return g ? (int)G(g)->inputs.n : 0; }
int tp_graph_n_outputs(const tp_graph *g) { return g && G(g)->output ? G(g)->output->narg : 0; }

char *tp_graph_print(const tp_graph *g)
{
    strbuf b = { 0 };
    if (!g)
        return NULL;
    ir_print(&b, G(g), IR_PRINT_all);
    return strbuf_take(&b);
}

bool tp_graph_simplify(tp_graph *g, const char *passes, tp_err *err)
{
    tp_err own = { 0 };
    tp_comp c = { .err = err ? err : &own };
    return given(g, "the graph", err) && pass_run_named(&c, G(g), passes);
}

/* ---- building ---- */
tp_node *tp_graph_input(tp_graph *g, const char *name, tp_dtype dt, int ndim, const int64_t *size,
                        const int64_t *stride, tp_err *err)
{
    if (!given(g, "the graph", err) || !geometry_ok(dt, ndim, size, stride, err))
        return NULL;
    tp_tensor *t = tensor_new_fake((dtype)dt, ndim, size, stride, DEVICE_CPU);
    ir_node *n = ir_add_placeholder(G(g), name ? name : "input", NULL, t);
    n->target = n->name;
    tensor_unref(t);
    return (tp_node *)n;
}

tp_node *tp_graph_constant(tp_graph *g, const char *name, tp_tensor *t, tp_err *err)
{
    if (!given(g, "the graph", err))
        return NULL;
    if (!t || tensor_is_fake(t)) {
        err_set(err, ERR_value, "a constant needs a tensor with bytes");
        return NULL;
    }
    return (tp_node *)ir_add_const(G(g), name ? name : "_tensor_constant0", t);
}

static bool own_node(const ir_graph *g, const ir_node *n, tp_err *err)
{
    return given(g, "the graph", err) && given(n, "a node", err) &&
           (n->graph == g || err_set(err, ERR_value, "'%s' belongs to another graph", n->name));
}

static bool to_val(const ir_graph *g, const tp_arg *a, tp_val *v, tp_err *err)
{
    *v = vNone;
    if (a->n < 0 || (a->n && !a->u.p))
        return err_set(err, ERR_value, "a list of %d items that is not there", a->n);
    switch (a->kind) {
    case TP_ARG_NONE: return true;
    case TP_ARG_NODE:
        *v = (tp_val){ .kind = VAL_node, .node = N(a->u.node) };
        return own_node(g, v->node, err);
    case TP_ARG_INT: *v = vI(a->u.i); break;
    case TP_ARG_FLOAT: *v = vF(a->u.f); return true;
    case TP_ARG_BOOL: *v = vB(a->u.i != 0); return true;
    case TP_ARG_STR: *v = vS(a->u.s); return a->u.s || err_set(err, ERR_value, "a string that is not there");
    case TP_ARG_DTYPE: *v = vDT(a->u.i); return true;
    case TP_ARG_INTS: *v = vIs(a->u.p, a->n); break;
    case TP_ARG_FLOATS: *v = vFs(a->u.p, a->n); return true;
    case TP_ARG_NODES:
        *v = (tp_val){ .kind = VAL_nodes, .n = a->n, .nodes = (ir_node **)a->u.p };
        for (int i = 0; i < a->n; i++)
            if (v->nodes[i] && !own_node(g, v->nodes[i], err))
                return false;
        return true;
    default: return err_set(err, ERR_value, "an argument of no known kind");
    }
    /* what looks like a symbol must not come from outside */
    for (int i = 0; i < (v->kind == VAL_ints ? v->n : 1); i++)
        if (sym_is_expr(v->kind == VAL_ints ? v->ints[i] : v->i))
            return err_set(err, ERR_value, "an integer that is not below 2**62");
    return true;
}

tp_node *tp_graph_call(tp_graph *g, const char *op, const tp_arg *args, int n, tp_err *err)
{
    tp_val full[OP_MAX_PARAMS];
    text_args a = { 0 };
    ir_node *r = NULL;
    arena tmp = { 0 };
    op_id id;
    op_variant v;

    if (!given(g, "the graph", err) || !given(op, "the name of the operator", err))
        return NULL;
    if (n < 0 || (n && !args)) {
        err_set(err, ERR_value, "%d arguments that are not there", n);
        return NULL;
    }
    const op_custom *custom = strstr(op, "::") ? custom_find(op, NULL) : NULL;
    if (custom) {
        tp_val pos[CUSTOM_MAX_ARGS];
        bool ok = n <= CUSTOM_MAX_ARGS;
        for (int i = 0; ok && i < n; i++)
            ok = !args[i].keyword && to_val(G(g), &args[i], &pos[i], err);
        r = ok ? custom_build(G(g), custom, pos, n, err) : NULL;
        if (!ok && !err_is_set(err))
            err_set(err, ERR_type, "a custom operator takes its arguments by position");
        goto done;
    }
    if (!strncmp(op, "aten.", 5))
        op += 5;
    size_t len = strlen(op);
    if (len > 8 && !strcmp(op + len - 8, ".default"))
        len -= 8;
    if (!op_find(op, len, &id, &v)) {
        err_set(err, ERR_value, "there is no operator '%.100s'", op);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if ((args[i].keyword ? a.nkw : a.npos) >= OP_MAX_PARAMS) {
            err_set(err, ERR_type, "%s() takes fewer than %d arguments", op, n);
            goto done;
        }
        if (!to_val(G(g), &args[i], args[i].keyword ? &a.kw[a.nkw] : &a.pos[a.npos], err))
            goto done;
        if (args[i].keyword)
            a.kwname[a.nkw++] = args[i].keyword;
        else
            a.npos++;
    }
    const op_row *row = op_row_of(id);
    if (spell_bind(&tmp, row, &a, full, err))
        r = ir_build(G(g), id, v, full, row->schema.nparam, err);
done:
    if (!r)
        err_note(err, "adding a call of %.100s", op);
    arena_free(&tmp);
    return (tp_node *)r;
}

tp_node *tp_graph_item(tp_graph *g, tp_node *of, int index, tp_err *err)
{
    return own_node(G(g), N(of), err) ? (tp_node *)ir_build_item(G(g), N(of), index, err) : NULL;
}

bool tp_graph_output(tp_graph *g, tp_node *const *values, int n, tp_err *err)
{
    if (!given(g, "the graph", err))
        return false;
    if (n < 0 || (n && !values))
        return err_set(err, ERR_value, "%d values that are not there", n);
    tp_val *v = mem_zalloc(sizeof *v * (size_t)MAX(n, 1));
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        ok = !values[i] || own_node(G(g), N(values[i]), err);
        if (ok && values[i] && N(values[i])->val.kind == VAL_tensors)
            ok = err_set(err, ERR_type, "'%s' has several results: take them with tp_graph_item",
                         N(values[i])->name);
        if (values[i])
            v[i] = (tp_val){ .kind = VAL_node, .node = N(values[i]) };
    }
    if (ok)
        ir_set_output(G(g), v, n);
    free(v);
    return ok;
}

const char *tp_node_name(const tp_node *n) { return n ? N(n)->name : NULL; }
char *tp_node_type(const tp_node *n)
{
    strbuf b = { 0 };
    if (!n)
        return NULL;
    ir_type_print(&b, &N(n)->val);
    return strbuf_take(&b);
}

/* ---- programs ---- */
struct tp_program {
    run_program *run; /* checks its inputs */
    int nout;
};

const char *tp_backend_name(int i)
{
    const backend *b = i < 0 ? NULL : backend_at(i);
    return b ? b->name : NULL;
}
const char *tp_backend_about(int i)
{
    const backend *b = i < 0 ? NULL : backend_at(i);
    return b ? b->what : NULL;
}

tp_program *tp_compile(const tp_graph *g, const char *name, tp_err *err)
{
    tp_err own = { 0 };
    tp_comp c = { .err = err ? err : &own };
    if (!given(g, "the graph", c.err) || !given(name, "the backend's name", c.err))
        return NULL;
    const backend *b = backend_find(name, c.err);
    run_program *r = b ? backend_compile(b, &c, G(g), NULL) : NULL;
    if (!r)
        return NULL;
    tp_program *p = mem_zalloc(sizeof *p);
    p->run = checked_new(r, G(g));
    p->nout = G(g)->output->narg;
    return p;
}

/* Numbers travel as tensors of one element. */
static bool is_number(const tp_tensor *t, int kind)
{
    return kind != VAL_tensor && t->numel == 1 && (kind == VAL_float || !dtype_is_float((dtype)t->dt));
}
static tp_val number_of(const tp_tensor *t, int kind)
{
    const char *p = tensor_elem(t, 0);
    dtype dt = (dtype)t->dt;
    return kind == VAL_float  ? vF(elem_get_f(dt, p))
           : kind == VAL_bool ? vB(elem_get_f(dt, p) != 0)
                              : vI(elem_get_i(dt, p));
}
static tp_tensor *tensor_of_number(const tp_val *v, tp_err *err)
{
    dtype dt = v->kind == VAL_float ? DT_f64 : v->kind == VAL_bool ? DT_bool : DT_i64;
    tp_tensor *t = tensor_new(dt, 0, NULL, err);
    if (t && dt == DT_f64)
        elem_set_f(dt, tensor_host(t), v->f);
    else if (t)
        elem_set_i(dt, tensor_host(t), val_as_i(v));
    return t;
}

bool tp_program_run(tp_program *p, tp_tensor *const *in, int nin, tp_tensor **out, int nout, tp_err *err)
{
    if (!given(p, "the program", err) || (nin > 0 && !given(in, "the list of inputs", err)) ||
        (nout > 0 && !given(out, "the list of outputs", err)))
        return false;
    tp_val *iv = mem_zalloc(sizeof *iv * (size_t)MAX(nin, 1));
    tp_val *ov = mem_zalloc(sizeof *ov * (size_t)MAX(nout, 1));
    bool ok = nout == p->nout || err_set(err, ERR_type, "the graph returns %d values, not %d", p->nout, nout);

    const ir_graph *sig = checked_inputs(p->run);
    for (int i = 0; i < nin && ok; i++) {
        int kind = (size_t)i < sig->inputs.n ? sig->inputs.at[i]->val.kind : VAL_tensor;
        ok = in[i] || err_set(err, ERR_type, "input %d is missing", i);
        iv[i] = ok && is_number(in[i], kind) ? number_of(in[i], kind) : vT(in[i]);
    }
    ok = ok && run_program_call(p->run, op_ctx_cur(), iv, nin, ov, nout, err);
    for (int i = 0; i < nout; i++) {
        if (ok && (ov[i].kind == VAL_int || ov[i].kind == VAL_float || ov[i].kind == VAL_bool)) {
            ov[i] = vT(tensor_of_number(&ov[i], err));
            ok = ov[i].t != NULL;
        }
        out[i] = ok && ov[i].kind == VAL_tensor ? ov[i].t : NULL;
        if (!out[i])
            val_clear(&ov[i]);
    }
    free(iv);
    free(ov);
    return ok;
}

void tp_program_free(tp_program *p)
{
    if (!p)
        return;
    run_program_free(p->run);
    free(p);
}
