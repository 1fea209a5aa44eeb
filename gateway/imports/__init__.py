"""Imports of accounts, keys and users from CSV files.

A file is checked whole before anything is changed; every fault is named with its line and column. Then the plan is
made, a step for each thing that is to be created or changed. Carrying out a plan twice changes nothing the second time.
"""
