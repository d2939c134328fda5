"""Run a pipeline under load for hours, audited all the time, like the day in the Kafka paper; see `__main__`."""
