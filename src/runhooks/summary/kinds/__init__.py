"""The kinds of summaries: values in, what TensorBoard reads out."""
