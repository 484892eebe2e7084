"""Test doubles and suites for people who embed gymckpt."""
