"""Training over several processes and machines: ranks, their rendezvous, SLURM."""
