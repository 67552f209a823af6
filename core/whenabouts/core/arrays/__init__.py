"""Tools for arrays that know nothing of time: compiled kernels, gathering, group numbers, row order, memory pools."""
