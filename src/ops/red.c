/* red.c - the reduction engine. Work is cut into pieces of fixed size, so results do not depend on the thread
 * count: a piece is some columns (or one result) by some of the reduced elements. */
#include "ops/red.h"
#include "base/pool.h"

ISA_DECL(const red_kernel *, red_kernels, (void));
ISA_DECL(red_col8 *, red_col8_of, (red_id id));
ISA_DECL(red_row *, red_quick_of, (red_id id));
const red_kernel *red_kernel_of(red_id id) { return &ISA_PICK(red_kernels)()[id]; }

enum { BLOCK = 512, CHUNK = 65536 };

typedef struct dim {
    int64_t size, in, acc; /* strides: bytes of the input, elements of the accumulators */
} dim;
typedef struct red_job {
    const red_kernel *k;
    const red_par *par;
    int kind;                                /* packed type: 0 f32, 1 f64, 2 i64 */
    conv_fn *conv;                           /* NULL: stored as computed */
    size_t es, ces;                          /* element bytes as stored, as computed */
    int nk, nr;                              /* kept and reduced dimensions */
    dim kept[TP_MAX_DIMS], red[TP_MAX_DIMS]; /* fastest first */
    int64_t nout, nred, chunk, nchunk, ncol;
    const char *data;
    char *acc;      /* nchunk * nout accumulators; the first nout are the result */
    bool cols;      /* kept[0] runs over packed columns */
    red_row *row;   /* the row of this type */
    red_col8 *col8; /* floats in columns, eight rows at a time; or NULL */
} red_job;

static int merge(dim *d, int n) /* sorts by input stride and joins neighbours */
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && d[j].in < d[j - 1].in; j--) {
            dim t = d[j];
            d[j] = d[j - 1];
            d[j - 1] = t;
        }
    int w = 0;
    for (int i = 0; i < n; i++) {
        if (d[i].size == 1)
            continue;
        if (w && d[w - 1].in * d[w - 1].size == d[i].in && d[w - 1].acc * d[w - 1].size == d[i].acc)
            d[w - 1].size *= d[i].size;
        else
            d[w++] = d[i];
    }
    return w;
}

/* Packed elements of a run: in place, or through buf. */
static const void *packed(const red_job *j, int64_t n, const char *p, int64_t st, void *buf, void *tmp)
{
    if (st != (int64_t)j->es) {
        void *to = j->conv ? tmp : buf;
        gather_packed(n, to, p, st, j->es);
        p = to;
    }
    if (j->conv) {
        j->conv(n, buf, p);
        p = buf;
    }
    return p;
}

static int64_t offset_of(const dim *d, int n, int64_t k, int64_t *acc)
{
    int64_t off = 0;
    *acc = 0;
    if (n == 1) { /* the usual case, without dividing */
        *acc = k * d->acc;
        return k * d->in;
    }
    for (int i = 0; i < n; i++) {
        int64_t at = k % d[i].size;
        k /= d[i].size;
        off += at * d[i].in;
        *acc += at * d[i].acc;
    }
    return off;
}

/* Result o, reduced elements [b, e). */
static void fold_row(const red_job *j, int64_t o, int64_t b, int64_t e, char *acc)
{
    uint64_t buf[BLOCK], tmp[BLOCK];
    int64_t where, unused;
    const char *base = j->data + offset_of(j->kept, j->nk, o, &where);
    red_par par = j->par ? *j->par : (red_par){ 0 };
    if (par.centre)
        par.centre += where;
    void *to = acc + where * 8;
    int64_t n0 = j->nr ? j->red[0].size : 1, st = j->nr ? j->red[0].in : (int64_t)j->es;
    bool direct = !j->conv && st == (int64_t)j->es;
    while (b < e) {
        int64_t run = MIN(n0 - (b < n0 ? b : b % n0), e - b);
        const char *p = base + offset_of(j->red, j->nr, b, &unused);
        if (direct)
            j->row(run, p, to, &par);
        else
            for (int64_t at = 0; at < run; at += BLOCK) {
                int64_t m = MIN(run - at, BLOCK);
                j->row(m, packed(j, m, p + at * st, st, buf, tmp), to, &par);
            }
        b += run;
    }
}

/* Columns [c, c + n) of kept[0], outer kept index o, reduced elements [b, e). */
static void fold_cols(const red_job *j, int64_t o, int64_t c, int64_t n, int64_t b, int64_t e, char *acc)
{
    uint64_t buf[BLOCK], tmp[BLOCK];
    int64_t where, unused;
    const char *base = j->data + offset_of(j->kept + 1, j->nk - 1, o, &where) + c * j->kept[0].in;
    where += c * j->kept[0].acc;
    red_par par = j->par ? *j->par : (red_par){ 0 };
    if (par.centre)
        par.centre += where;
    int64_t n0 = j->nr ? j->red[0].size : 1;
    for (; b < e; b++) {
        const char *p = base + offset_of(j->red, j->nr, b, &unused);
        if (j->col8 && b + 8 <= e && b % n0 + 8 <= n0) {
            j->col8(n, p, j->red[0].in, (double *)(acc + where * 8));
            b += 7;
            continue;
        }
        j->k->col[j->kind](n, packed(j, n, p, j->kept[0].in, buf, tmp), acc + where * 8, &par);
    }
}

static void piece(void *arg, int64_t begin, int64_t end)
{
    const red_job *j = arg;
    if (j->nchunk == 1 && !j->cols && j->nr == 1 && j->nk == 1 && !j->conv &&
        j->red[0].in == (int64_t)j->es &&
        !(j->par && j->par->centre)) { /* rows as they lie: short ones cost little more than their elements */
        const red_par par = j->par ? *j->par : (red_par){ 0 };
        for (; begin < end; begin++)
            j->row(j->nred, j->data + begin * j->kept[0].in, j->acc + begin * j->kept[0].acc * 8, &par);
        return;
    }
    for (; begin < end; begin++) {
        int64_t ch = j->nchunk > 1 ? begin % j->nchunk : 0, o = j->nchunk > 1 ? begin / j->nchunk : begin;
        int64_t b = ch * j->chunk, e = MIN(b + j->chunk, j->nred);
        char *acc = j->acc + ch * j->nout * 8;
        if (!j->cols)
            fold_row(j, o, b, e, acc);
        else {
            int64_t c = o % j->ncol * BLOCK;
            fold_cols(j, o / j->ncol, c, MIN(BLOCK, j->kept[0].size - c), b, e, acc);
        }
    }
}

static void start(const red_kernel *k, bool flt, char *acc, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (flt)
            ((double *)acc)[i] = k->start_f;
        else
            ((int64_t *)acc)[i] = k->start_i;
    }
}

tp_tensor *red_run(red_id id, tp_tensor *t, uint32_t mask, int ndim, const symint *size, const red_par *par,
                   tp_err *err)
{
    bool flt = dtype_is_float((dtype)t->dt);
    tp_tensor *acc = tensor_new(flt ? DT_f64 : DT_i64, ndim, size, err), *more = NULL;
    if (!acc)
        return NULL;
    red_job j = { .k = red_kernel_of(id),
                  .par = par,
                  .kind = t->dt == DT_f64 ? 1
                          : flt           ? 0
                                          : 2,
                  .es = dtype_size((dtype)t->dt),
                  .data = tensor_host(t),
                  .nout = acc->numel,
                  .nred = 1,
                  .acc = tensor_host(acc) };
    static const dtype packed_dt[] = { DT_f32, DT_f64, DT_i64 };
    j.conv = t->dt == packed_dt[j.kind] ? NULL : conv_of(packed_dt[j.kind], (dtype)t->dt);
    j.ces = dtype_size(packed_dt[j.kind]);
    if (!j.nout)
        return acc;
    start(j.k, flt, j.acc, j.nout);
    int64_t as = 1;
    for (int d = t->ndim - 1; d >= 0; d--) { /* accumulators are row-major over the kept dimensions */
        int64_t in = t->size[d] == 1 ? 0 : t->stride[d] * (int64_t)j.es;
        if (mask >> d & 1) {
            j.nred *= t->size[d];
            j.red[j.nr++] = (dim){ t->size[d], in, 0 };
        } else {
            j.kept[j.nk++] = (dim){ t->size[d], in, as };
            as *= t->size[d];
        }
    }
    if (!j.nred)
        return acc;
    j.nr = merge(j.red, j.nr);
    j.nk = merge(j.kept, j.nk);
    j.cols = j.nk && j.kept[0].acc == 1 && j.kept[0].in == (int64_t)j.es &&
             j.kept[0].size * (int64_t)j.es >= 64 && (!j.nr || j.red[0].in > j.kept[0].in);
    j.col8 = j.cols && t->dt == DT_f32 && j.nr ? ISA_PICK(red_col8_of)(id) : NULL;
    red_row *quick = j.kind == 0 ? ISA_PICK(red_quick_of)(id) : NULL;
    j.row = quick ? quick : j.k->row[j.kind];
    int64_t width = j.cols ? MIN(BLOCK, j.kept[0].size) : 1;
    j.chunk = MAX(1, CHUNK / width);
    j.nchunk = (j.nred + j.chunk - 1) / j.chunk;
    if (j.nchunk > 1 && j.nout * j.nchunk > 16 * CHUNK) { /* many results: no need to cut the reduction too */
        j.chunk = j.nred;
        j.nchunk = 1;
    }
    if (j.nchunk > 1) {
        more = tensor_new(flt ? DT_f64 : DT_i64, 1, (symint[]){ j.nout * j.nchunk }, err);
        if (!more) {
            tensor_unref(acc);
            return NULL;
        }
        j.acc = tensor_host(more);
        start(j.k, flt, j.acc, j.nout * j.nchunk);
    }
    j.ncol = j.cols ? (j.kept[0].size + BLOCK - 1) / BLOCK : 1;
    int64_t items = (j.cols ? j.nout / j.kept[0].size * j.ncol : j.nout) * j.nchunk;
    int64_t cost = MIN(j.nred, j.chunk) * width;
    pool_for(items, MAX(1, 32768 / MAX(cost, 1)), piece, &j);
    if (more) {
        char *to = tensor_host(acc);
        for (int64_t c = 0; c < j.nchunk; c++)
            j.k->mix[flt ? 0 : 1](j.nout, to, j.acc + c * j.nout * 8);
        tensor_unref(more);
    }
    return acc;
}

/* ---- lines ---- */
void lines_init(lines *l, int nop, tp_tensor *const *ts, int dim)
{
    const tp_tensor *f = ts[0];
    l->nop = nop;
    l->ndim = 0;
    l->n = f->ndim ? f->size[dim] : 1;
    l->count = 1;
    for (int d = f->ndim - 1; d >= 0; d--) {
        if (d == dim)
            continue;
        l->size[l->ndim] = f->size[d];
        l->count *= f->size[d];
        for (int k = 0; k < nop; k++)
            l->stride[k][l->ndim] = ts[k] ? ts[k]->stride[d] * (int64_t)dtype_size((dtype)ts[k]->dt) : 0;
        l->ndim++;
    }
    for (int k = 0; k < nop; k++) {
        l->data[k] = ts[k] ? tensor_host(ts[k]) : NULL;
        size_t es = ts[k] ? dtype_size((dtype)ts[k]->dt) : 0;
        l->step[k] = ts[k] ? (ts[k]->ndim ? ts[k]->stride[dim] : 1) * (int64_t)es : 0;
    }
}

void lines_at(const lines *l, int64_t k, char **p)
{
    for (int i = 0; i < l->nop; i++)
        p[i] = l->data[i];
    for (int d = 0; d < l->ndim; d++) {
        int64_t at = k % l->size[d];
        k /= l->size[d];
        for (int i = 0; i < l->nop; i++)
            if (p[i])
                p[i] += at * l->stride[i][d];
    }
}
