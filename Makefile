# A map of what can be done here; the work is in `.ci/`. Each target first installs what it needs and is missing (as root
# on Debian 12), names it elsewhere, and installs nothing the second time.

.PHONY: help build demo demo-hugegraph test test-fast test-long test-kernels test-hugegraph test-hugegraph-full test-kubernetes image package bench lint

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the product: target/release/storewatch, with the eBPF object inside
	@.ci/prepare $@
	@.ci/build

demo: ## a cluster, two client pods and the agent on this machine's kernel, in about a minute (root)
	@.ci/prepare $@
	@.ci/demo

test: ## everything that is checked: lints, unit tests; as root also kernel, process and demo tests
	@.ci/prepare $@
	@.ci/test

test-fast: ## the inner loop: format and the tests without root
	@.ci/prepare $@
	@.ci/test fast

test-long: ## CASES (10000) of each property test, and every situation from ten times as many instants: about an hour
	@.ci/prepare test-fast
	@.ci/long

# HugeGraph comes from Maven Central, cached outside the tree. HUGEGRAPH_VERSION=1.7.0 needs HUGEGRAPH_SOURCE=TREE too; ARGS
# goes to the script (ARGS=--keep, ARGS=--help, ARGS='store-cut store-roll').
demo-hugegraph: ## the fault on real HugeGraph parts: a Store moves, one Server asks nobody; about 5 minutes (root, Java, Maven)
	@.ci/prepare hugegraph
	@.ci/hugegraph demo $(ARGS)

test-hugegraph: ## a real HugeGraph 1.5.0 cluster on this machine and its faults: the short battery, 10 minutes (root, Java, Maven)
	@.ci/prepare hugegraph
	@.ci/hugegraph short $(ARGS)

test-hugegraph-full: ## the same with the slow faults, about an hour and a half
	@.ci/prepare hugegraph
	@.ci/hugegraph full $(ARGS)

test-kernels: ## the kernel tests on this kernel and, in guests, on Debian's 6.1 (three builds) and 6.12 (root)
	@.ci/prepare $@
	@tests/kernel/guests/run $(ARGS)

# KUBERNETES=v1.34.4, CONTAINERD=system, CGROUPS=v2, SHAPE=systemd choose another node; ARGS goes to the script (ARGS=--list).
test-kubernetes: ## the chart and the gate on a real Kubernetes node built from source: 10 minutes the first time (root, Go)
	@.ci/prepare kubernetes
	@.ci/kubernetes $(ARGS)

image: ## an OCI image of the static binary and its SBOM, without a daemon: target/image (ARGS='--arch amd64 --arch arm64')
	@.ci/prepare image
	@deploy/image/build $(ARGS)

package: ## a Debian package of the static binary: target/debian
	@.ci/prepare image
	@deploy/debian/build "$$(deploy/image/static amd64 storewatch)" target/debian

bench: ## the figures, as a table (root)
	@.ci/prepare $@
	@.ci/bench

lint: ## format, clippy, shell scripts, the dependencies' licences and sources
	@.ci/prepare $@
	@.ci/lint
