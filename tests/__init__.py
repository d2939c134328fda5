"""Tests, by what they run; all use `tests/kit/`, benchmarks too.

unit          one module or package
parity        native code next to plain Python or another library
log_damage    logs alone: torn, flipped, cut, half compacted
integration   a broker with clients, or next to Apache Kafka
compat        other projects' clients
spark         in a Spark session
reliability   a broker's process: crashes, damage, full disks, hostile clients, by scenario
power         power cuts: states that a recorded run may leave; `replicas`: of a broker in a cluster
kills         kill -9 by the hundred: of brokers while users, ACLs and quotas change, and of loads
cluster       a replicated cluster whose brokers, links and controllers fail
simulation    logs, groups and transactions on one thread, by a seed, on disks in memory
directories   data directories of other commits and of each release
hostile       requests with many names, next to an honest client
fuzz          corrupted bytes from unauthenticated clients, for hours
kit           what tests share: processes, fakes, oracles, checkers, harness
"""
