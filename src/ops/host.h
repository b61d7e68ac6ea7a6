/* host.h - what the program around the library does for it: the Python front end installs itself here, once, before the
 * first call. Every field may be NULL: nothing is there to ask. Only constants may be stored later. */
#ifndef TAPER_HOST_H
#define TAPER_HOST_H
#include "ops/val.h"

struct op_ctx;
struct debug_config;
struct json_w;
struct ir_loc;
struct arena;
typedef struct tp_host {
    /* The lock that long kernels need not hold: unlock returns what relock takes, or NULL when it was not held. */
    void *(*unlock)(void);
    void (*relock)(void *held);
    bool (*poll)(tp_err *err); /* between parts of long work: false with err where the user interrupts it */
    /* A call of something outside the graph (a Python callee, an operator written in Python). */
    bool (*opaque)(void *data, struct ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
    /* The same callee on proxies, so that its operators are recorded (allow_in_graph). */
    bool (*inlined)(struct op_ctx *cx, const struct ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
    void (*debug_config)(struct debug_config *c); /* settings of the debugger; NULL: the environment's */
    /* The line of the program that calls the library now; NULL: none does on this thread. */
    const struct ir_loc *(*where)(struct arena *a);
    void (*facts)(struct json_w *w); /* what a bundle says of the program around */
} tp_host;
extern tp_host host;

bool host_interrupted(void *unused); /* as base/proc.h asks it: has the user interrupted? */
#endif
