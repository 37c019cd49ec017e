"""What is derived from the log: queues, index and open transactions, filled by one service and made again if lost."""
