/* emit.c - graphs as plain C. Kernels come from gen/c.h; what the plan leaves to library calls is written out here. */
#include "run/emit.h"
#include "aot/aot.h"
#include "gen/c.h"
#include "loop/loop.h"
#include "sym/env.h"
#include <stdio.h>

typedef struct emit {
    tp_comp *c;
    const char *name;
    bool blas;
    aot_unit *u;
    loop_plan *p;
    gen_c_unit unit;
    strbuf data, body, proto; /* weights; statements; "const float *x, float *out0" */
    map kernels;              /* structure -> name */
    map helpers;              /* helper functions asked for */
    int64_t *offset;          /* by slot, of what lies in the workspace; -1: elsewhere */
    int *direct;              /* by slot: + 1 of the result whose memory it is */
    int64_t space;
    arena mem;
} emit;

static bool cannot(emit *e, const ir_node *n, const char *why)
{
    const char *op = n->kind == IR_call ? op_row_of((op_id)n->op)->full : n->target;
    err_set(e->c->err, ERR_notimpl, "'%s' cannot be exported as C: %s", op ? op : n->name, why);
    if (n->loc)
        err_place(e->c->err, n->loc->file, n->loc->line);
    return false;
}

static bool is_fixed(const tp_tensor *t)
{
    return t && sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim) &&
           !sym_is_expr(t->offset);
}

static bool is_contiguous(const tp_tensor *t)
{
    int64_t s = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->size[d] != 1 && t->stride[d] != s)
            return false;
        s *= t->size[d];
    }
    return true;
}

static int64_t bytes_of(const tp_tensor *t)
{
    symint b = 0;
    shape_storage_bytes((dtype)t->dt, t->ndim, t->size, t->stride, 0, &b, NULL);
    return b;
}

static int slot_of(emit *e, const ir_node *n)
{
    return (int)(uintptr_t)map_geti(&e->p->slot_of, (uintptr_t)n) - 1;
}

/* --- places
 * ------------------------------------------------------------------------------------------------------------ */
static bool is_view(const ir_node *n)
{
    return n->kind == IR_call && op_row_of((op_id)n->op)->flags & OPF_VIEW && n->arg[0].kind == VAL_node &&
           ir_type(n->arg[0].node) && n->op != OP_view_dtype;
}

/* A call whose results all look at its first operand (split, unbind). */
static bool lists_views(const ir_node *n) { return is_view(n) && n->val.kind == VAL_tensors; }

/* The node whose memory n looks at, or NULL: it has its own. */
static const ir_node *looked_at(const ir_node *n)
{
    if (n->kind == IR_getitem)
        return lists_views(n->arg[0].node) ? n->arg[0].node->arg[0].node : NULL;
    return is_view(n) && ir_type(n) ? n->arg[0].node : NULL;
}

static bool add_pointer(emit *e, strbuf *b, const ir_node *n);

static bool add_slot(emit *e, strbuf *b, int i)
{
    const loop_slot *s = &e->p->slot.at[i];
    dtype dt = s->type ? (dtype)s->type->dt : DT_u8;
    if (s->over)
        return add_slot(e, b, s->over - 1);
    if (e->direct[i])
        strbuf_addf(b, "out%d", e->direct[i] - 1);
    else if (s->kind == SLOT_input)
        strbuf_addf(b, "in%d", s->index);
    else if (s->kind == SLOT_const)
        strbuf_addf(b, "%s_w%d", e->name, i);
    else if (e->offset[i] >= 0)
        strbuf_addf(b, "(%s *)(space + %lld)", gen_c_type(dt), (long long)e->offset[i]);
    else {
        const ir_node *of = looked_at(s->node);
        if (!of)
            return cannot(e, s->node, "its memory is not known before it runs");
        int64_t ahead = s->type->offset - ir_type(of)->offset;
        strbuf_add(b, "(");
        if (!add_pointer(e, b, of))
            return false;
        strbuf_addf(b, " + %lld)", (long long)ahead);
    }
    return true;
}

static bool add_pointer(emit *e, strbuf *b, const ir_node *n)
{
    int s = slot_of(e, n);
    if (s >= 0)
        return add_slot(e, b, s);
    const ir_node *of = looked_at(n); /* a view that only another view uses */
    if (!of)
        return cannot(e, n, "its memory is not known before it runs");
    strbuf_add(b, "(");
    bool ok = add_pointer(e, b, of);
    strbuf_addf(b, " + %lld)", (long long)(ir_type(n)->offset - ir_type(of)->offset));
    return ok;
}

/* First fit over life times, as the program that runs in the process does it. */
static void place(emit *e)
{
    loop_plan *p = e->p;
    for (int i = 0; i < (int)p->slot.n; i++) {
        loop_slot *s = &p->slot.at[i];
        e->offset[i] = -1;
        bool item = s->kind == SLOT_extern && s->index >= 0;
        if (item)
            s->first = p->slot.at[s->index].first;
        if ((s->kind != SLOT_buffer && s->kind != SLOT_extern) || s->over || e->direct[i] || !s->type ||
            s->first < 0 || looked_at(s->node))
            continue;
        int64_t need = (bytes_of(s->type) + 63) & ~(int64_t)63, at = 0;
        s->last = MAX(s->last, s->first);
        for (bool moved = true; moved;) {
            moved = false;
            for (int k = 0; k < i; k++) {
                const loop_slot *o = &p->slot.at[k];
                if (e->offset[k] < 0 || o->first > s->last || s->first > o->last)
                    continue;
                int64_t end = e->offset[k] + ((bytes_of(o->type) + 63) & ~(int64_t)63);
                if (e->offset[k] < at + need && at < end) {
                    at = end;
                    moved = true;
                }
            }
        }
        e->offset[i] = at;
        e->space = MAX(e->space, at + MAX(need, 64));
    }
}

/* --- weights
 * -------------------------------------------------------------------------------------------------------------- */
static bool weights(emit *e)
{
    for (size_t i = 0; i < e->p->slot.n; i++) {
        const loop_slot *s = &e->p->slot.at[i];
        if (s->kind != SLOT_const)
            continue;
        const tp_tensor *k = s->konst;
        if (!k || tensor_is_fake(k))
            return cannot(e, s->node, "its bytes are not beside the graph");
        dtype dt = (dtype)k->dt;
        int64_t n = bytes_of(s->type) / (int64_t)dtype_size(dt);
        tp_tensor *t = tensor_new_strided(dt, k->ndim, s->type->size, s->type->stride, DEVICE_CPU, e->c->err);
        if (!t || (n && !tensor_copy(t, k, e->c->err))) {
            tensor_unref(t);
            return false;
        }
        strbuf_addf(&e->data, "static const %s %s_w%d[%lld] = { /* %s */", gen_c_type(dt), e->name, (int)i,
                    (long long)MAX(n, 1), s->node->name);
        for (int64_t j = 0; j < n; j++) {
            strbuf_add(&e->data, j % 10 ? " " : "\n    ");
            gen_c_number(&e->data, dt, (const char *)t->storage->data + j * (int64_t)dtype_size(dt));
            strbuf_addc(&e->data, ',');
        }
        strbuf_add(&e->data, n ? "\n};\n" : "0 };\n");
        tensor_unref(t);
    }
    return true;
}

/* --- helper functions; T is the element type
 * ------------------------------------------------------------------------------- */
static const struct {
    const char *name, *text;
} helpers[] = {
    { "product",
      "/* c (m x n) = a (m x k) b (k x n), or added to c, or to a row in each row; strides in elements */\n"
      "static void N_product_T(int64_t m, int64_t n, int64_t k, const T *a, int64_t a0, int64_t a1, const T "
      "*b,\n"
      "                        int64_t b0, int64_t b1, T *c, int64_t c0, int64_t c1, int add, const T *row,\n"
      "                        int64_t r0)\n"
      "{\n"
      "    for (int64_t i = 0; i < m; i++) {\n"
      "        for (int64_t j = 0; j < n && !add; j++)\n"
      "            c[i * c0 + j * c1] = row ? row[j * r0] : 0;\n"
      "        for (int64_t p = 0; p < k; p++) {\n"
      "            const T x = a[i * a0 + p * a1];\n"
      "            if (b1 == 1 && c1 == 1)\n"
      "                for (int64_t j = 0; j < n; j++)\n"
      "                    c[i * c0 + j] += x * b[p * b0 + j];\n"
      "            else\n"
      "                for (int64_t j = 0; j < n; j++)\n"
      "                    c[i * c0 + j * c1] += x * b[p * b0 + j * b1];\n"
      "        }\n"
      "    }\n"
      "}\n" },
    { "copy", "/* elements in row-major order of these sizes, from one layout to another */\n"
              "static void N_copy_T(int nd, const int64_t *size, const T *x, const int64_t *xs, T *y, const "
              "int64_t *ys)\n"
              "{\n"
              "    if (!nd)\n"
              "        *y = *x;\n"
              "    else\n"
              "        for (int64_t i = 0; i < size[0]; i++)\n"
              "            N_copy_T(nd - 1, size + 1, x + i * xs[0], xs + 1, y + i * ys[0], ys + 1);\n"
              "}\n" },
    { "conv", "/* x (n, c, h, w), f (o, c / groups, kh, kw), y (n, o, oh, ow); v: sizes and strides of the "
              "three, then\n"
              " * stride, padding, dilation (two each) and groups */\n"
              "static void N_conv_T(const int64_t *v, const T *x, const T *f, const T *bias, T *y)\n"
              "{\n"
              "    const int64_t *xn = v, *xs = v + 4, *fn = v + 8, *fs = v + 12, *yn = v + 16, *ys = v + "
              "20, *st = v + 24,\n"
              "                  *pad = v + 26, *dil = v + 28, per = yn[1] / v[30];\n"
              "    for (int64_t n = 0; n < yn[0]; n++)\n"
              "        for (int64_t o = 0; o < yn[1]; o++)\n"
              "            for (int64_t i = 0; i < yn[2]; i++)\n"
              "                for (int64_t j = 0; j < yn[3]; j++) {\n"
              "                    T sum = bias ? bias[o] : 0;\n"
              "                    for (int64_t c = 0; c < fn[1]; c++)\n"
              "                        for (int64_t p = 0; p < fn[2]; p++)\n"
              "                            for (int64_t q = 0; q < fn[3]; q++) {\n"
              "                                const int64_t r = i * st[0] - pad[0] + p * dil[0], s = j * "
              "st[1] - pad[1] + q * dil[1];\n"
              "                                if (r >= 0 && r < xn[2] && s >= 0 && s < xn[3])\n"
              "                                    sum += x[n * xs[0] + (o / per * fn[1] + c) * xs[1] + r * "
              "xs[2] + s * xs[3]] *\n"
              "                                           f[o * fs[0] + c * fs[1] + p * fs[2] + q * fs[3]];\n"
              "                            }\n"
              "                    y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3]] = sum;\n"
              "                }\n"
              "}\n" },
    { "maxpool", "/* x (n, c, h, w) to y and, where asked for, the places of the maxima; v: sizes and "
                 "strides of both, then kernel,\n"
                 " * stride, padding, dilation (two each) */\n"
                 "static void N_maxpool_T(const int64_t *v, const T *x, T *y, int64_t *at)\n"
                 "{\n"
                 "    const int64_t *xn = v, *xs = v + 4, *yn = v + 8, *ys = v + 12, *k = v + 16, *st = v + "
                 "18, *pad = v + 20,\n"
                 "                  *dil = v + 22;\n"
                 "    for (int64_t n = 0; n < yn[0]; n++)\n"
                 "        for (int64_t c = 0; c < yn[1]; c++)\n"
                 "            for (int64_t i = 0; i < yn[2]; i++)\n"
                 "                for (int64_t j = 0; j < yn[3]; j++) {\n"
                 "                    T best = -INFINITY;\n"
                 "                    int64_t where = -1;\n"
                 "                    for (int64_t p = 0; p < k[0]; p++)\n"
                 "                        for (int64_t q = 0; q < k[1]; q++) {\n"
                 "                            const int64_t r = i * st[0] - pad[0] + p * dil[0], s = j * "
                 "st[1] - pad[1] + q * dil[1];\n"
                 "                            if (r < 0 || r >= xn[2] || s < 0 || s >= xn[3])\n"
                 "                                continue;\n"
                 "                            const T t = x[n * xs[0] + c * xs[1] + r * xs[2] + s * xs[3]];\n"
                 "                            if (where < 0 || t > best || t != t) {\n"
                 "                                best = t;\n"
                 "                                where = r * xn[3] + s;\n"
                 "                            }\n"
                 "                        }\n"
                 "                    const int64_t to = n * ys[0] + c * ys[1] + i * ys[2] + j * ys[3];\n"
                 "                    y[to] = best;\n"
                 "                    if (at)\n"
                 "                        at[to] = where;\n"
                 "                }\n"
                 "}\n" },
    { "upsample", "/* nearest neighbours; v: sizes and strides of x (n, c, h, w) and y; h, w: steps in x */\n"
                  "static void N_upsample_T(const int64_t *v, float h, float w, const T *x, T *y)\n"
                  "{\n"
                  "    const int64_t *xn = v, *xs = v + 4, *yn = v + 8, *ys = v + 12;\n"
                  "    for (int64_t n = 0; n < yn[0]; n++)\n"
                  "        for (int64_t c = 0; c < yn[1]; c++)\n"
                  "            for (int64_t i = 0; i < yn[2]; i++)\n"
                  "                for (int64_t j = 0; j < yn[3]; j++) {\n"
                  "                    int64_t r = (int64_t)((float)i * h), s = (int64_t)((float)j * w);\n"
                  "                    r = r < xn[2] ? r : xn[2] - 1;\n"
                  "                    s = s < xn[3] ? s : xn[3] - 1;\n"
                  "                    y[n * ys[0] + c * ys[1] + i * ys[2] + j * ys[3]] =\n"
                  "                        x[n * xs[0] + c * xs[1] + r * xs[2] + s * xs[3]];\n"
                  "                }\n"
                  "}\n" },
    { "select",
      "/* slices of x along a dimension: before x count x after elements; 1: an index is out of range */\n"
      "static int N_select_T(int64_t before, int64_t n, int64_t after, const T *x, const INDEX *at, int64_t "
      "count, T *y)\n"
      "{\n"
      "    for (int64_t b = 0; b < before; b++)\n"
      "        for (int64_t i = 0; i < count; i++) {\n"
      "            if (at[i] < 0 || at[i] >= n)\n"
      "                return 1;\n"
      "            memcpy(y + (b * count + i) * after, x + (b * n + at[i]) * after, (size_t)after * sizeof "
      "*y);\n"
      "        }\n"
      "    return 0;\n"
      "}\n" },
};

/* The name of the helper for this type, its text written on first use. */
static const char *helper(emit *e, const char *name, dtype dt, dtype index)
{
    const char *type = gen_c_type(dt);
    char *full = arena_printf(&e->mem, "%s_%s_%s%s%s", e->name, name, type, index == DT_none ? "" : "_",
                              index == DT_none ? "" : gen_c_type(index));
    if (map_put(&e->helpers, full, (void *)1))
        return full;
    for (size_t i = 0; i < COUNT(helpers); i++) {
        if (strcmp(helpers[i].name, name))
            continue;
        strbuf *o = &e->unit.helpers;
        for (const char *p = helpers[i].text; *p;) {
            size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
            if (n == 1 && *p == 'T')
                strbuf_add(o, type);
            else if (n == 5 && !strncmp(p, "INDEX", 5))
                strbuf_add(o, gen_c_type(index));
            else if (n > 4 && p[0] == 'N' && p[1] == '_')
                strbuf_add(o, full);
            else
                strbuf_addn(o, p, MAX(n, (size_t)1));
            p += MAX(n, (size_t)1);
        }
    }
    return full;
}

/* --- steps
 * ---------------------------------------------------------------------------------------------------------------- */
static bool call_kernel(emit *e, const loop_kernel *k)
{
    strbuf key = { 0 };
    bool ok = true;
    if (sym_is_expr(k->par) || !sym_all_const(k->ints, k->nint))
        return err_set(e->c->err, ERR_notimpl, "kernel '%s' has symbolic sizes", k->name);
    vir_key(k->k, &key);
    const char *name = map_getn(&e->kernels, key.s, key.n);
    if (!name) {
        name = arena_printf(&e->mem, "%s_%s", e->name, k->name);
        gen_c_kernel(&e->unit, k->k, name);
        map_putn(&e->kernels, key.s, key.n, (void *)name);
    }
    strbuf_free(&key);
    if (k->par <= 0)
        return true;
    strbuf_addf(&e->body, "    %s((void *[]){ ", name);
    for (int i = 0; i < k->nbuf && ok; i++) {
        strbuf_add(&e->body, i ? ", (void *)" : "(void *)");
        ok = add_slot(e, &e->body, k->buf[i]);
    }
    strbuf_add(&e->body, " }, ");
    if (k->nint) {
        strbuf_add(&e->body, "(const int64_t[]){ ");
        for (int i = 0; i < k->nint; i++)
            strbuf_addf(&e->body, "%s%lld", i ? ", " : "", (long long)k->ints[i]);
        strbuf_add(&e->body, " }");
    } else
        strbuf_add(&e->body, "NULL");
    strbuf_addf(&e->body, ", NULL, 0, %lld);\n", (long long)k->par);
    return ok;
}

static bool add_at(emit *e, const ir_node *n, int64_t ahead) /* ", pointer + ahead" */
{
    strbuf_add(&e->body, ", ");
    bool ok = add_pointer(e, &e->body, n);
    if (ahead)
        strbuf_addf(&e->body, " + %lld", (long long)ahead);
    return ok;
}

/* One matrix of a product by BLAS: true where both strides suit it. */
static bool blas_order(const tp_tensor *t, int64_t rows, int64_t cols, bool *trans, int64_t *ld)
{
    int64_t r = t->stride[t->ndim - 2], c = t->stride[t->ndim - 1];
    *trans = c != 1;
    *ld = *trans ? c : r;
    return (*trans ? r == 1 && c >= MAX(rows, 1) : r >= MAX(cols, 1)) && *ld <= INT32_MAX;
}

static bool call_product(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const loop_slot *slot = &e->p->slot.at[s->slot];
    int first = n->op == OP_addmm;
    const ir_node *an = n->arg[first].node, *bn = n->arg[first + 1].node;
    const tp_tensor *o = slot->type, *a = ir_type(an), *b = ir_type(bn), *row = NULL;
    if (first && !slot->over)
        row = ir_type(n->arg[0].node);
    int d = o->ndim - 2;
    int64_t m = o->size[d], w = o->size[d + 1], k = a->size[d + 1], batch = d ? o->size[0] : 1, lda, ldb, ldc;
    dtype dt = (dtype)o->dt;
    bool ta, tb, tc, ok = true;
    bool blas = e->blas && !row && m && w && k && blas_order(a, m, k, &ta, &lda) &&
                blas_order(b, k, w, &tb, &ldb) && blas_order(o, m, w, &tc, &ldc) && !tc;
    const char *fn = blas ? NULL : helper(e, "product", dt, DT_none);
    for (int64_t i = 0; i < batch && ok; i++) {
        if (blas) {
            strbuf_addf(&e->body, "    cblas_%cgemm(CblasRowMajor, %s, %s, %lld, %lld, %lld, 1",
                        dt == DT_f32 ? 's' : 'd', ta ? "CblasTrans" : "CblasNoTrans",
                        tb ? "CblasTrans" : "CblasNoTrans", (long long)m, (long long)w, (long long)k);
            ok = add_at(e, an, d ? i * a->stride[0] : 0);
            strbuf_addf(&e->body, ", %lld", (long long)lda);
            ok = ok && add_at(e, bn, d ? i * b->stride[0] : 0);
            strbuf_addf(&e->body, ", %lld, %d, ", (long long)ldb, slot->over ? 1 : 0);
            ok = ok && add_slot(e, &e->body, s->slot);
            strbuf_addf(&e->body, " + %lld, %lld);\n", (long long)(d ? i * o->stride[0] : 0), (long long)ldc);
            continue;
        }
        strbuf_addf(&e->body, "    %s(%lld, %lld, %lld", fn, (long long)m, (long long)w, (long long)k);
        ok = add_at(e, an, d ? i * a->stride[0] : 0);
        strbuf_addf(&e->body, ", %lld, %lld", (long long)a->stride[d], (long long)a->stride[d + 1]);
        ok = ok && add_at(e, bn, d ? i * b->stride[0] : 0);
        strbuf_addf(&e->body, ", %lld, %lld, ", (long long)b->stride[d], (long long)b->stride[d + 1]);
        ok = ok && add_slot(e, &e->body, s->slot);
        strbuf_addf(&e->body, " + %lld, %lld, %lld, %d", (long long)(d ? i * o->stride[0] : 0),
                    (long long)o->stride[d], (long long)o->stride[d + 1], slot->over ? 1 : 0);
        if (row) {
            ok = ok && add_at(e, n->arg[0].node, 0);
            strbuf_addf(&e->body, ", %lld);\n", (long long)row->stride[0]);
        } else
            strbuf_add(&e->body, ", NULL, 0);\n");
    }
    return ok;
}

static void add_list(strbuf *b, const symint *v, int n, bool more)
{
    for (int i = 0; i < n; i++)
        strbuf_addf(b, "%lld%s", (long long)v[i], i + 1 < n || more ? ", " : "");
}

/* Sizes and strides of four dimensions; three of them have a first (images) or third one (signals) of size 1. */
static void add_four(strbuf *b, const tp_tensor *t, bool signal)
{
    symint size[4], stride[4];
    for (int d = 0, k = 0; d < 4; d++) {
        bool made = t->ndim == 3 && d == (signal ? 2 : 0);
        size[d] = made ? 1 : t->size[k];
        stride[d] = made ? 0 : t->stride[k];
        k += !made;
    }
    add_list(b, size, 4, true);
    add_list(b, stride, 4, true);
}

static void add_pair(strbuf *b, const tp_val *v, int64_t def, bool signal, bool more)
{
    symint two[2] = { def, def };
    if (v->kind == VAL_ints && v->n == 1 && signal)
        two[1] = v->ints[0];
    else if (v->kind == VAL_ints && v->n == 1)
        two[0] = two[1] = v->ints[0];
    else if (v->kind == VAL_ints && v->n == 2) {
        two[0] = v->ints[0];
        two[1] = v->ints[1];
    }
    add_list(b, two, 2, more);
}

static bool plain_float(const tp_tensor *t) { return t && (t->dt == DT_f32 || t->dt == DT_f64); }

static bool call_conv(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node), *f = ir_type(n->arg[1].node), *y = ir_type(n);
    const ir_node *bias = n->arg[2].kind == VAL_node ? n->arg[2].node : NULL;
    bool signal = f->ndim == 3, ok;
    if (!plain_float(y) || f->ndim < 3 || f->ndim > 4 || x->ndim != f->ndim || n->arg[6].b ||
        (bias && ir_type(bias)->stride[0] != 1 && ir_type(bias)->size[0] != 1))
        return cannot(
            e, n, "only one- and two-dimensional convolutions of float32 and float64 are, none transposed");
    strbuf *b = &e->body;
    strbuf_addf(b, "    %s((const int64_t[]){ ", helper(e, "conv", (dtype)y->dt, DT_none));
    add_four(b, x, signal);
    add_four(b, f, signal);
    add_four(b, y, signal);
    add_pair(b, &n->arg[3], 1, signal, true);
    add_pair(b, &n->arg[4], 0, signal, true);
    add_pair(b, &n->arg[5], 1, signal, true);
    strbuf_addf(b, "%lld }", (long long)n->arg[8].i);
    ok = add_at(e, n->arg[0].node, 0) && add_at(e, n->arg[1].node, 0);
    if (ok && bias)
        ok = add_at(e, bias, 0);
    else
        strbuf_add(b, ", NULL");
    strbuf_add(b, ", ");
    ok = ok && add_slot(e, b, s->slot);
    strbuf_add(b, ");\n");
    return ok;
}

/* The slot of result `which` of a call with several, or -1 where nobody asks for it. */
static int item_slot(emit *e, int of, int64_t which)
{
    for (size_t i = 0; i < e->p->slot.n; i++) {
        const loop_slot *s = &e->p->slot.at[i];
        if (s->kind == SLOT_extern && s->index == of && s->node->kind == IR_getitem &&
            s->node->arg[1].i == which)
            return (int)i;
    }
    return -1;
}

static bool call_maxpool(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node);
    int y = item_slot(e, s->slot, 0), at = item_slot(e, s->slot, 1);
    bool ok;
    if (y < 0 || !plain_float(x))
        return cannot(e, n, "only that of float32 and float64 is, with its maxima used");
    const tp_tensor *t = e->p->slot.at[y].type;
    strbuf *b = &e->body;
    strbuf_addf(b, "    %s((const int64_t[]){ ", helper(e, "maxpool", (dtype)x->dt, DT_none));
    add_four(b, x, false);
    add_four(b, t, false);
    add_pair(b, &n->arg[1], 1, false, true);
    add_pair(b, n->arg[2].kind == VAL_ints && n->arg[2].n ? &n->arg[2] : &n->arg[1], 1, false, true);
    add_pair(b, &n->arg[3], 0, false, true);
    add_pair(b, &n->arg[4], 1, false, false);
    strbuf_add(b, " }");
    ok = add_at(e, n->arg[0].node, 0);
    strbuf_add(b, ", ");
    ok = ok && add_slot(e, b, y);
    strbuf_add(b, ", ");
    if (at >= 0)
        ok = ok && add_slot(e, b, at);
    else
        strbuf_add(b, "NULL");
    strbuf_add(b, ");\n");
    return ok;
}

static bool call_upsample(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    bool ok;
    double step[2];
    if (!plain_float(x) || x->ndim != 4)
        return cannot(e, n, "only that of float32 and float64 is");
    for (int i = 0; i < 2; i++)
        step[i] = n->narg > 2 + i && n->arg[2 + i].kind == VAL_float && n->arg[2 + i].f > 0
                      ? 1.0 / n->arg[2 + i].f
                      : (double)x->size[2 + i] / (double)y->size[2 + i];
    strbuf *b = &e->body;
    strbuf_addf(b, "    %s((const int64_t[]){ ", helper(e, "upsample", (dtype)x->dt, DT_none));
    add_four(b, x, false);
    add_list(b, y->size, 4, true);
    add_list(b, y->stride, 4, false);
    strbuf_addf(b, " }, %.9ef, %.9ef", step[0], step[1]);
    ok = add_at(e, n->arg[0].node, 0);
    strbuf_add(b, ", ");
    ok = ok && add_slot(e, b, s->slot);
    strbuf_add(b, ");\n");
    return ok;
}

static bool call_select(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    bool embedding = n->op == OP_embedding;
    const ir_node *xn = n->arg[0].node, *in = n->arg[embedding ? 1 : 2].node;
    const tp_tensor *x = ir_type(xn), *at = ir_type(in), *y = ir_type(n);
    int64_t dim = embedding ? 0 : n->arg[1].i, before = 1, after = 1;
    bool ok;
    if (dim < 0)
        dim += x->ndim;
    if (!is_contiguous(x) || !is_contiguous(at) || !is_contiguous(y) ||
        (at->dt != DT_i64 && at->dt != DT_i32))
        return cannot(e, n, "its operands do not lie one element after the other");
    for (int d = 0; d < x->ndim; d++) {
        before *= d < dim ? x->size[d] : 1;
        after *= d > dim ? x->size[d] : 1;
    }
    strbuf *b = &e->body;
    strbuf_addf(b, "    bad |= %s(%lld, %lld, %lld", helper(e, "select", (dtype)x->dt, (dtype)at->dt),
                (long long)before, (long long)x->size[dim], (long long)after);
    ok = add_at(e, xn, 0) && add_at(e, in, 0);
    strbuf_addf(b, ", %lld, ", (long long)at->numel);
    ok = ok && add_slot(e, b, s->slot);
    strbuf_add(b, ");\n");
    return ok;
}

static bool copy(emit *e, const char *from, const tp_tensor *ft, const char *to, const tp_tensor *tt)
{
    strbuf *b = &e->body;
    if (!ft->numel)
        return true;
    if (is_contiguous(ft) && is_contiguous(tt)) {
        strbuf_addf(b, "    memcpy(%s, %s, %lld);\n", to, from,
                    (long long)(ft->numel * (int64_t)dtype_size((dtype)ft->dt)));
        return true;
    }
    symint row[TP_MAX_DIMS]; /* row-major of the same sizes: a reshape that copies reads in that order */
    int64_t s = 1;
    for (int d = ft->ndim - 1; d >= 0; d--) {
        row[d] = s;
        s *= ft->size[d];
    }
    strbuf_addf(b, "    %s(%d, (const int64_t[]){ ", helper(e, "copy", (dtype)ft->dt, DT_none), ft->ndim);
    add_list(b, ft->size, ft->ndim, false);
    strbuf_addf(b, "%s }, %s, (const int64_t[]){ ", ft->ndim ? "" : "0", from);
    add_list(b, ft->stride, ft->ndim, false);
    strbuf_addf(b, "%s }, %s, (const int64_t[]){ ", ft->ndim ? "" : "0", to);
    add_list(b, is_contiguous(tt) ? row : tt->stride, ft->ndim, false);
    strbuf_addf(b, "%s });\n", ft->ndim ? "" : "0");
    return true;
}

static bool call_library(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    if (n->kind != IR_call || n->variant != OPV_fn)
        return cannot(e, n, "it calls something outside the graph");
    switch (n->op) {
    case OP_convolution: return call_conv(e, s);
    case OP_max_pool2d_with_indices: return call_maxpool(e, s);
    case OP_upsample_nearest2d: return call_upsample(e, s);
    case OP_embedding:
    case OP_index_select: return call_select(e, s);
    default:
        return lists_views(n) || looked_at(n) ? true : cannot(e, n, "it runs as a library call of Taper");
    }
}

/* Nothing is read with an index that lies outside. */
static bool call_check(emit *e, const loop_step *s)
{
    const tp_tensor *x = e->p->slot.at[s->slot].type;
    loop_gather g;
    if (!x || !loop_gather_of(s->node, &g))
        return cannot(e, s->node, "its index is not known");
    int64_t size = ir_type(s->node->arg[0].node)->size[s->nslot];
    strbuf *b = &e->body;
    strbuf_addf(b, "    {\n        const %s *at = ", gen_c_type((dtype)x->dt));
    if (!add_slot(e, b, s->slot))
        return false;
    strbuf_add(b, ";\n");
    for (int d = 0; d < x->ndim; d++)
        strbuf_addf(b, "        for (int64_t i%d = 0; i%d < %lld; i%d++)\n", d, d, (long long)x->size[d], d);
    strbuf_add(b, "        {\n            const int64_t v = at[0");
    for (int d = 0; d < x->ndim; d++)
        strbuf_addf(b, " + i%d * %lld", d, (long long)x->stride[d]);
    strbuf_addf(b, "];\n            bad |= v < %lld || v >= %lld;\n        }\n    }\n",
                (long long)(g.wrap ? -size : 0), (long long)size);
    strbuf_add(b, "    if (bad) {\n        free(space);\n        return bad;\n    }\n");
    return true;
}

static bool steps(emit *e)
{
    for (size_t i = 0; i < e->p->step.n; i++) {
        const loop_step *s = &e->p->step.at[i];
        const ir_loc *loc = s->kind == STEP_kernel ? (s->kernel->nodes.n ? s->kernel->nodes.at[0]->loc : NULL)
                                                   : s->node->loc;
        if (loc && loc->code) { /* the user's line */
            strbuf_add(&e->body, "    /* ");
            for (const char *p = loc->code; *p; p++)
                strbuf_addc(&e->body,
                            (*p == '*' && p[1] == '/') || (unsigned char)*p < 32 || *p == '\\' ? ' ' : *p);
            strbuf_add(&e->body, " */\n");
        }
        if (!(s->kind == STEP_kernel                        ? call_kernel(e, s->kernel)
              : s->kind == STEP_check                       ? call_check(e, s)
              : s->product && s->node->op != OP_convolution ? call_product(e, s)
                                                            : call_library(e, s)))
            return false;
    }
    return true;
}

/* --- results
 * ------------------------------------------------------------------------------------------------------------------ */
static int result_slot(const emit *e, int index) { return e->p->out[index]; }

static void choose_direct(emit *e)
{
    for (int i = 0, k = 0; i < e->u->nout; i++) {
        const aot_out *o = &e->u->out[i];
        if (o->kind == AOT_number)
            continue;
        int s = o->kind == AOT_value ? result_slot(e, o->index) : -1;
        if (s >= 0 && e->p->slot.at[s].kind == SLOT_buffer && !e->p->slot.at[s].over && !e->direct[s] &&
            is_contiguous(e->p->slot.at[s].type))
            e->direct[s] = k + 1;
        k++;
    }
}

static void add_c_type(strbuf *b, const tp_tensor *t)
{
    strbuf_addf(b, "%s[", dtype_rows[t->dt].sname);
    add_list(b, t->size, t->ndim, false);
    strbuf_addc(b, ']');
}

static bool results(emit *e, const ir_graph *g, strbuf *about)
{
    for (int i = 0, k = 0; i < e->u->nout; i++) {
        const aot_out *o = &e->u->out[i];
        strbuf from = { 0 };
        char to[32];
        const tp_tensor *t = NULL;
        bool ok = true;
        if (o->kind == AOT_number) {
            if (o->num.kind != VAL_none)
                return err_set(e->c->err, ERR_notimpl,
                               "result %d is a number: only tensors can be returned from C", i);
            continue;
        }
        snprintf(to, sizeof to, "out%d", k);
        int s = o->kind == AOT_value || o->kind == AOT_result_view ? result_slot(e, o->index) : -1;
        if (o->kind == AOT_value && s >= 0) {
            t = e->p->slot.at[s].type;
            ok = add_slot(e, &from, s);
        } else if (o->kind == AOT_input) {
            t = ir_type(g->inputs.at[o->index]);
            strbuf_addf(&from, "in%d", o->index);
        } else if (o->type) {
            const tp_tensor *as = o->kind == AOT_view ? ir_type(g->inputs.at[o->index])
                                  : s >= 0            ? e->p->slot.at[s].type
                                                      : NULL;
            t = o->type;
            if (o->kind == AOT_view)
                strbuf_addf(&from, "in%d", o->index);
            else
                ok = s >= 0 && add_slot(e, &from, s);
            if (ok && as && is_fixed(t))
                strbuf_addf(&from, " + %lld", (long long)(t->offset - as->offset));
        }
        if (!ok || !is_fixed(t)) {
            strbuf_free(&from);
            return err_is_set(e->c->err)
                       ? false
                       : err_set(e->c->err, ERR_notimpl, "result %d has no fixed layout", i);
        }
        tp_tensor *row = tensor_new_fake((dtype)t->dt, t->ndim, t->size, NULL, DEVICE_CPU);
        if (!(s >= 0 && o->kind == AOT_value && e->direct[s] == k + 1))
            copy(e, strbuf_str(&from), t, to, row);
        strbuf_addf(&e->proto, "%s%s *out%d", e->proto.n ? ", " : "", gen_c_type((dtype)t->dt), k);
        strbuf_addf(about, " *   out%d: ", k);
        add_c_type(about, t);
        strbuf_add(about, "\n");
        tensor_unref(row);
        strbuf_free(&from);
        k++;
    }
    return true;
}

static bool inputs(emit *e, const ir_graph *g, strbuf *about)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        const tp_tensor *t = ir_type(n);
        if (!t || !is_fixed(t))
            return err_set(
                e->c->err, ERR_notimpl,
                "input '%s' is not a tensor of fixed sizes: export with example inputs, not dynamic",
                n->name);
        if (!is_contiguous(t))
            return err_set(e->c->err, ERR_notimpl, "input '%s' does not lie one element after the other",
                           n->name);
        strbuf_addf(&e->proto, "%sconst %s *in%zu", e->proto.n ? ", " : "", gen_c_type((dtype)t->dt), i);
        strbuf_addf(about, " *   in%zu:  ", i);
        add_c_type(about, t);
        strbuf_addf(about, "  %s\n", n->name);
    }
    return true;
}

bool emit_c(tp_comp *c, const ir_graph *g, const char *name, bool blas, strbuf *text, strbuf *header)
{
    emit e = { .c = c, .name = name, .blas = blas };
    strbuf about = { 0 }, kernels = { 0 };
    bool ok = false, *needs = mem_zalloc(g->inputs.n + 1);
    if (ir_has_unbacked(g)) {
        err_set(c->err, ERR_notimpl, "the graph has sizes that only its run decides");
        goto done;
    }
    if (!inputs(&e, g, &about))
        goto done;
    c->portable = true;
    e.u = aot_trace(c, g, needs, false, AOT_decompose | AOT_min_cut, NULL);
    e.p = e.u ? loop_plan_new(c, e.u->fw) : NULL;
    if (!e.p)
        goto done;
    if (e.u->nmut) {
        err_set(c->err, ERR_notimpl, "the graph writes to its inputs");
        goto done;
    }
    e.offset = arena_zalloc(&e.mem, sizeof *e.offset * MAX(e.p->slot.n, (size_t)1));
    e.direct = arena_zalloc(&e.mem, sizeof *e.direct * MAX(e.p->slot.n, (size_t)1));
    choose_direct(&e);
    place(&e);
    if (!weights(&e) || !steps(&e) || !results(&e, g, &about))
        goto done;
    gen_c_text(&e.unit, &kernels);
    strbuf_addf(text,
                "/* %s: a graph that needs nothing but this file. Build with\n *   cc -O2 -ffp-contract=off "
                "-fno-strict-aliasing -fwrapv -c FILE.c, and link with -lm%s\n%s */\n",
                name, blas ? " and a BLAS (-lblas or -lopenblas)" : "", strbuf_str(&about));
    strbuf_addf(text, "#include <stdlib.h>\n%s%s\n%s", blas ? "#include <cblas.h>\n" : "",
                strbuf_str(&kernels), strbuf_str(&e.data));
    strbuf_addf(text,
                "\n/* 0: done; 1: an index was out of range; 2: no memory. May be called by several threads "
                "at once. */\n"
                "int %s(%s)\n{\n    int bad = 0;\n    char *space = malloc(%lld);\n    if (!space)\n        "
                "return 2;\n"
                "%s    free(space);\n    return bad;\n}\n",
                name, e.proto.n ? strbuf_str(&e.proto) : "void", (long long)MAX(e.space, 1),
                strbuf_str(&e.body));
    strbuf_addf(
        header,
        "/* %s: generated by Taper. Memory is the caller's, elements in row-major order:\n%s */\n"
        "#ifndef TAPER_EXPORT_%s\n#define TAPER_EXPORT_%s\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern "
        "\"C\" {\n#endif\n/* 0: done; 1: an index was out of range; 2: no memory. */\nint %s(%s);\n#ifdef "
        "__cplusplus\n}\n#endif\n#endif\n",
        name, strbuf_str(&about), name, name, name, e.proto.n ? strbuf_str(&e.proto) : "void");
    ok = true;
done:
    free(needs);
    gen_c_free(&e.unit);
    strbuf_free(&e.data);
    strbuf_free(&e.body);
    strbuf_free(&e.proto);
    strbuf_free(&about);
    strbuf_free(&kernels);
    map_free(&e.kernels);
    map_free(&e.helpers);
    arena_free(&e.mem);
    loop_plan_free(e.p);
    aot_unit_free(e.u);
    return ok;
}
