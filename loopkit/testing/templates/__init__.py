"""What ``loopkit new plugin`` writes: for each kind one small component that passes the kit as it stands.

The files are ordinary components, checked as such; the class ``Template`` and the name ``template`` are replaced.
"""
