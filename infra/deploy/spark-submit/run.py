"""The command `deltarelay` as an application of spark-submit. Guide: docs/deploy/spark-submit.md"""

from infra.cli.main import main

main()
