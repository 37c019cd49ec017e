"""The commands of `rmq-actors`. Heavy imports happen inside the commands that need them."""
