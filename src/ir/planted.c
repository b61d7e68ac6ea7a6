#include "ir/planted.h"
#include <stdio.h>

#define KEY "\"planted\": \""

static const char *said(const ir_node *n) /* up to the quote, or NULL */
{
    const char *at = n->meta ? strstr(n->meta, KEY) : NULL;
    return at ? at + strlen(KEY) : NULL;
}

bool ir_is_marked(const ir_node *n) { return TP_UNLIKELY(n->meta != NULL) && said(n); }

void ir_stand_for(ir_node *n, const char *op)
{
    strbuf b = { 0 };
    const char *old = said(n), *rest = n->meta ? strchr(n->meta, '{') : NULL;
    if (old) { /* another name in the place of the old one */
        strbuf_addn(&b, n->meta, (size_t)(old - n->meta));
        strbuf_addf(&b, "%s%s", op, old + strcspn(old, "\""));
    } else
        strbuf_addf(&b, "{" KEY "%s\"%s%s", op, rest && rest[1] != '}' ? ", " : "", rest ? rest + 1 : "}");
    n->meta = arena_strdup(&n->graph->mem, strbuf_str(&b));
    strbuf_free(&b);
}

const char *ir_stands_for(const ir_node *n, char *buf, size_t cap)
{
    const char *s = said(n);
    snprintf(buf, cap, "%.*s", s ? (int)strcspn(s, "\"") : 0, s ? s : "");
    return s ? buf : n->kind == IR_call ? op_row_of((op_id)n->op)->name : "";
}

void ir_pass_on(ir_node *result, int since, const char *op, const ir_node *from)
{
    char buf[64];
    if (from && said(from))
        op = ir_stands_for(from, buf, sizeof buf);
    if (result && result->id >= since && (fault_later(op) || !*op))
        ir_stand_for(result, op);
}

fault_kind ir_fault_at(const char *stage, const ir_node *n)
{
    char buf[64];
    const char *op = TP_UNLIKELY(fault_state != 0) ? ir_stands_for(n, buf, sizeof buf) : "";
    const tp_tensor *t = ir_type(n);
    return *op ? fault_ask_sized(stage, op, t && !sym_all_const(t->size, t->ndim)) : FAULT_none;
}
