"""Pipelines declared in a file: sources, tables, steps and sinks, each a call of the library.

``nodes`` reads YAML with the line of every value, ``kinds`` and ``catalog`` say what can be
declared (they read it off the functions' own signatures), ``checking`` finds every mistake,
``building`` makes the calls and ``running`` the queries.
"""
