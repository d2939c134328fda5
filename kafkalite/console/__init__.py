"""Serve a web console for any Kafka cluster: topics, messages, groups, dead letters, and the search for an event.

server.py                 the web server: addresses, sign-in, start and stop
site.py, clusters.py      what one cluster needs; several clusters, each under its own path
application.py            maps paths to pages, and renders them as HTML or JSON
topics.py, messages.py, groups.py, letters.py, tracking.py, brokers.py, transactions.py, acl_pages.py, subjects.py,
policies.py, replication.py, classic.py    pages: functions that take a client and a request, and return plain data
actions.py                routes of changes, and of the forms for them
console_roles.py, audit.py    roles that a change requires; audit of changes
forms.py                  parses request bodies
sending.py, resetting.py, altering.py, redriving.py, exporting.py, tailing.py    the changes, exports and live tails
console_state.py, jobs.py    state shared by changes; work that takes longer than a request may
cluster_view.py           pages with history. sampler.py samples the cluster, observations.py and ages.py compute rates,
                          lags and ages, rings.py stores time series, chart_sets.py and charts.py draw, home.py is the
                          first page
masks.py                  confidential data, masked before anything is shown or searched
rendering.py, texts.py    record bytes as harmless text; numbers, sizes and times
clients.py                a pool of clients for requests
templates/, static/       HTML templates and styles; pages work without scripts

A GET request changes nothing. A change is a POST request from one of the console's pages, by a user whose role allows
it, and is audited. With `--zookeeper`, `kafkalite.classic.progress` adds pages about Kafka 0.7's groups.
"""
