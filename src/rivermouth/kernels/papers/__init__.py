"""The papers' own indexes, kept selectable so that they can be measured."""
