"""store.url as operators write it."""

from typing import Any

import pytest

from gateway.store import StoreSetupError, parse_address
from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress
from gateway.store.url import address_of


@pytest.mark.holds("operations/redis.md#redis-for-production-4")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", RedisAddress()),
        ("redis://host", RedisAddress(host="host")),
        ("redis://host:6380/2", RedisAddress(host="host", port=6380, db=2)),
        ("redis://[::1]:7000", RedisAddress(host="::1", port=7000)),
        ("redis://:p%40ss@host", RedisAddress(host="host", password="p@ss")),
        ("redis://us%2Fer:p%3A%23@host/1", RedisAddress(host="host", username="us/er", password="p:#", db=1)),
        ("redis://host?protocol=2&db=4", RedisAddress(host="host", protocol=2, db=4)),
        ("rediss://host", RedisAddress(host="host", tls=True)),
        (
            "rediss://host?ssl_ca_certs=ca.pem&ssl_certfile=c.pem&ssl_keyfile=k.pem",
            RedisAddress(host="host", tls=True, tls_ca="ca.pem", tls_cert="c.pem", tls_key="k.pem"),
        ),
        ("rediss://host?ssl_cert_reqs=none", RedisAddress(host="host", tls=True, tls_verify=False)),
        ("unix:///run/redis.sock", RedisAddress(path="/run/redis.sock")),
        ("unix://me:secret@/run/a%20b?db=1", RedisAddress(path="/run/a b", username="me", password="secret", db=1)),
    ],
)
def test_url_is_parsed_into_an_address(url, address):
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://host", "known are redis://"),
        ("host:6379", "known are redis://"),
        ("redis://host:port", "the port is no number"),
        ("redis://host:99999", "the port is no number"),
        ("redis://[host", "not a URL"),
        ("redis://host/zero", "the database is a number"),
        ("redis://host?db=-1", "db is a number"),
        ("redis://host?protocol=4", "protocol is 2 or 3"),
        ("redis://host?retries=3", "unknown option 'retries'; known are db"),
        ("unix://relative.sock", "unix:///absolute"),
        ("unix://", "unix:///absolute"),
        ("redis+sentinel://a:1,b:2", "the service is missing"),
        ("redis+sentinel:///service", "needs hosts"),
        ("redis+sentinel://a:1,b:x/service", "the port is no number"),
        ("redis+sentinel://a/service/x", "the database is a number"),
        ("redis+sentinel://a/service?tls=1", "tls is true or false"),
        ("redis+cluster://a:1,b:2/1", "database 0 only"),
        ("redis+cluster://a?db=1", "database 0 only"),
        ("redis+cluster://a,,b", "needs hosts"),
        ("redis+cluster://a?sentinel_password=x", "unknown option"),
    ],
)
def test_an_invalid_url_is_an_error_with_its_reason(url, words):
    with pytest.raises(StoreSetupError, match=words) as caught:
        parse_address(url)
    assert str(caught.value).startswith("store.url: ")


@pytest.mark.parametrize(
    "url",
    [
        "http://u:hunter2@h",
        "redis://u:hunter2@h:x",
        "redis://u:hunter2/@h",
        "redis://u:hunter2@h/x",
        "redis://u:hunter2@h?x=1",
        "redis+sentinel://u:hunter2@a,b",
        "redis+cluster://u:hunter2@a:x,b",
    ],
)
def test_no_message_and_no_repr_shows_the_password(url):
    with pytest.raises(StoreSetupError) as caught:
        parse_address(url)
    assert "hunter2" not in str(caught.value)
    address = parse_address("rediss://user:hunter2@host:1/2")
    assert repr(address) == "RedisAddress(rediss://host:1/2)"


@pytest.mark.holds("operations/redis.md#redis-for-production-4")
def test_sentinels_have_a_login_of_their_own():
    url = "redis+sentinel://me:p%40ss@one,two:27000,[::1]:3/orders/2?tls=true&ssl_ca_certs=ca.pem&sentinel_password=x"
    address = parse_address(url)
    assert isinstance(address, SentinelAddress)
    assert address.service == "orders"
    assert address.server == RedisAddress(username="me", password="p@ss", db=2, tls=True, tls_ca="ca.pem")
    assert [(s.host, s.port, s.username, s.password, s.tls, s.db) for s in address.sentinels] == [
        ("one", 26379, "", "x", True, 0),
        ("two", 27000, "", "x", True, 0),
        ("::1", 3, "", "x", True, 0),
    ]
    assert repr(address) == "SentinelAddress(redis+sentinel://one:26379,two:27000,::1:3/orders/2)"


def test_a_cluster_is_its_nodes_with_one_login():
    address = parse_address("redis+cluster://me:secret@one,two:7001/0?ssl_cert_reqs=none&tls=true")
    assert isinstance(address, ClusterAddress)
    login: dict[str, Any] = {"username": "me", "password": "secret", "tls": True, "tls_verify": False}
    assert address.nodes == (RedisAddress(host="one", **login), RedisAddress(host="two", port=7001, **login))
    assert repr(address) == "ClusterAddress(redis+cluster://one:6379,two:7001)"


def test_a_plain_path_is_a_socket(tmp_path):
    assert address_of(tmp_path / "s").path == address_of(str(tmp_path / "s")).path == str(tmp_path / "s")
