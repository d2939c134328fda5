"""Apache Kafka's tools, one after another in one JVM."""
