# A map of what can be done here; the work is in `.ci/`. Each target first installs what it needs and is missing (as root
# on Debian 12), names it elsewhere, and installs nothing the second time.

.PHONY: help build demo test test-fast bench lint demo-hugegraph test-hugegraph test-hugegraph-full

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the product: target/release/storewatch, with the eBPF object inside
	@.ci/prepare $@
	@.ci/build

demo: ## a cluster, two client pods and the agent on this machine's kernel, in about 40 s (root)
	@.ci/prepare $@
	@.ci/demo

test: ## everything that is checked: lints, unit tests; as root also kernel, process and demo tests
	@.ci/prepare $@
	@.ci/test

test-fast: ## the inner loop: format and the tests without root
	@.ci/prepare $@
	@.ci/test fast

bench: ## the figures, as a table (root)
	@.ci/prepare $@
	@.ci/bench

lint: ## format, clippy, shell scripts, the dependencies' licences and sources
	@.ci/prepare $@
	@.ci/lint

# HugeGraph comes from Maven Central, cached outside the tree; HUGEGRAPH_VERSION=1.7.0 needs HUGEGRAPH_SOURCE=TREE for PD and Store.
demo-hugegraph: ## the fault on real HugeGraph parts: a Store moves, one Server asks nobody; about 5 min (root)
	@.ci/prepare build
	@.ci/build
	@tests/hugegraph/demo.py

test-hugegraph: ## faults on a real HugeGraph cluster, the agent's verdicts against what clients see; about 15 min (root)
	@.ci/prepare build
	@.ci/build
	@tests/hugegraph/battery.py

test-hugegraph-full: ## the same with the slow faults; about an hour (root)
	@.ci/prepare build
	@.ci/build
	@tests/hugegraph/battery.py --full
