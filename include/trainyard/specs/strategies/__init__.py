"""One module for each strategy of the SDK's `distribution`: what it accepts, and what AWS's toolkits are told.

May import trainyard.errors. Pure. Promises: a dict that the SDK v2 (2.257.7) sends is sent alike, word for word; one
that would be sent and then ignored, or raise in the container, is refused here with what to write instead.
"""
