/* text.h - private to src/ir/: what the printer and the parser share. */
#ifndef TAPER_IR_TEXT_H
#define TAPER_IR_TEXT_H
#include "ir/graph.h"
#include "sym/env.h"

/* Limits on what is read. */
enum {
    TEXT_MAX_BYTES = 1 << 28,
    TEXT_MAX_STRING = 1 << 20,
    TEXT_MAX_LIST = 1 << 20,
    TEXT_MAX_DEPTH = 64,
    TEXT_MAX_SUBGRAPHS = 4096,
    TEXT_INLINE_ELEMS = 16, /* a constant with more elements than this is named by its digest */
};

void text_meta(strbuf *b, const char *meta);          /* a node's extra facts on one line */
void ir_share_env(ir_graph *g, const ir_graph *with); /* g has none yet */

/* --- spelling: how a call is written, and which row a written call means
 * ------------------------------------ */
typedef struct text_args {
    int npos, nkw;
    tp_val pos[OP_MAX_PARAMS * 2];
    const char *kwname[OP_MAX_PARAMS];
    tp_val kw[OP_MAX_PARAMS];
} text_args;
typedef struct infix {
    const char *op, *sign;
    bool unary;
} infix;

/* The arguments to be written, defaults left out. Python style names the optional ones. */
void spell_args(const ir_node *n, bool python, text_args *a);
int spell_default(const op_row *r, op_variant v, const text_args *a); /* SPELL_* in Python style */
int spell_of(const ir_node *n, const text_args *python);              /* what is printed for n: SPELL_* */
const infix *infix_of(const op_row *r);
const infix *infix_by_sign(const char *sign, size_t n, bool unary);
/* "taper.", "taper.nn.functional.", ... for SPELL_function. The row's name without the part that says so. */
void spell_function(strbuf *b, const op_row *r, op_variant v, const char *root);
/* Arguments as written -> all arguments of the row. Lists live in mem. */
bool spell_bind(arena *mem, const op_row *r, const text_args *a, tp_val *full, tp_err *err);
/* space: 't' taper.name, 'n' nn.functional, 'l' linalg, 's' special, 'm' method (or operator). */
bool spell_resolve(arena *mem, char space, const char *name, size_t n, const text_args *a, op_id *op,
                   op_variant *v, tp_val *full, tp_err *err);

/* --- constants
 * ----------------------------------------------------------------------------------------------- */
void const_print(strbuf *b, const ir_node *n); /* "f32[2][1]cpu" = [1.0, 2.0] */
#endif
