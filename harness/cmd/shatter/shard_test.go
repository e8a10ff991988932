package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShard(t *testing.T) {
	slurm := func(id, min, max, step, count string) map[string]string {
		return map[string]string{"SLURM_ARRAY_TASK_ID": id, "SLURM_ARRAY_TASK_MIN": min, "SLURM_ARRAY_TASK_MAX": max,
			"SLURM_ARRAY_TASK_STEP": step, "SLURM_ARRAY_TASK_COUNT": count}
	}
	pods := func(i, n string) map[string]string {
		return map[string]string{"JOB_COMPLETION_INDEX": i, "JOB_COMPLETIONS": n}
	}
	for _, c := range []struct {
		flag          string
		env           map[string]string
		shard, shards int
		fails         string
	}{
		{"", nil, 0, 1, ""},
		{"", slurm("3", "0", "3", "1", "4"), 0, 1, ""}, // only when asked
		{"2/5", slurm("3", "0", "3", "1", "4"), 2, 5, ""},
		{"5/5", nil, 0, 0, "0 <= i < n"},
		{"-1/5", nil, 0, 0, "0 <= i < n"},
		{"1", nil, 0, 0, "0 <= i < n"},
		{"1/x", nil, 0, 0, "0 <= i < n"},
		{"auto", nil, 0, 0, "no array job"},
		{"auto", slurm("3", "0", "3", "1", "4"), 3, 4, ""},
		{"auto", slurm("1", "1", "4", "1", "4"), 0, 4, ""},
		{"auto", slurm("9", "1", "13", "4", "4"), 2, 4, ""},
		{"auto", slurm("9", "1", "9", "1", "3"), 0, 0, "use sbatch --array=0-2"}, // --array=1,5,9
		{"auto", slurm("1", "0", "3", "", "4"), 0, 0, `SLURM_ARRAY_TASK_STEP is ""`},
		{"auto", pods("0", "4"), 0, 4, ""},
		{"auto", pods("3", "4"), 3, 4, ""},
		{"auto", pods("4", "4"), 0, 0, "count from 0"},
		{"auto", pods("1", ""), 0, 0, `JOB_COMPLETIONS is ""`},
	} {
		shard, shards, err := parseShard(c.flag, func(name string) string { return c.env[name] })
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []int{c.shard, c.shards}, []int{shard, shards}, "%s %v", c.flag, c.env)
	}
}
