# SPDX-License-Identifier: Apache-2.0
"""The agent on a GPU host: it opens flows, pins them, holds the job's time-shift and reports iterations."""
