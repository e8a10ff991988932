package executor

import (
	"path"
	"strings"
)

// What notices a finding besides an operation: a look at the whole state, or what must hold once everything is freed. The
// operation at which a look falls due is chance, so it is no part of the signature.
const (
	AtWalk = "walk"
	AtEnd  = "end"
)

// Signature is the same for findings of one cause: property.rule.target.at, and for a panic the function behind it. It has
// the allocator without its settings, and no addresses, sizes, positions or line numbers. As it is readable and loses nothing
// that tells causes apart, no digits of a hash stand behind it. It is a slug, fit for a file name.
func (f *Finding) Signature() string {
	parts := []string{f.Property, f.Rule, baseTarget(f.Target), f.At}
	if f.Frame != "" {
		parts = append(parts, f.Frame)
	}
	for i, p := range parts {
		parts[i] = slug(p)
	}
	return strings.Join(parts, ".")
}

// Group is the coarser key, property.rule: related signatures have it in common.
func (f *Finding) Group() string { return slug(f.Property) + "." + slug(f.Rule) }

// Signature is the same for refusals of one kind: oom.verdict.target, and what tells refusals of that verdict apart: the sets
// of rules whose relaxation would have served (policy), the rule that was broken (false).
func (j *Judgement) Signature(target string) string {
	parts := []string{"oom", j.Verdict.String(), slug(baseTarget(target))}
	for _, r := range j.Relaxed {
		parts = append(parts, r.String())
	}
	if j.Rule != "" {
		parts = append(parts, j.Rule)
	}
	return strings.Join(parts, ".")
}

// baseTarget is the allocator without settings, and without the folder if it is a file: so:/lib/x.so,alloc=a is so:x.so.
func baseTarget(target string) string {
	name := strings.LastIndexByte(target, '/') + 1 // a folder may have an @ or a comma in its name
	if i := strings.IndexAny(target[name:], "@,"); i >= 0 {
		target = target[:name+i]
	}
	if kind, file, ok := strings.Cut(target, ":"); ok {
		return kind + ":" + path.Base(file)
	}
	return target
}

// slug keeps letters, digits, _ and +, and makes one - of what stands between them.
func slug(s string) string {
	var b strings.Builder
	gap := false
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '+':
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(c)
			gap = false
		default:
			gap = true
		}
	}
	return b.String()
}
