/* cmd_graph.c - taper graph print|verify|run|fold FILE: one stage alone, from a text file (cmd_stage.c has the later ones). */
#include "cli/graph.h"
#include "base/file.h"
#include "ir/pass.h"
#include "ops/random.h"
#include "tensor/safetensors.h"
#include "compile/backend.h"
#include "run/checked.h"
#include <stdio.h>

/* ---- files ---- */
ir_graph *graph_load(const char *path, tp_err *err)
{
    if (strcmp(path, "-"))
        return ir_load(path, NULL, err);
    strbuf b = { 0 };
    char buf[1 << 16];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0 && b.n < ((size_t)1 << 28))
        strbuf_addn(&b, buf, n);
    ir_graph *g = ir_parse(strbuf_str(&b), b.n, "<stdin>", NULL, err);
    strbuf_free(&b);
    return g;
}

int graph_write(const strbuf *text, const char *path)
{
    tp_err e = { 0 };
    if (path)
        return file_write(path, text->s ? text->s : "", text->n, &e) ? 0 : cli_fail(&e);
    fwrite(text->s ? text->s : "", 1, text->n, stdout);
    return 0;
}

static int emit(const ir_graph *g, int what, const char *out)
{
    tp_err e = { 0 };
    strbuf b = { 0 };
    int rc = 0;
    if (out && what == IR_PRINT_all) {
        if (!ir_save(g, out, &e))
            rc = cli_fail(&e);
        return rc;
    }
    ir_print(&b, g, what);
    rc = graph_write(&b, out);
    strbuf_free(&b);
    return rc;
}

int graph_file(cli_args *a, const char **file)
{
    if (a->argv[a->at][0] == '-' && a->argv[a->at][1])
        return cli_unknown(a);
    if (*file)
        return cli_usage("one FILE was expected, not also '%s'", a->argv[a->at]);
    *file = a->argv[a->at++];
    return 0;
}

/* ---- print ---- */
static bool set_style(ir_graph *g, const char *style)
{
    int keep = g->style & IR_STYLE_torch;
    if (!strcmp(style, "aten"))
        g->style = (uint8_t)(keep | IR_STYLE_aten);
    else if (!strcmp(style, "python"))
        g->style = (uint8_t)keep;
    else
        return false;
    if (g->style & IR_STYLE_aten)
        IR_EACH (n, g)
            n->spell = SPELL_auto;
    for (size_t i = 0; i < g->subs.n; i++)
        set_style(g->subs.at[i], style);
    return true;
}

static int run_print(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *file = NULL, *out = NULL, *style = NULL;
    int what = IR_PRINT_all, rc = 0;
    tp_err e = { 0 };

    while (a.at < argc && !rc) {
        if (cli_flag(&a, "table"))
            what = IR_PRINT_table;
        else if (cli_flag(&a, "sizes"))
            what = IR_PRINT_sizes;
        else if (cli_flag(&a, "log"))
            what = IR_PRINT_log;
        else if (cli_flag(&a, "short"))
            what = IR_PRINT_types | IR_PRINT_locs | IR_PRINT_frees | IR_PRINT_short;
        else if (!cli_option(&a, "style", &style) && !cli_option(&a, "output", &out))
            rc = graph_file(&a, &file);
    }
    if (rc)
        return rc;
    if (!file)
        return cli_usage("'graph print' needs a FILE");
    ir_graph *g = graph_load(file, &e);
    if (!g)
        return cli_fail(&e);
    if (style && !set_style(g, style))
        rc = cli_usage("--style is python or aten, not '%s'", style);
    else
        rc = emit(g, what, out);
    ir_graph_free(g);
    return rc;
}

/* ---- verify ---- */
static int run_verify(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *file = NULL;
    int rc = 0;
    tp_err e = { 0 };

    while (a.at < argc && !rc)
        rc = graph_file(&a, &file);
    if (rc)
        return rc;
    if (!file)
        return cli_usage("'graph verify' needs a FILE");
    ir_graph *g = graph_load(file, &e);
    if (!g || !ir_verify(g, &e))
        rc = cli_fail(&e);
    else
        printf("ok: %d node%s, %zu input%s, %d output%s, hash %016llx\n", g->nnode, plural(g->nnode),
               g->inputs.n, plural((int64_t)g->inputs.n), g->output->narg, plural(g->output->narg),
               (unsigned long long)ir_hash(g));
    ir_graph_free(g);
    return rc;
}

/* ---- fold ---- */
typedef struct refusal { /* answers no to a kind, or to one site of it */
    VEC(const char *) words;
    bool trace;
} refusal;

static bool refuse(void *data, decide_kind k, const char *site, uint64_t hash)
{
    const refusal *r = data;
    bool yes = true;
    for (size_t i = 0; i < r->words.n; i++)
        if (!strcmp(r->words.at[i], decide_name(k)) || !strcmp(r->words.at[i], site))
            yes = false;
    if (r->trace)
        fprintf(stderr, "decide %s %016llx: %s\n", site, (unsigned long long)hash, yes ? "yes" : "no");
    return yes;
}

static int run_fold(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *file = NULL, *out = NULL, *passes = NULL, *no;
    refusal r = { 0 };
    int rc = 0;
    tp_err e = { 0 };

    while (a.at < argc && !rc) {
        if (cli_option(&a, "no", &no))
            vec_push(&r.words, no);
        else if (cli_flag(&a, "decisions"))
            r.trace = true;
        else if (!cli_option(&a, "passes", &passes) && !cli_option(&a, "output", &out))
            rc = graph_file(&a, &file);
    }
    if (!rc && !file)
        rc = cli_usage("'graph fold' needs a FILE");
    ir_graph *g = rc ? NULL : graph_load(file, &e);
    if (!rc && !g)
        rc = cli_fail(&e);
    if (!rc) {
        tp_comp c = { .err = &e, .verify = true };
        if (r.words.n || r.trace)
            c.decider = (decider){ refuse, &r };
        rc = pass_run_named(&c, g, passes) ? emit(g, IR_PRINT_all, out) : cli_fail(&e);
    }
    ir_graph_free(g);
    vec_free(&r.words);
    return rc;
}

/* ---- run ---- */
static int64_t concrete(symint v)
{
    bool ok = true;
    return sym_is_expr(v) ? sym_hint(v, &ok) : v;
}

/* Numbers for an input that was not given: normal for floats, small for integers. */
static void fill(tp_tensor *t, uint64_t seed, uint64_t stream)
{
    for (int64_t i = 0; i < t->numel; i++) {
        uint32_t r[4];
        char *p = (char *)tensor_host(t) + (size_t)i * dtype_size((dtype)t->dt);
        philox(seed, stream, (uint64_t)i, r);
        if (dtype_is_float((dtype)t->dt)) {
            double sum = 0; /* nearly normal, and the same everywhere: no library function */
            for (int k = 0; k < 4; k++)
                sum += (double)r[k] / 4294967296.0;
            elem_set_f((dtype)t->dt, p, (sum - 2) * 1.7320508);
        } else
            elem_set_i((dtype)t->dt, p, t->dt == DT_bool ? r[0] & 1 : r[0] % 10);
    }
}

static tp_tensor *example(const tp_tensor *type, uint64_t seed, uint64_t stream, tp_err *err)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0; d < type->ndim; d++) {
        size[d] = concrete(type->size[d]);
        stride[d] = concrete(type->stride[d]);
    }
    tp_tensor *flat = tensor_new((dtype)type->dt, type->ndim, size, err), *t = NULL;
    if (!flat)
        return NULL;
    fill(flat, seed, stream);
    t = tensor_new_strided((dtype)type->dt, type->ndim, size, stride, DEVICE_CPU, err);
    if (t && !tensor_copy(t, flat, err)) {
        tensor_unref(t);
        t = NULL;
    }
    tensor_unref(flat);
    return t;
}

static bool make_inputs(ir_graph *g, const char *path, uint64_t seed, tp_val *in, tp_err *err)
{
    st_file f = { 0 };
    bool ok = !path || st_open(&f, path, err), opened = path && ok;
    for (size_t i = 0; ok && i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        const st_entry *given = opened ? st_find(&f, n->name) : NULL;
        tp_tensor *type = ir_type(n);
        if (given || type) {
            tp_tensor *t = given ? st_tensor(&f, given, err) : example(type, seed, i, err);
            ok = t != NULL;
            in[i] = vT(t);
        } else if (n->val.kind == VAL_int)
            in[i] = vI(concrete(n->val.i));
        else
            in[i] = n->val;
    }
    if (opened)
        st_free(&f);
    return ok;
}

static void show(const char *name, const tp_val *v)
{
    strbuf b = { 0 };
    enum { SHOWN = 24 };
    if (v->kind != VAL_tensor)
        ir_val_print(&b, v, 0);
    else {
        ir_type_print(&b, v);
        strbuf_add(&b, " = [");
        for (int64_t i = 0; i < v->t->numel && i < SHOWN; i++) {
            dtype dt = (dtype)v->t->dt;
            const void *p = tensor_elem(v->t, i);
            strbuf_add(&b, i ? ", " : "");
            if (dtype_is_float(dt))
                strbuf_addf(&b, "%.6g", elem_get_f(dt, p));
            else
                strbuf_addf(&b, "%lld", (long long)elem_get_i(dt, p));
        }
        if (v->t->numel > SHOWN)
            strbuf_addf(&b, ", ... %lld in all", (long long)v->t->numel);
        strbuf_addc(&b, ']');
    }
    printf("%s: %s\n", name, strbuf_str(&b));
    strbuf_free(&b);
}

static bool trace_node(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    show(n->name, v);
    return true;
}

static bool run_graph(ir_graph *g, const char *name, bool trace, tp_val *in, tp_val *out, tp_err *err)
{
    ir_hook h = { .after = trace_node, .opaque = run_opaque };
    int nin = (int)g->inputs.n, nout = g->output->narg;
    if (trace)
        return ir_run(op_ctx_cur(), g, in, nin, out, nout, &h, err);
    tp_comp c = { .err = err };
    const backend *b = backend_find(name, err);
    run_program *p = b ? backend_compile(b, &c, g, NULL) : NULL;
    p = p ? checked_new(p, g) : NULL;
    bool ok = p && run_program_call(p, op_ctx_cur(), in, nin, out, nout, err);
    run_program_free(p);
    return ok;
}

static bool save_outputs(const char *path, const tp_val *out, int n, tp_err *err)
{
    arena mem = { 0 };
    VEC(const char *) names = { 0 };
    VEC(tp_tensor *) ts = { 0 };
    for (int i = 0; i < n; i++) {
        if (out[i].kind != VAL_tensor)
            continue;
        vec_push(&names, (const char *)arena_printf(&mem, "output_%d", i));
        vec_push(&ts, out[i].t);
    }
    bool ok = st_write(path, names.at, ts.at, (int)ts.n, NULL, err);
    vec_free(&names);
    vec_free(&ts);
    arena_free(&mem);
    return ok;
}

static int run_run(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *file = NULL, *inputs = NULL, *outputs = NULL, *backend = "eager", *seed = "0";
    bool trace = false;
    int rc = 0;
    tp_err e = { 0 };

    while (a.at < argc && !rc) {
        if (cli_flag(&a, "trace"))
            trace = true;
        else if (!cli_option(&a, "inputs", &inputs) && !cli_option(&a, "outputs", &outputs) &&
                 !cli_option(&a, "backend", &backend) && !cli_option(&a, "seed", &seed))
            rc = graph_file(&a, &file);
    }
    if (rc)
        return rc;
    if (!file)
        return cli_usage("'graph run' needs a FILE");
    ir_graph *g = graph_load(file, &e);
    if (!g || !ir_verify(g, &e)) {
        ir_graph_free(g);
        return cli_fail(&e);
    }
    int nin = (int)g->inputs.n, nout = g->output->narg;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)MAX(nin, 1)),
           *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    bool ok = make_inputs(g, inputs, strtoull(seed, NULL, 10), in, &e) &&
              run_graph(g, backend, trace, in, out, &e);
    for (int i = 0; ok && i < nout; i++) {
        char name[32];
        snprintf(name, sizeof name, "output %d", i);
        show(name, &out[i]);
    }
    ok = ok && (!outputs || save_outputs(outputs, out, nout, &e));
    for (int i = 0; i < nin; i++)
        val_clear(&in[i]);
    for (int i = 0; i < nout; i++)
        val_clear(&out[i]);
    free(in);
    free(out);
    ir_graph_free(g);
    return ok ? 0 : cli_fail(&e);
}

/* The text of a stage is a graph, a plan or code; each has its options. */
#define GRAD_HELP                                                                                     \
    "  --grad=NAMES    gradients of these inputs: names with commas, all, or none (default: all for " \
    "joint,\n"                                                                                        \
    "                  forward, backward and --of=backward; none otherwise)\n"
#define graph_args "FILE [--grad=NAMES|all|none] [--output=OUT]"
#define graph_help                                                  \
    GRAD_HELP "  --output=OUT    write there instead of printing\n" \
              "The graph reads back: taper graph schedule goes on from its text.\n"
#define code_args "FILE [--of=forward|backward] [--grad=NAMES|all|none] [--target=NAME] [--output=OUT]"
#define code_help                                                                                       \
    "  --of=PASS       of the forward graph (default) or of the backward graph\n" GRAD_HELP             \
    "  --target=NAME   for avx512, avx2 (default), c (default of c), interpreter, cuda, or host: this " \
    "machine\n"                                                                                         \
    "  --output=OUT    write there instead of printing\n"                                               \
    "The text depends on the graph and the options alone, not on this machine (without --target=host).\n"
#define plan_args code_args " [--why]"
#define plan_help "  --why           also what was fused and what not, and why\n" code_help

static const cli_cmd subs[] = {
    { "print", "FILE [--table|--sizes|--log|--short] [--style=python|aten] [--output=OUT]",
      "Reads a graph and prints it",
      "  --table         one row a node: opcode, name, target, args, kwargs\n"
      "  --sizes         the sizes of every tensor, with the hints' values where they are symbolic\n"
      "  --log           as logs show it: inside a class, without what only reading back needs\n"
      "  --short         types without strides and device\n"
      "  --style=STYLE   python: taper.sin(x), x + y; aten: taper.ops.aten.sin.default(x)\n"
      "  --output=OUT    write there (big constants into OUT.safetensors) instead of printing\n"
      "FILE may be - for standard input. docs/graph.md describes the form.\n",
      run_print, NULL },
    { "verify", "FILE", "Reads a graph and checks every rule; prints its size and hash",
      "A broken rule is named together with its node, and the exit code is 1.\n", run_verify, NULL },
    { "run",
      "FILE [--inputs=IN.safetensors] [--seed=N] [--outputs=OUT.safetensors] [--backend=NAME] [--trace]",
      "Runs a graph and prints what it returns",
      "  --inputs=IN     tensors by input name; inputs not found there are made up from the seed\n"
      "  --seed=N        for made-up inputs and random operators (default 0)\n"
      "  --outputs=OUT   also write the results as output_0, output_1, ...\n"
      "  --backend=NAME  what runs it (default eager)\n"
      "  --trace         print every node's value as it is computed\n",
      run_run, NULL },
    { "fold", "FILE [--passes=LIST] [--no=KIND|--no=SITE]... [--decisions] [--output=OUT]",
      "Simplifies a graph and prints the result",
      "  --passes=LIST   comma-separated, in this order: noop, fold, cse, dce (default: all of them)\n"
      "  --no=KIND       do not make rewrites of this kind (noop, fold, cse, dce)\n"
      "  --no=SITE       nor this one, named as --decisions prints it (cse:add_1@model.py:12)\n"
      "  --decisions     print each rewrite as it is decided, to standard error\n"
      "  --output=OUT    write there instead of printing\n",
      run_fold, NULL },
#define STAGE(name, text, what) { #name, text##_args, what, text##_help, graph_stage, NULL },
#include "compile/stages.def"
    { NULL, NULL, NULL, NULL, NULL, NULL },
};

const cli_cmd cmd_graph = {
    "graph",
    "COMMAND FILE",
    "Prints, checks, runs and simplifies graphs from text files; shows what each stage makes of one",
    NULL,
    NULL,
    subs
};
