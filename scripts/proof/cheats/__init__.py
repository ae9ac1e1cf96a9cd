"""Candidates that are written to win, by family; each says in its first line what it does. They
stand behind the function that they are held against, which they call `honest`.
"""
