"""Settings: every key the broker and its topics know, with type, default, bounds and what it does.

    broker                 BrokerConfig and its table, composed of the areas
    areas/                 the broker's rows, a module an area
    topic_setting_lookup   TopicConfig: a topic's own settings, else the broker's
    topic_settings_table   a topic's rows
    group, client_metrics  a group's own settings; a subscription's to client metrics
    listener_keys          keys that apply to one listener
    rows                   what a setting is: a row, read from text, checked, described
    properties             Java's .properties files
    providers              values that are kept outside the file, as `${env:NAME}`
    listeners              addresses to bind and to advertise
    foreign                Kafka's keys that mean nothing here

Names, defaults and precedence are Apache Kafka 4's where Kafka has the setting. docs/configuration.md is generated
from here (tools/generate_config_docs.py).
"""
