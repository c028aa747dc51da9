"""What the scripts beside this one make of measurements."""


def interval(values):
    """Of the median, 95 %, by order statistics (exact from 9 values on)."""
    ordered = sorted(values)
    cut = max(0, int((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2))
    return ordered[cut], ordered[-1 - cut]
