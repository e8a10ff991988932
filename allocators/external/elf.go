package external

import (
	"debug/elf"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// library is what a shared library says of itself.
type library struct {
	needed    []string
	search    []string // folders that it names for what it needs, $ORIGIN put in
	undefined []string // CUDA functions that it wants, of the runtime, the driver and NVML
	runtime   string   // soname of the CUDA runtime that it wants, hashed names too
	version   string   // symbol version node of the runtime's functions
	cxx11     bool     // its own functions have std::string of the newer C++ ABI in their names
	static    bool     // a CUDA runtime is linked into it
}

var (
	runtimeName  = regexp.MustCompile(`^libcudart[-.\w]*\.so`)
	cudaFunction = regexp.MustCompile(`^(cuda|cu|nvml)[A-Z]\w*$`)
)

// readLibrary reads an ELF file.
func readLibrary(path string) (*library, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &library{}
	if l.needed, err = f.ImportedLibraries(); err != nil {
		return nil, err
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		list, err := f.DynString(tag)
		if err != nil {
			return nil, err
		}
		for _, text := range list {
			for _, dir := range filepath.SplitList(text) {
				l.search = append(l.search, strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir))
			}
		}
	}
	for _, n := range l.needed {
		if runtimeName.MatchString(n) {
			l.runtime = n
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	definesRuntime := false
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			if strings.HasPrefix(s.Name, "_ZN3c10") && strings.Contains(s.Name, "__cxx11") {
				l.cxx11 = true
			}
			definesRuntime = definesRuntime || s.Name == "cudaMalloc"
			continue
		}
		if cudaFunction.MatchString(s.Name) {
			l.undefined = append(l.undefined, s.Name)
			if strings.HasPrefix(s.Name, "cuda") && s.Library == l.runtime && s.Version != "" {
				l.version = s.Version
			}
		}
	}
	slices.Sort(l.undefined)
	l.undefined = slices.Compact(l.undefined)
	if hidden, err := f.Symbols(); err == nil { // a stripped library has none
		for _, s := range hidden {
			definesRuntime = definesRuntime || s.Name == "cudaMalloc" && s.Section != elf.SHN_UNDEF
		}
	}
	// The static runtime finds the driver through this function of libcuda, by name.
	l.static = definesRuntime || len(l.undefined) == 0 && l.runtime == "" && contains(f, "cuGetExportTable")
	return l, nil
}

// contains tells whether a library's constants hold a text.
func contains(f *elf.File, text string) bool {
	s := f.Section(".rodata")
	if s == nil {
		return false
	}
	data, err := s.Data()
	return err == nil && strings.Contains(string(data), text)
}
