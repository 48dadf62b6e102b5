"""Programs of the gallery as one writes them with other libraries, for "programs".

Model, data and, where the library takes it, the step are those of the gallery. ``train`` is the
program.
"""
