"""``deltarelay doctor``: one function per check, which returns a finding and a fix.

No check writes anything, starts a JVM, or shows a secret or a row; no check raises.
"""

from infra.diagnostics.doctor.examine import Diagnosis, run_all_checks
from infra.diagnostics.doctor.finding import Finding, State
from infra.diagnostics.doctor.machine import Machine

__all__ = ["Diagnosis", "Finding", "Machine", "State", "run_all_checks"]
