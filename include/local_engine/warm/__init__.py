"""Warm workers: programs of jobs as forks of a parent that has imported torch already."""
