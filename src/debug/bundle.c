#include "debug/bundle.h"
#include "base/digest.h"
#include "base/envvars.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/pool.h"
#include "events/metrics.h"
#include "target/target.h"
#include "grad/tape.h"
#include "ops/host.h"
#include "ops/random.h"
#include "taper.h"
#include "tensor/safetensors.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static char *root_dir;

void bundle_set_root(const char *root)
{
    free(root_dir);
    root_dir = root ? mem_strdup(root) : NULL;
}

char *bundle_dir(void)
{
    static char run[64];
    static int pid; /* a forked child makes its own */
    if (!run[0] || pid != (int)getpid()) {
        struct timeval tv;
        struct tm tm;
        pid = (int)getpid();
        gettimeofday(&tv, NULL);
        localtime_r(&tv.tv_sec, &tm);
        size_t n = strftime(run, sizeof run, "run_%Y_%m_%d_%H_%M_%S", &tm);
        snprintf(run + n, sizeof run - n, "_%06ld-pid_%d", (long)tv.tv_usec, pid);
    }
    const char *root = env_get(ENV_debug_dir);
    strbuf b = { 0 };
    if (root_dir)
        strbuf_addf(&b, "%s/%s/minifier", root_dir, run);
    else
        strbuf_addf(&b, "%s%s%s_compile_debug/%s/minifier", root ? root : "", root ? "/" : "",
                    env_torch_alias() ? "torch" : "taper", run);
    return strbuf_take(&b);
}

static bool truth(const json_val *v) { return json_is(v, JSON_bool) && v->b; }

/* ---- storages ---- */
int bundle_storages(const repro *r, saved_storage *out)
{
    int n = 0;
    for (int i = 0; i < r->nin; i++) {
        if (r->in[i].kind != VAL_tensor || bundle_storage_of(out, n, r->in[i].t) >= 0)
            continue;
        tp_storage *s = r->in[i].t->storage;
        out[n].s = s;
        out[n].sha1[0] = 0;
        if (!(s->flags & ST_fake)) {
            char hex[DIGEST_HEX];
            digest_of(DIGEST_sha1, s->data, (size_t)s->nbytes, hex);
            snprintf(out[n].sha1, sizeof out[n].sha1, "%.40s", hex);
        }
        n++;
    }
    return n;
}

int bundle_storage_of(const saved_storage *s, int n, const tp_tensor *t)
{
    for (int i = 0; i < n; i++)
        if (s[i].s == t->storage)
            return i;
    return -1;
}

static bool write_inputs(const char *path, const saved_storage *s, int n, tp_err *err)
{
    tp_tensor **t = mem_zalloc(sizeof *t * (size_t)MAX(n, 1));
    const char **names = mem_zalloc(sizeof *names * (size_t)MAX(n, 1));
    int k = 0;
    for (int i = 0; i < n; i++) {
        bool known = !s[i].sha1[0];
        for (int j = 0; j < k && !known; j++)
            known = !strcmp(names[j], s[i].sha1);
        if (known)
            continue;
        symint size = s[i].s->nbytes, one = 1;
        names[k] = s[i].sha1;
        t[k++] = tensor_on(s[i].s, DT_u8, 1, &size, &one, 0);
    }
    bool ok = st_write(path, names, t, k, NULL, err);
    for (int i = 0; i < k; i++)
        tensor_unref(t[i]);
    free(names);
    free(t);
    return ok;
}

/* ---- state ---- */
static void cpu_model(char *out, size_t cap)
{
    snprintf(out, cap, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && !strncmp(line, "model name", 10)) {
            snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

void bundle_state(strbuf *out, const repro *r)
{
    json_w w = { out };
    struct utsname u = { 0 };
    char cpu[128];
    if (r->state) {
        strbuf_add(out, r->state);
        return;
    }
    uname(&u);
    cpu_model(cpu, sizeof cpu);
    json_obj(&w);
    json_key(&w, "taper");
    json_str(&w, tp_version());
    json_key(&w, "system");
    json_strf(&w, "%s %s %s", u.sysname, u.release, u.machine);
    json_key(&w, "cpu");
    json_str(&w, cpu);
    json_key(&w, "instructions");
    json_str(&w, *target_host()->level ? target_host()->level : "none");
    json_key(&w, "threads");
    json_int(&w, pool_threads());
    json_key(&w, "grad_mode");
    json_bool(&w, r->g->grad_mode);
    json_key(&w, "default_dtype");
    json_str(&w, dtype_name(op_ctx_cur()->default_dtype));
    json_key(&w, "random");
    json_obj(&w);
    json_key(&w, "seed");
    json_strf(&w, "%llu", (unsigned long long)r->seed);
    json_key(&w, "offset");
    json_strf(&w, "%llu", (unsigned long long)r->offset);
    json_end(&w);
    json_key(&w, "environment"); /* ours alone: others may hold secrets */
    json_obj(&w);
    for (int i = 0; i < ENV_COUNT; i++)
        if (env_get((env_var)i)) {
            json_key(&w, env_row_of((env_var)i)->name);
            json_str(&w, env_get((env_var)i));
        }
    json_end(&w);
    if (host.facts)
        host.facts(&w);
    json_end(&w);
    strbuf_addc(out, '\n');
}

/* ---- writing ---- */
static void key_str(json_w *w, const char *key, const char *s)
{
    json_key(w, key);
    json_str(w, s);
}
static void key_bool(json_w *w, const char *key, bool v)
{
    json_key(w, key);
    json_bool(w, v);
}
static void key_ints(json_w *w, const char *key, const symint *v, int n)
{
    json_key(w, key);
    json_arr(w);
    for (int i = 0; i < n; i++)
        json_int(w, v[i]);
    json_end(w);
}

static void input_json(json_w *w, const repro *r, int i, const saved_storage *s, int ns)
{
    json_obj(w);
    key_str(w, "name", r->g->inputs.at[i]->name);
    if (r->in[i].kind == VAL_int) {
        json_key(w, "int");
        json_int(w, r->in[i].i);
    } else if (r->in[i].kind == VAL_tensor) {
        const tp_tensor *t = r->in[i].t;
        int k = bundle_storage_of(s, ns, t);
        key_str(w, "storage", s[k].sha1[0] ? s[k].sha1 : NULL);
        json_key(w, "shares"); /* inputs with the same number look at the same memory */
        json_int(w, k);
        key_str(w, "dtype", dtype_name((dtype)t->dt));
        bool fixed = sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim);
        if (fixed) {
            key_ints(w, "size", t->size, t->ndim);
            key_ints(w, "stride", t->stride, t->ndim);
            json_key(w, "offset");
            json_int(w, sym_is_expr(t->offset) ? 0 : t->offset);
        }
    }
    key_bool(w, "needs_grad", r->needs_grad[i] != 0);
    if (r->needs_grad[i])
        key_bool(w, "leaf", r->needs_grad[i] == 1);
    json_end(w);
}

bool bundle_write(const char *dir, const repro *r, const signature *s, tp_err *err)
{
    strbuf b = { 0 }, state = { 0 };
    json_w w = { &b };
    char *graph = path_join(dir, "graph.py"), *fail = path_join(dir, "failure.json"),
         *inputs = path_join(dir, "inputs.safetensors"), *about = path_join(dir, "state.json"),
         hex[DIGEST_HEX];
    saved_storage *st = mem_zalloc(sizeof *st * (size_t)MAX(r->nin, 1));
    int ns = bundle_storages(r, st);
    size_t n = 0;
    char *text = NULL;
    bundle_state(&state, r);
    bool ok = file_mkdirs(dir, err) && ir_save(r->g, graph, err) && write_inputs(inputs, st, ns, err) &&
              file_write(about, state.s, state.n, err) && (text = file_read(graph, (size_t)1 << 28, &n, err));
    if (ok) {
        digest_of(DIGEST_sha256, text, n, hex);
        json_obj(&w);
        json_key(&w, "version");
        json_int(&w, 2);
        key_str(&w, "backend", r->backend);
        key_str(&w, "after", r->inner ? "aot" : "dynamo");
        key_bool(&w, "accuracy", r->accuracy);
        key_bool(&w, "forward_only", r->forward_only);
        key_bool(&w, "ignore_non_fp", r->acc.ignore_non_fp);
        if (r->acc.ledger)
            key_bool(&w, "ledger", true);
        key_bool(&w, "fp64", !r->no_fp64);
        if (r->options)
            key_str(&w, "options", r->options);
        json_key(&w, "tolerance");
        json_dbl(&w, r->acc.tol);
        key_str(&w, "kind", sig_name(s->kind));
        key_str(&w, "stage", s->stage);
        key_str(&w, "type", s->type);
        json_key(&w, "signal");
        json_int(&w, s->number);
        key_str(&w, "text", s->text);
        key_str(&w, "message", s->full);
        if (s->stages[0])
            key_str(&w, "stages", s->stages);
        key_str(&w, "inject", fault_spec()); /* a planted fault is part of what reproduces it */
        key_str(&w, "graph_sha256", hex);
        json_key(&w, "inputs");
        json_arr(&w);
        for (int i = 0; i < r->nin; i++)
            input_json(&w, r, i, st, ns);
        json_end(&w);
        json_end(&w);
        strbuf_addc(&b, '\n');
        ok = file_write(fail, b.s, b.n, err);
    }
    strbuf_free(&b);
    strbuf_free(&state);
    free(text);
    free(st);
    free(graph);
    free(fail);
    free(inputs);
    free(about);
    return ok;
}

/* ---- what the compiler did ---- */
typedef struct traced {
    const char *dir;
    const repro *r;
} traced;

static int events_child(void *arg)
{
    const traced *a = arg;
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    ev_cid id = { 0, 0, 0 };
    strbuf b = { 0 };
    if (!ev_trace_start(a->dir, false, &err))
        return 1;
    ev_cid_set(&id);
    ev_metrics_begin(&id, false, a->r->g->name ? a->r->g->name : "graph", "graph.py", 1);
    ir_print(&b, a->r->g, IR_PRINT_log);
    ev_json(EV_dynamo_output_graph, NULL, "{\"sizes\": {}}", strbuf_str(&b));
    strbuf_free(&b);
    if (!repro_compile(&c, a->r))
        ev_metrics_fail(err_class(err.kind), err.msg, "graph.py", 1);
    ev_metrics_end(false);
    ev_trace_stop();
    return 0;
}

void bundle_events(const char *dir, const repro *r)
{
    char *tmp = path_join(dir, "events.tmp"), *to = path_join(dir, "events");
    traced a = { tmp, r };
    proc_result res = { 0 };
    fflush(NULL);
    if (file_mkdirs(tmp, NULL))
        proc_run(&(proc_spec){ .fn = events_child, .arg = &a, .timeout_ms = 5000 }, &res, NULL);
    proc_result_free(&res);
    DIR *d = opendir(tmp);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *from = path_join(tmp, e->d_name);
        if (e->d_name[0] != '.')
            rename(from, to);
        free(from);
    }
    if (d)
        closedir(d);
    rmdir(tmp);
    free(tmp);
    free(to);
}

/* ---- reading ---- */
typedef struct reader {
    const char *where; /* for messages */
    st_file f;
    tp_storage **made; /* by "shares" */
    int nmade;
} reader;

static bool ints_of(const json_val *v, symint *out, int *n)
{
    if (!json_is(v, JSON_arr) || v->n > TP_MAX_DIMS)
        return false;
    *n = (int)v->n;
    for (size_t i = 0; i < v->n; i++) {
        if (!json_is(&v->at[i], JSON_int) || v->at[i].i < 0 || sym_is_expr(v->at[i].i))
            return false;
        out[i] = v->at[i].i;
    }
    return true;
}

static void fill_random(tp_storage *s, dtype dt, uint64_t salt)
{
    int64_t n = s->nbytes / (int64_t)dtype_size(dt);
    memset(s->data ? s->data : "", 0, s->data ? (size_t)s->nbytes : 0);
    for (int64_t k = 0; dtype_is_float(dt) && k < n; k++) {
        uint32_t w[4];
        philox(salt, 0, (uint64_t)k, w);
        double u = u01_53(w[0], w[1]), v = u01_53(w[2], w[3]);
        elem_set_f(dt, (char *)s->data + k * (int64_t)dtype_size(dt),
                   sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v));
    }
}

static tp_storage *storage_at(reader *rd, int64_t k, const json_val *j, int64_t need, dtype dt, tp_err *err)
{
    if (k < 0 || k >= rd->nmade) {
        err_set(err, ERR_value, "%s: an input's 'shares' is out of range", rd->where);
        return NULL;
    }
    tp_storage *s = rd->made[k];
    if (s && s->nbytes < need) {
        err_set(err, ERR_value, "%s: an input reaches past the end of the memory it shares", rd->where);
        return NULL;
    }
    if (s)
        return s;
    const char *sha = json_cstr(json_get(j, "storage"));
    if (!sha) { /* saved without bytes */
        s = storage_new(need, DEVICE_CPU, err);
        if (s)
            fill_random(s, dt, (uint64_t)k + 1);
        return rd->made[k] = s;
    }
    const st_entry *e = st_find(&rd->f, sha);
    if (!e || e->dt != DT_u8 || e->ndim != 1) {
        err_set(err, ERR_value, "%s: inputs.safetensors has no storage '%.40s'", rd->where, sha);
        return NULL;
    }
    char hex[DIGEST_HEX];
    digest_of(DIGEST_sha1, rd->f.data + e->begin, e->end - e->begin, hex);
    if (strncmp(hex, sha, 40)) {
        err_set(err, ERR_value, "inputs.safetensors is damaged: the bytes of '%.40s' have another SHA-1",
                sha);
        return NULL;
    }
    if ((int64_t)(e->end - e->begin) < need) {
        err_set(err, ERR_value, "%s: an input needs %lld bytes of '%.40s', which has %zu", rd->where,
                (long long)need, sha, e->end - e->begin);
        return NULL;
    }
    s = storage_new((int64_t)(e->end - e->begin), DEVICE_CPU, err);
    if (s && e->end > e->begin)
        memcpy(s->data, rd->f.data + e->begin, e->end - e->begin);
    return rd->made[k] = s;
}

static tp_tensor *input_tensor(reader *rd, const json_val *j, const tp_tensor *type, tp_err *err)
{
    const char *name = json_cstr(json_get(j, "dtype"));
    dtype dt = name ? dtype_by_name(name, strlen(name)) : DT_none;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], need = 0;
    int nd = 0, nd2 = 0;
    int64_t offset = json_i64(json_get(j, "offset"), 0);
    if (dt == DT_none) {
        err_set(err, ERR_value, "%s: an input has no element type", rd->where);
        return NULL;
    }
    if (!json_get(j, "size")) { /* symbolic, saved without bytes: the hints */
        nd = nd2 = type->ndim;
        for (int d = 0; d < nd; d++) {
            bool ok = true;
            size[d] = sym_is_expr(type->size[d]) ? sym_hint(type->size[d], &ok) : type->size[d];
            if (!ok)
                size[d] = 2;
        }
        shape_contiguous_strides(nd, size, stride);
    } else if (!ints_of(json_get(j, "size"), size, &nd) || !ints_of(json_get(j, "stride"), stride, &nd2) ||
               nd != nd2 || offset < 0) {
        err_set(err, ERR_value, "%s: an input's sizes, strides or offset make no sense", rd->where);
        return NULL;
    }
    if (!shape_storage_bytes(dt, nd, size, stride, offset, &need, err))
        return NULL;
    if (need > ((int64_t)1 << 36)) {
        err_set(err, ERR_value, "%s: an input of %lld bytes is more than can be meant", rd->where,
                (long long)need);
        return NULL;
    }
    tp_storage *s = storage_at(rd, json_i64(json_get(j, "shares"), -1), j, need, dt, err);
    return s ? tensor_on(s, dt, nd, size, stride, offset) : NULL;
}

static uint64_t big_number(const json_val *v)
{
    const char *s = json_cstr(v);
    return s ? strtoull(s, NULL, 10) : 0;
}

static void read_state(const char *dir, repro *r)
{
    char *path = path_join(dir, "state.json");
    size_t n = 0;
    char *text = file_exists(path) ? file_read(path, 1 << 20, &n, NULL) : NULL;
    arena a = { 0 };
    const json_val *j = text ? json_parse(&a, text, n, NULL) : NULL, *rng = json_get(j, "random");
    if (json_is(j, JSON_obj)) {
        r->seed = big_number(json_get(rng, "seed"));
        r->offset = big_number(json_get(rng, "offset"));
        r->state = mem_strndup(text, n);
    }
    arena_free(&a);
    free(text);
    free(path);
}

static bool graph_is_whole(const char *path, const json_val *j, tp_err *err)
{
    const char *want = json_cstr(json_get(j, "graph_sha256"));
    size_t n = 0;
    char hex[DIGEST_HEX], *text = want ? file_read(path, (size_t)1 << 28, &n, err) : NULL;
    if (!want)
        return true;
    if (!text)
        return false;
    digest_of(DIGEST_sha256, text, n, hex);
    free(text);
    return !strcmp(hex, want) ||
           err_set(err, ERR_value,
                   "%s was changed after it was saved: its SHA-256 differs from failure.json's (remove "
                   "'graph_sha256' there to use it as it is)",
                   path);
}

static void read_signature(const json_val *j, signature *s)
{
    const char *text = json_cstr(json_get(j, "text")), *full = json_cstr(json_get(j, "message")),
               *stage = json_cstr(json_get(j, "stage")), *type = json_cstr(json_get(j, "type")),
               *stages = json_cstr(json_get(j, "stages"));
    memset(s, 0, sizeof *s);
    s->kind = sig_by_name(json_cstr(json_get(j, "kind")));
    s->number = (int)json_i64(json_get(j, "signal"), 0);
    snprintf(s->text, sizeof s->text, "%s", text ? text : "");
    snprintf(s->full, sizeof s->full, "%s", full ? full : "");
    snprintf(s->stage, sizeof s->stage, "%s", stage ? stage : "");
    snprintf(s->type, sizeof s->type, "%s", type ? type : "");
    snprintf(s->stages, sizeof s->stages, "%s", stages ? stages : "");
}

/* A pipe would never end, and a device may not either. */
static bool are_files(const char *const *path, int n, tp_err *err)
{
    struct stat st;
    for (int i = 0; i < n; i++)
        if (!stat(path[i], &st) && !S_ISREG(st.st_mode))
            return err_set(err, ERR_value, "'%s' is not a regular file", path[i]);
    return true;
}

repro *bundle_read(const char *dir, signature *s, bool plant, tp_err *err)
{
    char *graph = path_join(dir, "graph.py"), *fail = path_join(dir, "failure.json"),
         *inputs = path_join(dir, "inputs.safetensors");
    arena a = { 0 };
    size_t n = 0;
    reader rd = { .where = fail };
    bool open = false, ok = false;
    repro *r = NULL;
    tp_val *in = NULL;
    char *state = path_join(dir, "state.json"), *consts = path_join(dir, "graph.py.safetensors");
    bool sane = are_files((const char *[]){ graph, fail, inputs, state, consts }, 5, err);
    char *text = sane ? file_read(fail, 1 << 24, &n, err) : NULL;
    const json_val *j = text ? json_parse(&a, text, n, err) : NULL;
    ir_graph *g = NULL;
    if (text && !j)
        err_note(err, "reading '%s'", fail);
    if (!j)
        goto done;
    const char *backend = json_cstr(json_get(j, "backend")), *inject = json_cstr(json_get(j, "inject"));
    const json_val *list = json_get(j, "inputs");
    if (json_i64(json_get(j, "version"), 0) != 2) {
        err_set(err, ERR_value, "%s is not a saved failure of a version this program reads (2)", fail);
        goto done;
    }
    if (!graph_is_whole(graph, j, err) || !(g = ir_load(graph, NULL, err)))
        goto done;
    if (!backend || !json_is(list, JSON_arr) || list->n != g->inputs.n) {
        err_set(err, ERR_value,
                "%s: 'backend' and one entry of 'inputs' for each of the graph's %d inputs were expected",
                fail, (int)g->inputs.n);
        goto done;
    }
    if (!(open = st_open(&rd.f, inputs, err)))
        goto done;
    in = mem_zalloc(sizeof *in * (g->inputs.n + 1));
    rd.nmade = (int)g->inputs.n;
    rd.made = mem_zalloc(sizeof *rd.made * (g->inputs.n + 1));
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *type = ir_type(g->inputs.at[i]);
        if (!type) {
            in[i] = vI(json_i64(json_get(&list->at[i], "int"), 0));
            continue;
        }
        tp_tensor *t = input_tensor(&rd, &list->at[i], type, err);
        if (!t)
            goto done;
        in[i] = vT(t);
    }
    if (!ir_check_inputs(g, in, (int)g->inputs.n, err)) {
        err_note(err, "reading '%s'", dir);
        goto done;
    }
    if (plant && inject && *inject) {
        if (!fault_set(inject, err))
            goto done;
        fprintf(stderr, "taper: the failure was saved with planted faults (%s)\n", inject);
    }
    r = repro_new(g, in, (int)g->inputs.n, backend);
    for (int i = 0; i < r->nin; i++)
        r->needs_grad[i] = !truth(json_get(&list->at[i], "needs_grad"))                               ? 0
                           : json_get(&list->at[i], "leaf") && !truth(json_get(&list->at[i], "leaf")) ? 2
                                                                                                      : 1;
    const char *after = json_cstr(json_get(j, "after"));
    r->inner = after && !strcmp(after, "aot");
    r->accuracy = truth(json_get(j, "accuracy"));
    r->forward_only = truth(json_get(j, "forward_only"));
    r->acc.ignore_non_fp = truth(json_get(j, "ignore_non_fp"));
    r->acc.ledger = truth(json_get(j, "ledger"));
    r->no_fp64 = json_is(json_get(j, "fp64"), JSON_bool) && !truth(json_get(j, "fp64"));
    r->acc.tol = json_f64(json_get(j, "tolerance"), 1e-3);
    const char *options = json_cstr(json_get(j, "options"));
    r->options = options && *options ? mem_strdup(options) : NULL;
    r->seed = r->offset = 0;
    read_state(dir, r);
    if (s)
        read_signature(j, s);
    ok = true;
done:
    inputs_free(in, g ? (int)g->inputs.n : 0);
    for (int i = 0; i < rd.nmade; i++)
        storage_unref(rd.made[i]);
    free(rd.made);
    if (open)
        st_free(&rd.f);
    ir_graph_free(g);
    arena_free(&a);
    free(text);
    free(graph);
    free(fail);
    free(inputs);
    free(state);
    free(consts);
    if (!ok) {
        repro_free(r);
        r = NULL;
    }
    return r;
}
