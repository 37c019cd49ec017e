"""What the broker asks of the world that Trio does not already abstract: disk, wall clock, entropy.

Time, sockets and name lookup are Trio's own seams (`trio.abc.Clock`, `SocketFactory`, `HostnameResolver`) and need no
port. Only Protocols live here; `real_io` and `sim_net` fit them, the latter structurally, without importing this
package.
"""
