"""The kernels on a real GPU, in one command: `python -m minibatch.cuda.gpu_check --out DIR`. Needs torch and nvcc."""
