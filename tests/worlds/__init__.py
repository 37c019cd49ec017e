"""What tests of every kind stand on: stores on a disk, pairs of brokers, name servers, sockets, scripts."""
