"""kill -9 by the hundred, under a storm of changes of who may do what: rules, users, quotas."""
