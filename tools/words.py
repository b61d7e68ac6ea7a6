#!/usr/bin/env python3
"""Writes src/report/words.def: the words that `taper report --redact` keeps, collected from Taper's own messages.

  tools/words.py [--check]      --check: fail when the file is not what would be written
"""
import glob, os, re, sys

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FROM = """src/capture/breaks.def src/capture/guard.def src/capture/guard.c src/capture/region.c src/capture/attempt.c src/capture/capture_log.c src/capture/dynamic.c
src/capture/location.c src/capture/metrics.c src/events/metrics.def
src/events/metrics.c src/report/summary.c src/report/read.c src/compile/code_log.c src/run/kernel_cache.c src/target/c/emit.c src/vir/vir.def""".split() + sorted(glob.glob("src/loop/*.c"))
MORE = """def return class self None True False forward GraphModule nn Module functional F in is not and or if else for while void const
int int64_t int32_t uint8_t uint16_t float double static inline sizeof include math h stdint string bufs ints flts lo hi cpu cuda meta
bool bf16 f16 i8 u8 i16 c64 File of out load store parallel vector red step fold part var sum mul add sub div exp log sin cos mm bmm
softmax relu tanh where amax amin mean max min print RuntimeError TypeError ValueError IndexError AssertionError Unsupported
BackendCompilerFailed InternalTorchDynamoError size stride Tensor float32 float64 int64 requires_grad device dtype dim keepdim
operator getitem Graph break raised Set internal stack trace more information You suppress suppress_errors exception fall back eager setting import
TAPER_VERBOSE TAPER_LOGS dynamo elu gelu mish silu softplus"""
words = set(MORE.split())
for path in FROM:
    with open(path) as f:
        text = f.read()
    words |= set(re.findall(r"GUARD\((\w+)\)", text))
    for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        words |= {w for w in re.findall(r"[A-Za-z_]\w*", re.sub(r"\\[nt\"]", " ", literal)) if len(w) < 40}
words -= {"x", "y", "n"}
text = ("/* words.def - words that redaction keeps: of Taper's own messages, graphs, guards and generated C. W(word), in byte\n"
        " * order. tools/words.py writes it. */\n" + "".join(f'W("{w}")\n' for w in sorted(words, key=str.encode)))
with open("src/report/words.def") as f:
    current = f.read() == text
if "--check" in sys.argv:
    print("src/report/words.def is current" if current else "src/report/words.def is not current: run tools/words.py")
    sys.exit(not current)
if not current:
    with open("src/report/words.def", "w") as f:
        f.write(text)
