"""Names of a graph's collections, as ``tf.compat.v1.GraphKeys`` has them."""

from __future__ import annotations


class GraphKeys:
    """The collections that sessions, scaffolds and hooks use."""

    #: What checkpoints hold.
    GLOBAL_VARIABLES = "variables"
    #: Variables of one session alone, such as the totals of a metric: no checkpoint holds them,
    #: and each session, one that replaces a lost one too, begins with their initial values.
    LOCAL_VARIABLES = "local_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    GLOBAL_STEP = "global_step"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    SAVERS = "savers"
    INIT_OP = "init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    LOCAL_INIT_OP = "local_init_op"
