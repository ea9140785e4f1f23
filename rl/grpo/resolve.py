"""What SkyRL makes of a run's settings, without starting anything: ``python -m rl.grpo.resolve '<TrainJob as JSON>'``.

Prints SkyRL's whole configuration as YAML after its own checks; what it refuses goes to stderr, with exit status 1.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from rl.grpo.config_table import RunDirs, skyrl_overrides
from rl.grpo.settings import TrainJob


def resolved_yaml(job: TrainJob) -> str:
    """SkyRL's configuration. Raises what SkyRL raises to values that it refuses."""
    from skyrl.train.config import SkyRLTrainConfig, get_config_as_yaml_str
    from skyrl.train.utils import validate_cfg

    dirs = RunDirs(job.train.shared_dir, job.run_name)
    config = SkyRLTrainConfig.from_cli_overrides(skyrl_overrides(job, dirs, None))
    validate_cfg(config)
    return get_config_as_yaml_str(config)


def main(argv: list[str]) -> None:
    try:
        # What SkyRL and vLLM say while they are imported is not YAML.
        with redirect_stdout(sys.stderr):
            text = resolved_yaml(TrainJob.model_validate_json(argv[1]))
        print(text)
    except (AssertionError, ValueError, NotImplementedError) as error:
        sys.exit(f"SkyRL refuses these settings: {error}")


if __name__ == "__main__":
    main(sys.argv)
