# What a technique may need that not every build has: a row per part, the first of which its reader is told of. A
# technique needs the part <name> where it includes "workloads/<name>/...", and cuda unless it says `.gpus = 0`.
# GPULIFT_HAS_<NAME> tells whether the build has it. workloads/host/ is in every build, and has no row.
gpulift_part(cuda TITLE "CUDA" TARGET gpulift::workloads
             REMEDY "./gpulift setup installs it, unless it is switched off")
gpulift_part(torch TITLE "LibTorch" TARGET gpulift::torch_workloads
             REMEDY "./gpulift setup installs it, unless it is switched off")
gpulift_part(nccl TITLE "NCCL" TARGET gpulift::nccl_workloads
             REMEDY "./gpulift setup installs it with LibTorch, unless that is switched off")
gpulift_part(cusparselt TITLE "cuSPARSELt" TARGET gpulift::cusparselt_workloads
             REMEDY "./gpulift setup installs it with LibTorch, unless that is switched off")
gpulift_part(cudnn TITLE "cuDNN and its frontend" TARGET gpulift::cudnn_workloads
             REMEDY "./gpulift setup installs them with LibTorch, unless that is switched off (into a Python of your own: pip install nvidia-cudnn-frontend==1.18.0)")
