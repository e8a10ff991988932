package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// shardHelp is the text of the flag --shard.
const shardHelp = "i/n: do only every n-th part of the work, beginning with the i-th (from 0); auto: as the array job of Slurm or " +
	"the indexed Job of Kubernetes says that this process is of"

// parseShard reads --shard: `i/n`, `auto`, or nothing for the whole, which is shard 0 of 1. getenv is os.Getenv, which auto asks.
func parseShard(text string, getenv func(string) string) (shard, shards int, err error) {
	switch text {
	case "":
		return 0, 1, nil
	case "auto":
		return shardOfJob(getenv)
	}
	i, n, ok := strings.Cut(text, "/")
	shard, err1 := strconv.Atoi(i)
	shards, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || shards < 1 || shard < 0 || shard >= shards {
		return 0, 0, fmt.Errorf("--shard %s: must be i/n with 0 <= i < n, or auto", text)
	}
	return shard, shards, nil
}

// shardOfJob takes the shard from the variables of a Slurm array job (sbatch(1), OUTPUT ENVIRONMENT VARIABLES), whose tasks may be
// numbered from anywhere with any step, or of an indexed Job of Kubernetes. That has no variable for the number of its pods, so its
// manifest must set JOB_COMPLETIONS.
func shardOfJob(getenv func(string) string) (shard, shards int, err error) {
	number := func(name string, least int) int {
		n, e := strconv.Atoi(getenv(name))
		if err == nil && (e != nil || n < least) {
			err = fmt.Errorf("--shard auto: %s is %q, and must be a number of at least %d", name, getenv(name), least)
		}
		return n
	}
	switch {
	case getenv("SLURM_ARRAY_TASK_ID") != "":
		id, first, last := number("SLURM_ARRAY_TASK_ID", 0), number("SLURM_ARRAY_TASK_MIN", 0), number("SLURM_ARRAY_TASK_MAX", 0)
		step, count := number("SLURM_ARRAY_TASK_STEP", 1), number("SLURM_ARRAY_TASK_COUNT", 1)
		if err == nil && ((id-first)%step != 0 || id < first || id > last || (last-first)/step+1 != count) {
			err = fmt.Errorf("--shard auto: the array has %d tasks from %d to %d, which is no even count; use sbatch --array=0-%d",
				count, first, last, count-1)
		}
		if err != nil {
			return 0, 0, err
		}
		return (id - first) / step, count, nil
	case getenv("JOB_COMPLETION_INDEX") != "":
		i, n := number("JOB_COMPLETION_INDEX", 0), number("JOB_COMPLETIONS", 1)
		if err == nil && i >= n {
			err = fmt.Errorf("--shard auto: JOB_COMPLETION_INDEX is %d of JOB_COMPLETIONS %d; they count from 0", i, n)
		}
		if err != nil {
			return 0, 0, hinted{err, "set the variable JOB_COMPLETIONS to spec.completions in the Job's manifest"}
		}
		return i, n, nil
	}
	return 0, 0, hinted{
		errors.New("--shard auto: this process is of no array job: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"),
		"start it by sbatch --array or as an indexed Job, or give --shard i/n",
	}
}
