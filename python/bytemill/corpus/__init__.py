"""Corpora: the argument that names one, its sources, and reading their records.

argument    the corpus argument of public functions, checked
places      places → sources: files, directories, globs, URLs, datasets
choosing    which files of a directory are read
names       names of sources as they are stored and displayed
stdin       piped text
remote      remote files
columns     records that Python reads for Rust: parquet, arrow, iterables
samples     a bounded sample of a corpus
"""
