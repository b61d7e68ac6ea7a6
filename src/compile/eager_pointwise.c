/* eager_pointwise.c - kernels of single pointwise operators for eager calls on the CPU (ops/lowered.h): the operator's lowering as
 * machine code, or interpreted where there is none. */
#include "compile/eager.h"
#include "base/envvars.h"
#include "events/events.h"
#include "loop/loop.h"
#include "run/kernel_cache.h"
#include "target/cpu/cpu.h"

static void run(const lowered *e, void *const *bufs, const int64_t *n, const double *flts)
{
    cpu_run(e->code, bufs, n, flts, 0, 1);
}

/* An eager call does not wait for a compiler process: where machine code is not quick to make, the kernel is interpreted. */
static const target_code *code_of(const vir *k, tp_err *err)
{
    const target *t = target_host();
    const char *wanted = env_get(ENV_emitter); /* what kernels of graphs run as; C takes a compiler, too */
    bool machine = !wanted || !*wanted || !strcmp(wanted, "auto") || !strcmp(wanted, "x64");
    target_code *code = NULL;
    tp_err why = { 0 };
    if (machine && t->caps.quick && t->compile(t, &k, 1, &code, &why))
        return code;
    if (why.kind == ERR_interrupt || why.kind == ERR_internal) {
        *err = why;
        return NULL;
    }
    if (err_is_set(&why))
        kernels_say_interpreted(why.msg);
    else if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL, "eager '%s' is interpreted: no machine code for this processor",
               k->name);
    return target_interp.compile(&target_interp, &k, 1, &code, err) ? code : NULL;
}

static bool make(lowered *e, tp_err *err)
{
    arena a = { 0 };
    vir *k = vir_make(&a, op_row_of((op_id)e->key.op)->name);
    e->run = run;
    if (lower_alone(k, e, err))
        e->code = code_of(k, err);
    arena_free(&a);
    return e->code || err_note(err, "in the eager kernel of '%s'", op_row_of((op_id)e->key.op)->full);
}

void eager_pointwise_offer(void) { ops_lower_with(make); }
