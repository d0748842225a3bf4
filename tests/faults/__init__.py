"""Fault injection: full disks, killed processes, damaged files, and what must hold afterwards.

    make faults                                     all of it
    python -m faults inject --only encode           one part, one command (in tests/)
    python -m faults --help

- `inject`: an error or a kill at the n-th call that changes a file, for every n
- `kill`: signals at random moments
- `mutate`: damaged files, for every reader

What they share: `shim` (fails system calls), `warm` (runs commands in forked processes), `commands`
(what is run), `scenarios` (on what), `checks` (what must hold afterwards), `report`.
"""
