/* emit.c - the C emitter. One statement a value, the user's source line beside it. */
#define _GNU_SOURCE
#include "target/c/c.h"
#include "ir/graph.h"
#include "tensor/tensor.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>

typedef struct cw {
    gen_c_unit *u;
    const vir *k;
    strbuf *o;
    int indent;
    int partial_loop;    /* number of the vector loop written as blocks of partial results, or 0 */
    const ir_loc *noted; /* the last note written: one that follows itself is not repeated */
} cw;

static const char *const ctype[] = { "void", "double", "float", "int64_t", "int32_t", "int" };
static const char *const mtype[] = { "void",    "double",  "float",  "uint16_t", "uint16_t", "int64_t",
                                     "int32_t", "int16_t", "int8_t", "uint8_t",  "uint8_t" };
static const char *suffix(int t) { return t == VT_f32 ? "f" : ""; }
static const char *tname(int t) { return vir_type_name((vir_type)t); }
static bool is_flt(int t) { return t == VT_f64 || t == VT_f32; }

/* --- helper functions, written on first use
 * ------------------------------------------------------------------------ */
static const struct {
    const char *name, *text;
} helpers[] = {
    { "bits", "static inline float tp_f32_bits(int32_t i) { float f; memcpy(&f, &i, 4); return f; }\n"
              "static inline int32_t tp_bits_f32(float f) { int32_t i; memcpy(&i, &f, 4); return i; }\n"
              "static inline double tp_f64_bits(int64_t i) { double f; memcpy(&f, &i, 8); return f; }\n"
              "static inline int64_t tp_bits_f64(double f) { int64_t i; memcpy(&i, &f, 8); return i; }\n" },
    { "minmax",
      "/* NaN when either is NaN */\n"
      "static inline float tp_min_f32(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }\n"
      "static inline float tp_max_f32(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }\n"
      "static inline double tp_min_f64(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; "
      "}\n"
      "static inline double tp_max_f64(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; "
      "}\n"
      "/* the other one when one is NaN */\n"
      "static inline float tp_fmin_f32(float a, float b) { return a != a ? b : b != b ? a : a < b ? a : b; "
      "}\n"
      "static inline float tp_fmax_f32(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b; "
      "}\n"
      "static inline double tp_fmin_f64(double a, double b) { return a != a ? b : b != b ? a : a < b ? a : "
      "b; }\n"
      "static inline double tp_fmax_f64(double a, double b) { return a != a ? b : b != b ? a : a > b ? a : "
      "b; }\n" },
    { "div",
      "/* integer division: x / 0 is 0, x % 0 is x, the smallest / -1 wraps */\n"
      "static inline int64_t tp_divt(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - "
      "(uint64_t)a) : a / b; }\n"
      "static inline int64_t tp_modt(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }\n"
      "static inline int64_t tp_divf(int64_t a, int64_t b) { int64_t r = tp_modt(a, b); return tp_divt(a, b) "
      "- (b != 0 && r != 0 && (r < 0) != (b < 0)); }\n"
      "static inline int64_t tp_modf(int64_t a, int64_t b) { int64_t r = tp_modt(a, b); return b != 0 && r "
      "!= 0 && (r < 0) != (b < 0) ? r + b : r; }\n" },
    { "shift",
      "static inline int64_t tp_shl_i64(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : "
      "(int64_t)((uint64_t)a << n); }\n"
      "static inline int64_t tp_shr_i64(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : "
      "(int64_t)((uint64_t)a >> n); }\n"
      "static inline int64_t tp_sra_i64(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }\n"
      "static inline int32_t tp_shl_i32(int32_t a, int32_t n) { return n < 0 || n > 31 ? 0 : "
      "(int32_t)((uint32_t)a << n); }\n"
      "static inline int32_t tp_shr_i32(int32_t a, int32_t n) { return n < 0 || n > 31 ? 0 : "
      "(int32_t)((uint32_t)a >> n); }\n"
      "static inline int32_t tp_sra_i32(int32_t a, int32_t n) { return a >> (n < 0 || n > 31 ? 31 : n); "
      "}\n" },
    { "cut", "/* float to integer: cut; what does not fit becomes the smallest integer */\n"
             "static inline int32_t tp_to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? "
             "(int32_t)x : INT32_MIN; }\n"
             "static inline int64_t tp_to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : "
             "INT64_MIN; }\n" },
    { "draw",
      "/* a Philox4x32-10 block; word i of the blocks that begin at `at`, and 64 bits of them */\n"
      "static inline void tp_block(uint64_t seed, uint64_t at, uint32_t c[4])\n"
      "{\n"
      "    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);\n"
      "    c[0] = (uint32_t)at;\n"
      "    c[1] = (uint32_t)(at >> 32);\n"
      "    c[2] = c[3] = 0;\n"
      "    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {\n"
      "        const uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];\n"
      "        const uint32_t x = (uint32_t)(q >> 32) ^ c[1] ^ k0, y = (uint32_t)(p >> 32) ^ c[3] ^ k1;\n"
      "        c[1] = (uint32_t)q;\n"
      "        c[3] = (uint32_t)p;\n"
      "        c[0] = x;\n"
      "        c[2] = y;\n"
      "    }\n"
      "}\n"
      "static inline int32_t tp_draw(int64_t seed, int64_t at, int64_t i)\n"
      "{\n"
      "    uint32_t c[4];\n"
      "    tp_block((uint64_t)seed, (uint64_t)(at + i / 4), c);\n"
      "    return (int32_t)c[i % 4];\n"
      "}\n"
      "static inline int64_t tp_draw2(int64_t seed, int64_t at, int64_t i)\n"
      "{\n"
      "    uint32_t c[4];\n"
      "    tp_block((uint64_t)seed, (uint64_t)(at + i / 2), c);\n"
      "    return (int64_t)((uint64_t)c[i % 2 * 2] << 32 | c[i % 2 * 2 + 1]);\n"
      "}\n" },
    { "drawn", "static inline float tp_drawn(int64_t seed, int64_t at, int64_t i)\n"
               "{\n"
               "    float r[2];\n"
               "    tp_normal_f32(tp_draw(seed, at, i & ~1), tp_draw(seed, at, i | 1), &r[0], &r[1]);\n"
               "    return r[i % 2];\n"
               "}\n" },
    { "drawnd", "static inline double tp_drawnd(int64_t seed, int64_t at, int64_t i)\n"
                "{\n"
                "    double r[2];\n"
                "    tp_normal_f64(tp_draw2(seed, at, i & ~1), tp_draw2(seed, at, i | 1), &r[0], &r[1]);\n"
                "    return r[i % 2];\n"
                "}\n" },
    { "scale2", "/* a * 2**n */\n"
                "static inline float tp_scale2_f32(float a, float n) { int32_t i = (int32_t)n, h = i >> 1; "
                "return a * tp_f32_bits((h + 127) << 23) * tp_f32_bits((i - h + 127) << 23); }\n"
                "static inline double tp_scale2_f64(double a, double n) { int64_t i = (int64_t)n, h = i >> "
                "1; return a * tp_f64_bits((h + 1023) << 52) * tp_f64_bits((i - h + 1023) << 52); }\n" },
    { "half",
      "static inline float tp_from_bf16(uint16_t h) { return tp_f32_bits((int32_t)((uint32_t)h << 16)); }\n"
      "static inline uint16_t tp_to_bf16(float f)\n{\n    uint32_t u = (uint32_t)tp_bits_f32(f);\n    return "
      "f != f ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);\n}\n"
      "static inline float tp_from_f16(uint16_t h)\n{\n    uint32_t s = (uint32_t)(h & 0x8000) << 16, e = h "
      ">> 10 & 31, m = h & 0x3ff;\n"
      "    if (e == 31)\n        return tp_f32_bits((int32_t)(s | 0x7f800000 | (m ? 0x400000 : 0) | m << "
      "13));\n"
      "    if (e)\n        return tp_f32_bits((int32_t)(s | (e + 112) << 23 | m << 13));\n    return s ? "
      "-((float)m * 0x1p-24f) : (float)m * 0x1p-24f;\n}\n"
      "static inline uint16_t tp_to_f16(float f)\n{\n    uint32_t u = (uint32_t)tp_bits_f32(f), a = u & "
      "0x7fffffff, s = u >> 16 & 0x8000;\n"
      "    if (a > 0x7f800000)\n        return (uint16_t)(s | 0x7e00 | (a >> 13 & 0x3ff));\n    if (a >= "
      "0x47800000)\n        return (uint16_t)(s | 0x7c00);\n"
      "    if (a < 0x38800000)\n        return (uint16_t)(s | (uint16_t)(tp_bits_f32(tp_f32_bits((int32_t)a) "
      "+ 0.5f) - 0x3f000000));\n"
      "    return (uint16_t)(s | (uint16_t)((a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13));\n}\n" },
};

static void need(cw *w, const char *name)
{
    if (map_get(&w->u->seen, name))
        return;
    if (!strcmp(name, "scale2") || !strcmp(name, "half"))
        need(w, "bits");
    for (size_t i = 0; i < COUNT(helpers); i++)
        if (!strcmp(helpers[i].name, name))
            strbuf_add(&w->u->helpers, helpers[i].text);
    map_put(&w->u->seen, name, (void *)1);
}

/* --- names and constants
 * ---------------------------------------------------------------------------------------------- */
static void add_name(strbuf *o, const char *s, int n)
{
    size_t start = o->n;
    for (int i = 0; s && s[i] && i < 24; i++)
        strbuf_addc(o, isalnum((unsigned char)s[i]) && (unsigned char)s[i] < 128 ? s[i] : '_');
    if (o->n == start || isdigit((unsigned char)o->s[start]))
        strbuf_add(o, "a");
    strbuf_addc(o, '_');
    strbuf_int(o, n);
}

/* "v12": most of the text is such names */
static void add_numbered(strbuf *o, char letter, int64_t n)
{
    strbuf_addc(o, letter);
    strbuf_int(o, n);
}

static void add_float(strbuf *o, int t, double v)
{
    if (isnan(v))
        strbuf_add(o, t == VT_f64 ? "(double)NAN" : "NAN");
    else if (isinf(v))
        strbuf_addf(o, "%s%sINFINITY", v < 0 ? "-" : "", t == VT_f64 ? "(double)" : "");
    else if (v == (double)(int64_t)v && fabs(v) < 1e6 && !(v == 0 && signbit(v)))
        strbuf_int(o, (int64_t)v), strbuf_add(o, t == VT_f32 ? ".0f" : ".0");
    else {
        size_t at = o->n;
        strbuf_addf(o, "%.*g", t == VT_f64 ? 17 : 9, v);
        if (!strpbrk(o->s + at, ".e")) /* -0 and 16777216 need their point, 1e+16 does not */
            strbuf_add(o, ".0");
        strbuf_add(o, suffix(t));
    }
}

static void val(cw *w, vir_ref r)
{
    const vir_ins *in = &w->k->ins[r];
    switch (in->op) {
    case VIR_const:
        if (is_flt(in->type)) {
            add_float(w->o, in->type, vir_const_f(in));
        } else if (in->imm == INT64_MIN) {
            strbuf_add(w->o, "INT64_MIN");
        } else if (in->imm == INT32_MIN && in->type == VT_i32) {
            strbuf_add(w->o, "INT32_MIN");
        } else {
            bool wide = in->type == VT_i64 && (in->imm > INT32_MAX || in->imm < INT32_MIN);
            strbuf_add(w->o, in->imm < 0 ? "(" : "");
            strbuf_int(w->o, in->imm);
            strbuf_add(w->o, wide ? "LL" : "");
            strbuf_add(w->o, in->imm < 0 ? ")" : "");
        }
        break;
    case VIR_iarg: add_name(w->o, w->k->iname ? w->k->iname[in->imm] : "n", (int)in->imm); break;
    case VIR_farg: add_name(w->o, w->k->fname ? w->k->fname[in->imm] : "f", (int)in->imm); break;
    case VIR_bufptr: add_name(w->o, w->k->bufs[in->imm].name, (int)in->imm); break;
    case VIR_input: add_numbered(w->o, 'x', in->imm); break;
    case VIR_loopvar:
        if (in->type == VT_i32)
            strbuf_add(w->o, "(int32_t)");
        add_numbered(w->o, 'i', in->imm);
        break;
    default: add_numbered(w->o, 'v', r); break;
    }
}

/* "$a" "$b" "$c" "$d" in the pattern become operands, "$t" the type's name, "$s" f or nothing, "$C" the C
 * type. */
static void expr(cw *w, const char *pattern, const vir_ins *in)
{
    for (const char *p = pattern;; p++) {
        const char *from = p;
        while (*p && *p != '$')
            p++;
        strbuf_addn(w->o, from, (size_t)(p - from));
        if (!*p)
            return;
        switch (*++p) {
        case 'a': val(w, in->a); break;
        case 'b': val(w, in->b); break;
        case 'c': val(w, in->c); break;
        case 'd': val(w, in->d); break;
        case 't': strbuf_add(w->o, tname(in->type)); break;
        case 's': strbuf_add(w->o, suffix(in->type)); break;
        case 'C': strbuf_add(w->o, ctype[in->type]); break;
        }
    }
}

static void write_frag(cw *w, const vir_frag *f);

static const char *int_pattern(const vir_ins *in)
{
    bool w32 = in->type == VT_i32;
    switch (in->op) {
    case VIR_add: return w32 ? "(int32_t)((uint32_t)$a + (uint32_t)$b)" : "$a + $b";
    case VIR_sub: return w32 ? "(int32_t)((uint32_t)$a - (uint32_t)$b)" : "$a - $b";
    case VIR_mul: return w32 ? "(int32_t)((uint32_t)$a * (uint32_t)$b)" : "$a * $b";
    case VIR_min: return "$a < $b ? $a : $b";
    case VIR_max: return "$a > $b ? $a : $b";
    case VIR_neg: return w32 ? "(int32_t)(0 - (uint32_t)$a)" : "-$a";
    case VIR_abs: return w32 ? "$a < 0 ? (int32_t)(0 - (uint32_t)$a) : $a" : "$a < 0 ? -$a : $a";
    case VIR_divt: return "($C)tp_divt($a, $b)";
    case VIR_divf: return "($C)tp_divf($a, $b)";
    case VIR_modt: return "($C)tp_modt($a, $b)";
    case VIR_modf: return "($C)tp_modf($a, $b)";
    case VIR_shl: return "tp_shl_$t($a, $b)";
    case VIR_shr: return "tp_shr_$t($a, $b)";
    case VIR_sra: return "tp_sra_$t($a, $b)";
    case VIR_mulhu: return "(int32_t)(((uint64_t)(uint32_t)$a * (uint32_t)$b) >> 32)";
    case VIR_and: return "$a & $b";
    case VIR_or: return "$a | $b";
    case VIR_xor: return "$a ^ $b";
    case VIR_not: return in->type == VT_mask ? "!$a" : "~$a";
    default: return "0";
    }
}

static const char *float_pattern(const vir_ins *in)
{
    switch (in->op) {
    case VIR_add: return "$a + $b";
    case VIR_sub: return "$a - $b";
    case VIR_mul: return "$a * $b";
    case VIR_div: return "$a / $b";
    case VIR_min: return "tp_min_$t($a, $b)";
    case VIR_max: return "tp_max_$t($a, $b)";
    case VIR_fmin: return "tp_fmin_$t($a, $b)";
    case VIR_fmax: return "tp_fmax_$t($a, $b)";
    case VIR_neg: return "-$a";
    case VIR_abs: return "fabs$s($a)";
    case VIR_fma: return "fma$s($a, $b, $c)";
    case VIR_sqrt: return "sqrt$s($a)";
    case VIR_floor: return "floor$s($a)";
    case VIR_ceil: return "ceil$s($a)";
    case VIR_trunc: return "trunc$s($a)";
    case VIR_round: return "rint$s($a)";
    case VIR_copysign: return "copysign$s($a, $b)";
    case VIR_scale2: return "tp_scale2_$t($a, $b)";
    default: return "0";
    }
}

static void convert(cw *w, const vir_ins *in)
{
    int from = w->k->ins[in->a].type;
    if (is_flt(from) && (in->type == VT_i32 || in->type == VT_i64)) {
        need(w, "cut");
        expr(w, "tp_to_$t($a)", in);
    } else {
        expr(w, "($C)$a", in);
    }
}

static void narrow(cw *w, const vir_ins *in)
{
    static const char *const casts[] = { [VM_f16] = "tp_from_f16(tp_to_f16($a))",
                                         [VM_bf16] = "tp_from_bf16(tp_to_bf16($a))",
                                         [VM_i16] = "(int16_t)$a",
                                         [VM_i8] = "(int8_t)$a",
                                         [VM_u8] = "(uint8_t)$a" };
    if (in->mem == VM_f16 || in->mem == VM_bf16)
        need(w, "half");
    expr(w, casts[in->mem], in);
}

static void table(cw *w, const vir_ins *in)
{
    char key[32];
    snprintf(key, sizeof key, "table %lld", (long long)in->imm);
    if (!map_get(&w->u->seen, key)) {
        strbuf_addf(&w->u->helpers, "static const int32_t tp_table%lld[16] = {", (long long)in->imm);
        for (int i = 0; i < 16; i++)
            strbuf_add(&w->u->helpers, i ? ", " : " "), strbuf_int(&w->u->helpers, vir_tables[in->imm][i]);
        strbuf_add(&w->u->helpers, " };\n");
        map_put(&w->u->seen, key, (void *)1);
    }
    strbuf_addf(w->o, "tp_table%lld[", (long long)in->imm);
    expr(w, "$a & 15]", in);
}

static void call(cw *w, const vir_ins *in)
{
    if (in->c)
        expr(w, "$c ? ", in);
    strbuf_addf(w->o, "%s%s(", vir_calls[in->imm].name, suffix(in->type));
    expr(w, in->b ? "$a, $b)" : "$a)", in);
    if (in->c)
        expr(w, " : $d", in);
}

/* The value of a pure operation, as an expression. */
static void pure_expr(cw *w, const vir_ins *in)
{
    static const char *const cmps[] = {
        "$a == $b", "$a != $b", "$a < $b", "$a <= $b", "$a > $b", "$a >= $b"
    };
    if (in->op >= VIR_eq && in->op <= VIR_ge) {
        expr(w, cmps[in->op - VIR_eq], in);
        return;
    }
    if (vir_is_math((vir_op)in->op)) {
        const vir_frag *f = vir_frag_math((vir_op)in->op, (vir_type)in->type);
        write_frag(w, f);
        strbuf_addf(w->o, "tp_%s(", f->name);
        expr(w, in->b ? "$a, $b)" : "$a)", in);
        return;
    }
    switch (in->op) {
    case VIR_select: expr(w, "$a ? $b : $c", in); return;
    case VIR_cvt: convert(w, in); return;
    case VIR_bitcast:
        need(w, "bits");
        if (is_flt(in->type))
            expr(w, "tp_$t_bits($a)", in);
        else
            expr(w, in->type == VT_i32 ? "tp_bits_f32($a)" : "tp_bits_f64($a)", in);
        return;
    case VIR_narrow: narrow(w, in); return;
    case VIR_table: table(w, in); return;
    case VIR_call: call(w, in); return;
    case VIR_draw: {
        const char *fn = in->type == VT_i32     ? ""
                         : in->type == VT_i64   ? "2"
                         : (in->type == VT_f64) ? "nd"
                                                : "n";
        need(w, "draw");
        if (is_flt(in->type)) {
            write_frag(w, vir_frag_normal((vir_type)in->type));
            need(w, (in->type == VT_f64) ? "drawnd" : "drawn");
        }
        strbuf_addf(w->o, "tp_draw%s(", fn);
        expr(w, "$a, $b", in);
        strbuf_addf(w->o, ", i%d)", w->k->loops[in->region].vector);
        return;
    }
    case VIR_scale2: need(w, "scale2"); break;
    case VIR_min:
    case VIR_max:
    case VIR_fmin:
    case VIR_fmax: need(w, "minmax"); break;
    case VIR_divt:
    case VIR_divf:
    case VIR_modt:
    case VIR_modf: need(w, "div"); break;
    case VIR_shl:
    case VIR_shr:
    case VIR_sra: need(w, "shift"); break;
    }
    expr(w, is_flt(in->type) ? float_pattern(in) : int_pattern(in), in);
}

static void declare(strbuf *o, bool constant, const char *type, vir_ref r)
{
    strbuf_add(o, constant ? "const " : "");
    strbuf_add(o, type);
    strbuf_addc(o, ' ');
    add_numbered(o, 'v', r);
    strbuf_add(o, " = ");
}

/* A fragment as a static inline function; several results come back through pointers. */
static void write_frag(cw *w, const vir_frag *f)
{
    char key[96];
    strbuf text = { 0 };
    snprintf(key, sizeof key, "frag %s", f->name);
    if (map_get(&w->u->seen, key))
        return;
    map_put(&w->u->seen, key, (void *)1);
    cw in = { .u = w->u, .k = f->k, .o = &text, .indent = 4 };
    vir_type types[8] = { VT_none };
    for (int i = 1; i < f->k->n; i++)
        if (f->k->ins[i].op == VIR_input)
            types[f->k->ins[i].imm] = (vir_type)f->k->ins[i].type;
    strbuf_addf(&text, "static inline %s tp_%s(", f->nout == 1 ? ctype[f->k->ins[f->out[0]].type] : "void",
                f->name);
    for (int i = 0; i < f->nin; i++)
        strbuf_addf(&text, "%s%s x%d", i ? ", " : "", ctype[types[i]], i);
    for (int i = 0; i < f->nout && f->nout > 1; i++)
        strbuf_addf(&text, ", %s *r%d", ctype[f->k->ins[f->out[i]].type], i);
    strbuf_add(&text, ")\n{\n");
    for (vir_ref r = f->k->loops[0].first; r; r = f->k->ins[r].next) {
        const vir_ins *i = &f->k->ins[r];
        if (i->dead || i->op == VIR_const || i->op == VIR_input)
            continue;
        strbuf_add(&text, "    ");
        declare(&text, true, ctype[i->type], r);
        pure_expr(&in, i);
        strbuf_add(&text, ";\n");
    }
    for (int i = 0; i < f->nout; i++) {
        if (f->nout == 1)
            strbuf_add(&text, "    return ");
        else
            strbuf_addf(&text, "    *r%d = ", i);
        val(&in, f->out[i]);
        strbuf_add(&text, ";\n");
    }
    strbuf_add(&text, "}\n");
    strbuf_add(&w->u->helpers, strbuf_str(&text)); /* after what it calls */
    strbuf_free(&text);
}

/* --- statements
 * ---------------------------------------------------------------------------------------------------------
 */
static void line(cw *w) { strbuf_pad(w->o, w->o->n, (size_t)w->indent); }

/* Nothing in it may end the comment or the line. */
static void comment_text(strbuf *o, const char *p)
{
    for (const char *q; *p; p = q + (*q != 0)) {
        for (q = p; (unsigned char)*q >= 32 && *q != '*' && *q != '\\'; q++)
            ;
        strbuf_addn(o, p, (size_t)(q - p));
        if (*q)
            strbuf_addc(o, *q != '*' ? ' ' : q[1] == '/' ? '+' : '*');
    }
}

static void end(cw *w, const ir_loc *note)
{
    const ir_loc *was = w->noted;
    const char *file = note && note->file ? note->file : "?", *slash = strrchr(file, '/');
    strbuf_addc(w->o, ';');
    bool again = note && was &&
                 (note == was || (note->line == was->line && !strcmp(file, was->file ? was->file : "?")));
    const char *code = note && !again ? ir_loc_code(note) : NULL;
    if (code) { /* "file.py:12 y = x + 1" */
        w->noted = note;
        strbuf_add(w->o, " /* ");
        comment_text(w->o, slash ? slash + 1 : file);
        strbuf_addc(w->o, ':');
        strbuf_int(w->o, note->line);
        strbuf_addc(w->o, ' ');
        comment_text(w->o, code);
        strbuf_add(w->o, " */");
    }
    strbuf_addc(w->o, '\n');
}

static void element(cw *w, const vir_ins *in)
{
    int64_t off = in->imm / (int64_t)vir_mem_size((vir_mem)in->mem);
    int loop = w->k->loops[in->region].vector;
    val(w, in->a);
    strbuf_addc(w->o, '[');
    if (in->access == VA_unit || in->access == VA_strided || in->access == VA_spread)
        add_numbered(w->o, 'i', loop);
    if (in->access == VA_strided || in->access == VA_spread)
        strbuf_add(w->o, in->access == VA_strided ? " * " : " / ");
    if (in->access == VA_strided || in->access == VA_gather || in->access == VA_spread)
        val(w, in->b);
    if (in->access == VA_uniform)
        strbuf_int(w->o, off);
    else if (off) {
        strbuf_add(w->o, off < 0 ? " - " : " + ");
        strbuf_int(w->o, off < 0 ? -off : off);
    }
    strbuf_addc(w->o, ']');
}

static void load_expr(cw *w, const vir_ins *in)
{
    if (in->c)
        expr(w, "$c ? ", in);
    if (in->mem == VM_f16 || in->mem == VM_bf16) {
        need(w, "half");
        strbuf_addf(w->o, "tp_from_%s(", vir_mem_name((vir_mem)in->mem));
        element(w, in);
        strbuf_addc(w->o, ')');
    } else {
        element(w, in);
        if (in->mem == VM_bool)
            strbuf_add(w->o, " != 0");
    }
    if (in->c)
        strbuf_add(w->o, " : 0");
}

static void store(cw *w, const vir_ins *in)
{
    line(w);
    if (in->c)
        expr(w, "if ($c) ", in);
    element(w, in);
    if (in->add && in->mem == VM_i32) { /* wraps */
        strbuf_add(w->o, " = (int32_t)((uint32_t)");
        element(w, in);
        expr(w, " + (uint32_t)$d)", in);
        end(w, in->note);
        return;
    }
    strbuf_add(w->o, in->add ? " += " : " = ");
    if (in->mem == VM_f16 || in->mem == VM_bf16) {
        need(w, "half");
        strbuf_addf(w->o, "tp_to_%s(", vir_mem_name((vir_mem)in->mem));
        expr(w, "$d)", in);
    } else if (vir_mem_size((vir_mem)in->mem) < 4) {
        strbuf_addf(w->o, "(%s)", mtype[in->mem]);
        expr(w, in->mem == VM_bool ? "($d != 0)" : "$d", in);
    } else {
        expr(w, "$d", in);
    }
    end(w, in->note);
}

static int64_t npart(const vir *k) { return (int64_t)k->lanes * k->ways; }

/* The name of a part: an array element inside the block loop, else element 0 or a plain variable. */
static void part(cw *w, int red, int p, const char *sub)
{
    add_numbered(w->o, 'r', red);
    add_numbered(w->o, '_', p);
    strbuf_add(w->o, w->k->reds[red].partials ? sub : "");
}

static void red_start(cw *w, int n)
{
    const vir_red_info *r = &w->k->reds[n];
    arena a = { 0 };
    vir *tmp = vir_make(&a, "identity");
    for (int p = 0; p < vir_red_parts(r->kind); p++) {
        cw id = *w;
        id.k = tmp;
        vir_ref v = vir_red_identity(tmp, r, p);
        line(w);
        strbuf_addf(w->o, "%s r%d_%d", ctype[vir_red_part_type(r, p)], n, p);
        if (r->partials) {
            strbuf_addf(w->o, "[%lld];\n", (long long)npart(w->k));
            line(w);
            strbuf_addf(w->o, "for (int j = 0; j < %lld; j++) r%d_%d[j] = ", (long long)npart(w->k), n, p);
        } else {
            strbuf_add(w->o, " = ");
        }
        val(&id, v);
        strbuf_add(w->o, ";\n");
    }
    arena_free(&a);
}

/* parts = fragment(args...) for step (x, idx from the instruction) and merge (the other half of the
 * partials). */
static void red_apply(cw *w, int n, const vir_frag *f, const vir_ins *in)
{
    const vir_red_info *r = &w->k->reds[n];
    int np = vir_red_parts(r->kind);
    write_frag(w, f);
    line(w);
    if (np == 1) {
        part(w, n, 0, "[j]");
        strbuf_add(w->o, " = ");
    }
    strbuf_add(w->o, "tp_");
    strbuf_add(w->o, f->name);
    strbuf_addc(w->o, '(');
    for (int p = 0; p < np; p++) {
        strbuf_add(w->o, p ? ", " : "");
        part(w, n, p, "[j]");
    }
    if (in) {
        expr(w, in->b ? ", $a, $b" : ", $a", in);
    } else {
        for (int p = 0; p < np; p++)
            strbuf_addf(w->o, ", r%d_%d[j + h]", n, p);
    }
    for (int p = 0; p < np && np > 1; p++) {
        strbuf_add(w->o, ", &");
        part(w, n, p, "[j]");
    }
    strbuf_addc(w->o, ')');
    end(w, in ? in->note : NULL);
}

static void red_fold(cw *w, int n)
{
    const vir_red_info *r = &w->k->reds[n];
    if (!r->partials)
        return;
    line(w);
    strbuf_addf(w->o, "for (int h = %lld; h; h /= 2)\n", (long long)npart(w->k) / 2);
    w->indent += 4;
    line(w);
    strbuf_add(w->o, "for (int j = 0; j < h; j++)\n");
    w->indent += 4;
    red_apply(w, n, vir_frag_merge(r->kind, r->type, r->itype), NULL);
    w->indent -= 8;
}

static void region(cw *w, int n);

static bool has_partials(const vir *k, int loop)
{
    for (int i = 1; i < k->n; i++)
        if (k->ins[i].op == VIR_step && !k->ins[i].dead && k->loops[k->ins[i].region].vector == loop &&
            k->reds[k->ins[i].imm].partials)
            return true;
    return false;
}

static void loop(cw *w, int n)
{
    const vir_loop_info *l = &w->k->loops[n];
    bool par = l->kind == LOOP_parallel, blocks = l->kind == LOOP_vector && has_partials(w->k, n);
    cw begin = *w;
    strbuf b = { 0 }, e = { 0 };
    begin.o = &b;
    if (!par)
        val(&begin, l->begin);
    begin.o = &e;
    if (!par)
        val(&begin, l->end);
    const char *lo = par ? "lo" : strbuf_str(&b), *hi = par ? "hi" : strbuf_str(&e);
    if (blocks) { /* blocks of P iterations, the j-th of each going to partial result j */
        long long P = (long long)npart(w->k);
        line(w);
        strbuf_addf(w->o, "for (int64_t b%d = %s; b%d < %s; b%d += %lld) {\n", n, lo, n, hi, n, P);
        w->indent += 4;
        line(w);
        strbuf_addf(w->o, "const int m%d = %s - b%d < %lld ? (int)(%s - b%d) : %lld;\n", n, hi, n, P, hi, n,
                    P);
        line(w);
        strbuf_addf(w->o, "for (int j = 0; j < m%d; j++) {\n", n);
        w->indent += 4;
        line(w);
        strbuf_addf(w->o, "const int64_t i%d = b%d + j;\n", n, n);
    } else {
        line(w);
        strbuf_addf(w->o, "for (int64_t i%d = %s; i%d < %s; i%d++) {\n", n, lo, n, hi, n);
        w->indent += 4;
    }
    region(w, n);
    for (int i = 0; i <= blocks; i++) {
        w->indent -= 4;
        line(w);
        strbuf_add(w->o, "}\n");
    }
    strbuf_free(&b);
    strbuf_free(&e);
}

static void statement(cw *w, vir_ref r)
{
    const vir_ins *in = &w->k->ins[r];
    switch (in->op) {
    case VIR_const:
    case VIR_iarg:
    case VIR_farg:
    case VIR_bufptr:
    case VIR_loopvar: return; /* written where they are used */
    case VIR_loop: loop(w, (int)in->imm); return;
    case VIR_store: store(w, in); return;
    case VIR_set:
        line(w);
        expr(w, "$a = $b", in);
        end(w, in->note);
        return;
    case VIR_red: red_start(w, (int)in->imm); return;
    case VIR_step:
        red_apply(
            w, (int)in->imm,
            vir_frag_step(w->k->reds[in->imm].kind, w->k->reds[in->imm].type, w->k->reds[in->imm].itype), in);
        return;
    case VIR_fold: red_fold(w, (int)in->imm); return;
    default: break;
    }
    line(w);
    if (in->op == VIR_ptr) {
        const vir_buf_info *b = &w->k->bufs[w->k->ins[in->a].imm];
        strbuf_add(w->o, b->flags == VIR_IN ? "const " : "");
        strbuf_add(w->o, mtype[b->mem]);
        strbuf_add(w->o, " *");
        add_numbered(w->o, 'v', r);
        strbuf_add(w->o, " = ");
        expr(w, "$a + $b", in);
        end(w, NULL);
        return;
    }
    declare(w->o, in->op != VIR_var, ctype[in->type], r);
    if (in->op == VIR_load)
        load_expr(w, in);
    else if (in->op == VIR_var || in->op == VIR_get)
        expr(w, "$a", in);
    else if (in->op == VIR_part)
        part(w, (int)in->imm / 4, (int)in->imm % 4, "[0]");
    else
        pure_expr(w, in);
    end(w, in->note);
}

static void region(cw *w, int n)
{
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next)
        if (!w->k->ins[r].dead)
            statement(w, r);
}

void gen_c_kernel(gen_c_unit *u, const vir *k, const char *name)
{
    cw w = { .u = u, .k = k, .o = &u->kernels, .indent = 4 };
    if (!u->kernels.cap)
        strbuf_grow(&u->kernels, 1 << 15);
    bool *used_i = mem_zalloc((size_t)k->nints + 1), *used_b = mem_zalloc((size_t)k->nbufs + 1);
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        const vir_ref ops[4] = { in->a, in->b, in->c, in->d };
        if (!in->dead && in->op == VIR_bufptr)
            used_b[in->imm] = true;
        if (in->dead || (in->op == VIR_loop && k->loops[in->imm].kind == LOOP_parallel))
            continue;
        for (int j = 0; j < 4; j++)
            if (k->ins[ops[j]].op == VIR_iarg)
                used_i[k->ins[ops[j]].imm] = true;
    }
    strbuf_addf(
        w.o,
        "\nvoid %s(void *const *bufs, const int64_t *ints, const double *flts, int64_t lo, int64_t hi)\n{\n",
        name);
    strbuf_add(w.o, "    (void)bufs, (void)ints, (void)flts, (void)lo, (void)hi;\n");
    for (int i = 0; i < k->nbufs; i++) {
        const vir_buf_info *b = &k->bufs[i];
        const char *c = b->flags == VIR_IN ? "const " : "";
        if (!used_b[i])
            continue;
        strbuf_add(w.o, "    ");
        strbuf_add(w.o, c);
        strbuf_add(w.o, mtype[b->mem]);
        strbuf_add(w.o, " *");
        add_name(w.o, b->name, i);
        strbuf_add(w.o, " = bufs[");
        strbuf_int(w.o, i);
        strbuf_add(w.o, "];\n");
    }
    for (int i = 0; i < k->nints; i++)
        if (used_i[i]) {
            strbuf_add(w.o, "    const int64_t ");
            add_name(w.o, k->iname ? k->iname[i] : "n", i);
            strbuf_addf(w.o, " = ints[%d];\n", i);
        }
    for (int i = 1; i < k->n; i++)
        if (!k->ins[i].dead && k->ins[i].op == VIR_farg) {
            strbuf_addf(w.o, "    const %s ", ctype[k->ins[i].type]);
            add_name(w.o, k->fname ? k->fname[k->ins[i].imm] : "f", (int)k->ins[i].imm);
            strbuf_addf(w.o, " = (%s)flts[%lld];\n", ctype[k->ins[i].type], (long long)k->ins[i].imm);
        }
    region(&w, 0);
    strbuf_add(w.o, "}\n");
    free(used_i);
    free(used_b);
}

void gen_c_text(const gen_c_unit *u, strbuf *out)
{
    strbuf_add(out, "/* Generated by Taper. Needs a C99 compiler and libm; for the same bits as Taper's "
                    "machine code build with\n"
                    " * -ffp-contract=off -fno-strict-aliasing -fwrapv. */\n"
                    "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n\n");
    strbuf_add(out, strbuf_str(&u->helpers));
    strbuf_add(out, strbuf_str(&u->kernels));
}

void gen_c_halves(gen_c_unit *u)
{
    cw w = { .u = u };
    need(&w, "half");
}

void gen_c_ready(void)
{
    gen_c_unit u = { 0 };
    strbuf out = { 0 };
    cw w = { .u = &u, .o = &out };
    write_frag(&w, vir_frag_math(VIR_exp, VT_f32));
    write_frag(&w, vir_frag_math(VIR_log, VT_f32));
    gen_c_free(&u);
    strbuf_free(&out);
}

void gen_c_free(gen_c_unit *u)
{
    strbuf_free(&u->helpers);
    strbuf_free(&u->kernels);
    map_free(&u->seen);
}

/* --- data
 * ------------------------------------------------------------------------------------------------------------- */
const char *gen_c_type(dtype dt)
{
    static const char *const t[DT_COUNT] = {
        [DT_bool] = "uint8_t", [DT_u8] = "uint8_t",  [DT_i8] = "int8_t",    [DT_i16] = "int16_t",
        [DT_i32] = "int32_t",  [DT_i64] = "int64_t", [DT_f16] = "uint16_t", [DT_bf16] = "uint16_t",
        [DT_f32] = "float",    [DT_f64] = "double"
    };
    return t[dt];
}

void gen_c_number(strbuf *b, dtype dt, const void *p)
{
    if (dt == DT_f16 || dt == DT_bf16)
        strbuf_addf(b, "0x%04x", *(const uint16_t *)p);
    else if (!dtype_is_float(dt)) {
        int64_t v = elem_get_i(dt, p);
        if (v == INT64_MIN)
            strbuf_add(b, "INT64_MIN");
        else
            strbuf_addf(b, "%lld", (long long)v);
    } else {
        double v = elem_get_f(dt, p);
        if (isnan(v) || isinf(v))
            strbuf_add(b, isnan(v) ? "NAN" : v < 0 ? "-INFINITY" : "INFINITY");
        else
            strbuf_double(b, v);
    }
}
