# Everything here needs Go alone; check needs a C compiler too, for the race detector.

GO       ?= go
FUZZTIME ?= 30s
COUNT    ?= 6
ARGS     ?=

.PHONY: help build run test check fuzz bench smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-6s  %s\n", $$1, $$2}' Makefile

build: ## build everything, the program into bin/shatter
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build -o bin/shatter ./harness/cmd/shatter

run: ## generate, execute, check, report (ARGS="--seqs 100 --seed 7")
	@$(GO) run ./harness/cmd/shatter run $(ARGS)

test: ## run all tests
	$(GO) test ./...

check: ## all that CI checks
	@.ci/run

fuzz: ## run each native fuzz target (FUZZTIME=30s)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz.sh

bench: ## run the benchmarks in the form that benchstat reads (COUNT=6)
	@$(GO) test -run='^$$' -bench=. -benchmem -count=$(COUNT) ./allocators/... ./harness/...

smoke: ## a quick run from a fixed seed
	@.ci/smoke.sh
