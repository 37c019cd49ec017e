"""Whatever is lost, late or dies in an exchange of roles: never two masters, and nothing that was confirmed is lost."""

from __future__ import annotations

from tests.property.exchange_model import explore


def test_no_order_of_losses_and_deaths_makes_two_masters_or_loses_a_message() -> None:
    states, ends, broken = explore()
    assert not broken, "\n".join([broken[0].broken(), *broken[0].path])
    # Both are slaves where the operator has made the old master one before the other was asked to lead.
    assert ends == {"master, slave", "slave, master", "slave, slave"}
    assert states > 1000
