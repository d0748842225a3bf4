"""Tokens on disk: how a corpus becomes a directory of them, and how that is read.

encode      corpus → plan → parts → shards → manifest
plan        everything that determines the bytes written
parts       the functions that an engine calls: a unit → parts, parts → a shard
directory   the directory while it is being written
manifest    `manifest.json`, written and checked
view        the ids as one array
"""
