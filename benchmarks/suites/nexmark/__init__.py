"""Nexmark: persons, auctions and bids, and its queries that enrich, window and join."""
