"""How a store is opened after a stop or a crash, cleaned while it runs, cut, and closed."""
