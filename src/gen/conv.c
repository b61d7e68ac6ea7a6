/* conv.c - convolution as a matrix product whose right operand is gathered from the image while packing.
 * Weights (cout x cin kd kh kw) times columns (cin kd kh kw x od oh ow), image by image and group by group. */
#include "gen/gemm_int.h"

struct conv_plan {
    conv_desc d;
    gemm_plan *plain, *onto;   /* y = ..., y += ... */
    int64_t rows, cols, depth; /* of one product: cout / groups, od oh ow, cin / groups times the window */
};

/* What packing needs to know of the running call. */
typedef struct conv_call {
    const conv_plan *p;
    const char *x;
    int64_t image; /* -1: the product's batch number is the image; else it is the group */
} conv_call;

bool conv_out(conv_desc *d, tp_err *err)
{
    if (d->groups < 1 || d->cin % MAX(d->groups, 1) || d->cout % MAX(d->groups, 1))
        return err_set(err, ERR_value,
                       "convolution: %lld input and %lld output channels do not divide into %lld groups",
                       (long long)d->cin, (long long)d->cout, (long long)d->groups);
    for (int i = 0; i < 3; i++) {
        int64_t reach = d->dilation[i] * (d->kernel[i] - 1) + 1, room = d->in[i] + 2 * d->pad[i];
        if (d->kernel[i] < 1 || d->stride[i] < 1 || d->dilation[i] < 1 || d->pad[i] < 0)
            return err_set(err, ERR_value,
                           "convolution: kernel, stride and dilation must be positive, padding not negative");
        if (room < reach)
            return err_set(err, ERR_value,
                           "convolution: the window (%lld) is larger than the padded input (%lld)",
                           (long long)reach, (long long)room);
        d->out[i] = (room - reach) / d->stride[i] + 1;
    }
    return true;
}

/* One row of columns within one output line: `count` outputs from output position ow on, input line at src (NULL: in
 * the padding). */
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2"))) /* a plan exists only where that is there */
#else
#define AVX2
#endif
#define LINE(name, T)                                                                                      \
    AVX2 static void name(const T *src, const conv_desc *d, int64_t kw, int64_t ow, int64_t count, T *dst) \
    {                                                                                                      \
        int64_t s = d->stride[2], iw = ow * s - d->pad[2] + kw * d->dilation[2], j = 0, step = d->xs[4];   \
        if (!src) {                                                                                        \
            memset(dst, 0, sizeof(T) * (size_t)count);                                                     \
            return;                                                                                        \
        }                                                                                                  \
        for (; j < count && iw < 0; j++, iw += s)                                                          \
            dst[j] = 0;                                                                                    \
        int64_t good = iw < d->in[2] ? (d->in[2] - iw + s - 1) / s : 0, stop = MIN(count, j + good);       \
        if (s == 1 && step == 1) {                                                                         \
            const T *q = src + iw - j;                                                                     \
            for (; j + 8 <= stop; j += 8) /* a fixed size: vector moves, no call */                        \
                memcpy(dst + j, q + j, 8 * sizeof(T));                                                     \
            for (; j < stop; j++)                                                                          \
                dst[j] = q[j];                                                                             \
        } else {                                                                                           \
            for (; j < stop; j++, iw += s)                                                                 \
                dst[j] = src[iw * step];                                                                   \
        }                                                                                                  \
        for (; j < count; j++)                                                                             \
            dst[j] = 0;                                                                                    \
    }
LINE(line_f32, float)
LINE(line_f64, double)

static void pack_columns(void *arg, int64_t batch, int64_t k0, int64_t k, int64_t n0, int cols, int width,
                         void *dst)
{
    const conv_call *c = arg;
    const conv_desc *d = &c->p->d;
    size_t e = vir_mem_size(d->type);
    int64_t image = c->image < 0 ? batch : c->image, group = c->image < 0 ? 0 : batch,
            cg = d->cin / d->groups;
    const char *x = c->x + (image * d->xs[0] + group * cg * d->xs[1]) * (int64_t)e;
    int64_t ow0 = n0 % d->out[2], oh0 = n0 / d->out[2] % d->out[1], od0 = n0 / d->out[2] / d->out[1];
    int64_t kw = k0 % d->kernel[2], kh = k0 / d->kernel[2] % d->kernel[1];
    int64_t kd = k0 / d->kernel[2] / d->kernel[1] % d->kernel[0],
            ch = k0 / d->kernel[2] / d->kernel[1] / d->kernel[0];
    for (int64_t i = 0; i < k; i++) {
        int64_t ow = ow0, oh = oh0, od = od0;
        char *q = (char *)dst + (size_t)i * (size_t)width * e;
        for (int64_t left = cols; left > 0;) {
            int64_t count = MIN(left, d->out[2] - ow);
            int64_t id = od * d->stride[0] - d->pad[0] + kd * d->dilation[0],
                    ih = oh * d->stride[1] - d->pad[1] + kh * d->dilation[1];
            bool in = id >= 0 && id < d->in[0] && ih >= 0 && ih < d->in[1];
            const char *src = in ? x + (ch * d->xs[1] + id * d->xs[2] + ih * d->xs[3]) * (int64_t)e : NULL;
            if (e == 4)
                line_f32((const float *)(const void *)src, d, kw, ow, count, (float *)(void *)q);
            else
                line_f64((const double *)(const void *)src, d, kw, ow, count, (double *)(void *)q);
            q += (size_t)count * e;
            left -= count;
            ow = 0;
            if (++oh == d->out[1])
                oh = 0, od++;
        }
        if (width > cols)
            memset(q, 0, (size_t)(width - cols) * e);
        if (++kw == d->kernel[2]) { /* the next place of the window, then the next channel */
            kw = 0;
            if (++kh == d->kernel[1]) {
                kh = 0;
                if (++kd == d->kernel[0])
                    kd = 0, ch++;
            }
        }
    }
}

conv_plan *conv_plan_new(const conv_desc *given, gen_isa isa, tp_err *err)
{
    conv_desc d = *given;
    if (d.type != VM_f32 && d.type != VM_f64) {
        err_set(err, ERR_notimpl, "convolution of %s", vir_mem_name(d.type));
        return NULL;
    }
    if (isa == ISA_none) {
        err_set(err, ERR_notimpl, "convolution without AVX2");
        return NULL;
    }
    if (!conv_out(&d, err))
        return NULL;
    conv_plan *p = mem_zalloc(sizeof *p);
    p->d = d;
    p->rows = d.cout / d.groups;
    p->cols = d.out[0] * d.out[1] * d.out[2];
    p->depth = d.cin / d.groups * d.kernel[0] * d.kernel[1] * d.kernel[2];
    gemm_desc g = {
        .m = p->rows, .n = p->cols, .k = p->depth, .batch = d.groups == 1 ? d.n : d.groups, .alpha = 1
    };
    g.a = (gemm_mat){ d.type, p->depth, 1, d.groups == 1 ? 0 : p->rows * p->depth };
    g.b = (gemm_mat){ d.type, p->cols, 1, 0 };
    g.c = (gemm_mat){ d.type, p->cols, 1, p->rows * p->cols };
    p->plain = gemm_plan_packed(&g, isa, pack_columns, err);
    g.beta = 1;
    p->onto = p->plain ? gemm_plan_packed(&g, isa, pack_columns, err) : NULL;
    if (!p->onto) {
        conv_plan_free(p);
        return NULL;
    }
    return p;
}

void conv_plan_free(conv_plan *p)
{
    if (!p)
        return;
    if (p->plain)
        gemm_plan_free(p->plain);
    if (p->onto)
        gemm_plan_free(p->onto);
    free(p);
}

/* y's rows start from the bias; the products are added. */
static void fill_bias(const conv_plan *p, const void *bias, void *y)
{
    const conv_desc *d = &p->d;
    for (int64_t r = 0; r < d->n * d->cout; r++)
        for (int64_t c = 0; c < p->cols; c++)
            if (d->type == VM_f32)
                ((float *)y)[r * p->cols + c] = ((const float *)bias)[r % d->cout];
            else
                ((double *)y)[r * p->cols + c] = ((const double *)bias)[r % d->cout];
}

bool conv_run(const conv_plan *p, const void *x, const void *w, const void *bias, void *y,
              const gemm_epilogue *e, tp_err *err)
{
    const conv_desc *d = &p->d;
    const gemm_plan *g = bias ? p->onto : p->plain;
    if (bias)
        fill_bias(p, bias, y);
    if (d->groups == 1) {
        conv_call c = { p, x, -1 };
        return gemm_run_packed(g, w, y, e, 0, &c, err);
    }
    for (int64_t i = 0; i < d->n; i++) {
        conv_call c = { p, x, i };
        char *out = (char *)y + i * d->cout * p->cols * (int64_t)vir_mem_size(d->type);
        if (!gemm_run_packed(g, w, out, e, i * d->groups, &c, err))
            return false;
    }
    return true;
}
