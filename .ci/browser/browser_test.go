package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// open writes a page with this body and opens it.
func open(t *testing.T, body string) *Page {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(file, []byte("<!doctype html><meta charset=utf-8><title>t</title>"+body), 0o644))
	return Open(t, file, 600, 400)
}

// TestLegibleSees plants what readers could not read: each must be seen, and a sound page pass.
func TestLegibleSees(t *testing.T) {
	p := open(t, `<div id=x></div>`)
	for _, c := range []struct{ name, html, want string }{
		{"sound", `<p>one two three</p><p>four</p><svg width=100 height=20><text x=2 y=15>five</text></svg><button>six</button>`, ""},
		{"wide", `<p style="width:900px">w</p>`, "the page is"},
		{"out", `<p style="position:absolute;left:-30px">stick</p>`, "sticks out of the window"},
		{"cut", `<p style="width:40px;overflow:hidden;white-space:nowrap">a long sentence</p>`, "is cut by"},
		{"cut below", `<div style="height:20px;overflow:hidden"><p>one</p><p>two</p></div>`, "is cut by"},
		{"cut drawing", `<svg width=40 height=20><text x=2 y=15>a long sentence</text></svg>`, "is cut by"},
		{"covered", `<p style="height:0;margin:0">under</p><button style="width:200px">over</button>`, "lies on <button>"},
		{"text on text", `<p style="height:5px;margin:0">under</p><p style="margin:0">over</p>`, "lie on each other"},
		{"labels", `<svg width=200 height=20><text x=2 y=15>left</text><text x=12 y=15>right</text></svg>`, "lie on each other"},
		{"scrolls", `<pre style="width:100px;overflow-x:auto">a long line that can be scrolled to its end</pre>`, ""},
		{"closed", `<details><summary>s</summary><p style="width:40px;overflow:hidden;white-space:nowrap">a long sentence</p></details>`, ""},
	} {
		p.Eval(`document.getElementById("x").innerHTML = `+quote(c.html), nil)
		var faults []string
		p.Eval(legible, &faults)
		if c.want == "" {
			require.Empty(t, faults, c.name)
			continue
		}
		require.Contains(t, strings.Join(faults, "\n"), c.want, c.name)
	}
}

func quote(s string) string { return "`" + s + "`" }

// TestQuietSees: messages, exceptions, refusals of the policy and requests are noticed.
func TestQuietSees(t *testing.T) {
	for _, c := range []struct{ name, body, message, request string }{
		{"silent", `<p>x</p>`, "", ""},
		{"console", `<script>console.error("sad", 7)</script>`, `"sad" 7`, ""},
		{"exception", `<script>throw new Error("gone")</script>`, "gone", ""},
		{"request", `<img src="http://127.0.0.1:9/x.png">`, "", "http://127.0.0.1:9/x.png"},
		{"policy", `<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><script>1</script>`, "Content Security Policy", ""},
		{"dialog", `<script>alert(1)</script>`, "dialog: 1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, c.body)
			p.Settle()
			if c.message == "" && c.request == "" {
				p.Quiet()
			}
			if c.message != "" {
				require.Contains(t, strings.Join(p.Messages(), "\n"), c.message)
			}
			if c.request != "" {
				p.mu.Lock()
				defer p.mu.Unlock()
				require.Contains(t, p.requests, c.request)
			}
		})
	}
}

func TestKeyboard(t *testing.T) {
	p := open(t, `<input id=r type=range min=0 max=9 value=3><p id=out></p>`)
	p.Focus("#r")
	value := func() string {
		var v string
		p.Eval(`document.getElementById("r").value`, &v)
		return v
	}
	p.Press("ArrowRight")
	require.Equal(t, "4", value())
	p.Press("End")
	require.Equal(t, "9", value())
	p.Press("Home", "ArrowRight", "ArrowRight")
	require.Equal(t, "2", value())
}
