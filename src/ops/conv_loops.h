/* conv_loops.h - the typed inner loops of conv.c; included once per element type T with suffix S(name).
 * ONLY_PATCHES: what moves elements alone. */

/* For one kernel row: the output columns [*a, *b) whose input column iw = ow * s + off lies inside [0, n). */
static void S(im2col)(const conv_geom *g, int64_t channels, const T *x, T *col, int64_t ld, int64_t l0,
                      int64_t l1)
{
    int64_t H = g->in[1], W = g->in[2], OW = g->out[2], OH = g->out[1], plane = g->in[0] * H * W;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t kd = 0; kd < g->k[0]; kd++)
            for (int64_t kh = 0; kh < g->k[1]; kh++)
                for (int64_t kw = 0; kw < g->k[2]; kw++, col += ld) {
                    int64_t off = kw * g->d[2] - g->p[2], st = g->s[2];
                    T *dst = col;
                    for (int64_t l = l0; l < l1;) {
                        int64_t ow = l % OW, row = l / OW, n = MIN(OW - ow, l1 - l);
                        int64_t ih = (row % OH) * g->s[1] - g->p[1] + kh * g->d[1];
                        int64_t id = (row / OH) * g->s[0] - g->p[0] + kd * g->d[0];
                        l += n;
                        if (ih < 0 || ih >= H || id < 0 || id >= g->in[0]) {
                            memset(dst, 0, sizeof(T) * (size_t)n);
                            dst += n;
                            continue;
                        }
                        const T *src = x + c * plane + (id * H + ih) * W;
                        int64_t i = 0, iw = ow * st + off;
                        for (; i < n && iw < 0; i++, iw += st)
                            dst[i] = 0;
                        if (st == 1) {
                            int64_t run = MIN(n - i, W - iw);
                            if (run > 0) {
                                memcpy(dst + i, src + iw, sizeof(T) * (size_t)run);
                                i += run;
                            }
                        } else
                            for (; i < n && iw < W; i++, iw += st)
                                dst[i] = src[iw];
                        if (i < n)
                            memset(dst + i, 0, sizeof(T) * (size_t)(n - i));
                        dst += n;
                    }
                }
}

#ifndef ONLY_PATCHES
static void S(col2im)(const conv_geom *g, int64_t channels, const T *col, int64_t ld, T *x)
{
    int64_t H = g->in[1], W = g->in[2], OW = g->out[2], OH = g->out[1], plane = g->in[0] * H * W;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t kd = 0; kd < g->k[0]; kd++)
            for (int64_t kh = 0; kh < g->k[1]; kh++)
                for (int64_t kw = 0; kw < g->k[2]; kw++, col += ld) {
                    int64_t off = kw * g->d[2] - g->p[2], st = g->s[2];
                    for (int64_t od = 0; od < g->out[0]; od++) {
                        int64_t id = od * g->s[0] - g->p[0] + kd * g->d[0];
                        if (id < 0 || id >= g->in[0])
                            continue;
                        for (int64_t oh = 0; oh < OH; oh++) {
                            int64_t ih = oh * g->s[1] - g->p[1] + kh * g->d[1];
                            if (ih < 0 || ih >= H)
                                continue;
                            const T *src = col + (od * OH + oh) * OW;
                            T *dst = x + c * plane + (id * H + ih) * W;
                            int64_t a = off < 0 ? (-off + st - 1) / st : 0;
                            int64_t b = W - off <= 0 ? 0 : MIN(OW, (W - off + st - 1) / st);
                            if (st == 1)
                                for (int64_t ow = a; ow < b; ow++)
                                    dst[ow + off] += src[ow];
                            else
                                for (int64_t ow = a; ow < b; ow++)
                                    dst[ow * st + off] += src[ow];
                        }
                    }
                }
}

/* One output channel from few input channels (depthwise): row by row, no patch matrix. */
static void S(direct)(const conv_geom *g, int64_t channels, const T *x, const T *w, T bias, T *y)
{
    int64_t H = g->in[1], W = g->in[2], OW = g->out[2], OH = g->out[1], plane = g->in[0] * H * W;
    for (int64_t l = 0; l < g->out[0] * OH * OW; l++)
        y[l] = bias;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t od = 0; od < g->out[0]; od++)
            for (int64_t oh = 0; oh < OH; oh++) {
                T *dst = y + (od * OH + oh) * OW;
                for (int64_t kd = 0; kd < g->k[0]; kd++) {
                    int64_t id = od * g->s[0] - g->p[0] + kd * g->d[0];
                    if (id < 0 || id >= g->in[0])
                        continue;
                    for (int64_t kh = 0; kh < g->k[1]; kh++) {
                        int64_t ih = oh * g->s[1] - g->p[1] + kh * g->d[1];
                        if (ih < 0 || ih >= H)
                            continue;
                        const T *src = x + c * plane + (id * H + ih) * W;
                        const T *wr = w + ((c * g->k[0] + kd) * g->k[1] + kh) * g->k[2];
                        for (int64_t kw = 0; kw < g->k[2]; kw++) {
                            int64_t off = kw * g->d[2] - g->p[2], st = g->s[2];
                            int64_t a = off < 0 ? (-off + st - 1) / st : 0;
                            int64_t b = W - off <= 0 ? 0 : MIN(OW, (W - off + st - 1) / st);
                            T f = wr[kw];
                            if (st == 1)
                                for (int64_t ow = a; ow < b; ow++)
                                    dst[ow] += f * src[ow + off];
                            else
                                for (int64_t ow = a; ow < b; ow++)
                                    dst[ow] += f * src[ow * st + off];
                        }
                    }
                }
            }
}
#endif
