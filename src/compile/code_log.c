/* code_log.c - readable output of the last stage. Nothing here runs unless somebody listens. */
#include "compile/code_log.h"
#include "target/c/c.h"
#include "events/metrics.h"

static const char *op_name(const ir_node *n)
{
    return n->kind == IR_call ? op_row_of((op_id)n->op)->full : n->target;
}

static const char *short_file(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/* "model.py:12 y = x + 1", or nothing. Comments end neither early nor in a new line. */
static void add_loc(strbuf *b, const ir_node *n, const char *before)
{
    const ir_loc *l = ir_place(n);
    if (!l)
        return;
    const char *code = ir_loc_code(l);
    strbuf_add(b, before);
    strbuf_add(b, short_file(l->file));
    strbuf_addc(b, ':');
    strbuf_int(b, l->line);
    strbuf_addc(b, ' ');
    for (const char *s = code ? code : "";;) {
        size_t n = strcspn(s, "*\n\r");
        strbuf_addn(b, s, n);
        if (!*(s += n))
            return;
        strbuf_add(b, *s != '*' ? " " : s[1] == '/' ? "* " : "*");
        s++;
    }
}

static int64_t bytes_of(const tp_tensor *t)
{
    int64_t n = (int64_t)dtype_size((dtype)t->dt);
    bool ok = true;
    for (int i = 0; i < t->ndim; i++)
        n *= MAX(sym_hint(t->size[i], &ok), 0);
    return n;
}

static void add_operand_bytes(void *sum, ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (t)
        *(int64_t *)sum += bytes_of(t);
}

static int64_t call_bytes(const ir_node *n)
{
    int64_t sum = ir_type(n) ? bytes_of(ir_type(n)) : 0;
    ir_each_operand((ir_node *)n, add_operand_bytes, &sum);
    return sum;
}

static const char *slot_name(const loop_plan *p, int i)
{
    return p->slot.at[i].node ? p->slot.at[i].node->name : "?";
}

/* ---- the step list ---- */
static void add_operand_name(void *arg, ir_node *n)
{
    strbuf *b = arg;
    strbuf_add(b, b->s[b->n - 1] == '(' ? "" : ", ");
    strbuf_add(b, n->name);
}

static void steps_text(strbuf *b, const loop_plan *p)
{
    strbuf_addf(b, "/* The steps of %s, in order:\n", p->g->name);
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        if (s->kind == STEP_check) {
            strbuf_addf(b, " *   check that %s lies inside what %s reads", slot_name(p, s->slot),
                        s->node->name);
            add_loc(b, s->node, "   ");
        } else if (s->kind == STEP_extern) {
            strbuf_add(b, " *   ");
            strbuf_add(b, s->node->name);
            strbuf_add(b, " = ");
            strbuf_add(b, op_name(s->node));
            strbuf_addc(b, '(');
            ir_each_operand((ir_node *)s->node, add_operand_name, b);
            strbuf_add(b, ")");
            add_loc(b, s->node, "   ");
        } else {
            const loop_kernel *k = s->kernel;
            strbuf_add(b, " *   ");
            strbuf_add(b, k->name);
            strbuf_addc(b, '(');
            for (int q = 0; q < k->nbuf; q++) {
                strbuf_add(b, q ? ", " : "");
                strbuf_add(b, slot_name(p, k->buf[q]));
            }
            strbuf_add(b, ")");
            const ir_loc *last = NULL;
            for (size_t q = 0; q < k->nodes.n; q++) { /* the lines it came from, each once in a row */
                const ir_loc *l = ir_place(k->nodes.at[q]);
                if (l && (!last || last->line != l->line || strcmp(last->file, l->file)))
                    add_loc(b, k->nodes.at[q], "\n *       from ");
                last = l ? l : last;
            }
        }
        strbuf_add(b, "\n");
    }
    strbuf_add(b, " *   return (");
    for (int i = 0; i < p->nout; i++)
        strbuf_addf(b, "%s%s", i ? ", " : "", p->out[i] >= 0 ? slot_name(p, p->out[i]) : "a number");
    strbuf_add(b, ") */\n\n");
}

void code_log_text(strbuf *b, const loop_plan *p)
{
    gen_c_unit u = { 0 };
    map first = { 0 }; /* key -> step + 1 */
    strbuf same = { 0 }, key = { 0 };
    for (size_t i = 0; i < p->step.n; i++) {
        if (p->step.at[i].kind != STEP_kernel)
            continue;
        const loop_kernel *lk = p->step.at[i].kernel;
        if (!lk->k) {
            strbuf_addf(&same, "/* %s: machine code from the disk cache; TAPER_CACHE=0 shows its C */\n",
                        lk->name);
            continue;
        }
        strbuf_clear(&key);
        vir_key(lk->k, &key);
        size_t at = (size_t)(uintptr_t)map_getn(&first, key.s, key.n);
        if (at) {
            strbuf_addf(&same, "#define %s %s /* the same code */\n", lk->name,
                        p->step.at[at - 1].kernel->name);
            continue;
        }
        map_putn(&first, key.s, key.n, (void *)(i + 1));
        gen_c_kernel(&u, lk->k, lk->name);
    }
    steps_text(b, p); /* first: it names the lines of the program, and helper functions can be long */
    gen_c_text(&u, b);
    if (same.n)
        strbuf_addf(b, "\n%s", strbuf_str(&same));
    gen_c_free(&u);
    strbuf_free(&same);
    strbuf_free(&key);
    map_free(&first);
}

/* These may be called on another thread: they read the plan and nothing else. */
static void output_code(void *arg)
{
    const loop_plan *p = *(loop_plan **)arg;
    strbuf *b = ev_scratch();
    code_log_text(b, p);
    if (ev_text_on(EV_output_code))
        ev_text(EV_output_code, NULL, "Output code: \n%s", strbuf_str(b));
    if (ev_trace_on(EV_inductor_output_code)) {
        strbuf meta = { 0 };
        json_w w = { &meta };
        json_obj(&w);
        json_key(&w, "filename");
        json_strf(&w, "%s.c", p->g->name);
        json_end(&w);
        ev_json(EV_inductor_output_code, NULL, strbuf_str(&meta), strbuf_str(b));
        strbuf_free(&meta);
    }
    ev_scratch_done(b);
}

static void fusion_record(void *arg)
{
    const loop_plan *p = *(loop_plan **)arg;
    strbuf *b = ev_scratch();
    for (size_t i = 0; i < p->decisions.n; i++) {
        loop_decision_print(b, &p->decisions.at[i]);
        strbuf_addc(b, '\n');
    }
    if (b->n)
        ev_artifact("fusion", "string", NULL, b->s);
    ev_scratch_done(b);
}

/* ---- each kernel ---- */
void code_log_kernel(const loop_kernel *lk, const target_code *rk)
{
    ev_add(rk->cached ? EVN_kernel_hits : EVN_kernel_misses, 1);
    ev_add(EVN_code_bytes, (int64_t)rk->ncode);
    if (ev_log_on(EVC_inductor, EV_DEBUG))
        ev_log(EVC_inductor, EV_DEBUG, NULL, "kernel %s: %zu bytes of code in %.3f ms%s", lk->name, rk->ncode,
               rk->compile_us / 1000, rk->cached ? " (shared with an equal kernel)" : "");
    if (!lk->k) /* from disk: the code alone */
        return;
    if (ev_text_on(EV_kernel_code)) {
        strbuf b = { 0 };
        tp_err none = { 0 };
        vir_print(lk->k, &b);
        if (rk->on->list)
            rk->on->list(rk->on, lk->k, &b, &none);
        ev_text(EV_kernel_code, NULL, "kernel %s (%zu bytes of code, %.3f ms)\n%s", lk->name, rk->ncode,
                rk->compile_us / 1000, strbuf_str(&b));
        strbuf_free(&b);
    }
    if (ev_text_on(EV_ir_post_fusion)) {
        strbuf b = { 0 };
        vir_print(lk->k, &b);
        ev_text(EV_ir_post_fusion, NULL, "AFTER FUSION\n%s", strbuf_str(&b));
        strbuf_free(&b);
    }
}

/* ---- hints ---- */
enum { TINY = 4096 };
static void hint(strbuf *b, const char *text, const ir_node *n, strbuf *all)
{
    strbuf_add(b, text);
    size_t end = b->n;
    if (n)
        add_loc(b, n, "\n    at ");
    ev_text(EV_perf_hints, NULL, "%s", strbuf_str(b));
    if (ev_trace_on(EV_artifact)) { /* a line each */
        strbuf_addn(all, b->s, end);
        if (b->n > end)
            strbuf_adds(all, " at ", b->s + end + strlen("\n    at "), NULL);
        strbuf_addc(all, '\n');
    }
    strbuf_clear(b);
}

static void perf_hints(const loop_plan *p, const target_code *const *k)
{
    strbuf b = { 0 }, all = { 0 };
    int tiny = 0;
    if (!ev_text_on(EV_perf_hints) && !ev_trace_on(EV_artifact))
        return;
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        if (s->product || s->kind == STEP_check)
            continue;
        if (s->kind == STEP_extern) {
            strbuf_adds(&b, s->node->name, " runs as a library call (", op_name(s->node), ")", NULL);
            hint(&b, s->node->kind == IR_call ? "" : ": a call from outside that nothing can be fused with",
                 s->node, &all);
            continue;
        }
        const ir_node *n = s->kernel->nodes.n ? s->kernel->nodes.at[0] : NULL;
        tiny += s->kernel->bytes < TINY;
        if (*k[i]->why) {
            strbuf_addf(&b, "kernel %s is interpreted, which is slow: %s", s->kernel->name, k[i]->why);
            hint(&b, "", n, &all);
        }
    }
    if (tiny) {
        if (p->nkernel == 1)
            strbuf_addf(&b, "The kernel of %s moves", p->g->name);
        else
            strbuf_addf(&b, "%d of %d kernels of %s move%s", tiny, p->nkernel, p->g->name,
                        tiny == 1 ? "s" : "");
        strbuf_addf(
            &b,
            " less than %d bytes: calling %s costs more than %s work. Larger batches would use %s better.",
            TINY, tiny == 1 ? "it" : "them", tiny == 1 ? "its" : "their", tiny == 1 ? "it" : "them");
        hint(&b, "", NULL, &all);
    }
    if (all.n) {
        all.s[--all.n] = 0; /* the last line's end */
        ev_artifact("perf_hints", "string", NULL, all.s);
    }
    strbuf_free(&all);
    strbuf_free(&b);
}

/* ---- the cache, as a record of the trace ---- */
static void cache_record(const loop_plan *p, const target_code *const *k)
{
    bool all = true, some = false;
    if (!ev_trace_on(EV_artifact) || !p->nkernel)
        return;
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "graph");
    json_str(&w, p->g->name);
    json_key(&w, "kernels");
    json_arr(&w);
    for (size_t i = 0; i < p->step.n; i++) {
        if (p->step.at[i].kind != STEP_kernel)
            continue;
        strbuf_add(&b, some ? ", {\"name\": " : "{\"name\": "); /* written out: it is part of every compile */
        json_quote(&b, p->step.at[i].kernel->name, strlen(p->step.at[i].kernel->name));
        strbuf_add(&b, ", \"key\": \"");
        char hex[16];
        for (int s = 0; s < 16; s++)
            hex[s] = "0123456789abcdef"[k[i]->hash >> (60 - 4 * s) & 15];
        strbuf_addn(&b, hex, sizeof hex);
        strbuf_add(&b, k[i]->cached ? "\", \"hit\": true}" : "\", \"hit\": false}");
        all &= k[i]->cached;
        some = true;
    }
    json_end(&w);
    json_end(&w);
    ev_artifact(all ? "fx_graph_cache_hit" : "fx_graph_cache_miss", "json", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

/* ---- where kernels come from, in the detailed trace ---- */
/* A place as Python prints it, after the calls that led to it. */
static void place_print(strbuf *b, const ir_loc *l)
{
    if (l->outer)
        place_print(b, l->outer);
    strbuf_addf(b, "  File \"%s\", line %d, in %s\n", l->file ? l->file : "?", l->line,
                l->func ? l->func : "?");
    const char *code = ir_loc_code(l);
    if (code)
        strbuf_addf(b, "    %s\n", code);
}

static void kernel_places(strbuf *b, const loop_plan *p)
{
    json_w w = { b };
    strbuf one = { 0 };
    json_obj(&w);
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_kernel *k = p->step.at[i].kind == STEP_kernel ? p->step.at[i].kernel : NULL;
        if (!k)
            continue;
        const ir_loc *last = NULL;
        json_key(&w, k->name);
        json_arr(&w);
        for (size_t q = 0; q < k->nodes.n; q++)
            if (k->nodes.at[q]->loc && k->nodes.at[q]->loc != last) {
                strbuf_clear(&one);
                place_print(&one, last = k->nodes.at[q]->loc);
                json_str(&w, one.s);
            }
        json_end(&w);
    }
    json_end(&w);
    strbuf_free(&one);
}

typedef struct computed { /* node n, in kernel k */
    const ir_node *n;
    const loop_kernel *k;
    size_t step;
} computed;

static int by_node(const void *pa, const void *pb)
{
    const computed *a = pa, *b = pb;
    return a->n->id != b->n->id ? (a->n->id > b->n->id) - (a->n->id < b->n->id)
                                : (a->step > b->step) - (a->step < b->step);
}

static void kernel_nodes(strbuf *b, const loop_plan *p)
{
    json_w w = { b };
    VEC(computed) all = { 0 };
    json_obj(&w);
    json_key(&w, "preToPost"); /* captured nodes are not followed through the autograd stage */
    json_raw(&w, "{}");
    json_key(&w, "postToPre");
    json_raw(&w, "{}");
    json_key(&w, "cppCodeToPost");
    json_obj(&w);
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_kernel *k = p->step.at[i].kind == STEP_kernel ? p->step.at[i].kernel : NULL;
        if (!k)
            continue;
        json_key(&w, k->name);
        json_arr(&w);
        for (size_t q = 0; q < k->nodes.n; q++) {
            json_str(&w, k->nodes.at[q]->name);
            vec_push(&all, ((computed){ k->nodes.at[q], k, i }));
        }
        json_end(&w);
    }
    json_end(&w);
    json_key(&w, "postToCppCode");
    json_obj(&w);
    if (all.n)
        qsort(all.at, all.n, sizeof *all.at, by_node);
    for (size_t i = 0; i < all.n; i++) { /* a value may be computed in several kernels */
        bool first = !i || all.at[i].n != all.at[i - 1].n;
        if (first && i)
            json_end(&w);
        if (first) {
            json_key(&w, all.at[i].n->name);
            json_arr(&w);
        }
        if (first || all.at[i].k != all.at[i - 1].k)
            json_str(&w, all.at[i].k->name);
    }
    if (all.n)
        json_end(&w);
    json_end(&w);
    json_key(&w, "version");
    json_int(&w, 1);
    json_end(&w);
    vec_free(&all);
}

static void provenance(const loop_plan *p)
{
    strbuf b = { 0 };
    if (!ev_trace_on(EV_inductor_post_grad_graph) || !p->nkernel)
        return;
    kernel_places(&b, p);
    ev_artifact("inductor_provenance_tracking_kernel_stack_traces", "json", NULL, b.s);
    ev_metrics_provenance(b.s);
    strbuf_clear(&b);
    kernel_nodes(&b, p);
    ev_artifact("inductor_provenance_tracking_node_mappings", "json", NULL, b.s);
    strbuf_free(&b);
}

/* ---- memory, as a record of the trace ---- */
/* Each value that has memory of its own, with the steps that it is alive at. Sizes that are symbols count by hint. */
static void memory_values(strbuf *b, const loop_plan *p, const loop_memory *m)
{
    bool some = false;
    int first, last;
    for (int i = 0; i < (int)p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        if (!loop_slot_life(p, i, &first, &last))
            continue;
        strbuf_add(b, some ? ",\n{\"name\": " : "\n{\"name\": "); /* written out: part of every compile */
        json_quote(b, s->node->name, strlen(s->node->name));
        strbuf_add(b, ", \"bytes\": ");
        strbuf_int(b, bytes_of(s->type));
        strbuf_add(b, ", \"first\": ");
        strbuf_int(b, first);
        strbuf_add(b, ", \"last\": ");
        strbuf_int(b, last);
        const ir_loc *l = ir_place(s->node);
        if (l && l->file) {
            strbuf_add(b, ", \"file\": ");
            json_quote(b, l->file, strlen(l->file));
            strbuf_add(b, ", \"line\": ");
            strbuf_int(b, l->line);
        }
        strbuf_add(b, s->output ? ", \"returned\": true}" : m->offset[i] >= 0 ? ", \"shared\": true}" : "}");
        some = true;
    }
}

void code_log_memory(const loop_plan *p, const loop_memory *m)
{
    int64_t inputs = 0, constants = 0;
    bool numbers = true;
    if (!ev_trace_on(EV_artifact) || !p->step.n)
        return;
    for (size_t i = 0; i < p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        if (!s->type)
            continue;
        numbers &= loop_const_type(s->type);
        inputs += s->kind == SLOT_input ? bytes_of(s->type) : 0;
        constants += s->kind == SLOT_const ? bytes_of(s->type) : 0;
    }
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "graph");
    json_str(&w, p->g->name);
    json_key(&w, "inputs");
    json_int(&w, inputs);
    json_key(&w, "constants");
    json_int(&w, constants);
    json_key(&w, "block");
    json_int(&w, m->block);
    json_key(&w, "by_hint");
    json_bool(&w, !numbers);
    json_key(&w, "steps");
    json_arr(&w);
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        json_str(&w, s->kind == STEP_kernel ? s->kernel->name : s->node->name);
    }
    json_end(&w);
    json_key(&w, "values");
    json_arr(&w);
    memory_values(&b, p, m);
    json_end(&w);
    json_end(&w);
    ev_artifact("memory", "json", NULL, b.s);
    strbuf_free(&b);
}

void code_log_options(const run_options *o)
{
    strbuf b = { 0 };
    size_t n;
    if (!ev_trace_on(EV_compilation_metrics))
        return;
    for (int i = 0; i < OPT_COUNT; i++) { /* names and words are our own: nothing in them is to be escaped */
        const char *word = option_word_at((option_id)i, o->v[i], &n);
        strbuf_adds(&b, i ? ", \"" : "{\"", option_row_of((option_id)i)->name, "\": \"", NULL);
        strbuf_addn(&b, word, n);
        strbuf_addc(&b, '"');
    }
    strbuf_addc(&b, '}');
    ev_metrics_text(EVT_options, b.s);
    strbuf_free(&b);
}

/* ---- the whole ---- */
void code_log_begin(const ir_graph *g)
{
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL, "compiling graph %s", g->name);
    if (!ev_trace_on(EV_inductor_post_grad_graph))
        return;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    ev_artifact("before_post_grad_graph", "string", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

void code_log_graph(const ir_graph *g)
{
    if (!ev_text_on(EV_post_grad_graphs) && !ev_trace_on(EV_inductor_post_grad_graph) &&
        !ev_text_on(EV_ir_pre_fusion))
        return;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    if (ev_text_on(EV_post_grad_graphs))
        ev_text(EV_post_grad_graphs, NULL, "AFTER POST GRAD\n ===== %s =====\n%s", g->name, strbuf_str(&b));
    if (ev_text_on(EV_ir_pre_fusion))
        ev_text(EV_ir_pre_fusion, NULL, "BEFORE FUSION\n%s", strbuf_str(&b));
    if (ev_trace_on(EV_inductor_post_grad_graph))
        ev_json(EV_inductor_post_grad_graph, NULL, "{}", strbuf_str(&b));
    strbuf_free(&b);
}

void code_log_program(const loop_plan *p)
{
    if (ev_trace_on(
            EV_inductor_post_grad_graph)) { /* in the detailed trace; the code says it in another way */
        strbuf b = { 0 };
        loop_plan_print(&b, p);
        ev_artifact("schedule", "string", NULL, b.s);
        strbuf_free(&b);
    }
    if (p->decisions.n)
        ev_now(fusion_record, &p);
    if (ev_text_on(EV_output_code))
        output_code(&p);
    else if (ev_trace_on(EV_inductor_output_code))
        ev_later(output_code, &p, sizeof p, p, NULL);
}

void code_log_plan(const loop_plan *p, const target_code *const *k)
{
    int64_t moved = 0;
    for (size_t i = 0; i < p->step.n; i++)
        moved += p->step.at[i].kind == STEP_kernel   ? p->step.at[i].kernel->bytes
                 : p->step.at[i].kind == STEP_extern ? call_bytes(p->step.at[i].node)
                                                     : 0;
    ev_add(EVN_kernels, p->nkernel);
    ev_add(EVN_calls, p->nextern);
    ev_add(EVN_fused, p->nfused);
    ev_add(EVN_ir, (int64_t)p->step.n);
    ev_add(EVN_moved, moved);
    if (ev_log_on(EVC_inductor, EV_INFO) || ev_text_on(EV_inductor_metrics)) {
        strbuf b = { 0 };
        loop_plan_counts(&b, p);
        strbuf_addf(&b, ", about %lld bytes moved", (long long)moved);
        ev_log(EVC_inductor, EV_INFO, NULL, "%s: %s", p->g->name, strbuf_str(&b));
        ev_text(EV_inductor_metrics, NULL, "%s: %s", p->g->name, strbuf_str(&b));
        strbuf_free(&b);
    }
    perf_hints(p, k);
    cache_record(p, k);
    provenance(p);
}
