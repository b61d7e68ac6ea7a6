"""scaled_dot_product_attention on CUDA: values and gradients against the CPU in float32 and against PyTorch's own, and times beside PyTorch's.

  python3 tests/gpu/attention.py [--small] [--torch]

--small: sizes of tests, no times."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import taper  # noqa: E402

SMALL, TORCH = "--small" in sys.argv, "--torch" in sys.argv
torch = None
if TORCH:
    try:
        import torch
    except ImportError:
        print("no torch: its columns are left out")

# name, batch, heads, heads of keys, rows, keys, head, causal, mask, dropout, heads as the projection has them
CHECKS = [("plain", 2, 4, 4, 65, 70, 64, False, None, 0, False), ("causal", 2, 3, 3, 130, 130, 64, True, None, 0, False),
          ("causal, projection", 2, 4, 4, 77, 77, 64, True, None, 0, True), ("heads of 128", 1, 4, 4, 130, 130, 128, True, None, 0, True),
          ("shared keys", 2, 8, 2, 100, 100, 128, True, None, 0, False), ("heads of 80", 1, 2, 2, 50, 90, 80, False, None, 0, False),
          ("mask", 2, 4, 4, 70, 90, 64, False, "bool", 0, False), ("mask of keys", 2, 4, 4, 70, 90, 32, False, "keys", 0, True),
          ("added mask", 2, 4, 2, 70, 90, 64, False, "add", 0, False), ("lowest numbers", 2, 2, 2, 40, 50, 64, False, "low", 0, False)]
TIMES = [("GPT-2", 8, 12, 12, 512, 512, 64, True, None, 0, True), ("ViT-B", 32, 12, 12, 197, 197, 64, False, None, 0, True),
         ("Llama, 8 of 32 heads of keys", 2, 32, 8, 1024, 1024, 128, True, None, 0, True), ("4k, heads of 128", 2, 16, 16, 4096, 4096, 128, False, None, 0, False),
         ("4k, causal", 2, 16, 16, 4096, 4096, 128, True, None, 0, False), ("2k, heads of 64, causal", 4, 16, 16, 2048, 2048, 64, True, None, 0, False),
         ("1k, mask", 4, 16, 16, 1024, 1024, 64, False, "bool", 0, False), ("1k, added mask", 4, 16, 16, 1024, 1024, 64, False, "add", 0, False),
         ("1k, causal, dropout", 4, 16, 16, 1024, 1024, 64, True, None, 0.1, False)]


def inputs(m, case, device, dt):
    """The same numbers for both libraries: those of a Taper generator on the CPU."""
    name, b, h, hk, n, s, d, causal, mask, p, mixed = case
    def heads(count, rows):
        x = taper.randn(b, rows, count, d) if mixed else taper.randn(b, count, rows, d)
        return x.to(dt).transpose(1, 2) if mixed else x.to(dt)
    q, k, v, g = heads(h, n), heads(hk, s), heads(hk, s), heads(h, n)
    given = None
    if mask == "bool":
        given = taper.rand(n, s) > 0.3
        given[1] = False
    elif mask == "keys":
        given = (taper.arange(s) < s - 7).expand(b, 1, 1, s)
    elif mask == "add":
        given = taper.randn(h, n, s).to(dt)
    elif mask == "low":
        given = taper.where(taper.rand(n, s) > 0.3, 0.0, -3e38).to(dt)
        given[2] = -3e38
    return [t if t is None else t.to(device) for t in (q, k, v, g, given)]


def attend(m, q, k, v, mask, case):
    return m.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=case[9], is_causal=case[7], enable_gqa=case[2] != case[3])


def both(m, q, k, v, g, mask, case, f=None):
    a = [t.detach().requires_grad_() for t in (q, k, v)]
    o = (f or attend)(m, *a, mask, case)
    o.backward(g)
    return [o.detach()] + [t.grad for t in a]


def worst(got, want):
    return max(((a - b).abs().max() / b.abs().max().clamp(min=1e-20)).item() for a, b in zip(got, want))


def check():
    bad = 0
    for dt, tol in (taper.bfloat16, 2e-2), (taper.float16, 4e-3):
        for case in CHECKS:
            if case[8] == "low" and dt == taper.float16:
                continue
            taper.manual_seed(1)
            cpu = inputs(taper, case, "cpu", dt)
            want = both(taper, *[t.float() if t is not None and t.dtype == dt else t for t in cpu], case)
            on = [t if t is None else t.cuda() for t in cpu]
            before = taper._C._cuda_stats(0)
            lines = []
            for mode in (None, "compiled") if not SMALL or case[0] == "plain" else (None,):
                f = taper.compile(attend, fullgraph=True) if mode else None
                got = both(taper, *on, case, f)
                lines.append(worst([t.cpu().float() for t in got], want))
            after = taper._C._cuda_stats(0)
            if torch is not None:
                if case[8] in ("bool", "low"):  # PyTorch's kernels have no word on rows that meet nothing, or lowest numbers alone
                    on[4][1:3] = on[4][0]
                    got = both(taper, *on, case)
                there = [t if t is None else torch.from_dlpack(t) for t in on]
                theirs = both(torch, *there, case)
                lines.append(worst([t.cpu().float() for t in got], [taper.tensor(t.float().cpu().tolist()) for t in theirs]))
            fault = max(lines) > tol or after["flashes"] == before["flashes"] or after["hosted"] != before["hosted"]
            bad += fault
            print(f"{'WRONG' if fault else 'ok':5} {str(dt)[6:]:9} {case[0]:20} " + " ".join(f"{x:.2e}" for x in lines), flush=True)
    # dropout: the numbers of a program, so that the same seed gives what dropout of the probabilities gives
    q, k, v = (taper.randn(2, 3, 33, 32, device="cuda").bfloat16() for _ in range(3))
    taper.manual_seed(5)
    got = taper.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    taper.manual_seed(5)
    p = (q.float() @ k.float().transpose(-1, -2) / 32 ** 0.5).softmax(-1)
    want = taper.nn.functional.dropout(p, 0.3) @ v.float()
    off = worst([got.cpu().float()], [want.cpu()])
    bad += off > 2e-2
    print(f"{'WRONG' if off > 2e-2 else 'ok':5} dropout {off:.2e}", flush=True)
    return bad


def best(m, f):
    f()
    m.cuda.synchronize()
    t, n = 1e9, 3
    while n < 1000:
        at = time.perf_counter()
        for _ in range(n):
            f()
        m.cuda.synchronize()
        took = time.perf_counter() - at
        t = min(t, took / n)
        if took > 0.06:
            break
        n *= 3
    return t * 1e3


def times(m, mine):
    for case in TIMES:
        taper.manual_seed(1)
        q, k, v, g, mask = inputs(taper, case, "cpu", taper.bfloat16)
        q, k, v, g, mask = (t if t is None else mine(t.cuda()) for t in (q, k, v, g, mask))
        if case[8] == "add" and m is not taper:
            mask = mask.expand(q.shape[0], *mask.shape)
        def forward():
            with m.no_grad():
                attend(m, q, k, v, mask, case)
        try:
            one, two = best(m, forward), best(m, lambda: both(m, q, k, v, g, mask, case))
            flops = 4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * q.shape[3] * (0.5 if case[7] else 1)
            print(f"{m.__name__} {case[0]:30} forward {one:.4f} ms ({flops / one / 1e9:.0f} TFLOP/s), with gradient {two:.4f} ms", flush=True)
        except Exception as e:  # noqa: BLE001
            print(f"{m.__name__} {case[0]:30} {type(e).__name__}: {str(e)[:200]}", flush=True)


def main():
    if not taper.cuda.is_available():
        print("attention: skipped, there is no GPU")
        return 77
    bad = check()
    if not SMALL:
        times(taper, lambda t: t)
        if torch is not None:
            times(torch, lambda t: torch.from_dlpack(t))
    print(f"attention: {bad} wrong")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
