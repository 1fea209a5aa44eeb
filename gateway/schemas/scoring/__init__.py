"""Requests to models that score what they are given, and their answers: rerankings and moderations."""
