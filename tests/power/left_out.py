"""`pytest -p tests.power.left_out`: the tests, in a process in which POWER_LEFT_OUT's sync is left out."""

from tests.power.launcher import leave_out

leave_out()
