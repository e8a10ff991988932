package main

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// playAdversary lets an adversary play; an adaptive one against an allocator on a device that refuses nothing.
func playAdversary(a *adversary.Adversary, s catalog.Spec, p adversary.Params) (*adversary.Played, error) {
	var opponent allocators.Allocator
	if a.Adaptive {
		dev, err := simdev.New(simdev.Options{Capacity: measure.Unbounded})
		if err != nil {
			return nil, err
		}
		if opponent, err = s.New(dev); err != nil {
			return nil, err
		}
	}
	played, err := a.Play(opponent, p)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", a.Name, s.Name, err)
	}
	return played, nil
}

// adversarial makes the trace called adversary:NAME, or adversary:NAME:ALLOCATOR for an adaptive one (classic unless said).
func adversarial(name string) (*trace.Trace, error) {
	_, rest, _ := strings.Cut(name, ":")
	rest, opponent, given := strings.Cut(rest, ":")
	if !given {
		opponent = "classic"
	}
	a, err := adversary.Find(rest)
	if err != nil {
		return nil, err
	}
	s, err := catalog.Parse(opponent)
	if err != nil {
		return nil, err
	}
	p, err := playAdversary(a, s, adversary.Params{})
	if err != nil {
		return nil, err
	}
	p.Trace.Name = name
	return p.Trace, nil
}
