"""Checkpoints: sign the ledger, publish the signed notes to the anchors and read them back, prove single events.

sign_ledger.py   reads the whole ledger, checks it against earlier checkpoints, and signs its root
anchored.py      the checkpoints that the anchors keep, and which of them are trusted
publish.py       signs and publishes; confirms the end of the ledger before a runner continues
coverage.py      through which version a trail is signed and anchored, without a JVM
event_proof.py   proves that one event is covered by a checkpoint
"""
