/* test_op_table.c - walks the op table: what a shape rule says is what the eager kernel returns, for many
 * layouts, and wrong arguments fail with the same message in both. Arguments are drawn from the schema. Each
 * row runs in a child, so that a crash is one row's failure. TAPER_OP_TABLE=1 lists the rows for which no
 * valid call was found. */
#include "ir/graph.h"
#include "test.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_LAYOUT = 12, TRIALS = 40 };

static uint32_t draw(uint32_t *s, uint32_t n) /* 0 .. n-1 */
{
    *s = *s * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*s >> 4) * n) >> 28);
}

/* ---- inputs ---- */
typedef struct layout {
    int ndim;
    symint size[5], stride[5], offset;
} layout;
static const layout layouts[N_LAYOUT] = {
    { 2, { 2, 3 }, { 3, 1 }, 0 },               /* contiguous */
    { 2, { 2, 3 }, { 1, 2 }, 0 },               /* transposed */
    { 2, { 2, 3 }, { 12, 2 }, 1 },              /* sliced */
    { 2, { 2, 3 }, { 0, 1 }, 0 },               /* expanded */
    { 4, { 2, 3, 4, 5 }, { 60, 1, 15, 3 }, 0 }, /* channels-last */
    { 4, { 2, 3, 4, 5 }, { 60, 20, 5, 1 }, 0 },
    { 2, { 0, 3 }, { 3, 1 }, 0 }, /* zero-size */
    { 0, { 0 }, { 0 }, 0 },       /* 0-dim */
    { 1, { 6 }, { 1 }, 0 },
    { 3, { 2, 3, 4 }, { 12, 4, 1 }, 0 },
    { 3, { 2, 3, 4 }, { 1, 2, 6 }, 3 }, /* reversed, with an offset */
    { 2, { 3, 3 }, { 3, 1 }, 0 },       /* square */
};

static tp_tensor *make(const layout *l, dtype dt, uint32_t *seed)
{
    symint bytes;
    shape_storage_bytes(dt, l->ndim, l->size, l->stride, l->offset, &bytes, NULL);
    tp_storage *s = storage_new(bytes, DEVICE_CPU, NULL);
    for (symint i = 0; i < bytes / (symint)dtype_size(dt); i++) {
        char *p = (char *)s->data + (size_t)i * dtype_size(dt);
        dtype_is_float(dt) ? elem_set_f(dt, p, 0.1 + 0.1 * draw(seed, 8))
                           : elem_set_i(dt, p, dt == DT_bool ? draw(seed, 2) : 1);
    }
    tp_tensor *t = tensor_on(s, dt, l->ndim, l->size, l->stride, l->offset);
    storage_unref(s);
    return t;
}

/* Later tensors: like the first, or of a shape that suits it. */
static layout other(const layout *first, uint32_t how)
{
    layout l = *first, r = { 0 };
    int n = l.ndim;
    switch (how) {
    case 0: return l;
    case 1: return r; /* 0-dim */
    case 2:           /* its transpose */
        if (n >= 2) {
            symint a = l.size[n - 1], b = l.stride[n - 1];
            l.size[n - 1] = l.size[n - 2], l.stride[n - 1] = l.stride[n - 2];
            l.size[n - 2] = a, l.stride[n - 2] = b;
        }
        return l;
    case 3: /* a vector as long as its last, or second, dimension */
    case 4:
        r.ndim = 1;
        r.size[0] = n ? l.size[how == 3 || n < 2 ? n - 1 : 1] : 1;
        r.stride[0] = 1;
        return r;
    default: /* contiguous, of the same shape */
        shape_contiguous_strides(n, l.size, l.stride);
        l.offset = 0;
        return l;
    }
}

typedef struct trial {
    tp_val arg[OP_MAX_PARAMS];
    tp_tensor *list[4];
    symint ints[6];
    double floats[4];
    bool bools[4];
    VEC(tp_tensor *) own;
} trial;

static dtype draw_dtype(uint32_t *s)
{
    static const dtype some[] = { DT_f32, DT_f32,  DT_f32, DT_f64,  DT_i64,
                                  DT_i32, DT_bool, DT_f16, DT_bf16, DT_u8 };
    return some[draw(s, COUNT(some))];
}

static tp_tensor *add_tensor(trial *t, const layout *l, dtype dt, uint32_t *s)
{
    tp_tensor *x = make(l, dt, s);
    vec_push(&t->own, x);
    return x;
}

/* The same seed draws the same arguments: once for the fake call, once for the real one. */
static bool draw_args(const op_row *r, trial *t, const layout *l, uint32_t seed)
{
    static const symint some_ints[] = { 0, 1, -1, 2, 3, 5, -2, 7 };
    static const double some_floats[] = { 0.5, 1, 0, 2, -1.5, 1e-5 };
    uint32_t s = seed;
    dtype common = draw_dtype(&s);
    bool mixed = draw(&s, 3) == 0;
    int nt = 0;

    for (int i = 0; i < r->schema.nparam; i++) {
        const op_param *p = &r->schema.param[i];
        tp_val *v = &t->arg[i];
        dtype dt = mixed ? draw_dtype(&s) : common;
        *v = vNone;
        if (p->has_default && draw(&s, 3) && p->type != PT_tensor) {
            *v = p->def;
            continue;
        }
        if ((p->optional || p->type == PT_gen) && draw(&s, 2))
            continue;
        switch (p->type) {
        case PT_tensor: {
            layout o = nt ? other(l, draw(&s, 6)) : *l;
            if (nt && (r->flags & OPF_NUM) && draw(&s, 5) == 0)
                *v = draw(&s, 2) ? vI(3) : vF(1.5);
            else
                *v = vT(add_tensor(t, &o, nt && draw(&s, 6) == 0 ? DT_i64 : dt, &s));
            nt++;
            break;
        }
        case PT_tensors: {
            int n = 1 + (int)draw(&s, 3);
            for (int k = 0; k < n; k++) {
                layout o = other(l, draw(&s, 4) ? 0 : 5);
                t->list[k] = add_tensor(t, &o, dt, &s);
            }
            *v = vTs(t->list, n);
            nt++;
            break;
        }
        case PT_scalar:
            *v = draw(&s, 2) ? vI(some_ints[draw(&s, 5)]) : vF(some_floats[draw(&s, COUNT(some_floats))]);
            break;
        case PT_int: *v = vI(some_ints[draw(&s, COUNT(some_ints))]); break;
        case PT_float: *v = vF(some_floats[draw(&s, COUNT(some_floats))]); break;
        case PT_bool: *v = vB(draw(&s, 2)); break;
        case PT_dtype: *v = vDT(draw_dtype(&s)); break;
        case PT_device: *v = vDev(DEVICE_CPU); break;
        case PT_memfmt: *v = vMF(draw(&s, 3)); break;
        case PT_layout: *v = (tp_val){ .kind = VAL_layout }; break;
        case PT_ints: {
            int n = p->list_n > 1 ? p->list_n : (int)draw(&s, (uint32_t)l->ndim + 2);
            uint32_t how = draw(&s, 4);
            for (int k = 0; k < n && k < 6; k++)
                t->ints[k] = how == 0 && k < l->ndim   ? l->size[k]
                             : how == 1                ? k
                             : how == 2 && k < l->ndim ? l->size[l->ndim - 1 - k]
                                                       : some_ints[draw(&s, 5)];
            *v = vIs(t->ints, MIN(n, 6)); /* lists of one call may share: both calls see the same */
            break;
        }
        case PT_floats:
            for (int k = 0; k < 2; k++)
                t->floats[k] = some_floats[draw(&s, 4)];
            *v = vFs(t->floats, 2);
            break;
        case PT_bools:
            for (int k = 0; k < 3; k++)
                t->bools[k] = draw(&s, 2);
            *v = (tp_val){ .kind = VAL_bools, .n = 3, .bools = t->bools };
            break;
        case PT_str: *v = p->has_default ? p->def : vNone; break;
        default: break;
        }
        if (v->kind == VAL_none && !p->optional && p->type != PT_gen)
            return false; /* no value of this type to try */
        if (!ir_check_arg(r, i, v, NULL))
            return false;
    }
    return true;
}

static void end_trial(trial *t)
{
    for (size_t i = 0; i < t->own.n; i++)
        tensor_unref(t->own.at[i]);
    vec_free(&t->own);
}

static void make_fake(trial *t)
{
    for (size_t i = 0; i < t->own.n; i++) {
        tp_tensor *f = tensor_fake_of(t->own.at[i]), *old = t->own.at[i];
        for (int k = 0; k < OP_MAX_PARAMS; k++)
            if (t->arg[k].kind == VAL_tensor && t->arg[k].t == old)
                t->arg[k].t = f;
        for (int k = 0; k < 4; k++)
            if (t->list[k] == old)
                t->list[k] = f;
        tensor_unref(old);
        t->own.at[i] = f;
    }
}

/* ---- comparing ---- */
static int aliased(const trial *t, const tp_tensor *x) /* which argument tensor shares its storage, or -1 */
{
    for (size_t i = 0; x && i < t->own.n; i++)
        if (t->own.at[i]->storage == x->storage)
            return (int)i;
    return -1;
}

static void describe(strbuf *b, const op_row *r, op_variant v, const trial *t)
{
    strbuf_addf(b, "%s%s(", r->full, v == OPV_inplace ? " in place" : "");
    for (int i = 0; i < r->schema.nparam; i++) {
        strbuf_add(b, i ? ", " : "");
        ir_val_print(b, &t->arg[i], 0);
    }
    strbuf_addc(b, ')');
}

static bool same_tensor(strbuf *why, const tp_tensor *f, const tp_tensor *x, int af, int ax)
{
    tp_val vf = vT((tp_tensor *)f), vx = vT((tp_tensor *)x);
    bool strides = true;
    if (!f || !x) {
        if (f == x)
            return true;
        strbuf_add(why, "one of them has no result");
        return false;
    }
    for (int d = 0; f->ndim == x->ndim && d < f->ndim;
         d++) /* strides of dimensions of size 1 and 0 do not matter */
        strides &= f->size[d] == x->size[d] &&
                   (f->stride[d] == x->stride[d] || x->numel == 0 || x->size[d] == 1);
    if (f->dt == x->dt && f->ndim == x->ndim && strides && af == ax && (af < 0 || f->offset == x->offset))
        return true;
    strbuf_add(why, "the shape rule says ");
    ir_type_print(why, &vf);
    strbuf_addf(why, " sharing argument %d at %lld, but the kernel gives ", af, (long long)f->offset);
    ir_type_print(why, &vx);
    strbuf_addf(why, " sharing %d at %lld", ax, (long long)x->offset);
    return false;
}

static bool same_result(strbuf *why, const op_row *r, const trial *tf, const tp_val *f, const trial *tx,
                        const tp_val *x)
{
    for (int i = 0; i < r->schema.nret; i++) {
        if (f[i].kind != x[i].kind) {
            strbuf_addf(why, "result %d is of kind %d, but the kernel gives %d", i, f[i].kind, x[i].kind);
            return false;
        }
        if (f[i].kind == VAL_tensor &&
            !same_tensor(why, f[i].t, x[i].t, aliased(tf, f[i].t), aliased(tx, x[i].t)))
            return false;
        for (int k = 0; f[i].kind == VAL_tensors && k < MAX(f[i].n, x[i].n); k++)
            if (f[i].n != x[i].n ||
                !same_tensor(why, f[i].ts[k], x[i].ts[k], aliased(tf, f[i].ts[k]), aliased(tx, x[i].ts[k])))
                return false;
    }
    return true;
}

/* Failures that need the data, or that PyTorch's meta tensors do not report either (a kernel for this dtype
 * is missing). */
static bool only_data_tells(const tp_err *e)
{
    return e->kind == ERR_index || e->kind == ERR_zerodiv || e->kind == ERR_linalg ||
           strstr(e->msg, "ZeroDivisionError") || strstr(e->msg, "out of bounds") ||
           strstr(e->msg, "out of range") || strstr(e->msg, "not implemented for") ||
           strstr(e->msg, "depends on the values of") /* the shape rule's own word for it */ ||
           strstr(e->msg, "allocated size does not match") || strstr(e->msg, "number of ones in mask") ||
           strstr(e->msg, "Class values must be smaller") || strstr(e->msg, "] is zero and") ||
           strstr(e->msg, "depends on data") || strstr(e->msg, "invalid max index") ||
           strstr(e->msg, "single nonzero value") ||
           strstr(e->msg, "cannot be broadcast to indexing result"); /* a mask chooses so many */
}

typedef struct report { /* shared with the parent */
    int valid, tried;
    int bad;    /* the results differ: never allowed */
    int unlike; /* one fails alone, or they fail with different messages */
    char now[600], why[1400], how[1400];
} report;

static void one_trial(const op_row *r, op_id op, op_variant v, const layout *l, uint32_t seed, report *rep)
{
    trial tf = { 0 }, tx = { 0 };
    tp_val f[OP_MAX_RETURNS] = { 0 }, x[OP_MAX_RETURNS] = { 0 };
    tp_err ef = { 0 }, ex = { 0 };
    op_ctx cx = *op_ctx_cur();
    strbuf d = { 0 }, why = { 0 };

    cx.grad_mode = false;
    if (!draw_args(r, &tf, l, seed) || !draw_args(r, &tx, l, seed))
        goto done;
    describe(&d, r, v, &tx);
    snprintf(rep->now, sizeof rep->now, "%s", strbuf_str(&d));
    make_fake(&tf);
    rep->tried++;
    bool okf = ops_fake(&cx, op, v, tf.arg, f, &ef);
    bool okx = ops_call(&cx, op, v, tx.arg, x, &ex);
    bool soft = !okf || !okx;
    if (okf && okx) {
        rep->valid++;
        same_result(&why, r, &tf, f, &tx, x);
    } else if (okf != okx) { /* some failures only the data can tell */
        if (!only_data_tells(okf ? &ex : &ef))
            strbuf_addf(&why, "%s fails alone: %s", okf ? "the kernel" : "the shape rule",
                        okf ? ex.msg : ef.msg);
    } else if (strcmp(ef.msg, ex.msg) && !only_data_tells(&ef) && !only_data_tells(&ex))
        strbuf_addf(&why, "the shape rule says \"%s\", the kernel \"%s\"", ef.msg, ex.msg);
    if (why.n && soft && !rep->unlike++)
        snprintf(rep->how, sizeof rep->how, "%s\n    %s", strbuf_str(&d), strbuf_str(&why));
    if (why.n && !soft && !rep->bad++)
        snprintf(rep->why, sizeof rep->why, "%s\n    %s", strbuf_str(&d), strbuf_str(&why));
    for (int i = 0; i < OP_MAX_RETURNS; i++) {
        if (okf)
            val_clear(&f[i]);
        if (okx)
            val_clear(&x[i]);
    }
done:
    strbuf_free(&d);
    strbuf_free(&why);
    end_trial(&tf);
    end_trial(&tx);
}

static void row_trials(op_id op, report *rep)
{
    const op_row *r = op_row_of(op);
    for (int lay = 0; lay < N_LAYOUT; lay++)
        for (uint32_t k = 0; k < TRIALS; k++) {
            uint32_t seed = 7919u * (uint32_t)lay + 104729u * k + 1;
            one_trial(r, op, OPV_fn, &layouts[lay], seed, rep);
            if (r->flags & OPF_INP && k % 4 == 0)
                one_trial(r, op, OPV_inplace, &layouts[lay], seed, rep);
        }
}

TEST(op_table_shape_rules_match_kernels)
{
    report *all = mmap(NULL, sizeof *all * OP_COUNT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                       0);
    const char *env = getenv("TAPER_OP_TABLE");
    bool list = env != NULL;
    int ungenerated = 0, walked = 0, valid = 0, unlike = 0;
    enum { BATCH = 32 };

    op_row_of((op_id)0);
    for (int from = 0;
         from < OP_COUNT;) { /* a child does many rows; after a crash the next goes on behind it */
        pid_t pid = fork();
        if (!pid) {
            alarm(60);
            for (int i = from; i < OP_COUNT && i < from + BATCH; i++) {
                const op_row *r = op_row_of((op_id)i);
                all[i].tried = 1; /* reached */
                if (!(r->flags & (OPF_DYN | OPF_SYNC)))
                    row_trials((op_id)i, &all[i]);
                snprintf(all[i].now, sizeof all[i].now, "done");
            }
            _exit(0);
        }
        int st = 0;
        waitpid(pid, &st, 0);
        int i = from;
        while (i < OP_COUNT && i < from + BATCH && !strcmp(all[i].now, "done"))
            i++;
        if (i < OP_COUNT && i < from + BATCH) {
            test_fail(__FILE__, __LINE__, "%s: crash (status %d) in %s", op_row_of((op_id)i)->full, st,
                      all[i].now);
            i++;
        }
        from = i;
    }
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        if (all[i].bad)
            test_fail(__FILE__, __LINE__, "%s: %d of %d calls differ, first %s", r->full, all[i].bad,
                      all[i].tried, all[i].why);
        if (all[i].unlike) {
            unlike++;
            printf("not the same failure: %s, %d of %d calls, first %s\n", r->full, all[i].unlike,
                   all[i].tried, all[i].how);
        }
        walked++;
        valid += all[i].valid;
        if (!all[i].valid) {
            ungenerated++;
            if (list)
                printf("no valid call found: %s%s\n", r->full,
                       r->flags & (OPF_DYN | OPF_SYNC) ? " (its result depends on data)" : "");
        }
    }
    if (list)
        printf("%d rows, %d valid calls, %d rows without one, %d rows that can fail differently\n", walked,
               valid, ungenerated, unlike);
    CHECK(ungenerated * 5 < walked);
    CHECK(unlike == 0);
    munmap(all, sizeof *all * OP_COUNT);
}
