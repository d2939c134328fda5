"""A web page for any Kafka cluster: topics, messages, groups, dead letters, and where an event went.

server.py        addresses, sign-in, start and stop, over kafkalite.web
site.py, clusters.py    one cluster, and several under addresses of their own
application.py   paths ─▶ pages ─▶ HTML by templates, or the same as JSON
topics.py, messages.py, groups.py, letters.py, tracking.py, brokers.py, transactions.py, permissions.py, subjects.py,
policies.py      pages: a client and a request in, plain data out
actions.py       paths that change things; access.py, audit.py: who may, and who did; forms.py: what they are sent
sending.py, resetting.py, altering.py, redriving.py, exporting.py, tailing.py    the actions, by what they are about
console_state.py, jobs.py  what actions share, and what takes longer than a page
cluster_view.py  what is known over time, and the pages of it: sampler.py looks, observations.py and ages.py make rates,
                 lags and ages of it, rings.py keeps them, chart_sets.py and charts.py draw; home.py the first page
masks.py         what nobody may see, taken out before anything is shown or searched
rendering.py, texts.py  bytes as people may look at them; numbers, sizes and times
clients.py       clients that requests take turns with
templates/, static/    pages are made by the server; scripts only make them quicker to use

GET changes nothing. What changes something is a POST of one of this console's own pages, by somebody whose role lets
him, and is written down.

With `--zookeeper` it has pages about Kafka 0.7's groups, by `kafkalite.classic.progress`.
"""
