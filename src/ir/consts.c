/* consts.c - constants as text and in safetensors files beside the text.
 * A constant's content is its elements in row-major order; its digest is their SHA-256. */
#include "ir/text.h"
#include "base/digest.h"
#include "base/file.h"
#include "tensor/safetensors.h"
#include <math.h>
#include <stdio.h>

static bool has_bytes(const ir_node *n) { return n->konst && !tensor_is_fake(n->konst); }

static tp_tensor *elements(const ir_node *n) /* contiguous, count 1; NULL when there are none */
{
    return has_bytes(n) ? tensor_contiguous(n->konst, NULL) : NULL;
}

const char *ir_const_digest(ir_node *n)
{
    tp_tensor *t = n->digest ? NULL : elements(n);
    if (t) {
        char hex[DIGEST_HEX];
        digest_of(DIGEST_sha256, tensor_host(t), (size_t)t->numel * dtype_size((dtype)t->dt), hex);
        n->digest = arena_strdup(&n->graph->mem, hex);
        tensor_unref(t);
    }
    return n->digest;
}

/* The shortest decimal that reads back equal in the element's own type. */
static void float_print(strbuf *b, dtype dt, double v)
{
    if (dt == DT_f64 || isnan(v) || isinf(v)) {
        strbuf_double(b, v);
        return;
    }
    char t[40];
    for (int p = 1; p < 10; p++) {
        snprintf(t, sizeof t, "%.*g", p, v);
        if ((float)strtod(t, NULL) == (float)v)
            break;
    }
    strbuf_double(b, strtod(t, NULL));
}

/* Is the value's text enough to give its bits back? */
static bool prints_exactly(dtype dt, const char *p)
{
    char again[8];
    if (!dtype_is_plain(dt)) /* complex numbers, and types that are only stored, as bytes */
        return false;
    if (!dtype_is_float(dt))
        return dt != DT_bool || (unsigned char)*p < 2;
    double v = elem_get_f(dt, p);
    if (!isnan(v))
        return true;
    elem_set_f(dt, again, NAN);
    return !memcmp(again, p, dtype_size(dt));
}

static void values_print(strbuf *b, const tp_tensor *t)
{
    dtype dt = (dtype)t->dt;
    const char *p = tensor_host(t);
    size_t size = dtype_size(dt);
    bool exact = true;

    for (int64_t i = 0; i < t->numel && exact; i++)
        exact = prints_exactly(dt, p + (size_t)i * size);
    if (!exact) {
        strbuf_add(b, "hex:");
        for (size_t i = 0; i < (size_t)t->numel * size; i++)
            strbuf_addf(b, "%02x", (unsigned char)p[i]);
        return;
    }
    strbuf_addc(b, '[');
    for (int64_t i = 0; i < t->numel; i++, p += size) {
        strbuf_add(b, i ? ", " : "");
        if (dtype_is_float(dt))
            float_print(b, dt, elem_get_f(dt, p));
        else if (dt == DT_bool)
            strbuf_add(b, *p ? "True" : "False");
        else
            strbuf_addf(b, "%lld", (long long)elem_get_i(dt, p));
    }
    strbuf_addc(b, ']');
}

void const_print(strbuf *b, const ir_node *n)
{
    strbuf_addc(b, '"');
    ir_type_print(b, &n->val);
    strbuf_add(b, n->konst && n->konst->flags & TF_wrapped ? "\" wrapped = " : "\" = ");
    if (has_bytes(n) && n->konst->numel <= TEXT_INLINE_ELEMS) {
        tp_tensor *t = elements(n);
        if (t)
            values_print(b, t);
        tensor_unref(t);
        return;
    }
    const char *d = ir_const_digest((ir_node *)n); /* remembered, not changed */
    if (d)
        strbuf_addf(b, "sha256:%s", d);
    else
        strbuf_addc(b, '?');
}

/* ---- files ---- */
static bool attach(ir_node *n, tp_tensor *t, tp_err *err)
{
    const tp_tensor *ty = ir_type(n);
    tp_tensor *k = NULL;
    char hex[DIGEST_HEX];

    digest_of(DIGEST_sha256, tensor_host(t), (size_t)t->numel * dtype_size((dtype)t->dt), hex);
    if (t->dt != ty->dt || !tensor_same_size(t, ty) || strcmp(hex, n->digest))
        return err_set(err, ERR_value, "the stored bytes of constant '%s' are not those of the graph",
                       n->target);
    k = tensor_new_strided((dtype)ty->dt, ty->ndim, ty->size, ty->stride, tensor_device(ty), err);
    if (!k || !tensor_copy(k, t, err)) {
        tensor_unref(k);
        return false;
    }
    n->konst = k;
    vec_push(&n->graph->keep, k);
    return true;
}

static bool load_into(ir_graph *g, const st_file *f, tp_err *err)
{
    IR_EACH (n, g) {
        const st_entry *e;
        if (n->kind != IR_const || n->konst || !n->digest || !(e = st_find(f, n->digest)))
            continue;
        tp_tensor *t = st_tensor(f, e, err);
        bool ok = t && attach(n, t, err);
        tensor_unref(t);
        if (!ok)
            return false;
    }
    for (size_t i = 0; i < g->subs.n; i++)
        if (!load_into(g->subs.at[i], f, err))
            return false;
    return true;
}

bool ir_consts_load(ir_graph *g, const char *path, tp_err *err)
{
    st_file f = { 0 };
    if (!st_open(&f, path, err))
        return false;
    bool ok = load_into(g, &f, err);
    st_free(&f);
    return ok;
}

typedef struct side {
    VEC(const char *) names; /* digests, borrowed from the nodes */
    VEC(tp_tensor *) ts;     /* borrowed */
    map seen;
} side;

static void collect(const ir_graph *g, side *s)
{
    IR_EACH (n, g) {
        if (n->kind != IR_const || !has_bytes(n) || n->konst->numel <= TEXT_INLINE_ELEMS)
            continue;
        const char *d = ir_const_digest(n);
        if (!d || map_put(&s->seen, d, n))
            continue;
        vec_push(&s->names, d);
        vec_push(&s->ts, n->konst);
    }
    for (size_t i = 0; i < g->subs.n; i++)
        collect(g->subs.at[i], s);
}

static char *side_file(const char *path)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "%s.safetensors", path);
    return strbuf_take(&b);
}

bool ir_save(const ir_graph *g, const char *path, tp_err *err)
{
    side s = { 0 };
    char *beside = side_file(path);
    strbuf b = { 0 };

    collect(g, &s);
    ir_print(&b, g, IR_PRINT_all);
    bool ok = (!s.ts.n || st_write(beside, s.names.at, s.ts.at, (int)s.ts.n, NULL, err)) &&
              file_write(path, strbuf_str(&b), b.n, err);
    strbuf_free(&b);
    free(beside);
    vec_free(&s.names);
    vec_free(&s.ts);
    map_free(&s.seen);
    return ok;
}

ir_graph *ir_load(const char *path, sym_env *env, tp_err *err)
{
    size_t n;
    char *text = file_read(path, TEXT_MAX_BYTES, &n, err), *side = side_file(path);
    ir_graph *g = text ? ir_parse(text, n, path, env, err) : NULL;

    if (g && file_exists(side) && !ir_consts_load(g, side, err)) {
        err_note(err, "reading '%s'", side);
        ir_graph_free(g);
        g = NULL;
    }
    free(text);
    free(side);
    return g;
}
