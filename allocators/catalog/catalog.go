// Package catalog names the allocators that a command line, a fuzz target or a report can ask for: NAME[@CONF].
package catalog

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/direct"
	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/allocators/textbook"
)

// Entry describes an allocator of the catalog.
type Entry struct {
	Name, Summary string
	// Settings says whether the name takes @CONF.
	Settings bool
}

// Entries are all allocators, in the order in which they are listed.
var Entries = []Entry{
	{"classic", "PyTorch's caching allocator, segments from cudaMalloc (rules of 2.6)", true},
	{"expandable", "the same with expandable_segments:True, pages mapped into growing address ranges", true},
	{"direct", "no cache: every call goes to the device", false},
	{"first-fit", "control: one arena, the lowest hole that is large enough", false},
	{"best-fit", "control: one arena, the smallest hole that is large enough", false},
	{"worst-fit", "control: one arena, the largest hole", false},
	{"next-fit", "control: one arena, the next hole behind the last block placed", false},
	{"buddy", "control: one arena, the binary buddy system", false},
}

// plain makes the allocators that take no settings.
var plain = map[string]func(device.Device) allocators.Allocator{
	"direct":    func(d device.Device) allocators.Allocator { return direct.New(d) },
	"first-fit": func(d device.Device) allocators.Allocator { return textbook.NewFit(d, textbook.First) },
	"best-fit":  func(d device.Device) allocators.Allocator { return textbook.NewFit(d, textbook.Best) },
	"worst-fit": func(d device.Device) allocators.Allocator { return textbook.NewFit(d, textbook.Worst) },
	"next-fit":  func(d device.Device) allocators.Allocator { return textbook.NewFit(d, textbook.Next) },
	"buddy":     func(d device.Device) allocators.Allocator { return textbook.NewBuddy(d) },
}

// Spec is an allocator with its settings.
type Spec struct {
	// Name is the text that Parse was given.
	Name string
	// Base is the name without settings.
	Base string
	// Settings of the caching allocator; nil for others.
	Settings *caching.Settings
	// Warnings are settings that PyTorch ignores in silence.
	Warnings []string
	// Remote makes allocators that live in another process; nil for others.
	Remote *external.Target
	remote *remote
}

// Parse reads NAME[@CONF]. Errors say what to write instead.
func Parse(text string) (Spec, error) {
	name, conf, given := strings.Cut(text, "@")
	s := Spec{Name: text, Base: name}
	switch kind, _, ok := strings.Cut(text, ":"); {
	case ok && (kind == "torch" || kind == "so" || kind == "child"):
		return parseRemote(text)
	}
	switch name {
	case "classic", "expandable":
		set, warnings, err := caching.ParseSettings(conf)
		if err != nil {
			return s, fmt.Errorf("allocator %q: %w", text, err)
		}
		if strings.Contains(spaceless(conf), "expandable_segments:") {
			other := map[bool]string{true: "expandable", false: "classic"}[set.Expandable]
			return s, fmt.Errorf("allocator %q: the name says whether segments are expandable; write %s, without expandable_segments",
				text, join(other, without(conf)))
		}
		set.Expandable = name == "expandable"
		s.Settings, s.Warnings = &set, warnings
		return s, nil
	}
	if plain[name] != nil {
		if given {
			return s, fmt.Errorf("allocator %q: %s takes no settings", text, name)
		}
		return s, nil
	}
	var names []string
	for _, e := range Entries {
		names = append(names, e.Name)
	}
	for _, e := range Remote {
		names = append(names, e.Name)
	}
	return s, fmt.Errorf("unknown allocator %q; there are %s (see shatter list allocators)", text, strings.Join(names, ", "))
}

func join(name, conf string) string {
	if conf == "" {
		return name
	}
	return name + "@" + conf
}

// without drops expandable_segments from a settings string, and what means nothing: spaces, which PyTorch drops inside words too,
// and a comma at the end.
func without(conf string) string {
	var keep []string
	for _, pair := range strings.Split(spaceless(conf), ",") {
		if pair != "" && !strings.HasPrefix(pair, "expandable_segments:") {
			keep = append(keep, pair)
		}
	}
	return strings.Join(keep, ",")
}

func spaceless(s string) string { return strings.ReplaceAll(s, " ", "") }

// FromSettings names the allocator that PyTorch would run under a settings string (trace header `conf`), with the memory
// fraction if one is given.
func FromSettings(conf string, fraction *float64) (Spec, error) {
	set, warnings, err := caching.ParseSettings(conf)
	if err != nil {
		return Spec{}, err
	}
	name := "classic"
	if set.Expandable {
		name = "expandable"
	}
	rest := without(conf)
	if fraction != nil {
		if rest != "" {
			rest += ","
		}
		rest += fmt.Sprintf("x_memory_fraction:%v", *fraction)
		set.HasFraction, set.Fraction = true, *fraction
	}
	return Spec{Name: join(name, rest), Base: name, Settings: &set, Warnings: warnings}, nil
}

// New makes the allocator on an empty device.
func (s Spec) New(dev device.Device) (allocators.Allocator, error) {
	if s.Remote != nil {
		return s.Remote.New(dev)
	}
	if s.Settings == nil {
		return plain[s.Base](dev), nil
	}
	return caching.New(dev, *s.Settings)
}
