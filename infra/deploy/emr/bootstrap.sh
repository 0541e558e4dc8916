#!/bin/sh
# Bootstrap action of EMR on EC2: runs on every machine of the cluster. Guide: docs/deploy/emr.md
set -eu
sudo dnf install --assumeyes python3.11
sudo python3.11 -m venv /opt/deltarelay
aws s3 cp --recursive s3://my-artifacts/wheels /tmp/wheels
sudo /opt/deltarelay/bin/pip install /tmp/wheels/*.whl 'pandas>=2.2,<3'
