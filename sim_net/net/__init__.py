"""The simulated network: links between nodes, TCP and UDP as Linux has them, and sockets as Trio offers them."""
