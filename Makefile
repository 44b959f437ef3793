# Targets for developers. `make help` lists them; CI runs `make test`.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Arguments for the experiment of `make run`, for instance ARGS="--cycles 500000 --case idle".
ARGS ?=

PEER := target/peers/bin/stamp-suite
BINARIES := target/release/dwell target/release/dwell-node
root := $(DESTDIR)$(PREFIX)

.DEFAULT_GOAL := help
.PHONY: help build run test test-web lint fmt setup setup-run peers man completions accuracy bpf web bench bench-rtt bench-data bench-relay bench-pace bench-hostile install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

run: setup-run build ## run plans/quick.toml: round trips in an idle and a loaded lab, with a report (ARGS="--cycles 500000")
	@target/release/roundtrip $(ARGS)

# The peers are built in parallel with the lint, because compilers mostly wait for one another.
test: setup ## run everything that CI runs
	@$(MAKE) --no-print-directory -j2 peers lint
	tests/run

test-web: setup ## test report pages in a browser; screenshots in target/tmp/report-pages
	DWELL_ALL_PAGES=1 $(CARGO) test --locked -p dwell-report --test web -- --show-output

lint: ## check formatting, clippy, documentation, language, and the dependencies of the node binary
	tests/language
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p dwell-protocol -p dwell-fleet --locked -- -D warnings # without the feature clap
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	tests/node-dependencies

fmt: ## format the code
	$(CARGO) fmt --all

build: ## build release binaries in target/release
	$(CARGO) build --release --locked --bins

setup: ## install missing system packages
	@setup/install

setup-run:
	@setup/install run

peers: $(PEER) ## build the peers that tests communicate with

# A real STAMP sender and reflector. Its speed does not matter, so this is a debug build.
$(PEER):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --root target/peers \
		--target-dir target/peers/build stamp-suite --version 1.0.0
	@rm -rf target/peers/build

man: ## regenerate docs/man from the command definition
	@rm -f docs/man/*.1
	$(CARGO) run --quiet --locked -p dwell -- generate man docs/man

completions: ## regenerate docs/completions from the command definition
	$(CARGO) run --quiet --locked -p dwell -- generate completions docs/completions

accuracy: setup ## delay packets at known places and check which part of their delay grows (docs/anatomy.md)
	DWELL_ATTRIBUTION=strict $(CARGO) test --release --locked -p dwell-node-cli --test attribution -- --nocapture --test-threads=1

bpf: setup ## recompile node/bpf, the programs that `dwell trace` loads
	node/bpf/build node/bpf

web: setup ## rebuild the figure runtime that reports embed (controller/report/assets)
	cd controller/web && npm ci && npm run build

bench: setup build target/release/pingpong target/release/echo.bpf.o target/release/crelay target/release/event.bpf.o target/release/cpace target/release/catch.bpf.o target/release/hostile-c ## short form of every bench in one table (ARGS="--save rows.json", ARGS="--baseline rows.json")
	@cd controller/web && { [ -d node_modules/playwright-core ] || npm ci --silent; }
	@target/release/short $(ARGS)

bench-rtt: setup build target/release/pingpong ## compare round trips with sockperf and C; list the goals missed
	@target/release/rtt $(ARGS)

bench-data: setup build target/release/echo.bpf.o ## compare import, figures and reports with pandas; recording; trials; list the goals missed
	@cd controller/web && { [ -d node_modules/playwright-core ] || npm ci --silent; }
	@target/release/data $(ARGS)

bench-relay: setup build target/release/crelay target/release/event.bpf.o target/release/echo.bpf.o ## compare relays with the kernel, socat and C; list the goals missed
	@target/release/relay $(ARGS)

bench-pace: setup build target/release/cpace target/release/catch.bpf.o ## compare trains with iperf, D-ITG, mgen, trafgen and C; list the goals missed
	@target/release/pace $(ARGS)

bench-hostile: setup build target/release/hostile-c ## send hostile datagrams from spoofed sources to reflectors (ARGS="--count 10000000")
	@target/release/hostile $(ARGS)

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

install: $(BINARIES) ## install binaries, man pages and completions under PREFIX (/usr/local)
	install -D -m 755 -t $(root)/bin $(BINARIES)
	install -D -m 644 -t $(root)/share/man/man1 docs/man/*.1
	install -D -m 644 -t $(root)/share/zsh/site-functions docs/completions/_dwell*
	install -D -m 644 -t $(root)/share/fish/vendor_completions.d docs/completions/*.fish
	for shell in docs/completions/*.bash; do \
		install -D -m 644 $$shell $(root)/share/bash-completion/completions/$$(basename $$shell .bash); \
	done

clean: ## remove build and measurement results
	$(CARGO) clean
	rm -rf results
