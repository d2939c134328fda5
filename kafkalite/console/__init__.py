"""Serve a web console for any Kafka cluster: topics, messages, groups, dead letters, and the search for an event.

    server             the web server: addresses, sign-in, start and stop
    site, clusters     everything for one cluster; several clusters, each under its own path
    application        maps paths to pages, and renders them as HTML or JSON
    topics, messages, groups, letters, tracking, brokers, transactions, acl_pages, subjects, policies, replication,
    classic            pages: functions that get a client and a request, and return plain data
    actions            routes of changes, and of the forms for them
    sending, resetting, altering, redriving, exporting, tailing    the changes, exports and live tails
    console_roles, audit    roles that a change requires; audit of changes
    console_state, jobs     state that changes share; work that takes longer than a request may
    forms              parses request bodies
    cluster_view       pages with history; home is the first of them
    sampler, observations, ages    sample the cluster, and compute rates, lags and ages
    rings, chart_sets, charts      store time series, and draw them
    masks              masks confidential data before anything is shown or searched
    rendering, texts   record bytes as harmless text; numbers, sizes and times
    clients            a pool of clients for requests
    templates, static  HTML templates and styles; pages work without scripts

A GET request changes nothing. A change is a POST request from one of the console's pages, by a user whose role allows
the change. It is audited. With `--zookeeper`, `classic` adds pages about Kafka 0.7's groups.
"""
