"""The parts that hooks share; there are no hooks in this folder."""
