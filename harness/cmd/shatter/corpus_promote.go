package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/mutants"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

type promoteFlags struct {
	*corpusFlags
	to, name, class, about, note, right, known, source string
	bites                                              []string
}

func (f *corpusFlags) promote() *cobra.Command {
	p := promoteFlags{corpusFlags: f}
	c := &cobra.Command{
		Use:   "promote NAME",
		Short: "accept a pending case: record what comes out, and who comes out otherwise",
		Long: `Promote makes an accepted (or with --to a known or a flaky) case of a pending one. What comes out now under its header's
settings, on classic and on expandable is recorded, so the fault it found must be mended first; one that stays because upstream
has it is --to known --known ISSUE. What is right is --right, a JSON as in 'expect' lines ({"oom_ops":[]}: every request is served);
without it right is what is recorded. --bites names who comes out otherwise: an allocator NAME[@CONF] (with --right), or
planted:BUG. The mended fault itself makes the best planted bug: a file in allocators/mutants/bugs.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, args[0]) },
	}
	fl := c.Flags()
	fl.StringVar(&p.to, "to", string(corpus.Accepted), "the new state: accepted, known or flaky")
	fl.StringVar(&p.name, "name", "", "a name that says what the case is about")
	fl.StringVar(&p.class, "class", "", "fault class (shatter corpus list --classes)")
	fl.StringVar(&p.about, "about", "", "what happens in it, in a sentence")
	fl.StringVar(&p.note, "note", "", "what a reader should know")
	fl.StringVar(&p.source, "source", "", "where it comes from, if its header says less")
	fl.StringVar(&p.right, "right", "", "JSON of the right outcome")
	fl.StringVar(&p.known, "known", "", "with --to known: id of the upstream issue")
	fl.StringArrayVar(&p.bites, "bites", nil, "who comes out otherwise: NAME[@CONF] or planted:BUG; repeatable")
	return c
}

func (p *promoteFlags) run(c *cobra.Command, name string) error {
	to, err := stateFlag("to", p.to)
	if err != nil {
		return err
	}
	if to == corpus.Pending || to == corpus.Retired {
		return fmt.Errorf("--to %s: must be accepted, known or flaky; shatter corpus retire retires", to)
	}
	s, err := p.open(true)
	if err != nil {
		return err
	}
	k, err := s.Find(name)
	if err != nil {
		return err
	}
	if k.State == to {
		return fmt.Errorf("%s is %s already", k.Path(), to)
	}
	old := k.Path()
	previous := *k
	for _, f := range [...]trace.Field{
		{Key: "class", Value: p.class}, {Key: "about", Value: p.about}, {Key: "note", Value: p.note}, {Key: "right", Value: p.right},
		{Key: "known", Value: p.known}, {Key: "source", Value: p.source},
	} {
		if f.Value != "" {
			k.Set(f.Key, f.Value)
		}
	}
	if len(p.bites) > 0 {
		k.Set("bites", p.bites...)
	}
	if k.Set("expect"); p.name != "" {
		k.Name = p.name
	}
	if to != corpus.Flaky {
		if err := p.record(k, to); err != nil {
			return err
		}
	}
	k.State = to
	if err := s.Replace(&previous, k); err != nil {
		if strings.Contains(err.Error(), "is missing") {
			return hinted{err, "say it with --class, --about, --note, --source, --known or --bites; see shatter corpus promote --help"}
		}
		return err
	}
	changed, err := s.SyncInputs()
	if err != nil {
		return faultError{err}
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is now %s; %d fuzz inputs written. Look at: git add -A %s && git diff --cached -- %s\n",
		old, shown(s, k), len(changed), s.Dir(), shown(s, k))
	return nil
}

// record runs the case and writes what comes out into it.
func (p *promoteFlags) record(k *corpus.Case, to corpus.State) error {
	checks := p.checks()
	rep, err := checks.Case(k)
	if err != nil {
		return err
	}
	for i := range rep.Runs {
		v := rep.Runs[i].Broken()
		if v == nil {
			continue
		}
		return hinted{fmt.Errorf("%s: the fault is still there: on %s, %s", k.Path(), rep.Runs[i].Allocator, v),
			"mend it first; or, if upstream has it, add it to properties/known.go and promote with --to known --known ISSUE"}
	}
	if err := rep.Renew(); err != nil {
		return err
	}
	if to == corpus.Known {
		if !slices.ContainsFunc(properties.KnownIssues, func(i properties.KnownIssue) bool { return i.ID == k.Known() }) {
			return hinted{fmt.Errorf("--known %q: properties/known.go has no such issue", k.Known()), "add it there, with the condition under which a finding is that issue"}
		}
		rep, err = checks.Case(k)
		if err != nil {
			return err
		}
		if len(rep.Differences) > 0 {
			return fmt.Errorf("%s: %s", k.Path(), &rep.Differences[0])
		}
	}
	if class, err := corpus.FindClass(k.Class()); k.Class() != "" && err != nil {
		return fmt.Errorf("--class: %w", err)
	} else if err == nil && !class.Reached(rep.Features) {
		return hinted{fmt.Errorf("--class %s: the case does not reach %v; it has %v", class.Name, class.Reach, rep.Features),
			"choose another class: shatter corpus list --classes"}
	}
	return p.checkBites(checks, k)
}

// checkBites holds the `bites` lines to what they claim, as far as that needs no planted bug.
func (p *promoteFlags) checkBites(checks *verify.Checks, k *corpus.Case) error {
	if k.Right() != "" {
		if _, err := conform.ParseOutcome(k.Right()); err != nil {
			return hinted{fmt.Errorf("--right: %w", err), `for example --right '{"oom_ops":[]}': every request is served`}
		}
	}
	if len(k.Bites()) == 0 {
		return hinted{fmt.Errorf("%s: nobody comes out otherwise, so the case would never fail", k.Path()),
			"name who does: --bites planted:BUG (a file in allocators/mutants/bugs), or --right JSON and --bites ALLOCATOR"}
	}
	bugs, err := mutants.All()
	if err != nil {
		return faultError{err}
	}
	for _, b := range k.Bites() {
		if name, ok := verify.Planted(b); ok {
			if !slices.ContainsFunc(bugs, func(m mutants.Mutant) bool { return m.Name == name }) {
				return hinted{fmt.Errorf("there is no planted bug %q", name), "they are the files in allocators/mutants/bugs; make one of the mended fault"}
			}
			continue
		}
		if k.Right() == "" {
			return hinted{fmt.Errorf("--bites %s: an allocator comes out otherwise than --right, which is missing", b), `for example --right '{"oom_ops":[]}'`}
		}
		how, err := checks.Bite(k, b)
		if err != nil {
			return err
		}
		if how == "" {
			return hinted{fmt.Errorf("--bites %s: it comes out right", b), "name one that does not; shatter replay --alloc shows what comes out"}
		}
	}
	return nil
}

func (f *corpusFlags) retire() *cobra.Command {
	var because string
	c := &cobra.Command{
		Use:   "retire NAME",
		Short: "keep a case for its story, and replay it no more",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if because == "" {
				return hinted{errors.New("a retired case says why"), "add --because, for example --because 'upstream mended it in 2.16'"}
			}
			s, err := f.open(true)
			if err != nil {
				return err
			}
			k, err := s.Find(args[0])
			if err != nil {
				return err
			}
			old := k.Path()
			k.Set("retired", because)
			if err := s.Move(k, corpus.Retired); err != nil {
				return err
			}
			if _, err := s.SyncInputs(); err != nil {
				return faultError{err}
			}
			fmt.Fprintf(c.OutOrStdout(), "%s is now %s\n", old, shown(s, k))
			return nil
		},
	}
	c.Flags().StringVar(&because, "because", "", "why")
	return c
}
