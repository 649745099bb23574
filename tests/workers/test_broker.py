"""The channel of our workers: one client for all messages, a new one when the connections were dropped."""

from __future__ import annotations

import pytest
from kombu import Connection

from workers import broker


def test_the_channel_shares_one_client_until_its_pool_is_dropped(redis_url: str) -> None:
    broker.install()
    with Connection(redis_url) as connection:
        channel = connection.default_channel
        assert isinstance(channel, broker.Channel)

        # Two uses, one client
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
            assert first.ping()

        # Kombu drops its pool when connections are lost
        channel._disconnect_pools()
        with channel.conn_or_acquire() as third:
            assert third is not first
            assert third.ping()


def test_messages_are_remembered_and_acknowledged_as_before(redis_url: str) -> None:
    broker.install()
    with Connection(redis_url) as connection, connection.SimpleQueue("q") as queue:
        queue.put({"n": 1})
        message = queue.get(timeout=5)
        with message.channel.conn_or_acquire() as client:
            assert client.hlen("unacked") == 1
            message.ack()
            assert client.hlen("unacked") == 0


def test_a_channel_whose_connection_is_gone_can_be_closed_with_messages_in_work(redis_url: str) -> None:
    broker.install()
    # Given a message that a worker has taken and not acknowledged
    connection = Connection(redis_url)
    queue = connection.SimpleQueue("q")
    queue.put({"n": 1})
    message = queue.get(timeout=5)
    channel = message.channel
    # When the connection is lost, pool and all
    transport = connection.transport
    transport.client = None
    channel._disconnect_pools()
    # Then neither an acknowledgement nor the end of the channel is more than a lost connection
    with pytest.raises(transport.connection_errors):
        message.ack()
    channel.close()
    assert channel.closed
    transport.client = connection
    connection.release()
