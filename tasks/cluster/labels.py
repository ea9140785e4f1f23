"""Labels of machines and of what stands on them, each with whose it is."""

from __future__ import annotations

HEALTH_LABEL = "sagemaker.amazonaws.com/node-health-status"
"""HyperPod's own label: a node that runs may still be waiting for its replacement."""
GROUP_LABEL = "sagemaker.amazonaws.com/instance-group-name"
"""HyperPod's own label: the instance group that a node belongs to."""
TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Kubernetes' well-known label."""
HEALTHY_NODE = {HEALTH_LABEL: "Schedulable"}
RUN_LABEL = "maze-retrain/run"
"""Ours: the run that made a RayCluster."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue's: the LocalQueue that a RayCluster waits in."""
