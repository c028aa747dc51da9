"""Statistics of measurements, for the scripts next to this one."""


def interval(values):
    """95 % interval of the median by order statistics (exact from 9 values on)."""
    ordered = sorted(values)
    cut = max(0, int((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2))
    return ordered[cut], ordered[-1 - cut]
