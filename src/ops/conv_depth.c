/* conv_depth.c - see conv_depth.h. */
#include "ops/conv_depth.h"
#include "ops/conv_depth_loops.h"
#include "base/pool.h"
#include "base/bytes.h"

enum { BAND_BYTES = 48 << 10, WORK = 1 << 15, TASKS = 64 };

static bool takes(dtype dt, const conv_geom *g)
{
    bool ok = dt == DT_f32 && g->groups > 1 && g->c == g->groups && g->o == g->groups && g->n > 0 &&
              g->in[0] == 1 && g->out[0] == 1 && g->k[0] == 1 && g->s[0] == 1 && g->p[0] == 0;
    for (int i = 1; i < 3; i++)
        ok = ok && g->in[i] > 0 && g->out[i] > 0 && g->k[i] <= DEPTH_WINDOW && g->s[i] <= DEPTH_STRIDE;
    return ok;
}

static int64_t modulo(int64_t a, int64_t b) { return (a % b + b) % b; }
static void axis_init(depth_axis *a, const conv_geom *g, int i, bool grad)
{
    int64_t s = g->s[i];
    *a = (depth_axis){ .from = grad ? g->out[i] : g->in[i],
                       .to = grad ? g->in[i] : g->out[i],
                       .step = grad ? 1 : s,
                       .res = grad ? s : 1,
                       .least = INT64_MAX,
                       .most = INT64_MIN };
    for (int64_t r = 0; r < a->res; r++) {
        depth_set *t = &a->set[r];
        t->count = r < a->to ? (a->to - r + a->res - 1) / a->res : 0;
        for (int64_t k = 0; k < g->k[i]; k++) {
            int64_t q = grad ? r + g->p[i] - k * g->d[i] : k * g->d[i] - g->p[i];
            if (grad && modulo(q, s))
                continue;
            q = grad ? (q - modulo(q, s)) / s : q;
            t->k[t->n] = (int)k;
            t->q[t->n++] = q;
            a->least = MIN(a->least, q);
            a->most = MAX(a->most, q);
        }
    }
}

static depth_run run_of(const conv_geom *g, bool grad)
{
    depth_run r = { .c = g->c, .K = g->k[1] * g->k[2], .across = g->k[2] };
    axis_init(&r.y, g, 1, grad);
    axis_init(&r.x, g, 2, grad);
    int64_t wide = (r.x.to + r.x.res - 1) / r.x.res;
    wide = (wide + DEPTH_LANES - 1) / DEPTH_LANES * DEPTH_LANES;
    r.pitch = wide + (r.x.most - r.x.least) / r.x.step + 1;
    int64_t row = r.pitch * r.x.step * (int64_t)sizeof(float), span = r.y.most - r.y.least + 1;
    r.band = MAX(8, (BAND_BYTES / row - span) / r.y.step + 1);
    r.band = MIN(r.band, (r.y.to + r.y.res - 1) / r.y.res);
    return r;
}

/* [element][channel] of [channel][element], or back */
static void turn(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            to[k * rows + i] = from[i * cols + k];
}

static _Thread_local bytes_kept kept;

static bool results(const conv_geom *g, bool grad, const void *from, const void *w, const void *bias,
                    void *to)
{
    depth_run r = run_of(g, grad);
    r.from = from;
    r.w = w;
    r.bias = bias;
    r.to = to;
    int64_t each = MAX(1, r.y.to * r.x.to * r.K / (r.y.res * r.x.res));
    if (!g->last) {
        pool_for(g->n * g->c, MAX(1, WORK / each), ISA_PICK(depth_planes), &r);
        return true;
    }
    float *turned = bytes_keep(&kept, r.K * r.c * (int64_t)sizeof(float));
    if (!turned)
        return false;
    turn(turned, w, r.c, r.K);
    r.w = turned;
    r.per = r.y.to;
    pool_for(g->n * r.y.to, MAX(1, WORK * r.y.to / (each * r.c)), ISA_PICK(depth_rows), &r);
    return true;
}

bool conv_depth_forward(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias, void *y)
{
    return takes(dt, g) && results(g, false, x, w, bias, y);
}
bool conv_depth_grad_input(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx)
{
    return takes(dt, g) && results(g, true, dy, w, NULL, dx);
}

bool conv_depth_grad_weight(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw)
{
    if (!takes(dt, g))
        return false;
    depth_run r = run_of(g, false);
    int64_t each = MAX(1, r.y.to * r.x.to * r.K), all = r.c * r.K;
    r.from = x;
    r.dy = dy;
    r.n = g->n;
    int64_t blocks = g->last ? (r.c + DEPTH_LANES - 1) / DEPTH_LANES : r.c;
    r.per = MAX(1, g->n * blocks / TASKS); /* few tasks would leave threads without work */
    int64_t some = (g->n + r.per - 1) / r.per;
    r.to = bytes_keep(&kept, some * all * (int64_t)sizeof(float));
    if (!r.to)
        return false;
    if (g->last)
        pool_for(some * blocks, MAX(1, WORK / (each * r.per * DEPTH_LANES)), ISA_PICK(depth_row_sums), &r);
    else
        pool_for(some * blocks, MAX(1, WORK / (each * r.per)), ISA_PICK(depth_plane_sums), &r);
    for (int64_t n = 1; n < some; n++) /* in order */
        for (int64_t i = 0; i < all; i++)
            r.to[i] += r.to[n * all + i];
    if (g->last)
        turn(dw, r.to, r.K, r.c);
    else
        memcpy(dw, r.to, (size_t)all * sizeof(float));
    return true;
}
