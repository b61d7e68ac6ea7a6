/* record.c - what each rank put into its collectives, a line of JSON each, for comparing runs (TAPER_COMM_RECORD). */
#include "comm/job.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/tensor.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { SAMPLES = 64 }; /* elements written out, evenly spread */

static int64_t input_elements(const comm_work *w)
{
    const comm_call *c = &w->c;
    int64_t n = 0;
    if (!c->in || c->kind == COMM_barrier || c->kind == COMM_recv)
        return 0;
    if (c->kind == COMM_broadcast || c->kind == COMM_scatter)
        n = w->g->my == c->root ? c->n : 0;
    else
        n = c->n;
    if (w->counts && c->kind == COMM_all_to_all) {
        n = 0;
        for (int i = 0; i < w->g->n; i++)
            n += w->counts[i];
        return n;
    }
    return c->kind == COMM_scatter || c->kind == COMM_reduce_scatter || c->kind == COMM_all_to_all
               ? n * w->g->n
               : n;
}

static void number(json_w *j, double x)
{
    if (isfinite(x))
        json_dbl(j, x);
    else
        json_str(j, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* One line is written by one call of write(): a rank that dies loses none that was begun. */
void comm_record(const comm_work *w)
{
    const char *dir = env_get(ENV_comm_record);
    if (TP_LIKELY(!dir))
        return;
    int64_t n = input_elements(w), step = MAX(1, (n + SAMPLES - 1) / SAMPLES);
    size_t size = dtype_rows[w->c.dt].size;
    tp_err err = { 0 };
    char *copy = w->c.on.kind == DEV_cpu ? NULL : mem_alloc((size_t)n * size + 1);
    if (copy && !device_copy(DEVICE_CPU, copy, w->c.on, w->c.in, n * (int64_t)size, &err))
        memset(copy, 0xff, (size_t)n * size);
    const char *p = copy ? copy : w->c.in;
    double sum = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = elem_get_f(w->c.dt, p + (size_t)i * size);
        sum += x;
        most = isnan(x) || fabs(x) > most ? fabs(x) : most;
    }
    strbuf b = { 0 };
    json_w j = { &b };
    json_obj(&j);
    json_key(&j, "group");
    json_int(&j, w->g->name);
    json_key(&j, "number");
    json_int(&j, (int64_t)w->seq);
    json_key(&j, "kind");
    json_str(&j, comm_kind_name(w->c.kind));
    json_key(&j, "dtype");
    json_str(&j, dtype_rows[w->c.dt].pname);
    json_key(&j, "elements");
    json_int(&j, n);
    json_key(&j, "where");
    json_str(&j, w->c.where);
    json_key(&j, "sum");
    number(&j, sum);
    json_key(&j, "largest");
    number(&j, most);
    json_key(&j, "sample");
    json_arr(&j);
    for (int64_t i = 0; i < n; i += step)
        number(&j, elem_get_f(w->c.dt, p + (size_t)i * size));
    json_end(&j);
    json_end(&j);
    strbuf_addc(&b, '\n');
    char name[64];
    snprintf(name, sizeof name, "rank%d.jsonl", w->g->j->at.rank);
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "ab");
    if (f) {
        setvbuf(f, NULL, _IONBF, 0);
        fwrite(b.s, 1, b.n, f);
        fclose(f);
    }
    free(path);
    free(copy);
    strbuf_free(&b);
}
