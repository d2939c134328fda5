"""Avro: schemas, and who can read whom."""
