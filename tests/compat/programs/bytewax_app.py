"""Bytewax: `python bytewax_app.py BOOTSTRAP FROM TO` writes each message in capitals, to the end there is now."""

import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main

bootstrap, source, target = sys.argv[1:]
flow = Dataflow("capitals")
texts = op.input("in", flow, KafkaSource([bootstrap], [source], tail=False))
capitals = op.map("upper", texts, lambda message: KafkaSinkMessage(message.key, message.value.upper()))
kafka.output("out", capitals, brokers=[bootstrap], topic=target)
cluster_main(flow, [], 0)
