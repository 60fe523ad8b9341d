package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A command line is split as .NET does.
func TestACommandLineIsSplitAsByDotNet(t *testing.T) {
	for line, want := range map[string][]string{
		"":                       nil,
		" a\t b  ":               {"a", "b"},
		`"a b" c`:                {"a b", "c"},
		`a"b c"d ""`:             {"ab cd", ""},
		`"a""b" "" ""`:           {`a"b`, "", ""},
		`\a \\b c\ d\\`:          {`\a`, `\\b`, `c\`, `d\\`},
		`\"a \\"b c" \\\"d "e\"`: {`"a`, `\b c`, `\"d`, `e"`},
		`'a b'`:                  {"'a", "b'"},
	} {
		if got := splitArguments(line); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// Names between percent signs are replaced, and what is unknown is removed.
func TestVariablesAreReplaced(t *testing.T) {
	lookup := variables([]string{"A=1", "A=one", "B=%A%", "E="})
	for text, want := range map[string]string{
		"-%A%-%A%": "-one-one", "%NONE%x": "x", "50%": "50%", "%A": "%A", "100%%A%": "100%one",
		"%a%": "", "%E%.": ".", "%B%": "", "%%": "%%",
	} {
		if got := expandVariables(text, lookup); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// The command of a program has the variables of Azure, a file of the app if there is one, and the words as they are.
func TestTheCommandOfAProgram(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "handler")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	app := &App{Dir: dir, Program: Program{
		Executable: "%NAME%", Arguments: []string{"--port %FUNCTIONS_CUSTOMHANDLER_PORT%", `"a`, `b"`},
		WorkerPath: "my worker.js", WorkerArguments: []string{"-v"}, WorkingDirectory: "below",
	}}
	cmd := app.newCommand([]string{"NAME=handler"}, "127.0.0.1:4711", "the-id")
	if want := []string{file, "--port", "4711", "a b", "my worker.js", "-v"}; !slices.Equal(cmd.Args, want) {
		t.Errorf("got %q, want %q", cmd.Args, want)
	}
	want := []string{
		"NAME=handler", "FUNCTIONS_CUSTOMHANDLER_PORT=4711", "FUNCTIONS_HTTPWORKER_PORT=4711",
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID=the-id", "FUNCTIONS_HTTPWORKER_ID=the-id", "FUNCTIONS_APP_ROOT_PATH=" + dir,
	}
	if !slices.Equal(cmd.Env, want) || cmd.Dir != filepath.Join(dir, "below") {
		t.Errorf("got %q in %s", cmd.Env, cmd.Dir)
	}
	app.Program = Program{Executable: "no-such-program"}
	if _, err := NewHost(app, HostOptions{}); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a missing program: %v", err)
	}
	app.Program = Program{}
	if _, err := NewHost(app, HostOptions{}); err == nil || !strings.Contains(err.Error(), "defaultExecutablePath") {
		t.Errorf("no program: %v", err)
	}
}

// written notes the documents that are written, and fails when its text comes.
type written struct {
	all  []string
	fail string
}

// Upsert implements Upserter.
func (w *written) Upsert(_ context.Context, document json.RawMessage) error {
	if string(document) == w.fail {
		return errors.New("too large")
	}
	w.all = append(w.all, string(document))
	return nil
}

// The values of an answer reach the output bindings by the rules of Azure.
func TestOutputsAreWritten(t *testing.T) {
	copies := Output{Name: "copies"}
	for _, tt := range []struct {
		name    string
		outputs []Output
		answer  string
		want    string // the documents, or the beginning of the error
	}{
		{"an object", []Output{copies}, `{"Outputs":{"copies":{"id":"1"}}}`, `[{"id":"1"}]`},
		{
			"an array",
			[]Output{copies},
			`{"Outputs":{"copies":[{"id":"1"},"{\"id\":\"2\"}"]}}`,
			`[{"id":"1"} {"id":"2"}]`,
		},
		{"a text", []Output{copies}, `{"Outputs":{"copies":" [{\"id\":\"1\"}]"}}`, `[{"id":"1"}]`},
		{"base64", []Output{copies}, `{"Outputs":{"copies":"eyJpZCI6IjEifQ=="}}`, `[{"id":"1"}]`},
		{
			"a text that happens to be base64",
			[]Output{copies},
			`{"Outputs":{"copies":"done"}}`,
			"function Seen: output copies: the text is no JSON",
		},
		{
			"base64 of a binary output",
			[]Output{{Name: "copies", IsBinary: true}},
			`{"Outputs":{"copies":"eyJpZCI6IjEifQ=="}}`, "function Seen: output copies: the text is no JSON",
		},
		{"nothing", []Output{copies}, `{"Outputs":{"copies":null}}`, `[]`},
		{"another name", []Output{copies}, `{"Outputs":{"Copies":{"id":"1"},"more":{"id":"2"}}}`, `[]`},
		{"a number", []Output{copies}, `{"Outputs":{"copies":7}}`, "function Seen: output copies: want an object"},
		{
			"a number in an array",
			[]Output{copies},
			`{"Outputs":{"copies":[{"id":"1"},7]}}`,
			"function Seen: output copies: element 1: want an object",
		},
		{
			"the value that is returned",
			[]Output{copies},
			`{"Outputs":{"copies":{"id":"1"}},"ReturnValue":{"copies":{"id":"2"},"more":1}}`, `[{"id":"2"}]`,
		},
		{"a text that is returned", []Output{copies}, `{"ReturnValue":"{\"copies\":{}}"}`, `[]`},
		{
			"$return",
			[]Output{copies, {Name: "$return"}},
			`{"Outputs":{"copies":{"id":"1"}},"ReturnValue":{"copies":{"id":"2"}}}`, `[{"id":"1"} {"copies":{"id":"2"}}]`,
		},
		{
			"a failed write",
			[]Output{copies},
			`{"Outputs":{"copies":[{"id":"1"},{"id":"bad"},{"id":"3"}]}}`,
			"function Seen: output copies: write document 2 of 3: too large",
		},
		{
			"no container",
			[]Output{{Name: "lost"}},
			`{"Outputs":{"lost":{}}}`,
			"function Seen: output lost has no container",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, _ := rawProgram(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", len(tt.answer), tt.answer))
			to := &written{fail: `{"id":"bad"}`}
			h := hostAt(t, address, HostOptions{}).Handler(&Function{Name: "Seen", Outputs: tt.outputs},
				map[string]Upserter{"copies": to, "$return": to})
			got := textOfError(h.Handle(t.Context(), &feed.Batch{Attempt: 1}))
			if got == "" {
				got = fmt.Sprint(to.all)
			}
			if got != tt.want && (tt.want[0] == '[' || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// An output that function.json does not have is ignored, as on Azure, and may be misspelled. The log says so once.
func TestAStrangeOutputIsNamed(t *testing.T) {
	const answer = `{"Outputs":{"copys":[{}],"copies":[],"more":1}}`
	address, requests := rawProgram(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(answer), answer))
	var log bytes.Buffer
	f := &Function{Name: "Seen", Outputs: []Output{{Name: "copies"}, {Name: "others"}}}
	h := hostAt(t, address, HostOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}).
		Handler(f, map[string]Upserter{"copies": &written{}})
	for range 2 {
		if err := h.Handle(t.Context(), &feed.Batch{Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		<-requests
	}
	const want = `msg="the answer has an output that function.json does not have, and it is ignored, as on Azure" ` +
		`function=Seen outputs="[copys more]" want="[copies others]"`
	if n := strings.Count(log.String(), want); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("got  %s\nwant once %s", &log, want)
	}
}

// The delays are those of Azure.
func TestTheDelaysOfARetryPolicy(t *testing.T) {
	fixed := &Retry{Max: 3, Fixed: 5 * time.Second}
	if a, b := fixed.delay(1), fixed.delay(9); a != 5*time.Second || b != a {
		t.Errorf("fixed delays are %v and %v", a, b)
	}
	growing := &Retry{Max: 5, IsExponential: true, Least: time.Second, Most: 8 * time.Second}
	for range 1000 {
		last := time.Duration(0)
		for i, bounds := range [][2]float64{{1, 1}, {1.8, 2.2}, {2.6, 3.4}, {4.2, 5.8}, {7.4, 8}, {8, 8}, {8, 8}} {
			delay := growing.delay(i + 1)
			if s := delay.Seconds(); s < bounds[0] || s > bounds[1] {
				t.Fatalf("delay %d is %v, want %v s", i+1, delay, bounds)
			}
			last = delay
		}
		if last != growing.Most {
			t.Fatalf("the last delay is %v", last)
		}
	}
	if got := growing.delay(5000); got != growing.Most {
		t.Errorf("delay 5000 is %v", got)
	}
	atOnce := &Retry{Max: -1, IsExponential: true, Most: time.Minute}
	if a, b := atOnce.delay(2), atOnce.delay(5000); a != 0 || b != 0 {
		t.Errorf("from zero, the delays are %v and %v", a, b)
	}
}

// A failure has the delay of the policy until the policy is exhausted, which the log says once. Then the policy of the
// unit goes on. The program is told of the attempts, and of the error that this process knows.
func TestARetryPolicyEndsInTheOneOfTheUnit(t *testing.T) {
	var log strings.Builder
	address, requests := rawProgram(t, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops")
	f := &Function{Name: "Seen", Retry: &Retry{Max: 2, Fixed: time.Minute}}
	h := hostAt(t, address, HostOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}).Handler(f, nil)
	const known = `{"ClassName":"Microsoft.Azure.WebJobs.Host.FunctionInvocationException",` +
		`"Message":"Exception while executing function: Functions.Seen","Data":null,` +
		`"InnerException":{"ClassName":"System.Exception","Message":` +
		`"function Seen: answer 500 Internal Server Error: \"oops\"","Data":null,"InnerException":null,`
	for i, tt := range []struct {
		after     time.Duration
		exception string
	}{{time.Minute, "null,"}, {time.Minute, known}, {0, known}, {0, known}} {
		b := &feed.Batch{LeaseToken: "-FF", Attempt: i + 1, Changes: []feed.Change{{ID: "1", LSN: 4}}}
		err := h.Handle(t.Context(), b)
		f, _ := errors.AsType[*feed.Failure](err)
		if after := f != nil && f.After == time.Minute; err == nil || after != (tt.after > 0) || f != nil && f.Outage {
			t.Errorf("attempt %d: got %#v", i+1, err)
		}
		want := fmt.Sprintf(`,"RetryContext":{"RetryCount":%d,"MaxRetryCount":2,"Exception":%s`, i, tt.exception)
		if request := <-requests; !strings.Contains(request, want) ||
			!strings.Contains(request, `,"Instance":null,"State":{}}}}`) {
			t.Errorf("attempt %d: the request has no %s:\n%s", i+1, want, request)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != min(1, i/2) {
			t.Errorf("attempt %d: %d errors in the log:\n%s", i+1, n, &log)
		}
	}
	if !strings.Contains(log.String(), "function=Seen lease=-FF attempts=3 changes=1") {
		t.Errorf("the log has\n%s", &log)
	}
	// Another batch fails for the first time, as far as this process knows.
	_ = h.Handle(t.Context(), &feed.Batch{LeaseToken: "-FF", Attempt: 2, Changes: []feed.Change{{ID: "2", LSN: 5}}})
	if request := <-requests; !strings.Contains(request, `{"RetryCount":1,"MaxRetryCount":2,"Exception":null,`) {
		t.Errorf("the request of another batch has\n%s", request)
	}
}
