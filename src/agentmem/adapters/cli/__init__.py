"""The command line: the verbs of the store as subcommands, for people and for agents with a shell.

Data goes to stdout, everything else to stderr. Nothing here is imported before it is needed: a module
of commands when one of them is called, the store when a command opens it.
"""
