"""Kernels on many elements let other Python threads run."""
import threading, time
import taper


def test_long_kernels_release_the_gil():
    a = taper.randn(1500, 1500)
    a.mm(a)
    done, spans = threading.Event(), []

    def work():
        for _ in range(3):
            t = time.perf_counter()
            a.mm(a)
            spans.append(time.perf_counter() - t)
        done.set()

    t = threading.Thread(target=work)
    gap, last = 0.0, time.perf_counter()
    t.start()
    while not done.is_set():
        time.sleep(0.0005)
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
    t.join()
    # Holding the GIL would stop this thread for a whole product.
    assert gap < max(spans) * 0.8 or max(spans) < 0.01, (gap, spans)


def test_threads_compute_the_same():
    x = taper.randn(300, 300)
    want, bad = (x * 2 + x.sin()).sum().item(), []

    def work():
        for _ in range(20):
            if (x * 2 + x.sin()).sum().item() != want:
                bad.append(1)

    ts = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert not bad
