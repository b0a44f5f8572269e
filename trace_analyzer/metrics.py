"""Name the metrics that a failed check of the trace suppresses."""

BUSY_RATIO = "busy_ratio"
PARTITION = "partition"
"""What the device did and why it idled: the verdict's input."""
CAUSES_OF_IDLE = "idle_causes"
"""Causes of idle time, and whose it is."""
RUN_AHEAD = "run_ahead"
"""Launch lead, queue depth and queued work."""
KERNEL_TIMES = ("buckets", "groups", "bounds", "fusions", "tensor_cores")
"""Metrics that sum up the durations of kernels."""
UTILIZATION = ("mfu", "hfu")
"""Metrics of work over time, of the device and of its steps."""
MOVEMENTS = ("communication", "copies")
"""What is exposed, and rates."""
ALL = (BUSY_RATIO, PARTITION, CAUSES_OF_IDLE, RUN_AHEAD, *KERNEL_TIMES, *UTILIZATION, *MOVEMENTS)
