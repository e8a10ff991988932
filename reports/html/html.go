// Package html writes reports as pages: one file each, that needs no network and asks for none. A content-security policy
// allows the page's own style and script, named by their hashes, and nothing else; everything that comes from files is
// escaped by html/template or is JSON in a script element that is only read.
//
// In go the models of package reports, samples and recordings; out come pages. What a page leaves out for its size it says in
// words. The scripts are readable as they are (memory.js, drawing.js, player.js), joined, and never transformed.
package html

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/shatter-gpu/shatter/reports/chart"
)

//go:embed *.tmpl style.css memory.js drawing.js player.js
var files embed.FS

var (
	style  = chart.Style + read("style.css")
	script = "(() => {\n\"use strict\";\n" + read("memory.js") + "\n" + read("drawing.js") + "\n" + read("player.js") + "})();\n"
	pages  = template.Must(template.New("").Funcs(template.FuncMap{
		"last": func(row []string) int { return len(row) - 1 },
	}).ParseFS(files, "*.tmpl"))
)

func read(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// policy allows what the page brings along.
func policy() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) + "; img-src data:; base-uri 'none'; form-action 'none'"
}

// head is what all pages have.
type head struct {
	Title   string
	Verdict string
	Tone    string // good, warn or bad
	Lead    []string
	Facts   []fact
}

type fact struct{ Name, Value string }

func (head) Policy() string       { return policy() }
func (head) Style() template.CSS  { return template.CSS(style) }
func (head) Script() template.JS  { return template.JS(script) }
func (head) Kinds() []legendEntry { return legend }

type legendEntry struct{ Class, Says string }

var legend = []legendEntry{
	{"live", "live"},
	{"pin", "live, pins free memory in its segment or page"},
	{"pinned", "free but pinned"},
	{"idle", "idle cache: a release would return it"},
	{"pending", "freed, another stream still uses it"},
	{"device", "free at the device"},
	{"others", "held by others"},
}

// svg puts a diagram of ours into a page.
func svg(s string) template.HTML { return template.HTML(s) }

func execute(w io.Writer, name string, data any) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
