"""Exceptions of Replicant.

A message says where, what was given, what is allowed and, if known, the next step ("hint: ...").
Each class is also the built-in exception that a Python program would expect.
"""

EXIT_CONFIG = 78  # of a program that refuses its configuration: kExitConfig of base/process.h


class Error(RuntimeError):
    """Base of the others."""


class InvalidArgument(Error, ValueError):
    """An argument outside what the function allows."""


class ConfigError(Error, ValueError):
    """A configuration file or a key that cannot be used."""


class IoError(Error, OSError):
    """A file, folder or stream that cannot be read or written, or that breaks its format."""


class DeviceError(Error):
    """A compute device that is missing or failed."""


class CommError(Error, ConnectionError):
    """A peer or a message that broke the protocol, or a connection that cannot be made."""


class UnsupportedScene(Error):
    """A scene that the ray caster cannot draw; the message names the reason."""
