"""The door: what a user gives becomes typed values, once."""
