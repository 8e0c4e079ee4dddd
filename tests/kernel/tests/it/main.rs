//! One real packet per kernel hook, then the cases that prove a classifier right, then whose they are. Needs root,
//! iproute2 and nftables; makes its own network namespaces and cgroups, and removes them. The same binary runs in guests
//! with other kernels: `guests/run`.
//!
//! Every case checks all counters of the pod (what is not expected must be zero), the outcome that the classifier makes of
//! the real evidence, what stays in the maps, and what was lost (`Stage::told`, `Stage::finish`).
//!
//! | What happens | Test |
//! |---|---|
//! | 1: a thousand connections that both ends close at once | `cases::a_thousand_connections_..` |
//! | 2: a second connect on the same socket | `cases::a_second_connect_..` |
//! | 3: a blackhole, the application gives up | `hooks::a_blackhole_shows_..`, `cases::a_killed_process_..` |
//! | 4: refused, by each family and way to dial | `hooks::refused_by_each_family` |
//! | 5: an ICMP reject | `hooks::an_icmp_reject_..`, `rows::a_router_that_forbids_..`, `rows::the_pods_own_firewall_..` |
//! | 6: a router without a route | `cases::a_router_without_a_route_..`, `rows::a_router_without_a_route_for_ipv6_..` |
//! | 7: the own routing refuses | `local::*` |
//! | 8: keep-alive gives up | `cases::keepalive_gives_up_..` |
//! | 9: data without an answer | `cases::data_without_an_answer_..`, `inventory::a_stuck_socket_..` |
//! | 10: the peer is replaced under its address | `cases::a_peer_replaced_..` |
//! | 11: 20 000 refusals, then one success | `storms::after_twenty_thousand_..` |
//! | 12: 1800 dials into a blackhole | `storms::two_thousand_dials_..` |
//! | 13: client and server on one node | `hooks::a_server_on_the_same_node_..` |
//! | 14: a time-out in softirq | `hooks::the_kernel_gives_up_in_softirq_..` |
//! | 15: four processes, a full buffer, no reader | `storms::counters_stay_exact_..`; the probe's tail: `tests/bench` |
//! | 16: connections older than the agent, and than the list | `inventory::what_was_there_before_..`, `attribution::an_old_connection_..` |
//! | 17: an idle connection to an address that was left | `inventory::an_idle_connection_..`; the verdict: `tests/corpus/cases/kernel` |
//! | 18: IPv4 through an IPv6 socket | `hooks::refused_by_each_family`, `local::what_the_own_routing_..` |
//! | 19: a dead address on the own link | `cases::a_dead_address_..`, `rows::a_dead_address_..` |
//! | 20: tracefs unmounted; functions not traceable | `rights::tracefs_is_not_needed`, `hooks::every_hook_is_active_..` |
//! | 21: the agent killed and restarted | `agent/daemon/tests/process/restart.rs` |
//! | 22: PD away | `agent/daemon/tests/process/storage.rs`, `tests/corpus/cases/kernel` |
//! | 23: Stores in a blackhole, readiness asked | `agent/daemon/tests/process/silence.rs` |
//! | 24: host network; cgroup v1 | `attribution::host_network_pods_..`, `attribution::without_cgroups_of_v2_..` |
//!
//! | The kernel's row | Test |
//! |---|---|
//! | connect begins | `rows::a_dial_begins_with_its_address_..` |
//! | refused; time-out; given up; killed | as 4, 14, 3 |
//! | closed with linger 0 | `rows::a_dial_closed_with_linger_zero_..`, `hooks::a_reset_received_and_a_reset_sent` |
//! | ICMP, socket not busy; busy; IPv6 | as 6; as 5; `rows::a_router_without_a_route_for_ipv6_..` |
//! | ARP fails | as 19 |
//! | no source port | `cases::without_a_source_port_..`, `local::what_fails_after_the_begin_..` |
//! | no route, invalid, prohibited | as 7 |
//! | success | `hooks::success_counts_no_failure` |
//! | active close; passive close | `rows::the_side_that_closes_first_..`; `cases::the_peer_closes_first_..` |
//! | RST on ESTABLISHED; in CLOSE-WAIT | `hooks::a_reset_received_..`; `rows::a_reset_after_the_peers_fin_..` |
//! | write into a blackhole; keep-alive; user time-out | as 9; as 8; `cases::a_user_timeout_..` |
//! | unread data at close | `cases::unread_data_at_close_..` |
//! | killed by another | `rows::a_socket_killed_from_outside_..`, `rows::a_dial_killed_from_outside_..` |
//! | passive child | as 13 |

mod attribution;
mod cases;
mod hooks;
mod inventory;
mod local;
mod reconcile;
mod rights;
mod rows;
mod stage;
mod storms;
