// Nothing but what holds the precompiled header of the contract.
