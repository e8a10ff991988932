// Package browser opens HTML files of the project in a real headless browser and looks at them as a reader would.
//
// It is a module of its own, so that who uses the harness does not get a browser's protocol along with it. A test is short:
//
//	page := browser.Open(t, "report.html", 1000, 800) // skips, naming it, where there is no chromium
//	page.Eval(`document.querySelectorAll("section").length`, &sections)
//	page.Focus("#slider")
//	page.Press("ArrowRight", "End")
//	page.Legible() // nothing is cut, covers something else, or sticks out of the window
//	page.Quiet()   // no message in the console, no exception, nothing asked of a network
//	page.Screenshot("page.png")
//
// Every method ends the test when it fails. `.ci/browser.sh` installs Debian's chromium where it is missing and runs all tests;
// alone: `cd .ci/browser && go test ./...`. With SHATTER_PICTURES=DIR the screenshots go there, else nowhere.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// patience is how long a page may take for all that a test does with it.
const patience = 2 * time.Minute

// Page is an open page.
type Page struct {
	t   testing.TB
	ctx context.Context
	url string

	mu       sync.Mutex
	messages []string // of the console, exceptions, what the policy refused
	requests []string // beside the file itself
}

// programs are the names that the browser goes by.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// Program returns the path of a browser. Without one the test is skipped, naming it, or fails if SHATTER_REQUIRE_TOOLS=1.
func Program(t testing.TB) string {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "chromium is missing (apt-get install chromium)"
	if os.Getenv("SHATTER_REQUIRE_TOOLS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Open opens a file in a window of a size in CSS pixels and waits until it is loaded. The browser ends with the test.
func Open(t testing.TB, file string, width, height int) *Page {
	t.Helper()
	program := Program(t)
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(width, height))
	ctx, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancelAllocator)
	// What a newer browser tells and this protocol does not know yet is no fault of the page.
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	p := &Page{t: t, ctx: ctx, url: (&url.URL{Scheme: "file", Path: path}).String()}
	require.NoError(t, chromedp.Listen(ctx, p.listen)) // starts the browser
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, performance.Enable, performance.EnableParams{})
	p.do(chromedp.EmulateViewport(int64(width), int64(height)), chromedp.Navigate(p.url))
	return p
}

func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, actions...))
}

func call[P, R any](p *Page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	require.NoError(p.t, err)
	return result
}

func run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	require.NoError(p.t, err)
	return value
}

// listen notes what a page that needs nothing must not do.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var words []string
		for _, a := range e.Args {
			words = append(words, string(a.Value)+a.Description)
		}
		p.messages = append(p.messages, fmt.Sprintf("console.%s: %s", e.Type, strings.Join(words, " ")))
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.messages = append(p.messages, "exception: "+text)
	case *log.EventEntryAdded:
		p.messages = append(p.messages, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		if e.Request.URL != p.url && !strings.HasPrefix(e.Request.URL, "data:") {
			p.requests = append(p.requests, e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		p.messages = append(p.messages, "dialog: "+e.Message)
		// Nothing else runs while it is open.
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	}
}

// Eval evaluates an expression; a promise is waited for. into is a pointer that takes its value as JSON, or nil.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	if into == nil {
		p.do(chromedp.Evaluate[chromedp.Void](`(async () => { await (`+expression+`) })()`, chromedp.EvalAwaitPromise))
		return
	}
	raw := run(p, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, json.Unmarshal(raw, into), "%s", raw)
}

// ScriptTime is how much processor time the thread of the page and its scripts has taken so far. Unlike a clock it does not count what other programs
// take of the machine.
func (p *Page) ScriptTime() time.Duration {
	p.t.Helper()
	for _, m := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "ThreadTime" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	require.Fail(p.t, "the browser does not measure its threads")
	return 0
}

// Focus gives the keyboard to an element.
func (p *Page) Focus(selector string) {
	p.t.Helper()
	p.do(chromedp.Focus(chromedp.CSS(selector)))
}

// Click clicks in the middle of an element, which is scrolled into view.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// Hover moves the mouse to a place in the window.
func (p *Page) Hover(x, y float64) {
	p.t.Helper()
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	p.Settle()
}

var keys = map[string]string{
	"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "ArrowUp": kb.ArrowUp, "ArrowDown": kb.ArrowDown,
	"Home": kb.Home, "End": kb.End, "PageUp": kb.PageUp, "PageDown": kb.PageDown, "Enter": kb.Enter, "Tab": kb.Tab, "Escape": kb.Escape,
}

// Press presses keys one after the other, by their names in JavaScript or as characters.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		key, ok := keys[name]
		if !ok {
			key = name
		}
		p.do(chromedp.KeyEvent(key))
	}
}

// Resize gives the window another size in CSS pixels and waits until it is drawn.
func (p *Page) Resize(width, height int) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(int64(width), int64(height)))
	p.Settle()
}

// Dark asks the page for its dark or its light colours.
func (p *Page) Dark(on bool) {
	p.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	p.Settle()
}

// Print shows the page as it is printed, or as on a screen again. The width of paper is that of the window.
func (p *Page) Print(on bool) {
	p.t.Helper()
	media := ""
	if on {
		media = "print"
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media})
	p.Settle()
}

// Settle waits until what was changed is drawn: two frames.
func (p *Page) Settle() {
	p.t.Helper()
	p.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
}

// Messages returns what the console, exceptions and the content-security policy had to say so far.
func (p *Page) Messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.messages...)
}

// Quiet fails if the page wrote to the console, threw, asked, was refused something by its policy, or asked for anything
// beside itself.
func (p *Page) Quiet() {
	p.t.Helper()
	p.Settle()
	require.Empty(p.t, p.Messages(), "messages of %s", p.url)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.requests, "requests of %s", p.url)
}

//go:embed legible.js
var legible string

// Legible fails if text is cut, sticks out of the window or of its drawing, or lies on other text, a drawing or a control.
func (p *Page) Legible() {
	p.t.Helper()
	p.Settle()
	var faults []string
	p.Eval(legible, &faults)
	require.Empty(p.t, faults, "%s", p.url)
}

// Screenshot writes the whole page as a PNG file to a folder named by SHATTER_PICTURES; without that, nothing.
func (p *Page) Screenshot(name string) { p.picture(name, "") }

// ScreenshotOf is Screenshot for the first element that a selector finds.
func (p *Page) ScreenshotOf(selector, name string) { p.picture(name, selector) }

func (p *Page) picture(name, selector string) {
	p.t.Helper()
	dir := os.Getenv("SHATTER_PICTURES")
	if dir == "" {
		return
	}
	var png []byte
	if selector == "" {
		png = run(p, chromedp.FullScreenshot(100))
	} else {
		png = run(p, chromedp.Screenshot(chromedp.CSS(selector)))
	}
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name), png, 0o644))
}
