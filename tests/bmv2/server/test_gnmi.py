# SPDX-License-Identifier: Apache-2.0
"""gNMI on the P4Runtime port: values, subscriptions in every mode, and what the border counts of them."""

import queue

import grpc
import pytest
from finsy.proto import gnmi

PATIENCE_S = 120.0


def path(*elements):
    message = gnmi.Path()
    for element in elements:
        name, _, key = element.partition("=")
        message.elem.add(name=name, key={"name": key} if key else {})
    return message


def status(port):
    return path("interfaces", f"interface={port}", "state", "oper-status")


EVERYTHING = path("interfaces")


def values(notifications):
    found = {}
    for notification in notifications:
        for update in notification.update:
            port = int(update.path.elem[1].key["name"])
            value = getattr(update.val, update.val.WhichOneof("value"))
            found[port, update.path.elem[3].name] = value
    return found


class Subscriber:
    """A Subscribe stream."""

    def __init__(self, stub, **wanted):
        self._out = queue.SimpleQueue()
        self._stream = stub.Subscribe(iter(self._out.get, None), timeout=PATIENCE_S)
        self.say(subscribe=gnmi.SubscriptionList(**wanted))

    def say(self, **request):
        self._out.put(gnmi.SubscribeRequest(**request))

    def next(self):
        return next(self._stream)

    def until_sync(self):
        notifications = []
        while not (message := self.next()).sync_response:
            notifications.append(message.update)
        return values(notifications)

    def cancel(self):
        self._out.put(None)
        self._stream.cancel()


@pytest.fixture
def subscribe(connect):
    opened = []

    def open_one(*paths, mode="STREAM", item_mode="ON_CHANGE", **wanted):
        items = [gnmi.Subscription(path=item, mode=item_mode) for item in paths]
        opened.append(Subscriber(connect().gnmi, subscription=items, mode=mode, **wanted))
        return opened[-1]

    yield open_one
    for subscriber in opened:
        subscriber.cancel()


def get(stub, *paths, **fields):
    return values(stub.Get(gnmi.GetRequest(path=paths, encoding="PROTO", **fields)).notification)


def set_port(rig, port, up):
    rig.on_data_plane(lambda: rig.switch.set_port_up(port, up))


ALL = {(1, "ifindex"): 1, (1, "oper-status"): "UP", (2, "ifindex"): 2, (2, "oper-status"): "UP"}


def test_get_by_name_wildcard_and_container(rig, connect):
    stub = connect().gnmi
    assert get(stub, status(2)) == {(2, "oper-status"): "UP"}
    set_port(rig, 2, False)
    assert get(stub, status("*")) == {(1, "oper-status"): "UP", (2, "oper-status"): "DOWN"}
    set_port(rig, 2, True)
    assert get(stub, path("interfaces", "interface", "state", "ifindex")) == {
        (1, "ifindex"): 1,
        (2, "ifindex"): 2,
    }
    assert get(stub, EVERYTHING) == ALL
    assert get(stub, path("...", "oper-status")) == get(stub, status("*"))
    assert get(stub, path("state"), prefix=path("interfaces", "interface=1")) == {
        key: value for key, value in ALL.items() if key[0] == 1
    }


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (gnmi.GetRequest(path=[status(9)]), grpc.StatusCode.NOT_FOUND),
        (gnmi.GetRequest(path=[path("system")]), grpc.StatusCode.NOT_FOUND),
        (gnmi.GetRequest(path=[status(1)], type="CONFIG"), grpc.StatusCode.NOT_FOUND),
        (gnmi.GetRequest(path=[status(1)], encoding="ASCII"), grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_get_cannot_give(connect, request_, code):
    with pytest.raises(grpc.RpcError) as caught:
        connect().gnmi.Get(request_)
    assert caught.value.code() is code


def test_stream_gives_initial_values_then_changes_which_alone_are_counted(rig, subscribe):
    subscriber = subscribe(status("*"))
    assert subscriber.until_sync() == {(1, "oper-status"): "UP", (2, "oper-status"): "UP"}
    assert rig.loop.departures == {}
    for up in (False, True, False):
        set_port(rig, 2, up)
        assert values([subscriber.next().update]) == {(2, "oper-status"): "UP" if up else "DOWN"}
    assert rig.loop.departures == {"gnmi:leaf1": 3}


def test_each_subscriber_is_a_departure_and_only_of_what_it_asked_for(rig, subscribe):
    one, both = subscribe(status(1)), subscribe(status(1), status(2))
    one.until_sync()
    both.until_sync()
    set_port(rig, 2, False)
    set_port(rig, 1, False)
    assert values([one.next().update]) == {(1, "oper-status"): "DOWN"}
    assert values([both.next().update, both.next().update]) == {
        (2, "oper-status"): "DOWN",
        (1, "oper-status"): "DOWN",
    }
    assert rig.loop.departures == {"gnmi:leaf1": 3}


def test_once_ends_after_the_values(subscribe):
    subscriber = subscribe(EVERYTHING, mode="ONCE")
    assert subscriber.until_sync() == ALL
    with pytest.raises(StopIteration):
        subscriber.next()


def test_poll_gives_the_values_at_each_poll(rig, subscribe):
    subscriber = subscribe(status(1), mode="POLL")
    assert subscriber.until_sync() == {(1, "oper-status"): "UP"}
    set_port(rig, 1, False)
    subscriber.say(poll=gnmi.Poll())
    assert subscriber.until_sync() == {(1, "oper-status"): "DOWN"}
    assert rig.loop.departures == {}


def test_updates_only_starts_with_the_sync(rig, subscribe):
    subscriber = subscribe(status(1), updates_only=True)
    assert subscriber.until_sync() == {}
    set_port(rig, 1, False)
    assert values([subscriber.next().update]) == {(1, "oper-status"): "DOWN"}


@pytest.mark.parametrize(
    ("wanted", "options", "code"),
    [
        (path("system"), {}, grpc.StatusCode.INVALID_ARGUMENT),
        (status("eth0"), {}, grpc.StatusCode.INVALID_ARGUMENT),
        (status(1), {"item_mode": "SAMPLE"}, grpc.StatusCode.UNIMPLEMENTED),
        (status(1), {"encoding": "ASCII"}, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_subscriptions_that_are_refused(subscribe, wanted, options, code):
    with pytest.raises(grpc.RpcError) as caught:
        subscribe(wanted, **options).next()
    assert caught.value.code() is code


def test_a_subscription_while_the_data_plane_ends_is_told_so(rig, subscribe):
    subscriber = subscribe(status(1), mode="POLL")
    subscriber.until_sync()
    rig.loop.stop()
    subscriber.say(poll=gnmi.Poll())
    with pytest.raises(grpc.RpcError) as caught:
        subscriber.next()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "the data plane has stopped" in caught.value.details()


def test_a_poll_without_a_poll_subscription_and_a_second_list_are_refused(subscribe):
    for request in ({"poll": gnmi.Poll()}, {"subscribe": gnmi.SubscriptionList()}):
        subscriber = subscribe(status(1))
        subscriber.until_sync()
        subscriber.say(**request)
        with pytest.raises(grpc.RpcError) as caught:
            subscriber.next()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_capabilities_and_set(connect):
    stub = connect().gnmi
    answer = stub.Capabilities(gnmi.CapabilityRequest())
    assert answer.gNMI_version
    assert gnmi.PROTO in answer.supported_encodings
    with pytest.raises(grpc.RpcError) as caught:
        stub.Set(gnmi.SetRequest())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("prefix", "paths", "code"),
    [
        (path(), [EVERYTHING] * 1025, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (path("interfaces" * 500), [path()], grpc.StatusCode.RESOURCE_EXHAUSTED),
        (path(), [path(*["..."] * 2000)], grpc.StatusCode.INVALID_ARGUMENT),
        (path("..."), [path(*["..."] * 16)], grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_paths_that_would_keep_the_switch_busy(connect, prefix, paths, code):
    stub = connect().gnmi
    with pytest.raises(grpc.RpcError) as caught:
        stub.Get(gnmi.GetRequest(prefix=prefix, path=paths))
    assert caught.value.code() is code
    subscriptions = [gnmi.Subscription(path=item) for item in paths]
    subscriber = Subscriber(stub, prefix=prefix, subscription=subscriptions)
    with pytest.raises(grpc.RpcError) as caught:
        subscriber.next()
    assert caught.value.code() is code


def test_a_port_of_thousands_of_digits_is_not_known(subscribe):
    with pytest.raises(grpc.RpcError) as caught:
        subscribe(status("9" * 5000)).next()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
