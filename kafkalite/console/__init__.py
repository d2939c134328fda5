"""Serve a web console for any Kafka cluster: topics, messages, groups, dead letters, and the path of an event.

server.py                 addresses, sign-in, start and stop, over kafkalite.web
site.py, clusters.py      one cluster, and several under their own addresses
application.py            paths ─▶ pages ─▶ HTML from templates, or the same data as JSON
topics.py, messages.py, groups.py, letters.py, tracking.py, brokers.py, transactions.py, permissions.py, subjects.py,
policies.py               pages: a client and a request in, plain data out
actions.py                paths of changes
console_roles.py, audit.py    permissions and audit
forms.py                  request bodies
sending.py, resetting.py, altering.py, redriving.py, exporting.py, tailing.py    the actions by topic
console_state.py, jobs.py    state shared by actions, and work that takes longer than a page
cluster_view.py           history and its pages: sampler.py samples, observations.py and ages.py compute rates, lags and
                          ages, rings.py stores them, chart_sets.py and charts.py draw; home.py is the first page
masks.py                  confidential data, removed before anything is shown or searched
rendering.py, texts.py    record bytes as harmless text; numbers, sizes and times
clients.py                a pool of clients for requests
templates/, static/       pages are rendered by the server and work without scripts

GET changes nothing. Every change is a POST from one of the console's own pages, by a user whose role allows it, and is
audited.

With `--zookeeper`, `kafkalite.classic.progress` adds pages about Kafka 0.7's groups.
"""
