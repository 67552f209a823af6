"""Tools for arrays that know nothing of time: compiled kernels, gathering, group ids, row order, memory pools."""
