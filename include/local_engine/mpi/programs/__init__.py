"""Programs of an instance, copied into its job's folder by `install`; each is whole in itself."""
