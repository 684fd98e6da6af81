# One command a job; `make help` lists them. All that the Go tools need to
# know stands here and nowhere else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED := 0
TAGS := remote,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,btrfs_noversion,containers_image_openpgp
# One set of flags for everything: what make demo has compiled, make test finds in Go's cache.
export GOFLAGS := -buildvcs=false -trimpath -tags=$(TAGS)

VERSION := $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo dev)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
export GO_LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
UNIT = $$(go list ./... | grep -v /integration)
SECONDS_PER_FUZZ ?= 30

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: env
env: ## print the settings of the Go tools for a shell to evaluate
	@echo 'export CGO_ENABLED=$(CGO_ENABLED) GOFLAGS="$(GOFLAGS)"'

.PHONY: setup
setup: ## install missing packages on Debian, also those of the tests (Podman, a runtime, gcc, …)
	@scripts/setup.sh tests

.PHONY: build
build: ## bin/wisbox, static
	@mkdir -p bin .cache
	go build $(if $(VERBOSE),-v) -ldflags "$(GO_LDFLAGS)" -o .cache/wisbox-engine ./cmd/wisbox
	@.cache/wisbox-engine __pages >.cache/wisbox-pages
	@go build -ldflags "$(GO_LDFLAGS)" -o .cache/wisbox-front ./cmd/wisbox/front
	@go run ./cmd/wisbox/internal/engine/pack .cache/wisbox-front .cache/wisbox-engine .cache/wisbox-pages bin/wisbox

.PHONY: kube
kube: build ## bin/wisbox-kube: the same with Kubernetes' client, which wisbox continues as where it needs that
	go build -tags=$(TAGS),kubernetes -ldflags "$(GO_LDFLAGS)" -o bin/wisbox-kube ./cmd/wisbox

PREFIX ?= /usr/local
.PHONY: install
install: ## what make kube has built, in $(PREFIX)/bin; with sudo it needs no Go
	@[ -x bin/wisbox-kube ] || { echo "there is no bin/wisbox-kube; build it first: make kube" >&2; exit 1; }
	install -D -t $(DESTDIR)$(PREFIX)/bin bin/wisbox bin/wisbox-kube

# Needs a module cache that may grow; the first arm64 build takes minutes.
.PHONY: dist
dist: build ## dist/: static binaries for amd64 and arm64, clients for macOS, SBOMs, deb and rpm with man pages and completions, checksums
	VERSION=$(VERSION) scripts/dist.sh

.PHONY: agent
agent: ## the agent's binaries that are embedded, for each architecture; commit what it changes
	go run ./agent/native/internal/mkagent

.PHONY: page
page: ## page/assets of page/web: the page of wisbox ui; commit what it changes
	scripts/page.sh

.PHONY: image
image: build ## the image that sessions run in, if it is not there
	bin/wisbox image build

.PHONY: image-pod
image-pod: image wasm kube ## the image of both containers of a session's Pod: wisbox's own with the program and Python in WebAssembly in it
	bin/wisbox image wrap

.PHONY: cluster
cluster: ## a Kubernetes of one node on this machine, for tests; it stops by itself after an hour
	scripts/cluster/cluster.sh up 3600

.PHONY: demo
demo: ## the main job on real input, each step asserted; installs and builds what it needs
	@scripts/prepare.sh
	@go run ./examples/demo bin/wisbox

# Tests are built without debug information, which halves the time of linking; make lint vets them.
GO_TEST := -vet=off -ldflags=-w
INTEGRATION := -timeout 60m $(GO_TEST) -count=1
# The packages that make test runs on real Podman, beside ./integration itself.
SURFACES := ./integration/envd ./integration/examples ./integration/mcp ./integration/serve
BACKEND = WISBOX_TEST_IMAGE="$$(bin/wisbox version | awk '$$1 == "image" { print $$2 }')"

.PHONY: test
test: setup ## unit tests and the integration tests on real Podman, but for slow ones (make test-slow); minutes
	@scripts/prepare.sh
	@WISBOX_QUICK=1 go run ./scripts/testrun '-timeout 20m $(GO_TEST) unit:' \
		'-label=root $(INTEGRATION) -skip ^TestRootless$$ ./integration' '-label=rootless $(INTEGRATION) -run ^TestRootless$$ ./integration' \
		'-p 1 $(INTEGRATION) $(SURFACES)'

.PHONY: test-slow
test-slow: setup ## the tests that make test leaves out (hosttest.Slow), and the backend's suite
	@scripts/prepare.sh
	@$(BACKEND) go run ./scripts/testrun '-label=slow $(INTEGRATION) slow:integration' \
		'-label=rootless $(INTEGRATION) -run ^TestRootless$$ ./integration' '-label=backend $(INTEGRATION) -tags=$(TAGS),integration ./podman'

.PHONY: house
house: ## how large the product is, as figures that should fall
	@go run ./scripts/house

.PHONY: test-one
test-one: build ## one package, and of it the tests that RUN matches: PKG=./integration RUN=TestTheMainJob
	go test -count=1 -timeout 30m $(if $(RUN),-run '$(RUN)') $(ARGS) $(PKG)

# Where goroutines meet. make nightly has the race detector in all packages.
RACED := ./agent ./agent/resident ./egress ./httpguard ./internal/box ./internal/door ./internal/hold ./internal/kept ./internal/mcptask ./internal/pool ./internal/registry \
	./internal/relay ./internal/sharing ./mcpserver ./overlay ./podman ./serve ./serve/e2b ./shelltool ./snapshot ./vfs

.PHONY: test-race
test-race: setup ## unit tests of the packages where goroutines meet, with the race detector
	@CGO_ENABLED=1 go run ./scripts/testrun '-label=raced -race -timeout 20m $(GO_TEST) $(RACED)'

.PHONY: test-page
test-page: setup build ## the page in Debian's Chromium
	@scripts/setup.sh npm:npm chromium:chromium
	@go run ./scripts/testrun '$(INTEGRATION) ./integration/page'

# The packages of a client, which works on files of its own system.
CLIENT := . ./cmd/wisbox ./digest ./evaltool/wasm ./hostmount ./internal/beneath ./internal/changes ./internal/config ./internal/far \
	./internal/hold ./internal/jsonfile ./internal/packing ./internal/plumbing ./internal/ports ./internal/relay ./internal/rundir ./internal/sys ./mcpserver ./snapshot

.PHONY: macos
macos: ## the client and its tests compile for macOS; what opens files there passes its tests here
	GOOS=darwin GOARCH=arm64 go build -tags=$(TAGS),kubernetes -o /dev/null ./cmd/wisbox
	GOOS=darwin GOARCH=arm64 go vet $(CLIENT)
	go test -timeout 10m -tags=$(TAGS),portable ./hostmount ./internal/beneath ./internal/changes

RUNSC := gvisor.dev/gvisor/runsc@v0.0.0-20260224225140-573d5e7127a8
# What gVisor does otherwise, see docs/gvisor.md: limits end the sandbox and not the
# program, the host sees none of its processes, it loads no seccomp profile and
# counts processor time by itself; F01 kills 20 starts, which take seconds each; older
# versions' sessions are not of this isolation.
GVISOR_DIFFERS := TestProgramsCanNotTrace|TestCallsGoOnBesideAGreedyProgram|TestAProgramIsUser1000WithoutAnyCapability|TestTheRootIsReadOnlyAndTheWorkspaceIsNot|TestMemoryOverTheLimitIsKilled|TestFilesInMemoryLeaveRoomForPrograms|TestVerdictsComeFromTheCgroup|TestABusyLoopGetsItsProcessorsAndNoMore|TestAForkStormStopsAtTheLimitOfProcesses|TestAThousandFreshCallsLeaveNothing|TestAGivenSeccompProfileHolds|TestFault_F(01|02|07|23|32|38)|TestDisk|TestDoctor|TestRootless|TestStateOfOlder|TestAHolderOfAnOlder
# Without rights: what one user's Podman could do otherwise.
GVISOR_ROOTLESS := TestTheMainJob|TestProbes|TestThereIsNoNetwork|TestNothingOfTheHosts|TestBothSides|TestProgramsOfOne|TestAKeptSession|TestAContainerThatIs|TestConformance|TestFault_F(09|10|13|14|18|37)

.PHONY: test-gvisor
test-gvisor: setup image ## the backend's suite and the integration tests with --isolation gvisor, as root and without rights; builds runsc if it is missing
	[ -x .cache/runsc ] || GOFLAGS= GOBIN=$(CURDIR)/.cache go install $(RUNSC)
	$(BACKEND) WISBOX_RUNSC=$(CURDIR)/.cache/runsc \
		go test -count=1 -timeout 20m -tags=$(TAGS),integration -run GVisor ./podman
	WISBOX_ISOLATION=gvisor WISBOX_RUNSC=$(CURDIR)/.cache/runsc \
		go test -count=1 -timeout 60m -skip '$(GVISOR_DIFFERS)' ./integration
	WISBOX_ISOLATION=gvisor WISBOX_RUNSC=$(CURDIR)/.cache/runsc WISBOX_ROOTLESS_RUN='^($(GVISOR_ROOTLESS))' WISBOX_CASES='^(shell|process|python)\.' \
		go test -count=1 -timeout 20m -run '^TestRootless$$' ./integration

.PHONY: test-podman5
test-podman5: setup image ## the backend's suite and some commands on Debian's next Podman, rootful and rootless: SUITE=trixie or forky
	scripts/podman5.sh $(SUITE)

.PHONY: test-vm
test-vm: setup image ## everything that the README promises, on a real Debian in qemu with systemd and cgroup v2, as root and as a user: SUITE=bookworm or trixie; hours without KVM; needs root
	@scripts/setup.sh qemu-system-x86:qemu-system-x86_64 qemu-utils:qemu-img
	scripts/vm/test.sh $(or $(SUITE),trixie)

# WISBOX_K8S_PORT and WISBOX_K8S keep clusters apart, see scripts/cluster/README.md.
CLUSTER := $(CURDIR)/scripts/cluster/cluster.sh
LOAD_POD = mkdir -p .cache; rm -f .cache/pod.tar; podman save -q -o .cache/pod.tar localhost/wisbox-pod:latest && $(CLUSTER) load .cache/pod.tar >/dev/null && rm .cache/pod.tar

.PHONY: test-cluster
test-cluster: setup image-pod ## sessions in Pods of a real Kubernetes on this machine, and the backend's suite there; needs root
	$(CLUSTER) up 3600
	trap '$(CLUSTER) down' EXIT; $(LOAD_POD) && \
		WISBOX_CLUSTER=$(CLUSTER) WISBOX_REQUIRE_CLUSTER=1 WISBOX_TEST_KUBECONFIG="$$($(CLUSTER) kubeconfig)" WISBOX_TEST_LOAD="$(CLUSTER) load" \
		go test -p 1 -count=1 -timeout 40m ./cluster/kubernetes ./integration/pods ./integration/gateway ./integration/cluster

KWOK := sigs.k8s.io/kwok/cmd/kwok@v0.7.0

.PHONY: test-kwok
test-kwok: ## a thousand sessions on nodes that kwok simulates, of a client and of two servers: memory, and writes of the API server; needs root, builds kwok if it is missing
	[ -x .cache/bin/kwok ] || GOFLAGS= GOBIN=$(CURDIR)/.cache/bin go install $(KWOK)
	NO_NODE=1 CM_ARGS=--node-monitor-grace-period=1h $(CLUSTER) up 3600  # kwok may be slow to renew its nodes
	trap '$(CLUSTER) down' EXIT; WISBOX_KWOK=$(CURDIR)/.cache/bin/kwok WISBOX_REQUIRE_CLUSTER=1 WISBOX_TEST_KUBECONFIG="$$($(CLUSTER) kubeconfig)" \
		go test -v -count=1 -timeout 30m -run TestAThousandSessions ./integration/gateway

.PHONY: test-quota
test-quota: ## project quotas, on a kernel that has them: User Mode Linux
	@scripts/setup.sh user-mode-linux:linux.uml kmod:insmod
	scripts/quota-kernel.sh

.PHONY: wasm
wasm: build ## Python in WebAssembly, for the sandbox wasm, if it is not there
	bin/wisbox lab wasm install

.PHONY: bench
bench: setup image ## the tables under docs/benchmarks, next to peers measured in the same run
	@scripts/setup.sh npm:npm ripgrep:rg # the bases of two tables
	go run ./bench -o docs/benchmarks
	@$(MAKE) --no-print-directory bench-pods
	@cat docs/benchmarks/*.md

.PHONY: bench-pods
bench-pods: setup image-pod ## the table of sessions in Pods, on a Kubernetes of its own; needs root
	$(CLUSTER) up 3600
	trap '$(CLUSTER) down' EXIT; $(LOAD_POD) && \
		PATH="$(or $(WISBOX_K8S),$(CURDIR)/.cache/cluster)/bin:$$PATH" WISBOX_TEST_KUBECONFIG="$$($(CLUSTER) kubeconfig)" \
		go run ./bench -table pods -o docs/benchmarks

.PHONY: bench-go
bench-go: ## the Go benchmarks of the packages
	go test -run '^$$' -bench . -benchmem $(UNIT)

.PHONY: model
model: ## check the model of the rlm protocol with spin
	@scripts/setup.sh spin:spin
	docs/model/check.sh

FLAT := TestRandomCallsStayFlat|TestSessionsOpenedAndClosedAtOnce
SOAK := F03|F34|F40|$(FLAT)

.PHONY: soak
soak: setup image ## random calls, kills and sessions under the race detector, as many as T hours of use bring: T=4h
	CGO_ENABLED=1 WISBOX_SOAK=$(or $(T),1h) go test -race -v -count=1 -timeout 12h -run '$(SOAK)' ./integration
	WISBOX_SOAK=$(or $(T),1h) go test -v -count=1 -timeout 12h -run '$(FLAT)' ./integration
	WISBOX_LOAD_SECONDS=60 go test -v -count=1 -run TestManyCallsInFlight ./integration/mcp
	WISBOX_SOAK=1 go test -count=20 -timeout 2h ./agent
	WISBOX_KILLS=200 go test -count=1 -timeout 1h -run Killed ./snapshot

.PHONY: nightly
nightly: setup image ## proofs that are too long for each change: 1 GB by each way to an allowed host, real clients by the three ways, all that a session may receive, Debian's Node.js, a task for each coding agent of npm, Debian's pandas and Matplotlib, 5,000 programs of the sandbox restricted, 500 commands a second through the server for E2B's SDKs, a browser at all of the page, all scripts and the slowest packages with the race detector, all tests without rights, all cases and scripts and a thousand sessions on Kubernetes, Debian 12 and 13 in qemu, dist twice
	$(MAKE) --no-print-directory dist && cp dist/SHA256SUMS .cache/first && $(MAKE) --no-print-directory dist && cmp .cache/first dist/SHA256SUMS
	@scripts/setup.sh npm:npm default-jdk-headless:javac wget:wget python3-requests:/usr/lib/python3/dist-packages/requests
	CGO_ENABLED=1 WISBOX_NIGHTLY=1 go test -race -count=1 -timeout 1h $(UNIT)
	WISBOX_NIGHTLY=1 go test -v -count=1 -timeout 1h -run 'TestEgress|TestAgentsOfNpm|TestRealPandas|TestRestricted|TestRootless' ./integration
	WISBOX_LOAD_SECONDS=60 go test -v -count=1 -timeout 1h -run TestManyCommands ./integration/serve
	@scripts/setup.sh npm:npm chromium:chromium
	WISBOX_NIGHTLY=1 go test -v -count=1 ./integration/page
	WISBOX_NIGHTLY=1 $(MAKE) --no-print-directory test-cluster
	$(MAKE) --no-print-directory test-kwok
	$(MAKE) --no-print-directory test-vm SUITE=bookworm
	$(MAKE) --no-print-directory test-vm SUITE=trixie

.PHONY: fuzz
fuzz: ## every fuzz target for SECONDS_PER_FUZZ seconds
	@go list ./... | while read -r pkg; do \
		for target in $$(go test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime "$(SECONDS_PER_FUZZ)s" "$$pkg" </dev/null; \
		done; \
	done

.PHONY: lint
lint: ## gofmt, idioms that make readers stumble, the linters of .golangci.yml, and that the agent's binaries are its source's; building them takes three minutes, once
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
		[ -z "$$bad" ] || { echo "not formatted:"; echo "$$bad"; exit 1; }
	scripts/idioms.sh
	go run $(GOLANGCI_LINT) run --build-tags $(TAGS),integration,kubernetes
	go run ./agent/native/internal/mkagent -check

.PHONY: clean
clean: ## remove what the other targets made here
	rm -rf bin dist
