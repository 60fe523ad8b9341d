package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/dashboard"
)

// served is a server with a dashboard, and a container shop/orders.
type served struct{ store, orders string }

// serveStore serves a store in memory until the end of the test.
func serveStore(t *testing.T, flags ...string) served {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, to := io.Pipe()
	errs, ended := begin(ctx, to, append([]string{
		"serve", "--http", "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "-o", "json",
	}, flags...)...)
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told web.Endpoints
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	_, at, _ := strings.Cut(errs.String(), "dashboard at ")
	at, _, _ = strings.Cut(at, `"`)
	s := served{at + "store/", strings.TrimSuffix(told.Endpoint, "/") + "/shop/orders"}
	command(t, "create", s.orders, "--pk", "/city", "--retention", "1h")
	return s
}

// send sends a request to the explorer.
func (s served) send(t *testing.T, method, what, body string, q url.Values) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.store+what+"?"+q.Encode(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

// copies are the texts of a view, by their languages.
func (s served) copies(t *testing.T, q url.Values) map[string]string {
	t.Helper()
	q.Set("container", "shop/orders")
	status, text := s.send(t, http.MethodGet, "copy", "", q)
	var answer struct {
		Copies []struct{ Language, Text string }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v: %s", status, err, text)
	}
	all := map[string]string{}
	for _, c := range answer.Copies {
		all[c.Language] = c.Text
	}
	return all
}

// shell runs a text as a person pastes it.
func shell(t *testing.T, text string) string {
	t.Helper()
	var errs bytes.Buffer
	c := exec.CommandContext(t.Context(), "sh", "-c", text)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, text, errs.String())
	}
	return string(out)
}

// oddViews are views with texts that a shell, a URL or a language could mistake.
func oddViews() map[string]url.Values {
	return map[string]url.Values{
		"query": {
			"view": {"query"}, "param": {`city=it's "$HOME" \ %41 é 😀`, "n=1", `list=["a'b",null,true]`},
			"sql": {"SELECT * FROM c WHERE c.city = @city AND c.n = @n AND IS_ARRAY(@list) -- 'a' \"b\"\n"},
		},
		"query of a key":   {"view": {"query"}, "sql": {"SELECT * FROM c"}, "key": {`it's "$HOME" \ %41 é 😀`}},
		"item":             {"view": {"item"}, "id": {"-it's 1"}, "key": {`it's "$HOME" \ %41 é 😀`}},
		"item of a number": {"view": {"item"}, "id": {"5"}, "key": {"[5]"}},
	}
}

// What the page offers to paste does the same as the page: the command and curl run, and find the same document.
func TestCopiedTextsRun(t *testing.T) {
	s := serveStore(t, "--ui-write", "--lenient")
	odd, err := json.Marshal(map[string]any{"id": "-it's 1", "city": `it's "$HOME" \ %41 é 😀`, "n": 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{string(odd), `{"id":"5","city":5,"n":2}`} {
		if status, text := s.send(t, http.MethodPost, "item", body,
			url.Values{"container": {"shop/orders"}}); status != 201 {
			t.Fatalf("%d: %s", status, text)
		}
	}
	for name, q := range oddViews() {
		want := `-it's 1`
		if q.Get("id") == "5" {
			want = `"5"`
		}
		all := s.copies(t, q)
		if got := shell(t, all["changefeed"]); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nprints %q, want %s", name, all["changefeed"], got, want)
		}
		got := shell(t, all["curl"])
		if want = strings.Trim(want, `"`); !strings.Contains(got, want) || strings.Contains(got, `"error"`) {
			t.Errorf("%s: %s\nprints %q, want %s", name, all["curl"], got, want)
		}
	}
}

// A feed that is pasted follows the same feed.
func TestCopiedFeedsRun(t *testing.T) {
	s := serveStore(t, "--ui-write")
	if status, text := s.send(t, http.MethodPost, "item", `{"id":"1","city":"c"}`,
		url.Values{"container": {"shop/orders"}}); status != 201 {
		t.Fatalf("%d: %s", status, text)
	}
	for name, q := range map[string]url.Values{
		"latest": {"view": {"feed"}, "from": {"beginning"}}, "all": {"view": {"feed"}, "mode": {"all"}},
	} {
		for _, language := range []string{"changefeed", "curl"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			c := exec.CommandContext(ctx, "sh", "-c", "exec "+s.copies(t, q)[language])
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			found := make(chan bool, 1)
			go func() {
				for lines := bufio.NewScanner(out); lines.Scan(); {
					if strings.Contains(lines.Text(), `"key"`) {
						found <- true
						return
					}
				}
				found <- false
			}()
			for isOver := false; !isOver; {
				if name == "all" { // it begins when the command has come that far
					s.put(t, `{"id":"2","city":"c"}`)
				}
				select {
				case ok := <-found:
					isOver = true
					if !ok {
						t.Errorf("%s by %s: no change", name, language)
					}
				case <-time.After(50 * time.Millisecond):
				}
			}
			cancel()
			_ = c.Wait() // it was killed
		}
	}
}

// put replaces a document, or creates it.
func (s served) put(t *testing.T, body string) {
	t.Helper()
	if status, text := s.send(t, http.MethodPost, "import", body,
		url.Values{"container": {"shop/orders"}}); status != 200 {
		t.Fatalf("%d: %s", status, text)
	}
}

// The programs that the page offers are programs of their languages.
func TestCopiedProgramsAreRead(t *testing.T) {
	s := serveStore(t)
	views := oddViews()
	maps.Copy(views, map[string]url.Values{
		"feed": {"view": {"feed"}, "from": {"beginning"}}, "feed of all": {"view": {"feed"}, "mode": {"all"}},
		"item of several": {"view": {"item"}, "id": {"1"}, "key": {`["a",true,null]`}},
	})
	dir := t.TempDir()
	for name, q := range views {
		all := s.copies(t, q)
		body := "package main\nfunc _() error {\n" + all["Go"] + "return nil\n}\n"
		if _, err := parser.ParseFile(token.NewFileSet(), "", body, 0); err != nil {
			t.Errorf("%s in Go: %v\n%s", name, err, all["Go"])
		}
		for _, tool := range []struct{ language, file, program, argument string }{
			{"JavaScript", "view.mjs", "node", "--check"}, {"Python", "view.py", "python3", "-m py_compile"},
		} {
			if _, err := exec.LookPath(tool.program); err != nil {
				t.Logf("%s is not read: there is no %s", tool.language, tool.program)
				continue
			}
			file := filepath.Join(dir, tool.file)
			if err := os.WriteFile(file, []byte(all[tool.language]), 0o600); err != nil {
				t.Fatal(err)
			}
			shell(t, fmt.Sprintf("%s %s %s", tool.program, tool.argument, file))
		}
		if strings.Count(all["C#"], "(") != strings.Count(all["C#"], ")") || !strings.Contains(all["C#"],
			`GetContainer("shop", "orders")`) {
			t.Errorf("%s in C#: %s", name, all["C#"])
		}
	}
}

// Without --ui-write and without a key the explorer only reads.
func TestTheExplorerOnlyReadsUnlessItMayWrite(t *testing.T) {
	s := serveStore(t)
	q := url.Values{"container": {"shop/orders"}, "confirm": {"shop/orders"}, "id": {"1"}, "key": {"c"}}
	for _, r := range []struct{ method, what string }{
		{"POST", "item"},
		{"PUT", "item"},
		{"DELETE", "item"},
		{"POST", "import"},
		{"POST", "split"},
		{
			"POST",
			"merge",
		},
		{"POST", "containers"},
		{"DELETE", "containers"},
	} {
		if status, text := s.send(t, r.method, r.what, `{"id":"1","city":"c"}`,
			q); status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d %s", r.method, r.what, status, text)
		}
	}
	if status, text := s.send(t, http.MethodGet, "containers", "", nil); status != 200 || !strings.Contains(text,
		`"documents":0`) {
		t.Errorf("%d: %s", status, text)
	}
}

// The instance of a unit shows the store or account that it reads, whichever it is.
func TestAnInstanceShowsWhatItReads(t *testing.T) {
	s := serveStore(t, "--ui-write")
	s.put(t, `{"id":"1","city":"c"}`)
	dir := t.TempDir()
	command(t, "create", "--db", dir, "--container", "orders", "--pk", "/id")
	for source, want := range map[string]string{
		s.orders:                      "shop/orders",
		"docstore:" + dir + "#orders": "default/orders",
	} {
		ctx, stop := context.WithCancel(t.Context())
		errs, ended := begin(ctx, io.Discard, "run", "--source", source, "--name", "mailer", "--create-leases",
			"--ui", "127.0.0.1:0", "--", "cat")
		at := ""
		for at == "" {
			_, text, _ := strings.Cut(errs.String(), "dashboard at ")
			at, _, _ = strings.Cut(text, "\n")
			select {
			case err := <-ended:
				t.Fatalf("%v: %s", err, errs.String())
			case <-time.After(10 * time.Millisecond):
			}
		}
		asked(t, at+"store/container?container="+url.QueryEscape(want), func(code int,
			c struct{ Name string },
		) bool {
			return code == http.StatusOK && c.Name == want
		})
		// an instance that is stopped while it opens its leases ends with an error
		asked(t, at+"readyz", func(code int, h dashboard.Health) bool {
			return code == http.StatusOK && len(h.Units) == 1
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
