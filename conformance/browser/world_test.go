// Tests of the dashboard of the command in Chromium.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long something may take that the page is to show. On an idle machine it takes a second or two.
const patience = 60 * time.Second

var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the command, and runs the tests if there is a browser.
func run(m *testing.M) int {
	if browserPath() == "" {
		fmt.Println("skipped: this needs chromium or google-chrome: apt-get install chromium")
		return 0
	}
	dir, err := os.MkdirTemp("", "changefeed-browser-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "changefeed")
	build := exec.Command("go", "build", "-o", binary, "./cmd/changefeed")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	if err := build.Run(); err != nil {
		fmt.Println("build the command:", err)
		return 1
	}
	return m.Run()
}

// browserPath is the path of a browser; empty if there is none.
func browserPath() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// world is a server with a container, and processors that read it.
type world struct {
	t      *testing.T
	server *process
	url    string // of the server
	ui     string // of its dashboard
}

// newWorld serves a container shop/orders with some ranges.
func newWorld(t *testing.T, ranges int) *world {
	t.Helper()
	t.Parallel() // a test waits for its processes and its browser most of the time
	return worldOf(t, ranges)
}

// worldOf is newWorld with more flags of the server.
func worldOf(t *testing.T, ranges int, flags ...string) *world {
	t.Helper()
	server := start(t, append([]string{
		"serve", "--http", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "-o", "json",
	}, flags...)...)
	w := &world{t: t, server: server, ui: server.dashboard(t)}
	w.url = strings.TrimSuffix(server.member(t, "endpoint"), "/")
	w.command("create", w.url+"/shop/orders", "--pk", "/city", "--ranges", fmt.Sprint(ranges))
	return w
}

// command runs a command of the binary to its end.
func (w *world) command(args ...string) {
	w.t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("changefeed %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// write writes documents.
func (w *world) write(documents ...string) {
	w.t.Helper()
	load := exec.Command(binary, "import", "-", w.url+"/shop/orders")
	load.Stdin = strings.NewReader(strings.Join(documents, "\n"))
	if out, err := load.CombinedOutput(); err != nil {
		w.t.Fatalf("import: %v: %s", err, out)
	}
}

// instance starts an instance of the unit mailer with a dashboard. Its handler is a shell script.
func (w *world) instance(name, script string, flags ...string) *process {
	w.t.Helper()
	args := []string{
		"run", "--source", w.url + "/shop/orders", "--name", "mailer", "--instance", name, "--create-leases",
		"--acquire", "1s", "--renew", "1s", "--expiration", "6s", "--poll", "200ms", "--drain", "2s", "--grace", "1s",
		"--ui", "127.0.0.1:0",
	}
	return start(w.t, append(append(args, flags...), "--", "sh", "-c", script)...)
}

// process is a process of the binary.
type process struct {
	*exec.Cmd
	out, err output
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a process that ends with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(binary, args...)}
	p.Stdout, p.Stderr = &p.out, &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("changefeed %s:\n%s%s", strings.Join(args, " "), p.out.String(), p.err.String())
		}
	})
	return p
}

var dashboardAt = regexp.MustCompile(`dashboard at (http://\S+/)`)

// dashboard waits for the address of the dashboard.
func (p *process) dashboard(t *testing.T) (url string) {
	t.Helper()
	eventually(t, "the process says where its dashboard is", func() error {
		found := dashboardAt.FindStringSubmatch(p.err.String())
		if found == nil {
			return fmt.Errorf("standard error is %q", p.err.String())
		}
		url = found[1]
		return nil
	})
	return url
}

// member waits for the JSON that a process writes, and returns a member.
func (p *process) member(t *testing.T, name string) (value string) {
	t.Helper()
	eventually(t, "the process writes JSON with "+name, func() error {
		var all map[string]any
		if err := json.Unmarshal([]byte(p.out.String()), &all); err != nil {
			return fmt.Errorf("%w in %q", err, p.out.String())
		}
		value, _ = all[name].(string)
		return nil
	})
	return value
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond) // between two looks at another process
	}
}

// page opens a page in a browser of its own, of a size.
func page(t *testing.T, url string, width, height int64) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browserPath()), chromedp.NoSandbox,
		chromedp.WindowSize(int(width), int(height)))
	all, endAll := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(endAll)
	tab, endTab := chromedp.NewContext(all)
	t.Cleanup(endTab)
	if err := chromedp.Run(tab); err != nil { // the context of the first call is that of the browser
		t.Fatal(err)
	}
	do(t, tab, chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return tab
}

// do does something in a page.
func do(t *testing.T, tab context.Context, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// evaluate evaluates an expression in a page.
func evaluate[T any](t *testing.T, tab context.Context, expression string) (value T) {
	t.Helper()
	do(t, tab, chromedp.Evaluate(expression, &value))
	return value
}

// awaitPromise waits for the value of a promise.
func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// shows waits until a page shows a text in an element.
func shows(t *testing.T, tab context.Context, selector, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s shows %q", selector, want), func() error {
		text := evaluate[string](t, tab,
			fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.innerText).join('\\n')", selector))
		if !strings.Contains(text, want) {
			return fmt.Errorf("it shows %q", text)
		}
		return nil
	})
}

// get asks for something without a browser.
func get(t *testing.T, url string, header ...string) (status int, body string, of http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}
