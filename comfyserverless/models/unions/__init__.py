"""Union ControlNets (ControlNet++): one network for several kinds of hints, told which one it gets."""
