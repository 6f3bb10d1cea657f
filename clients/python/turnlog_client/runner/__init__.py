"""The runner: claims Runs, keeps their harnesses, and lets nothing of a harness outlive its attempt."""
