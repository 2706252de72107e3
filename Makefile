# make help says what there is. Needs Go, git, gcc (for the race detector), make and curl.

# Of the environment or the command line:
PODS         ?= 3000
MEASURE      ?= lists forward newest watches crowd mix restart load
OPTIONS      ?=
FAULTS       ?=
ATTACKS      ?=
ONCE         ?=
FUZZTIME     ?= 60s
TEST_TIMEOUT ?= 20m
BENCH        ?= .
VERSIONS     ?= 1.32.13 1.34.4 1.36.3 1.37.2
KINES        ?= 0.17.5 0.14.12
DURATION     ?=
SEED         ?= 0
PROGRAMS     ?=
MUTANTS      ?=

GO            := go
# Where the test files are that have a match for $(1): a package that moves is found again.
packages_with  = git grep -lE --untracked '$(1)' -- '*_test.go' ':!test' | xargs -n 1 dirname | sort -u | sed 's|^|./|'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build test test-all test-tools test-versions test-cluster bench bench-go demo lint fuzz controlplane cluster faults programs mutants chart chart-update alerts soak release release-check tools fmt clean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: bin/listproxy ## Build bin/listproxy

# What is built before the tests does not count in their time limits. -short leaves to test-all what
# is long, see Long in test/harness, and so do the chart and the release, whose tools take minutes to build.
# Folders that wait more than they compute come first, four at a time: then unit tests fill the CPUs at the
# end. go vet has looked at everything before.
test: tools ## Vet, and run unit tests, the differential and short cases of every suite, with the race detector and a real kube-apiserver
	$(GO) vet ./...
	$(GO) test -race -short -vet off -p 4 -timeout $(TEST_TIMEOUT) \
		$$($(GO) list ./test/faults/... ./test/e2e/... ./test/... ./... | grep -vxE '.*/test/(chart|release)')

# Unit tests are in make test already.
test-all: test-tools ## Run the suites in full, the chart and the release, with the cases that make test leaves out, about 9 minutes
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./test/...

test-tools: tools
	@$(GO) run ./test/controlplane/cmd/tool helm promtool krew cyclonedx-gomod release-image >/dev/null

# Each version twice: the second time states are loaded page by page, and the comparisons alone are
# made. Then what only some versions have. Then the usual kube-apiserver over kines; 0.14 tells no progress, so most is
# forwarded, and only the bytes count.
test-versions: ## Run the differential tests against other kube-apiservers too, and over kine (VERSIONS, KINES, DURATION=60s)
	@mkdir -p bin; summary=; failed=0; bad=; \
	tell() { \
		result=passed; if [ "$$bad" ]; then result=FAILED; failed=1; bad=; fi; \
		grep -A1 -E 'differential_test.go:' $$log | sed 's/^ */  /'; \
		grep -E '^ *--- FAIL|^panic:|differences: map.[^]]' $$log; \
		summary="$$summary  $$version $$1 $$result\n"; \
	}; \
	for version in $(VERSIONS); do \
		export LISTPROXY_TEST_KUBERNETES=$$version; \
		for lists in true false; do \
			case $$lists in true) short=;; false) short=-short;; esac; \
			log=bin/test-versions-$$version-watchlist-$$lists.log; \
			echo "kube-apiserver $$version, WatchList=$$lists (in full: $$log)"; \
			$(GO) test -count 1 -timeout $(TEST_TIMEOUT) $$short -v ./test/differential \
				-differential.duration $(or $(DURATION),60s) -differential.watchlist=$$lists >$$log 2>&1 || bad=1; \
			tell WatchList=$$lists; \
		done; \
		log=bin/test-versions-$$version-own.log; \
		echo "kube-apiserver $$version, what some versions have (in full: $$log)"; \
		$(GO) test -count 1 -timeout $(TEST_TIMEOUT) -v ./test/e2e/forwarding \
			-run '^TestShapes$$' >$$log 2>&1 || bad=1; \
		tell 'what some have'; \
	done; \
	unset LISTPROXY_TEST_KUBERNETES; \
	for version in $(KINES); do \
		log=bin/test-versions-kine-$$version.log; \
		echo "kine $$version in etcd's place (in full: $$log)"; \
		case $$version in 0.14.*) share=0;; *) share=0.8;; esac; \
		LISTPROXY_TEST_KINE=$$version $(GO) test -count 1 -timeout $(TEST_TIMEOUT) -v ./test/differential -differential.duration $(or $(DURATION),60s) \
			-differential.share $$share -run '^Test(Lists|Watches|NewestOfQuietResources)$$' >$$log 2>&1 || bad=1; \
		tell kine; \
	done; printf "\nkube-apiserver\n$$summary"; exit $$failed

bench: tools bin/bench ## Measure beside kube-apiserver, all or some (MEASURE="lists crowd" OPTIONS="--pods 20000")
	@set -e; for measure in $(MEASURE); do bin/bench $$measure $(OPTIONS); done

bench-go: ## Run the Go benchmarks (BENCH=regexp)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem \
		$$($(call packages_with,^func Benchmark))

demo: tools bin/bench ## See it work on a real kube-apiserver (PODS=3000; ONCE=1 ends by itself)
	@exec bin/bench demo --pods $(PODS) $(if $(ONCE),--once)

lint: bin/golangci-lint ## Check style: golangci-lint, our own rules, gofmt, go mod tidy, actionlint
	bin/golangci-lint run --allow-parallel-runners ./...
	cd test/lint && GOFLAGS= GOWORK=off $(GO) test ./rules && GOFLAGS= GOWORK=off $(GO) run ./rules ../..
	@unformatted=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l) || exit 1; \
	if [ -n "$$unformatted" ]; then printf 'not as gofmt has it (make fmt):\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) mod tidy -diff
	@$(GO) run ./test/controlplane/cmd/tool actionlint >/dev/null
	bin/actionlint

# By default the go command may spend all of FUZZTIME on making one input smaller.
# Inputs that reach new code stay in $(go env GOCACHE)/fuzz for the next run; one that fails is
# written to testdata/fuzz of its package, to be committed with what mends it.
fuzz: ## Run every fuzz target for FUZZTIME=60s
	@set -e; for package in $$($(call packages_with,^func Fuzz)); do \
		for target in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x "$$package"; \
		done; \
	done

controlplane: bin/controlplane ## Run etcd and kube-apiserver to play with, until Ctrl-C
	@exec bin/controlplane

# A program that is built before: go run would not wait for it after Ctrl-C.
cluster: ## Run a whole Kubernetes on this Linux machine, without Docker, as root, with listproxy, Jaeger and Prometheus, until Ctrl-C
	@$(GO) build -o bin/cluster ./test/cluster/cmd/cluster && exec bin/cluster

test-cluster: ## Test the chart and its clients in such a cluster, as root
	$(GO) test -count 1 -timeout 120m -v ./test/cluster -cluster

# The upgrade needs an older kube-apiserver. What is built before does not count in the time limit.
faults: tools ## Run every fault case, an upgrade of API servers too, and print the result of each, about 30 minutes (FAULTS="-faults.duration 1m"); longer the first time, while tools are built
	@$(GO) run ./test/controlplane/cmd/tool kube-apiserver-1.35.4 >/dev/null
	$(GO) test -race -count 1 -timeout 60m -v ./test/faults -faults.all $(FAULTS)

# Without the race detector, whose own memory grows.
soak: tools build ## Run everything together for a long time, faults too: no wrong answer, no growth (DURATION=2m SEED=)
	$(GO) test -count 1 -v -timeout 0 ./test/faults -run '^TestSoak$$' -faults.soak $(or $(DURATION),2m) \
		-faults.seed $(SEED) -faults.listproxy $(CURDIR)/bin/listproxy

programs: tools ## Run controller-runtime's and Kubernetes' own tests, and Argo CD's cache of a cluster, directly and through listproxy, about 45 minutes (PROGRAMS="-run TestControllerRuntime/client")
	$(GO) test -count 1 -v -timeout 120m ./test/e2e/programs -programs $(PROGRAMS)

mutants: tools ## Break the code in one place at a time: a test must notice each, see test/mutants (MUTANTS=regexp)
	@$(GO) run ./test/mutants -run '$(MUTANTS)'

chart: ## Test the Helm chart with the real Helm, and the Dockerfile
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./test/chart

chart-update: ## Write the chart's golden files
	$(GO) test ./test/chart -run TestGolden -update

reference: ## Write docs/reference.md from the code
	$(GO) test -p 1 -count 1 ./cmd/listproxy ./policy ./policy/reason ./proxy/admin ./test/chart -run '^Test(Reference|Runbooks)$$' -reference.update

alerts: ## Test the alert rules and the dashboard with the real promtool
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./test/chart -run '^Test(Rules|Runbooks|Dashboard)'

release: ## Make a release in dist/: programs, image, chart, SBOMs, manifest for krew, checksums (VERSION=v1.2.3, else git describe)
	@$(GO) run ./test/controlplane/cmd/tool helm cyclonedx-gomod release-image >/dev/null
	@test/release/release

release-check: ## Make a release of the last commit twice, and compare the bytes
	@$(GO) run ./test/controlplane/cmd/tool helm cyclonedx-gomod release-image >/dev/null
	@test/release/check

tools: ## Build etcd, kube-apiserver and kubectl into bin/, once
	@$(GO) run ./test/controlplane/cmd/tool kube-apiserver >/dev/null

fmt: bin/golangci-lint ## Format all Go code
	bin/golangci-lint fmt ./...

clean: ## Remove what was built
	rm -rf bin dist

# The go command knows best what has changed.
bin/listproxy: FORCE
	$(GO) build -o $@ ./cmd/listproxy

bin/bench: FORCE
	@$(GO) build -o $@ ./test/bench

bin/controlplane: FORCE
	@$(GO) build -o $@ ./test/controlplane/cmd/controlplane

# A module of its own pins the linter. GOFLAGS of the caller are for this repository's code.
bin/golangci-lint: test/lint/go.mod test/lint/go.sum
	cd test/lint && GOFLAGS= GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' \
		-o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

FORCE:
