"""Tokens on disk: how a corpus becomes a directory of them, and how that is read.

encode      corpus → plan → parts → shards → manifest
plan        all that decides which bytes are written
parts       what an engine runs: a range into parts, parts into a shard
directory   the directory while it is written
manifest    `manifest.json`, written and checked
view        the ids as one array
"""
