/* script.c - the Python script of a failure. */
#include "debug/script.h"
#include "base/envvars.h"
#include "base/fault.h"
#include <ctype.h>

enum { INLINE_BYTES = 256 }; /* storages up to this many bytes are written into the script */

/* Text from a bundle may be hostile: nothing of it may end the comment it stands in. */
static void clean(strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        strbuf_addc(b, (unsigned char)s[i] < 32 || s[i] == 127 ? ' ' : s[i]);
}

static void comment(strbuf *b, const char *text) /* one line a line */
{
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, "\n");
        strbuf_add(b, "#   ");
        clean(b, s, n);
        strbuf_addc(b, '\n');
        s += n + (s[n] == '\n');
    }
}

static void quoted(strbuf *b, const char *s)
{
    if (s)
        strbuf_pyrepr(b, s, strlen(s));
    else
        strbuf_add(b, "None");
}

/* ---- what the process was like ---- */
static void versions(strbuf *b, const json_val *j)
{
    static const char *const keys[] = { "taper", "python", "system", "cpu", "instructions" };
    strbuf_add(b, "#");
    for (size_t i = 0; i < COUNT(keys); i++) {
        const char *s = json_cstr(json_get(j, keys[i]));
        if (s)
            strbuf_addf(b, "%s%s%s", i ? ", " : " ", i < 2 ? keys[i] : "", i < 2 ? " " : ""),
                clean(b, s, strlen(s));
    }
    strbuf_addf(b, ", %lld threads\n", (long long)json_i64(json_get(j, "threads"), 0));
}

/* Variables of ours go back as they were, but for those that would make the script debug itself. */
static bool replayed(const char *name)
{
    static const char *const not [] = { "TAPER_REPRO",  "TAPER_INJECT",  "TAPER_LOGS",
                                        "TAPER_TRACE",  "TAPER_DTRACE",  "TAPER_COMPILE_DEBUG",
                                        "TAPER_BISECT", "TAPER_BREAK_ON" };
    for (size_t i = 0; i < COUNT(not ); i++)
        if (!strncmp(name, not [i], strlen(not [i])))
            return false;
    return true;
}

static void environment(strbuf *b, const json_val *env)
{
    bool any = false;
    for (size_t i = 0; json_is(env, JSON_obj) && i < env->n; i++) {
        const json_member *m = &env->members[i];
        if (!json_cstr(&m->val) || !replayed(m->key))
            continue;
        strbuf_addf(b, "%sos.environ[", any ? "" : "import os\n");
        quoted(b, m->key);
        strbuf_add(b, "] = ");
        quoted(b, json_cstr(&m->val));
        strbuf_addc(b, '\n');
        any = true;
    }
}

static bool identifier(const char *s)
{
    if (!*s || isdigit((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

static void config(strbuf *b, const json_val *c)
{
    for (size_t i = 0; json_is(c, JSON_obj) && i < c->n; i++) {
        const json_member *m = &c->members[i];
        if (!strncmp(m->key, "repro_after", 11) || !strncmp(m->key, "repro_level", 11) ||
            !strncmp(m->key, "debug_dir", 9) || !identifier(m->key))
            continue;
        strbuf_addf(b, "taper._dynamo.config.%s = ", m->key);
        switch (m->val.type) {
        case JSON_bool: strbuf_add(b, m->val.b ? "True" : "False"); break;
        case JSON_int: strbuf_addf(b, "%lld", (long long)m->val.i); break;
        case JSON_dbl: strbuf_double(b, m->val.d); break;
        case JSON_str: strbuf_pyrepr(b, m->val.s, m->val.n); break;
        default: strbuf_add(b, "None");
        }
        strbuf_addc(b, '\n');
    }
}

/* ---- the graph ---- */
static void symbols(strbuf *b, const repro *r)
{
    map seen = { 0 };
    strbuf lines = { 0 };
    for (int i = 0; i < r->nin; i++) {
        const ir_node *p = r->g->inputs.at[i];
        const tp_tensor *t = ir_type(p), *v = r->in[i].kind == VAL_tensor ? r->in[i].t : NULL;
        for (int d = -1; d < (t ? t->ndim : 0); d++) {
            symint s = d < 0 ? (p->val.kind == VAL_int ? p->val.i : 0) : t->size[d];
            int64_t is = d < 0 ? r->in[i].i : v && !sym_is_expr(v->size[d]) ? v->size[d] : 0;
            if (!sym_is_symbol(s) || map_puti(&seen, (uint64_t)s, &seen))
                continue;
            bool ok = true;
            if (!is)
                is = sym_hint(s, &ok);
            sym_print(&lines, s);
            strbuf_addf(&lines, " = %lld\n", (long long)is);
        }
    }
    if (lines.n)
        strbuf_addf(b, "\n%s", strbuf_str(&lines));
    strbuf_free(&lines);
    map_free(&seen);
}

static void constants(strbuf *b, const ir_graph *g, const char *save_dir, bool no_data)
{
    map seen = { 0 };
    bool any = false;
    IR_EACH (n, g) {
        if (n->kind != IR_const || !n->konst || map_put(&seen, n->target ? n->target : n->name, n))
            continue;
        const tp_tensor *t = n->konst;
        if (!any)
            strbuf_add(b, "\n    def __init__(self):\n        super().__init__()\n");
        any = true;
        strbuf_add(b, "        self.register_buffer(");
        quoted(b, n->target ? n->target : n->name);
        if (t->numel <= 16 && !tensor_is_fake(t) && !no_data) {
            strbuf_add(b, ", taper.tensor([");
            for (int64_t k = 0; k < t->numel; k++) {
                strbuf_add(b, k ? ", " : "");
                if (dtype_is_float((dtype)t->dt))
                    strbuf_double(b, elem_get_f((dtype)t->dt, tensor_elem(t, k)));
                else
                    strbuf_addf(b, "%lld", (long long)elem_get_i((dtype)t->dt, tensor_elem(t, k)));
            }
            strbuf_addf(b, "], dtype=taper.%s).reshape(", dtype_name((dtype)t->dt));
            shape_print(b, t->ndim, t->size);
            strbuf_add(b, "))\n");
        } else {
            strbuf_addf(b, ", taper._dynamo.repro.constant(");
            quoted(b, save_dir);
            strbuf_addf(b, ", '%s', ", tensor_is_fake(t) || no_data ? "" : ir_const_digest(n));
            shape_print(b, t->ndim, t->size);
            strbuf_addf(b, ", taper.%s))\n", dtype_name((dtype)t->dt));
        }
    }
    map_free(&seen);
}

static bool uses_opaque(const ir_graph *g)
{
    IR_EACH (n, g)
        if (n->kind == IR_opaque)
            return true;
    return false;
}

/* ---- the inputs ---- */
static void tuple(strbuf *b, const symint *v, int n)
{
    strbuf_addc(b, '(');
    for (int i = 0; i < n; i++) {
        bool ok = true;
        strbuf_addf(b, "%s%lld", i ? ", " : "", (long long)(sym_is_expr(v[i]) ? sym_hint(v[i], &ok) : v[i]));
    }
    strbuf_add(b, n == 1 ? ",)" : ")");
}

/* All elements of a storage equal: v is their value. */
static bool splat(const tp_storage *s, dtype dt, double *v)
{
    size_t z = dtype_size(dt), n = (size_t)s->nbytes / z;
    if (!n || !dtype_is_float(dt))
        return false;
    for (size_t k = 1; k < n; k++)
        if (memcmp(s->data, (char *)s->data + k * z, z))
            return false;
    *v = elem_get_f(dt, s->data);
    return true;
}

static void storage_line(strbuf *b, const saved_storage *s, int k, dtype dt)
{
    int64_t n = s->s->nbytes;
    double v;
    if (sym_is_expr(n)) {
        bool ok = true;
        n = sym_hint(n, &ok);
    }
    strbuf_addf(b, "    buf%d = reader.storage(", k);
    quoted(b, s->sha1[0] ? s->sha1 : NULL);
    strbuf_addf(b, ", %lld", (long long)n);
    if (dt != DT_f32)
        strbuf_addf(b, ", dtype_hint=taper.%s", dtype_name(dt));
    if (s->sha1[0] && splat(s->s, dt, &v)) {
        strbuf_add(b, ", fill=");
        strbuf_double(b, v);
    } else if (s->sha1[0] && n <= INLINE_BYTES) {
        strbuf_add(b, ", data='");
        for (int64_t i = 0; i < n; i++)
            strbuf_addf(b, "%02x", ((unsigned char *)s->s->data)[i]);
        strbuf_addc(b, '\'');
    }
    strbuf_add(b, ")\n");
}

static void input_line(strbuf *b, const repro *r, int i, int buf)
{
    const tp_tensor *t = r->in[i].t;
    symint plain[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, plain);
    strbuf_addf(b, "    reader.tensor(buf%d, ", buf);
    tuple(b, t->size, t->ndim);
    if (memcmp(plain, t->stride, sizeof *plain * t->ndim) && sym_all_const(t->stride, t->ndim)) {
        strbuf_add(b, ", ");
        tuple(b, t->stride, t->ndim);
    }
    if (t->dt != DT_f32)
        strbuf_addf(b, ", dtype=taper.%s", dtype_name((dtype)t->dt));
    if (t->offset && !sym_is_expr(t->offset))
        strbuf_addf(b, ", storage_offset=%lld", (long long)t->offset);
    if (r->needs_grad[i])
        strbuf_add(b, ", requires_grad=True");
    strbuf_add(b, r->needs_grad[i] == 2 ? ")" : ", is_leaf=True)");
}

static void load_args(strbuf *b, const repro *r)
{
    saved_storage *st = mem_zalloc(sizeof *st * (size_t)MAX(r->nin, 1));
    bool *done = mem_zalloc((size_t)MAX(r->nin, 1));
    int ns = bundle_storages(r, st);
    strbuf_add(b, "\n\ndef load_args(reader):\n");
    for (int i = 0; i < r->nin; i++) {
        if (r->in[i].kind == VAL_tensor) {
            int k = bundle_storage_of(st, ns, r->in[i].t);
            if (!done[k])
                storage_line(b, &st[k], k, (dtype)r->in[i].t->dt);
            done[k] = true;
            input_line(b, r, i, k);
        } else if (r->in[i].kind == VAL_int)
            strbuf_addf(b, "    reader.symint(%lld)", (long long)r->in[i].i);
        else
            strbuf_addf(b, "    reader.const('%s')", r->g->inputs.at[i]->name);
        strbuf_addf(b, "  # %s\n", r->g->inputs.at[i]->name);
    }
    if (!r->nin)
        strbuf_add(b, "    pass\n");
    strbuf_add(b, "\n\nload_args._version = 0\nmod = Repro()\n");
    free(done);
    free(st);
}

/* ---- the end ---- */
static bool symbolic(const repro *r)
{
    for (int i = 0; i < r->nin; i++) {
        const tp_tensor *t = ir_type(r->g->inputs.at[i]);
        if (!t || !sym_all_const(t->size, t->ndim))
            return true;
    }
    return false;
}

static void call(strbuf *b, const repro *r, const script_opts *o, const char *command)
{
    strbuf_addf(b, "run_repro(mod, load_args, accuracy=%s, command='%s', save_dir=",
                r->accuracy ? "True" : "False", command);
    quoted(b, o->save_dir);
    strbuf_add(b, ", tracing_mode=");
    quoted(b, o->tracing_mode ? o->tracing_mode : symbolic(r) ? "symbolic" : "real");
    strbuf_add(b, ", check_str=");
    quoted(b, o->check_str);
    strbuf_add(b, ", backend=");
    quoted(b, r->backend);
    if (r->forward_only)
        strbuf_add(b, ", only_fwd=True");
    if (r->seed || r->offset)
        strbuf_addf(b, ", random=(%llu, %llu)", (unsigned long long)r->seed, (unsigned long long)r->offset);
    strbuf_add(b, ")\n");
}

void script_python(strbuf *out, const repro *r, const signature *s, const script_opts *o)
{
    strbuf state = { 0 }, code = { 0 };
    arena a = { 0 };
    const char *command = o->command ? o->command : "run";
    bundle_state(&state, r);
    const json_val *j = json_parse(&a, strbuf_str(&state), state.n, NULL);
    const char *who = o->compiler ? o->compiler : r->backend;
    strbuf_addf(out, "# %d operator%s for backend ", repro_ops(r), repro_ops(r) == 1 ? "" : "s");
    clean(out, who, strlen(who));
    if (o->no_data)
        strbuf_add(out, ", as captured; inputs and constants are random numbers\n");
    else
        strbuf_addf(out, "%s; it fails with: %s\n", r->inner ? ", behind the autograd stage" : "",
                    s && s->kind != SIG_passes ? sig_name(s->kind) : "(not known yet)");
    if (s && s->full[0])
        comment(out, s->full);
    if (!o->stable)
        versions(out, j);
    if (uses_opaque(r->g))
        strbuf_add(
            out, "# It calls functions from outside the graph: define or import them before mod is made.\n");
    if (o->stable)
        strbuf_add(out, "# settings and environment left out: stable output\n");
    else
        environment(out, json_get(j, "environment"));
    strbuf_add(out, "import taper\nimport taper._dynamo.repro\n");
    if (!o->stable) {
        const char *dt = json_cstr(json_get(j, "default_dtype"));
        config(out, json_get(j, "config"));
        if (dt && strcmp(dt, "float32") && dtype_by_name(dt, strlen(dt)) != DT_none && identifier(dt))
            strbuf_addf(out, "taper.set_default_dtype(taper.%s)\n", dt);
    }
    if (fault_spec()) {
        strbuf_add(out, "taper._dynamo.repro.inject(");
        quoted(out, fault_spec());
        strbuf_add(out, ")  # planted for testing\n");
    }
    if (r->setup)
        strbuf_addf(out, "%s\n", r->setup);
    ir_print(&code, r->g, IR_PRINT_all | IR_PRINT_class | (o->no_data ? IR_PRINT_no_data : 0));
    const char *body = strchr(strbuf_str(&code), '\n');
    if (strstr(body, "device(type=") || strstr(body, " nan") || strstr(body, "inf") || strstr(body, "Mod(") ||
        strstr(body, "Max(") || strstr(body, "Min("))
        strbuf_add(out, "from taper._dynamo.repro import Max, Min, Mod, device, inf, nan\n");
    symbols(out, r);
    strbuf_addf(out, "\n\nclass Repro(taper.nn.Module):%s", body);
    constants(out, r->g, o->save_dir, o->no_data);
    load_args(out, r);
    strbuf_addf(out, "\nif __name__ == '__main__':\n    from taper._dynamo.repro.%s import run_repro\n",
                r->inner ? "after_aot" : "after_dynamo");
    if (r->inner)
        strbuf_add(out, "    with taper.no_grad():\n    ");
    strbuf_add(out, "    ");
    call(out, r, o, command);
    strbuf_add(out, "    # mod, args = ");
    call(out, r, o, "get_args");
    strbuf_free(&code);
    strbuf_free(&state);
    arena_free(&a);
}
