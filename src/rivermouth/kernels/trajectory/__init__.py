"""Positions of moving objects in event-time order, and what operators make of them."""
