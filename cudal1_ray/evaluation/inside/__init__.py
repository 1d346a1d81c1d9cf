"""Code that runs behind the walls: the fork server, and the processes of candidates, references and problems.

Nothing in here imports the trusted side; both sides share the messages and tensors of exchange/.
"""
