/* eager_sizes.c - see eager_sizes.h. */
#include "compile/eager_sizes.h"
#include "tensor/tensor.h"

static void put(sizes *s, int64_t v)
{
    if (s->n == SIZES_MOST || s->n < 0)
        s->n = -1;
    else
        s->at[s->n++] = v;
}

void sizes_of(sizes *s, tp_tensor *const *t, int nt, const tp_val *arg, int narg)
{
    s->n = 0;
    for (int i = 0; i < nt; i++)
        for (int d = 0; d < t[i]->ndim; d++)
            put(s, t[i]->size[d]);
    for (int i = 0; !nt && i < narg; i++) {
        if (arg[i].kind == VAL_int)
            put(s, arg[i].i);
        for (int k = 0; arg[i].kind == VAL_ints && k < arg[i].n; k++)
            put(s, arg[i].ints[k]);
    }
}

bool sizes_learn(sizes_seen *seen, const sizes *s)
{
    if (s->n != seen->first.n)
        return false;
    for (int i = 0; i < s->n; i++)
        if (s->at[i] != seen->first.at[i])
            seen->move |= (uint64_t)1 << i;
    return seen->move != 0;
}

static bool moves(uint64_t move, const sizes *s, int i) { return move >> i & 1 && s->at[i] > 1; }

void sizes_name(sizes_names *x, const sizes *s, uint64_t move)
{
    *x = (sizes_names){ .env = sym_env_new(NULL) };
    for (int i = 0; i < s->n; i++)
        x->name[i] = moves(move, s, i) ? sym_env_size(x->env, s->at[i], "size", SYM_duck) : s->at[i];
    x->nsym = sym_env_n_symbols(x->env);
}

bool sizes_named(sizes_names *x)
{
    if (err_is_set(sym_env_err(x->env)) || sym_env_n_symbols(x->env) != x->nsym)
        return false;
    const sym_assumed *a = sym_env_guards(x->env, &x->nholds);
    symint *cond = mem_alloc(sizeof *cond * (size_t)(x->nholds + 1));
    for (int i = 0; i < x->nholds; i++)
        cond[i] = a[i].cond;
    x->holds = x->nholds ? sym_prog_new(cond, x->nholds) : NULL;
    free(cond);
    return !x->nholds || x->holds;
}

bool sizes_hold(const sizes_names *x, const sizes *s)
{
    int64_t value[SIZES_MOST], yes[64];
    if (!x->holds)
        return true;
    if (x->nholds > (int)COUNT(yes))
        return false;
    for (int i = 0; i < s->n; i++)
        if (sym_is_symbol(x->name[i]))
            value[sym_index(x->name[i])] = s->at[i];
    if (!sym_prog_run(x->holds, value, yes))
        return false;
    for (int i = 0; i < x->nholds; i++)
        if (!yes[i])
            return false;
    return true;
}

void sizes_names_free(sizes_names *x)
{
    sym_prog_free(x->holds);
    sym_env_free(x->env);
}

/* --- strides: those of a dimension that begins where another ends follow from its size ----------------------------- */
enum { ALONE = -1 };
static int inner_of(const tp_tensor *t, int d)
{
    for (int k = t->ndim - 1; k >= 0; k--)
        if (k != d && t->size[k] > 1 && t->stride[k] > 0 && t->stride[k] < t->stride[d] &&
            t->stride[d] == t->size[k] * t->stride[k])
            return k;
    return ALONE;
}

static symint stride_name(const sizes_names *x, const tp_tensor *t, int at, int d)
{
    int k = inner_of(t, d);
    return k == ALONE ? t->stride[d] : sym_mul(x->name[at + k], stride_name(x, t, at, k));
}

static void key_int(strbuf *b, int64_t v) { strbuf_addn(b, (const char *)&v, sizeof v); }

void sizes_key(strbuf *key, const sizes *s, uint64_t move, tp_tensor *const *t, int nt)
{
    key_int(key, (int64_t)move);
    for (int i = 0; i < s->n; i++) {
        int same = i;
        for (int k = 0; k < i && same == i; k++)
            if (moves(move, s, k) && s->at[k] == s->at[i])
                same = k;
        key_int(key, moves(move, s, i) ? ~(int64_t)same : s->at[i]);
    }
    for (int i = 0; i < nt; i++)
        for (int d = 0; d < t[i]->ndim; d++) {
            int k = inner_of(t[i], d);
            key_int(key, k == ALONE ? t[i]->stride[d] : ~(int64_t)k);
        }
}

tp_tensor *sizes_type(const sizes_names *x, const sizes *s, tp_tensor *const *t, int k)
{
    symint stride[TP_MAX_DIMS];
    int at = 0;
    for (int i = 0; i < k; i++)
        at += t[i]->ndim;
    for (int d = 0; d < t[k]->ndim; d++)
        stride[d] = stride_name(x, t[k], at, d);
    return tensor_new_fake((dtype)t[k]->dt, t[k]->ndim, x->name + at, stride, tensor_device(t[k]));
}
