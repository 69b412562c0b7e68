"""Templates of ``loopkit new plugin``: for each kind one small component that passes the conformance kit.

``loopkit new`` replaces the class name ``Template`` and the registered name ``template``.
"""
