"""Actors with messages: a mailbox, a reference that others send to, a new incarnation after each crash."""
