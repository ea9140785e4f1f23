"""RayCluster and RayService on Kubernetes, whoever keeps the machines; what differs by keeper is asked for by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from serving.settings import ServerSettings
from tasks.checks import ToCheck, require_ready, run_checks
from tasks.cluster.kube_waits import (
    wait_for_cluster,
    wait_for_service,
    wait_until_gone,
    wait_until_suspended,
)
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import Manifest, ray_cluster, ray_service
from tasks.cluster.owners import Owner, delete_unless, foreign, is_ours, run_of, settled, whose
from tasks.cluster.ray_settings import OwnMachines, RayOnKubernetes
from tasks.cluster.suspension import Now, away_s, forget, marks_of, require_suspendable, resume, suspend, utc_now
from tasks.errors import ClusterNotReady, RolloutFailed
from tasks.records import ImageRef

Say = Callable[[str], object]
NOTHING: Mapping[str, str] = {}


class RayHosting:
    """RayCluster and RayService on Kubernetes. A keeper's own part is in the methods that say so."""

    def __init__(
        self,
        settings: RayOnKubernetes,
        kube: KubeRay,
        sleep: Callable[[float], object] = time.sleep,
        now: Now = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._kube = settings, kube
        self._sleep, self._now, self._clock = sleep, now, clock

    def training_checks(self) -> list[ToCheck]:
        """The keeper's: what must hold before a RayCluster is made."""
        raise NotImplementedError

    def room_checks(self) -> list[ToCheck]:
        """The keeper's: what serving needs of machines while and after a run trains, looked at before it does."""
        raise NotImplementedError

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        """The keeper's: what must hold before a job is submitted to the RayCluster."""
        raise NotImplementedError

    def is_there(self) -> bool:
        return self._kube.look("RayCluster", self._settings.namespace, self._settings.train_cluster) is not None

    def checks_before(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        """Every check that is made before a cluster is, once."""
        return list({check.name: check for check in (*self.training_checks(), *self.room_checks())}.values())

    def before_pods(self, say: Say) -> None:
        """The keeper's: what has to be there before pods are admitted."""

    def after_training_pods(self, say: Say) -> None:
        """The keeper's: what the training cluster's pods must have got by then."""

    def make_room(self, owner: Owner, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> None:
        """Serving is looked at before a training, not after it: what would be refused then is refused now.

        On machines of its own it comes up first, changed settings and all; on those that train it is suspended, also
        where it will have to be made anew. Raises ClusterNotReady, before anything changes, where another run trains.
        """
        settings = self._settings
        train_image = _image(images, "train", settings.train_image)
        self._ours(ray_cluster(settings, owner.run_name, train_image, owner.flow_run_id), owner.run_name)
        wanted = ray_service(settings, server, _image(images, "serve", settings.serve_image))
        there = self._replaceable(wanted)
        require_ready(run_checks(self.room_checks(), settings.check_timeout_s))
        if isinstance(settings.serving, OwnMachines):
            self.serving_up(server, images, say)
        elif there is None:
            say("nothing serves yet: there is nothing to suspend")
        else:
            self._suspend(owner, say)

    def _suspend(self, owner: Owner, say: Say) -> None:
        settings = self._settings
        where = f"RayService {settings.namespace}/{settings.serve_name}"
        require_suspendable(self._kube, settings)
        if suspend(self._kube, settings, owner, self._now):
            say(f"{where} is suspended while {owner.run_name} trains: its endpoint is away from now on")
            wait_until_suspended(
                self._kube,
                settings.namespace,
                settings.serve_name,
                settings.ready_timeout_s,
                settings.poll_s,
                self._sleep,
                self._clock,
            )

    def training_up(self, owner: Owner, images: Mapping[str, ImageRef], say: Say) -> None:
        """Machines are looked at first: a RayCluster without them would wait for an hour."""
        settings = self._settings
        image, run_name = _image(images, "train", settings.train_image), owner.run_name
        wanted = ray_cluster(settings, run_name, image, owner.flow_run_id)
        require_ready(run_checks(self.training_checks(), settings.check_timeout_s))
        self._ours(wanted, run_name)
        self.before_pods(say)
        # Looked at again: the identity may have taken its time, and another run come meanwhile.
        settled(lambda: self._apply(wanted, say, self._claim(wanted, run_name, say)))
        self._wait_for_training(say)
        self.after_training_pods(say)
        self._wait_for_training(say)
        workers = settings.workers
        gpus = workers.count * workers.num_gpus
        say(f"RayCluster {settings.namespace}/{settings.train_cluster} is ready: {workers.count} workers, {gpus} GPUs")

    def training_down(self, owner: Owner, say: Say) -> None:
        """No cluster of this run any more, and nobody else's touched."""
        self._delete("RayCluster", self._settings.train_cluster, say, lambda there: foreign(there, owner))

    def serving_up(self, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> float:
        """A RayService whose pods would have to change is made anew or left alone, as ``replace_serving`` says.

        Returns for how many seconds its endpoint was suspended.
        """
        settings = self._settings
        wanted = ray_service(settings, server, _image(images, "serve", settings.serve_image))
        there = self._replaceable(wanted)
        if there is not None and not self._kube.same_pods(there, wanted):
            self._delete("RayService", settings.serve_name, say, lambda there: "")
        self.before_pods(say)
        # The operator writes the status at any time, and each write makes what was seen old.
        settled(lambda: self._apply(wanted, say, marks=marks_of(there)))
        since = resume(self._kube, settings)
        wait_for_service(
            self._kube,
            settings.namespace,
            settings.serve_name,
            server.app_name,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
            self._clock,
        )
        if not since:
            return 0.0
        forget(self._kube, settings)
        away = away_s(since, self._now)
        say(f"RayService {settings.namespace}/{settings.serve_name} answers again; it was away for {away / 3600:.1f} h")
        return away

    def _replaceable(self, wanted: Manifest) -> Manifest | None:
        """The RayService that is there, or None; raises RolloutFailed where it could not become ``wanted``."""
        settings = self._settings
        where = f"RayService {settings.namespace}/{settings.serve_name}"
        there = self._kube.look("RayService", settings.namespace, settings.serve_name)
        if there is None:
            return None
        if not is_ours(there) and not settings.take_over:
            raise RolloutFailed(
                f"{where} was not made by this pipeline; choose another hosting.serve_name, or set hosting.take_over "
                "to make it this pipeline's"
            )
        if not self._kube.same_pods(there, wanted) and not settings.replace_serving:
            image = wanted["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
            raise RolloutFailed(
                f"{where} runs other pods than this run wants ({image}), and KubeRay would need twice the GPUs to "
                "change them; set hosting.replace_serving to make it anew (its endpoint is away meanwhile)"
            )
        return there

    def _ours(self, wanted: Manifest, run_name: str) -> Manifest | None:
        """The RayCluster that is there, or None; raises ClusterNotReady where it is not this run's, with these pods.

        Patched pods would not change: the run would train in another image than its records name.
        """
        settings = self._settings
        there = self._kube.look("RayCluster", settings.namespace, settings.train_cluster)
        if there is None:
            return None
        where = f"RayCluster {settings.namespace}/{settings.train_cluster}"
        is_mine, same_pods = run_of(there) == run_name, self._kube.same_pods(there, wanted)
        if settings.take_over or (is_mine and same_pods):
            return there
        is_so = "runs other pods than are wanted" if is_mine else f"belongs to {whose(there)}, not to {run_name}"
        raise ClusterNotReady(
            f"{where} {is_so}; clean up after its owner (cleanup, part training), choose another "
            "hosting.train_cluster, or set hosting.take_over: whatever trains there may die of it"
        )

    def _claim(self, wanted: Manifest, run_name: str, say: Say) -> Manifest | None:
        """What is to be brought to this document; what is taken over and has other pods goes first."""
        settings, there = self._settings, self._ours(wanted, run_name)
        if there is None:
            return None
        if run_of(there) != run_name:
            where = f"RayCluster {settings.namespace}/{settings.train_cluster}"
            say(f"{where} belonged to {whose(there)}: taken over by {run_name}")
        if self._kube.same_pods(there, wanted):
            return there
        self._delete("RayCluster", settings.train_cluster, say, lambda there: "")
        return None

    def _wait_for_training(self, say: Say) -> None:
        settings = self._settings
        wait_for_cluster(
            self._kube,
            settings.namespace,
            settings.train_cluster,
            settings.workers.count,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
            self._clock,
        )

    def _apply(
        self, manifest: Manifest, say: Say, seen: Manifest | None = None, marks: Mapping[str, str] = NOTHING
    ) -> None:
        done = self._kube.apply(manifest, seen, marks)
        say(f"{manifest['kind']} {self._settings.namespace}/{manifest['metadata']['name']}: {done}")

    def _delete(self, kind: str, name: str, say: Say, judge: Callable[[Manifest], str]) -> None:
        settings = self._settings
        where = f"{kind} {settings.namespace}/{name}"
        if why := delete_unless(self._kube, kind, settings.namespace, name, judge):
            say(f"{where}: {why}")
            return
        say(f"{where}: deleting")
        wait_until_gone(
            self._kube,
            kind,
            settings.namespace,
            name,
            settings.ready_timeout_s,
            settings.poll_s,
            self._sleep,
            self._clock,
        )
        say(f"{where}: gone")


def _image(images: Mapping[str, ImageRef], name: str, pinned: str) -> str:
    """What the run built, or what the settings pin; a lock of an installed environment is no image."""
    built = images.get(name)
    return built.uri if built and built.content else pinned
