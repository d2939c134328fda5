"""Build the documentation as a website: `make site`.

    build.py        stages the Markdown files, runs Sphinx with MyST and Furo, writes build/site/VERSION and its index
    navigation.py   the sidebar, from the tables of docs/README.md
    reference.py    generated pages: the commands' help, and the Python API's docstrings

The generator is Sphinx, because its search works in files opened from a disk: its index is a script. Zensical, the
successor of MkDocs' Material theme, fetches its index, which browsers refuse for files, and has no stable release yet.
"""
