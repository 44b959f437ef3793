# Targets for developers. `make help` lists them; CI runs `make test`.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Arguments for the experiment of `make run`, for instance ARGS="--cycles 500000 --case idle".
ARGS ?=
# Architectures of `make nodes` and `make test-nodes`.
NODES ?= x86_64 aarch64 armv7 armv6
# Seconds of fuzzing per target.
TIME ?= 60
# Kills of `make soak-fleet`, and how many of them delete the store of nats-server: at most a quarter.
KILLS ?= 200
DELETIONS ?= 5

# Tools from crates.io; each is built once, into a directory of its version. DWELL_TOOLS is an absolute path.
TOOLS := $(or $(DWELL_TOOLS),target/tools)
DENY := $(TOOLS)/cargo-deny@0.20.2
FUZZ := $(TOOLS)/cargo-fuzz@0.13.2
DEB := $(TOOLS)/cargo-deb@3.8.0

# The newest nats-server, from its Go module. This version needs Go 1.26.
NATS_VERSION := 2.15.3
NATS_SERVER := $(TOOLS)/nats-server@$(NATS_VERSION)

PEER := target/peers/bin/stamp-suite
BINARIES := target/release/dwell target/release/dwell-node target/release/dwell-uplink
root := $(DESTDIR)$(PREFIX)

.DEFAULT_GOAL := help
.PHONY: help build soft-aes run test firmware setup-firmware test-guests test-arm test-web lint lint-code lint-dependencies fmt fuzz deb nodes test-nodes setup setup-packages setup-run setup-nodes setup-guests peers man completions accuracy bpf web bench bench-micro bench-rtt bench-data bench-relay bench-pace bench-hostile bench-reflect bench-web bench-fleet install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

run: setup-run build ## run plans/quick.toml: round trips in an idle and a loaded lab, with a report (ARGS="--cycles 500000")
	@target/release/roundtrip $(ARGS)

# The peers and tools are built in parallel with the lint, because compilers mostly wait for one another.
test: setup-packages ## run every test that needs no virtual machine
	@$(MAKE) --no-print-directory -j2 lint-code lint-dependencies peers firmware
	tests/run

# The debug build reaches the guests, which also have it as a shared folder; the programs of `make nodes` are copied
# to them as to any device.
test-guests: setup-guests ## test on virtual machines: kernels 6.1 and 6.12, radios, clocks (ONLY=TEXT)
	$(CARGO) build --locked --workspace --bins
	$(CARGO) test --no-run --locked -p dwell-node-cli --test lab
	@$(MAKE) --no-print-directory nodes NODES=x86_64
	tests/guests/run suite $@ $(if $(ONLY),--only $(ONLY))

test-arm: setup-guests ## test on virtual machines with arm64 and armv7 processors (ONLY=TEXT)
	$(CARGO) build --locked --workspace --bins
	@$(MAKE) --no-print-directory nodes NODES="aarch64 armv7"
	tests/nodes aarch64 armv7
	tests/guests/run suite $@ $(if $(ONLY),--only $(ONLY))

test-web: setup-packages ## test reports and the web controller in a browser; screenshots in target/tmp/report-pages and web-pages
	DWELL_ALL_PAGES=1 $(CARGO) test --locked -p dwell-report --test web -- --show-output
	$(CARGO) test --locked -p dwell --test web -- --show-output

# The server of Debian first, which `make test` uses too.
.PHONY: soak-fleet
soak-fleet: setup-packages $(NATS_SERVER) ## kill uplinks, hub, nats-server and PostgreSQL at random moments, with nats-server of Debian and the newest (KILLS=200 DELETIONS=5)
	$(CARGO) build --locked -p dwell-uplink
	@for server in "" $(abspath $(NATS_SERVER))/nats-server; do \
		DWELL_SOAK_KILLS=$(KILLS) DWELL_SOAK_DELETIONS=$(DELETIONS) $${server:+env DWELL_NATS_SERVER=$$server} \
			$(CARGO) test --locked -p dwell --test soak -- --nocapture killed_processes || exit 1; \
	done

lint: lint-code lint-dependencies ## check formatting, clippy, documentation, language, import circles and dependencies

lint-code:
	tests/language
	tests/import-circles
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p dwell-protocol -p dwell-fleet --locked -- -D warnings # without the feature clap
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

lint-dependencies: $(DENY)
	$(DENY)/bin/cargo-deny --locked check bans licenses sources
	$(DENY)/bin/cargo-deny --locked --manifest-path node/cli/Cargo.toml check bans
	$(DENY)/bin/cargo-deny --locked --manifest-path uplink/Cargo.toml check bans

fmt: ## format the code
	$(CARGO) fmt --all

build: ## build release binaries in target/release
	$(CARGO) build --release --locked --bins

# The AES of the crate `aes` uses CPU instructions unless it is built without.
soft-aes: ## build target/*/dwell-node-soft-aes for `dwell replay relay-delay`, whose AES uses no CPU instructions
	RUSTFLAGS='--cfg aes_backend="soft"' $(CARGO) build --release --locked -p dwell-node-cli --bin dwell-node --target-dir target/soft-aes
	mkdir -p target/release target/debug
	ln -f target/soft-aes/release/dwell-node target/release/dwell-node-soft-aes
	ln -f target/soft-aes/release/dwell-node target/debug/dwell-node-soft-aes

nodes: setup-nodes ## build static dwell-node for devices in target/nodes, and check its size and memory (NODES="armv7 aarch64")
	setup/nodes $(NODES)

# Tests run the Cortex-M3 in QEMU, and the Uno in simavr.
firmware: setup-firmware ## build the firmware of microcontrollers in target/firmware, print its sizes and test its parsers
	@$(MAKE) --no-print-directory -C firmware BUILD=$(CURDIR)/target/firmware

test-nodes: setup-nodes ## run the node's tests with the binaries of `make nodes`, under qemu-user where foreign (NODES=armv7)
	tests/nodes $(NODES)

setup: setup-packages $(DENY) ## install missing system packages and the tools of `make lint`

setup-packages:
	@setup/install

setup-run:
	@setup/install run

setup-guests:
	@setup/install run
	@setup/install guests

setup-firmware:
	@setup/install firmware

setup-nodes: setup-run
	@setup/install nodes

peers: $(PEER) ## build the peers that tests communicate with

# A real STAMP sender and reflector. Its speed does not matter, so this is a debug build.
$(PEER):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --root target/peers \
		--target-dir target/peers/build stamp-suite --version 1.0.0
	@rm -rf target/peers/build

# Their speed does not matter, so these are debug builds. They need a linker, but are not rebuilt for it.
$(TOOLS)/%: | setup-run
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --no-default-features \
		--root $@.partial --target-dir $(TOOLS)/build-$* $*
	@rm -rf $(TOOLS)/build-$* && mv $@.partial $@

$(NATS_SERVER):
	@command -v go >/dev/null || { echo "make soak-fleet needs Go 1.26 or later, for nats-server $(NATS_VERSION)" >&2; exit 1; }
	GOBIN=$(abspath $@.partial) go install github.com/nats-io/nats-server/v2@v$(NATS_VERSION)
	@mv $@.partial $@

# The sanitizer needs flags that RUSTC_BOOTSTRAP=1 permits on a stable compiler. Inputs found go to
# fuzz/target, not to the committed corpus.
fuzz: $(FUZZ) ## run every fuzz target for TIME seconds (TIME=60)
	@setup/install fuzz
	@targets=$$($(FUZZ)/bin/cargo-fuzz list) || exit 1; for target in $$targets; do \
		mkdir -p fuzz/target/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 $(FUZZ)/bin/cargo-fuzz run $$target fuzz/target/corpus/$$target fuzz/corpus/$$target \
			-- -max_total_time=$(TIME) -print_final_stats=1 || exit 1; \
	done

deb: $(DEB) ## build the Debian packages dwell, dwell-node and dwell-uplink in target/debian, and try them in a bare system
	@setup/install deb
	$(MAKE) --no-print-directory build
	@rm -rf target/debian
	$(DEB)/bin/cargo-deb --locked --no-build --no-strip -p dwell
	$(DEB)/bin/cargo-deb --locked --no-build --no-strip -p dwell-node-cli
	$(DEB)/bin/cargo-deb --locked --no-build --no-strip -p dwell-uplink
	tests/deb target/debian/*.deb

man: ## regenerate docs/man from the command definition
	BLESS=1 $(CARGO) test --quiet --locked -p dwell --bin dwell -- generated::man

completions: ## regenerate docs/completions from the command definition
	BLESS=1 $(CARGO) test --quiet --locked -p dwell --bin dwell -- generated::completions

accuracy: setup-packages ## check delay components against known delays, verdicts of pace against known limits, and predictions against measured delays (docs/anatomy.md)
	DWELL_ATTRIBUTION=strict $(CARGO) test --release --locked -p dwell-node-cli --test attribution -- --nocapture --test-threads=1
	DWELL_VERDICTS=strict $(CARGO) test --release --locked -p dwell --test controller -- verdicts:: --nocapture --test-threads=1
	$(CARGO) test --release --locked -p dwell-predict --test large -- --nocapture --test-threads=1
	DWELL_PREDICTIONS=strict $(CARGO) test --release --locked -p dwell --test controller -- predictions:: --nocapture --test-threads=1
	DWELL_AUDIT_TABLES=1000 $(CARGO) test --release --locked -p dwell-audit --test false_alarms -- --nocapture

bpf: setup-packages ## recompile node/bpf, the programs that `dwell trace` loads
	node/bpf/build node/bpf

web: setup-packages ## rebuild the scripts that reports and pages embed (controller/report/assets, controller/server/assets)
	setup/web-packages
	cd controller/web && npm run build

bench: setup-packages build target/release/pingpong target/release/echo.bpf.o target/release/crelay target/release/event.bpf.o target/release/cpace target/release/catch.bpf.o target/release/hostile-c target/release/creflect ## short form of every bench in one table (ARGS="--save rows.json", ARGS="--baseline rows.json")
	@setup/web-packages
	@target/release/short $(ARGS)

bench-micro: ## measure the code that runs once per packet or sample, without sockets
	$(CARGO) bench --locked -p dwell-wire -p dwell-engine -p dwell-record -p dwell-stats --bench micro -- $(ARGS)

bench-rtt: setup-packages build target/release/pingpong ## compare round trips with sockperf and C; list the goals missed
	@target/release/rtt $(ARGS)

bench-data: setup-packages build target/release/echo.bpf.o ## compare import, figures and reports with pandas; audit; recording; trials; list the goals missed
	@setup/web-packages
	@target/release/data $(ARGS)

bench-relay: setup-packages build target/release/crelay target/release/event.bpf.o target/release/echo.bpf.o ## compare relays with the kernel, socat and C; list the goals missed
	@target/release/relay $(ARGS)

bench-pace: setup-packages build target/release/cpace target/release/catch.bpf.o ## compare trains with iperf, D-ITG, mgen, trafgen and C; list the goals missed
	@target/release/pace $(ARGS)

bench-hostile: setup-packages build target/release/hostile-c ## send hostile datagrams from spoofed sources to reflectors (ARGS="--count 10000000")
	@target/release/hostile $(ARGS)

bench-reflect: setup-packages build target/release/creflect target/release/pingpong target/release/echo.bpf.o ## compare reflectors with sockperf, the kernel and C; service time of node-sim; list the goals missed
	@target/release/reflect $(ARGS)

bench-web: setup-packages build ## load the web controller, and measure whether watching disturbs experiments; list the goals missed
	@target/release/web $(ARGS)

bench-fleet: setup-packages build ## load a hub with 10,000 agents, a backlog, a node's spool and pages of a large fleet; list the goals missed
	@$(MAKE) --no-print-directory nodes NODES=x86_64
	@target/release/fleet $(ARGS)

target/release/creflect: bench/c/reflect.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $<

target/release/hostile-c: bench/c/hostile.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $<

target/release/cpace: bench/c/pace.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $<

target/release/crelay: bench/c/relay.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $< -lcrypto

target/release/%.bpf.o: bench/c/%.bpf.c node/bpf/dwell.bpf.h
	@mkdir -p $(@D)
	clang-14 -target bpfel -mcpu=v3 -O2 -g -std=gnu11 -Wall -Wextra -nostdinc -Inode/bpf -c $< -o $@

target/release/pingpong: bench/c/pingpong.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $<

# Builds only missing binaries, so that `sudo make install` needs no Rust.
$(BINARIES):
	$(MAKE) build

install: $(BINARIES) ## install binaries, built nodes, man pages and completions under PREFIX (/usr/local)
	install -D -m 755 -t $(root)/bin $(BINARIES)
	for node in $(wildcard target/nodes/*/dwell-node); do \
		install -D -m 755 -t $(root)/lib/dwell/nodes/$$(basename $$(dirname $$node)) $$node; \
	done
	for image in $(wildcard target/firmware/cortex-m3/dwell-cortex-m3.elf); do \
		install -D -m 644 -t $(root)/lib/dwell/firmware $$image; \
	done
	install -D -m 644 -t $(root)/share/man/man1 docs/man/*.1
	install -D -m 644 -t $(root)/share/zsh/site-functions docs/completions/_dwell*
	install -D -m 644 -t $(root)/share/fish/vendor_completions.d docs/completions/*.fish
	for shell in docs/completions/*.bash; do \
		install -D -m 644 $$shell $(root)/share/bash-completion/completions/$$(basename $$shell .bash); \
	done

clean: ## remove build and measurement results
	$(CARGO) clean
	rm -rf results
