"""Taper beside other compilers that are importable here (torch, jax, tinygrad, onnxruntime): one thread, float32, CPU.

    python bench/compare.py [NAME ...]        # NAME: taper, torch, jax, tinygrad, onnxruntime

For each: time to import it, the first compiled call (all it takes until the result is there), and the best of many calls after that. Work: a
network of three layers (64 x 512, hidden 1024, 10 classes), forward and one step of SGD, softmax over 4096 x 1024, and x + 1 on eight numbers.
ONNX Runtime has no gradients here. Each runs in a process of its own."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

NAMES = ("taper", "torch", "jax", "tinygrad", "onnxruntime")
WORK = ("mlp forward", "mlp training", "softmax", "x + 1")


def best(call, seconds=2.0):
    """(first call, best call), in microseconds."""
    t = time.perf_counter()
    call()
    first, end, least = time.perf_counter() - t, time.perf_counter() + seconds, 1e9
    while time.perf_counter() < end:
        t = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - t)
    return first * 1e6, least * 1e6


def like_torch(name):
    t0 = time.perf_counter()
    lib = __import__(name)
    took = time.perf_counter() - t0
    lib.set_num_threads(1)
    nn, F = lib.nn, lib.nn.functional
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    x, y = lib.randn(64, 512), lib.randint(0, 10, (64,))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    forward, train = lib.compile(model), lib.compile(step)
    if name == "torch":  # as its guides write it: the loss is compiled, backward and the optimizer are called
        loss_of = lib.compile(lambda x, y: F.cross_entropy(model(x), y))

        def train(x, y):
            optimizer.zero_grad()
            loss_of(x, y).backward()
            optimizer.step()
    soft, plus = lib.compile(lambda t: F.softmax(t, -1)), lib.compile(lambda t: t + 1)
    big, small = lib.randn(4096, 1024), lib.randn(8)

    def without_gradients(f, *args):
        def call():
            with lib.no_grad():
                return f(*args)
        return call
    return took, {"mlp forward": without_gradients(forward, x), "mlp training": lambda: train(x, y), "softmax": lambda: soft(big), "x + 1": lambda: plus(small)}


def with_jax():
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    t0 = time.perf_counter()
    import jax
    import jax.numpy as jnp
    took = time.perf_counter() - t0
    keys = jax.random.split(jax.random.PRNGKey(0), 8)
    sizes = [(512, 1024), (1024, 1024), (1024, 10)]
    weights = [(jax.random.normal(k, s) / s[0] ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, sizes)]
    x, y = jax.random.normal(keys[4], (64, 512)), jax.random.randint(keys[5], (64,), 0, 10)

    def forward(weights, x):
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = jax.nn.relu(x) if i < 2 else x
        return x

    def loss(weights, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(forward(weights, x)), y[:, None], 1).mean()

    def step(weights, x, y):
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        return value, jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads)
    f, s = jax.jit(forward), jax.jit(step, donate_argnums=0)
    soft, plus = jax.jit(jax.nn.softmax), jax.jit(lambda t: t + 1)
    big, small, state = jax.random.normal(keys[6], (4096, 1024)), jax.random.normal(keys[7], (8,)), [jax.tree.map(jnp.copy, weights)]

    def train():
        value, state[0] = s(state[0], x, y)
        jax.block_until_ready((value, state[0]))
    return took, {"mlp forward": lambda: f(weights, x).block_until_ready(), "mlp training": train, "softmax": lambda: soft(big).block_until_ready(),
                  "x + 1": lambda: plus(small).block_until_ready()}


def with_tinygrad():
    t0 = time.perf_counter()
    from tinygrad import Context, Tensor, TinyJit, nn
    took = time.perf_counter() - t0
    layers = [nn.Linear(512, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)]
    optimizer = nn.optim.SGD(nn.state.get_parameters(layers), lr=0.01)
    x, y = Tensor.randn(64, 512).realize(), Tensor.randint(64, high=10).realize()
    big, small = Tensor.randn(4096, 1024).realize(), Tensor.randn(8).realize()

    def forward(x):
        return layers[2](layers[1](layers[0](x).relu()).relu())

    def jitted(f, *args):
        j = TinyJit(f)
        for _ in range(2):  # it records in the second call: what follows is the best it does
            j(*args)
        return lambda: j(*args).numpy() if f is plus else j(*args).realize()

    def plus(t):
        return (t + 1).realize()

    def step(x, y):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = forward(x).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())
    return took, {"mlp forward": lambda: jitted(lambda x: forward(x).realize(), x), "mlp training": lambda: jitted(step, x, y),
                  "softmax": lambda: jitted(lambda t: t.softmax(-1).realize(), big), "x + 1": lambda: jitted(plus, small)}


def with_onnxruntime():
    t0 = time.perf_counter()
    import onnxruntime as ort
    took = time.perf_counter() - t0
    import taper  # writes the files
    import taper.onnx
    nn, F = taper.nn, taper.nn.functional
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    models = {"mlp forward": (nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)), taper.randn(64, 512)),
              "softmax": (nn.Softmax(-1), taper.randn(4096, 1024)), "x + 1": (Plus(nn.Module), taper.randn(8))}
    calls = {}
    for name, (model, x) in models.items():
        path = os.path.join(tempfile.mkdtemp(), "model.onnx")
        taper.onnx.export(model, (x,), path)
        a, made = x.numpy(), []

        def call(path=path, a=a, made=made):
            if not made:
                made.append(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
            s = made[0]
            return s.run(None, {s.get_inputs()[0].name: a})
        calls[name] = call
    return took, calls


def Plus(Module):
    class Plus(Module):
        def forward(self, t):
            return t + 1
    return Plus()


def measure(name):
    took, calls = like_torch(name) if name in ("taper", "torch") else globals()["with_" + name]()
    out = {"import": took * 1e3}
    for work, call in calls.items():
        if name == "tinygrad":  # the first call makes what is called afterwards
            t = time.perf_counter()
            call = call()
            call()
            first = (time.perf_counter() - t) * 1e6
            out[work] = first, best(call)[1]
        else:
            out[work] = best(call)
    print(json.dumps(out))


def main(names):
    rows = {}
    for name in names or NAMES:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not importable here", file=sys.stderr)
            continue
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        r = subprocess.run([sys.executable, os.path.abspath(__file__), "--in", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
        if r.returncode:
            print(f"{name} failed:\n{r.stderr}", file=sys.stderr)
            continue
        rows[name] = json.loads(r.stdout.splitlines()[-1])
    print("| | import ms | " + " | ".join(f"{w}: first call ms | best us" for w in WORK) + " |\n|" + " --- |" * (2 + 2 * len(WORK)))
    for name, row in rows.items():
        cells = [f"{row[w][0] / 1e3:.1f} | {row[w][1]:.1f}" if w in row else "- | -" for w in WORK]
        print(f"| {name} | {row['import']:.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
