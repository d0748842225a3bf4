"""Faults on purpose: what bytemill promises when disks fill up, processes die and files are damaged.

    make faults                                     all of it
    python -m faults inject --only encode           one part, one command (in tests/)
    python -m faults --help

- `inject`: an error or a kill at the n-th call that changes a file, for every n
- `kill`: signals at random moments
- `mutate`: damaged files, for every reader

What they share: `shim` (fails system calls), `warm` (a process per command, forked from one that has
imported everything), `commands` (what is run), `checks` (what must hold afterwards).
"""
