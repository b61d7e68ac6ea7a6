/* device.c - the table of devices, and the two rows that are always there. */
#include "tensor/device.h"
#include "base/bytes.h"
#include "base/pool.h"
#include <errno.h>

/* --- cpu --------------------------------------------------------------------------------------------------------- */
bool device_no_memory(int64_t nbytes, tp_err *err)
{
    return err_set(err, ERR_memory, "not enough memory: you tried to allocate %lld bytes. Error code %d (%s)",
                   (long long)nbytes, ENOMEM, "Cannot allocate memory");
}

static void *cpu_alloc(tp_device d, int64_t nbytes, tp_err *err)
{
    void *p = bytes_new(nbytes);
    if (!p)
        device_no_memory(nbytes, err);
    return p;
}
static void cpu_free(tp_device d, void *p, int64_t nbytes) { bytes_free(p, nbytes); }
static bool cpu_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    memmove(dst, src, (size_t)nbytes);
    return true;
}
static bool cpu_fill(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err)
{
    memset(p, byte, (size_t)nbytes);
    return true;
}
static bool cpu_sync(tp_device d, tp_err *err) { return pool_sync(err); }
static int one(void) { return 1; }
static int no_index(void) { return -1; }
static const device_ops cpu = { "cpu",    true,     cpu_alloc, cpu_free, cpu_copy,
                                cpu_fill, cpu_sync, one,       no_index, NULL };

/* --- meta: nothing is there to allocate, so nothing has to be copied ----------------------------------------------- */
static void meta_free(tp_device d, void *p, int64_t nbytes) {}
static bool meta_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    return to.kind == DEV_meta || err_set(err, ERR_notimpl, "Cannot copy out of meta tensor; no data!");
}
static bool meta_fill(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err) { return true; }
static bool meta_sync(tp_device d, tp_err *err) { return true; }
static const device_ops meta = { "meta",    false,     NULL, meta_free, meta_copy,
                                 meta_fill, meta_sync, one,  no_index,  NULL };

/* --- not in this build --------------------------------------------------------------------------------------------- */
static bool absent(tp_device d, tp_err *err)
{
    return err_set(err, ERR_runtime, "device '%s' is not available in this build of Taper; use device='cpu'",
                   device_name((dev_kind)d.kind));
}
static void *absent_alloc(tp_device d, int64_t nbytes, tp_err *err)
{
    absent(d, err);
    return NULL;
}
static bool absent_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    return absent(to.kind == DEV_cpu ? from : to, err);
}
static bool absent_fill(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err)
{
    return absent(d, err);
}
static int none(void) { return 0; }
static const device_ops missing = { "cuda",      false,  absent_alloc, meta_free, absent_copy,
                                    absent_fill, absent, none,         no_index,  NULL };

/* --- the table ----------------------------------------------------------------------------------------------------- */
const device_ops *device_table[DEV_COUNT] = { [DEV_cpu] = &cpu, [DEV_cuda] = &missing, [DEV_meta] = &meta };

void device_register(dev_kind k, const device_ops *ops)
{
    __atomic_store_n(&device_table[k], ops, __ATOMIC_RELEASE);
}

const char *device_name(dev_kind k) { return device_ops_of((tp_device){ (int8_t)k, -1 })->name; }

bool device_sync(tp_device d, tp_err *err) { return device_ops_of(d)->sync(d, err); }

bool device_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    const device_ops *t = device_ops_of(to), *f = device_ops_of(from);
    if (!nbytes || t == f || t->host || f->host)
        return !nbytes || (t->host ? f : t)->copy(to, dst, from, src, nbytes, err);
    void *mid = cpu.alloc(DEVICE_CPU, nbytes, err);
    bool ok = mid && f->copy(DEVICE_CPU, mid, from, src, nbytes, err) &&
              t->copy(to, dst, DEVICE_CPU, mid, nbytes, err);
    if (mid)
        cpu.free(DEVICE_CPU, mid, nbytes);
    return ok;
}

/* --- names --------------------------------------------------------------------------------------------------------- */
bool device_parse(const char *s, tp_device *out, tp_err *err)
{
    for (int k = 0; k < DEV_COUNT; k++) {
        const char *name = device_name((dev_kind)k);
        size_t n = strlen(name);
        if (strncmp(s, name, n) || (s[n] && s[n] != ':'))
            continue;
        *out = (tp_device){ (int8_t)k, -1 };
        if (!s[n])
            return true;
        char *end;
        long i = s[n] == ':' ? strtol(s + n + 1, &end, 10) : -1;
        if (s[n] == ':' && s[n + 1] && !*end && i >= 0 && i < 127) {
            out->index = (int8_t)i;
            return true;
        }
        return err_set(err, ERR_runtime, "Invalid device string: '%.60s'", s);
    }
    return err_set(err, ERR_runtime,
                   "Expected one of cpu, cuda, meta device type at start of device string: %.60s", s);
}

void device_print(strbuf *b, tp_device d)
{
    strbuf_add(b, device_name((dev_kind)d.kind));
    if (d.index >= 0)
        strbuf_addf(b, ":%d", d.index);
}
