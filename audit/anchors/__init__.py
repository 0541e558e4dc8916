"""Anchors: storage outside the trail that keeps signed checkpoints, ideally under other access rights.

    base.py      the protocol and what the implementations share
    file.py      a directory, ideally on write-once storage
    postgres.py  an append-only table, under another owner
    s3.py        a bucket, ideally with Object Lock

Drivers are imported when an anchor is used.
"""
