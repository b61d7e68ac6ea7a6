/* custom.c - the list of custom operators, and calls of them. */
#include "ops/custom.h"
#include "base/arena.h"
#include "base/map.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map by_name;
static VEC(op_custom *) all;
static arena mem; /* rows live as long as the process: graphs may point at them */

/* ---- schema ---- */
static const char *skip(const char *p)
{
    while (*p == ' ')
        p++;
    return p;
}

static bool schema_read(op_custom *o, tp_err *err)
{
    const char *p = strchr(o->schema, '('), *names[CUSTOM_MAX_ARGS];
    int n = 0;
    if (!p || !strstr(o->schema, "::") || strstr(o->schema, "::") > p)
        return err_set(err, ERR_value, "'%.80s': a schema reads namespace::name(Tensor x, ...) -> Tensor",
                       o->schema);
    o->name = arena_strndup(&mem, o->schema, (size_t)(p - o->schema));
    for (p = skip(p + 1); *p && *p != ')'; p = skip(p + (*p == ','))) {
        if (*p == '*' && (p[1] == ',' || p[1] == ' ')) {
            p++;
            continue;
        }
        const char *type = p;
        int depth = 0;
        while (*p && (depth || (*p != ',' && *p != ')')))
            depth += (*p == '(' || *p == '[') - (*p == ')' || *p == ']'), p++;
        const char *end = p, *eq = memchr(type, '=', (size_t)(end - type));
        if (eq)
            end = eq;
        while (end > type && end[-1] == ' ')
            end--;
        const char *name = end;
        while (name > type && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
            name--;
        if (name == type || name == end || n >= CUSTOM_MAX_ARGS)
            return err_set(err, ERR_value, "'%.80s': %s", o->schema,
                           n >= CUSTOM_MAX_ARGS ? "too many parameters" : "a type and a name were expected");
        names[n] = arena_strndup(&mem, name, (size_t)(end - name));
        if (!strncmp(type, "Tensor", 6))
            o->tensors |= 1u << n;
        if (memchr(type, '!', (size_t)(name - type)))
            o->mutated |= 1u << n;
        n++;
    }
    o->narg = n;
    o->names = arena_dup(&mem, names, sizeof *names * (size_t)MAX(n, 1));
    if (*p != ')' || strncmp(p = skip(p + 1), "->", 2))
        return err_set(err, ERR_value, "'%.80s': ') -> ' was expected after the parameters", o->schema);
    p = skip(p + 2);
    if (*p == '(') {
        for (const char *q = skip(p + 1); *q && *q != ')'; q++)
            o->nret += q == skip(p + 1) || *q == ',';
    } else {
        o->nret = 1;
        o->ret_list = !strncmp(p, "Tensor[]", 8);
    }
    return true;
}

bool custom_register(const op_custom *row, tp_err *err)
{
    pthread_mutex_lock(&lock);
    op_custom *o = ARENA_NEW(&mem, op_custom);
    *o = *row;
    o->schema = arena_strdup(&mem, row->schema);
    o->needs = row->needs ? arena_strdup(&mem, row->needs) : NULL;
    bool ok = schema_read(o, err);
    if (ok && !o->kernel)
        ok = err_set(err, ERR_value, "'%s' has no kernel", o->name);
    if (ok) {
        op_custom *old = map_get(&by_name, o->name);
        if (old)
            for (size_t i = 0; i < all.n; i++)
                all.at[i] = all.at[i] == old ? o : all.at[i];
        else
            vec_push(&all, o);
        map_put(&by_name, o->name, o);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

const op_custom *custom_at(int i)
{
    pthread_mutex_lock(&lock);
    const op_custom *o = (size_t)i < all.n ? all.at[i] : NULL;
    pthread_mutex_unlock(&lock);
    return o;
}

static const op_custom *look_up(const char *name, size_t n)
{
    pthread_mutex_lock(&lock);
    const op_custom *o = map_getn(&by_name, name, n);
    pthread_mutex_unlock(&lock);
    return o;
}

const op_custom *custom_find(const char *target, custom_form *form)
{
    char name[256];
    custom_form f = CUSTOM_call;
    const char *dot;
    if (strstr(target, "::"))
        snprintf(name, sizeof name, "%s", target);
    else {
        if (strncmp(target, "ops.", 4) || !(dot = strchr(target + 4, '.')))
            return NULL;
        snprintf(name, sizeof name, "%.*s::%s", (int)(dot - target - 4), target + 4, dot + 1);
    }
    static const struct {
        const char *tail;
        custom_form form;
    } tails[] = { { ".functional", CUSTOM_functional },
                  { ".backward", CUSTOM_backward },
                  { ".default", CUSTOM_call } };
    size_t n = strlen(name);
    for (size_t i = 0; i < COUNT(tails); i++) {
        size_t k = strlen(tails[i].tail);
        if (n > k && !strcmp(name + n - k, tails[i].tail)) {
            n -= k;
            f = tails[i].form;
            break;
        }
    }
    if (form)
        *form = f;
    return look_up(name, n);
}

bool custom_is_pure(const char *target)
{
    custom_form f;
    const op_custom *o = custom_find(target, &f);
    return o && !o->effects && (f != CUSTOM_call || !o->mutated) && (f != CUSTOM_call || o->nret);
}

bool custom_is_late(const char *target)
{
    custom_form f;
    const op_custom *o = custom_find(target, &f);
    return o && o->late && f == CUSTOM_call;
}

/* ---- calls ---- */
static tp_tensor *copy_of(tp_tensor *t, tp_err *err)
{
    tp_tensor *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size,
                                      tensor_overlaps_itself(t) ? NULL : t->stride, tensor_device(t), err);
    if (c && !tensor_copy(c, t, err)) {
        tensor_unref(c);
        c = NULL;
    }
    return c;
}

static bool shares(const tp_tensor *t, const tp_val *arg, int narg)
{
    for (int i = 0; i < narg; i++) {
        if (arg[i].kind == VAL_tensor && arg[i].t->storage == t->storage)
            return true;
        for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
            if (arg[i].ts[k] && arg[i].ts[k]->storage == t->storage)
                return true;
    }
    return false;
}

static bool own_memory(tp_tensor **t, const tp_val *arg, int narg, tp_err *err)
{
    if (!*t || !shares(*t, arg, narg))
        return true;
    tp_tensor *c = copy_of(*t, err);
    tensor_unref(*t);
    *t = c;
    return c != NULL;
}

static bool call(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    if (narg != o->narg)
        return err_set(err, ERR_type, "'%s' takes %d arguments but %d were given", o->name, o->narg, narg);
    if (!o->kernel(o, arg, narg, out, err))
        return err_note(err, "in custom operator '%s'", o->name);
    if (out->kind == VAL_tensor)
        return own_memory(&out->t, arg, narg, err);
    for (int i = 0; out->kind == VAL_tensors && i < out->n; i++)
        if (!own_memory(&out->ts[i], arg, narg, err))
            return false;
    return true;
}

static bool functional(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    tp_val a[CUSTOM_MAX_ARGS] = { { 0 } }, got = vNone;
    VEC(tp_tensor *) res = { 0 };
    bool ok = narg <= CUSTOM_MAX_ARGS;
    int first = 0;
    for (int i = 0; ok && i < narg; i++) {
        a[i] = arg[i];
        if (!(o->mutated >> i & 1) || arg[i].kind != VAL_tensor)
            continue;
        tp_tensor *c = copy_of(arg[i].t, err);
        if ((ok = c != NULL)) {
            a[i] = vT(c);
            vec_push(&res, c);
        }
    }
    ok = ok && call(o, a, narg, &got, err);
    if (ok) {
        int n = got.kind == VAL_tensor ? 1 : got.kind == VAL_tensors ? got.n : 0;
        tp_tensor **ts = mem_zalloc(sizeof *ts * (n + res.n + 1));
        for (; first < n; first++)
            ts[first] = got.kind == VAL_tensor ? tensor_ref(got.t)
                        : got.ts[first]        ? tensor_ref(got.ts[first])
                                               : NULL;
        for (size_t i = 0; i < res.n; i++)
            ts[n + i] = tensor_ref(res.at[i]);
        *out = vTs(ts, n + (int)res.n);
    }
    val_clear(&got);
    for (size_t i = 0; i < res.n; i++)
        tensor_unref(res.at[i]);
    vec_free(&res);
    return ok;
}

static bool backward(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    tp_val got = vNone;
    if (!o->backward)
        return err_set(err, ERR_notimpl, "'%s' has no derivative", o->name);
    if (!o->backward(o, arg, narg, &got, err))
        return err_note(err, "in the derivative of custom operator '%s'", o->name);
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)(o->narg + 1));
    int n = 0;
    bool ok = true;
    for (int i = 0; i < o->narg && i < narg; i++) {
        if (arg[i].kind != VAL_tensor || !dtype_has_grad((dtype)arg[i].t->dt))
            continue;
        tp_tensor *g = got.kind == VAL_tensors && i < got.n ? got.ts[i] : NULL;
        if (g)
            tensor_ref(g);
        else {
            tp_tensor *zero = tensor_scalar((dtype)arg[i].t->dt, 0, 0, err);
            g = tensor_new((dtype)arg[i].t->dt, arg[i].t->ndim, arg[i].t->size, err);
            ok = ok && g && zero && tensor_copy(g, zero, err);
            tensor_unref(zero);
        }
        ts[n++] = g;
    }
    val_clear(&got);
    *out = vTs(ts, n);
    if (!ok)
        val_clear(out);
    return ok;
}

bool custom_run(const char *target, const char *needs, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    custom_form form;
    const op_custom *o = custom_find(target, &form);
    if (!o)
        return err_set(err, ERR_runtime,
                       "'%s' is a custom operator that is not registered in this process%s%s: load what "
                       "registers it first",
                       target, needs ? "; it is registered by " : "", needs ? needs : "");
    switch (form) {
    case CUSTOM_functional: return functional(o, arg, narg, out, err);
    case CUSTOM_backward: return backward(o, arg, narg, out, err);
    default: return call(o, arg, narg, out, err);
    }
}
