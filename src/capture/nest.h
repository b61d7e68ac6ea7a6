/* nest.h - a graph that is recorded inside another one while a function is traced (trace_hop.c). */
#ifndef TAPER_CAPTURE_NEST_H
#define TAPER_CAPTURE_NEST_H
#include "capture/capture.h"

typedef struct nest {
    trace *t;
    ir_graph *g;
    struct nest *up;         /* the nested graph around this one */
    VEC(ir_node *) key;      /* what was lifted: the node in whichever graph made it */
    VEC(ir_node *) outer;    /* its node in the graph around this one */
    VEC(ir_node *) inner;    /* the input that stands for it */
    VEC(tp_tensor *) tensor; /* the tensor that was used, counted; NULL: only its node is known */
    ir_rec saved;
    PyObject *seen; /* contents of everything from outside, before */
    bool on;
} nest;

void nest_begin(nest *x, trace *t, const char *name); /* from here on operators are recorded into x->g */
void nest_leave(nest *x);
void nest_free(nest *x);
/* The node that stands for n in x; an input is made when there is none. NULL: n is of no graph around. */
ir_node *nest_lift(nest *x, ir_node *n);
ir_node *nest_lift_tensor(nest *x, tp_tensor *t); /* the same of a tensor's node */
/* A new input of x like this tensor, without its first `drop` dimensions. New reference. */
PyObject *nest_input(nest *x, const char *name, const tp_tensor *like, int drop, bool grad);
bool nest_left_alone(nest *x, const PyObject *but); /* no object from outside was changed, but this one */
nest *nest_now(trace *t);                           /* the one that is recorded now, or NULL */
#endif
