"""The actor runtime: services with a lifetime and a supervisor, and the channels between them.

An actor is an attrs class with an `async run`; its lifetime is a task in a system's nursery. Between actors go values
on the channels that `channels` declares; nobody reads another's fields.
"""
