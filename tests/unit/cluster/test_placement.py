"""Pods on machines, as kube-scheduler would put them."""

from __future__ import annotations

import pytest

from tasks.cluster.placement import GIB, Amount, Held, PodAsk, Room, amount_of, homeless, place, requests_of


def room(name: str, offers: Amount, *held: Amount) -> Room:
    return Room(name, {"type": name}, offers, tuple(Held(f"pod-{n}", "", one) for n, one in enumerate(held)))


@pytest.mark.parametrize(
    ("offers", "held", "asks"),
    [(44.3, (0.1, 0.2), 44.0), (1.0, (0.1, 0.2, 0.3), 0.4), (7.91, (0.11, 0.1), 7.7), (64, (), 64)],
)
def test_what_fits_to_the_thousandth_of_a_cpu_has_a_place(offers: float, held: tuple[float, ...], asks: float) -> None:
    machine = room("a", Amount(offers, 10.0), *(Amount(cpus) for cpus in held))
    assert not homeless(place([PodAsk("pod", Amount(asks, 10.0))], [machine]))
    over = homeless(place([PodAsk("pod", Amount(asks + 0.001, 10.0))], [machine]))
    assert "CPUs free" in over


def test_memory_is_counted_to_the_byte() -> None:
    machine = room("a", Amount(4.0, 10.0), Amount(0.0, 1 / GIB))
    assert homeless(place([PodAsk("pod", Amount(1.0, 10.0))], [machine]))
    assert not homeless(place([PodAsk("pod", Amount(1.0, 10.0 - 1 / GIB))], [machine]))


def test_each_pod_takes_what_the_one_before_left_and_the_one_without_a_place_says_who_holds_it() -> None:
    machines = [room("a", Amount(8.0, 32.0, 1)), room("b", Amount(16.0, 64.0, 2))]
    pods = [PodAsk(f"pod-{number}", Amount(7.0, 8.0, 1)) for number in range(4)]
    placed = place(pods, machines)
    assert [one.machine for one in placed] == ["b", "a", "b", ""]
    assert homeless(placed).startswith("pod pod-3 (7 CPUs, 8 GiB, 1 GPUs) has no place: a: 1 of 7 CPUs free")
    assert "pod-0 holds 7 CPUs, 8 GiB, 1 GPUs" in homeless(placed)


def test_selectors_taints_and_cordons_are_respected() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    tainted = Room("a", {"type": "a"}, Amount(8.0, 8.0), taints=(taint,))
    cordoned = Room("b", {"type": "b"}, Amount(8.0, 8.0), unusable="cordoned")
    plain = PodAsk("pod", Amount(1.0, 1.0))
    tolerant = PodAsk("pod", Amount(1.0, 1.0), tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},))
    assert homeless(place([plain], [tainted, cordoned])).endswith("a: taint nvidia.com/gpu; b: cordoned")
    assert place([tolerant], [tainted, cordoned])[0].machine == "a"
    elsewhere = PodAsk("pod", Amount(1.0, 1.0), selector={"node/type": "c"})
    assert homeless(place([elsewhere], [tainted])).endswith("no machine has type=c")


def test_a_pod_asks_for_its_containers_together_its_sidecars_and_the_largest_of_those_that_run_before() -> None:
    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **more}

    spec = {
        "containers": [container("500m"), container("250m")],
        "initContainers": [container("2"), container("100m", restartPolicy="Always")],
        "overhead": {"cpu": "50m"},
    }
    assert requests_of(spec) == Amount(2.05, 3.0, 0.0)
    assert amount_of({"cpu": "1500m", "memory": "512Mi", "nvidia.com/gpu": "2"}) == Amount(1.5, 0.5, 2.0)
