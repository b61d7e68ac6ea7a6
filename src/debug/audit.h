/* audit.h - is eager execution right? Each operator of a graph on the values it gets: its result against float64, its derivative
 * against finite differences in float64. What compiled code is compared with is itself compared. */
#ifndef TAPER_AUDIT_H
#define TAPER_AUDIT_H
#include "debug/repro.h"

/* What is wrong, a line each: "value|mm|/x/model.py:7: y = x @ w|...", "derivative|...", or "lowered|..." where the eager kernel is
 * the lowering that compiled code has, too, or "decomposed|..." where eager runs by the decomposition. How many. */
int audit(const repro *r, int round, strbuf *out);
bool audit_wanted(void); /* TAPER_AUDIT=FILE */
/* The lines go to that file. An operator on a line of the program is audited once a round; from the second on, values alone. */
void audit_report(const repro *r, int round);
/* With TAPER_AUDIT: the operators that run outside of graphs, and those that derivatives consist of, each on what it gets; the first
 * few times that a line of the program calls one. */
void audit_calls(void);
/* One more thing that is wrong, on the line of the program that runs now. */
void audit_note(const char *what, const char *op, const char *fmt, ...) TP_PRINTF(3, 4);
/* Autocast runs op in type `to`, and its narrow type is that: is it right? */
void audit_cast(op_id op, dtype to, dtype narrow);
#endif
