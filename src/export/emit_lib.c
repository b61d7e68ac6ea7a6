/* emit_lib.c - what the plan leaves to library calls, as C. A helper is text in which T stands for the element type, INDEX for
 * that of an index or of a result and N_name_T for its own name; LOAD, BACK and SAVE convert from T, from INDEX and to INDEX. Those that threads share have the form of a kernel: buffers, numbers, and
 * which steps to do. */
#include "export/emit_int.h"

#define KERNEL \
    "(void *const *p, const int64_t *v, const double *f, int64_t lo, int64_t hi)\n{\n    (void)f;\n"
/* sizes and strides of batch, channels and three sides each, then step, edge and distance of windows (three each) */
#define SIDES                                                                                                \
    "    const int64_t *xn = v, *xs = v + 5, *wn = v + 10, *ws = v + 15, *yn = v + 20, *ys = v + 25, *st = " \
    "v + 30,\n"                                                                                              \
    "                  *pad = v + 33, *dil = v + 36;\n    (void)xn, (void)xs, (void)wn, (void)ws, "          \
    "(void)yn, (void)ys, (void)st, (void)pad, (void)dil;\n"
#define WINDOW                              \
    "for (int64_t a = 0; a < wn[2]; a++)\n" \
    "for (int64_t b = 0; b < wn[3]; b++)\n" \
    "for (int64_t c = 0; c < wn[4]; c++) {\n"
#define PLACES                                                                                           \
    "for (int64_t i = 0; i < yn[2]; i++)\nfor (int64_t j = 0; j < yn[3]; j++)\nfor (int64_t k = 0; k < " \
    "yn[4]; k++) {\n"

static const struct {
    const char *name, *text;
} helpers[] = {
    { "product",
      "/* c (m x n) = a (m x k) b (k x n), or added to c, or to a row in each row, for a batch of them */\n"
      "static void N_product_T" KERNEL
      "    const int64_t m = v[0], n = v[1], k = v[2], *as = v + 3, *bs = v + 6, *cs = v + 9, add = v[12];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t z = r / m, i = r % m;\n"
      "        const T *a = (const T *)p[0] + z * as[0] + i * as[1], *b = (const T *)p[1] + z * bs[0];\n"
      "        const T *row = p[3];\n"
      "        T *c = (T *)p[2] + z * cs[0] + i * cs[1];\n"
      "        for (int64_t j = 0; j < n && !add; j++)\n"
      "            c[j * cs[2]] = row ? row[j * v[13]] : 0;\n"
      "        for (int64_t q = 0; q < k; q++) {\n"
      "            const T x = a[q * as[2]];\n"
      "            if (bs[2] == 1 && cs[2] == 1)\n"
      "                for (int64_t j = 0; j < n; j++)\n"
      "                    c[j] += x * b[q * bs[1] + j];\n"
      "            else\n"
      "                for (int64_t j = 0; j < n; j++)\n"
      "                    c[j * cs[2]] += x * b[q * bs[1] + j * bs[2]];\n"
      "        }\n"
      "    }\n"
      "}\n" },
    { "half_product",
      "/* the same of narrow floats, summed in float */\n"
      "static void N_half_product_T" KERNEL
      "    const int64_t m = v[0], n = v[1], k = v[2], *as = v + 3, *bs = v + 6, *cs = v + 9, add = v[12];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t z = r / m, i = r % m;\n"
      "        const uint16_t *a = (const uint16_t *)p[0] + z * as[0] + i * as[1];\n"
      "        const uint16_t *b = (const uint16_t *)p[1] + z * bs[0], *row = p[3];\n"
      "        INDEX *c = (INDEX *)p[2] + z * cs[0] + i * cs[1];\n"
      "        for (int64_t j = 0; j < n; j++) {\n"
      "            float s = add ? BACK(c[j * cs[2]]) : row ? LOAD(row[j * v[13]]) : 0;\n"
      "            for (int64_t q = 0; q < k; q++)\n"
      "                s += LOAD(a[q * as[2]]) * LOAD(b[q * bs[1] + j * bs[2]]);\n"
      "            c[j * cs[2]] = SAVE(s);\n"
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
    { "conv",
      "/* y = x (*) w + bias */\nstatic void N_conv_T" KERNEL SIDES
      "    const T *x = p[0], *w = p[1], *bias = p[2];\n"
      "    T *y = p[3];\n"
      "    const int64_t per = yn[1] / v[39];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n" PLACES "T sum = bias ? bias[o] : 0;\n"
      "for (int64_t q = 0; q < wn[1]; q++)\n" WINDOW
      "const int64_t s0 = i * st[0] - pad[0] + a * dil[0], s1 = j * st[1] - pad[1] + b * dil[1], s2 = k * "
      "st[2] - pad[2] + c * dil[2];\n"
      "if (s0 >= 0 && s0 < xn[2] && s1 >= 0 && s1 < xn[3] && s2 >= 0 && s2 < xn[4])\n"
      "    sum += x[n * xs[0] + (o / per * wn[1] + q) * xs[1] + s0 * xs[2] + s1 * xs[3] + s2 * xs[4]] *\n"
      "           w[o * ws[0] + q * ws[1] + a * ws[2] + b * ws[3] + c * ws[4]];\n"
      "}\n"
      "y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]] = sum;\n"
      "}\n    }\n}\n" },
    { "convt",
      "/* the transposed one, which is also how gradients reach the input of the other */\nstatic void "
      "N_convt_T" KERNEL SIDES "    const T *x = p[0], *w = p[1], *bias = p[2];\n"
      "    T *y = p[3];\n"
      "    const int64_t in = xn[1] / v[39];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1], g = o / wn[1];\n" PLACES
      "T sum = bias ? bias[o] : 0;\n" WINDOW "const int64_t t0 = i + pad[0] - a * dil[0], t1 = j + pad[1] - "
      "b * dil[1], t2 = k + pad[2] - c * dil[2];\n"
      "if (t0 < 0 || t1 < 0 || t2 < 0 || t0 % st[0] || t1 % st[1] || t2 % st[2] || t0 / st[0] >= xn[2] ||\n"
      "    t1 / st[1] >= xn[3] || t2 / st[2] >= xn[4])\n"
      "    continue;\n"
      "for (int64_t q = g * in; q < (g + 1) * in; q++)\n"
      "    sum += x[n * xs[0] + q * xs[1] + t0 / st[0] * xs[2] + t1 / st[1] * xs[3] + t2 / st[2] * xs[4]] *\n"
      "           w[q * ws[0] + o % wn[1] * ws[1] + a * ws[2] + b * ws[3] + c * ws[4]];\n"
      "}\n"
      "y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]] = sum;\n"
      "}\n    }\n}\n" },
    { "convw",
      "/* the gradient w of the windows, from the input x and the gradient y of the result */\nstatic void "
      "N_convw_T" KERNEL SIDES "    const T *x = p[0], *y = p[1];\n"
      "    T *w = p[2];\n"
      "    const int64_t per = yn[1] / v[39];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t o = r / wn[1], q = r % wn[1];\n" WINDOW "T sum = 0;\n"
      "for (int64_t n = 0; n < yn[0]; n++)\n" PLACES
      "const int64_t s0 = i * st[0] - pad[0] + a * dil[0], s1 = j * st[1] - pad[1] + b * dil[1], s2 = k * "
      "st[2] - pad[2] + c * dil[2];\n"
      "if (s0 >= 0 && s0 < xn[2] && s1 >= 0 && s1 < xn[3] && s2 >= 0 && s2 < xn[4])\n"
      "    sum += x[n * xs[0] + (o / per * wn[1] + q) * xs[1] + s0 * xs[2] + s1 * xs[3] + s2 * xs[4]] *\n"
      "           y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]];\n"
      "}\n"
      "w[o * ws[0] + q * ws[1] + a * ws[2] + b * ws[3] + c * ws[4]] = sum;\n"
      "}\n    }\n}\n" },
    { "planes", "/* sums of the planes of y (batch, channels, three sides) over the batch */\nstatic void "
                "N_planes_T" KERNEL "    const int64_t *yn = v, *ys = v + 5;\n"
                "    const T *y = p[0];\n"
                "    for (int64_t o = lo; o < hi; o++) {\n"
                "        T sum = 0;\n"
                "        for (int64_t n = 0; n < yn[0]; n++)\n" PLACES
                "sum += y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]];\n}\n"
                "        ((T *)p[1])[o] = sum;\n"
                "    }\n}\n" },
    { "maxpool",
      "/* maxima of windows and, where asked for, their places */\nstatic void N_maxpool_T" KERNEL SIDES
      "    const T *x = p[0];\n"
      "    T *y = p[1];\n"
      "    int64_t *at = p[2];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n" PLACES "T best = -INFINITY;\n"
      "int64_t where = -1;\n" WINDOW "const int64_t s0 = i * st[0] - pad[0] + a * dil[0], s1 = j * st[1] - "
      "pad[1] + b * dil[1], s2 = k * st[2] - pad[2] + c * dil[2];\n"
      "if (s0 < 0 || s0 >= xn[2] || s1 < 0 || s1 >= xn[3] || s2 < 0 || s2 >= xn[4])\n"
      "    continue;\n"
      "const T t = x[n * xs[0] + o * xs[1] + s0 * xs[2] + s1 * xs[3] + s2 * xs[4]];\n"
      "if (where < 0 || t > best || t != t) {\n"
      "    best = t;\n"
      "    where = (s0 * xn[3] + s1) * xn[4] + s2;\n"
      "}\n"
      "}\n"
      "const int64_t to = n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4];\n"
      "y[to] = best;\n"
      "if (at)\n"
      "    at[to] = where;\n"
      "}\n    }\n}\n" },
    { "maxback",
      "/* the gradient x of what was pooled, from that of the maxima and their places */\nstatic void "
      "N_maxback_T" KERNEL SIDES "    T *x = p[0];\n"
      "    const T *y = p[1];\n"
      "    const int64_t *at = p[2];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n"
      "        for (int64_t a = 0; a < xn[2]; a++)\n"
      "            for (int64_t b = 0; b < xn[3]; b++)\n"
      "                for (int64_t c = 0; c < xn[4]; c++)\n"
      "                    x[n * xs[0] + o * xs[1] + a * xs[2] + b * xs[3] + c * xs[4]] = 0;\n" PLACES
      "const int64_t w = at[n * wn[0] + o * wn[1] + i * wn[2] + j * wn[3] + k * wn[4]];\n"
      "if (w >= 0)\n"
      "    x[n * xs[0] + o * xs[1] + w / (xn[3] * xn[4]) * xs[2] + w / xn[4] % xn[3] * xs[3] + w % xn[4] * "
      "xs[4]] +=\n"
      "        y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]];\n"
      "}\n    }\n}\n" },
    { "avgpool",
      "/* means of windows; v[39]: edges count; v[40]: a divisor for all, or 0 */\nstatic void "
      "N_avgpool_T" KERNEL SIDES "    const T *x = p[0];\n"
      "    T *y = p[1];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n" PLACES "const int64_t at[3] = { i, j, k };\n"
      "int64_t from[3], to[3], all = 1, in = 1;\n"
      "for (int d = 0; d < 3; d++) {\n"
      "    from[d] = at[d] * st[d] - pad[d];\n"
      "    to[d] = from[d] + wn[2 + d] < xn[2 + d] + pad[d] ? from[d] + wn[2 + d] : xn[2 + d] + pad[d];\n"
      "    all *= to[d] - from[d];\n"
      "    from[d] = from[d] > 0 ? from[d] : 0;\n"
      "    to[d] = to[d] < xn[2 + d] ? to[d] : xn[2 + d];\n"
      "    in *= to[d] > from[d] ? to[d] - from[d] : 0;\n"
      "}\n"
      "T sum = 0;\n"
      "for (int64_t a = from[0]; a < to[0]; a++)\n"
      "    for (int64_t b = from[1]; b < to[1]; b++)\n"
      "        for (int64_t c = from[2]; c < to[2]; c++)\n"
      "            sum += x[n * xs[0] + o * xs[1] + a * xs[2] + b * xs[3] + c * xs[4]];\n"
      "y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]] = in ? sum / (T)(v[40] ? v[40] : v[39] ? "
      "all : in) : 0;\n"
      "}\n    }\n}\n" },
    { "adaptive",
      "/* means of as many windows as y has places */\nstatic void N_adaptive_T" KERNEL SIDES
      "    const T *x = p[0];\n"
      "    T *y = p[1];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n" PLACES "const int64_t at[3] = { i, j, k };\n"
      "int64_t from[3], to[3];\n"
      "for (int d = 0; d < 3; d++) {\n"
      "    from[d] = at[d] * xn[2 + d] / yn[2 + d];\n"
      "    to[d] = ((at[d] + 1) * xn[2 + d] + yn[2 + d] - 1) / yn[2 + d];\n"
      "}\n"
      "T sum = 0;\n"
      "for (int64_t a = from[0]; a < to[0]; a++)\n"
      "    for (int64_t b = from[1]; b < to[1]; b++)\n"
      "        for (int64_t c = from[2]; c < to[2]; c++)\n"
      "            sum += x[n * xs[0] + o * xs[1] + a * xs[2] + b * xs[3] + c * xs[4]];\n"
      "y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]] = sum / (T)((to[0] - from[0]) * (to[1] - "
      "from[1]) * (to[2] - from[2]));\n"
      "}\n    }\n}\n" },
    { "upsample",
      "/* nearest neighbours: each place of y looks for its own in x; f: steps in x */\nstatic void "
      "N_upsample_T" KERNEL SIDES "    const T *x = p[0];\n"
      "    T *y = p[1];\n"
      "    for (int64_t r = lo; r < hi; r++) {\n"
      "        const int64_t n = r / yn[1], o = r % yn[1];\n" PLACES "const int64_t at[3] = { i, j, k };\n"
      "int64_t s[3];\n"
      "for (int d = 0; d < 3; d++) {\n"
      "    const float step = ((const float *)p[2])[d];\n"
      "    s[d] = (int64_t)((float)at[d] * step);\n"
      "    s[d] = s[d] < xn[2 + d] ? s[d] : xn[2 + d] - 1;\n"
      "}\n"
      "y[n * ys[0] + o * ys[1] + i * ys[2] + j * ys[3] + k * ys[4]] =\n"
      "    x[n * xs[0] + o * xs[1] + s[0] * xs[2] + s[1] * xs[3] + s[2] * xs[4]];\n"
      "}\n    }\n}\n" },
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
    { "addrows", "/* rows of x added to rows of y, which starts from zeros, where at says; those of `skip` "
                 "are left out */\n"
                 "static int N_addrows_T(int64_t count, int64_t n, int64_t len, const T *x, const INDEX *at, "
                 "int64_t skip, T *y)\n"
                 "{\n"
                 "    for (int64_t i = 0; i < n * len; i++)\n"
                 "        y[i] = 0;\n"
                 "    for (int64_t i = 0; i < count; i++) {\n"
                 "        if (at[i] < 0 || at[i] >= n)\n"
                 "            return 1;\n"
                 "        for (int64_t j = 0; j < len && at[i] != skip; j++)\n"
                 "            y[at[i] * len + j] += x[i * len + j];\n"
                 "    }\n"
                 "    return 0;\n"
                 "}\n" },
    { "sort",
      "/* the first k of every line of x along a side, in order, equal ones as they lie; NaN is the largest. "
      "y: their values,\n"
      " * at: their places, either may be NULL; lines are counted through `outer` and `inner`. 2: no memory "
      "*/\n"
      "static int N_sort_T(int64_t outer, int64_t n, int64_t inner, int64_t k, int down, const T *x, T *y, "
      "int64_t *at)\n"
      "{\n"
      "    int64_t *a = malloc((size_t)(n > 0 ? n : 1) * 2 * sizeof *a), *b = a + n;\n"
      "    if (!a)\n"
      "        return 2;\n"
      "    for (int64_t r = 0; r < outer * inner; r++) {\n"
      "        const T *l = x + r / inner * n * inner + r % inner;\n"
      "        for (int64_t i = 0; i < n; i++)\n"
      "            a[i] = i;\n"
      "        for (int64_t w = 1; w < n; w *= 2) { /* runs of w are in order */\n"
      "            for (int64_t i = 0; i < n; i += 2 * w) {\n"
      "                int64_t p = i, q = i + w < n ? i + w : n, pe = q, qe = i + 2 * w < n ? i + 2 * w : "
      "n;\n"
      "                for (int64_t o = i; o < qe; o++) {\n"
      "                    int second = p >= pe;\n"
      "                    if (!second && q < qe) {\n"
      "                        const T u = l[a[p] * inner], t = l[a[q] * inner];\n"
      "                        second = down ? t > u || (t != t && u == u) : t < u || (u != u && t == t);\n"
      "                    }\n"
      "                    b[o] = second ? a[q++] : a[p++];\n"
      "                }\n"
      "            }\n"
      "            memcpy(a, b, (size_t)n * sizeof *a);\n"
      "        }\n"
      "        for (int64_t i = 0; i < k; i++) {\n"
      "            const int64_t to = r / inner * k * inner + i * inner + r % inner;\n"
      "            if (y)\n"
      "                y[to] = l[a[i] * inner];\n"
      "            if (at)\n"
      "                at[to] = a[i];\n"
      "        }\n"
      "    }\n"
      "    free(a);\n"
      "    return 0;\n"
      "}\n" },
};

static const char *half_of(dtype dt) { return dt == DT_f16 ? "f16" : dt == DT_bf16 ? "bf16" : NULL; }
static void add_conversion(strbuf *o, const char *way, dtype dt)
{
    if (half_of(dt))
        strbuf_adds(o, "tp_", way, "_", half_of(dt), NULL);
}

const char *emit_helper(emit *e, const char *name, dtype dt, dtype index)
{
    const char *type = gen_c_type(dt);
    char *full = arena_printf(&e->mem, "%s_%s_%s%s%s", e->name, name, half_of(dt) ? half_of(dt) : type,
                              index == DT_none ? "" : "_", index == DT_none ? "" : gen_c_type(index));
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
            else if (n == 4 && (!strncmp(p, "LOAD", 4) || !strncmp(p, "BACK", 4) || !strncmp(p, "SAVE", 4)))
                add_conversion(o, *p == 'S' ? "to" : "from", *p == 'L' ? dt : index);
            else if (n > 4 && p[0] == 'N' && p[1] == '_')
                strbuf_add(o, full);
            else
                strbuf_addn(o, p, MAX(n, (size_t)1));
            p += MAX(n, (size_t)1);
        }
    }
    return full;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */
static bool plain_float(const tp_tensor *t) { return t && (t->dt == DT_f32 || t->dt == DT_f64); }

/* Sizes and strides of batch, channels and three sides; `sides` of them are the tensor's, whose batch may be missing. */
static void add_sides(strbuf *b, const tp_tensor *t, int sides)
{
    symint size[5] = { 1, 1, 1, 1, 1 }, stride[5] = { 0 };
    for (int d = t->ndim - 1, k = 4; d >= 0 && k >= 0; d--) {
        if (t->ndim - 1 - d == sides)
            k = 1;
        size[k] = t->size[d];
        stride[k--] = t->stride[d];
    }
    emit_list(b, size, 5, true);
    emit_list(b, stride, 5, true);
}

static void add_three(strbuf *b, const tp_val *v, symint def, int sides, bool more)
{
    symint three[3] = { def, def, def };
    for (int i = 0; v->kind == VAL_ints && v->n && i < sides; i++)
        three[3 - sides + i] = v->ints[v->n == 1 ? 0 : i];
    emit_list(b, three, 3, more);
}

/* Windows as sizes of a tensor that has only those. */
static void add_window(strbuf *b, const tp_val *k, int sides)
{
    symint none[5] = { 0 };
    emit_list(b, (symint[]){ 1, 1 }, 2, true);
    add_three(b, k, 1, sides, true);
    emit_list(b, none, 5, true);
}

static bool add_node(emit *e, const ir_node *n) /* ", (void *)pointer" */
{
    strbuf_add(&e->body, ", (void *)");
    return emit_pointer(e, &e->body, n);
}
static bool add_item(emit *e, int slot)
{
    strbuf_add(&e->body, ", (void *)");
    if (slot >= 0)
        return emit_slot(e, &e->body, slot);
    strbuf_add(&e->body, "NULL");
    return true;
}
/* "NAME_run(helper, (void *[]){ NULL": what is read and written follows, then the numbers. */
static void open_run(emit *e, const char *helper, dtype dt)
{
    strbuf_addf(&e->body, "    %s_run(%s, (void *[]){ NULL", e->name, emit_helper(e, helper, dt, DT_none));
}
static void close_run(emit *e, symint par)
{
    strbuf_add(&e->body, " }, ");
    emit_num(&e->body, par);
    strbuf_add(&e->body, ", 1 << 20);\n");
}

static bool call_conv(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node), *w = ir_type(n->arg[1].node), *y = ir_type(n);
    const ir_node *bias = n->arg[2].kind == VAL_node ? n->arg[2].node : NULL;
    int sides = w->ndim - 2;
    if (!plain_float(y) || sides < 1 || sides > 3 || x->ndim != w->ndim ||
        (bias && ir_type(bias)->stride[0] != 1 && ir_type(bias)->size[0] != 1))
        return emit_cannot(e, n, "only convolutions of float32 and float64 in one to three dimensions are");
    strbuf *b = &e->body;
    open_run(e, n->arg[6].b ? "convt" : "conv", (dtype)y->dt);
    bool ok = add_node(e, n->arg[0].node) && add_node(e, n->arg[1].node);
    if (bias)
        ok = ok && add_node(e, bias);
    else
        strbuf_add(b, ", NULL");
    ok = ok && add_item(e, s->slot);
    strbuf_add(b, " } + 1, (const int64_t[]){ ");
    add_sides(b, x, sides);
    add_sides(b, w, sides);
    add_sides(b, y, sides);
    add_three(b, &n->arg[3], 1, sides, true);
    add_three(b, &n->arg[4], 0, sides, true);
    add_three(b, &n->arg[5], 1, sides, true);
    emit_num(b, n->arg[8].i);
    close_run(e, sym_mul(y->size[0], y->size[1]));
    return ok;
}

/* Gradients of a convolution: of its input, which is the other kind of convolution; of its windows; of the bias. */
static bool call_conv_back(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const ir_node *gn = n->arg[0].node, *xn = n->arg[1].node, *wn = n->arg[2].node;
    const tp_tensor *g = ir_type(gn), *x = ir_type(xn), *w = ir_type(wn);
    bool turned = n->arg[7].b, ok = true;
    int sides = w->ndim - 2, to[3];
    if (!plain_float(g) || sides < 1 || sides > 3 || x->ndim != w->ndim)
        return emit_cannot(e, n, "only convolutions of float32 and float64 in one to three dimensions are");
    for (int i = 0; i < 3; i++)
        to[i] = emit_item(e, s->slot, i);
    strbuf *b = &e->body;
    for (int i = 0; i < 2 && ok; i++) {
        if (to[i] < 0)
            continue;
        const tp_tensor *t = e->p->slot.at[to[i]].type;
        open_run(e, i ? "convw" : turned ? "conv" : "convt", (dtype)g->dt);
        if (i == 0)
            ok = add_node(e, gn) && add_node(e, wn);
        else
            ok = add_node(e, turned ? gn : xn) && add_node(e, turned ? xn : gn);
        strbuf_add(b, i ? "" : ", NULL");
        ok = ok && add_item(e, to[i]);
        strbuf_add(b, " } + 1, (const int64_t[]){ ");
        add_sides(b, i == 0 || turned ? g : x, sides);
        add_sides(b, i ? t : w, sides);
        add_sides(b, i == 0 ? t : turned ? x : g, sides);
        add_three(b, &n->arg[4], 1, sides, true);
        add_three(b, &n->arg[5], 0, sides, true);
        add_three(b, &n->arg[6], 1, sides, true);
        emit_num(b, n->arg[9].i);
        close_run(e, sym_mul(t->size[0], t->size[1]));
    }
    if (to[2] >= 0 && ok) {
        open_run(e, "planes", (dtype)g->dt);
        ok = add_node(e, gn) && add_item(e, to[2]);
        strbuf_add(b, " } + 1, (const int64_t[]){ ");
        add_sides(b, g, sides);
        strbuf_add(b, "0");
        close_run(e, g->size[1]);
    }
    return ok;
}

/* v: kernel, stride, padding and what the helper has behind them. */
static bool pool(emit *e, const loop_step *s, const char *helper, int sides)
{
    const ir_node *n = s->node;
    bool max = !strcmp(helper, "maxpool"), adaptive = !strcmp(helper, "adaptive");
    const tp_tensor *x = ir_type(n->arg[0].node);
    int y = max ? emit_item(e, s->slot, 0) : s->slot, at = max ? emit_item(e, s->slot, 1) : -1;
    if (y < 0 || !plain_float(x))
        return emit_cannot(e, n, "only that of float32 and float64 is, with its values used");
    const tp_tensor *t = e->p->slot.at[y].type;
    static const tp_val none = { .kind = VAL_none };
    strbuf *b = &e->body;
    open_run(e, helper, (dtype)x->dt);
    bool ok = add_node(e, n->arg[0].node) && add_item(e, y) && (!max || add_item(e, at));
    strbuf_add(b, " } + 1, (const int64_t[]){ ");
    add_sides(b, x, sides);
    add_window(b, adaptive ? &none : &n->arg[1], sides);
    add_sides(b, t, sides);
    const tp_val *step = adaptive                                    ? &none
                         : n->arg[2].kind == VAL_ints && n->arg[2].n ? &n->arg[2]
                                                                     : &n->arg[1];
    add_three(b, step, 1, sides, true);
    add_three(b, adaptive ? &none : &n->arg[3], 0, sides, true);
    add_three(b, max ? &n->arg[4] : &none, 1, sides, true);
    bool avg = !max && !adaptive;
    strbuf_addf(b, "%d, ", avg && (n->arg[5].kind != VAL_bool || n->arg[5].b));
    emit_num(b, avg && n->arg[6].kind == VAL_int ? n->arg[6].i : 0);
    close_run(e, t->ndim > sides + 1 ? sym_mul(t->size[0], t->size[1]) : t->size[0]);
    return ok;
}

static bool call_maxback(emit *e, const loop_step *s,
                         int sides) /* grad, self, four of windows, ceil, indices */
{
    const ir_node *n = s->node;
    const tp_tensor *g = ir_type(n->arg[0].node), *t = ir_type(n), *at = ir_type(n->arg[7].node);
    if (!plain_float(g))
        return emit_cannot(e, n, "only that of float32 and float64 is");
    strbuf *b = &e->body, strides = { 0 };
    open_run(e, "maxback", (dtype)g->dt);
    bool ok = add_item(e, s->slot) && add_node(e, n->arg[0].node) && add_node(e, n->arg[7].node);
    strbuf_add(b, " } + 1, (const int64_t[]){ ");
    add_sides(b, t, sides);
    symint st[5] = { 0 };
    for (int d = at->ndim - 1, k = 4; d >= 0; d--) {
        if (at->ndim - 1 - d == sides)
            k = 1;
        st[k--] = at->stride[d];
    }
    emit_list(b, st, 5, true);
    emit_list(b, st, 5, true);
    add_sides(b, g, sides);
    strbuf_add(b, "1, 1, 1, 0, 0, 0, 1, 1, 1");
    close_run(e, t->ndim > sides + 1 ? sym_mul(t->size[0], t->size[1]) : t->size[0]);
    strbuf_free(&strides);
    return ok;
}

static bool call_upsample(emit *e, const loop_step *s, int sides)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    if (!plain_float(x))
        return emit_cannot(e, n, "only that of float32 and float64 is");
    strbuf *b = &e->body;
    open_run(e, "upsample", (dtype)x->dt);
    bool ok = add_node(e, n->arg[0].node) && add_item(e, s->slot);
    strbuf_add(b, ", (void *)(float[]){ ");
    for (int i = 0; i < 3; i++) {
        int at = i - (3 - sides), d = x->ndim - sides + at;
        if (at < 0)
            strbuf_add(b, "1, ");
        else if (n->narg > 2 + at && n->arg[2 + at].kind == VAL_float && n->arg[2 + at].f > 0)
            strbuf_addf(b, "%.9ef%s", 1.0 / n->arg[2 + at].f, i < 2 ? ", " : "");
        else {
            strbuf_add(b, "(float)((double)");
            emit_num(b, x->size[d]);
            strbuf_add(b, " / (double)");
            emit_num(b, y->size[d]);
            strbuf_add(b, i < 2 ? "), " : ")");
        }
    }
    strbuf_add(b, " } } + 1, (const int64_t[]){ ");
    add_sides(b, x, sides);
    add_sides(b, x, sides);
    add_sides(b, y, sides);
    strbuf_add(b, "1, 1, 1, 0, 0, 0, 1, 1, 1");
    close_run(e, sym_mul(y->size[0], y->size[1]));
    return ok;
}

static bool in_rows(emit *e, const ir_node *n, const tp_tensor *t)
{
    return emit_contiguous(t) || emit_cannot(e, n, "its operands do not lie one element after the other");
}

static void split_at(const tp_tensor *t, int dim, symint *before, symint *after)
{
    *before = *after = 1;
    for (int d = 0; d < t->ndim; d++) {
        if (d < dim)
            *before = sym_mul(*before, t->size[d]);
        if (d > dim)
            *after = sym_mul(*after, t->size[d]);
    }
}

/* dim, index: which arguments; dim < 0: the first dimension. */
static bool call_select(emit *e, const loop_step *s, int dim_arg, int index_arg)
{
    const ir_node *n = s->node;
    const ir_node *xn = n->arg[0].node, *in = n->arg[index_arg].node;
    const tp_tensor *x = ir_type(xn), *at = ir_type(in), *y = ir_type(n);
    int dim = 0;
    symint before, after;
    if (!in_rows(e, n, x) || !in_rows(e, n, at) || !in_rows(e, n, y) ||
        (dim_arg >= 0 && !dim_wrap(n->arg[dim_arg].i, x->ndim, &dim, NULL)))
        return false;
    split_at(x, dim, &before, &after);
    strbuf *b = &e->body;
    strbuf_addf(b, "    bad |= %s(", emit_helper(e, "select", (dtype)x->dt, (dtype)at->dt));
    emit_list(b, (symint[]){ before, x->size[dim], after }, 3, true);
    bool ok = emit_pointer(e, b, xn);
    strbuf_add(b, ", ");
    ok = ok && emit_pointer(e, b, in);
    strbuf_add(b, ", ");
    emit_list(b, &at->numel, 1, true);
    ok = ok && emit_slot(e, b, s->slot);
    strbuf_add(b, ");\n");
    return ok;
}

static bool call_embedding_back(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const tp_tensor *g = ir_type(n->arg[0].node), *at = ir_type(n->arg[1].node), *y = ir_type(n);
    if (!plain_float(g) || (n->arg[4].kind == VAL_bool && n->arg[4].b))
        return emit_cannot(e, n, "only that of float32 and float64 is, not scaled by how often words occur");
    if (!in_rows(e, n, g) || !in_rows(e, n, at) || !in_rows(e, n, y))
        return false;
    strbuf *b = &e->body;
    strbuf_addf(b, "    bad |= %s(", emit_helper(e, "addrows", (dtype)g->dt, (dtype)at->dt));
    emit_list(b, (symint[]){ at->numel, y->size[0], y->size[1] }, 3, true);
    bool ok = emit_pointer(e, b, n->arg[0].node);
    strbuf_add(b, ", ");
    ok = ok && emit_pointer(e, b, n->arg[1].node);
    strbuf_add(b, ", ");
    emit_list(b, &n->arg[3].i, 1, true);
    ok = ok && emit_slot(e, b, s->slot);
    strbuf_add(b, ");\n");
    return ok;
}

/* dim, down: which arguments; k < 0: all of them. */
static bool call_sort(emit *e, const loop_step *s, int dim_arg, int down_arg, int k_arg)
{
    const ir_node *n = s->node;
    const tp_tensor *x = ir_type(n->arg[0].node);
    bool pair = n->val.kind == VAL_tensors;
    int y = pair ? emit_item(e, s->slot, 0) : -1, at = pair ? emit_item(e, s->slot, 1) : s->slot, dim = 0;
    symint before, after;
    if (x->dt == DT_f16 || x->dt == DT_bf16)
        return emit_cannot(e, n, "its elements are no numbers of C");
    if (!in_rows(e, n, x) || (y >= 0 && !in_rows(e, n, e->p->slot.at[y].type)) ||
        (at >= 0 && !in_rows(e, n, e->p->slot.at[at].type)))
        return false;
    if (x->ndim && !dim_wrap(n->arg[dim_arg].i, x->ndim, &dim, NULL))
        return false;
    split_at(x, dim, &before, &after);
    symint len = x->ndim ? x->size[dim] : 1;
    strbuf *b = &e->body;
    strbuf_addf(b, "    if (!bad)\n        bad = %s(", emit_helper(e, "sort", (dtype)x->dt, DT_none));
    emit_list(b, (symint[]){ before, len, after, k_arg >= 0 ? n->arg[k_arg].i : len }, 4, true);
    strbuf_addf(b, "%d, ", n->arg[down_arg].kind == VAL_bool && n->arg[down_arg].b);
    bool ok = emit_pointer(e, b, n->arg[0].node) && add_item(e, y) && add_item(e, at);
    strbuf_add(b, ");\n");
    return ok;
}

/* Where to draw from: the caller's generator goes on behind it. */
static bool call_reserve(emit *e, const loop_step *s)
{
    strbuf *b = &e->body;
    e->draws = true;
    strbuf_add(b, "    {\n        int64_t *from = ");
    if (!emit_slot(e, b, s->slot))
        return false;
    strbuf_add(b, ";\n        from[0] = (int64_t)random->seed;\n        from[1] = (int64_t)random->offset;\n"
                  "        random->offset += (uint64_t)");
    emit_num(b, s->node->arg[0].i);
    strbuf_add(b, ";\n    }\n");
    return true;
}

static bool call_probabilities(emit *e, const loop_step *s)
{
    const tp_tensor *p = ir_type(s->node->arg[0].node);
    strbuf *b = &e->body;
    if (p->dt != DT_f32 && p->dt != DT_f64)
        return emit_cannot(e, s->node, "its probabilities are neither float32 nor float64");
    strbuf_addf(b, "    {\n        const %s *p = ", gen_c_type((dtype)p->dt));
    if (!emit_pointer(e, b, s->node->arg[0].node))
        return false;
    strbuf_add(b, ";\n");
    emit_each(b, p, "double", "p");
    strbuf_add(b, "            bad |= !(v >= 0 && v <= 1);\n        }\n    }\n"
                  "    if (bad) {\n        free(space);\n        return 4;\n    }\n");
    return true;
}

/* --- the EMIT column: the call of a row as C */
#define EMITS(name, call) \
    static bool emit_##name(emit *e, const loop_step *s) { return call; }
EMITS(reserve, call_reserve(e, s))
EMITS(probabilities, call_probabilities(e, s))
EMITS(conv, call_conv(e, s))
EMITS(conv_back, call_conv_back(e, s))
EMITS(maxpool2, pool(e, s, "maxpool", 2))
EMITS(maxpool3, pool(e, s, "maxpool", 3))
EMITS(maxback2, call_maxback(e, s, 2))
EMITS(maxback3, call_maxback(e, s, 3))
EMITS(avgpool2, pool(e, s, "avgpool", 2))
EMITS(avgpool3, pool(e, s, "avgpool", 3))
EMITS(adaptive2, pool(e, s, "adaptive", 2))
EMITS(adaptive3, pool(e, s, "adaptive", 3))
EMITS(upsample1, call_upsample(e, s, 1))
EMITS(upsample2, call_upsample(e, s, 2))
EMITS(upsample3, call_upsample(e, s, 3))
EMITS(embedding, call_select(e, s, -1, 1))
EMITS(select, call_select(e, s, 1, 2))
EMITS(embedding_back, call_embedding_back(e, s))
EMITS(sort, call_sort(e, s, 1, 2, -1))
EMITS(sort_stable, call_sort(e, s, 2, 3, -1))
EMITS(topk, call_sort(e, s, 2, 3, 1))

typedef bool emit_fn(emit *e, const loop_step *s);
static emit_fn *const calls[OP_COUNT] = {
#define EMIT(id, token) [OP_##id] = emit_##token,
#include "ops/ops.def"
};

bool emit_library(emit *e, const loop_step *s, bool *known)
{
    emit_fn *f = s->node->kind == IR_call ? calls[s->node->op] : NULL;
    *known = f != NULL;
    return !f || f(e, s);
}
