#include "ptx_cases.h"

typedef struct {
    vir *k;
    vir_ref rows, n, zero, r, i, at; /* at: r * n + i */
} frame;

static frame begin(arena *a, const char *name)
{
    frame f = { .k = vir_make(a, name) };
    f.rows = vir_int_arg(f.k, "rows"), f.n = vir_int_arg(f.k, "n"), f.zero = vir_int(f.k, 0);
    return f;
}
static void row(frame *f)
{
    f->k->ways = 16; /* as the target's caps say: 256 partial results, eight warps */
    f->r = vir_loop(f->k, LOOP_parallel, f->zero, f->rows);
}
static void vec(frame *f)
{
    f->i = vir_loop(f->k, LOOP_vector, f->zero, f->n);
    f->at = f->r ? vir_add(f->k, vir_mul(f->k, f->r, f->n), f->i) : f->i;
}
static vir *end(frame *f, int loops)
{
    while (loops--)
        vir_end(f->k);
    return f->k;
}

/* x = sin(x) * cos(x) + x, ten times */
static vir *chain(arena *a)
{
    frame f = begin(a, "chain");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    vec(&f);
    vir_ref v = vir_load(f.k, x, f.at, 0);
    for (int i = 0; i < 10; i++)
        v = vir_add(f.k, vir_mul(f.k, vir_sin(f.k, v), vir_cos(f.k, v)), v);
    vir_store(f.k, y, f.at, v, 0);
    return end(&f, 1);
}
static vir *scale(arena *a)
{
    frame f = begin(a, "scale");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    vec(&f);
    vir_store(f.k, y, f.at,
              vir_fma(f.k, vir_load(f.k, x, f.at, 0), vir_flt(f.k, VT_f32, 1.5), vir_flt(f.k, VT_f32, 0.25)),
              0);
    return end(&f, 1);
}
static vir *gelu(arena *a) /* bf16: eight elements a thread */
{
    frame f = begin(a, "gelu");
    int x = vir_buffer(f.k, VM_bf16, VIR_IN, "x"), y = vir_buffer(f.k, VM_bf16, VIR_OUT, "y");
    vec(&f);
    vir_ref v = vir_load(f.k, x, f.at, 0), half = vir_flt(f.k, VT_f32, 0.5);
    vir_ref e = vir_erf(f.k, vir_mul(f.k, v, vir_flt(f.k, VT_f32, 0.70710678118654752)));
    vir_store(f.k, y, f.at, vir_mul(f.k, vir_mul(f.k, v, half), vir_add(f.k, e, vir_flt(f.k, VT_f32, 1))), 0);
    return end(&f, 1);
}
static vir *softmax(arena *a)
{
    frame f = begin(a, "softmax");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    row(&f);
    int red = vir_red(f.k, RED_softmax, VT_f32);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), 0);
    vir_end(f.k);
    vir_ref top = vir_fold(f.k, red), one = vir_flt(f.k, VT_f32, 1);
    vir_ref by = vir_div(f.k, one, vir_part(f.k, red, 1));
    vec(&f);
    vir_store(f.k, y, f.at, vir_mul(f.k, vir_expn(f.k, vir_sub(f.k, vir_load(f.k, x, f.at, 0), top)), by), 0);
    return end(&f, 2);
}
static vir *layer_norm(arena *a)
{
    frame f = begin(a, "layer_norm");
    int x = vir_buffer(f.k, VM_bf16, VIR_IN, "x"), g = vir_buffer(f.k, VM_bf16, VIR_IN, "weight"),
        y = vir_buffer(f.k, VM_bf16, VIR_OUT, "y");
    row(&f);
    int red = vir_red(f.k, RED_welford, VT_f32);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), 0);
    vir_end(f.k);
    vir_ref mean = vir_fold(f.k, red), var = vir_div(f.k, vir_part(f.k, red, 1), vir_part(f.k, red, 2));
    vir_ref by = vir_rsqrt(f.k, vir_add(f.k, var, vir_flt(f.k, VT_f32, 1e-5)));
    vec(&f);
    vir_ref v = vir_mul(f.k, vir_sub(f.k, vir_load(f.k, x, f.at, 0), mean), by);
    vir_store(f.k, y, f.at, vir_mul(f.k, v, vir_load(f.k, g, f.i, 0)), 0);
    return end(&f, 2);
}
static vir *row_sum(arena *a)
{
    frame f = begin(a, "row_sum");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    row(&f);
    int red = vir_red(f.k, RED_sum, VT_f32);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), 0);
    vir_end(f.k);
    vir_store(f.k, y, f.r, vir_fold(f.k, red), 0);
    return end(&f, 1);
}
static vir *row_argmax(arena *a)
{
    frame f = begin(a, "row_argmax");
    int x = vir_buffer(f.k, VM_f64, VIR_IN, "x"), y = vir_buffer(f.k, VM_i64, VIR_OUT, "y");
    row(&f);
    int red = vir_red(f.k, RED_argmax, VT_f64);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), f.i);
    vir_end(f.k);
    vir_fold(f.k, red);
    vir_store(f.k, y, f.r, vir_part(f.k, red, 1), 0);
    return end(&f, 1);
}
static vir *centre(arena *a) /* rows of 96: a warp has them in registers */
{
    frame f = begin(a, "centre");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    f.n = vir_int(f.k, 96), f.rows = vir_int(f.k, 4096);
    f.k->ways = 4;
    f.r = vir_loop(f.k, LOOP_parallel, f.zero, f.rows);
    int red = vir_red(f.k, RED_sum, VT_f32);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), 0);
    vir_end(f.k);
    vir_ref mean = vir_div(f.k, vir_fold(f.k, red), vir_flt(f.k, VT_f32, 96));
    vec(&f);
    vir_store(f.k, y, f.at, vir_sub(f.k, vir_load(f.k, x, f.at, 0), mean), 0);
    return end(&f, 2);
}
static vir *column_sum(arena *a)
{
    frame f = begin(a, "column_sum");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    vir_ref c = vir_loop(f.k, LOOP_vector, f.zero, f.n);
    int red = vir_red(f.k, RED_sum, VT_f32);
    vir_ref r = vir_loop(f.k, LOOP_serial, f.zero, f.rows);
    vir_step(f.k, red, vir_load(f.k, x, vir_add(f.k, vir_mul(f.k, r, f.n), c), 0), 0);
    vir_end(f.k);
    vir_store(f.k, y, c, vir_fold(f.k, red), 0);
    return end(&f, 1);
}
static vir *cumsum(arena *a)
{
    frame f = begin(a, "cumsum");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    row(&f);
    int red = vir_scan(f.k, RED_sum, VT_f32);
    vec(&f);
    vir_step(f.k, red, vir_load(f.k, x, f.at, 0), 0);
    vir_store(f.k, y, f.at, vir_part(f.k, red, 0), 0);
    return end(&f, 2);
}
static vir *gather(arena *a) /* y[r, i] = table[index[r], i] */
{
    frame f = begin(a, "gather");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "table"), j = vir_buffer(f.k, VM_i64, VIR_IN, "index"),
        y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    row(&f);
    vir_ref from = vir_modf(f.k, vir_load(f.k, j, f.r, 0), f.rows);
    vec(&f);
    vir_store(f.k, y, f.at, vir_load(f.k, x, vir_add(f.k, vir_mul(f.k, from, f.n), f.i), 0), 0);
    return end(&f, 2);
}
static vir *scatter(arena *a) /* y[index[i]] += x[i], in order */
{
    frame f = begin(a, "scatter");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), j = vir_buffer(f.k, VM_i64, VIR_IN, "index"),
        y = vir_buffer(f.k, VM_f32, VIR_INOUT, "y");
    vec(&f);
    vir_store_add(f.k, y, vir_modf(f.k, vir_load(f.k, j, f.at, 0), f.n), vir_load(f.k, x, f.at, 0), 0);
    return end(&f, 1);
}
static vir *scatter_rows(
    arena
        *a) /* y[index[i], c] += x[i, c] for c < 128, in order; iteration r of the parallel loop has row r */
{
    frame f = begin(a, "scatter_rows");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), j = vir_buffer(f.k, VM_i64, VIR_IN, "index"),
        y = vir_buffer(f.k, VM_f32, VIR_INOUT, "y");
    row(&f);
    vir_ref i = vir_loop(f.k, LOOP_serial, f.zero, f.rows),
            to = vir_modf(f.k, vir_load(f.k, j, i, 0), f.rows);
    vir_ref some = vir_min(f.k, f.n, vir_int(f.k, 128)); /* a warp has four elements a lane */
    vir_ref c = vir_loop(f.k, LOOP_vector, f.zero, vir_select(f.k, vir_eq(f.k, to, f.r), some, f.zero));
    vir_ref v = vir_load(f.k, x, vir_add(f.k, vir_mul(f.k, i, f.n), c), 0),
            at = vir_add(f.k, vir_mul(f.k, to, f.n), c);
    vir_store(f.k, y, at, vir_add(f.k, vir_load(f.k, y, at, 0), v), 0);
    return end(&f, 3);
}
static vir *scatter_ranges(arena *a) /* y[index[i]] += x[i], in order; iteration r has every rows-th place */
{
    frame f = begin(a, "scatter_ranges");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), j = vir_buffer(f.k, VM_i64, VIR_IN, "index"),
        y = vir_buffer(f.k, VM_f32, VIR_INOUT, "y");
    row(&f);
    vir_ref i = vir_loop(f.k, LOOP_vector, f.zero, f.n), to = vir_modf(f.k, vir_load(f.k, j, i, 0), f.n);
    vir_store_add(f.k, y, to, vir_load(f.k, x, i, 0), vir_eq(f.k, vir_modf(f.k, to, f.rows), f.r));
    return end(&f, 2);
}
static vir *count(arena *a) /* histogram: integers may be added in any order */
{
    frame f = begin(a, "count");
    int j = vir_buffer(f.k, VM_i64, VIR_IN, "index"), y = vir_buffer(f.k, VM_i32, VIR_INOUT, "y");
    vec(&f);
    vir_store_add(f.k, y, vir_modf(f.k, vir_load(f.k, j, f.at, 0), vir_int(f.k, 16)), vir_imm(f.k, VT_i32, 1),
                  0);
    return end(&f, 1);
}
static vir *dropout(arena *a)
{
    frame f = begin(a, "dropout");
    int x = vir_buffer(f.k, VM_f32, VIR_IN, "x"), y = vir_buffer(f.k, VM_f32, VIR_OUT, "y");
    vec(&f);
    vir_ref d = vir_draw(f.k, VT_i32, vir_int(f.k, 1234), vir_int(f.k, 0), f.i);
    vir_ref keep = vir_ge(f.k, d, vir_imm(f.k, VT_i32, 0)), v = vir_load(f.k, x, f.at, 0);
    vir_store(f.k, y, f.at, vir_select(f.k, keep, vir_add(f.k, v, v), vir_flt(f.k, VT_f32, 0)), 0);
    return end(&f, 1);
}
static vir *normal(arena *a)
{
    frame f = begin(a, "normal");
    int y = vir_buffer(f.k, VM_f64, VIR_OUT, "y");
    vec(&f);
    vir_store(f.k, y, f.at, vir_draw(f.k, VT_f64, vir_int(f.k, 99), vir_int(f.k, 7), f.i), 0);
    return end(&f, 1);
}
static vir *masked(arena *a) /* y = b ? fmod(x, 3) : i, bool and f16 */
{
    frame f = begin(a, "masked");
    int x = vir_buffer(f.k, VM_f16, VIR_IN, "x"), b = vir_buffer(f.k, VM_bool, VIR_IN, "b"),
        y = vir_buffer(f.k, VM_f16, VIR_OUT, "y");
    vec(&f);
    vir_ref m = vir_load(f.k, b, f.at, 0), v = vir_load(f.k, x, f.at, m);
    v = vir_select(f.k, m, vir_call(f.k, "fmod", v, vir_flt(f.k, VT_f32, 3)), vir_cvt(f.k, VT_f32, f.i));
    vir_store(f.k, y, f.at, v, 0);
    return end(&f, 1);
}

const ptx_case ptx_cases[] = {
    { "scale", scale, true },
    { "chain", chain, true },
    { "gelu", gelu, true },
    { "softmax", softmax, false },
    { "layer_norm", layer_norm, false },
    { "row_sum", row_sum, false },
    { "row_argmax", row_argmax, false },
    { "centre", centre, false },
    { "column_sum", column_sum, false },
    { "cumsum", cumsum, false },
    { "gather", gather, false },
    { "scatter", scatter, true },
    { "scatter_rows", scatter_rows, false },
    { "scatter_ranges", scatter_ranges, false },
    { "count", count, true },
    { "dropout", dropout, true },
    { "normal", normal, true },
    { "masked", masked, true },
};
const int nptx_cases = COUNT(ptx_cases);
