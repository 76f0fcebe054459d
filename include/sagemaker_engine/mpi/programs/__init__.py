"""Programs of an instance, copied into its job's folder by `install_mpi`; each is whole in itself."""
