"""What all share and knows no broker: time, threads, chance, log lines, and small tools."""
