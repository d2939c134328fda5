"""Power cuts at a broker of a cluster: what its replicas keep, as leader and as follower.

others      the rest of the cluster, scripted: controllers, and one more broker that leads and follows, with history
recording   a recorded broker between them, its clients, elections, divergence, deaths
judge       a broker on a state, its logs beside what the others had, before and after it has followed them
"""
