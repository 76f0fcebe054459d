"""What a run may cost before it starts and what it did cost, in USD. Pure arithmetic over the catalogue."""
