"""kill -9 by the hundred: of a broker while ACLs, users and quotas change, and of loads."""
