//go:build unix

package nightly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/direct"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// workerOf is the variable that makes a worker of this test binary, and says of which kind.
const workerOf = "SHATTER_TEST_WORKER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(workerOf); kind != "" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, workers[kind]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// text is the trace of the tests' findings.
const text = "# capacity: 1GiB\nalloc 0 512\nalloc 1 4096\nalloc 2 512\n"

func broken(name, rule string) Found {
	t, _ := trace.ParseString(name, text+strings.Repeat("sync\n", len(name)))
	return Found{
		Finding: executor.Finding{Property: "p", Rule: rule, Target: "classic", At: "alloc", Op: 1},
		Trace:   name, Hash: t.ID(), Text: text, Capacity: 1 << 30,
	}
}

// stuck stops at requests of 4096 bytes: for ever, or with its process.
type stuck struct {
	*direct.Allocator
	die bool
}

func (s stuck) Alloc(n uint64, on device.Stream) (allocators.Block, error) {
	if n == 4096 {
		if s.die {
			fmt.Fprintln(os.Stderr, "fatal error: the driver is gone")
			os.Exit(7)
		}
		select {}
	}
	return s.Allocator.Alloc(n, on)
}

// getStuck runs the trace on an allocator that gets stuck.
func getStuck(p *Pulse, die bool) error {
	t, err := trace.ParseString("stuck", text)
	if err != nil {
		return err
	}
	dev, err := simdev.New(simdev.Options{Capacity: 1 << 30})
	if err != nil {
		return err
	}
	p.Begin(t, "stuck", 1<<30)
	target := executor.Target{Name: "stuck", New: func(d device.Device) (allocators.Allocator, error) { return stuck{direct.New(d), die}, nil }}
	_, err = executor.Execute(executor.Compile(t), target, executor.Options{Device: dev, Properties: []executor.Property{p.Property()}})
	return err
}

// workers are what the processes of the tests do.
var workers = map[string]func(context.Context, Task, *Pulse) (Answer, error){
	"clean": func(context.Context, Task, *Pulse) (Answer, error) {
		return Answer{Runs: 1, Operations: 10, Known: map[string]int{"issue": 2}}, nil
	},
	// One trace shows a finding, and no fresh seed.
	"rare": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		switch {
		case t.Kind == Repeat:
			return Answer{Repeated: &Repeated{Own: true, Tried: t.Tries}}, nil
		case t.Kind == Shrink:
			f := *t.Found
			f.Text = "# capacity: 1GiB\nalloc 1 4096\n"
			return Answer{Shrunk: &Shrunk{Found: f, Before: 3, After: 1, Minimal: true}}, nil
		case t.Kind == Sequence && t.Index == 3:
			return Answer{Found: []Found{broken("one", "rare")}}, nil
		}
		return Answer{}, nil
	},
	// While the finding of one trace is shrunk, another one is met.
	"meets": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		switch {
		case t.Kind == Repeat:
			return Answer{Repeated: &Repeated{Own: true, Tried: t.Tries}}, nil
		case t.Kind == Shrink && t.Found.Rule == "first":
			return Answer{Found: []Found{broken("met", "other")}, Shrunk: &Shrunk{Found: *t.Found, Before: 3, After: 1, Minimal: true}}, nil
		case t.Kind == Shrink:
			return Answer{Shrunk: &Shrunk{Found: *t.Found, Before: 3, After: 2, Minimal: true}}, nil
		case t.Kind == Sequence && t.Index == 3:
			return Answer{Found: []Found{broken("one", "first")}}, nil
		}
		return Answer{}, nil
	},
	"again": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		switch {
		case t.Kind == Repeat:
			return Answer{Repeated: &Repeated{Own: true, Tried: 5, Seen: 1}}, nil
		case t.Kind == Shrink:
			return Answer{}, errors.New("cannot")
		case t.Kind == Sequence && t.Index == 3:
			return Answer{Found: []Found{broken("one", "again")}}, nil
		}
		return Answer{}, nil
	},
	"two": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		switch {
		case t.Kind == Repeat:
			return Answer{Repeated: &Repeated{}}, nil
		case t.Kind == Sequence && t.Index == 3:
			return Answer{Found: []Found{broken("one", "two")}}, nil
		case t.Kind == Sequence && t.Index == 5:
			return Answer{Found: []Found{broken("other", "two")}}, nil
		}
		return Answer{}, nil
	},
	"panel": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		if t.Kind == Panel && t.Index == 1 {
			return Answer{Found: []Found{broken("one", "panel")}, Log: &Log{Broken: true}}, nil
		}
		return Answer{}, nil
	},
	"hangs": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Kind == Sequence && t.Index == 2 {
			return Answer{}, getStuck(p, false)
		}
		return Answer{}, nil
	},
	"hangs-often": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Kind == Sequence && t.Index%3 == 2 {
			return Answer{}, getStuck(p, false)
		}
		return Answer{}, nil
	},
	"dies": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Kind == Sequence && t.Index == 2 {
			return Answer{}, getStuck(p, true)
		}
		return Answer{}, nil
	},
	// The first worker that gets the task is killed from outside, or stopped; the second one does it.
	"killed": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Index == 2 && t.Spool == "" {
			p.Stage("waiting")
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return Answer{}, nil
	},
	"stopped": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Index == 2 && t.Spool == "" {
			p.Stage("waiting")
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		}
		return Answer{}, nil
	},
	"babbles": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Index == 2 && t.Spool == "" {
			fmt.Println("cuda: something")
		}
		return Answer{}, nil
	},
	"fails": func(_ context.Context, t Task, _ *Pulse) (Answer, error) {
		switch {
		case t.Index == 2:
			return Answer{}, errors.New("sick device")
		case t.Index == 4 && t.Spool == "":
			panic("once")
		}
		return Answer{}, nil
	},
	"slow": func(_ context.Context, t Task, p *Pulse) (Answer, error) {
		if t.Index >= 2 {
			for {
				p.Move() // it is busy, and never ends
				time.Sleep(10 * time.Millisecond)
			}
		}
		return Answer{Runs: 1}, nil
	},
}

// night is a Config of workers of a kind: a panel of three tasks and eight sequences.
func config(t *testing.T, kind string) Config {
	self, err := os.Executable()
	require.NoError(t, err)
	return Config{
		Command: func() *exec.Cmd {
			c := exec.Command(self)
			c.Env = append(os.Environ(), workerOf+"="+kind)
			return c
		},
		Workers: 2, Watchdog: 1500 * time.Millisecond, Start: time.Now(), Time: time.Minute, Explorations: 8, Simulated: true, Folder: t.TempDir(),
		Panel:   []Task{{Kind: Panel}, {Kind: Panel, Index: 1}, {Kind: Case, Index: 0}},
		Explore: func(k int) Task { return Task{Kind: Sequence, Index: k, Seed: 7} },
	}
}

// TestNights: what each way in which a night can go comes to.
func TestNights(t *testing.T) {
	t.Parallel()
	type want struct {
		finding, status, why, shrunk string
		lost                         []string // kind, where, again
		fault                        string
	}
	for kind, w := range map[string]want{
		"clean": {},
		"rare":  {finding: "p.rare.classic.alloc", status: "suspect", why: "its own trace shows it each time, none of 24 fresh seeds does", shrunk: "3 to 1 "},
		"again": {
			finding: "p.again.classic.alloc", status: "red", why: "seen again on 1 of 5 fresh seeds", shrunk: "0 to 0 cannot", fault: "shrink 0: cannot",
		},
		"two":   {finding: "p.two.classic.alloc", status: "red", why: "seen on 2 traces", shrunk: "0 to 0 it was not tried"},
		"panel": {finding: "p.panel.classic.alloc", status: "red", why: "in the panel, where nothing is left to chance", shrunk: "0 to 0 it was not tried"},
		"hangs": {
			finding: "survives.hung.stuck.process", status: "red", why: "the same task ended two workers", shrunk: "0 to 0 cut behind the operation, no further: each try would end a worker",
			lost: []string{"hung", "operation 1 (alloc 1 4096) of stuck on stuck", "lost another worker"},
		},
		"dies": {
			finding: "survives.died.stuck.process", status: "red", why: "the same task ended two workers", shrunk: "0 to 0 cut behind the operation, no further: each try would end a worker",
			lost: []string{"died", "exit status 7: fatal error: the driver is gone", "lost another worker"},
		},
		"killed":  {lost: []string{"died", "signal: killed", "passed"}},
		"stopped": {lost: []string{"hung", "nothing moved for 1.5s; it was killed", "passed"}},
		"babbles": {lost: []string{"babble", `it wrote "cuda: something"`, "passed"}},
		"fails":   {fault: "sequence 2: sick device"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out Night
			c := config(t, kind)
			var kept []Finding
			c.Keep = func(f *Finding) error {
				kept = append(kept, *f)
				return nil
			}
			decided := 0
			c.Decided = func(Task, *Answer) error { decided++; return nil }
			require.NoError(t, Run(context.Background(), c, &out))
			require.Equal(t, 3, decided, "the panel is whole whatever happens")
			require.False(t, out.Interrupted)
			require.Zero(t, out.Unfinished)
			if w.fault == "" {
				require.Empty(t, out.Faults)
				require.Equal(t, 8-len(out.Lost)/2, out.Explored.Sequences, "a task that ended two workers is none that was done")
			} else {
				require.Equal(t, []string{w.fault}, out.Faults)
			}
			require.Equal(t, w.status == "red", out.Failed())
			if w.finding == "" {
				require.Empty(t, out.Findings)
			} else {
				require.Len(t, out.Findings, 1)
				f := &out.Findings[0]
				require.Equal(t, []string{w.finding, w.status, w.why}, []string{f.Signature, string(f.Status), f.Why})
				require.Equal(t, w.shrunk, fmt.Sprintf("%d to %d %s", f.Before, f.After, f.NotShrunk))
				require.NotEmpty(t, kept)
				require.Contains(t, kept[0].Text, "alloc 1 4096\n", "the trace is handed over to be kept")
			}
			if w.lost == nil {
				require.Empty(t, out.Lost)
			} else {
				require.NotEmpty(t, out.Lost)
				l := &out.Lost[0]
				require.Equal(t, []string{w.lost[0], w.lost[2]}, []string{string(l.Kind), l.Again})
				require.Contains(t, l.String(), w.lost[1])
			}
			if kind == "clean" {
				require.Equal(t, []Count{{"issue", 22}}, out.Known)
				require.Equal(t, Explored{Sequences: 8, Runs: 11, Operations: 110}, out.Explored)
				require.Equal(t, 2, out.Timing.Starts)
			}
			if kind == "hangs" || kind == "dies" {
				require.Equal(t, "1 alloc 1 4096", fmt.Sprint(out.Findings[0].Op, " ", out.Findings[0].Operation))
				require.Equal(t, "# capacity: 1073741824\n# allocator: stuck\nalloc 0 512\nalloc 1 4096\n", kept[0].Text, "cut behind where it hung")
			}
			left, err := filepath.Glob(filepath.Join(c.Folder, "lost-*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestMetByShrinking: what is met while a finding is shrunk is a finding too: a suspect, shrunk in its turn.
func TestMetByShrinking(t *testing.T) {
	t.Parallel()
	var out Night
	require.NoError(t, Run(context.Background(), config(t, "meets"), &out))
	require.False(t, out.Failed())
	require.Len(t, out.Findings, 2)
	f := &out.Findings[1]
	require.Equal(t, []any{"p.other.classic.alloc", Suspect, "met while another finding was shrunk, and not looked for again", "met",
		"shrinking of p.first.classic.alloc", 1, 3, 2},
		[]any{f.Signature, f.Status, f.Why, f.First, f.Source, f.Traces, f.Before, f.After})
	require.Equal(t, 1, out.Explored.Repeats, "it came from no task that fresh seeds could do")
}

// TestKnownHang: what is known to end workers ends one more each time, and not two.
func TestKnownHang(t *testing.T) {
	t.Parallel()
	c := config(t, "hangs-often")
	c.Workers = 1
	var out Night
	require.NoError(t, Run(context.Background(), c, &out))
	require.Len(t, out.Findings, 1)
	require.Equal(t, 2, out.Findings[0].Traces)
	var again []string
	for _, l := range out.Lost {
		again = append(again, l.Again)
	}
	require.Equal(t, []string{"lost another worker", "not done again", "not done again: it is survives.hung.stuck.process"}, again)
}

// TestDeadline: tasks that never end do not outlast the night.
func TestDeadline(t *testing.T) {
	t.Parallel()
	c := config(t, "slow")
	c.Time, c.Explorations = 2*time.Second, 0
	var out Night
	require.NoError(t, Run(context.Background(), c, &out))
	require.Less(t, time.Since(c.Start), c.Time)
	require.False(t, out.Interrupted)
	require.Equal(t, []int{2, 2, 0}, []int{out.Explored.Sequences, out.Unfinished, len(out.Lost)})
}

// TestPanelTooLong: a panel that has not come to its end is no green night.
func TestPanelTooLong(t *testing.T) {
	t.Parallel()
	c := config(t, "slow")
	c.Time = 2 * time.Second
	c.Panel = append(c.Panel, Task{Kind: Panel, Index: 2}, Task{Kind: Panel, Index: 3}, Task{Kind: Panel, Index: 4})
	out := Night{Panel: PanelResult{Logs: len(c.Panel)}}
	require.NoError(t, Run(context.Background(), c, &out))
	require.Equal(t, 3, out.Panel.Unreached)
	require.Equal(t, []string{"3 of the panel's 6 tasks were not reached within 2s: give the night more time"}, out.Faults)
}

// TestInterrupted: an interruption ends the night within seconds, and says what was not done.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	c := config(t, "slow")
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	var at time.Time
	c.Progress = func(n *Night, _ int) {
		if n.Explored.Sequences == 2 {
			once.Do(func() { at = time.Now(); cancel() })
		}
	}
	var out Night
	require.NoError(t, Run(ctx, c, &out))
	require.Less(t, time.Since(at), 3*time.Second)
	require.True(t, out.Interrupted)
	require.Equal(t, 2, out.Explored.Sequences)
}

// TestNoWorkers: a worker that cannot start is a fault of the environment.
func TestNoWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"sh", "-c", "echo no device here >&2; exit 3"}, "a worker does not start: exit status 3: no device here"},
		{[]string{"/nowhere"}, "no such file"},
	} {
		cfg := config(t, "")
		cfg.Command = func() *exec.Cmd { return exec.Command(c.command[0], c.command[1:]...) }
		var out Night
		err := Run(context.Background(), cfg, &out)
		require.ErrorIs(t, err, executor.ErrHarness)
		require.ErrorContains(t, err, c.want)
	}
}

// TestDeafWorker: one that does not even read its task is lost too.
func TestDeafWorker(t *testing.T) {
	t.Parallel()
	deaf := func() *exec.Cmd { return exec.Command("sh", "-c", `echo '{"ready":true}'; kill -STOP $$`) }
	p, err := startProcess(context.Background(), deaf, 10*time.Second)
	require.NoError(t, err)
	f := broken("large", "x")
	f.Text = strings.Repeat("sync\n", 1<<20)
	a, loss := p.ask(context.Background(), Task{Kind: Shrink, Found: &f}, 300*time.Millisecond)
	require.Nil(t, a)
	require.Equal(t, Hung, loss.Kind)
}

// TestShards: each task is done in exactly one shard.
func TestShards(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for shard := range 3 {
		c := config(t, "clean")
		c.Shard, c.Shards = shard, 3
		explore := c.Explore
		c.Explore = func(k int) Task {
			seen[fmt.Sprint("sequence ", k)]++
			return explore(k)
		}
		c.Decided = func(t Task, _ *Answer) error { seen[fmt.Sprint(t.Kind, t.Index)]++; return nil }
		var out Night
		require.NoError(t, Run(context.Background(), c, &out))
	}
	require.Len(t, seen, 11)
	for what, n := range seen {
		require.Equal(t, 1, n, what)
	}
}
