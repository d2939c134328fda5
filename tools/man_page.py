"""Writes the manual page kafkalite(1) from the help of the commands."""

from __future__ import annotations

from typing import Final

from kafkalite.cli import COMMANDS
from kafkalite.cli.common import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE

PAGE: Final = r"""
.TH KAFKALITE 1 "" "kafkalite {version}" "User Commands"
.SH NAME
kafkalite \- durable Kafka broker of one process
.SH SYNOPSIS
.B kafkalite
.I COMMAND
[\fIOPTION\fR ...]
.SH DESCRIPTION
Run a broker that today's Kafka clients use unmodified, without a JVM, and the tools for it.
.B kafkalite
.I COMMAND
.B \-\-help
describes a command.
.SH COMMANDS
{commands}
.SH EXIT STATUS
.TP
.B 0
The command is done.
.TP
.B 1
The command failed on the way.
.TP
.B 2
The command cannot begin: an invalid option or configuration, or a broker that cannot be reached.
.TP
.B 130
The command was interrupted.
.SH ENVIRONMENT
.TP
.B {variable}
The default of
.BR \-\-bootstrap\-server ,
the brokers to connect to. Without it, that is {default}.
.SH FILES
.TP
.I /etc/kafkalite/server.properties
The settings of the broker that
.B systemctl start kafkalite
starts;
.B kafkalite settings
lists all settings.
.TP
.I /var/lib/kafkalite
The data of that broker.
.SH SEE ALSO
.BR systemctl (1)
"""


def man_page(version: str) -> str:
    """Return the page's source for man(1)."""
    commands = "\n".join(f".TP\n.B {_escaped(name)}\n{_escaped(about)}" for name, about in COMMANDS.items())
    return PAGE.lstrip().format(
        version=version, commands=commands, variable=BOOTSTRAP_VARIABLE, default=BOOTSTRAP_DEFAULT
    )


def _escaped(text: str) -> str:
    """Escape what roff would interpret. No text begins with a dot or a quote, which are not escaped."""
    return text.replace("\\", r"\e").replace("-", r"\-")
