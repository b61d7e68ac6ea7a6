/* script_c.c - the generated kernels of a failure as one C file with their inputs and the values they should give. */
#include "debug/script.h"
#include "base/fault.h"
#include "base/proc.h"
#include "target/c/c.h"
#include "loop/loop.h"
#include <math.h>
#include <stdio.h>

enum { MAX_ELEMENTS = 1 << 16 };

typedef struct unit {
    strbuf *data, *body; /* arrays; statements of main */
    gen_c_unit c;
    int64_t room; /* elements that may still be written */
    int nkernel;
    bool faulty;
    const char *prefix; /* of array and kernel names: f or b */
    loop_plan *p;
    tp_val *val; /* eager values by node id; owned */
    int nval;
    const repro *r;
    bool *made; /* slots that exist as arrays */
} unit;

/* ---- eager values ---- */
static bool keep(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    unit *u = data;
    if (n->id < u->nval && v->kind == VAL_tensor && u->val[n->id].kind != VAL_tensor)
        u->val[n->id] = vT(tensor_ref(v->t));
    return true;
}

static bool run_eager(unit *u, tp_err *err)
{
    ir_graph *g = u->p->g;
    op_ctx cx = *op_ctx_cur();
    ir_renumber(g);
    u->nval = g->next_id;
    u->val = mem_zalloc(sizeof *u->val * (size_t)MAX(u->nval, 1));
    tp_val *in = inputs_copy(u->r->in, u->r->nin, DT_none, err),
           *out = mem_zalloc(sizeof *out * (size_t)MAX(g->output->narg, 1));
    ir_hook h = { .after = keep, .data = u, .opaque = run_opaque };
    cx.rec = NULL;
    cx.grad_mode = false;
    bool ok = in && ir_run(&cx, g, in, u->r->nin, out, g->output->narg, &h, err);
    for (int i = 0; ok && i < g->output->narg; i++)
        val_clear(&out[i]);
    free(out);
    inputs_free(in, u->r->nin);
    return ok;
}

static tp_tensor *slot_value(const unit *u, int i) /* borrowed, or NULL */
{
    const loop_slot *s = &u->p->slot.at[i];
    if (s->kind == SLOT_input)
        return u->r->in[s->index].kind == VAL_tensor ? u->r->in[s->index].t : NULL;
    if (s->kind == SLOT_const)
        return s->konst;
    const ir_node *n = s->node;
    return n && n->id < u->nval && u->val[n->id].kind == VAL_tensor ? u->val[n->id].t : NULL;
}

/* ---- arrays ---- */
/* The elements in the memory order that `type` says. */
static bool array(unit *u, const char *qual, const char *name, int slot, const tp_tensor *v,
                  const tp_tensor *type, tp_err *err)
{
    symint bytes = 0;
    dtype dt = (dtype)type->dt;
    if (!shape_storage_bytes(dt, type->ndim, type->size, type->stride, 0, &bytes, err))
        return false;
    int64_t n = bytes / (int64_t)dtype_size(dt);
    u->room -= n;
    if (u->room < 0)
        return err_set(err, ERR_notimpl, "the data is too big for a C file");
    strbuf_addf(u->data, "%s%s %s%s%d[%lld]", qual, gen_c_type(dt), u->prefix, name, slot,
                (long long)MAX(n, 1));
    if (v) {
        tp_tensor *t = tensor_new_strided(dt, type->ndim, type->size, type->stride, DEVICE_CPU, err);
        if (!t || (n && !tensor_copy(t, v, err))) {
            tensor_unref(t);
            return false;
        }
        strbuf_add(u->data, " = {");
        for (int64_t k = 0; k < n; k++) {
            strbuf_add(u->data, k % 10 ? ", " : k ? ",\n    " : n > 10 ? "\n    " : " ");
            gen_c_number(u->data, dt, (char *)t->storage->data + k * (int64_t)dtype_size(dt));
        }
        strbuf_add(u->data, n > 10 ? "\n}" : " }");
        tensor_unref(t);
    }
    strbuf_add(u->data, ";\n");
    return true;
}

static void planted(strbuf *b, const loop_kernel *k)
{
    switch (k->fault) {
    case FAULT_runtime_error:
        strbuf_addf(b, "    fprintf(stderr, \"planted fault: '%s' failed at run time\\n\");\n    return 1;\n",
                    k->fault_op);
        break;
    case FAULT_oom:
        strbuf_add(b, "    fprintf(stderr, \"planted fault: not enough memory\\n\");\n    return 1;\n");
        break;
    case FAULT_segv: strbuf_add(b, "    raise(SIGSEGV); /* planted */\n"); break;
    case FAULT_abort: strbuf_add(b, "    abort(); /* planted */\n"); break;
    case FAULT_hang: strbuf_add(b, "    for (;;) /* planted */\n        ;\n"); break;
    default: break;
    }
}

static bool kernel(unit *u, const loop_kernel *k, tp_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "%skernel_%d", u->prefix, u->nkernel);
    if (k->nint || sym_is_expr(k->par))
        return err_set(err, ERR_notimpl, "kernels for symbolic sizes have no C file");
    gen_c_kernel(&u->c, k->k, name);
    strbuf bufs = { 0 }, checks = { 0 };
    bool ok = true;
    for (int i = 0; i < k->nbuf && ok; i++) {
        int s = k->buf[i];
        const loop_slot *slot = &u->p->slot.at[s];
        bool out = k->k->bufs[i].flags & VIR_OUT;
        tp_tensor *v = slot_value(u, s);
        if (!slot->type || !v || !sym_all_const(slot->type->size, slot->type->ndim))
            ok = err_set(err, ERR_notimpl, "a kernel works on memory without a value of its own");
        if (ok && !u->made[s])
            ok = array(u, "static ", "s", s, out ? NULL : v, slot->type, err);
        if (ok && out && !u->made[s])
            ok = array(u, "static const ", "want", s, v, slot->type, err);
        if (ok && out) {
            dtype dt = (dtype)slot->type->dt;
            strbuf_addf(&checks,
                        "    bad |= differs(\"%s%s\", %d, %ss%d, %swant%d, sizeof %ss%d / sizeof *%ss%d);\n",
                        u->prefix[0] == 'b' ? "backward " : "", slot->node ? slot->node->name : "result",
                        dt == DT_f16    ? 1
                        : dt == DT_bf16 ? 2
                        : dt == DT_f64  ? 3
                        : dt == DT_f32  ? 4
                        : dt == DT_i64  ? 5
                        : dt == DT_i32  ? 6
                        : dt == DT_i16  ? 7
                        : dt == DT_i8   ? 8
                                        : 9,
                        u->prefix, s, u->prefix, s, u->prefix, s, u->prefix, s);
        }
        u->made[s] = true;
        strbuf_addf(&bufs, "%s%ss%d", i ? ", " : "", u->prefix, s);
    }
    if (ok) {
        planted(u->body, k);
        u->faulty |= k->fault != FAULT_none;
        strbuf_addf(u->body, "    %s((void *[]){ %s }, NULL, NULL, 0, %lld);\n%s", name, strbuf_str(&bufs),
                    (long long)k->par, strbuf_str(&checks));
        u->nkernel++;
    }
    strbuf_free(&bufs);
    strbuf_free(&checks);
    return ok;
}

static bool add_unit(unit *u, const repro *r, const char *prefix, tp_err *err)
{
    tp_comp c = { .err = err };
    bool ok = true;
    u->r = r;
    u->prefix = prefix;
    u->p = loop_plan_new(&c, r->g);
    if (!u->p)
        return false;
    u->made = mem_zalloc(MAX(u->p->slot.n, (size_t)1));
    ok = run_eager(u, err);
    for (size_t i = 0; ok && i < u->p->step.n; i++)
        if (u->p->step.at[i].kind == STEP_kernel)
            ok = kernel(u, u->p->step.at[i].kernel, err);
    for (int i = 0; i < u->nval; i++)
        val_clear(&u->val[i]);
    free(u->val);
    u->val = NULL;
    u->nval = 0;
    free(u->made);
    loop_plan_free(u->p);
    return ok;
}

/* Symbols become the numbers they have in the inputs. */
static repro *specialised(const repro *r, tp_err *err)
{
    bool any = false;
    tp_tensor **type = mem_zalloc(sizeof *type * (size_t)MAX(r->nin, 1));
    for (int i = 0; i < r->nin; i++) {
        const tp_tensor *t = ir_type(r->g->inputs.at[i]);
        any |= !t || !sym_all_const(t->size, t->ndim) || !sym_all_const(t->stride, t->ndim);
        type[i] = r->in[i].kind == VAL_tensor ? tensor_fake_of(r->in[i].t) : NULL;
    }
    repro *c = repro_copy(r);
    if (any) {
        ir_graph *g = repro_retype(r->g, type, NULL, NULL, err);
        if (g) {
            ir_graph_free(c->g);
            c->g = g;
        } else {
            repro_free(c);
            c = NULL;
        }
    }
    for (int i = 0; i < r->nin; i++)
        tensor_unref(type[i]);
    free(type);
    return c;
}

static const char differs[] =
    "static double get(int type, const void *p, size_t i)\n"
    "{\n"
    "    uint32_t h, e, m;\n"
    "    float f;\n"
    "    switch (type) {\n"
    "    case 1: /* float16 */\n"
    "        h = ((const uint16_t *)p)[i], e = h >> 10 & 31, m = h & 1023;\n"
    "        return (h >> 15 ? -1 : 1) * (e == 31 ? m ? NAN : INFINITY : e ? ldexp(1024 + m, (int)e - 25) : "
    "ldexp(m, -24));\n"
    "    case 2: /* bfloat16 */\n"
    "        h = (uint32_t)((const uint16_t *)p)[i] << 16;\n"
    "        memcpy(&f, &h, 4);\n"
    "        return f;\n"
    "    case 3: return ((const double *)p)[i];\n"
    "    case 4: return ((const float *)p)[i];\n"
    "    case 5: return (double)((const int64_t *)p)[i];\n"
    "    case 6: return ((const int32_t *)p)[i];\n"
    "    case 7: return ((const int16_t *)p)[i];\n"
    "    case 8: return ((const int8_t *)p)[i];\n"
    "    default: return ((const uint8_t *)p)[i];\n"
    "    }\n"
    "}\n\n"
    "static int differs(const char *what, int type, const void *got, const void *want, size_t n)\n"
    "{\n"
    "    for (size_t i = 0; i < n; i++) {\n"
    "        double g = get(type, got, i), w = get(type, want, i);\n"
    "        if (g == w || (g != g && w != w) || fabs(g - w) <= TOLERANCE + TOLERANCE * fabs(w))\n"
    "            continue;\n"
    "        printf(\"%s: element %zu in memory is %.9g, eager gives %.9g\\n\", what, i, g, w);\n"
    "        return 1;\n"
    "    }\n"
    "    return 0;\n"
    "}\n\n";

static void c_comment(strbuf *b, const char *s)
{
    for (; *s; s++)
        strbuf_addc(b, *s == '*' && s[1] == '/' ? '+' : (unsigned char)*s < 32 ? ' ' : *s);
}

static bool write_c(strbuf *out, const repro *r, const signature *s, tp_err *err)
{
    strbuf data = { 0 }, body = { 0 };
    unit u = { .data = &data, .body = &body, .room = MAX_ELEMENTS };
    bool grad = false, ok = false;
    repro *fixed = NULL, *fw = NULL, *bw = NULL;
    if (strcmp(r->backend, "inductor"))
        return err_set(err, ERR_notimpl, "backend '%s' makes no kernels", r->backend);
    grad = repro_has_gradients(r);
    fixed = specialised(r, err);
    fw = fixed ? repro_forward(fixed, err) : NULL;
    ok = fw && add_unit(&u, fw, "", err);
    if (ok && grad) {
        bw = repro_backward(fixed, err);
        ok = bw && add_unit(&u, bw, "b", err);
    }
    if (ok && !u.nkernel)
        ok = err_set(err, ERR_notimpl, "the graph makes no kernels: library calls do all of it");
    if (ok) {
        strbuf text = { 0 };
        gen_c_text(&u.c, &text);
        strbuf_add(out, "/* ");
        c_comment(out, s && s->kind != SIG_passes ? sig_name(s->kind) : "generated kernels");
        strbuf_add(out, ": ");
        c_comment(out, s ? s->full : "");
        strbuf_add(out, "\n * cc -O1 -ffp-contract=off -fno-strict-aliasing -fwrapv repro.c -lm && ./a.out   "
                        "(exit code 1: it still fails) */\n"
                        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n");
        strbuf_add(out, strbuf_str(&text));
        strbuf_addf(out, "\n#define TOLERANCE %g\n", r->acc.tol);
        strbuf_add(out, strbuf_str(&data));
        strbuf_addc(out, '\n');
        strbuf_add(out, differs);
        strbuf_addf(out,
                    "int main(void)\n{\n    int bad = 0;\n%s    if (!bad)\n        printf(\"every kernel "
                    "gives what eager gives\\n\");\n    return bad;\n}\n",
                    strbuf_str(&body));
        strbuf_free(&text);
    }
    gen_c_free(&u.c);
    strbuf_free(&data);
    strbuf_free(&body);
    repro_free(fixed);
    repro_free(fw);
    repro_free(bw);
    return ok;
}

typedef struct job {
    const repro *r;
    const signature *s;
} job;

static int write_in_child(void *arg)
{
    const job *j = arg;
    strbuf b = { 0 };
    tp_err err = { 0 };
    bool ok = write_c(&b, j->r, j->s, &err);
    fputs(ok ? strbuf_str(&b) : err.msg, stdout);
    fflush(stdout);
    return ok ? 0 : 1;
}

bool script_c(strbuf *out, const repro *r, const signature *s, tp_err *err)
{
    job j = { r, s }; /* what is written down may crash the compiler that writes it */
    proc_result res = { 0 };
    fflush(NULL);
    bool ok = proc_run(&(proc_spec){ .fn = write_in_child, .arg = &j, .timeout_ms = 10000 }, &res, err);
    if (ok && res.status == 0)
        strbuf_addn(out, strbuf_str(&res.out), res.out.n);
    else if (ok)
        ok = err_set(err, ERR_notimpl, "%s",
                     res.status == 1 ? strbuf_str(&res.out) : "the compiler does not survive it");
    proc_result_free(&res);
    return ok;
}
