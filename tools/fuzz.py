#!/usr/bin/env python3
"""Builds the fuzz targets of tests/fuzz with clang and runs each for a while.

  tools/fuzz.py [--seconds N] [--build DIR] [TARGET ...]

New inputs go to build-fuzz/corpus/TARGET; an input that breaks a property is kept in build-fuzz and named.
"""
import argparse, glob, os, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=int, default=300)
    ap.add_argument("--build", help="ignored: the targets have a build directory of their own")
    ap.add_argument("targets", nargs="*")
    args = ap.parse_args()
    if not shutil.which("clang"):
        print("fuzz: clang is not installed, and libFuzzer comes with it", file=sys.stderr)
        return 2
    build = os.path.join(ROOT, "build-fuzz")
    configure = ["cmake", "-S", ROOT, "-B", build, "-DCMAKE_C_COMPILER=clang", "-DCMAKE_BUILD_TYPE=Debug", "-DTAPER_FUZZ=ON",
                 "-DTAPER_PYTHON=OFF", "-DTAPER_TESTS=OFF"]
    for cmd in configure, ["cmake", "--build", build, "-j2"]:
        if subprocess.call(cmd, stdout=subprocess.DEVNULL):
            print("fuzz: the targets do not build")
            return 2
    names = args.targets or sorted(os.path.basename(p)[5:-2] for p in glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c")))
    bad = []
    for name in names:
        corpus = os.path.join(build, "corpus", name)
        os.makedirs(corpus, exist_ok=True)
        cmd = [os.path.join(build, "fuzz_" + name), f"-max_total_time={args.seconds}", "-timeout=10", "-max_len=4096",
               "-verbosity=0", "-print_final_stats=1", corpus]
        seeds = os.path.join(ROOT, "tests/fuzz/corpus", name)
        if os.path.isdir(seeds):
            cmd.append(seeds)
        words = os.path.join(ROOT, "tests/fuzz", name + ".dict")
        if os.path.exists(words):
            cmd.append("-dict=" + words)
        print(f"fuzz: {name} for {args.seconds} s", flush=True)
        if subprocess.call(cmd, cwd=build):
            bad.append(name)
    print("fuzz: " + ("found failures in " + ", ".join(bad) if bad else f"{len(names)} targets, no failure"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
