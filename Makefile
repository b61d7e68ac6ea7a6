# Taper: `make demo` and `make test` do all set-up themselves; `make help` lists the rest.
PYTHON ?= python3
BUILD  ?= build
CMAKE  ?= cmake
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
GENERATOR := $(if $(shell command -v ninja 2>/dev/null),-G Ninja,)
CMAKE_FLAGS ?=
# What a build folder was configured for: another place, Python, generator or flag configures it anew, and so does a configuration that failed.
PYTHON_PATH = $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null)
CONFIGURED = $(CURDIR) $(PYTHON_PATH) $(GENERATOR) $(CMAKE_FLAGS)
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help demo test bugs torch-bugs check layers build setup bench asan ubsan oracle oracle-full programs format format-check breaks fuzz fuzz-programs numerics clean bless golden docs gpu-test wheel site

help:            ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:           ## install what is missing from the distribution (Debian/Ubuntu), or name it
	@sh tools/setup.sh

build:           ## build in place: python/taper/_C*.so and build/taper (V=1 shows the commands)
	@PYTHON="$(PYTHON_PATH)" CMAKE="$(CMAKE)" BUILD="$(BUILD)" JOBS="$(JOBS)" CONFIGURED="$(CONFIGURED)" V="$(V)" sh tools/build.sh $(GENERATOR) $(CMAKE_FLAGS)

demo: setup      ## set up, build, and show the main job
	@$(MAKE) --no-print-directory build
	@$(PYTHON) examples/demo.py
	@printf '\nYour own programs:\n    . $(BUILD)/env.sh              # this shell finds `import taper` and the program `taper`\n    python3 program.py\n    python3 -m taper program.py     # one written for PyTorch\nOr install the package: python3 -m pip install .\n'

test: setup      ## set up, build, and run every test
	@$(MAKE) --no-print-directory build
	@$(PYTHON) tests/run.py --build $(BUILD)

check: build     ## the fast part of the tests (under 30 s on two cores): C, golden files, capture, a sample of the tables
	@$(PYTHON) tools/layers.py --build $(BUILD)
	@$(PYTHON) tests/run.py --build $(BUILD) --check

bless: build     ## rewrite the expectations of the golden tests; review the diff
	@$(PYTHON) tests/run.py --build $(BUILD) --bless tests/golden

golden: build    ## rewrite what tests/golden/stages expects of each stage; review the diff
	@$(PYTHON) tests/run.py --build $(BUILD) --bless tests/golden/stages

docs: build      ## regenerate the generated documentation pages and type stubs
	@for f in tools/gendocs*.py tools/words.py; do $(PYTHON) $$f; done

bench: build     ## benchmarks, side by side with PyTorch where it is importable
	@for f in bench/*.py; do case $$f in bench/models.py) ;; *) echo "== $$f"; $(PYTHON) $$f; esac; done

SAN_FLAGS = -DCMAKE_BUILD_TYPE=Debug -DTAPER_SANITIZE=$(1)
asan:            ## C tests and a Python subset under AddressSanitizer (leaks included)
	@sh tools/sanitize.sh address build-asan
ubsan:           ## the same under UndefinedBehaviorSanitizer
	@sh tools/sanitize.sh undefined build-ubsan

gpu-test:        ## kernels on this machine's GPU against the interpreter, with times (skips loudly without one)
	@sh tools/gpu-test.sh $(GPU_TEST)

oracle: build    ## compare with PyTorch (needs it importable; skips loudly otherwise)
	@$(PYTHON) tests/run.py --build $(BUILD) tests/oracle

oracle-full: build ## every sample of PyTorch's operator database, on one core (minutes); refreshes docs/opinfo.json
	@TAPER_OPINFO=all TAPER_OPINFO_DOCS=1 TAPER_TEST_SECONDS=3600 nice -n 19 $(PYTHON) tests/run.py --build $(BUILD) tests/oracle/test_opinfo.py

breaks: build    ## the tests of capture with a graph break forced at every instruction (minutes)
	@TAPER_BREAK_EVERYWHERE=1 TAPER_TEST_SECONDS=3600 $(PYTHON) tests/run.py --build $(BUILD) tests/py/test_capture_diff.py tests/py/test_capture_values.py tests/py/test_capture_leak.py

fuzz: build      ## long fuzzing of graphs and readers
	@TAPER_FUZZ_KERNELS=$${TAPER_FUZZ_KERNELS:-20000} $(BUILD)/taper_ctest gen_fuzz
	@$(PYTHON) tools/fuzz.py --build $(BUILD)
	@$(PYTHON) tests/py/graph_fuzz.py --count $${TAPER_FUZZ_GRAPHS:-20000} --engines avx512,avx2,interp,c,aot_eager --keep-going
	@$(PYTHON) tests/py/table_compiled.py
	@TAPER_FUZZ_JOINT=$${TAPER_FUZZ_JOINT:-3000} $(PYTHON) tests/run.py --build $(BUILD) tests/py/test_joint_random.py

programs: build  ## public packages with PyTorch and with Taper, side by side; refreshes docs/programs.md (needs a package registry; minutes)
	@nice -n 10 $(PYTHON) tests/programs/run.py

fuzz-programs: build ## random Python programs, compiled against eager and PyTorch (hours; TAPER_FUZZ_PROGRAMS, _SECONDS, _SEED, _JOBS)
	@nice -n 10 $(PYTHON) tests/fuzz/programs/fuzz.py --count $${TAPER_FUZZ_PROGRAMS:-20000} --seconds $${TAPER_FUZZ_SECONDS:-0} --seed $${TAPER_FUZZ_SEED:-1} --jobs $${TAPER_FUZZ_JOBS:-1} --torch $${TAPER_TORCH_PYTHON:-auto} --out $(BUILD)/fuzz-programs

numerics: build  ## errors of the vector math at every float there is, on all cores (half an hour of processor time); prints the table of docs/numerics.md
	@rm -f $(BUILD)/numerics.txt
	@TAPER_NUMERICS=$(BUILD)/numerics.txt TAPER_NUMERICS_STRIDE=$${TAPER_NUMERICS_STRIDE:-1} nice -n 19 $(BUILD)/taper_ctest gen_math
	@cat $(BUILD)/numerics.txt

bugs:            ## plant the bugs of tests/bugs in a copy of the sources and run taper doctor on a program for each (minutes)
	@nice $(PYTHON) tests/bugs/run.py $(BUGS)

torch-bugs: build ## plant faults in a copy of Inductor and let the debugger for PyTorch find them (needs PyTorch 2.13 and a C++ compiler; an hour)
	@nice $(PYTHON) tests/bugs/inductor.py $(BUGS)

layers: build    ## the order of the folders of src/, and who names operators and machines
	@$(PYTHON) tools/layers.py --build $(BUILD)

FORMAT_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null)
format:          ## reformat the C sources in place
	@clang-format -i $(FORMAT_FILES)
format-check:    ## fail when a C source is not formatted
	@clang-format --dry-run -Werror $(FORMAT_FILES)

site: build      ## the documentation and the reference as static pages with a search, in docs/site
	@$(PYTHON) tools/site.py

wheel:           ## a package for other machines, in dist/ (needs a package registry for auditwheel)
	@PYTHON="$(PYTHON)" sh tools/wheel.sh

clean:           ## remove what was built
	@rm -rf build build-asan build-ubsan build-bugs docs/site python/taper/_C*.so
