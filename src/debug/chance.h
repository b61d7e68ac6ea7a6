/* chance.h - are random numbers of the distribution that a call names? */
#ifndef TAPER_CHANCE_H
#define TAPER_CHANCE_H
#include "ops/op.h"

/* Repeats the call until there are enough numbers to say so, on copies of what it writes; the generators go on from where they were.
 * True with why when they are not: of right ones less than one call in a hundred million is called wrong. False also where nobody
 * knows. */
bool chance_wrong(op_ctx *cx, op_id op, const tp_val *arg, strbuf *why);
#endif
