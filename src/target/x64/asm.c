/* asm.c - the encoder. Prefix layouts follow the Intel manual, volume 2, chapter 2. */
#include "target/x64/asm.h"
#include <stdio.h>

enum { FM_RVM, FM_RM, FM_RVMI, FM_RMI, FM_MR, FM_MRI, FM_VMI, FM_RVMR, FM_RVMK, FM_G, FM_MV };
enum { TU_FV, TU_FVM, TU_HV, TU_HVM, TU_QVM, TU_OVM, TU_T4, TU_T8, TU_T16, TU_T32, TU_NO };
typedef struct row {
    const char *name;
    uint8_t form, pp, map, op;
    int8_t vexw, evexw;
    uint8_t tuple, digit;
} row;
static const row rows[XV_COUNT] = {
#define XV(id, name, form, pp, map, op, vw, ew, tuple, digit) \
    [XV_##id] = { name, FM_##form, pp, map, op, vw, ew, TU_##tuple, digit },
#include "target/x64/x64.def"
};
static const char *const gpr[] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                   "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15" };
static const char *const gpr32[] = { "eax", "ecx", "edx",  "ebx",  "esp",  "ebp",  "esi",  "edi",
                                     "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d" };
static const char *const gpr16[] = { "ax",  "cx",  "dx",   "bx",   "sp",   "bp",   "si",   "di",
                                     "r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w", "r15w" };
static const char *const gpr8[] = { "al",  "cl",  "dl",   "bl",   "spl",  "bpl",  "sil",  "dil",
                                    "r8b", "r9b", "r10b", "r11b", "r12b", "r13b", "r14b", "r15b" };
static const char *const cc_names[] = { "o", "no", "b", "ae", "e", "ne", "be", "a",
                                        "s", "ns", "p", "np", "l", "ge", "le", "g" };

bool x64_has_evex(x64_vop op) { return rows[op].evexw >= 0; }
bool x64_may_bcast(x64_vop op) { return rows[op].evexw >= 0 && rows[op].tuple == TU_FV; }
bool x64_is_wide(x64_vop op) { return rows[op].evexw == 1; }
bool x64_dst_is_rm(x64_vop op) { return rows[op].form == FM_MR || rows[op].form == FM_MRI; }

static inline void byte(x64 *e, unsigned b)
{
    if (TP_UNLIKELY(e->n + 32 > e->cap)) {
        e->cap = e->cap ? e->cap * 2 : 4096;
        e->code = mem_realloc(e->code, e->cap);
    }
    e->code[e->n++] = (uint8_t)b;
}
static void dword(x64 *e, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        byte(e, v >> (8 * i) & 255);
}

static void fixup(x64 *e, int32_t target, bool is_const, int after)
{
    if (e->nfix == e->capfix) {
        e->capfix = e->capfix ? e->capfix * 2 : 128;
        e->fix = mem_realloc(e->fix, e->capfix * sizeof *e->fix);
    }
    e->fix[e->nfix++] = (x64_fix){ (uint32_t)e->n, target, is_const, (uint8_t)after };
    dword(e, 0);
}

/* ModRM, SIB and displacement. scale8: what one disp8 counts; after: immediate bytes that follow. */
static void modrm(x64 *e, int reg, const x64_rm *rm, int scale8, int after)
{
    int r = (reg & 7) << 3;
    if (!rm->is_mem) {
        byte(e, 0xc0 | r | (rm->reg & 7));
        return;
    }
    const x64_mem *m = &rm->m;
    if (m->base == X64_RIP) {
        byte(e, 0x05 | r);
        fixup(e, m->disp, true, after);
        return;
    }
    int mod = 2, disp8 = 0;
    if (m->disp == 0 && (m->base & 7) != RBP)
        mod = 0;
    else if (m->disp % scale8 == 0 && m->disp / scale8 >= -128 && m->disp / scale8 <= 127)
        mod = 1, disp8 = m->disp / scale8;
    bool sib = m->index != X64_NOREG || (m->base & 7) == RSP;
    byte(e, (unsigned)mod << 6 | r | (sib ? 4 : m->base & 7));
    if (sib) {
        int s = m->scale == 8 ? 3 : m->scale == 4 ? 2 : m->scale == 2 ? 1 : 0;
        byte(e, (unsigned)s << 6 | (m->index == X64_NOREG ? 4 : m->index & 7) << 3 | (m->base & 7));
    }
    if (mod == 1)
        byte(e, disp8 & 255);
    else if (mod == 2)
        dword(e, (uint32_t)m->disp);
}

static int rm_b(const x64_rm *rm)
{
    return rm->is_mem ? (rm->m.base >= 0 ? rm->m.base >> 3 & 1 : 0) : rm->reg >> 3 & 1;
}
static int rm_x(const x64_rm *rm)
{
    return rm->is_mem ? (rm->m.index != X64_NOREG ? rm->m.index >> 3 & 1 : 0) : 0;
}

static void vex(x64 *e, int pp, int map, int w, int l, int reg, int vvvv, const x64_rm *rm)
{
    int R = reg >> 3 & 1, X = rm_x(rm), B = rm_b(rm);
    if (map == 1 && !w && !X && !B) {
        byte(e, 0xc5);
        byte(e, (unsigned)(!R) << 7 | (~vvvv & 15) << 3 | l << 2 | pp);
        return;
    }
    byte(e, 0xc4);
    byte(e, (unsigned)(!R) << 7 | (!X) << 6 | (!B) << 5 | map);
    byte(e, (unsigned)w << 7 | (~vvvv & 15) << 3 | l << 2 | pp);
}

static void evex(x64 *e, int pp, int map, int w, int l, int reg, int vvvv, const x64_rm *rm, int vidx_hi,
                 int k, bool z, bool b)
{
    int R = reg >> 3 & 1, R2 = reg >> 4 & 1, B = rm_b(rm), X = rm->is_mem ? rm_x(rm) : rm->reg >> 4 & 1;
    int V2 = (vvvv >> 4 & 1) | vidx_hi;
    byte(e, 0x62);
    byte(e, (unsigned)(!R) << 7 | (!X) << 6 | (!B) << 5 | (!R2) << 4 | map);
    byte(e, (unsigned)w << 7 | (~vvvv & 15) << 3 | 4 | pp);
    byte(e, (unsigned)z << 7 | l << 5 | b << 4 | (!V2) << 3 | k);
}

static int disp_unit(const row *r, int vl, bool bcast)
{
    int full = 16 << vl, elem = r->evexw == 1 ? 8 : 4;
    switch (r->tuple) {
    case TU_FV: return bcast ? elem : full;
    case TU_FVM: return full;
    case TU_HV: return bcast ? 4 : full / 2;
    case TU_HVM: return full / 2;
    case TU_QVM: return full / 4;
    case TU_OVM: return full / 8;
    case TU_T4: return 4;
    case TU_T8: return 8;
    case TU_T16: return 16;
    case TU_T32: return 32;
    default: return 1;
    }
}

void x64_vec(x64 *e, const x64_v *i)
{
    const row *r = &rows[i->op];
    int reg = i->dst, v = i->src1, imm = -1;
    bool gather = r->form == FM_G;
    int vidx_hi = gather ? i->rm.m.index >> 4 & 1 : 0;
    switch (r->form) {
    case FM_RM:
    case FM_MR: v = 0; break;
    case FM_RMI:
    case FM_MRI: v = 0, imm = i->imm; break;
    case FM_RVMI:
    case FM_RVMK: imm = i->imm; break;
    case FM_VMI: v = i->dst, reg = r->digit, imm = i->imm; break;
    case FM_RVMR: imm = i->src3 << 4; break;
    case FM_G: v = i->k ? 0 : i->src1; break; /* VEX: src1 is the mask register */
    default: break;
    }
    int hi = reg | v | (i->rm.is_mem ? 0 : i->rm.reg);
    bool ev = r->vexw < 0 || i->vl == 2 || i->k || i->bcast || (hi & 16) || vidx_hi;
    if (ev) {
        assert(r->evexw >= 0 && e->avx512);
        evex(e, r->pp, r->map, r->evexw, i->vl, reg, v, &i->rm, vidx_hi, i->k, i->z, i->bcast);
    } else {
        vex(e, r->pp, r->map, r->vexw,
            r->tuple == TU_T4 && r->form != FM_G && (i->op == XV_movss_l || i->op == XV_movss_s) ? 0 : i->vl,
            reg, v, &i->rm);
    }
    byte(e, r->op);
    modrm(e, reg, &i->rm, ev ? disp_unit(r, i->vl, i->bcast) : 1, imm >= 0);
    if (imm >= 0)
        byte(e, (unsigned)imm);
    if (e->text) {
        strbuf_add(e->text, "    ");
        x64_vec_text(e, i, e->text);
        strbuf_addc(e->text, '\n');
    }
}

/* --- text
 * ---------------------------------------------------------------------------------------------------- */
static void vreg_text(strbuf *o, int width, int r)
{
    strbuf_addf(o, "%cmm%d", width == 64 ? 'z' : width == 32 ? 'y' : 'x', r);
}

static void mem_text(strbuf *o, const x64_mem *m, int width, int vindex)
{
    static const char *const names[] = { "byte", "word", "dword", "qword", "xmmword", "ymmword", "zmmword" };
    int w = width == 1    ? 0
            : width == 2  ? 1
            : width == 4  ? 2
            : width == 8  ? 3
            : width == 16 ? 4
            : width == 32 ? 5
                          : 6;
    if (width)
        strbuf_addf(o, "%s ptr ", names[w]);
    if (m->base == X64_RIP) {
        strbuf_addf(o, "[rip+const+%d]", m->disp);
        return;
    }
    strbuf_addf(o, "[%s", gpr[m->base]);
    if (vindex) {
        strbuf_addc(o, '+');
        vreg_text(o, vindex, m->index);
        strbuf_addf(o, "*%d", m->scale);
    } else if (m->index != X64_NOREG) {
        strbuf_addf(o, "+%s*%d", gpr[m->index], m->scale);
    }
    if (m->disp)
        strbuf_addf(o, "%+d", m->disp);
    strbuf_addc(o, ']');
}

static void rm_text(strbuf *o, const x64_rm *rm, int width, int mem_width, int vindex)
{
    if (rm->is_mem)
        mem_text(o, &rm->m, mem_width, vindex);
    else
        vreg_text(o, MAX(width, 16), rm->reg);
}

void x64_vec_text(const x64 *e, const x64_v *i, strbuf *o)
{
    const row *r = &rows[i->op];
    int full = 16 << i->vl, dw = full, rw = full, mw, iw = 0;
    switch (r->tuple) {
    case TU_HV:
    case TU_HVM: rw = full / 2; break;
    case TU_QVM: rw = full / 4; break;
    case TU_T4:
    case TU_T8: rw = 16; break;
    case TU_T16: rw = 16; break;
    case TU_T32: rw = 32; break;
    default: break;
    }
    mw = r->tuple == TU_T4 ? 4 : r->tuple == TU_T8 ? 8 : rw;
    if (r->form == FM_RM && r->digit == 1)
        dw = full / 2;
    if (i->op == XV_movss_l || i->op == XV_movsd_l || i->op == XV_movss_s || i->op == XV_movsd_s)
        dw = 16;
    if (r->form == FM_G) {
        iw = i->op == XV_gatherdpd ? full / 2 : full;
        dw = r->digit ? full / 2 : full;
        iw = MAX(iw, 16), dw = MAX(dw, 16);
    }
    if (i->bcast)
        mw = r->tuple == TU_HV ? 4 : r->evexw ? 8 : 4;
    strbuf_addf(o, "%s ", r->name);
    bool to_rm = r->form == FM_MR || r->form == FM_MRI || r->form == FM_MV;
    if (to_rm)
        rm_text(o, &i->rm, rw, mw, 0);
    else if (r->form == FM_RVMK)
        strbuf_addf(o, "k%d", i->dst);
    else
        vreg_text(o, MAX(dw, 16), i->dst);
    if (i->k)
        strbuf_addf(o, "{k%d}%s", i->k, i->z ? "{z}" : "");
    if (r->form == FM_MV) {
        strbuf_add(o, ", ");
        vreg_text(o, full, i->src1);
    }
    if (to_rm) {
        strbuf_add(o, ", ");
        vreg_text(o, dw, i->dst);
    }
    if (r->form == FM_RVM || r->form == FM_RVMI || r->form == FM_RVMR || r->form == FM_RVMK) {
        strbuf_add(o, ", ");
        vreg_text(o, full, i->src1);
    }
    if (!to_rm) {
        strbuf_add(o, ", ");
        rm_text(o, &i->rm, rw, mw, iw);
        if (i->bcast)
            strbuf_addf(o, "{1to%d}", (r->tuple == TU_HV ? full / 2 : full) / mw);
    }
    if (r->form == FM_G && !i->k) {
        strbuf_add(o, ", ");
        vreg_text(o, dw, i->src1);
    }
    if (r->form == FM_RVMR) {
        strbuf_add(o, ", ");
        vreg_text(o, full, i->src3);
    }
    if (r->form == FM_RVMI || r->form == FM_RMI || r->form == FM_MRI || r->form == FM_VMI ||
        r->form == FM_RVMK)
        strbuf_addf(o, ", %d", i->imm);
}

#define SAY(...)                               \
    do {                                       \
        if (e->text) {                         \
            strbuf_add(e->text, "    ");       \
            strbuf_addf(e->text, __VA_ARGS__); \
            strbuf_addc(e->text, '\n');        \
        }                                      \
    } while (0)

static void say_mem(x64 *e, const char *op, const char *reg, const x64_mem *m, int width, bool store)
{
    if (!e->text)
        return;
    strbuf_addf(e->text, "    %s ", op);
    if (!store)
        strbuf_addf(e->text, "%s, ", reg);
    mem_text(e->text, m, width, 0);
    if (store)
        strbuf_addf(e->text, ", %s", reg);
    strbuf_addc(e->text, '\n');
}

/* --- general registers
 * --------------------------------------------------------------------------------------- */
static x64_rm reg_rm(int r) { return (x64_rm){ .reg = (int8_t)r }; }
static x64_rm mem_rm(x64_mem m) { return (x64_rm){ .is_mem = true, .m = m }; }

/* REX (always written when w, or when an extended or a byte register asks for it), opcode bytes, ModRM. */
static void legacy(x64 *e, bool w, bool force, int op1, int op2, int reg, const x64_rm *rm, int after)
{
    int rex = 0x40 | w << 3 | (reg >> 3 & 1) << 2 | rm_x(rm) << 1 | rm_b(rm);
    if (rex != 0x40 || force)
        byte(e, (unsigned)rex);
    if (op1 >= 0)
        byte(e, (unsigned)op1);
    byte(e, (unsigned)op2);
    modrm(e, reg, rm, 1, after);
}

void x64_mov(x64 *e, int dst, int src)
{
    x64_rm rm = reg_rm(dst);
    legacy(e, true, false, -1, 0x89, src, &rm, 0);
    SAY("mov %s, %s", gpr[dst], gpr[src]);
}

static void movabs(x64 *e, int dst, uint64_t v)
{
    byte(e, 0x48u | dst >> 3);
    byte(e, 0xb8u | (dst & 7));
    dword(e, (uint32_t)v);
    dword(e, (uint32_t)(v >> 32));
}

void x64_imm(x64 *e, int dst, int64_t v)
{
    x64_rm rm = reg_rm(dst);
    if (v == 0) {
        legacy(e, false, false, -1, 0x31, dst, &rm, 0);
        SAY("xor %s, %s", gpr32[dst], gpr32[dst]);
    } else if (v > 0 && v <= UINT32_MAX) {
        if (dst >= 8)
            byte(e, 0x41);
        byte(e, 0xb8u | (dst & 7));
        dword(e, (uint32_t)v);
        SAY("mov %s, %lld", gpr32[dst], (long long)v);
    } else if (v >= INT32_MIN && v < 0) {
        legacy(e, true, false, -1, 0xc7, 0, &rm, 4);
        dword(e, (uint32_t)v);
        SAY("mov %s, %lld", gpr[dst], (long long)v);
    } else {
        movabs(e, dst, (uint64_t)v);
        SAY("movabs %s, %lld", gpr[dst], (long long)v);
    }
}

void x64_addr(x64 *e, int dst, const void *p, const char *name)
{
    movabs(e, dst, (uint64_t)(uintptr_t)p);
    SAY("movabs %s, %s", gpr[dst], name);
}

void x64_load(x64 *e, int dst, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    legacy(e, true, false, -1, 0x8b, dst, &rm, 0);
    say_mem(e, "mov", gpr[dst], &m, 8, false);
}
void x64_store(x64 *e, x64_mem m, int src)
{
    x64_rm rm = mem_rm(m);
    legacy(e, true, false, -1, 0x89, src, &rm, 0);
    say_mem(e, "mov", gpr[src], &m, 8, true);
}

void x64_load_n(x64 *e, int dst, x64_mem m, int bytes, bool sign)
{
    x64_rm rm = mem_rm(m);
    if (bytes == 8) {
        x64_load(e, dst, m);
    } else if (bytes == 4 && sign) {
        legacy(e, true, false, -1, 0x63, dst, &rm, 0);
        say_mem(e, "movsxd", gpr[dst], &m, 4, false);
    } else if (bytes == 4) {
        legacy(e, false, false, -1, 0x8b, dst, &rm, 0);
        say_mem(e, "mov", gpr32[dst], &m, 4, false);
    } else {
        legacy(e, sign, false, 0x0f, (sign ? 0xbe : 0xb6) | (bytes == 2), dst, &rm, 0);
        say_mem(e, sign ? "movsx" : "movzx", sign ? gpr[dst] : gpr32[dst], &m, bytes, false);
    }
}

void x64_store_n(x64 *e, x64_mem m, int src, int bytes)
{
    x64_rm rm = mem_rm(m);
    if (bytes == 8) {
        x64_store(e, m, src);
        return;
    }
    if (bytes == 2)
        byte(e, 0x66);
    legacy(e, false, bytes == 1 && src >= 4, -1, bytes == 1 ? 0x88 : 0x89, src, &rm, 0);
    say_mem(e, "mov", bytes == 1 ? gpr8[src] : bytes == 2 ? gpr16[src] : gpr32[src], &m, bytes, true);
}

void x64_lea(x64 *e, int dst, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    legacy(e, true, false, -1, 0x8d, dst, &rm, 0);
    say_mem(e, "lea", gpr[dst], &m, 0, false);
}

void x64_prefetch(x64 *e, x64_mem m, bool write)
{
    x64_rm rm = mem_rm(m);
    legacy(e, false, false, 0x0f, write ? 0x0d : 0x18, 1, &rm, 0);
    if (e->text) {
        strbuf_addf(e->text, "    %s ", write ? "prefetchw" : "prefetcht0");
        mem_text(e->text, &m, 1, 0);
        strbuf_addc(e->text, '\n');
    }
}

static const char *const alu_names[] = { "add", "or", "adc", "sbb", "and", "sub", "xor", "cmp" };
void x64_alu_rr(x64 *e, x64_alu op, int dst, int src)
{
    x64_rm rm = reg_rm(dst);
    legacy(e, true, false, -1, (int)op << 3 | 1, src, &rm, 0);
    SAY("%s %s, %s", alu_names[op], gpr[dst], gpr[src]);
}
void x64_alu_ri(x64 *e, x64_alu op, int dst, int32_t v)
{
    x64_rm rm = reg_rm(dst);
    bool small = v >= -128 && v <= 127;
    if (!small && dst == RAX) {
        byte(e, 0x48);
        byte(e, (unsigned)op << 3 | 5);
        dword(e, (uint32_t)v);
    } else {
        legacy(e, true, false, -1, small ? 0x83 : 0x81, (int)op, &rm, small ? 1 : 4);
        if (small)
            byte(e, (unsigned)v & 255);
        else
            dword(e, (uint32_t)v);
    }
    SAY("%s %s, %d", alu_names[op], gpr[dst], v);
}
void x64_alu_rm(x64 *e, x64_alu op, int dst, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    legacy(e, true, false, -1, (int)op << 3 | 3, dst, &rm, 0);
    say_mem(e, alu_names[op], gpr[dst], &m, 8, false);
}
void x64_imul(x64 *e, int dst, int src)
{
    x64_rm rm = reg_rm(src);
    legacy(e, true, false, 0x0f, 0xaf, dst, &rm, 0);
    SAY("imul %s, %s", gpr[dst], gpr[src]);
}
void x64_imul_i(x64 *e, int dst, int src, int32_t v)
{
    x64_rm rm = reg_rm(src);
    bool small = v >= -128 && v <= 127;
    legacy(e, true, false, -1, small ? 0x6b : 0x69, dst, &rm, 0);
    if (small)
        byte(e, (unsigned)v & 255);
    else
        dword(e, (uint32_t)v);
    SAY("imul %s, %s, %d", gpr[dst], gpr[src], v);
}
void x64_shift_i(x64 *e, int digit, int dst, int count)
{
    x64_rm rm = reg_rm(dst);
    legacy(e, true, false, -1, count == 1 ? 0xd1 : 0xc1, digit, &rm, 0);
    if (count != 1)
        byte(e, (unsigned)count);
    SAY("%s %s, %d", digit == 4 ? "shl" : digit == 5 ? "shr" : "sar", gpr[dst], count);
}
void x64_shiftx(x64 *e, int pp, int dst, int src, int count, bool w32)
{
    x64_rm rm = reg_rm(src);
    vex(e, pp, 2, !w32, 0, dst, count, &rm);
    byte(e, 0xf7);
    modrm(e, dst, &rm, 1, 0);
    const char *const *n = w32 ? gpr32 : gpr;
    SAY("%s %s, %s, %s", pp == 1 ? "shlx" : pp == 2 ? "sarx" : "shrx", n[dst], n[src], n[count]);
}
void x64_unary(x64 *e, int digit, int dst)
{
    static const char *const names[] = { "test", "test", "not", "neg", "mul", "imul", "div", "idiv" };
    x64_rm rm = reg_rm(dst);
    legacy(e, true, false, -1, 0xf7, digit, &rm, 0);
    SAY("%s %s", names[digit], gpr[dst]);
}
void x64_cqo(x64 *e)
{
    byte(e, 0x48);
    byte(e, 0x99);
    SAY("cqo");
}
void x64_movsxd(x64 *e, int dst, int src)
{
    x64_rm rm = reg_rm(src);
    legacy(e, true, false, -1, 0x63, dst, &rm, 0);
    SAY("movsxd %s, %s", gpr[dst], gpr32[src]);
}
void x64_bzhi(x64 *e, int dst, int src, int count)
{
    x64_rm rm = reg_rm(src);
    vex(e, 0, 2, 1, 0, dst, count, &rm);
    byte(e, 0xf5);
    modrm(e, dst, &rm, 1, 0);
    SAY("bzhi %s, %s, %s", gpr[dst], gpr[src], gpr[count]);
}
void x64_test(x64 *e, int a, int b)
{
    x64_rm rm = reg_rm(a);
    legacy(e, true, false, -1, 0x85, b, &rm, 0);
    SAY("test %s, %s", gpr[a], gpr[b]);
}
void x64_bt(x64 *e, int dst, int bit)
{
    x64_rm rm = reg_rm(dst);
    legacy(e, false, false, 0x0f, 0xba, 4, &rm, 1);
    byte(e, (unsigned)bit);
    SAY("bt %s, %d", gpr32[dst], bit);
}
void x64_setcc(x64 *e, x64_cc cc, int dst)
{
    x64_rm rm = reg_rm(dst);
    legacy(e, false, dst >= 4, 0x0f, 0x90 | (int)cc, 0, &rm, 0);
    SAY("set%s %s", cc_names[cc], gpr8[dst]);
    legacy(e, false, dst >= 4, 0x0f, 0xb6, dst, &rm, 0);
    SAY("movzx %s, %s", gpr32[dst], gpr8[dst]);
}
void x64_cmov(x64 *e, x64_cc cc, int dst, int src)
{
    x64_rm rm = reg_rm(src);
    legacy(e, true, false, 0x0f, 0x40 | (int)cc, dst, &rm, 0);
    SAY("cmov%s %s, %s", cc_names[cc], gpr[dst], gpr[src]);
}
void x64_push(x64 *e, int r)
{
    if (r >= 8)
        byte(e, 0x41);
    byte(e, 0x50u | (r & 7));
    SAY("push %s", gpr[r]);
}
void x64_pop(x64 *e, int r)
{
    if (r >= 8)
        byte(e, 0x41);
    byte(e, 0x58u | (r & 7));
    SAY("pop %s", gpr[r]);
}
void x64_ret(x64 *e)
{
    byte(e, 0xc3);
    SAY("ret");
}
void x64_vzeroupper(x64 *e)
{
    byte(e, 0xc5), byte(e, 0xf8), byte(e, 0x77);
    SAY("vzeroupper");
}
void x64_call(x64 *e, int r)
{
    if (r >= 8)
        byte(e, 0x41);
    byte(e, 0xff);
    byte(e, 0xd0u | (r & 7));
    SAY("call %s", gpr[r]);
}

int x64_label(x64 *e)
{
    if (e->nlabel == e->caplabel) {
        e->caplabel = e->caplabel ? e->caplabel * 2 : 64;
        e->label = mem_realloc(e->label, e->caplabel * sizeof *e->label);
    }
    e->label[e->nlabel] = -1;
    return (int)e->nlabel++;
}
void x64_place(x64 *e, int label)
{
    e->label[label] = (int32_t)e->n;
    if (e->text)
        strbuf_addf(e->text, ".L%d:\n", label);
}
void x64_jmp(x64 *e, int label)
{
    byte(e, 0xe9);
    fixup(e, label, false, 0);
    SAY("jmp .L%d", label);
}
void x64_jcc(x64 *e, x64_cc cc, int label)
{
    byte(e, 0x0f);
    byte(e, 0x80u | cc);
    fixup(e, label, false, 0);
    SAY("j%s .L%d", cc_names[cc], label);
}

/* --- between the register files
 * ------------------------------------------------------------------------------ */
/* vmovd and the like: reg is a vector register, rm a general one; EVEX above 15. */
static void mixed(x64 *e, int pp, int map, int w, int vl, int op, int reg, int vvvv, int rm_reg)
{
    x64_rm rm = reg_rm(rm_reg);
    if (reg >= 16 || vvvv >= 16 || rm_reg >= 16)
        evex(e, pp, map, w, vl, reg, vvvv, &rm, 0, 0, false, false);
    else
        vex(e, pp, map, w, vl, reg, vvvv, &rm);
    byte(e, (unsigned)op);
    modrm(e, reg, &rm, 1, 0);
}
void x64_movd_to(x64 *e, int x, int r, bool w)
{
    mixed(e, 1, 1, w, 0, 0x6e, x, 0, r);
    SAY("vmov%c xmm%d, %s", w ? 'q' : 'd', x, w ? gpr[r] : gpr32[r]);
}
void x64_movd_from(x64 *e, int r, int x, bool w)
{
    mixed(e, 1, 1, w, 0, 0x7e, x, 0, r);
    SAY("vmov%c %s, xmm%d", w ? 'q' : 'd', w ? gpr[r] : gpr32[r], x);
}
void x64_bcast_gpr(x64 *e, int vl, int x, int r, bool w)
{
    x64_rm rm = reg_rm(r);
    evex(e, 1, 2, w, vl, x, 0, &rm, 0, 0, false, false);
    byte(e, 0x7c);
    modrm(e, x, &rm, 1, 0);
    SAY("vpbroadcast%c %cmm%d, %s", w ? 'q' : 'd', vl == 2 ? 'z' : vl ? 'y' : 'x', x, w ? gpr[r] : gpr32[r]);
}
void x64_cvtsi2(x64 *e, bool dbl, int x, int r)
{
    mixed(e, dbl ? 3 : 2, 1, 1, 0, 0x2a, x, x, r);
    SAY("vcvtsi2s%c xmm%d, xmm%d, %s", dbl ? 'd' : 's', x, x, gpr[r]);
}
void x64_cvtt2si(x64 *e, bool dbl, int r, int x, bool w)
{
    mixed(e, dbl ? 3 : 2, 1, w, 0, 0x2c, r, 0, x);
    SAY("vcvtts%c2si %s, xmm%d", dbl ? 'd' : 's', w ? gpr[r] : gpr32[r], x);
}
void x64_movmsk(x64 *e, bool dbl, int vl, int r, int x)
{
    mixed(e, dbl, 1, 0, vl, 0x50, r, 0, x);
    SAY("vmovmskp%c %s, %cmm%d", dbl ? 'd' : 's', gpr32[r], vl ? 'y' : 'x', x);
}

/* --- mask registers
 * ------------------------------------------------------------------------------------------ */
static const char kw[] = "bwdq";
static int k_pp(int w) { return w == 0 || w == 2 ? 1 : 0; } /* byte and dword forms carry 66 */
static int k_w(int w) { return w >= 2; }

void x64_k3(x64 *e, x64_kop op, int w, int dst, int a, int b)
{
    x64_rm rm = reg_rm(b);
    vex(e, k_pp(w), 1, k_w(w), 1, dst, a, &rm);
    byte(e, op);
    modrm(e, dst, &rm, 1, 0);
    const char *n = op == K_and    ? "kand"
                    : op == K_or   ? "kor"
                    : op == K_xor  ? "kxor"
                    : op == K_andn ? "kandn"
                                   : "kxnor";
    SAY("%s%c k%d, k%d, k%d", n, kw[w], dst, a, b);
}
void x64_knot(x64 *e, int w, int dst, int a)
{
    x64_rm rm = reg_rm(a);
    vex(e, k_pp(w), 1, k_w(w), 0, dst, 0, &rm);
    byte(e, 0x44);
    modrm(e, dst, &rm, 1, 0);
    SAY("knot%c k%d, k%d", kw[w], dst, a);
}
void x64_kmov(x64 *e, int dst, int a)
{
    x64_rm rm = reg_rm(a);
    vex(e, 0, 1, 1, 0, dst, 0, &rm);
    byte(e, 0x90);
    modrm(e, dst, &rm, 1, 0);
    SAY("kmovq k%d, k%d", dst, a);
}
/* kmov with a general register: byte 66.W0, word W0, dword F2.W0, qword F2.W1. */
static void kmov_gpr(x64 *e, int w, int op, int reg, int rm_reg)
{
    x64_rm rm = reg_rm(rm_reg);
    vex(e, w == 0 ? 1 : w == 1 ? 0 : 3, 1, w == 3, 0, reg, 0, &rm);
    byte(e, (unsigned)op);
    modrm(e, reg, &rm, 1, 0);
}
void x64_kmov_from_gpr(x64 *e, int w, int k, int r)
{
    kmov_gpr(e, w, 0x92, k, r);
    SAY("kmov%c k%d, %s", kw[w], k, w == 3 ? gpr[r] : gpr32[r]);
}
void x64_kmov_to_gpr(x64 *e, int w, int r, int k)
{
    kmov_gpr(e, w, 0x93, r, k);
    SAY("kmov%c %s, k%d", kw[w], w == 3 ? gpr[r] : gpr32[r], k);
}
static void kmov_mem(x64 *e, int op, int k, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    vex(e, 0, 1, 1, 0, k, 0, &rm);
    byte(e, (unsigned)op);
    modrm(e, k, &rm, 1, 0);
}
void x64_kmov_load(x64 *e, int k, x64_mem m)
{
    char name[8];
    kmov_mem(e, 0x90, k, m);
    snprintf(name, sizeof name, "k%d", k);
    say_mem(e, "kmovq", name, &m, 8, false);
}
void x64_kmov_store(x64 *e, x64_mem m, int k)
{
    char name[8];
    kmov_mem(e, 0x91, k, m);
    snprintf(name, sizeof name, "k%d", k);
    say_mem(e, "kmovq", name, &m, 8, true);
}
void x64_kortest(x64 *e, int w, int a, int b)
{
    x64_rm rm = reg_rm(b);
    vex(e, k_pp(w), 1, k_w(w), 0, a, 0, &rm);
    byte(e, 0x98);
    modrm(e, a, &rm, 1, 0);
    SAY("kortest%c k%d, k%d", kw[w], a, b);
}

/* --- tiles
 * ---------------------------------------------------------------------------------------------------- */
static void tile_op(x64 *e, int pp, int op, int reg, int vvvv, const x64_rm *rm)
{
    vex(e, pp, 2, 0, 0, reg, vvvv, rm);
    byte(e, (unsigned)op);
    modrm(e, reg, rm, 1, 0);
}
void x64_tile_config(x64 *e, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    tile_op(e, 0, 0x49, 0, 0, &rm);
    if (e->text) {
        strbuf_add(e->text, "    ldtilecfg ");
        mem_text(e->text, &m, 0, 0);
        strbuf_addc(e->text, '\n');
    }
}
void x64_tile_release(x64 *e)
{
    x64_rm rm = reg_rm(0);
    tile_op(e, 0, 0x49, 0, 0, &rm);
    SAY("tilerelease");
}
void x64_tile_zero(x64 *e, int t)
{
    x64_rm rm = reg_rm(0);
    tile_op(e, 3, 0x49, t, 0, &rm);
    SAY("tilezero tmm%d", t);
}
static void tile_mem(x64 *e, bool store, int t, x64_mem m)
{
    x64_rm rm = mem_rm(m);
    char name[8];
    assert(m.index != X64_NOREG && m.scale == 1);
    tile_op(e, store ? 2 : 3, 0x4b, t, 0, &rm);
    snprintf(name, sizeof name, "tmm%d", t);
    say_mem(e, store ? "tilestored" : "tileloadd", name, &m, 0, store);
}
void x64_tile_load(x64 *e, int t, x64_mem m) { tile_mem(e, false, t, m); }
void x64_tile_store(x64 *e, x64_mem m, int t) { tile_mem(e, true, t, m); }
void x64_tile_dot(x64 *e, x64_tdp op, int dst, int a, int b)
{
    x64_rm rm = reg_rm(a);
    tile_op(e, op == TDP_bf16ps ? 2 : 3, op == TDP_bf16ps ? 0x5c : 0x5e, dst, b, &rm);
    SAY("%s tmm%d, tmm%d, tmm%d", op == TDP_bf16ps ? "tdpbf16ps" : "tdpbssd", dst, a, b);
}

/* --- finishing
 * ----------------------------------------------------------------------------------------------- */
bool x64_link(x64 *e, size_t const_at)
{
    bool ok = true;
    for (size_t i = 0; i < e->nfix; i++) {
        const x64_fix *f = &e->fix[i];
        int64_t to = f->is_const ? (int64_t)const_at + f->target : e->label[f->target];
        int32_t rel = (int32_t)(to - (int64_t)(f->at + 4 + f->after));
        memcpy(e->code + f->at, &rel, 4);
        ok &= to >= 0;
    }
    return ok;
}
void x64_reset(x64 *e) { e->n = e->nfix = e->nlabel = 0; }
void x64_free(x64 *e)
{
    free(e->code);
    free(e->fix);
    free(e->label);
    *e = (x64){ 0 };
}
