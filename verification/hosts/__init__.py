"""Several hosts on one Linux machine, made of namespaces, and a Spark cluster over them.

A host has an address, a name, a process table and a ``/tmp`` of its own. Links between hosts are
cut, hosts are frozen and lose their power, and what Laminar does then is compared with what it must
do. ``docs/testing.md#hosts`` is the description, ``make hosts`` the command.
"""
