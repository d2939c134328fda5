"""A web page for any Kafka cluster: topics, messages, groups, dead letters, and where an event went.

server.py        addresses, sign-in, start and stop, over kafkalite.web
application.py   paths ─▶ pages ─▶ HTML by templates, or the same as JSON
topics.py, messages.py, groups.py, letters.py, tracking.py    pages: a client and a request in, plain data out
masks.py         what nobody may see, taken out before anything is shown or searched
shown.py         bytes as people may look at them
clients.py       clients that requests take turns with
templates/, static/    pages are made by the server; scripts only make them quicker to use

It reads and changes nothing: no path takes anything but GET.
"""
