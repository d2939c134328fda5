"""What reads bytes of strangers before it is known who they are: TLS, SASL, HTTP. Fed with spoiled ones."""
