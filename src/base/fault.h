/* fault.h - faults planted on purpose, to test the tools that find them. TAPER_INJECT="op:kind@stage,..." turns
 * them on, e.g. "relu:accuracy@gen"; "relu:accuracy@gen/dynamic" strikes only where sizes are symbolic. A line on stderr says
 * so once. Off, a question costs one branch. */
#ifndef TAPER_FAULT_H
#define TAPER_FAULT_H
#include "base/err.h"

typedef enum {
#define FAULT(name, what) FAULT_##name,
#include "base/fault.def"
    FAULT_COUNT
} fault_kind;

extern int fault_state; /* private: -1 not read yet, 0 off, 1 on */
fault_kind fault_ask(const char *stage, const char *op);
fault_kind fault_ask_sized(const char *stage, const char *op,
                           bool dynamic); /* dynamic: its sizes are symbolic */
static inline fault_kind fault_at(const char *stage, const char *op)
{
    return TP_LIKELY(fault_state == 0) ? FAULT_none : fault_ask(stage, op);
}
/* Is one planted on op at a stage behind the autograd stage? Those find operators that were replaced by their marks. */
bool fault_later(const char *op);
/* Ends or stops the process, or finds no memory: at stages that only compile it does so there. */
static inline bool fault_is_sudden(fault_kind k)
{
    return k == FAULT_segv || k == FAULT_abort || k == FAULT_hang || k == FAULT_oom;
}
/* Does what the kind says at run time: raises a signal, hangs, fails. True when nothing happened. */
bool fault_strike(fault_kind k, const char *op, tp_err *err);
bool fault_coin(void);                         /* true now and then: FAULT_flaky */
bool fault_set(const char *spec, tp_err *err); /* instead of the environment; NULL or "": off */
const char *fault_spec(void);                  /* what is planted, or NULL */
/* Does this thread meet no faults from now on? What eager calls compile on a device stands for the device's own kernels: faults are
 * planted in the compiler of graphs. Returns what it was. */
bool fault_pause(bool on);
#endif
