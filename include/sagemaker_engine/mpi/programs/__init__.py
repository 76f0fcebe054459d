"""Programs of an instance, copied into its job's folder by `furnish`; each is whole in itself."""
