package catalog

import (
	"fmt"
	"strings"
	"sync"

	"github.com/shatter-gpu/shatter/allocators/external"
)

// Remote are the kinds of allocator that live in a process of their own, as they are listed.
var Remote = []Entry{
	{"torch:[PATH]", "the caching allocator of an installed PyTorch on a simulated GPU; PATH a virtual environment, a site-packages or torch folder", true},
	{"so:PATH[,alloc=NAME,free=NAME,record=NAME]", "a library with the C functions of torch.cuda.memory.CUDAPluggableAllocator", false},
	{"child:PROGRAM", "any program that speaks the line protocol (go doc ./allocators/external)", true},
}

// Needs tells what is missing on this machine for allocators of other processes, empty if nothing is.
func Needs() []string {
	var out []string
	if _, err := external.FindCompiler(); err != nil {
		out = append(out, "torch: and so: need a C++ compiler: "+err.Error())
	}
	if _, err := external.FindTorch(""); err != nil {
		out = append(out, "torch: alone does not work: "+err.Error())
	}
	return out
}

// remote is what an allocator of another process is made of; other settings of the same one share it.
type remote struct {
	base    string // the name without settings
	torch   *external.Installation
	program string

	mu      sync.Mutex
	targets map[string]*external.Target // by settings
}

// cutSettings cuts NAME@CONF; a folder of the path may have an @ in its name.
func cutSettings(text string) (name, conf string) {
	slash := strings.LastIndexByte(text, '/') + 1
	if i := strings.IndexByte(text[slash:], '@'); i >= 0 {
		return text[:slash+i], text[slash+i+1:]
	}
	return text, ""
}

// parseRemote reads torch:, so: and child: names. It builds what has to be built, and starts a child once, so that nothing is
// found out later.
func parseRemote(text string) (s Spec, err error) {
	s = Spec{Name: text, Base: text}
	switch kind, rest, _ := strings.Cut(text, ":"); kind {
	case "so":
		path, f, err := external.ParseLibrary(rest)
		if err != nil {
			return s, fmt.Errorf("allocator %q: %w", text, err)
		}
		t, err := external.Library(path, f, external.Options{})
		if err == nil {
			err = t.Check()
		}
		if err != nil {
			return s, fmt.Errorf("allocator %q: %w", text, err)
		}
		s.Remote = t
		return s, nil
	case "torch":
		name, conf := cutSettings(rest)
		r := &remote{base: "torch:" + name, targets: map[string]*external.Target{}}
		if r.torch, err = external.FindTorch(name); err != nil {
			return s, fmt.Errorf("allocator %q: %w", text, err)
		}
		return r.with(text, conf)
	default:
		name, conf := cutSettings(rest)
		if name == "" {
			return s, fmt.Errorf("allocator %q: the program is missing: child:PROGRAM", text)
		}
		r := &remote{base: "child:" + name, program: name, targets: map[string]*external.Target{}}
		return r.with(text, conf)
	}
}

// with makes the spec for settings.
func (r *remote) with(name, conf string) (Spec, error) {
	s := Spec{Name: name, Base: r.base, remote: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Remote = r.targets[conf]; s.Remote != nil {
		return s, nil
	}
	var err error
	if r.torch != nil {
		var set external.Settings
		if set, err = external.ParseTorchSettings(conf); err == nil {
			s.Remote, err = r.torch.Target(set, external.Options{})
		}
	} else {
		s.Remote = external.NewTarget(external.Command{Path: r.program, Settings: conf})
	}
	if err == nil {
		err = s.Remote.Check()
	}
	if err != nil {
		return s, fmt.Errorf("allocator %q: %w", name, err)
	}
	r.targets[conf] = s.Remote
	return s, nil
}

// Conf is the settings string behind the name.
func (s Spec) Conf() string {
	_, conf := cutSettings(s.Name)
	return conf
}

// With is the allocator under a settings string and a memory fraction: for a classic or expandable one what PyTorch would run
// (see FromSettings), for one of another process the same with these settings added to its own. Others have none.
func (s Spec) With(conf string, fraction *float64) (Spec, error) {
	switch {
	case s.remote != nil:
		name, own := cutSettings(s.Name)
		all := joinSettings(own, conf)
		if fraction != nil {
			all = joinSettings(all, fmt.Sprintf("x_memory_fraction:%v", *fraction))
		}
		return s.remote.with(join(name, all), all)
	case s.Settings != nil:
		_, own := cutSettings(s.Name)
		return FromSettings(joinSettings(own, conf), fraction)
	default:
		return s, nil
	}
}

// Replaced is an allocator of another process under other settings instead of its own.
func (s Spec) Replaced(conf string) (Spec, error) {
	return s.remote.with(join(s.remote.base, conf), conf)
}

// Configurable tells whether this is an allocator of another process that takes settings; it has Replaced.
func (s Spec) Configurable() bool { return s.remote != nil }

func joinSettings(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}
