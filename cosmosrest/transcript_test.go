package cosmosrest

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/rogpeppe/go-internal/txtar"
)

var rewrite = flag.Bool("rewrite", false, "write what the server answers into the transcripts")

// A transcript is an archive whose files are requests with their answers, in order, on a
// new server, in virtual time that begins in the year 2000. Lines of a request begin
// with "> ", or with "# wait " and a duration; the rest is the answer. ETags, resource
// ids and continuations differ from run to run: they are written <etag1>, <rid1>,
// <continuation1>, and may be used so in later requests.

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcript/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("find transcripts: %d files, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playTranscript(t, f) })
		})
	}
}

func playTranscript(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{})
	n := &names{}
	for i, f := range archive.Files {
		request, want := cutTranscript(t, string(f.Data))
		got := n.hide(answerOf(t, w, n.reveal(request)))
		if *rewrite {
			archive.Files[i].Data = []byte(request + got)
			continue
		}
		if got != want {
			t.Errorf("%s: %s\nanswers\n%s\nwant\n%s", file, f.Name, got, want)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cutTranscript parts the request from the answer.
func cutTranscript(t *testing.T, text string) (request, answer string) {
	t.Helper()
	lines := strings.SplitAfter(text, "\n")
	n := slices.IndexFunc(lines, func(l string) bool {
		return !strings.HasPrefix(l, ">") && !strings.HasPrefix(l, "#")
	})
	if n < 1 {
		t.Fatalf("transcript has no request or no end of one:\n%s", text)
	}
	return strings.Join(lines[:n], ""), strings.Join(lines[n:], "")
}

// answerOf does what the lines of a request say.
func answerOf(t *testing.T, w *world, request string) string {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(request) {
		if pause, ok := strings.CutPrefix(line, "# wait "); ok {
			d, err := time.ParseDuration(strings.TrimSpace(pause))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d) // in virtual time
			continue
		}
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, ">"), " "))
	}
	q := parseRequest(text.String())
	return answerText(w.do(t, q.method, q.path, q.header, q.body))
}

// wireRequest is a request as a transcript has it: method and path, headers, an empty
// line and a body.
type wireRequest struct {
	method, path string
	header       map[string]string
	body         string
}

func parseRequest(text string) wireRequest {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	q := wireRequest{header: map[string]string{}, body: strings.TrimSuffix(body, "\n")}
	q.method, q.path, _ = strings.Cut(lines[0], " ")
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		q.header[name] = value
	}
	return q
}

// shownHeaders are those of an answer that a transcript has.
var shownHeaders = []string{
	"Content-Type", "Etag", "Lsn", wire.AnswerSubStatus, wire.AnswerCharge, wire.HeaderSession, wire.AnswerItemCount,
	wire.HeaderContinuation, wire.AnswerRetryAfter, wire.AnswerOfferPending, wire.AnswerMinThroughput,
}

func answerText(a answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", a.status, http.StatusText(a.status))
	for _, name := range shownHeaders {
		if v := a.header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(name), v)
		}
	}
	if len(a.body) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.ReplaceAll(string(a.body), a.header.Get(wire.HeaderActivity), "<activity>"))
	}
	return b.String()
}

// names stand for what differs from run to run.
type names struct {
	of    map[string]string // text to name
	count map[string]int
}

var (
	etagText  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	ridText   = regexp.MustCompile(`"_rid":"([^"]+)"`)
	tokenText = regexp.MustCompile(`"_token":"([^"]+)"`)
	moreText  = regexp.MustCompile(`(?m)^x-ms-continuation: (.+)$`)
)

// hide puts names for such texts.
func (n *names) hide(answer string) string {
	for _, m := range moreText.FindAllStringSubmatch(answer, -1) {
		n.name("continuation", m[1])
	}
	for _, m := range ridText.FindAllStringSubmatch(answer, -1) {
		n.name("rid", m[1])
	}
	for _, m := range tokenText.FindAllStringSubmatch(answer, -1) {
		n.name("token", m[1])
	}
	for _, text := range etagText.FindAllString(answer, -1) {
		n.name("etag", text)
	}
	for _, text := range n.longestFirst() {
		answer = strings.ReplaceAll(answer, text, n.of[text])
	}
	return answer
}

func (n *names) name(kind, text string) {
	if n.of == nil {
		n.of, n.count = map[string]string{}, map[string]int{}
	}
	if n.of[text] == "" {
		n.count[kind]++
		n.of[text] = fmt.Sprintf("<%s%d>", kind, n.count[kind])
	}
}

// longestFirst are the texts, so that none is replaced within another.
func (n *names) longestFirst() []string {
	var texts []string
	for text := range n.of {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	return texts
}

// reveal puts the texts for their names.
func (n *names) reveal(request string) string {
	for text, name := range n.of {
		request = strings.ReplaceAll(request, name, text)
	}
	return request
}
