"""Forward and backward of scaled dot product attention: bytes kept between them, bytes at the height of a step, and time beside eager PyTorch.

    python bench/attention.py [--threads N] [--rounds N] [--dropout P] [BxHxTxD ...]

One step of each takes its turn in one process; the best counts. With one thread it is the thread's processor time, else wall time.
"""
import argparse, os, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python"))
import taper

try:
    import torch
except ImportError:
    torch = None


def step_of(lib, shape, causal, dropout):
    lib.manual_seed(0)
    args, seed = [lib.randn(*shape, requires_grad=True) for _ in range(3)], lib.randn(*shape)

    def attention(q, k, v):
        return lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)

    fn = taper.compile(attention) if lib is taper else attention

    def step(look=lambda y: None):
        for a in args:
            a.grad = None
        look(None)
        y = fn(*args)
        look(y)
        y.backward(seed)

    return step


def bytes_of(step):
    """Kept by forward beside its result, and the most that a step holds, in MB."""
    at = []
    for _ in range(2):
        step(lambda y: at.append(taper._C._memory(True)[0] if y is None else taper._C._memory()[0] - at[-1] - y.numel() * y.element_size()))
    before, kept = at[-2:]
    return kept / 1e6, (taper._C._memory()[1] - before) / 1e6


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("shapes", nargs="*", default=["1x8x128x64", "1x8x512x64", "1x8x1024x64", "1x8x2048x64"])
    a = p.parse_args()
    clock = time.thread_time if a.threads == 1 else time.perf_counter
    print(f"{'':24}{'kept MB':>9}{'height':>9}{'ms':>10}{'PyTorch':>10}{'ratio':>7}")
    for text in a.shapes:
        for causal in (False, True):
            shape = [int(n) for n in text.split("x")]
            libs = [lib for lib in (taper, torch) if lib]
            for lib in libs:
                lib.set_num_threads(a.threads)
            steps = [step_of(lib, shape, causal, a.dropout) for lib in libs]
            kept, height = bytes_of(steps[0])
            best = [1e9] * len(steps)
            for _ in range(a.rounds):
                for i, step in enumerate(steps):
                    t = clock()
                    step()
                    best[i] = min(best[i], (clock() - t) * 1e3)
            other = f"{best[1]:10.2f}{best[0] / best[1]:7.2f}" if torch else ""
            print(f"{text + (' causal' if causal else ''):24}{kept:9.2f}{height:9.2f}{best[0]:10.2f}{other}", flush=True)


if __name__ == "__main__":
    main()
