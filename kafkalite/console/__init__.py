"""Serve a web console for any Kafka cluster: topics, messages, groups, dead letters, and the search for an event.

    server               the web server: addresses, sign-in, start and stop
    site                 everything for one cluster
    clusters             several clusters, each under its own path
    application          maps paths to pages, and renders them as HTML or JSON
    clients              a pool of clients for requests and jobs
    requests, action_context     what page functions get, return and raise
    forms                parses request bodies
    rendering, texts, rows, settings_rows    render records, numbers, sizes, times and settings
    masks                masks confidential data before anything is shown
    templates, static    HTML templates, styles and scripts

Pages are functions that get a client and a request, and return plain data. These modules contain pages:

    topics, messages, groups, letters, letter_counts, tracking, brokers, transactions, acl_pages, subjects, policies,
    replication, classic (Kafka 0.7), job_pages

These modules make changes, exports and live tails:

    actions, places      their routes and forms
    sending, resetting, altering, dependents, redriving, exporting, tailing
    console_roles        the role that a change requires
    audit                audits changes
    console_state        state that changes share
    jobs                 work that takes longer than a request may

These modules serve pages with history:

    cluster_view         the pages; `home` is the first of them
    sampler, observations, ages, latencies    sample the cluster, and compute rates, lags, ages and latencies
    rings, chart_sets, charts                 store time series, and draw them

A GET request changes nothing. A change is a POST request from one of the console's pages. The user's role must allow
it, and it is audited.
"""
