"""Whole tables of runs: data sets x algorithms x K x seeds."""
