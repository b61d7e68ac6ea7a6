/* ptx_plan.c - see ptx_plan.h. */
#include "target/cuda/ptx_plan.h"

int ptx_buffer_of(const vir *k, const vir_ins *in)
{
    const vir_ins *p = &k->ins[in->a];
    return (int)(p->op == VIR_ptr ? k->ins[p->a].imm : p->imm);
}

bool ptx_is_unit(const vir *k, const vir_ins *in)
{
    const vir_ins *on = in->c ? &k->ins[in->c]
                              : NULL; /* one condition for all lanes, known before the loop */
    return (in->op == VIR_load || in->op == VIR_store) && in->access == VA_unit && !in->add &&
           (!on || (!on->varying && on->region != in->region));
}

int ptx_steps(const loop_facts *f, int vec, int least)
{
    int steps = least, most = f->partials ? 32 : 16;
    while (steps < PTX_VEC && 2 * steps * vec <= most && 2 * steps * vec * f->weight <= 400)
        steps *= 2;
    return steps;
}

/* Elements in a row that a reduction takes at once. */
static int neighbours(const loop_facts *f)
{
    int vec = f->size ? MIN(16 / f->size, f->size == 1 ? 4 : PTX_VEC) : 1;
    while (vec > 1 && vec * f->weight > 400)
        vec /= 2;
    return vec;
}

/* The largest power of two, up to 64, that surely divides an index. */
static int64_t multiple_of(const vir *k, vir_ref r)
{
    const vir_ins *in = &k->ins[r];
    switch (in->op) {
    case VIR_const: return in->imm ? MIN(in->imm & -in->imm, 64) : 64;
    case VIR_mul: return MIN(multiple_of(k, in->a) * multiple_of(k, in->b), 64);
    case VIR_add:
    case VIR_sub: return MIN(multiple_of(k, in->a), multiple_of(k, in->b));
    default: return 1;
    }
}

int ptx_aligned_elements(const vir *k, int loop, int vec)
{
    int64_t all = MIN(multiple_of(k, k->loops[loop].begin), vec);
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || in->region != loop || !ptx_is_unit(k, in))
            continue;
        int64_t off = in->imm / (int64_t)vir_mem_size((vir_mem)in->mem);
        if (k->ins[in->a].op == VIR_ptr)
            all = MIN(all, multiple_of(k, k->ins[in->a].b));
        if (off)
            all = MIN(all, off & -off);
    }
    return (int)all;
}

int ptx_elements(const loop_facts *f)
{
    int per = f->size ? MIN(16 / f->size, f->size == 1 ? 4 : PTX_VEC) : 1;
    while (per > 1 && per * f->weight > 500)
        per /= 2;
    return f->plain && !f->partials && !f->ordered ? per : 1;
}

/* --- rows whose values wait in registers ----- */
/* Values that depend on nothing but their operands. */
static bool repeats(const vir *k, const vir_ins *in)
{
    switch (in->op) {
    case VIR_loop:
    case VIR_store:
    case VIR_red:
    case VIR_step:
    case VIR_fold:
    case VIR_part:
    case VIR_var:
    case VIR_get:
    case VIR_set:
    case VIR_const:
    case VIR_iarg:
    case VIR_farg:
    case VIR_bufptr:
    case VIR_input: return false;
    case VIR_load: return k->bufs[ptx_buffer_of(k, in)].flags == VIR_IN;
    default: return true;
    }
}

static vir_ref root(const vir *k, const row_plan *l, vir_ref r)
{
    const vir_ins *in = &k->ins[r];
    if (in->op == VIR_loopvar && in->imm && k->loops[in->imm].kind == LOOP_vector && in->type == VT_i64)
        return -1; /* of any of the loops: they count alike */
    return l->same[r];
}

static bool equal(const vir *k, const row_plan *l, const vir_ins *x, const vir_ins *y)
{
    if (x->op != y->op || x->type != y->type || x->mem != y->mem || x->access != y->access ||
        (x->imm != y->imm && x->op != VIR_loopvar))
        return false;
    vir_ref a = root(k, l, x->a), b = root(k, l, x->b), c = root(k, l, y->a), d = root(k, l, y->b);
    bool turn = x->op == VIR_add || x->op == VIR_mul;
    return ((a == c && b == d) || (turn && a == d && b == c)) && root(k, l, x->c) == root(k, l, y->c) &&
           root(k, l, x->d) == root(k, l, y->d);
}

/* What was stored is what a load gives. */
static bool stores_exactly(const vir *k, const vir_ins *st)
{
    const vir_ins *v = &k->ins[st->d];
    vir_mem m = (vir_mem)st->mem;
    return m == VM_f64 || m == VM_f32 || m == VM_i64 || m == VM_i32 || m == VM_bool ||
           (v->op == VIR_narrow && v->mem == st->mem);
}

/* Loads of what an earlier loop of the row stored are that value. False: some threads read what others wrote. */
static bool forward(const vir *k, row_plan *l, const vir_ref *order, int n)
{
    for (int b = 0; b < k->nbufs; b++) {
        vir_ref last = 0, at = 0;
        bool all = true;
        if (k->bufs[b].flags != VIR_INOUT)
            continue;
        for (int i = 1; i < k->n; i++) {
            const vir_ins *in = &k->ins[i];
            if (in->dead || (in->op != VIR_load && in->op != VIR_store) || ptx_buffer_of(k, in) != b)
                continue;
            if (!ptx_is_unit(k, in) || in->c || !k->loops[in->region].vector || in->imm ||
                (at && at != in->a))
                return false;
            at = in->a;
        }
        for (int i = 0; i < n; i++) {
            const vir_ins *in = &k->ins[order[i]];
            if ((in->op != VIR_load && in->op != VIR_store) || ptx_buffer_of(k, in) != b)
                continue;
            if (in->op == VIR_store)
                last = order[i];
            else if (last && stores_exactly(k, &k->ins[last]))
                l->same[order[i]] = l->same[k->ins[last].d];
            else
                all = false;
        }
        for (int i = 0; i < n; i++)
            if (k->ins[order[i]].op == VIR_store && ptx_buffer_of(k, &k->ins[order[i]]) == b)
                l->skip[order[i]] = all && order[i] != last;
    }
    return true;
}

/* Most values that wait at the end of a loop for a later one. */
static int waiting(const vir *k, const row_plan *l, const vir_ref *order, int n)
{
    int most = 0;
    for (int cut = 1; cut < n; cut++) {
        if (k->ins[order[cut]].region == k->ins[order[cut - 1]].region)
            continue;
        int now = 0;
        for (int i = 0; i < cut; i++) {
            bool used = false;
            for (int j = cut; j < n && !used; j++) {
                const vir_ins *in = &k->ins[order[j]];
                if (l->same[order[j]] != order[j] || l->skip[order[j]])
                    continue;
                used = (in->a && l->same[in->a] == order[i]) || (in->b && l->same[in->b] == order[i]) ||
                       (in->c && l->same[in->c] == order[i]) || (in->d && l->same[in->d] == order[i]);
            }
            now += used * (k->ins[order[i]].type == VT_f64 || k->ins[order[i]].type == VT_i64 ? 2 : 1);
        }
        most = MAX(most, now);
    }
    return most;
}

static int text_weight(const vir_ins *in)
{
    return vir_is_math((vir_op)in->op) ? 30 : in->op == VIR_draw ? 90 : in->op == VIR_call ? 8 : 2;
}

/* Fills in what held loops need; false: the kernel's loops are of another kind. */
static bool plan_held(const vir *k, bool atomics, row_plan *l, int *values)
{
    vir_ref *order = mem_alloc(sizeof *order * (size_t)k->n);
    int n = 0, loops = 0, parent = 0;
    bool ok = true;
    l->n = -1, l->weight = 0;
    for (int i = 1; i < k->nloops && ok; i++) {
        const vir_loop_info *x = &k->loops[i];
        const vir_ins *lo = &k->ins[x->begin], *hi = &k->ins[x->end];
        if (k->ins[x->ins].dead)
            continue;
        if (x->kind == LOOP_parallel) {
            parent = i;
            continue;
        }
        loop_facts f = ptx_facts(k, i, atomics);
        ok = x->kind == LOOP_vector && x->parent == parent && parent && f.straight && !f.ordered &&
             lo->op == VIR_const && hi->op == VIR_const && lo->imm == 0 && (l->n < 0 || l->n == hi->imm);
        l->n = hi->imm;
        loops++;
        for (vir_ref r = x->first; r && ok; r = k->ins[r].next)
            if (!k->ins[r].dead)
                order[n++] = r;
    }
    ok = ok && loops && n <= 2000;
    for (int i = 0; i < n && ok; i++) {
        const vir_ins *in = &k->ins[order[i]];
        for (int j = 0; j < i && repeats(k, in); j++)
            if (l->same[order[j]] == order[j] && equal(k, l, in, &k->ins[order[j]])) {
                l->same[order[i]] = order[j];
                break;
            }
        if (in->op == VIR_load && k->bufs[ptx_buffer_of(k, in)].flags == VIR_INOUT)
            ok = forward(k, l, order, i + 1); /* what is made of it may be known, too */
    }
    ok = ok && forward(k, l, order, n);
    for (int i = 0; i < n && ok; i++)
        if (l->same[order[i]] == order[i] && !l->skip[order[i]])
            l->weight += (size_t)text_weight(&k->ins[order[i]]);
    *values = ok ? waiting(k, l, order, n) : 0;
    free(order);
    return ok;
}

/* Where the loops of held rows end. */
static vir_ref last_end(const vir *k)
{
    for (int i = k->nloops - 1;; i--)
        if (k->loops[i].kind == LOOP_vector && !k->ins[k->loops[i].ins].dead)
            return k->loops[i].end;
}

/* How the threads of a block, or of a warp, share a row. Reductions have `part` partial results. */
void ptx_plan_rows(const vir *k, const ptx_opts *o, ptx_kernel *p, int part, row_plan *l)
{
    int vec = PTX_VEC, rows_const = 0, values = 0;
    bool parallel = false, legacy = part < 2 * PTX_WARP;
    for (int i = 1; i < k->nloops; i++) {
        const vir_loop_info *x = &k->loops[i];
        if (k->ins[x->ins].dead)
            continue;
        if (x->kind == LOOP_parallel) {
            const vir_ins *lo = &k->ins[x->begin], *hi = &k->ins[x->end];
            parallel = true;
            rows_const = lo->op == VIR_const && hi->op == VIR_const ? (int)MIN(hi->imm - lo->imm, 1 << 20)
                                                                    : -1;
        }
        if (x->kind != LOOP_vector)
            continue;
        loop_facts f = ptx_facts(k, i, o->atomics);
        legacy |= f.ordered || (f.partials && !f.straight);
        if (f.partials)
            vec = MIN(vec, neighbours(&f));
    }
    *l = (row_plan){ .threads = MAX(PTX_WARP, part), .vec = 1, .own = 1 };
    if (!legacy) {
        l->vec = MIN(vec, part / PTX_WARP);
        l->threads = l->vec == 1 ? MIN(part, 256) : MIN(part / l->vec, 512);
        l->own = part / l->threads;
        l->same = mem_alloc(sizeof *l->same * (size_t)k->n), l->skip = mem_zalloc((size_t)k->n);
        for (int i = 0; i < k->n; i++)
            l->same[i] = i;
    }
    if (!legacy && plan_held(k, o->atomics, l, &values)) {
        int v = PTX_VEC, threads = PTX_WARP;
        for (int i = 1; i < k->nloops; i++)
            if (k->loops[i].kind == LOOP_vector && !k->ins[k->loops[i].ins].dead) {
                loop_facts f = ptx_facts(k, i, o->atomics);
                int size = MAX(f.size, 1);
                v = MIN(v, MIN(16 / size, size == 1 ? 4 : PTX_VEC));
                v = MIN(v, ptx_aligned_elements(k, i, v));
            }
        v = (int)MIN(MIN(v, part / PTX_WARP), multiple_of(k, last_end(k)));
        /* a warp where 32 elements a lane are enough, else as many threads as there can be */
        if ((l->n + PTX_WARP - 1) / PTX_WARP > 32 || values > 2 || part / PTX_WARP > PTX_OWN)
            threads = MIN(part / v, 512);
        int64_t steps = (l->n + (int64_t)threads * v - 1) / ((int64_t)threads * v), each = steps * v;
        for (; v > 1 && threads < 512 && threads * v <= part && each * (int64_t)l->weight > 1200;
             each = steps * v)
            v /= 2, threads *= 2; /* long texts take long to assemble: fewer elements a thread */
        if (steps && part / threads <= PTX_OWN && each <= 64 && each * values <= 64 &&
            each * (int64_t)l->weight <= 4000)
            l->threads = threads, l->vec = v, l->own = part / threads, l->steps = (int)steps;
    }
    l->warp = parallel && l->threads == PTX_WARP && l->own > 1 && (rows_const < 0 || rows_const >= 1024);
    p->threads = l->threads;
    if (l->warp)
        p->grid = PTX_tiles, p->tile = PTX_WARP, p->threads = 4 * PTX_WARP;
}
