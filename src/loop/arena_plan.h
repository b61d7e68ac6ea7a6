/* arena_plan.h - the memory of a plan: where buffers lie, and after which step each slot is free. */
#ifndef TAPER_LOOP_ARENA_PLAN_H
#define TAPER_LOOP_ARENA_PLAN_H
#include "loop/loop.h"

typedef struct loop_memory {
    /* One block with an offset for each buffer whose size is a constant. */
    int64_t *offset; /* by slot; -1: not in the block */
    int64_t block;   /* bytes */
    int block_last;  /* the last step that uses it */
    int commit; /* the first step that writes into an input: memory for it and later ones is there by then */
    int *dead,
        *dead_at; /* slots that are not read after step i: dead[dead_at[i]] up to dead[dead_at[i + 1]] */
    int *item,
        *item_at; /* the same for slots that are items of step i's list; empty where the list itself is used */
} loop_memory;

/* fixed: buffers lie at the same addresses in every call, as recorded launches need it. */
loop_memory loop_memory_plan(tp_comp *c, const loop_plan *p, bool fixed);
/* Buffers that live at the same time lie separately, inside the block; false names two that do not. */
bool loop_memory_check(const loop_plan *p, const loop_memory *m, tp_err *err);
void loop_memory_free(loop_memory *m);
/* From which step to which a slot has memory of its own; false: it lies in another's, or is the caller's. */
bool loop_slot_life(const loop_plan *p, int slot, int *first, int *last);

/* Sizes and strides are numbers. */
static inline bool loop_const_type(const tp_tensor *t)
{
    return t && sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim);
}
#endif
