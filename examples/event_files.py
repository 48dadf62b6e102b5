"""Event files without a graph or a session, as docs/event-files.md shows: written and read back."""

import numpy as np

import runhooks as rh

with rh.summary.FileWriter("runs/plain") as writer:
    for step in range(1000):
        writer.scalar("loss", 1 / (step + 1), step)
        if step % 100 == 0:
            writer.scalars({"lr/encoder": 1e-3, "lr/head": 1e-2}, step)
            writer.histogram("weights", np.random.default_rng(step).normal(size=10_000), step)

run = rh.events.read("runs/plain").only  # the only run; read("runs") maps names to runs
loss = run.scalars["loss"]  # NumPy columns: steps, values, wall_times
print(f"{loss.values.min():.3f} at step {loss.steps[loss.values.argmin()]}")
run.to_csv("loss.csv")  # to_pandas, to_arrow, to_parquet, to_json_lines
