"""What servers and clients of every protocol share: how they listen, and what operators are told of a failure."""
