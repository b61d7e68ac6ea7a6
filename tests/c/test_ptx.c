/* The PTX emitter: random kernels run by the PTX interpreter give the bits of vir_interp, and ptxas takes every text. */
#include "test.h"
#include "gen_fuzz.h"
#include "ptx_cases.h"
#include "ptx_interp.h"
#include "ptx_tool.h"
#include "vir/math/vnum.h"
#include "target/cuda/ptx.h"
#include "target/cuda/ptx_func.h"
#include <math.h>
#include <unistd.h>

/* Where ptxas is, or NULL. */
static const char *ptxas(void)
{
    static const char *const where[] = { "/usr/local/cuda/bin/ptxas", "/usr/local/cuda-13.0/bin/ptxas",
                                         "/usr/bin/ptxas" };
    const char *env = getenv("TAPER_PTXAS");
    if (env)
        return access(env, X_OK) ? NULL : env;
    for (size_t i = 0; i < COUNT(where); i++)
        if (!access(where[i], X_OK))
            return where[i];
    return NULL;
}

void ptx_assemble(const char *text, const char *arch, const char *who)
{
    const char *tool = ptxas();
    char dir[] = "/tmp/taper-ptx-XXXXXX", cmd[512], line[512] = "";
    if (!tool) {
        fprintf(stderr, "SKIP %s: no ptxas\n", who);
        return;
    }
    if (!mkdtemp(dir)) {
        test_fail(__FILE__, __LINE__, "no temporary directory");
        return;
    }
    snprintf(cmd, sizeof cmd, "%s/k.ptx", dir);
    FILE *o = fopen(cmd, "w");
    fputs(text, o);
    fclose(o);
    bool wide = !strcmp(arch, "sm_90a"); /* whose products need registers that -O0 does not keep */
    snprintf(cmd, sizeof cmd, "%s -c -O%d -arch=%s %s/k.ptx -o %s/k.cubin 2>&1", tool, wide, arch, dir, dir);
    FILE *p = popen(cmd, "r");
    size_t n = fread(line, 1, sizeof line - 1, p);
    line[n] = 0;
    if (pclose(p)) {
        const char *keep = getenv("TAPER_PTX_KEEP");
        if (keep) {
            o = fopen(keep, "w");
            fputs(text, o);
            fclose(o);
        }
        test_fail(__FILE__, __LINE__, "%s: ptxas: %s", who, line);
    }
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    if (system(cmd))
        test_fail(__FILE__, __LINE__, "temporary directory");
}

static bool run_kernel(ptx_module *m, const ptx_kernel *p, const fuzz_case *f, int64_t rows, void **bufs,
                       tp_err *err)
{
    const vir *k = f->k;
    uint64_t params[64];
    ptx_buffer b[40];
    for (int i = 0; i < k->nbufs; i++)
        b[i] = (ptx_buffer){ bufs[i], f->elems * vir_mem_size(k->bufs[i].mem) + 64 };
    ptx_params(p, bufs, f->ints, f->flts, 0, rows, params);
    return ptx_run(m, "k", ptx_blocks(p, f->ints, 0, rows), p->threads, params, b, k->nbufs, true, err);
}

/* Kernels one by one through the interpreter; all of them in one text through ptxas. */
TEST(ptx_fuzz)
{
    const char *env = getenv("TAPER_FUZZ_KERNELS"), *senv = getenv("TAPER_FUZZ_SEED");
    int count = env ? atoi(env) : 150, bad = 0;
    uint64_t seed = senv ? strtoull(senv, NULL, 10) : 1;
    ptx_unit all = { .opts = { .threads = 64 } };
    strbuf whole = { 0 };
    for (int c = 0; c < count && bad < 3; c++) {
        arena a = { 0 };
        tp_err err = { 0 };
        fuzz_case f;
        all.opts.lift = c & 1;
        ptx_unit u = { .opts = all.opts };
        ptx_kernel p;
        strbuf text = { 0 };
        char name[16];
        fuzz_make(&f, &a, seed + (uint64_t)c);
        if (c % 3 == 2) /* as many partial results as long rows have */
            f.k->ways = 1 << (c / 3 % 7);
        CHECK(vir_finish(f.k, &err));
        snprintf(name, sizeof name, "k%d", c);
        ptx_module *m = NULL;
        if (ptx_add(&u, f.k, "k", &p, &err)) {
            if (c < 150)
                CHECK(ptx_add(&all, f.k, name, &p, &err));
            ptx_text(&u, &text);
            m = ptx_parse(strbuf_str(&text), &err);
        }
        for (int s = 0; s < 3 && m && bad < 3; s++) {
            fuzz_data(&f, &a, s);
            void **want = fuzz_clone(&f, &a), **got = fuzz_clone(&f, &a);
            vir_interp(f.k, want, f.ints, f.flts, 0, f.ints[1], &err);
            if (!run_kernel(m, &p, &f, f.ints[1], got, &err))
                break;
            bad += !fuzz_same(&f, got, want, "PTX");
        }
        if (err_is_set(&err)) {
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)f.seed, err.msg);
            bad++;
        }
        if (bad && getenv("TAPER_PTX_KEEP")) {
            FILE *o = fopen(getenv("TAPER_PTX_KEEP"), "w");
            fputs(strbuf_str(&text), o);
            fclose(o);
        }
        if (m)
            ptx_module_free(m);
        strbuf_free(&text);
        ptx_free(&u);
        arena_free(&a);
    }
    if (!bad) {
        ptx_text(&all, &whole);
        ptx_assemble(strbuf_str(&whole), "sm_90", "ptx_fuzz");
    }
    strbuf_free(&whole);
    ptx_free(&all);
}

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    strbuf b = { 0 };
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, f));)
        strbuf_addn(&b, buf, n);
    fclose(f);
    return strbuf_take(&b);
}

void ptx_same_text(const char *name, strbuf *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/ptx/%s.ptx", TP_SOURCE_DIR, name);
    if (getenv("TAPER_BLESS")) {
        FILE *o = fopen(path, "w");
        fputs(strbuf_str(text), o);
        fclose(o);
    }
    char *want = read_text(path);
    if (!want || strcmp(want, strbuf_str(text)))
        test_fail(__FILE__, __LINE__, "%s: the text differs from %s (TAPER_BLESS=1 rewrites it)", name, path);
    free(want);
}

/* A text of each family, as it was reviewed. TAPER_BLESS=1 writes them anew. */
TEST(ptx_golden)
{
    for (int i = 0; i < nptx_cases; i++) {
        arena a = { 0 };
        tp_err err = { 0 };
        ptx_unit u = { 0 };
        ptx_kernel p;
        strbuf text = { 0 };
        vir *k = ptx_cases[i].make(&a);
        if (!vir_finish(k, &err) || !ptx_add(&u, k, ptx_cases[i].name, &p, &err))
            test_fail(__FILE__, __LINE__, "%s: %s", ptx_cases[i].name, err.msg);
        ptx_text(&u, &text);
        ptx_same_text(ptx_cases[i].name, &text);
        strbuf_free(&text);
        ptx_free(&u);
        arena_free(&a);
    }
}

/* The same kernels run, and assembled for both targets. */
TEST(ptx_families)
{
    for (int sm = 80; sm <= 90; sm += 10) {
        ptx_unit all = { .opts = { .sm = sm, .atomics = sm == 80 } };
        strbuf whole = { 0 };
        for (int i = 0; i < nptx_cases; i++) {
            arena a = { 0 };
            tp_err err = { 0 };
            ptx_kernel p;
            fuzz_case f = { .seed = (uint64_t)i,
                            .k = ptx_cases[i].make(&a),
                            .ints = { ptx_cases[i].flat ? 1 : 2, 700 } };
            CHECK(vir_finish(f.k, &err));
            CHECK(ptx_add(&all, f.k, ptx_cases[i].name, &p, &err));
            ptx_unit u = { .opts = all.opts };
            strbuf text = { 0 };
            CHECK(ptx_add(&u, f.k, "k", &p, &err));
            ptx_text(&u, &text);
            ptx_module *m = ptx_parse(strbuf_str(&text), &err);
            int64_t sizes[4] = { f.ints[0], f.ints[1], 0, 0 };
            fuzz_data(&f, &a, 0);
            memcpy(f.ints, sizes, sizeof sizes);
            void **want = fuzz_clone(&f, &a), **got = fuzz_clone(&f, &a);
            vir_interp(f.k, want, f.ints, f.flts, 0, f.ints[0], &err);
            bool any_order = all.opts.atomics &&
                             (!strcmp(ptx_cases[i].name, "scatter") ||
                              !strcmp(ptx_cases[i].name, "scatter_ranges")); /* sums of floats differ */
            if (m && run_kernel(m, &p, &f, f.ints[0], got, &err) && !any_order)
                fuzz_same(&f, got, want, ptx_cases[i].name);
            if (m)
                ptx_module_free(m);
            if (err_is_set(&err))
                test_fail(__FILE__, __LINE__, "%s: %s", ptx_cases[i].name, err.msg);
            strbuf_free(&text);
            ptx_free(&u);
            arena_free(&a);
        }
        ptx_text(&all, &whole);
        ptx_assemble(strbuf_str(&whole), sm == 80 ? "sm_80" : "sm_90", "ptx_families");
        strbuf_free(&whole);
        ptx_free(&all);
    }
}

/* Additions where an index points, m of them into `places` rows of `cols` elements; each of `ranges` parallel iterations has
 * every ranges-th place; elements lie `step` apart. single: one element each, by a vector loop. add: else the last one is left. */
typedef struct scatter_form {
    vir_mem mem, index;
    int64_t places, cols, m;
    int ranges, step;
    bool single, add;
} scatter_form;

static vir *scatter_make(arena *a, const scatter_form *s)
{
    vir *k = vir_make(a, "scatter");
    int x = vir_buffer(k, s->mem, VIR_IN, "x"), j = vir_buffer(k, s->index, VIR_IN, "index"),
        y = vir_buffer(k, s->mem, s->add ? VIR_INOUT : VIR_OUT, "y");
    vir_ref zero = vir_int(k, 0), m = vir_int_arg(k, "m"), ranges = vir_int(k, s->ranges),
            step = vir_int(k, s->step);
    vir_ref r = vir_loop(k, LOOP_parallel, zero, ranges);
    vir_ref i = vir_loop(k, s->single ? LOOP_vector : LOOP_serial, zero, m);
    vir_ref to = vir_cvt(k, VT_i64, vir_load(k, j, i, 0)), mine = vir_eq(k, vir_modf(k, to, ranges), r);
    if (s->single) {
        if (s->add)
            vir_store_add(k, y, vir_mul(k, to, step), vir_load(k, x, i, 0), s->ranges > 1 ? mine : 0);
        else
            vir_store(k, y, vir_mul(k, to, step), vir_load(k, x, i, 0), s->ranges > 1 ? mine : 0);
    } else {
        vir_ref n = vir_int(k, s->cols), c = vir_loop(k, LOOP_vector, zero, vir_select(k, mine, n, zero));
        vir_ref v = vir_load(k, x, vir_add(k, vir_mul(k, i, n), c), 0),
                at = vir_mul(k, vir_add(k, vir_mul(k, to, n), c), step);
        vir_store(k, y, at, s->add ? vir_add(k, vir_load(k, y, at, 0), v) : v, 0);
        vir_end(k);
    }
    vir_end(k), vir_end(k);
    return k;
}

/* kind: 0 all in one row, 1 spread, 2 anywhere */
static void scatter_check(const scatter_form *s, int kind)
{
    arena a = { 0 };
    tp_err err = { 0 };
    ptx_unit u = { 0 };
    ptx_kernel p;
    strbuf text = { 0 };
    uint64_t seed = (uint64_t)(s->m * 31 + kind);
    fuzz_case f = { .k = scatter_make(&a, s), .elems = (size_t)(MAX(s->m, s->places) * s->cols * s->step) };
    CHECK(vir_finish(f.k, &err) && ptx_add(&u, f.k, "k", &p, &err));
    CHECK(p.scan && p.threads == 32 && p.grid == PTX_rows);
    ptx_text(&u, &text);
    if (!s->single) /* several rows at once */
        CHECK((s->cols <= 32 * 16 / (int)vir_mem_size(s->mem)) ==
              (strstr(strbuf_str(&text), "popc") != NULL));
    ptx_module *m = ptx_parse(strbuf_str(&text), &err);
    f.bufs = ARENA_ARR(&a, void *, f.k->nbufs);
    for (int b = 0; b < f.k->nbufs; b++)
        f.bufs[b] = arena_zalloc(&a, f.elems * vir_mem_size(f.k->bufs[b].mem) + 64);
    for (size_t i = 0; i < f.elems; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int64_t to = kind == 0   ? s->places / 2
                     : kind == 1 ? (int64_t)i * 7 % s->places
                                 : (int64_t)(seed >> 33) % s->places;
        double v = (double)(int64_t)(seed >> 20) * 0x1p-40 - 3;
        if (s->index == VM_i64)
            ((int64_t *)f.bufs[1])[i] = to;
        else
            ((int32_t *)f.bufs[1])[i] = (int32_t)to;
        for (int b = 0; b < 3; b += 2) {
            if (s->mem == VM_f64)
                ((double *)f.bufs[b])[i] = v * (b + 1);
            else if (s->mem == VM_f32)
                ((float *)f.bufs[b])[i] = (float)v * (float)(b + 1);
            else
                ((uint16_t *)f.bufs[b])[i] = vnum_to_bf16((float)v);
        }
    }
    f.ints[0] = s->m;
    void **want = fuzz_clone(&f, &a), **got = fuzz_clone(&f, &a);
    vir_interp(f.k, want, f.ints, f.flts, 0, s->ranges, &err);
    if (!m || !run_kernel(m, &p, &f, s->ranges, got, &err) ||
        memcmp(got[2], want[2], f.elems * vir_mem_size(s->mem)))
        test_fail(__FILE__, __LINE__,
                  "type %d, %lld x %lld, %lld indices, %d ranges, single %d, add %d, kind %d: %s", s->mem,
                  (long long)s->places, (long long)s->cols, (long long)s->m, s->ranges, s->single, s->add,
                  kind, err_is_set(&err) ? err.msg : "values differ");
    if (m)
        ptx_module_free(m);
    strbuf_free(&text);
    ptx_free(&u);
    arena_free(&a);
}

TEST(ptx_scatter)
{
    static const int64_t counts[] = { 0, 1, 31, 32, 33, 128, 129, 300 }, cols[] = { 1, 3, 32, 128, 129, 768 };
    static const vir_mem mems[] = { VM_f32, VM_f64, VM_bf16 };
    static const int ranges[] = { 1, 2, 16 };
    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t t = 0; t < COUNT(mems); t++)
            for (size_t r = 0; r < COUNT(ranges); r++)
                for (int kind = 0; kind < 3; kind++) {
                    scatter_form s = { .mem = mems[t],
                                       .index = c & 1 ? VM_i32 : VM_i64,
                                       .places = 41,
                                       .m = counts[c],
                                       .ranges = ranges[r],
                                       .step = 1 + (int)((c + r) % 3) / 2 };
                    s.add = kind != 2 || c & 1;
                    s.cols = cols[(c + t + r) % COUNT(cols)];
                    scatter_check(&s, kind);
                    s.cols = 1, s.single = true;
                    if (mems[t] == VM_bf16) /* nothing is added to elements of 16 bits one by one */
                        s.add = false;
                    scatter_check(&s, kind);
                }
}

/* The result lies in the memory of the operand: no thread overwrites what another one still reads. */
TEST(ptx_in_place)
{
    int ran = 0;
    for (int i = 0; i < nptx_cases; i++) {
        arena a = { 0 };
        tp_err err = { 0 };
        ptx_kernel p;
        ptx_unit u = { 0 };
        strbuf text = { 0 };
        fuzz_case f = { .k = ptx_cases[i].make(&a) };
        int y = f.k->nbufs - 1;
        bool fits = f.k->bufs[0].mem == f.k->bufs[y].mem && f.k->bufs[0].flags == VIR_IN &&
                    f.k->bufs[y].flags == VIR_OUT;
        if (fits && strncmp(ptx_cases[i].name, "row_", 4) && strcmp(ptx_cases[i].name, "column_sum") &&
            strcmp(ptx_cases[i].name, "gather")) {
            CHECK(vir_finish(f.k, &err) && ptx_add(&u, f.k, "k", &p, &err));
            ptx_text(&u, &text);
            ptx_module *m = ptx_parse(strbuf_str(&text), &err);
            fuzz_data(&f, &a, 0);
            f.ints[0] = ptx_cases[i].flat ? 1 : 2, f.ints[1] = 700;
            void **want = fuzz_clone(&f, &a), **got = fuzz_clone(&f, &a);
            memcpy(want[y], want[0], f.elems * vir_mem_size(f.k->bufs[y].mem));
            vir_interp(f.k, want, f.ints, f.flts, 0, f.ints[0], &err);
            got[y] = got[0];
            if (m && run_kernel(m, &p, &f, f.ints[0], got, &err)) {
                want[0] = want[y];
                fuzz_same(&f, got, want, ptx_cases[i].name);
            }
            if (err_is_set(&err))
                test_fail(__FILE__, __LINE__, "%s: %s", ptx_cases[i].name, err.msg);
            if (m)
                ptx_module_free(m);
            ran++;
        }
        strbuf_free(&text);
        ptx_free(&u);
        arena_free(&a);
    }
    CHECK(ran >= 6);
}

/* --- rows --------------------------------------------------------------------------------------- */
typedef struct {
    const char *name;
    vir_mem x, w, y; /* of the row, of what is read beside it, of the result */
    vir *(*make)(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n, bool known);
} row_case;
typedef struct {
    vir *k;
    vir_ref n, r, from, i, at; /* from: where the row begins */
    int x, w, y;
} row_frame;

static row_frame row_begin(arena *a, const char *name, vir_mem x, vir_mem w, vir_mem y, int yflags, int64_t n,
                           bool known)
{
    row_frame f = { .k = vir_make(a, name) };
    vir_ref zero = vir_int(f.k, 0), arg = vir_int_arg(f.k, "n");
    f.n = known ? vir_int(f.k, n) : arg;
    f.x = vir_buffer(f.k, x, VIR_IN, "x"), f.w = vir_buffer(f.k, w, VIR_IN, "w");
    f.y = vir_buffer(f.k, y, yflags, "y");
    f.r = vir_loop(f.k, LOOP_parallel, zero, vir_int(f.k, known && n % 2 ? 4000 : 8));
    f.from = vir_mul(f.k, f.r, f.n);
    return f;
}
static vir_ref row_load(row_frame *f) /* opens a loop over the row */
{
    f->i = vir_loop(f->k, LOOP_vector, vir_int(f->k, 0), f->n);
    f->at = vir_add(f->k, f->from, f->i);
    return vir_load(f->k, f->x, f->at, 0);
}

static vir *row_softmax(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n,
                        bool known) /* the result keeps exponentials */
{
    row_frame f = row_begin(a, "softmax", x, w, y, VIR_INOUT, n, known);
    int top = vir_red(f.k, RED_max, VT_f32), sum;
    vir_ref none = vir_flt(f.k, VT_f32, -INFINITY), v = row_load(&f);
    vir_step(f.k, top, vir_select(f.k, vir_load(f.k, f.w, f.at, 0), v, none), 0);
    vir_end(f.k);
    vir_ref m = vir_fold(f.k, top);
    sum = vir_red(f.k, RED_sum, VT_f32);
    v = row_load(&f);
    v = vir_expns(f.k, vir_sub(f.k, vir_select(f.k, vir_load(f.k, f.w, f.at, 0), v, none), m));
    vir_step(f.k, sum, v, 0);
    vir_store(f.k, f.y, f.at, v, 0);
    vir_end(f.k);
    vir_ref by = vir_div(f.k, vir_flt(f.k, VT_f32, 1), vir_fold(f.k, sum));
    row_load(&f);
    vir_store(f.k, f.y, f.at, vir_mul(f.k, vir_load(f.k, f.y, f.at, 0), by), 0);
    vir_end(f.k), vir_end(f.k);
    return f.k;
}
static vir *row_norm(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n,
                     bool known) /* mean, variance, result */
{
    row_frame f = row_begin(a, "norm", x, w, y, VIR_OUT, n, known);
    int means = vir_buffer(f.k, VM_bf16, VIR_OUT, "mean"), sum = vir_red(f.k, RED_sum, VT_f32), sq;
    vir_ref count = vir_flt(f.k, VT_f32, (double)n), v = row_load(&f), one = vir_flt(f.k, VT_f32, 1);
    vir_step(f.k, sum, vir_add(f.k, v, one), 0);
    vir_end(f.k);
    vir_ref mean = vir_div(f.k, vir_fold(f.k, sum), count);
    vir_store(f.k, means, f.r, mean, 0);
    sq = vir_red(f.k, RED_sum, VT_f32);
    v = vir_sub(f.k, vir_add(f.k, one, row_load(&f)), mean);
    vir_step(f.k, sq, vir_mul(f.k, v, v), 0);
    vir_end(f.k);
    vir_ref by = vir_rsqrt(f.k,
                           vir_add(f.k, vir_div(f.k, vir_fold(f.k, sq), count), vir_flt(f.k, VT_f32, 1e-5)));
    v = vir_sub(f.k, vir_add(f.k, row_load(&f), one), mean);
    vir_store(f.k, f.y, f.at, vir_mul(f.k, vir_mul(f.k, v, by), vir_load(f.k, f.w, f.i, 0)), 0);
    vir_end(f.k), vir_end(f.k);
    return f.k;
}
static vir *row_entropy(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n,
                        bool known) /* one pass of two parts, and a difference */
{
    row_frame f = row_begin(a, "entropy", x, w, y, VIR_OUT, n, known);
    int red = vir_red(f.k, RED_softmax, VT_f32);
    vir_step(f.k, red, row_load(&f), 0);
    vir_end(f.k);
    vir_ref top = vir_fold(f.k, red), log = vir_log(f.k, vir_part(f.k, red, 1));
    vir_ref v = row_load(&f);
    vir_store(f.k, f.y, f.at, vir_sub(f.k, vir_sub(f.k, v, top), log), 0);
    vir_end(f.k), vir_end(f.k);
    return f.k;
}
static vir *row_many(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n,
                     bool known) /* three parts, places, masks, a masked load */
{
    row_frame f = row_begin(a, "many", x, w, y, VIR_OUT, n, known);
    int place = vir_red(f.k, RED_argmax, VT_f32), var = vir_red(f.k, RED_welford, VT_f32),
        any = vir_red(f.k, RED_any, VT_mask);
    vir_ref v = row_load(&f), big = vir_gt(f.k, v, vir_flt(f.k, VT_f32, 0.5));
    vir_step(f.k, place, v, f.i);
    vir_step(f.k, var, vir_load(f.k, f.w, f.at, big), 0);
    vir_step(f.k, any, big, 0);
    vir_end(f.k);
    vir_fold(f.k, place);
    vir_ref mean = vir_fold(f.k, var), some = vir_fold(f.k, any);
    vir_ref at = vir_cvt(f.k, VT_f32, vir_part(f.k, place, 1)), sq = vir_part(f.k, var, 1);
    v = vir_sub(f.k, row_load(&f), mean);
    v = vir_mul(f.k, v, vir_cvt(f.k, VT_f32, f.i));
    vir_store(f.k, f.y, f.at, vir_select(f.k, some, vir_add(f.k, v, at), sq), 0);
    vir_end(f.k), vir_end(f.k);
    return f.k;
}

static vir *row_columns(arena *a, vir_mem x, vir_mem w, vir_mem y, int64_t n,
                        bool known) /* a sum of the row, and a serial one at each element */
{
    row_frame f = row_begin(a, "columns", x, w, y, VIR_OUT, n, known);
    int sum = vir_red(f.k, RED_sum, VT_f32), col;
    vir_step(f.k, sum, row_load(&f), 0);
    vir_end(f.k);
    vir_ref all = vir_fold(f.k, sum);
    row_load(&f);
    col = vir_red(f.k, RED_sum, VT_f32);
    vir_ref q = vir_loop(f.k, LOOP_serial, vir_int(f.k, 0), vir_int(f.k, 11));
    q = vir_mul(f.k, vir_modf(f.k, q, vir_int(f.k, 3)), f.n);
    vir_step(f.k, col, vir_load(f.k, f.w, vir_add(f.k, q, f.i), 0), 0);
    vir_end(f.k);
    vir_store(f.k, f.y, f.at, vir_add(f.k, vir_fold(f.k, col), all), 0);
    vir_end(f.k), vir_end(f.k);
    return f.k;
}

static void row_fill(vir_mem m, void *p, size_t n, uint64_t s)
{
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005ULL + 1442695040888963407ULL;
        float v = (float)((double)(int32_t)(s >> 32) * 0x1p-30);
        uint32_t b;
        memcpy(&b, &v, 4);
        if (m == VM_f32)
            memcpy((char *)p + 4 * i, &b, 4);
        else if (m == VM_bf16)
            ((uint16_t *)p)[i] = (uint16_t)(b >> 16);
        else if (m == VM_f16) /* from 2**-6 to 2 */
            ((uint16_t *)p)[i] = (uint16_t)((s >> 32 & 0x83ff) | (9 + (s >> 50) % 7) << 10);
        else
            ((uint8_t *)p)[i] = s >> 40 & 1;
    }
}

/* Rows of lengths that a warp, a block in registers and a block in steps take; rows and buffers that are not aligned. */
TEST(ptx_rows)
{
    static const row_case cases[] = {
        { "softmax f32", VM_f32, VM_bool, VM_f32, row_softmax },
        { "softmax bf16", VM_bf16, VM_bool, VM_f32, row_softmax },
        { "norm bf16", VM_bf16, VM_bf16, VM_bf16, row_norm },
        { "norm f32 f16", VM_f32, VM_f16, VM_f16, row_norm },
        { "norm f16 f32", VM_f16, VM_f32, VM_bf16, row_norm },
        { "entropy bf16", VM_bf16, VM_f32, VM_bf16, row_entropy },
        { "entropy bf16 f32", VM_bf16, VM_f32, VM_f32, row_entropy },
        { "many f32", VM_f32, VM_f32, VM_f32, row_many },
        { "many f16", VM_f16, VM_bf16, VM_f32, row_many },
        { "columns f32", VM_f32, VM_f32, VM_f32, row_columns },
        { "columns bf16", VM_bf16, VM_f16, VM_bf16, row_columns },
    };
    static const struct {
        int64_t n;
        int ways;
    } shapes[] = { { 1, 4 },     { 31, 4 },    { 64, 4 },    { 197, 4 },  { 197, 16 },
                   { 510, 8 },   { 512, 8 },   { 768, 16 },  { 771, 16 }, { 1024, 16 },
                   { 1024, 64 }, { 2051, 32 }, { 4096, 64 }, { 5257, 64 } };
    int warps = 0;
    for (size_t c = 0; c < COUNT(cases); c++) {
        ptx_unit all = { .opts = { .lift = true } };
        strbuf whole = { 0 };
        for (size_t s = 0; s < COUNT(shapes); s++)
            for (int known = 0; known < 2; known++) {
                const row_case *r = &cases[c];
                arena a = { 0 };
                tp_err err = { 0 };
                int64_t n = shapes[s].n, rows = 3;
                fuzz_case f = { .seed = s, .k = r->make(&a, r->x, r->w, r->y, n, known), .ints = { n } };
                ptx_unit u = { .opts = all.opts };
                ptx_kernel p;
                strbuf text = { 0 };
                char name[64];
                f.k->ways = shapes[s].ways;
                f.elems = (size_t)(n * rows) + 8;
                snprintf(name, sizeof name, "k%zu_%d", s, known);
                bool assembled = (2 * s + (size_t)known + c) % 4 ==
                                 0; /* each length in some cases: it takes long */
                if (!vir_finish(f.k, &err) || !ptx_add(&u, f.k, "k", &p, &err) ||
                    (assembled && !ptx_add(&all, f.k, name, &p, &err))) {
                    test_fail(__FILE__, __LINE__, "%s: %s", r->name, err.msg);
                    return;
                }
                ptx_text(&u, &text);
                warps += strstr(strbuf_str(&text), "bar.warp.sync") != NULL;
                ptx_module *m = ptx_parse(strbuf_str(&text), &err);
                for (int off = 0; off < 3 && m; off++) { /* all aligned, none, the first not */
                    if (n > 1024 && off != (int)((s + c) % 3))
                        continue;
                    void **bufs = arena_zalloc(&a, sizeof *bufs * (size_t)f.k->nbufs);
                    for (int b = 0; b < f.k->nbufs; b++) {
                        size_t size = vir_mem_size(f.k->bufs[b].mem);
                        char *raw = arena_zalloc(&a, f.elems * size + 128);
                        raw += 64 - ((uintptr_t)raw & 63);
                        bufs[b] = raw + (off == 1 || (off == 2 && !b) ? size : 0);
                        row_fill(f.k->bufs[b].mem, bufs[b], f.elems, s * 100 + (uint64_t)b);
                    }
                    f.bufs = bufs;
                    void **got = arena_zalloc(&a, sizeof *got * (size_t)f.k->nbufs);
                    for (int b = 0; b < f.k->nbufs; b++) {
                        size_t bytes = f.elems * vir_mem_size(f.k->bufs[b].mem);
                        char *raw = arena_zalloc(&a, bytes + 256);
                        raw += 64 - ((uintptr_t)raw & 63) + ((uintptr_t)bufs[b] & 63);
                        got[b] = memcpy(raw, bufs[b], bytes);
                    }
                    vir_interp(f.k, bufs, f.ints, f.flts, 0, rows, &err);
                    snprintf(name, sizeof name, "%s, %lld%s, %d", r->name, (long long)n, known ? "" : "?",
                             off);
                    if (!run_kernel(m, &p, &f, rows, got, &err))
                        test_fail(__FILE__, __LINE__, "%s: %s", name, err.msg);
                    else
                        fuzz_same(&f, got, bufs, name);
                }
                if (err_is_set(&err))
                    test_fail(__FILE__, __LINE__, "%s: %s", r->name, err.msg);
                if (m)
                    ptx_module_free(m);
                strbuf_free(&text);
                ptx_free(&u);
                arena_free(&a);
            }
        ptx_text(&all, &whole);
        ptx_assemble(strbuf_str(&whole), "sm_90", cases[c].name);
        strbuf_free(&whole);
        ptx_free(&all);
    }
    CHECK(warps > 20);
}

static double ulps(double got, double want, bool single)
{
    int e;
    if (got != got || want != want || isinf(want))
        return (got != got) == (want != want) && (want != want || got == want) ? 0 : 1e9;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, e - (single ? 24 : 53));
}

/* Functions with bodies of their own: exact ones bit for bit, the others within two units of the last place. */
TEST(ptx_functions)
{
    static const char *const names[] = { "fmod",  "nextafter", "sin",  "cos",   "tan", "asinh",
                                         "acosh", "atanh",     "cbrt", "hypot", "pow" };
    static long double (*const of1[])(long double) = { asinhl, acoshl, atanhl, cbrtl };
    static long double (*const of2[])(long double, long double) = { hypotl, powl };
    ptx_unit u = { 0 };
    strbuf text = { 0 };
    tp_err err = { 0 };
    uint64_t s = 12345;
    for (size_t i = 0; i < COUNT(names); i++)
        for (int t = i > 4; t < 2; t++) {
            char name[32];
            snprintf(name, sizeof name, "tp_%s_%s", names[i], t ? "f64" : "f32");
            CHECK(ptx_function(&u, name));
        }
    CHECK(!ptx_function(&u, "tp_nothing_f32"));
    CHECK(!ptx_function(&u, "tp_pow_f32"));
    ptx_text(&u, &text);
    ptx_assemble(strbuf_str(&text), "sm_90", "ptx_functions");
    ptx_module *m = ptx_parse(strbuf_str(&text), &err);
    CHECK_STR(err.msg, "");
    for (int c = 0; m && c < 4000; c++)
        for (size_t i = 0; i < COUNT(names); i++)
            for (int t = i > 4; t < 2; t++) {
                uint64_t arg[2], out[2] = { 0 };
                char name[32];
                const vir_call_row *row = &vir_calls[vir_call_find(names[i])];
                double x[2], want = 0, got = 0;
                for (int j = 0; j < 2; j++) {
                    arg[j] = s = s * 6364136223846793005ULL + 1442695040888963407ULL;
                    arg[j] ^= arg[j] >> 29;
                    if (c % 16 == 0)
                        arg[j] = (arg[j] & 0x800fffffffffffff) | (uint64_t)(arg[j] >> 60 & 1) << 52;
                    if (c % 16 == 1)
                        arg[j] &= arg[j] & 1 ? 0xfff0000000000000 : 0x8000000000000000;
                }
                if (c % 4 == 2) /* near each other */
                    arg[1] = (arg[1] & 0x800fffffffffffff) | (arg[0] & 0x7ff0000000000000);
                for (int j = 0; j < 2; j++) {
                    memcpy(&x[j], &arg[j], 8);
                    int e;
                    if (i > 4 && c % 3) /* near 1, where they are not constant */
                        x[j] = c % 3 == 1 ? frexp(x[j], &e) : copysign(pow(fabs(x[j]), 1.0 / 128), x[j]);
                    if (i > 4 && j && c % 5 == 4)
                        x[j] = rint(x[j] * 8);
                    memcpy(&arg[j], &x[j], 8);
                    if (!t) {
                        if (fabs(x[j]) > 1e-300 && fabs(x[j]) < 1e300) /* spread over the range of f32 */
                            x[j] = copysign(pow(fabs(x[j]), 0.125), x[j]);
                        float v = (float)x[j];
                        uint32_t b;
                        memcpy(&b, &v, 4);
                        x[j] = v, arg[j] = b;
                    }
                }
                bool far = fabs(x[0]) > (t ? 1e6 : 30000) || x[0] != x[0];
                if (i >= 2 && i <= 4 && !far)
                    continue;
                snprintf(name, sizeof name, "tp_%s_%s", names[i], t ? "f64" : "f32");
                if (!ptx_call(m, name, arg, out, &err)) {
                    test_fail(__FILE__, __LINE__, "%s: %s", name, err.msg);
                    c = 1 << 20;
                    break;
                }
                if (t && i > 4) /* the C library's own error is larger than what is asked for here */
                    want = (double)(row->nargs == 1 ? of1[i - 5](x[0]) : of2[i - 9](x[0], x[1]));
                if (t)
                    memcpy(&got, &out[0], 8);
                if (t && i <= 4) {
                    want = row->nargs == 1 ? row->d1(x[0]) : row->d2(x[0], x[1]);
                } else if (!t) {
                    float v;
                    memcpy(&v, &out[0], 4);
                    want = row->nargs == 1 ? row->f1((float)x[0]) : row->f2((float)x[0], (float)x[1]),
                    got = v;
                }
                double off = i < 2 ? (got == want && signbit(got) == signbit(want)) ||
                                             (got != got && want != want)
                                         ? 0
                                         : 9
                                   : ulps(got, want, !t);
                if (off > 2) {
                    test_fail(__FILE__, __LINE__, "%s(%a, %a): %a, expected %a", name, x[0], x[1], got, want);
                    c = 1 << 20;
                    break;
                }
            }
    if (m)
        ptx_module_free(m);
    ptx_free(&u);
    strbuf_free(&text);
}
