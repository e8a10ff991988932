package main

import (
	"strings"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// confOf is the settings string of an allocator as PyTorch would read it, with the settings of our own.
func confOf(s catalog.Spec) string {
	conf := s.Conf()
	if s.Settings != nil && s.Settings.Expandable {
		conf = strings.TrimSuffix("expandable_segments:True,"+conf, ",")
	}
	return conf
}

// settingsFor is what relations need to run an allocator under other settings; nil if it takes none.
func settingsFor(s catalog.Spec) func(conf string) (executor.Target, error) {
	if s.Configurable() {
		return func(conf string) (executor.Target, error) {
			other, err := s.Replaced(conf)
			return targetOf(other), err
		}
	}
	if s.Settings == nil {
		return nil
	}
	return func(conf string) (executor.Target, error) {
		other, err := catalog.FromSettings(conf, nil)
		return targetOf(other), err
	}
}

// properties are all, with findings made of known issues if --known is off.
func (f *targetFlags) properties() []executor.Property {
	if f.known == "off" {
		return properties.PropertiesWithoutKnown()
	}
	return properties.All()
}

// relations are those asked, with findings made of known issues if --known is off.
func (f *targetFlags) relations() []executor.Relation {
	if f.known == "off" {
		return properties.RelationsWithoutKnown()
	}
	return properties.Relations()
}

// judge returns what makes judges for runs: known issues and the level asked with --promise taken into account.
func (f *targetFlags) judge() func() executor.Judge {
	return func() executor.Judge {
		j := properties.NewJudge()
		if f.known == "off" {
			j = properties.WithoutKnown(j)
		}
		if f.asked {
			j = properties.Asking(j, f.level)
		}
		return j
	}
}

// relate asks the relations about a trace that a run found nothing in.
func (f *targetFlags) relate(t *trace.Trace, on executor.Target, capacity uint64, res *executor.Result) error {
	s, err := catalog.Parse(on.Name)
	if err != nil || settingsFor(s) == nil || len(res.Findings) > 0 || f.faults != nil {
		return err
	}
	v, err := executor.Relate(&executor.Case{
		Trace: t, Target: on, Capacity: capacity, NewDevice: f.relationDevice(), Conf: confOf(s), With: settingsFor(s),
	}, f.relations())
	switch {
	case v == nil:
	case v.Known != "":
		res.Known = append(res.Known, *v)
	default:
		res.Findings = append(res.Findings, *v)
	}
	return err
}
