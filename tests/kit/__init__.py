"""Shared code of the tests, some of it used by benchmarks.

processes/   programs of their own: the broker, Apache Kafka, ZooKeeper, registries, and what tests kill
fakes/       stand-ins in this process: a clock, clusters that fail on request, a proxy
oracles/     formats and rules once more, slow and obvious, sharing nothing with kafkalite
checkers/    what was acknowledged against what is read back: every way in which they do not fit
harness/     ways to drive the product: frames by hand, loads, logs, groups and coordinators without a broker
"""
