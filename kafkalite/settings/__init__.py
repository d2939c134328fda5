"""Define, parse and check all settings of the broker, its listeners, topics and groups.

    broker                 BrokerConfig: all settings of the broker
    areas/                 definitions of the broker's settings, one module per area
    topic_setting_lookup   TopicConfig: the settings of one topic
    topic_settings_table   definitions of the topic settings
    group                  the settings of a consumer group
    client_metrics         subscriptions to clients' metrics (KIP-714)
    listener_keys          keys for one listener, such as `listener.name.outside.ssl.keystore.location`
    rows                   Setting: the definition of one setting, with parser and checks
    properties             Java's .properties files
    providers              values stored outside the file, such as `${env:NAME}`
    listeners              the addresses of `listeners` and `advertised.listeners`
    foreign                Kafka's settings that have no effect here

Kafka's settings have the names and the precedence of Apache Kafka 4, and most have its defaults. The script
tools/generate_config_docs.py generates docs/configuration.md from this package.
"""
