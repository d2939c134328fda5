"""Compiled modules built from ext/kafkalite/_native; each has a .pyi beside its shared object."""
