/* parse.h - private to src/ir/: the parts of the reader of graph text.
 * parse_lex.c tokens and expressions, parse_value.c types and operands, parse_call.c right sides, parse_note.c
 * comments that carry facts, parse.c statements and definitions. All return false with the error set. */
#ifndef TAPER_IR_PARSE_H
#define TAPER_IR_PARSE_H
#include "ir/text.h"

typedef struct konst {
    tp_tensor *t; /* one count, or NULL: the bytes are elsewhere */
    tp_val type;  /* one count */
    const char *digest;
} konst;

typedef struct parser {
    const char *s, *p, *e; /* text, place, end */
    const char *file;
    tp_err *err;
    arena mem; /* what only reading needs */
    sym_env *env;
    int *env_refs;
    ir_graph *g;             /* being read */
    map vars;                /* name -> node of g */
    map konsts;              /* of the def to come: name -> konst */
    map graphs;              /* name -> nested graph */
    VEC(ir_graph *) pending; /* nested graphs nobody uses yet: ours to free */
    VEC(tp_val) list;
    const char *graph_name;
    const char *library; /* the directory whose files are not the user's, or NULL */
    bool typed;          /* nodes have their types beside them */
    bool raw;            /* the arguments of a check are read as they stand */
    bool grad_mode;
    const ir_loc *loc;
    int n_aten, n_python;
    bool torch;
} parser;

typedef struct stmt {
    const char *name; /* in the text */
    size_t n_name;
    const char *at; /* of the right side, for messages */
    tp_val type;    /* annotation, owned; VAL_none without */
    const char *type_text;
    size_t n_type;
} stmt;

/* parse_lex.c: tokens, numbers, symbolic expressions */
bool parse_fail_at(parser *p, const char *at, err_kind k, const char *fmt, ...) TP_PRINTF(4, 5);
bool parse_expected(parser *p, const char *what);
void parse_space(parser *p);
bool parse_next_is(parser *p, const char *t);
bool parse_take(parser *p, const char *t);
bool parse_want(parser *p, const char *t);
bool parse_comma_or(parser *p, const char *close);
bool parse_word_at(const char *s, const char *e, const char **w, size_t *n);
bool parse_word(parser *p, const char **w, size_t *n);
bool parse_word_is(const char *w, size_t n, const char *t);
bool parse_want_word(parser *p, const char *what, const char **w, size_t *n);
bool parse_dotted(parser *p, const char **w, size_t *n);
int parse_hex_digit(char c);
bool parse_string(parser *p, const char **out);
bool parse_want_string(parser *p, const char *what, const char **out);
bool parse_name_or_string(parser *p, const char *what, const char **out);
bool parse_digits_follow(const char *q, const char *e);
bool parse_whole(parser *p, int64_t *out);
bool parse_number_whole(parser *p, int64_t *out); /* a number that is no size: below 2**63 */
const char *parse_expr_end(const parser *p, const char *s);
bool parse_expression(parser *p, symint *out);
bool parse_size_value(parser *p, symint *out);
/* parse_value.c: types and values */
bool parse_annotation(parser *p, tp_val *out, const char **text, size_t *n);
ir_node *parse_var(parser *p, const char *w, size_t n);
bool parse_use_var(parser *p, const char *w, size_t n, ir_node **out);
bool parse_is_root(const char *w, size_t n);
bool parse_value(parser *p, tp_val *out);
/* parse_call.c: right sides */
bool parse_right_side(parser *p, stmt *s, ir_node **out);
/* parse_note.c: comments */
const char *parse_line_end(const parser *p);
bool parse_body_comment(parser *p);
bool parse_head_comment(parser *p);
bool parse_tail_comments(parser *p, ir_node *n);
#endif
