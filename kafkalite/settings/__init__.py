"""Define, parse and check every setting of the broker, its listeners, topics and groups.

    broker                 BrokerConfig: all settings of the broker, composed of the areas
    areas/                 the broker's settings, one module per area
    topic_setting_lookup   TopicConfig: a topic's own value, else the broker's
    topic_settings_table   the settings of a topic
    group                  the settings of a consumer group
    client_metrics         the settings of a subscription to clients' metrics (KIP-714)
    listener_keys          keys that apply to one listener
    rows                   Setting: the definition of one setting, with parser and checks
    properties             Java's .properties files
    providers              values stored outside the file, such as `${env:NAME}`
    listeners              addresses to bind and to advertise
    foreign                Kafka's settings that have no effect here

Names, defaults and precedence of Kafka's settings are those of Apache Kafka 4. tools/generate_config_docs.py generates
docs/configuration.md from this package.
"""
