"""Who comes in to a broker, and what they may do there: TLS and SASL of its listeners, and rules. `kafkalite.security`
has what a client uses too.
"""
