/* regalloc.c - machine instructions: building the list, linear-scan register allocation, final bytes. */
#include "target/x64/mir.h"
#include "base/map.h"

/* rax, rcx, rdx, r11 stay free for spilled operands and fixed-register instructions; rbp is the frame
 * pointer. */
static const int8_t gprs[] = { RBX, RSI, RDI, R8, R9, R10, R12, R13, R14, R15 };
enum { NSCRATCH = 3, KSCRATCH = 7 };

static void *grown(arena *a, void *old, int n, int *cap, size_t size)
{
    if (n < *cap)
        return old;
    int ncap = *cap ? *cap * 2 : 256;
    void *p = arena_alloc(a, size * (size_t)ncap);
    if (old)
        memcpy(p, old, size * (size_t)n);
    *cap = ncap;
    return p;
}

/* --- building
 * ------------------------------------------------------------------------------------------------ */
int mir_vreg(mir *m, int cls)
{
    if (!m->nv)
        m->nv = 1;
    m->v = grown(m->a, m->v, m->nv, &m->capv, sizeof *m->v);
    m->v[m->nv] = (vreg){ .cls = (uint8_t)cls, .reg = -1, .start = -1, .endloop = -1 };
    return m->nv++;
}

static const float depth_weight[] = { 1, 8, 64, 512, 4096 };

static void touch(mir *m, int r, int at, float w)
{
    if (r <= 0)
        return;
    vreg *v = &m->v[r];
    assert(v->start >= 0);
    v->end = at;
    v->weight += w;
    if (m->depth > v->depth)
        v->endloop = m->stack[v->depth]; /* live around the outermost loop entered since its definition */
}

mi *mir_add(mir *m, mi i)
{
    m->code = grown(m->a, m->code, m->n, &m->cap, sizeof *m->code);
    float w = depth_weight[MIN(m->depth, 4)];
    touch(m, i.s1, m->n, w);
    touch(m, i.s2, m->n, w);
    touch(m, i.s3, m->n, w);
    touch(m, i.k, m->n, w);
    touch(m, i.base, m->n, w);
    touch(m, i.index, m->n, w);
    if (i.d) {
        vreg *v = &m->v[i.d];
        if (v->start < 0)
            v->start = v->end = m->n, v->depth = m->depth, v->weight = w;
        else
            touch(m, i.d, m->n, w);
    }
    m->code[m->n] = i;
    return &m->code[m->n++];
}

static int const_add(mir *m, const void *bytes, int n, int align)
{
    int at = (m->npool + align - 1) & -align;
    while (at + n > m->cappool) {
        int cap = m->cappool ? m->cappool * 2 : 1024;
        uint8_t *p = arena_zalloc(m->a, (size_t)cap);
        if (m->npool)
            memcpy(p, m->pool, (size_t)m->npool);
        m->pool = p, m->cappool = cap;
    }
    memcpy(m->pool + at, bytes, (size_t)n);
    m->npool = at + n;
    return at;
}

static int const_vreg(mir *m, int slot, int kind, bool wide)
{
    int r = mir_vreg(m, CLASS_v);
    vreg *v = &m->v[r];
    v->is_const = (uint8_t)kind, v->wide = wide, v->slot = slot;
    v->start = v->end = 0, v->depth = 0;
    return r;
}

/* Constants: 1 one element (AVX-512 broadcasts it in the instruction), 2 the same written out in full, 3 any
 * vector. */
int mir_const(mir *m, uint64_t bits, bool wide)
{
    uint32_t h = (uint32_t)(hash_u64(bits + wide) & 255);
    for (int r = m->chash[h]; r; r = m->v[r].next)
        if (m->v[r].is_const != 3 && m->v[r].wide == wide &&
            !memcmp(m->pool + m->v[r].slot, &bits, wide ? 8 : 4))
            return r;
    uint8_t full[32];
    for (int i = 0; i < 32; i += wide ? 8 : 4)
        memcpy(full + i, &bits, wide ? 8 : 4);
    int at = m->avx512 ? const_add(m, &bits, wide ? 8 : 4, wide ? 8 : 4) : const_add(m, full, 32, 32);
    int r = const_vreg(m, at, m->avx512 ? 1 : 2, wide);
    m->v[r].next = m->chash[h];
    m->chash[h] = r;
    return r;
}
int mir_const_vec(mir *m, const void *bytes, int n)
{
    uint32_t h = (uint32_t)(hash_bytes(bytes, (size_t)n, 1) & 255);
    for (int r = m->chash[h]; r; r = m->v[r].next)
        if (m->v[r].is_const == 3 && m->v[r].wide == n && !memcmp(m->pool + m->v[r].slot, bytes, (size_t)n))
            return r;
    int r = const_vreg(m, const_add(m, bytes, n, n), 3, false);
    m->v[r].wide = (uint8_t)n; /* its length */
    m->v[r].next = m->chash[h];
    m->chash[h] = r;
    return r;
}

int mir_label(mir *m) { return m->nlabels++; }
void mir_loop_begin(mir *m)
{
    m->loops = grown(m->a, m->loops, m->nloops, &m->caploops, sizeof *m->loops);
    m->stack[m->depth++] = m->nloops++;
}
void mir_loop_end(mir *m) { m->loops[m->stack[--m->depth]].end = m->n - 1; }

/* What may change places with instructions of the other piece: no branches, no flags that somebody reads later, nothing that
 * writes to memory by way of the frame. */
static bool zips(const mi *i)
{
    static const uint64_t kinds = 1ull << MI_vec | 1ull << MI_fma | 1ull << MI_blend | 1ull << MI_gather |
                                  1ull << MI_movv | 1ull << MI_k3 | 1ull << MI_knot | 1ull << MI_kfrom |
                                  1ull << MI_kto | 1ull << MI_movd | 1ull << MI_movd_from |
                                  1ull << MI_bcastg | 1ull << MI_gmov | 1ull << MI_gimm | 1ull << MI_gload |
                                  1ull << MI_glea | 1ull << MI_galu | 1ull << MI_galui | 1ull << MI_gimul |
                                  1ull << MI_gimuli | 1ull << MI_gshift | 1ull << MI_gsx;
    return (kinds >> i->kind & 1) && i->base != MB_FRAME;
}

static void mi_regs(const mi *i, int32_t r[7])
{
    const int32_t all[7] = { i->d, i->s1, i->s2, i->s3, i->k, i->base, i->index };
    memcpy(r, all, sizeof all);
}

/* Most vector registers that [a, b) needs at one time for what it makes itself, and those it reads or changes of others
 * (constants apart, which memory can hold). */
static int pressure(const mir *m, int a, int b, int *others)
{
    int live = 0, most = 0;
    int32_t r[7];
    *others = 0;
    int32_t *seen = arena_zalloc(m->a, sizeof *seen * (size_t)m->nv);
    for (int i = b - 1; i >= a; i--) { /* backwards: a value lives from its last use up to its definition */
        mi_regs(&m->code[i], r);
        for (int x = 0; x < 7; x++) {
            const vreg *v = r[x] > 0 ? &m->v[r[x]] : NULL;
            if (!v || v->cls != CLASS_v || v->is_const || seen[r[x]])
                continue;
            seen[r[x]] = 1;
            if (v->start >= a)
                live++;
            else
                ++*others;
        }
        most = MAX(most, live);
        if (m->code[i].d > 0 && m->v[m->code[i].d].start == i && m->v[m->code[i].d].cls == CLASS_v)
            live--;
    }
    return most;
}

void mir_zip(mir *m, int a, int b, int copies)
{
    int n = m->n - a, na = b - a, at = a, j = 0, others;
    int32_t r[7];
    if (n < 24) /* the processor sees that far itself */
        return;
    for (int i = a; i < m->n; i++)
        if (!zips(&m->code[i]))
            return;
    int one = pressure(m, a, b, &others);
    if (2 * one + copies * others > (m->avx512 ? 32 : 16))
        return;
    mi *old = arena_alloc(m->a, sizeof *old * (size_t)n);
    int32_t(*last)[2] = arena_zalloc(
        m->a, sizeof *last * (size_t)m->nv); /* 1 + place in the first piece: written, touched */
    memcpy(old, m->code + a, sizeof *old * (size_t)n);
    for (int i = 0; i < n; i++) {
        mi_regs(&old[i], r);
        for (int x = 0; x < 7; x++) {
            if (r[x] <= 0)
                continue;
            vreg *v = &m->v[r[x]];
            if (v->start >= a)
                v->start = -1;
            v->end = MIN(v->end, a);
            if (i < na)
                last[r[x]][1] = i + 1;
        }
        if (i < na && old[i].d)
            last[old[i].d][0] = i + 1;
    }
    for (int i = 0; i <= na; i++) { /* i instructions of the first piece are written */
        for (int some = 0; j < n - na && (some < 2 || i == na) && (j < i || i == na); some++) {
            const mi *x = &old[na + j];
            int need = x->d ? last[x->d][1] : 0;
            mi_regs(x, r);
            for (int y = 0; y < 7; y++)
                need = r[y] > 0 ? MAX(need, last[r[y]][0]) : need;
            if (need > i)
                break;
            m->code[at++] = *x;
            j++;
        }
        if (i < na)
            m->code[at++] = old[i];
    }
    assert(at == m->n);
    for (int i = a; i < m->n; i++) {
        mi_regs(&m->code[i], r);
        for (int x = 0; x < 7; x++) {
            if (r[x] <= 0)
                continue;
            vreg *v = &m->v[r[x]];
            if (v->start < 0)
                v->start = i;
            v->end = MAX(v->end, i);
        }
    }
}

/* --- allocation
 * ---------------------------------------------------------------------------------------------- */
typedef struct pool {
    uint32_t all, open; /* registers of the class; those free now */
    int32_t held[32];   /* by register: who lives there */
} pool;

static float cost(const vreg *v)
{
    return (v->is_const ? 0.3f : 1.0f) * v->weight / (float)(v->end - v->start + 4);
}

/* The place for v: a free register (a hinted one first), or that of the cheapest holder, which goes to the
 * stack. */
static void place(mir *m, pool *p, int r, const int *hints)
{
    int best = p->open ? __builtin_ctz(p->open) : -1;
    for (int h = 0; h < 3 && p->open; h++) {
        const vreg *v = &m->v[hints[h] > 0 ? hints[h] : 0];
        if (hints[h] > 0 && v->cls == m->v[r].cls && v->reg >= 0 && (p->open >> v->reg & 1)) {
            best = v->reg;
            break;
        }
    }
    if (best < 0) {
        float low = cost(&m->v[r]);
        for (uint32_t left = p->all; left; left &= left - 1) {
            int i = __builtin_ctz(left);
            float c = cost(&m->v[p->held[i]]);
            if (c < low)
                low = c, best = i;
        }
        if (best < 0)
            return; /* v itself is the cheapest to keep in memory */
        m->v[p->held[best]].reg = -1;
    }
    p->open &= ~(1u << best);
    p->held[best] = r;
    m->v[r].reg = (int8_t)best;
}

/* Frame slots for what stays in memory; a slot serves again when its value is dead. Returns the frame's size. */
static int place_spills(mir *m, const int32_t *head)
{
    int frame = AREA_SPILL, nfree[2] = { 0, 0 }, spilled = 0;
    for (int r = 1; r < m->nv; r++)
        spilled += m->v[r].reg < 0;
    int32_t *ends = arena_zalloc(m->a, sizeof *ends * (size_t)(m->n + 1)); /* values by their last position */
    int32_t *after = arena_zalloc(m->a, sizeof *after * (size_t)m->nv);
    int32_t *slots[2] = { arena_alloc(m->a, sizeof(int32_t) * (size_t)(spilled + 1)),
                          arena_alloc(m->a, sizeof(int32_t) * (size_t)(spilled + 1)) };
    for (int at = 0; at < m->n; at++) {
        for (int r = head[at]; r; r = m->v[r].next) {
            vreg *v = &m->v[r];
            if (v->reg >= 0 || v->is_const)
                continue;
            int kind = v->cls == CLASS_v, size = kind ? (m->avx512 ? 64 : 32) : 8;
            if (nfree[kind]) {
                v->slot = slots[kind][--nfree[kind]];
            } else {
                frame = (frame + size - 1) & -size;
                v->slot = frame;
                frame += size;
            }
            after[r] = ends[v->end];
            ends[v->end] = r;
        }
        for (int r = ends[at]; r; r = after[r]) /* free from the next instruction on */
            slots[m->v[r].cls == CLASS_v][nfree[m->v[r].cls == CLASS_v]++] = m->v[r].slot;
    }
    return (frame + 63) & -64;
}

int x64_allocate(mir *m)
{
    pool pools[3] = { 0 };
    pools[CLASS_v].all = m->avx512 ? (1u << (32 - NSCRATCH)) - 1 : (1u << (16 - NSCRATCH)) - 1;
    for (size_t i = 0; i < COUNT(gprs); i++)
        pools[CLASS_g].all |= 1u << gprs[i];
    pools[CLASS_k].all = (1u << KSCRATCH) - 2;
    for (int c = 0; c < 3; c++)
        pools[c].open = pools[c].all;
    int32_t *head = arena_zalloc(m->a, sizeof *head * (size_t)(m->n + 1)); /* values by first position */
    int32_t *ends = arena_zalloc(m->a,
                                 sizeof *ends * (size_t)(m->n + 2)); /* by the position that frees them */
    int32_t *after = arena_alloc(m->a, sizeof *after * (size_t)(m->nv + 1));
    for (int r = m->nv - 1; r > 0; r--) {
        vreg *v = &m->v[r];
        if (v->start < 0)
            continue;
        if (v->endloop >= 0)
            v->end = MAX(v->end, m->loops[v->endloop].end);
        v->next = head[v->start];
        head[v->start] = r;
        int at = v->end +
                 (v->end == v->start); /* a result nobody reads still needs a place while it is made */
        after[r] = ends[at];
        ends[at] = r;
    }
    for (int at = 0; at < m->n; at++) {
        for (int r = ends[at]; r; r = after[r]) {
            const vreg *v = &m->v[r];
            if (v->reg >= 0 && pools[v->cls].held[v->reg] == r)
                pools[v->cls].open |= 1u << v->reg;
        }
        if (!head[at])
            continue;
        const mi *i = &m->code[at];
        const int hints[3] = { i->s3, i->s1, i->s2 };
        for (int r = head[at]; r; r = m->v[r].next)
            place(m, &pools[m->v[r].cls], r, hints);
    }
    return place_spills(m, head);
}

/* --- bytes
 * --------------------------------------------------------------------------------------------------- */
typedef struct enc {
    mir *m;
    x64 *e;
    int vs; /* first vector scratch register */
} enc;

static x64_mem slot_mem(int off) { return (x64_mem){ RSP, X64_NOREG, 1, off }; }
static x64_mem pool_mem(int off) { return (x64_mem){ X64_RIP, X64_NOREG, 1, off }; }

static void vec_load(enc *c, int reg, const vreg *v, int vl)
{
    x64_v i = { .op = XV_movups_l, .vl = (int8_t)vl, .dst = (int8_t)reg, .rm.is_mem = true };
    if (v->is_const == 1) {
        i.op = v->wide ? XV_bcastsd : XV_bcastss;
        if (v->wide && vl == 0)
            i.vl = 1;
    }
    i.rm.m = v->is_const ? pool_mem(v->slot) : slot_mem(v->slot);
    x64_vec(c->e, &i);
}

static int full_vl(const enc *c) { return c->m->avx512 ? 2 : 1; }

/* The register holding r, loaded into scratch number s when it is in memory. */
static int vsrc(enc *c, int r, int s)
{
    const vreg *v = &c->m->v[r];
    if (v->reg >= 0)
        return v->reg;
    vec_load(c, c->vs + s, v, full_vl(c));
    return c->vs + s;
}
static int vdst(enc *c, int r, int s) { return c->m->v[r].reg >= 0 ? c->m->v[r].reg : c->vs + s; }
static void vdone(enc *c, int r, int reg)
{
    const vreg *v = &c->m->v[r];
    x64_v i = { .op = XV_movups_s, .vl = (int8_t)full_vl(c), .dst = (int8_t)reg };
    if (v->reg >= 0)
        return;
    i.rm = (x64_rm){ .is_mem = true, .m = slot_mem(v->slot) };
    x64_vec(c->e, &i);
}
static void vmove(enc *c, int dst, int src)
{
    if (dst != src)
        x64_vec(
            c->e,
            &(x64_v){ .op = XV_movaps, .vl = (int8_t)full_vl(c), .dst = (int8_t)dst, .rm.reg = (int8_t)src });
}

static int gsrc(enc *c, int r, int scratch)
{
    const vreg *v = &c->m->v[r];
    if (v->reg >= 0)
        return v->reg;
    x64_load(c->e, scratch, slot_mem(v->slot));
    return scratch;
}
static int gdst(enc *c, int r) { return c->m->v[r].reg >= 0 ? c->m->v[r].reg : RAX; }
static void gdone(enc *c, int r, int reg)
{
    const vreg *v = &c->m->v[r];
    if (v->reg < 0)
        x64_store(c->e, slot_mem(v->slot), reg);
    else if (v->reg != reg)
        x64_mov(c->e, v->reg, reg);
}

static int ksrc(enc *c, int r)
{
    const vreg *v = &c->m->v[r];
    if (!r)
        return 0;
    if (v->reg >= 0)
        return v->reg;
    x64_kmov_load(c->e, KSCRATCH, slot_mem(v->slot));
    return KSCRATCH;
}
static int kdst(enc *c, int r) { return c->m->v[r].reg >= 0 ? c->m->v[r].reg : KSCRATCH; }
static void kdone(enc *c, int r, int reg)
{
    if (c->m->v[r].reg < 0)
        x64_kmov_store(c->e, slot_mem(c->m->v[r].slot), reg);
}

static x64_mem address(enc *c, const mi *i)
{
    if (i->base == MB_FRAME)
        return slot_mem(i->disp);
    if (i->base == MB_CONST)
        return pool_mem(i->disp);
    x64_mem m = { (int8_t)gsrc(c, i->base, R11), X64_NOREG, i->scale ? i->scale : 1, i->disp };
    if (i->index > 0 && c->m->v[i->index].cls == CLASS_g)
        m.index = (int8_t)gsrc(c, i->index, RCX);
    return m;
}

static bool is_shift_imm(x64_vop op) { return op >= XV_pslldi && op <= XV_psraqi; }

/* r as the last operand of a row: register, spill slot, pool vector or pool broadcast. */
static x64_rm rm_of(enc *c, x64_vop op, int r, int scratch, bool *bcast)
{
    const vreg *v = &c->m->v[r];
    x64_rm rm = { .reg = v->reg };
    if (v->reg >= 0)
        return rm;
    bool narrow = op == XV_movaps || op == XV_extracti128 || op == XV_inserti128 || is_shift_imm(op) ||
                  (op >= XV_bcastss && op <= XV_pbcastq) || (op >= XV_extracti32x4 && op <= XV_inserti64x4) ||
                  (op >= XV_cvtdq2ps && op <= XV_pmovdb);
    if (v->is_const == 1 && !narrow && x64_may_bcast(op) && x64_is_wide(op) == v->wide) {
        *bcast = true;
        return (x64_rm){ .is_mem = true, .m = pool_mem(v->slot) };
    }
    if (v->is_const == 1 || narrow) {
        vec_load(c, c->vs + scratch, v, full_vl(c));
        return (x64_rm){ .reg = (int8_t)(c->vs + scratch) };
    }
    return (x64_rm){ .is_mem = true, .m = v->is_const ? pool_mem(v->slot) : slot_mem(v->slot) };
}

static void enc_vec(enc *c, const mi *i)
{
    x64_v v = { .op = (x64_vop)i->vop, .vl = i->vl, .z = i->z, .imm = (uint8_t)i->imm };
    bool kdest = v.op >= XV_kcmpps && v.op <= XV_kcmpud;
    v.k = (int8_t)ksrc(c, i->k);
    if (i->mem && !i->d) { /* store: s1 is the data, s2 an AVX2 mask */
        v.dst = (int8_t)vsrc(c, i->s1, 0);
        v.src1 = (int8_t)(i->s2 ? vsrc(c, i->s2, 1) : 0);
        v.rm = (x64_rm){ .is_mem = true, .m = address(c, i) };
        x64_vec(c->e, &v);
        return;
    }
    if (x64_dst_is_rm(v.op)) { /* register to register: dst is rm */
        int d = vdst(c, i->d, 0);
        v.dst = (int8_t)vsrc(c, i->s1, 1);
        v.rm.reg = (int8_t)d;
        x64_vec(c->e, &v);
        vdone(c, i->d, d);
        return;
    }
    int d = kdest ? kdst(c, i->d) : vdst(c, i->d, 0);
    if (i->dread && !kdest && c->m->v[i->d].reg < 0)
        vec_load(c, d, &c->m->v[i->d], full_vl(c));
    v.dst = (int8_t)d;
    if (i->s1)
        v.src1 = (int8_t)vsrc(c, i->s1, 1);
    if (i->mem)
        v.rm = (x64_rm){ .is_mem = true, .m = address(c, i) }, v.bcast = i->bcast;
    else if (i->s2)
        v.rm = rm_of(c, v.op, i->s2, 2, &v.bcast);
    x64_vec(c->e, &v);
    if (kdest)
        kdone(c, i->d, d);
    else
        vdone(c, i->d, d);
}

static bool in_reg(const enc *c, int r) { return c->m->v[r].reg >= 0; }

static void enc_fma(enc *c, const mi *i)
{
    x64_vop f231 = (x64_vop)i->vop, f213 = i->wide ? XV_fma213pd : XV_fma213ps,
            f132 = i->wide ? XV_fma132pd : XV_fma132ps;
    int a = i->s1, b = i->s2, z = i->s3, d = vdst(c, i->d, 0);
    x64_v v = { .vl = i->vl, .dst = (int8_t)d };
    if (!in_reg(c, a) && in_reg(c, b)) {
        int t = a;
        a = b, b = t;
    }
    int ra = c->m->v[a].reg, rb = c->m->v[b].reg, rz = c->m->v[z].reg;
    if (rz == d && rz >= 0) { /* d = a * b + d */
        v.op = f231, v.src1 = (int8_t)vsrc(c, a, 1), v.rm = rm_of(c, v.op, b, 2, &v.bcast);
    } else if (ra == d && ra >= 0) {
        if (rb >= 0)
            v.op = f213, v.src1 = (int8_t)rb, v.rm = rm_of(c, v.op, z, 2, &v.bcast); /* d = b * d + z */
        else
            v.op = f132, v.src1 = (int8_t)vsrc(c, z, 1),
            v.rm = rm_of(c, v.op, b, 2, &v.bcast); /* d = d * b + z */
    } else if (rb == d && rb >= 0) {               /* a is in a register here */
        v.op = f213, v.src1 = (int8_t)vsrc(c, a, 1), v.rm = rm_of(c, v.op, z, 2, &v.bcast);
    } else if (rz >= 0) {
        vmove(c, d, rz);
        v.op = f231, v.src1 = (int8_t)vsrc(c, a, 1), v.rm = rm_of(c, v.op, b, 2, &v.bcast);
    } else if (rb >= 0) { /* z in memory, a and b in registers */
        vmove(c, d, vsrc(c, a, 0));
        v.op = f213, v.src1 = (int8_t)rb, v.rm = rm_of(c, v.op, z, 2, &v.bcast);
    } else {
        vec_load(c, d, &c->m->v[z], full_vl(c));
        v.op = f231, v.src1 = (int8_t)vsrc(c, a, 1), v.rm = rm_of(c, v.op, b, 2, &v.bcast);
    }
    x64_vec(c->e, &v);
    vdone(c, i->d, d);
}

static void enc_blend(enc *c, const mi *i)
{
    int d = vdst(c, i->d, 0);
    x64_v v = { .vl = i->vl, .dst = (int8_t)d };
    if (c->m->avx512) {
        v.op = i->wide ? XV_blendmpd : XV_blendmps;
        v.k = (int8_t)ksrc(c, i->s3);
        v.src1 = (int8_t)vsrc(c, i->s1, 1);
        v.rm = rm_of(c, v.op, i->s2, 2, &v.bcast);
    } else {
        v.op = i->wide ? XV_blendvpd : XV_blendvps;
        v.src3 = (int8_t)vsrc(c, i->s3, 0);
        v.src1 = (int8_t)vsrc(c, i->s1, 1);
        v.rm = rm_of(c, v.op, i->s2, 2, &v.bcast);
    }
    x64_vec(c->e, &v);
    vdone(c, i->d, d);
}

/* Destination, index and mask are different registers here whatever the allocator chose: the mask is
 * consumed, and a destination that shares the index's register goes through scratch. */
static void enc_gather(enc *c, const mi *i)
{
    int d = vdst(c, i->d, 0), idx = vsrc(c, i->s1, 1), into = d == idx ? c->vs : d;
    x64_v v = { .op = (x64_vop)i->vop, .vl = i->vl, .dst = (int8_t)into };
    v.rm = (x64_rm){ .is_mem = true, .m = address(c, i) };
    v.rm.m.index = (int8_t)idx, v.rm.m.scale = i->scale;
    x64_v zero = {
        .op = XV_xorps, .vl = 1, .dst = (int8_t)into, .src1 = (int8_t)into, .rm.reg = (int8_t)into
    };
    if (c->m->avx512) {
        if (i->s3)
            x64_kmov(c->e, KSCRATCH, ksrc(c, i->s3));
        else
            x64_k3(c->e, K_xnor, 1, KSCRATCH, KSCRATCH, KSCRATCH);
        v.k = KSCRATCH;
        zero.vl = 2;
    } else {
        int k = c->vs + 2;
        if (i->s3)
            vmove(c, k, vsrc(c, i->s3, 2));
        else
            x64_vec(
                c->e,
                &(x64_v){
                    .op = XV_pcmpeqd, .vl = 1, .dst = (int8_t)k, .src1 = (int8_t)k, .rm.reg = (int8_t)k });
        v.src1 = (int8_t)k;
    }
    x64_vec(c->e, &zero);
    x64_vec(c->e, &v);
    if (into != d)
        vmove(c, d, into);
    vdone(c, i->d, d);
}

static bool commutes(int op) { return op != G_sub && op != G_sbb; }

static void enc_alu(enc *c, const mi *i)
{
    int d = gdst(c, i->d), a = gsrc(c, i->s1, RAX), b = gsrc(c, i->s2, RCX);
    if (d == b && d != a) {
        if (commutes((int)i->imm) || i->kind == MI_gimul) {
            int t = a;
            a = b, b = t;
        } else {
            x64_mov(c->e, RCX, b);
            b = RCX;
        }
    }
    if (d != a)
        x64_mov(c->e, d, a);
    if (i->kind == MI_gimul)
        x64_imul(c->e, d, b);
    else
        x64_alu_rr(c->e, (x64_alu)i->imm, d, b);
    gdone(c, i->d, d);
}

/* Division with every corner defined. imm: 0 divt, 1 divf, 2 modt, 3 modf; wide: 64-bit. */
static void enc_div(enc *c, const mi *i)
{
    x64 *e = c->e;
    int zero = x64_label(e), minus = x64_label(e), done = x64_label(e), back = x64_label(e);
    int b = gsrc(c, i->s2, RCX), a = gsrc(c, i->s1, RAX);
    if (b != RCX)
        x64_mov(e, RCX, b);
    if (a != RAX)
        x64_mov(e, RAX, a);
    x64_test(e, RCX, RCX);
    x64_jcc(e, CC_e, zero);
    x64_alu_ri(e, G_cmp, RCX, -1);
    x64_jcc(e, CC_e, minus);
    x64_cqo(e);
    x64_unary(e, 7, RCX);
    if (i->imm & 1) {
        x64_test(e, RDX, RDX);
        x64_jcc(e, CC_e, done);
        x64_alu_rr(e, G_xor, RDX, RCX);
        x64_jcc(e, CC_ns, back);
        x64_alu_rr(e, G_xor, RDX, RCX);
        x64_alu_ri(e, G_sub, RAX, 1);
        x64_alu_rr(e, G_add, RDX, RCX);
        x64_jmp(e, done);
        x64_place(e, back);
        x64_alu_rr(e, G_xor, RDX, RCX);
    }
    x64_jmp(e, done);
    x64_place(e, zero);
    x64_mov(e, RDX, RAX);
    x64_imm(e, RAX, 0);
    x64_jmp(e, done);
    x64_place(e, minus);
    x64_unary(e, 3, RAX);
    if (!i->wide)
        x64_movsxd(e, RAX, RAX);
    x64_imm(e, RDX, 0);
    x64_place(e, done);
    gdone(c, i->d, i->imm >= 2 ? RDX : RAX);
}

/* Memory lane by lane: data in AREA0 (element size vl), indices in AREA1 (size scale, 0: none). s1: address
 * of lane 0 (or of index 0), s2: bytes between lanes (0: disp is that number), s3: general register with the
 * mask's bits. imm: 0 load, 1 store, 2 add integers, 3 add floats. */
static void enc_lanes(enc *c, const mi *i)
{
    x64 *e = c->e;
    int size = i->vl, base = gsrc(c, i->s1, R11), step = i->s2 ? gsrc(c, i->s2, RAX) : 0, s = c->vs;
    if (i->s2) {
        x64_mov(e, RCX, base);
        if (step == RAX) { /* spilled: keep it in AREA_CALL's place and add from there */
            x64_store(e, slot_mem(AREA_CALL), RAX);
        }
    }
    if (i->s3) {
        int k = gsrc(c, i->s3, RDX);
        if (k != RDX)
            x64_mov(e, RDX, k);
    }
    for (int lane = 0; lane < c->m->L; lane++) {
        int skip = x64_label(e);
        x64_mem at = { (int8_t)base, X64_NOREG, 1, lane * i->disp }, mine = slot_mem(AREA0 + lane * size);
        if (i->s3) {
            x64_bt(e, RDX, lane);
            x64_jcc(e, CC_ae, skip);
        }
        if (i->scale) {
            x64_load_n(e, RCX, slot_mem(AREA1 + lane * i->scale), i->scale, true);
            at = (x64_mem){ (int8_t)base, RCX, (int8_t)size, 0 };
        } else if (i->s2) {
            at = (x64_mem){ RCX, X64_NOREG, 1, 0 };
        }
        if (i->imm == 0) {
            x64_load_n(e, RAX, at, size, false);
            x64_store_n(e, mine, RAX, size);
        } else if (i->imm == 1) {
            x64_load_n(e, RAX, mine, size, false);
            x64_store_n(e, at, RAX, size);
        } else {
            x64_vop ld = size == 8 ? XV_movsd_l : XV_movss_l, st = size == 8 ? XV_movsd_s : XV_movss_s;
            x64_vop add = i->imm == 3 ? (size == 8 ? XV_addpd : XV_addps) : (size == 8 ? XV_paddq : XV_paddd);
            x64_v v = { .op = ld, .dst = (int8_t)s, .rm = { .is_mem = true, .m = at } };
            x64_vec(e, &v);
            v.dst = (int8_t)(s + 1), v.rm.m = mine;
            x64_vec(e, &v);
            x64_vec(e, &(x64_v){ .op = add, .dst = (int8_t)s, .src1 = (int8_t)s, .rm.reg = (int8_t)(s + 1) });
            v = (x64_v){ .op = st, .dst = (int8_t)s, .rm = { .is_mem = true, .m = at } };
            x64_vec(e, &v);
        }
        x64_place(e, skip);
        if (i->s2 && step == RAX)
            x64_alu_rm(e, G_add, RCX, slot_mem(AREA_CALL));
        else if (i->s2)
            x64_alu_rr(e, G_add, RCX, step);
    }
}

static void enc_one(enc *c, const mi *i)
{
    x64 *e = c->e;
    int d, a;
    switch ((mi_kind)i->kind) {
    case MI_vec: enc_vec(c, i); break;
    case MI_fma: enc_fma(c, i); break;
    case MI_blend: enc_blend(c, i); break;
    case MI_gather: enc_gather(c, i); break;
    case MI_movv:
        if (c->m->v[i->d].cls == CLASS_k) {
            d = kdst(c, i->d), a = ksrc(c, i->s1);
            if (d != a)
                x64_kmov(e, d, a);
            kdone(c, i->d, d);
        } else {
            d = vdst(c, i->d, 0), a = in_reg(c, i->s1) ? c->m->v[i->s1].reg : d;
            if (a == d && !in_reg(c, i->s1))
                vec_load(c, d, &c->m->v[i->s1], full_vl(c));
            vmove(c, d, a);
            vdone(c, i->d, d);
        }
        break;
    case MI_k3: /* a second spilled operand goes through a general register and k7's neighbour: keep one in k0
                 */
        d = kdst(c, i->d);
        a = c->m->v[i->s1].reg;
        if (a < 0) {
            x64_kmov_load(e, 0, slot_mem(c->m->v[i->s1].slot));
            a = 0;
        }
        x64_k3(e, (x64_kop)i->imm, i->vl, d, a, ksrc(c, i->s2));
        kdone(c, i->d, d);
        break;
    case MI_knot:
        d = kdst(c, i->d);
        x64_knot(e, i->vl, d, ksrc(c, i->s1));
        kdone(c, i->d, d);
        break;
    case MI_kfrom:
        d = kdst(c, i->d);
        x64_kmov_from_gpr(e, i->vl, d, gsrc(c, i->s1, RAX));
        kdone(c, i->d, d);
        break;
    case MI_kto:
        d = gdst(c, i->d);
        x64_kmov_to_gpr(e, i->vl, d, ksrc(c, i->s1));
        gdone(c, i->d, d);
        break;
    case MI_kortest:
        a = ksrc(c, i->s1);
        x64_kortest(e, i->vl, a, a);
        break;
    case MI_movd:
        d = vdst(c, i->d, 0);
        x64_movd_to(e, d, gsrc(c, i->s1, RAX), i->wide);
        vdone(c, i->d, d);
        break;
    case MI_movd_from:
        d = gdst(c, i->d);
        x64_movd_from(e, d, vsrc(c, i->s1, 0), i->wide);
        if (!i->wide)
            x64_movsxd(e, d, d);
        gdone(c, i->d, d);
        break;
    case MI_bcastg:
        d = vdst(c, i->d, 0), a = gsrc(c, i->s1, RAX);
        if (c->m->avx512) {
            x64_bcast_gpr(e, i->vl, d, a, i->wide);
        } else {
            x64_movd_to(e, d, a, i->wide);
            x64_vec(e, &(x64_v){ .op = i->wide ? XV_pbcastq : XV_pbcastd,
                                 .vl = i->vl,
                                 .dst = (int8_t)d,
                                 .rm.reg = (int8_t)d });
        }
        vdone(c, i->d, d);
        break;
    case MI_si2: /* cleared first: the instruction merges into its destination */
        d = vdst(c, i->d, 0);
        x64_vec(e, &(x64_v){ .op = XV_xorps, .dst = (int8_t)d, .src1 = (int8_t)d, .rm.reg = (int8_t)d });
        x64_cvtsi2(e, i->wide, d, gsrc(c, i->s1, RAX));
        vdone(c, i->d, d);
        break;
    case MI_2si: /* wide: from double; vl: to 64 bits */
        d = gdst(c, i->d);
        x64_cvtt2si(e, i->wide, d, vsrc(c, i->s1, 0), i->vl);
        if (!i->vl)
            x64_movsxd(e, d, d);
        gdone(c, i->d, d);
        break;
    case MI_movmsk:
        d = gdst(c, i->d);
        x64_movmsk(e, false, i->vl, d, vsrc(c, i->s1, 0));
        gdone(c, i->d, d);
        break;
    case MI_gmov: gdone(c, i->d, gsrc(c, i->s1, RAX)); break;
    case MI_gimm:
        d = gdst(c, i->d);
        x64_imm(e, d, i->imm);
        gdone(c, i->d, d);
        break;
    case MI_gload:
        d = gdst(c, i->d);
        x64_load_n(e, d, address(c, i), i->vl, i->z);
        gdone(c, i->d, d);
        break;
    case MI_gstore: {
        x64_mem m = address(c, i);
        x64_store_n(e, m, gsrc(c, i->s1, RAX), i->vl);
        break;
    }
    case MI_glea:
        d = gdst(c, i->d);
        x64_lea(e, d, address(c, i));
        gdone(c, i->d, d);
        break;
    case MI_galu:
    case MI_gimul: enc_alu(c, i); break;
    case MI_galui:
        d = gdst(c, i->d), a = gsrc(c, i->s1, RAX);
        if (d != a)
            x64_mov(e, d, a);
        x64_alu_ri(e, (x64_alu)i->vop, d, (int32_t)i->imm);
        gdone(c, i->d, d);
        break;
    case MI_gimuli:
        d = gdst(c, i->d);
        x64_imul_i(e, d, gsrc(c, i->s1, RAX), (int32_t)i->imm);
        gdone(c, i->d, d);
        break;
    case MI_gshift:
        d = gdst(c, i->d), a = gsrc(c, i->s1, RAX);
        if (d != a)
            x64_mov(e, d, a);
        if (i->imm)
            x64_shift_i(e, i->vop, d, (int)i->imm);
        gdone(c, i->d, d);
        break;
    case MI_gshx:
        d = gdst(c, i->d);
        x64_shiftx(e, i->vop, d, gsrc(c, i->s1, RAX), gsrc(c, i->s2, RCX), !i->wide);
        gdone(c, i->d, d);
        break;
    case MI_gun:
        d = gdst(c, i->d), a = gsrc(c, i->s1, RAX);
        if (d != a)
            x64_mov(e, d, a);
        x64_unary(e, i->vop, d);
        gdone(c, i->d, d);
        break;
    case MI_gdiv: enc_div(c, i); break;
    case MI_gsx:
        d = gdst(c, i->d);
        x64_movsxd(e, d, gsrc(c, i->s1, RAX));
        gdone(c, i->d, d);
        break;
    case MI_gbzhi:
        x64_imm(e, RDX, -1);
        d = gdst(c, i->d);
        x64_bzhi(e, d, RDX, gsrc(c, i->s1, RCX));
        gdone(c, i->d, d);
        break;
    case MI_gcmp: a = gsrc(c, i->s1, RAX), x64_alu_rr(e, G_cmp, a, gsrc(c, i->s2, RCX)); break;
    case MI_gcmpi: x64_alu_ri(e, G_cmp, gsrc(c, i->s1, RAX), (int32_t)i->imm); break;
    case MI_gtest: a = gsrc(c, i->s1, RAX), x64_test(e, a, a); break;
    case MI_setcc:
        d = gdst(c, i->d);
        x64_setcc(e, (x64_cc)i->vop, d);
        gdone(c, i->d, d);
        break;
    case MI_cmov:
        d = gdst(c, i->d);
        if (c->m->v[i->d].reg < 0)
            x64_load(e, d, slot_mem(c->m->v[i->d].slot));
        x64_cmov(e, (x64_cc)i->vop, d, gsrc(c, i->s1, RCX));
        gdone(c, i->d, d);
        break;
    case MI_label: x64_place(e, (int)i->imm); break;
    case MI_jmp: x64_jmp(e, (int)i->imm); break;
    case MI_jcc: x64_jcc(e, (x64_cc)i->vop, (int)i->imm); break;
    case MI_lanes: enc_lanes(c, i); break;
    case MI_call: /* s1: general register with the mask; imm: what to do */
        x64_store(e, slot_mem(AREA_MASK), gsrc(c, i->s1, RAX));
        x64_imm(e, RAX, i->imm);
        x64_store(e, slot_mem(AREA_CALL), RAX);
        x64_lea(e, RDX, slot_mem(0));
        x64_addr(e, RAX, (const void *)(uintptr_t)x64_helper(c->m->avx512), "helper");
        x64_call(e, RAX);
        break;
    }
}

static const int8_t saved[] = { RBX, R12, R13, R14, R15 };

void x64_encode(mir *m, x64 *e, int frame)
{
    enc c = { m, e, m->avx512 ? 32 - NSCRATCH : 16 - NSCRATCH };
    for (int i = 0; i < m->nlabels; i++)
        x64_label(e);
    x64_push(e, RBP);
    x64_mov(e, RBP, RSP);
    for (size_t i = 0; i < COUNT(saved); i++)
        x64_push(e, saved[i]);
    for (int page = 4096; page < frame; page += 4096) /* the stack grows page by page */
        x64_store(e, (x64_mem){ RSP, X64_NOREG, 1, -page }, RAX);
    x64_alu_ri(e, G_sub, RSP, frame);
    x64_alu_ri(e, G_and, RSP, -64);
    static const int8_t args[] = { RDI, RSI, RDX, RCX, R8 };
    for (int i = 0; i < 5; i++)
        x64_store(e, slot_mem(AREA_ARGS + 8 * i), args[i]);
    for (int r = 1; r < m->nv; r++) {
        const vreg *v = &m->v[r];
        uint64_t zero = 0;
        if (!v->is_const || v->reg < 0)
            continue;
        if (v->is_const == 1 && !memcmp(m->pool + v->slot, &zero, v->wide ? 8 : 4))
            x64_vec(e, &(x64_v){ .op = XV_xorps, .vl = 0, .dst = v->reg, .src1 = v->reg, .rm.reg = v->reg });
        else
            vec_load(&c, v->reg, v, full_vl(&c));
    }
    for (int i = 0; i < m->n; i++)
        enc_one(&c, &m->code[i]);
    x64_lea(e, RSP, (x64_mem){ RBP, X64_NOREG, 1, -8 * (int)COUNT(saved) });
    for (int i = (int)COUNT(saved) - 1; i >= 0; i--)
        x64_pop(e, saved[i]);
    x64_pop(e, RBP);
    x64_vzeroupper(e);
    x64_ret(e);
}
