"""The documentation as a website: `make site`.

    build.py        stages the Markdown files, runs Sphinx with MyST and Furo, writes build/site/VERSION and its index
    navigation.py   the sidebar, from the tables of docs/README.md
    reference.py    pages that are generated: the commands' help, the Python API's docstrings

Sphinx, since its search works in files opened from a disk: the index is a script. Zensical, the successor of MkDocs'
Material theme, fetches its index, which browsers refuse for files; it has no stable release yet.
"""
