"""What sharing saves: the searches of the stage-tree paper's table 6.2, with sharing, without, and in Ray Tune."""
