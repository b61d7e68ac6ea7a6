#include "debug/bundle.h"
#include "base/envvars.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "grad/tape.h"
#include "tensor/safetensors.h"
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

char *bundle_dir(void)
{
    static char run[64];
    if (!run[0]) {
        struct timeval tv;
        struct tm tm;
        gettimeofday(&tv, NULL);
        localtime_r(&tv.tv_sec, &tm);
        size_t n = strftime(run, sizeof run, "run_%Y_%m_%d_%H_%M_%S", &tm);
        snprintf(run + n, sizeof run - n, "_%06ld-pid_%d", (long)tv.tv_usec, (int)getpid());
    }
    const char *root = env_get(ENV_debug_dir);
    strbuf b = { 0 };
    strbuf_addf(&b, "%s%staper_compile_debug/%s/minifier", root ? root : "", root ? "/" : "", run);
    return strbuf_take(&b);
}

static const char *str_or(const json_val *v)
{
    const char *s = json_cstr(v);
    return s ? s : "";
}
static bool truth(const json_val *v) { return json_is(v, JSON_bool) && v->b; }

static char *in_dir(const char *dir, const char *name) { return path_join(dir, name); }

static bool write_inputs(const char *dir, const repro *r, tp_err *err)
{
    tp_tensor **t = mem_zalloc(sizeof *t * (size_t)MAX(r->nin, 1));
    char **names = mem_zalloc(sizeof *names * (size_t)MAX(r->nin, 1));
    int n = 0;
    for (int i = 0; i < r->nin; i++)
        if (r->in[i].kind == VAL_tensor) {
            strbuf b = { 0 };
            strbuf_addf(&b, "in%d", i);
            names[n] = strbuf_take(&b);
            t[n++] = r->in[i].t;
        }
    char *path = in_dir(dir, "inputs.safetensors");
    bool ok = st_write(path, (const char *const *)names, t, n, NULL, err);
    free(path);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(t);
    return ok;
}

bool bundle_write(const char *dir, const repro *r, const signature *s, tp_err *err)
{
    strbuf b = { 0 };
    json_w w = { &b };
    char *graph = in_dir(dir, "graph.py"), *fail = in_dir(dir, "failure.json");
    json_obj(&w);
    json_key(&w, "version");
    json_int(&w, 1);
    json_key(&w, "backend");
    json_str(&w, r->backend);
    json_key(&w, "accuracy");
    json_bool(&w, r->accuracy);
    json_key(&w, "tolerance");
    json_dbl(&w, r->acc.tol);
    json_key(&w, "kind");
    json_str(&w, sig_name(s->kind));
    json_key(&w, "kind_number");
    json_int(&w, s->kind);
    json_key(&w, "signal");
    json_int(&w, s->number);
    json_key(&w, "text");
    json_str(&w, s->text);
    json_key(&w, "message");
    json_str(&w, s->full);
    json_key(&w, "inject"); /* a planted fault is part of what reproduces it */
    json_str(&w, fault_spec());
    json_key(&w, "inputs");
    json_arr(&w);
    for (int i = 0; i < r->nin; i++) {
        json_obj(&w);
        json_key(&w, "needs_grad");
        json_bool(&w, r->needs_grad[i]);
        if (r->in[i].kind == VAL_int) {
            json_key(&w, "int");
            json_int(&w, r->in[i].i);
        }
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    strbuf_addc(&b, '\n');
    bool ok = file_mkdirs(dir, err) && ir_save(r->g, graph, err) && write_inputs(dir, r, err) &&
              file_write(fail, b.s, b.n, err);
    strbuf_free(&b);
    free(graph);
    free(fail);
    return ok;
}

static tp_tensor *strided_as(tp_tensor *t, const tp_tensor *type, tp_err *err) /* takes t */
{
    if (!t || t->ndim != type->ndim || !sym_all_const(type->stride, type->ndim) ||
        !memcmp(t->stride, type->stride, sizeof(symint) * t->ndim))
        return t;
    tp_tensor *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size, type->stride, DEVICE_CPU, err);
    if (c && !tensor_overlaps_itself(c))
        tensor_copy(c, t, err);
    tensor_unref(t);
    return c;
}

repro *bundle_read(const char *dir, signature *s, tp_err *err)
{
    char *graph = in_dir(dir, "graph.py"), *fail = in_dir(dir, "failure.json"),
         *inputs = in_dir(dir, "inputs.safetensors");
    arena a = { 0 };
    size_t n = 0;
    st_file f = { 0 };
    bool open = false, ok = false;
    repro *r = NULL;
    tp_val *in = NULL;
    char *text = file_read(fail, 1 << 20, &n, err);
    const json_val *j = text ? json_parse(&a, text, n, err) : NULL;
    ir_graph *g = j ? ir_load(graph, NULL, err) : NULL;
    if (!g)
        goto done;
    const char *backend = json_cstr(json_get(j, "backend"));
    const json_val *list = json_get(j, "inputs");
    if (!backend || !list || list->type != JSON_arr || list->n != g->inputs.n) {
        err_set(err, ERR_value,
                "%s: 'backend' and one entry of 'inputs' for each of the graph's %d inputs were expected",
                fail, (int)g->inputs.n);
        goto done;
    }
    if (!(open = st_open(&f, inputs, err)))
        goto done;
    in = mem_zalloc(sizeof *in * (g->inputs.n + 1));
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *type = ir_type(g->inputs.at[i]);
        char name[24];
        snprintf(name, sizeof name, "in%d", (int)i);
        if (!type) {
            in[i] = vI(json_i64(json_get(&list->at[i], "int"), 0));
            continue;
        }
        const st_entry *e = st_find(&f, name);
        if (!e) {
            err_set(err, ERR_value, "%s: input '%s' is missing", inputs, name);
            goto done;
        }
        tp_tensor *t = strided_as(st_tensor(&f, e, err), type, err);
        if (!t)
            goto done;
        in[i] = vT(t);
    }
    if (!ir_check_inputs(g, in, (int)g->inputs.n, err))
        goto done;
    r = repro_new(g, in, (int)g->inputs.n, backend);
    for (int i = 0; i < r->nin; i++)
        r->needs_grad[i] = truth(json_get(&list->at[i], "needs_grad"));
    r->accuracy = truth(json_get(j, "accuracy"));
    r->acc.tol = json_f64(json_get(j, "tolerance"), 1e-3);
    if (s) {
        memset(s, 0, sizeof *s);
        int64_t k = json_i64(json_get(j, "kind_number"), 0);
        s->kind = k >= 0 && k <= SIG_flaky ? (sig_kind)k : SIG_passes;
        s->number = (int)json_i64(json_get(j, "signal"), 0);
        snprintf(s->text, sizeof s->text, "%s", str_or(json_get(j, "text")));
        snprintf(s->full, sizeof s->full, "%s", str_or(json_get(j, "message")));
    }
    ok = true;
done:
    for (size_t i = 0; in && i < g->inputs.n; i++)
        if (in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    free(in);
    if (open)
        st_free(&f);
    ir_graph_free(g);
    arena_free(&a);
    free(text);
    free(graph);
    free(fail);
    free(inputs);
    return ok ? r : NULL;
}
