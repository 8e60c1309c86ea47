"""The joint problem of gangs: every config visits every node, with some of the node's devices."""

from hoptree.optimize.joint.schedule import Visit
from hoptree.optimize.joint.solve import JointSolution, joint_lower_bound, solve_joint, verify_joint

__all__ = ["JointSolution", "Visit", "joint_lower_bound", "solve_joint", "verify_joint"]
