#include "ptx_interp.h"
#include "base/arena.h"
#include "base/map.h"
#include "vir/math/vnum.h"
#include "vir/vir.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>

/* --- the program -------------------------------------------------------------------------------- */
/* clang-format off */
#define TYPES(X) X(none, 0) X(b8, 1) X(b16, 2) X(b32, 4) X(b64, 8) X(u8, 1) X(u16, 2) X(u32, 4) X(u64, 8) \
    X(s8, 1) X(s16, 2) X(s32, 4) X(s64, 8) X(f16, 2) X(bf16, 2) X(f32, 4) X(f64, 8) X(pred, 1) \
    X(f16x2, 4) X(bf16x2, 4)
#define OPS(X) X(mov) X(add) X(sub) X(mul) X(mad) X(fma) X(div) X(rem) X(sqrt) X(neg) X(abs) X(min) X(max) \
    X(and) X(or) X(xor) X(not) X(shl) X(shr) X(setp) X(selp) X(cvt) X(cvta) X(copysign) X(ld) X(st) X(red) \
    X(bra) X(ret) X(bar) X(shfl) X(call) X(clz) X(addc) X(membar) X(brev) X(popc) X(vote) X(match) \
    X(rcp) X(ex2) X(lg2) X(cp) X(ldmatrix) X(mma) X(wgmma) X(fence)
/* clang-format on */
typedef enum {
#define X(n, s) T_##n,
    TYPES(X)
#undef X
        T_COUNT
} ptype;
static const struct {
    const char *name;
    int size;
} types[] = {
#define X(n, s) { #n, s },
    TYPES(X)
#undef X
};
typedef enum {
#define X(n) O_##n,
    OPS(X)
#undef X
        O_COUNT
} pop;
static const char *const op_names[] = {
#define X(n) #n,
    OPS(X)
#undef X
};

typedef struct operand {
    char kind; /* r register, i immediate, s symbol, m memory, v list, l label */
    int reg[64], n;
    uint64_t imm; /* immediate, displacement, label's instruction, symbol's address */
    const char *sym;
} operand;
typedef struct instr {
    pop op;
    ptype t, t2, t3;       /* t3: of mma's factors */
    int guard;             /* register or -1 */
    bool unless;           /* @!p */
    char cmp[6], mode[16]; /* setp's comparison; rounding, lo/hi/wide, shuffle; of cp.async what it does */
    int vec;
    bool shared, param, boolop, cc, loose; /* loose: volatile, threads may meet */
    bool trans;                            /* ldmatrix */
    operand o[8];
    int no;
    int line;
} instr;
typedef struct func {
    const char *name;
    bool entry;
    map regs; /* name -> number + 1 */
    int nregs, nret, nargs;
    int args[8], ret[4];
    map labels, params;
    int nparams;
    size_t shared;
    const char *shared_name;
    instr *code;
    int n, cap;
} func;
struct ptx_module {
    arena a;
    map funcs, globals; /* globals: name -> memory */
    ptx_buffer tables[64];
    int ntables;
};

static bool fail_at(tp_err *err, int line, const char *what)
{
    return err_set(err, ERR_internal, "PTX line %d: %s", line, what);
}

typedef struct parser {
    ptx_module *m;
    const char *p;
    int line;
    tp_err *err;
    func *f;
} parser;

static void skip(parser *p)
{
    for (; isspace((unsigned char)*p->p) || (p->p[0] == '/' && p->p[1] == '/'); p->p++) {
        if (*p->p == '/')
            while (*p->p && *p->p != '\n')
                p->p++;
        p->line += *p->p == '\n';
    }
}
static bool eat(parser *p, const char *s)
{
    skip(p);
    size_t n = strlen(s);
    if (strncmp(p->p, s, n))
        return false;
    p->p += n;
    return true;
}
static char *word(parser *p) /* letters, digits, _ % . $ and :: */
{
    skip(p);
    const char *s = p->p;
    while (isalnum((unsigned char)*p->p) || strchr("_%.$", *p->p) || !strncmp(p->p, "::", 2)) {
        if (!*p->p)
            break;
        p->p += *p->p == ':' ? 2 : 1;
    }
    return arena_strndup(&p->m->a, s, (size_t)(p->p - s));
}
static int reg_of(parser *p, const char *name)
{
    intptr_t n = (intptr_t)map_get(&p->f->regs, name);
    if (!n) {
        n = ++p->f->nregs;
        map_put(&p->f->regs, name, (void *)n);
    }
    return (int)n - 1;
}
static uint64_t number(const char *s)
{
    bool neg = *s == '-';
    s += neg;
    uint64_t v;
    if (s[0] == '0' && (s[1] == 'f' || s[1] == 'd'))
        v = strtoull(s + 2, NULL, 16);
    else
        v = strtoull(s, NULL, 0);
    return neg ? 0 - v : v;
}

static bool is_reg(parser *p, const char *w)
{
    return (w[0] == '%' && !strchr(w, '.')) || map_get(&p->f->regs, w);
}

static operand parse_operand(parser *p, bool target)
{
    operand o = { .kind = 'i' };
    skip(p);
    if (eat(p, "{") || eat(p, "(")) {
        o.kind = 'v';
        do
            o.reg[o.n++] = reg_of(p, word(p));
        while (eat(p, ","));
        if (!eat(p, "}"))
            eat(p, ")");
        return o;
    }
    if (eat(p, "[")) {
        char *w = word(p);
        o.kind = 'm';
        o.reg[0] = -1;
        if (is_reg(p, w))
            o.reg[0] = reg_of(p, w);
        else
            o.sym = w;
        if (eat(p, "+")) {
            bool neg = eat(p, "-");
            o.imm = number(word(p));
            o.imm = neg ? 0 - o.imm : o.imm;
        }
        eat(p, "]");
        return o;
    }
    bool neg = eat(p, "-");
    char *w = word(p);
    if (isdigit((unsigned char)w[0])) {
        o.imm = number(w);
        o.imm = neg ? 0 - o.imm : o.imm;
    } else if (target) {
        o.kind = 'l', o.sym = w;
    } else if (is_reg(p, w)) {
        o.kind = 'r', o.reg[0] = reg_of(p, w);
    } else {
        o.kind = 's', o.sym = w;
    }
    return o;
}

static ptype type_named(const char *s)
{
    for (int i = 1; i < T_COUNT; i++)
        if (!strcmp(types[i].name, s))
            return (ptype)i;
    return T_none;
}

static bool parse_instr(parser *p, char *w, int guard, bool unless)
{
    instr in = { .guard = guard, .unless = unless, .line = p->line };
    char *rest, *dot = strtok_r(w, ".", &rest);
    int i;
    for (i = 0; i < O_COUNT && strcmp(op_names[i], dot); i++)
        ;
    if (i == O_COUNT)
        return err_set(p->err, ERR_internal, "PTX line %d: instruction '%s' is not known", p->line, dot);
    in.op = (pop)i;
    while ((dot = strtok_r(NULL, ".", &rest))) {
        ptype t = type_named(dot);
        if (t && (in.op == O_mma || in.op == O_wgmma) && (t == T_f16 || t == T_bf16))
            in.t3 = t;
        else if (t && !in.t)
            in.t = t;
        else if (t)
            in.t2 = t;
        else if (dot[0] == 'v' && isdigit((unsigned char)dot[1]))
            in.vec = dot[1] - '0';
        else if (!strcmp(dot, "shared"))
            in.shared = true;
        else if (!strcmp(dot, "param"))
            in.param = true;
        else if (!strcmp(dot, "cc"))
            in.cc = true;
        else if (!strcmp(dot, "volatile"))
            in.loose = true;
        else if (!strcmp(dot, "trans"))
            in.trans = true;
        else if (in.op == O_ldmatrix && dot[0] == 'x')
            in.vec = dot[1] - '0';
        else if (in.op == O_setp && !in.cmp[0])
            snprintf(in.cmp, sizeof in.cmp, "%s", dot);
        else if (in.op == O_setp)
            in.boolop = true;
        else if (!strcmp(dot, "global") || !strcmp(dot, "nc") || !strcmp(dot, "sync") || !strcmp(dot, "to") ||
                 !strcmp(dot, "uni") || !strcmp(dot, "aligned") || !strcmp(dot, "async") ||
                 !strcmp(dot, "ftz"))
            ;
        else
            snprintf(in.mode, sizeof in.mode, "%s", dot);
    }
    for (skip(p); *p->p && *p->p != ';'; eat(p, ",")) {
        if (in.no == (int)COUNT(in.o))
            return fail_at(p->err, p->line, "too many operands");
        in.o[in.no++] = parse_operand(p, in.op == O_bra);
    }
    eat(p, ";");
    func *f = p->f;
    if (f->n == f->cap) {
        instr *more = arena_alloc(&p->m->a, sizeof(instr) * (size_t)(f->cap = f->cap ? 2 * f->cap : 64));
        if (f->n)
            memcpy(more, f->code, sizeof(instr) * (size_t)f->n);
        f->code = more;
    }
    f->code[f->n++] = in;
    return true;
}

static bool parse_body(parser *p)
{
    func *f = p->f;
    for (int depth = 1;;) {
        if (eat(p, "}")) {
            if (!--depth)
                break;
            continue;
        }
        if (eat(p, "{")) {
            depth++;
            continue;
        }
        if (eat(p, ".param")) { /* of a call: a register like others */
            word(p), reg_of(p, word(p)), eat(p, ";");
            continue;
        }
        int guard = -1;
        bool unless = false;
        if (eat(p, ".reg")) {
            word(p);
            do {
                char *w = word(p), name[64];
                if (*p->p != '<')
                    reg_of(p, w);
                else if (*w != '%') /* a name without a sign is known by its declaration alone */
                    for (int i = atoi(p->p + 1); i-- > 0;) {
                        snprintf(name, sizeof name, "%s%d", w, i);
                        reg_of(p, arena_strdup(&p->m->a, name));
                    }
                while (*p->p && *p->p != ';' && *p->p != ',')
                    p->p++;
            } while (eat(p, ","));
            eat(p, ";");
            continue;
        }
        if (eat(p, ".shared")) {
            eat(p, ".align"), word(p), word(p);
            f->shared_name = word(p);
            eat(p, "[");
            f->shared = (size_t)number(word(p));
            eat(p, "]"), eat(p, ";");
            continue;
        }
        if (eat(p, "@")) {
            unless = eat(p, "!");
            guard = reg_of(p, word(p));
        }
        char *w = word(p);
        if (!*w)
            return fail_at(p->err, p->line, "a statement is expected");
        if (eat(p, ":")) {
            map_put(&f->labels, w, (void *)(intptr_t)(f->n + 1));
            continue;
        }
        if (!parse_instr(p, w, guard, unless))
            return false;
    }
    for (int i = 0; i < f->n; i++)
        if (f->code[i].op == O_bra) {
            intptr_t at = (intptr_t)map_get(&f->labels, f->code[i].o[0].sym);
            if (!at)
                return fail_at(p->err, f->code[i].line, "no such label");
            f->code[i].o[0].imm = (uint64_t)(at - 1);
        }
    return true;
}

static void parse_args(parser *p, int *regs, int *n) /* "(.param .f32 x, ...)" */
{
    eat(p, "(");
    while (!eat(p, ")")) {
        eat(p, ".param"), word(p);
        regs[(*n)++] = reg_of(p, word(p));
        eat(p, ",");
    }
}

static bool parse_func(parser *p, bool entry)
{
    func *f = p->f = ARENA_NEW(&p->m->a, func);
    f->entry = entry;
    if (!entry)
        parse_args(p, f->ret, &f->nret);
    f->name = word(p);
    if (entry) {
        eat(p, "(");
        while (!eat(p, ")")) {
            eat(p, ".param"), word(p);
            map_put(&f->params, word(p), (void *)(intptr_t)(++f->nparams));
            eat(p, ",");
        }
        if (eat(p, ".reqntid"))
            word(p), eat(p, ","), word(p), eat(p, ","), word(p);
    } else
        parse_args(p, f->args, &f->nargs);
    map_put(&p->m->funcs, f->name, f);
    return eat(p, "{") ? parse_body(p) : fail_at(p->err, p->line, "'{' is expected");
}

static bool parse_global(parser *p) /* .align 16 .b32 name[16] = {...}; */
{
    uint64_t v[256];
    int n = 0;
    eat(p, ".align"), word(p);
    int size = types[type_named(word(p) + 1)].size;
    char *name = word(p);
    eat(p, "["), word(p), eat(p, "]"), eat(p, "="), eat(p, "{");
    do
        v[n++] = number(word(p));
    while (eat(p, ",") && n < (int)COUNT(v));
    if (!eat(p, "}"))
        return fail_at(p->err, p->line, "a table is too long");
    eat(p, ";");
    char *mem = arena_alloc(&p->m->a, (size_t)(n * size));
    for (int i = 0; i < n; i++)
        memcpy(mem + i * size, &v[i], (size_t)size);
    map_put(&p->m->globals, name, mem);
    p->m->tables[p->m->ntables++] = (ptx_buffer){ mem, (size_t)(n * size) };
    return true;
}

ptx_module *ptx_parse(const char *text, tp_err *err)
{
    ptx_module *m = mem_zalloc(sizeof *m);
    parser p = { .m = m, .p = text, .line = 1, .err = err };
    bool ok = true;
    for (skip(&p); ok && *p.p; skip(&p)) {
        if (eat(&p, ".version") || eat(&p, ".target") || eat(&p, ".address_size"))
            word(&p);
        else if (eat(&p, ".visible"))
            ;
        else if (eat(&p, ".entry"))
            ok = parse_func(&p, true);
        else if (eat(&p, ".func"))
            ok = parse_func(&p, false);
        else if (eat(&p, ".global"))
            ok = parse_global(&p);
        else
            ok = fail_at(err, p.line, "a directive is expected");
    }
    if (ok)
        return m;
    ptx_module_free(m);
    return NULL;
}

void ptx_module_free(ptx_module *m)
{
    for (size_t i = 0; i < m->funcs.cap; i++)
        if (map_slot_live(&m->funcs.slots[i])) {
            func *f = m->funcs.slots[i].val;
            map_free(&f->regs), map_free(&f->labels), map_free(&f->params);
        }
    map_free(&m->funcs), map_free(&m->globals);
    arena_free(&m->a);
    free(m);
}

/* --- running --------------------------------------------------------------------------------------- */
typedef struct shadow { /* of one byte: who wrote and read it last, and when */
    uint32_t wrote, read;
    int32_t writer, reader;       /* thread; MANY: several; MANY - 2 - w: several of warp w */
    uint32_t wrote_sub, read_sub; /* how often the warp had met before */
} shadow;
enum { MANY = -1, ATOMIC = -2 };
typedef struct grid {
    ptx_module *m;
    const func *f;
    const ptx_buffer *bufs;
    int nbufs;
    shadow **marks; /* by buffer */
    const uint64_t *params;
    int64_t block, nblocks;
    int nthreads;
    uint32_t now, block_start; /* intervals between barriers, over all blocks */
    char *shared;
    shadow *shared_marks;
    bool libm;
    struct wide *wide;               /* products of warpgroups that were asked for */
    int nwide, room_wide, groups[8]; /* groups that a warpgroup has committed */
    tp_err *err;
} grid;
typedef struct wide {
    int warpgroup, group;
    const struct instr *in;
    uint64_t desc, a[128][4];
} wide;
typedef struct pending { /* a copy that was asked for */
    int group;
    const instr *in;
    uint64_t to;
    unsigned char bytes[16];
} pending;
typedef struct thread {
    grid *g;
    const func *f;
    uint64_t *r;
    int pc, id;
    uint32_t sub; /* meetings of the warp so far */
    char
        state; /* r ready, b at a barrier, w where its warp meets, s at what a warp does together, d done, x failed */
    bool carry;
    pending *copy; /* ncopy of them; groups are counted from 0, group is the open one */
    int ncopy, room, group;
} thread;

static float as_f(uint64_t v) { return vnum_f_bits((int32_t)v); }
static uint64_t of_f(float f) { return (uint32_t)vnum_bits_f(f); }
static double as_d(uint64_t v)
{
    double d;
    memcpy(&d, &v, 8);
    return d;
}
static uint64_t of_d(double d)
{
    uint64_t v;
    memcpy(&v, &d, 8);
    return v;
}
static uint64_t cut(ptype t, uint64_t v) /* to the width of the type, sign extended for s */
{
    switch (t) {
    case T_s8: return (uint64_t)(int64_t)(int8_t)v;
    case T_s16: return (uint64_t)(int64_t)(int16_t)v;
    case T_s32: return (uint64_t)(int64_t)(int32_t)v;
    case T_u8:
    case T_b8: return (uint8_t)v;
    case T_u16:
    case T_b16:
    case T_f16:
    case T_bf16: return (uint16_t)v;
    case T_u32:
    case T_b32:
    case T_f32: return (uint32_t)v;
    default: return v;
    }
}

static uint64_t get(thread *t, const operand *o, ptype ty)
{
    uint64_t v = o->imm;
    if (o->kind == 'r')
        v = t->r[o->reg[0]];
    else if (o->kind == 's') {
        if (!strcmp(o->sym, "%tid.x"))
            v = (uint64_t)t->id;
        else if (!strcmp(o->sym, "%ctaid.x"))
            v = (uint64_t)t->g->block;
        else if (!strcmp(o->sym, "%nctaid.x"))
            v = (uint64_t)t->g->nblocks;
        else if (t->f->shared_name && !strcmp(o->sym, t->f->shared_name))
            v = 0;
        else
            v = (uint64_t)(uintptr_t)map_get(&t->g->m->globals, o->sym);
    } else if (o->kind == 'v') { /* {low, high} of a mov */
        int half = types[ty].size * 4;
        v = t->r[o->reg[0]] & ((1ULL << half) - 1);
        v |= t->r[o->reg[1]] << half;
    }
    return cut(ty, v);
}

static int warp_of(int who) { return who >= 0 ? who / 32 : who < ATOMIC ? -who - 3 : -1; }

static bool race(grid *g, shadow *s, size_t n, const thread *t, bool write, bool atomic)
{
    int who = t->id, warp = who / 32;
    for (size_t i = 0; i < n; i++, s++) {
        bool w = s->wrote && s->writer != who && (s->wrote < g->block_start || s->wrote == g->now);
        bool r = write && s->read && s->reader != who && (s->read < g->block_start || s->read == g->now);
        w &= !(s->wrote == g->now && warp_of(s->writer) == warp && s->wrote_sub < t->sub);
        r &= !(s->read == g->now && warp_of(s->reader) == warp && s->read_sub < t->sub);
        if ((w && !(atomic && s->writer == ATOMIC)) || r)
            return true;
        if (write)
            s->wrote = g->now, s->writer = atomic ? ATOMIC : who, s->wrote_sub = t->sub;
        else {
            bool first = s->read != g->now || s->reader == who ||
                         (warp_of(s->reader) == warp && s->read_sub < t->sub); /* the warp met since */
            s->reader = first ? who : warp_of(s->reader) == warp ? -warp - 3 : MANY;
            s->read = g->now, s->read_sub = t->sub;
        }
    }
    return false;
}

static uint64_t address_of(thread *t, const operand *o)
{
    return o->imm +
           (o->reg[0] >= 0 ? t->r[o->reg[0]] : (uint64_t)(uintptr_t)map_get(&t->g->m->globals, o->sym));
}

/* Checks an access and gives its memory, or NULL. */
static char *memory_at(thread *t, const instr *in, uint64_t at, bool shared, size_t n, bool write,
                       bool atomic)
{
    grid *g = t->g;
    const char *what = NULL;
    if (shared) {
        at = (uint32_t)at;
        if (at + n > t->f->shared)
            what = "shared memory access out of bounds";
        else if (race(g, g->shared_marks + at, n, t, write, atomic))
            what = "two threads race for a word of shared memory";
        else if (at % n)
            what = "misaligned";
        else
            return g->shared + at;
    } else {
        for (int i = 0; !write && i < g->m->ntables; i++)
            if (at >= (uint64_t)(uintptr_t)g->m->tables[i].p &&
                at + n <= (uint64_t)(uintptr_t)g->m->tables[i].p + g->m->tables[i].size)
                return (char *)(uintptr_t)at;
        what = "global memory access out of bounds";
        for (int i = 0; i < g->nbufs; i++) {
            uint64_t b = (uint64_t)(uintptr_t)g->bufs[i].p;
            if (at < b || at + n > b + g->bufs[i].size)
                continue;
            if (!in->loose && race(g, g->marks[i] + (at - b), n, t, write, atomic))
                what = "two threads race for an element";
            else if (at % n)
                what = "misaligned";
            else
                return (char *)(uintptr_t)at;
        }
    }
    fail_at(g->err, in->line, what);
    t->state = 'x';
    return NULL;
}

static char *memory(thread *t, const instr *in, const operand *o, size_t n, bool write, bool atomic)
{
    return memory_at(t, in, address_of(t, o), in->shared, n, write, atomic);
}

static bool compare(const char *c, ptype ty, uint64_t a, uint64_t b)
{
    if (ty == T_f32 || ty == T_f64) {
        double x = ty == T_f32 ? as_f(a) : as_d(a), y = ty == T_f32 ? as_f(b) : as_d(b);
        bool nan = x != x || y != y;
        if (!strcmp(c, "nan"))
            return nan;
        if (nan)
            return strlen(c) == 3 && c[2] == 'u';
        return !strncmp(c, "eq", 2)   ? x == y
               : !strncmp(c, "ne", 2) ? x != y
               : !strncmp(c, "lt", 2) ? x < y
               : !strncmp(c, "le", 2) ? x <= y
               : !strncmp(c, "gt", 2) ? x > y
                                      : x >= y;
    }
    bool sg = ty == T_s32 || ty == T_s64;
    int s = sg ? ((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b) : (a > b) - (a < b);
    return !strcmp(c, "eq")   ? s == 0
           : !strcmp(c, "ne") ? s != 0
           : !strcmp(c, "lt") ? s < 0
           : !strcmp(c, "le") ? s <= 0
           : !strcmp(c, "gt") ? s > 0
                              : s >= 0;
}

static uint64_t convert(const instr *in, uint64_t a)
{
    ptype to = in->t, from = in->t2;
    bool ff = from == T_f32 || from == T_f64 || from == T_f16,
         tf = to == T_f32 || to == T_f64 || to == T_f16 || to == T_bf16;
    if (!ff && !tf)
        return cut(to, a);
    if (!ff && to == T_f32)
        return of_f(from == T_u64 ? (float)a : (float)(int64_t)a);
    if (!ff)
        return of_d(from == T_u64 ? (double)a : (double)(int64_t)a);
    double x = from == T_f32 ? as_f(a) : from == T_f16 ? vnum_from_f16((uint16_t)a) : as_d(a);
    if (tf) {
        switch (in->mode[0] && in->mode[2] == 'i' ? in->mode[1] : 0) {
        case 'm': x = floor(x); break;
        case 'p': x = ceil(x); break;
        case 'z': x = trunc(x); break;
        case 'n': x = rint(x); break;
        }
        return to == T_f32   ? of_f((float)x)
               : to == T_f64 ? of_d(x)
               : to == T_f16 ? vnum_to_f16((float)x)
                             : vnum_to_bf16((float)x);
    }
    if (x != x)
        return 0;
    if (to == T_s32)
        return (uint64_t)(int64_t)(x <= -2147483648.0  ? INT32_MIN
                                   : x >= 2147483647.0 ? INT32_MAX
                                                       : (int32_t)x);
    return (uint64_t)(x <= -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x);
}

static uint64_t float_op(const instr *in, uint64_t a, uint64_t b, uint64_t c)
{
#define F(T, as, of, x)                                \
    {                                                  \
        T p = as(a), q = as(b), s = as(c);             \
        switch (in->op) {                              \
        case O_add: return of(p + q);                  \
        case O_sub: return of(p - q);                  \
        case O_mul: return of(p * q);                  \
        case O_div: return of(p / q);                  \
        case O_sqrt: return of(sqrt##x(p));            \
        case O_neg: return of(-p);                     \
        case O_abs: return of(fabs##x(p));             \
        case O_fma: return of(fma##x(p, q, s));        \
        case O_min: return of(fmin##x(p, q));          \
        case O_max: return of(fmax##x(p, q));          \
        case O_rcp: return of(1 / p);                  \
        case O_ex2: return of(exp2##x(p));             \
        case O_lg2: return of(log2##x(p));             \
        case O_copysign: return of(copysign##x(q, p)); \
        default: return 0;                             \
        }                                              \
    }
    if (in->t == T_f32)
        F(float, as_f, of_f, f)
    F(double, as_d, of_d, )
}

static uint64_t int_op(const instr *in, uint64_t a, uint64_t b, uint64_t c)
{
    bool sg = in->t == T_s32 || in->t == T_s64 || in->t == T_s16;
    int n = types[in->t].size * 8;
    switch (in->op) {
    case O_add: return a + b;
    case O_sub: return a - b;
    case O_mul:
        if (in->mode[0] == 'h')
            return n == 32 ? (a * b) >> 32 : (uint64_t)(((unsigned __int128)a * b) >> 64);
        return a * b; /* wide: the operands were cut, the result was not */
    case O_mad: return a * b + c;
    case O_div:
        return b == 0 || (sg && b + 1 == 0) ? 0xdeadbeefdeadbeefULL
               : sg                         ? (uint64_t)((int64_t)a / (int64_t)b)
                                            : a / b;
    case O_rem:
        return b == 0 || (sg && b + 1 == 0) ? 0xdeadbeefdeadbeefULL
               : sg                         ? (uint64_t)((int64_t)a % (int64_t)b)
                                            : a % b;
    case O_neg: return 0 - a;
    case O_min: return sg ? (uint64_t)MIN((int64_t)a, (int64_t)b) : MIN(a, b);
    case O_max: return sg ? (uint64_t)MAX((int64_t)a, (int64_t)b) : MAX(a, b);
    case O_and: return a & b;
    case O_or: return a | b;
    case O_xor: return a ^ b;
    case O_not: return in->t == T_pred ? !a : ~a;
    case O_shl: return b >= (uint64_t)n ? 0 : a << b;
    case O_shr: return sg ? (uint64_t)((int64_t)a >> MIN(b, (uint64_t)n - 1)) : b >= (uint64_t)n ? 0 : a >> b;
    default: return 0;
    }
}

static bool call(thread *t, const instr *in);

static void step_memory(thread *t, const instr *in)
{
    bool load = in->op == O_ld;
    const operand *at = &in->o[load], *v = &in->o[!load];
    int n = in->vec ? in->vec : 1, size = types[in->t].size;
    if (in->param && at->reg[0] >= 0) {
        if (load)
            t->r[v->reg[0]] = t->r[at->reg[0]];
        else
            t->r[at->reg[0]] = get(t, v, in->t);
        return;
    }
    if (in->param) {
        intptr_t i = (intptr_t)map_get(&t->f->params, at->sym);
        t->r[v->reg[0]] = t->g->params[i - 1];
        return;
    }
    char *p = memory(t, in, at, (size_t)(n * size), !load, in->op == O_red);
    if (!p)
        return;
    for (int i = 0; i < n; i++, p += size) {
        uint64_t x = 0, add;
        if (load) {
            memcpy(&x, p, (size_t)size);
            t->r[v->reg[i]] = cut(in->t, x);
            continue;
        }
        x = v->kind == 'v' ? t->r[v->reg[i]] : get(t, v, in->t);
        if (in->op == O_red) {
            add = x, x = 0;
            memcpy(&x, p, (size_t)size);
            x = in->t == T_f32   ? of_f(as_f(x) + as_f(add))
                : in->t == T_f64 ? of_d(as_d(x) + as_d(add))
                                 : x + add;
        }
        memcpy(p, &x, (size_t)size);
    }
}

/* --- copies to shared memory that are waited for: what they will overwrite is spoilt at once, and they happen when they are waited
 * for, so that whoever reads too early or writes too late is seen --- */
static bool copy_async(thread *t, const instr *in)
{
    if (!strcmp(in->mode, "commit_group")) {
        t->group++;
        return true;
    }
    if (!strcmp(in->mode, "wait_group")) {
        int done = t->group - (int)in->o[0].imm, k = 0;
        for (int i = 0; i < t->ncopy; i++) {
            pending *c = &t->copy[i];
            char *to = c->group < done ? memory_at(t, c->in, c->to, true, sizeof c->bytes, true, false)
                                       : NULL;
            if (to)
                memcpy(to, c->bytes, sizeof c->bytes);
            else if (c->group < done)
                return false;
            else
                t->copy[k++] = *c;
        }
        t->ncopy = k;
        return true;
    }
    uint64_t size = in->no > 3 ? get(t, &in->o[3], T_u32) : 16;
    pending c = { .group = t->group, .in = in, .to = (uint32_t)address_of(t, &in->o[0]) };
    char *to = memory_at(t, in, c.to, true, 16, true, false);
    if (!to || size > 16)
        return fail_at(t->g->err, in->line, "a copy of more bytes than 16, or out of bounds");
    if (size) {
        const char *from = memory_at(t, in, address_of(t, &in->o[1]), false, size, false, false);
        if (!from)
            return false;
        memcpy(c.bytes, from, size);
    }
    memset(to, 0xa5, 16);
    if (t->ncopy == t->room)
        t->copy = mem_realloc(t->copy, sizeof c * (size_t)(t->room = t->room ? 2 * t->room : 16));
    t->copy[t->ncopy++] = c;
    return true;
}

/* One instruction; false where the thread stops. */
static bool step(thread *t)
{
    const instr *in = &t->f->code[t->pc];
    if (in->guard >= 0 && (t->r[in->guard] != 0) == in->unless) {
        t->pc++;
        return true;
    }
    uint64_t *d = in->no && in->o[0].kind == 'r' ? &t->r[in->o[0].reg[0]] : NULL, a = 0, b = 0, c = 0;
    switch (in->op) {
    case O_ret: t->state = 'd'; return false;
    case O_bar: t->state = strcmp(in->mode, "warp") ? 'b' : 'w'; return false;
    case O_fence: break; /* copies are seen by all when they are waited for */
    case O_wgmma: t->state = 'g'; return false;
    case O_ldmatrix:
    case O_mma:
    case O_vote:
    case O_match:
    case O_shfl: t->state = 's'; return false;
    case O_cp:
        if (!copy_async(t, in)) {
            t->state = 'x';
            return false;
        }
        break;
    case O_bra: t->pc = (int)in->o[0].imm; return true;
    case O_call:
        if (!call(t, in))
            return false;
        break;
    case O_ld:
    case O_st:
    case O_red:
        step_memory(t, in);
        if (t->state == 'x')
            return false;
        break;
    case O_mov:
        a = get(t, &in->o[1], in->t);
        if (d)
            *d = a;
        else {
            int half = types[in->t].size * 4;
            t->r[in->o[0].reg[0]] = a & ((1ULL << half) - 1);
            t->r[in->o[0].reg[1]] = a >> half;
        }
        break;
    case O_membar: break;
    case O_cvta: *d = get(t, &in->o[1], in->t); break;
    case O_cvt:
        if (in->t == T_f16x2 || in->t == T_bf16x2) { /* the first operand is the upper half */
            instr one = *in;
            one.t = in->t == T_f16x2 ? T_f16 : T_bf16;
            *d = convert(&one, get(t, &in->o[1], in->t2)) << 16 | convert(&one, get(t, &in->o[2], in->t2));
        } else
            *d = convert(in, get(t, &in->o[1], in->t2));
        break;
    case O_clz:
        a = get(t, &in->o[1], in->t), *d = a ? (uint64_t)__builtin_clzll(a) - (in->t == T_b32 ? 32 : 0)
                                           : in->t == T_b32 ? 32
                                                            : 64;
        break;
    case O_popc: *d = (uint64_t)__builtin_popcountll(get(t, &in->o[1], in->t)); break;
    case O_brev:
        a = get(t, &in->o[1], in->t);
        for (int i = 0; i < types[in->t].size * 8; i++)
            b = b << 1 | (a >> i & 1);
        *d = b;
        break;
    case O_setp: {
        bool p = compare(in->cmp, in->t, get(t, &in->o[1], in->t), get(t, &in->o[2], in->t));
        *d = p || (in->boolop && t->r[in->o[3].reg[0]]);
        break;
    }
    case O_selp:
        a = get(t, &in->o[1], in->t), b = get(t, &in->o[2], in->t);
        *d = t->r[in->o[3].reg[0]] ? a : b;
        break;
    default:
        a = get(t, &in->o[1], in->t);
        if (in->no > 2)
            b = get(t, &in->o[2], in->op == O_shl || in->op == O_shr ? T_u32 : in->t);
        if (in->no > 3)
            c = in->o[3].kind == 'r' ? t->r[in->o[3].reg[0]] : get(t, &in->o[3], in->t);
        if (in->op == O_addc)
            *d = a + b + t->carry;
        else if (in->t == T_f32 || in->t == T_f64)
            *d = float_op(in, a, b, c);
        else {
            if (in->cc)
                t->carry = a + b < a;
            a = int_op(in, a, b, c);
            *d = in->op == O_mul && in->mode[0] == 'w' ? a : cut(in->t, a);
        }
        break;
    }
    t->pc++;
    return true;
}

static bool run_func(grid *g, const func *f, const uint64_t *args, uint64_t *out)
{
    thread t = { .g = g, .f = f, .r = mem_zalloc(sizeof(uint64_t) * (size_t)(f->nregs + 1)), .state = 'r' };
    for (int i = 0; i < f->nargs; i++)
        t.r[f->args[i]] = args[i];
    while (step(&t))
        ;
    for (int i = 0; i < f->nret; i++)
        out[i] = t.r[f->ret[i]];
    free(t.r);
    return t.state == 'd';
}

/* What is not exact, by the C library: tp_sin_f32 and so on. */
static bool of_libm(const char *name, const uint64_t *args, uint64_t *out)
{
    char op[32];
    size_t n = strlen(name);
    bool single = !strcmp(name + n - 4, "_f32");
    snprintf(op, sizeof op, "%.*s", (int)n - 7, name + 3);
    int row = strcmp(op, "fmod") && strcmp(op, "nextafter") ? vir_call_find(op) : -1;
    if (row < 0)
        return false;
    const vir_call_row *c = &vir_calls[row];
    if (single)
        out[0] = of_f(c->nargs == 1 ? c->f1(as_f(args[0])) : c->f2(as_f(args[0]), as_f(args[1])));
    else
        out[0] = of_d(c->nargs == 1 ? c->d1(as_d(args[0])) : c->d2(as_d(args[0]), as_d(args[1])));
    return true;
}

static bool call(thread *t, const instr *in) /* call (results), name, (arguments) */
{
    const func *f = map_get(&t->g->m->funcs, in->o[1].sym);
    uint64_t args[4] = { 0 }, out[4] = { 0 };
    if (!f) {
        t->state = 'x';
        return fail_at(t->g->err, in->line, "no such function");
    }
    for (int i = 0; i < in->o[2].n; i++)
        args[i] = t->r[in->o[2].reg[i]];
    bool done = t->g->libm && of_libm(f->name, args, out);
    if (!done && !run_func(t->g, f, args, out)) {
        t->state = 'x';
        return false;
    }
    for (int i = 0; i < in->o[0].n; i++)
        t->r[in->o[0].reg[i]] = out[i];
    return true;
}

/* All lanes of a warp are at the same bar.warp.sync. */
static bool meet(grid *g, thread *w)
{
    for (int l = 0; l < 32; l++)
        if (w[l].state != 'w' || w[l].pc != w->pc)
            return fail_at(g->err, w->f->code[w->pc].line, "not all lanes of a warp reach bar.warp.sync");
    for (int l = 0; l < 32; l++)
        w[l].pc++, w[l].sub++, w[l].state = 'r';
    return true;
}

static float half_of(ptype t, uint64_t v) /* the lower half */
{
    return t == T_f16 ? (float)vnum_from_f16((uint16_t)v) : vnum_from_bf16((uint16_t)v);
}

/* Lane l gives the address of row l % 8 of matrix l / 8, and gets elements 2 (l % 4) and the next of row l / 4, or of that column. */
static bool load_matrices(thread *w, const instr *in)
{
    for (int m = 0; m < in->vec; m++) {
        uint16_t mat[8][8];
        for (int i = 0; i < 8; i++) {
            const char *p = memory(&w[8 * m + i], in, &in->o[1], 16, false, false);
            if (!p)
                return false;
            memcpy(mat[i], p, 16);
        }
        for (int l = 0; l < 32; l++) {
            int r = l / 4, c = l % 4 * 2;
            uint32_t lo = in->trans ? mat[c][r] : mat[r][c], hi = in->trans ? mat[c + 1][r] : mat[r][c + 1];
            w[l].r[in->o[0].reg[m]] = hi << 16 | lo;
        }
    }
    return true;
}

/* m16n8k16: 16 x 16 times 16 x 8 plus f32. */
static bool multiply(grid *g, thread *w, const instr *in)
{
    float a[16][16], b[16][8], c[16][8];
    if (strcmp(in->mode, "col") || in->t != T_f32 || (in->t2 != T_f32))
        return fail_at(g->err, in->line, "this form of mma is not known");
    for (int l = 0; l < 32; l++) {
        int r = l / 4, k = l % 4 * 2;
        for (int x = 0; x < 4; x++) {
            uint64_t v = w[l].r[in->o[1].reg[x]];
            for (int h = 0; h < 2; h++)
                a[r + x % 2 * 8][k + x / 2 * 8 + h] = half_of(in->t3, v >> 16 * h);
            c[r + x / 2 * 8][k + x % 2] = as_f(w[l].r[in->o[3].reg[x]]);
        }
        for (int x = 0; x < 2; x++)
            for (int h = 0; h < 2; h++)
                b[k + x * 8 + h][r] = half_of(in->t3, w[l].r[in->o[2].reg[x]] >> 16 * h);
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 16; k++)
                c[i][j] += a[i][k] * b[k][j];
    for (int l = 0; l < 32; l++)
        for (int x = 0; x < 4; x++)
            w[l].r[in->o[0].reg[x]] = of_f(c[l / 4 + x / 2 * 8][l % 4 * 2 + x % 2]);
    return true;
}

/* All lanes of a warp are at the same instruction, which they do together. */
static bool together(grid *g, thread *w)
{
    const instr *in = &w->f->code[w->pc];
    uint64_t v[32];
    uint32_t yes = 0;
    for (int l = 0; l < 32; l++)
        if (w[l].state != 's' || w[l].pc != w->pc)
            return fail_at(g->err, in->line, "not all lanes of a warp reach a shuffle");
    if (in->op == O_mma || in->op == O_ldmatrix) {
        if (!(in->op == O_mma ? multiply(g, w, in) : load_matrices(w, in)))
            return false;
        for (int l = 0; l < 32; l++)
            w[l].pc++, w[l].state = 'r';
        return true;
    }
    for (int l = 0; l < 32; l++) {
        v[l] = get(&w[l], &in->o[1], in->t);
        if (in->op == O_vote)
            v[l] = w[l].r[in->o[1].reg[0]] != 0, yes |= (uint32_t)v[l] << l;
    }
    for (int l = 0; l < 32; l++) {
        if (in->op != O_shfl) {
            uint32_t same = 0;
            for (int j = 0; j < 32; j++)
                same |= (uint32_t)(v[j] == v[l]) << j;
            w[l].r[in->o[0].reg[0]] = in->op == O_match ? same : in->t == T_pred ? yes != 0 : yes;
            w[l].pc++;
            w[l].state = 'r';
            continue;
        }
        int by = (int)get(&w[l], &in->o[2], T_u32), from = !strcmp(in->mode, "down")   ? l + by
                                                           : !strcmp(in->mode, "up")   ? (l < by ? l : l - by)
                                                           : !strcmp(in->mode, "bfly") ? l ^ by
                                                                                       : by;
        w[l].r[in->o[0].reg[0]] = v[from > 31 ? l : from];
        w[l].pc++;
        w[l].state = 'r';
    }
    return true;
}

/* Element (k, n) of the second factor, where the descriptor says: rows of 128 bytes, 16 bytes number c of row r at c xor r mod 8. */
static bool second_factor(thread *t, const instr *in, uint64_t desc, int k, int n, bool turned, float *to)
{
    uint32_t at = (uint32_t)(desc & 0x3fff) << 4, far = (uint32_t)(desc >> 16 & 0x3fff) << 4,
             eight = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    if (desc >> 62 != 1)
        return fail_at(t->g->err, in->line, "a descriptor without rows of 128 bytes");
    at += turned ? (uint32_t)(n / 64) * far + (uint32_t)(k / 8) * eight + (uint32_t)(k % 8 * 128 + n % 64 * 2)
                 : (uint32_t)(n / 8) * eight + (uint32_t)(n % 8 * 128 + k * 2);
    at ^= (at >> 7 & 7) << 4;
    const char *p = memory_at(t, in, at, true, 2, false, false);
    uint16_t v;
    if (!p)
        return false;
    memcpy(&v, p, 2);
    *to = half_of(in->t3, v);
    return true;
}

static bool multiply_wide(thread *t, const wide *x)
{
    static float b[16][256];
    const instr *in = x->in;
    int cols = in->o[0].n * 2;
    bool turned = in->o[6].imm != 0;
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < cols; n++)
            if (!second_factor(t, in, x->desc, k, n, turned, &b[k][n]))
                return false;
    for (int l = 0; l < 128; l++)
        for (int i = 0; i < in->o[0].n; i++) { /* row of the warp's 16, column */
            int half = i / 2 % 2, n = i / 4 * 8 + l % 4 * 2 + i % 2, first = l / 4 * 4;
            float sum = in->o[3].imm ? as_f(t[l].r[in->o[0].reg[i]]) : 0;
            for (int k = 0; k < 16; k++) /* held by lane (k mod 8) / 2 of the row's four */
                sum += half_of(in->t3, x->a[first + k % 8 / 2][k / 8 * 2 + half] >> 16 * (k % 2)) * b[k][n];
            t[l].r[in->o[0].reg[i]] = of_f(sum);
        }
    return true;
}

/* All threads of four warps are at the same wgmma. Products happen when they are waited for. */
static bool warpgroup(grid *g, thread *t)
{
    const instr *in = &t->f->code[t->pc];
    int which = t->id / 128;
    for (int i = 0; i < 128; i++)
        if (t[i].pc != t->pc)
            return fail_at(g->err, in->line, "not all threads of four warps reach a wgmma");
    if (!strcmp(in->mode, "commit_group"))
        g->groups[which]++;
    else if (!strcmp(in->mode, "wait_group")) {
        int k = 0;
        for (int i = 0; i < g->nwide; i++) {
            if (g->wide[i].warpgroup != which || g->wide[i].group >= g->groups[which] - (int)in->o[0].imm)
                g->wide[k++] = g->wide[i];
            else if (!multiply_wide(t, &g->wide[i]))
                return false;
        }
        g->nwide = k;
    } else if (strcmp(in->mode, "fence")) {
        wide x = { which, g->groups[which], in, t->r[in->o[2].reg[0]], { { 0 } } };
        if (in->t != T_f32 || in->o[1].kind != 'v')
            return fail_at(g->err, in->line, "this form of wgmma is not known");
        for (int i = 0; i < 128; i++) {
            if (t[i].r[in->o[2].reg[0]] != x.desc)
                return fail_at(g->err, in->line, "threads give different descriptors");
            for (int r = 0; r < 4;
                 r++) { /* ptxas may use registers of the factor for something else from here on */
                x.a[i][r] = t[i].r[in->o[1].reg[r]];
                t[i].r[in->o[1].reg[r]] = 0x7fff7fff;
            }
        }
        if (g->nwide == g->room_wide)
            g->wide = mem_realloc(g->wide, sizeof x * (size_t)(g->room_wide = 2 * g->room_wide + 8));
        g->wide[g->nwide++] = x;
    }
    for (int i = 0; i < 128; i++)
        t[i].pc++, t[i].state = 'r';
    return true;
}

static bool run_block(grid *g, thread *t)
{
    for (;;) {
        int done = 0, waiting = 0;
        bool moved = false;
        for (int i = 0; i < g->nthreads; i++) {
            while (t[i].state == 'r' && step(&t[i]))
                ;
            if (t[i].state == 'x')
                return false;
            done += t[i].state == 'd', waiting += t[i].state == 'b';
        }
        if (done == g->nthreads)
            return true;
        for (int w = 0; w < g->nthreads; w += 32) {
            bool any = false, meets = false;
            for (int l = 0; l < 32; l++)
                any |= t[w + l].state == 's', meets |= t[w + l].state == 'w';
            if ((any && !together(g, t + w)) || (meets && !meet(g, t + w)))
                return false;
            moved |= any || meets;
        }
        for (int w = 0; w + 128 <= g->nthreads; w += 128) {
            int at = 0;
            for (int l = 0; l < 128; l++)
                at += t[w + l].state == 'g';
            if (at == 128 && !warpgroup(g, t + w))
                return false;
            moved |= at == 128;
        }
        if (waiting == g->nthreads) {
            int at = t[0].pc;
            for (int i = 0; i < g->nthreads; i++) {
                if (t[i].pc != at)
                    return fail_at(g->err, t[i].f->code[t[i].pc].line, "threads wait at different barriers");
                t[i].pc++, t[i].state = 'r';
            }
            g->now++;
        } else if (!moved)
            return err_set(g->err, ERR_internal, "PTX: %d threads wait at a barrier, %d have ended", waiting,
                           done);
    }
}

bool ptx_run(ptx_module *m, const char *entry, int64_t blocks, int threads, const uint64_t *params,
             const ptx_buffer *bufs, int nbufs, bool libm, tp_err *err)
{
    const func *f = map_get(&m->funcs, entry);
    if (!f || threads % 32)
        return err_set(err, ERR_internal, "PTX: no kernel '%s', or a block of no whole warps", entry);
    grid g = { .m = m,
               .f = f,
               .bufs = bufs,
               .nbufs = nbufs,
               .params = params,
               .nblocks = blocks,
               .nthreads = threads,
               .now = 1,
               .libm = libm,
               .err = err };
    thread *t = mem_zalloc(sizeof(thread) * (size_t)threads);
    uint64_t *regs = mem_alloc(sizeof(uint64_t) * (size_t)(threads * (f->nregs + 1)));
    g.marks = mem_zalloc(sizeof(shadow *) * (size_t)(nbufs + 1));
    for (int i = 0; i < nbufs; i++)
        g.marks[i] = mem_zalloc(sizeof(shadow) * (bufs[i].size + 1));
    g.shared = mem_alloc(f->shared + 1), g.shared_marks = mem_alloc(sizeof(shadow) * (f->shared + 1));
    bool ok = true;
    for (int64_t b = 0; b < blocks && ok; b++) { /* from the last: results may not depend on the order */
        g.block = blocks - 1 - b;
        g.block_start = g.now;
        memset(g.shared, 0xa5, f->shared);
        memset(g.shared_marks, 0, sizeof(shadow) * f->shared);
        memset(regs, 0x5a, sizeof(uint64_t) * (size_t)(threads * (f->nregs + 1)));
        for (int i = 0; i < threads; i++)
            t[i] = (thread){ .g = &g,
                             .f = f,
                             .r = regs + (size_t)i * (size_t)(f->nregs + 1),
                             .id = i,
                             .state = 'r',
                             .copy = t[i].copy,
                             .room = t[i].room };
        ok = run_block(&g, t);
        g.now++;
    }
    for (int i = 0; i < nbufs; i++)
        free(g.marks[i]);
    for (int i = 0; i < threads; i++)
        free(t[i].copy);
    free(g.wide), free(g.marks), free(g.shared), free(g.shared_marks), free(t), free(regs);
    return ok;
}

bool ptx_call(ptx_module *m, const char *name, const uint64_t *args, uint64_t *out, tp_err *err)
{
    const func *f = map_get(&m->funcs, name);
    grid g = { .m = m, .f = f, .err = err };
    return f ? run_func(&g, f, args, out) : err_set(err, ERR_internal, "PTX: no function '%s'", name);
}

int ptx_entry_params(const ptx_module *m, const char *entry)
{
    const func *f = map_get(&m->funcs, entry);
    return f && f->entry ? f->nparams : -1;
}
