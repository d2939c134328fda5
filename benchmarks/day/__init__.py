"""The paper's day: a pipeline under load for as long as it is told, audited all the while; see `__main__`."""
