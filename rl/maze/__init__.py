"""The world: mazes, their pictures, one episode, the evaluation set, the score."""
