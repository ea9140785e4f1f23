"""The GRPO job: SkyRL, set up and listened to."""
