"""The fault campaign: operators on the lab's hosts while a nemesis breaks them."""
