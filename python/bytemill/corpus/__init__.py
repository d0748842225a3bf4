"""What a corpus may be, where it lies, and how its records are read.

argument    the corpus that a caller names, checked
places      places → sources: files, directories, globs, URLs, datasets
choosing    which files of a directory belong to it
names       names of sources as they are stored and shown
stdin       text that is piped in
remote      files elsewhere
columns     records that Python reads for Rust: parquet, arrow, iterables
samples     a bounded share of it
"""
