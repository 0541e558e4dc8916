"""Finding out what is wrong with a set-up: one small function per check, each with what it found and what helps.

No check writes anything, starts a JVM or shows a secret or a row; none raises.
"""

from infra.diagnostics.doctor.examine import Diagnosis, examine
from infra.diagnostics.doctor.finding import Finding, State
from infra.diagnostics.doctor.machine import Machine

__all__ = ["Diagnosis", "Finding", "Machine", "State", "examine"]
