"""The kinds of summaries, one a file: values in, what TensorBoard reads out."""
