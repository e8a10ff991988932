# Everything here needs Go alone; check needs a C compiler too, for the race detector.

GO       ?= go
FUZZTIME ?= 30s
COUNT    ?= 6
ARGS     ?=
SAMPLE   ?= 0
SEED     ?= 1

.PHONY: help build build-cuda run test check cuda gpu fuzz bench torch-matrix smoke selftest mutation slurm nightly-selftest

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s  %s\n", $$1, $$2}' Makefile

build: ## build everything, the program into bin/shatter
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build -o bin/shatter ./harness/cmd/shatter

build-cuda: ## build the program for real GPUs into bin/shatter (a C compiler, no CUDA toolkit)
	. .ci/cudaenv.sh && $(GO) build -tags cuda -o bin/shatter ./harness/cmd/shatter

run: ## generate, execute, check, report (ARGS="--seqs 100 --seed 7")
	@$(GO) run ./harness/cmd/shatter run $(ARGS)

test: ## run all tests
	$(GO) test ./...

check: ## all that CI checks
	@.ci/run

cuda: ## test what drives real GPUs, on a fake driver (a C compiler)
	@.ci/cuda.sh

gpu: ## build the package that checks a GPU elsewhere, bin/shatter-gpu.tar.gz
	@.ci/gpu.sh

fuzz: ## run each native fuzz target (FUZZTIME=30s)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz.sh

bench: ## run the benchmarks in the form that benchstat reads (COUNT=6)
	@$(GO) test -run='^$$' -bench=. -benchmem -count=$(COUNT) ./allocators/... ./harness/...

torch-matrix: ## the allocators of PyTorch wheels against the recorded decisions (fetches them; VERSIONS="2.6.0 2.13.0")
	@.ci/torch-matrix.sh

smoke: ## a quick run from a fixed seed
	@.ci/smoke.sh

selftest: ## planted bugs found / planted (SAMPLE=12 for some, SEED=7, ARGS="--clean 1000000" or ARGS=--known-issues)
	@$(GO) run ./harness/cmd/shatter selftest --sample $(SAMPLE) --seed $(SEED) $(ARGS)

mutation: ## score of the tests by mutation (SAMPLE=80 changes a package or all, SEED=1)
	@$(GO) run ./.ci/mutation -seed $(SEED) $(if $(filter-out 0,$(SAMPLE)),-sample $(SAMPLE:all=0)) ./allocators/caching ./properties

slurm: ## an array job of a real Slurm against one process (installs slurm-wlm; root)
	@.ci/slurm.sh

nightly-selftest: ## what a night does with a clean program, planted bugs, lost workers and SIGTERM (TIME=180 seconds each)
	@.ci/nightly.sh
