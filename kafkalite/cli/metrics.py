"""Print dashboards for Grafana (10 or newer) and alert rules for Prometheus.

  kafkalite metrics dashboard > kafkalite.json     # a broker; Grafana: Dashboards, New, Import
  kafkalite metrics pipeline > pipeline.json       # mirrors, audits, loads, schema registries
  kafkalite metrics alerts > kafkalite-alerts.yml  # prometheus.yml: rule_files: [kafkalite-alerts.yml]

A broker serves metrics if metrics.listeners is set, the other programs with --metrics HOST:PORT.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from kafkalite.cli.output import write_text

if TYPE_CHECKING:
    import argparse

FILES: Final = {"dashboard": "kafkalite.json", "pipeline": "pipeline.json", "alerts": "alerts.yml"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        choices=tuple(FILES),
        help=(
            "file to print: dashboard (Grafana, one broker), pipeline (Grafana: mirrors, audits, loads, registries) "
            "or alerts (Prometheus rules)"
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    folder = resources.files("kafkalite") / "metrics" / "dashboards"
    write_text((folder / FILES[arguments.what]).read_text(encoding="utf-8"))
    return 0
