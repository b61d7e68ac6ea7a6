/* log.h - private to src/sym/: what the shape environment tells the event stream. */
#ifndef TAPER_SYM_LOG_H
#define TAPER_SYM_LOG_H
#include "sym/expr.h"

void sx_log_env(sym_env *env);
void sx_log_made(const sym_expr *e); /* an expression that was not there before */
void sx_log_symbol(sym_expr *e);
void sx_log_duck(sym_expr *e, const char *source);
void sx_log_guard(sym_env *env, symint cond, const char *where, bool assertion);
void sx_log_replaced(sym_expr *s, symint value, const char *where);
void sx_log_datadep(sym_env *env, symint cond);
void sx_log_produce(sym_env *env);
#endif
