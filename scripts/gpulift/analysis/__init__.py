"""What records say once they are put together: worth, roofs, problems, references."""
