"""Layouts of engines from the weights that they were compiled from."""
