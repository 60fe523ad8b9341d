package cosmosrest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The replay sends each recorded request to this server, in the state that the recording had, and compares the reply
// with the recorded reply: status, sub-status, names of headers, values of headers where they can be compared, and
// the body. The list of accepted differences is in replayrules_test.go.

// exchange is a recorded request with its reply. Fields after ResponseBody are those of the transcription of 2026,
// which has no whole replies.
type exchange struct {
	Source, Commit, File, Group, Recorded string
	Order                                 int
	Method, Path                          string
	RequestHeaders                        map[string]string
	RequestBody                           string
	Status                                int
	ResponseHeaders                       map[string]string
	ResponseBody                          string

	XMsVersion      string
	SubStatus       int
	Code, Error     string
	Item, Documents string
	IDs, Members    []string
	OperationStatus []int
	Note            string
	Plan            json.RawMessage
	QueryRanges     json.RawMessage
	Pages           json.RawMessage
}

// name is how lists of differences name the exchange.
func (e *exchange) name() string {
	kind := e.Group
	if e.XMsVersion != "" {
		kind = "hosted"
	}
	return fmt.Sprintf("%s %s %s %s", kind, e.Recorded, e.Method, e.Path)
}

// isHosted reports whether the exchange is of the transcription of 2026.
func (e *exchange) isHosted() bool { return e.Group == "" }

// readExchanges reads a file of recordings.
func readExchanges(t *testing.T, file string) []*exchange {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []*exchange
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := &exchange{}
		if err := json.Unmarshal(lines.Bytes(), e); err != nil {
			t.Fatalf("%s: line %d: %v", file, len(all)+1, err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// scenarios divides exchanges into those that follow each other at the same account.
func scenarios(all []*exchange) [][]*exchange {
	var out [][]*exchange
	at := map[string]int{}
	for i, e := range all {
		key := e.Source + e.Commit + e.Group
		if e.Group == "rest-docs" || e.Group == "readme" {
			key = strconv.Itoa(i) // pages of a reference, each for itself
		}
		if e.Group == "azure-cli" {
			key += e.File
		}
		n, ok := at[key]
		if !ok {
			n = len(out)
			at[key] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], e)
	}
	for _, s := range out {
		slices.SortStableFunc(s, func(a, b *exchange) int { return a.Order - b.Order })
	}
	return out
}

// replayer is a server with the state of a scenario, and the values that differ from the recorded ones.
type replayer struct {
	*world
	t        *testing.T
	scenario []*exchange
	ours     map[string]string // by recorded value: resource ids, ETags and continuations
}

func newReplayer(t *testing.T, scenario []*exchange) *replayer {
	return &replayer{world: newWorld(t, Options{}), t: t, scenario: scenario, ours: map[string]string{}}
}

// translate replaces recorded values by ours.
func (r *replayer) translate(text string) string {
	longest := slices.SortedFunc(maps.Keys(r.ours), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, recorded := range longest {
		pairs = append(pairs, recorded, r.ours[recorded])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// play sends a recorded request and returns how the reply differs.
func (r *replayer) play(e *exchange) []string {
	if e.Status == http.StatusTooManyRequests {
		return r.compare(e, r.playThrottled(e))
	}
	r.arrange(e)
	headers := map[string]string{}
	for name, value := range e.RequestHeaders {
		headers[name] = r.translate(value)
	}
	if e.XMsVersion != "" {
		headers["x-ms-version"] = e.XMsVersion
	}
	if e.Note == "no authorization header" {
		headers["Authorization"] = ""
	}
	if e.Pages != nil {
		return r.comparePages(e)
	}
	body, more := e.spelled()
	maps.Copy(headers, more)
	a := r.do(r.t, e.Method, r.translate(e.Path), headers, r.translate(body))
	d := r.compare(e, a)
	r.learn(e, a)
	return d
}

// learn remembers the values of a reply that later requests repeat.
func (r *replayer) learn(e *exchange, a answer) {
	for _, name := range []string{"etag", "x-ms-continuation", "x-ms-content-path"} {
		if v := e.ResponseHeaders[name]; v != "" && a.header.Get(name) != "" {
			r.ours[v] = a.header.Get(name)
			r.ours[strings.Trim(v, `"`)] = strings.Trim(a.header.Get(name), `"`)
		}
	}
	if e.isHosted() && a.header.Get("etag") != "" {
		r.ours["ETAG"] = a.header.Get("etag")
	}
	var recorded, got any
	if json.Unmarshal([]byte(e.ResponseBody), &recorded) == nil && json.Unmarshal(a.body, &got) == nil {
		r.learnValues(recorded, got)
	}
}

// learnValues is [replayer.learn] for the values of a body.
func (r *replayer) learnValues(recorded, got any) {
	switch was := recorded.(type) {
	case map[string]any:
		is, _ := got.(map[string]any)
		for name, v := range was {
			text, isText := v.(string)
			own, _ := is[name].(string)
			volatile := name == "_rid" || name == "_etag" || name == "offerResourceId" ||
				name == "id" && is["offerType"] != nil
			if isText && own != "" && text != "" && volatile {
				r.ours[strings.Trim(text, `"`)] = strings.Trim(own, `"`)
			}
			r.learnValues(v, is[name])
		}
	case []any:
		is, _ := got.([]any)
		for i := range min(len(was), len(is)) {
			r.learnValues(was[i], is[i])
		}
	}
}

// compare returns the differences between the recorded reply and ours.
func (r *replayer) compare(e *exchange, a answer) []string {
	if a.status != e.Status {
		return []string{fmt.Sprintf("status %d instead of %d: %.300s", a.status, e.Status, a.body)}
	}
	var d []string
	note := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	sub := e.ResponseHeaders["x-ms-substatus"]
	if e.SubStatus != 0 {
		sub = strconv.Itoa(e.SubStatus)
	}
	if got := a.header.Get("x-ms-substatus"); got != sub {
		note("sub-status %q instead of %q", got, sub)
	}
	if e.hasHeaders() {
		d = append(d, r.compareHeaders(e, a)...)
	}
	if e.ResponseBody != "" && e.Status < 400 {
		var recorded, got any
		text := e.ResponseBody
		if strings.Contains(e.Path, "/permissions") { // a resource may be named by resource ids
			text = r.translate(text)
		}
		if err := decodeNumbers([]byte(text), &recorded); err != nil {
			note("recorded body is no JSON")
		} else if err := decodeNumbers(a.body, &got); err != nil {
			note("our body is no JSON: %.100s", a.body)
		} else {
			d = append(d, compareJSON("body", recorded, got)...)
		}
	} else if e.ResponseBody != "" {
		d = append(d, compareError(e.ResponseBody, a)...)
	}
	if e.isHosted() {
		d = append(d, r.compareHosted(e, a)...)
	}
	return d
}

// compareHeaders compares the names of a reply's headers, and those values that do not depend on the account. The
// reasons for other names are in the table of reply headers.
func (r *replayer) compareHeaders(e *exchange, a answer) (d []string) {
	excused := map[string]bool{}
	for _, row := range wire.ReplyHeaders() {
		excused[row.Name] = row.Why != ""
	}
	for name := range e.ResponseHeaders {
		if a.header.Get(name) == "" && !excused[name] {
			d = append(d, "no header "+name)
		}
	}
	for name := range a.header {
		if name = strings.ToLower(name); e.ResponseHeaders[name] == "" && !excused[name] {
			d = append(d, fmt.Sprintf("header %s: %s", name, a.header.Get(name)))
		}
	}
	for name, form := range headerForms {
		was, is := e.ResponseHeaders[name], a.header.Get(name)
		if name == "x-ms-content-path" && r.ours[was] == "" {
			continue // of a resource that the scenario did not create
		}
		if was != "" && is != "" && form(r, was) != form(r, is) {
			d = append(d, fmt.Sprintf("%s is %s instead of %s", name, is, was))
		}
	}
	slices.Sort(d)
	return d
}

var digits = regexp.MustCompile(`\d+`)

// headerForms are what must be equal in the values of headers.
var headerForms = map[string]func(r *replayer, value string) string{
	"content-type":          func(_ *replayer, value string) string { return value },
	"x-ms-item-count":       func(_ *replayer, value string) string { return value },
	"x-ms-share-throughput": func(_ *replayer, value string) string { return value },
	"x-ms-alt-content-path": func(_ *replayer, value string) string { return value },
	"x-ms-content-path":     func(r *replayer, value string) string { return cmp.Or(r.ours[value], value) },
	"x-ms-session-token":    func(_ *replayer, value string) string { return digits.ReplaceAllString(value, "0") },
	"lsn":                   func(_ *replayer, value string) string { return digits.ReplaceAllString(value, "0") },
	"content-location": func(_ *replayer, value string) string {
		_, path, _ := strings.Cut(value, "//")
		_, path, _ = strings.Cut(path, "/")
		return path
	},
	"etag": func(_ *replayer, value string) string {
		return regexp.MustCompile(`[0-9a-f]`).ReplaceAllString(value, "0")
	},
	"x-ms-resource-quota": func(_ *replayer, value string) string { // a list has the limits of more kinds
		name, _, _ := strings.Cut(value, "=")
		return name
	},
}

// decodeNumbers decodes JSON and keeps numbers as text.
func decodeNumbers(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// shapes are the forms of values that differ from account to account.
var shapes = map[string]*regexp.Regexp{
	"_rid": regexp.MustCompile(`^[-+A-Za-z0-9=]*$`), "_self": regexp.MustCompile(`^([a-z]+/[-+A-Za-z0-9=]*/)*$`),
	"_etag":  regexp.MustCompile(`^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$`),
	"_token": regexp.MustCompile(`^type=resource&ver=1&sig=`),
	"_ts":    regexp.MustCompile(`^\d{9,10}$`), "lsn": regexp.MustCompile(`^\d+$`), "_lsn": regexp.MustCompile(`^\d+$`),
}

// compareJSON returns where a body differs from the recorded body.
func compareJSON(at string, recorded, got any) []string {
	switch was := recorded.(type) {
	case map[string]any:
		is, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v instead of an object", at, got)}
		}
		var d []string
		for _, name := range slices.Sorted(maps.Keys(was)) {
			v, ok := is[name]
			switch form := shapes[name]; {
			case !ok:
				d = append(d, fmt.Sprintf("%s has no %s", at, name))
			case form != nil:
				if text := fmt.Sprint(v); !form.MatchString(text) {
					d = append(d, fmt.Sprintf("%s.%s is %s", at, name, text))
				}
			default:
				d = append(d, compareJSON(at+"."+name, was[name], v)...)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(is)) {
			if _, ok := was[name]; !ok {
				d = append(d, fmt.Sprintf("%s has %s: %v", at, name, is[name]))
			}
		}
		return d
	case []any:
		is, ok := got.([]any)
		if !ok || len(is) != len(was) {
			return []string{fmt.Sprintf("%s is %v instead of %v", at, got, recorded)}
		}
		var d []string
		for i := range was {
			d = append(d, compareJSON(fmt.Sprintf("%s[%d]", at, i), was[i], is[i])...)
		}
		return d
	}
	if fmt.Sprint(recorded) != fmt.Sprint(got) {
		return []string{fmt.Sprintf("%s is %v instead of %v", at, got, recorded)}
	}
	return nil
}

// compareError compares the code of an error and the beginning of its message. Some recordings are cut off.
func compareError(recorded string, a answer) []string {
	var was, is struct{ Code, Message string }
	if json.Unmarshal([]byte(recorded), &was) != nil {
		cut, _, _ := strings.Cut(recorded, `\"...`)
		cut, _, _ = strings.Cut(cut, `... (cut off`)
		return comparePrefix(cut, string(a.body))
	}
	_ = json.Unmarshal(a.body, &is)
	return append(comparePrefix(was.Code, is.Code), comparePrefix(sentenceOf(was.Message), is.Message)...)
}

// sentenceOf returns a recorded message up to the end of the service's sentence.
func sentenceOf(message string) string {
	message, _, _ = strings.Cut(message, `"]}`)
	message, _, _ = strings.Cut(message, "\r\n")
	return strings.ReplaceAll(message, `\/`, `/`)
}

// comparePrefix compares the beginning of a text.
func comparePrefix(want, got string) []string {
	if strings.HasPrefix(strings.ReplaceAll(got, `\/`, `/`), strings.ReplaceAll(want, `\/`, `/`)) {
		return nil
	}
	return []string{fmt.Sprintf("text %.200q instead of %.200q", got, want)}
}

// comparePages compares the number of rows in each page, for several page sizes.
func (r *replayer) comparePages(e *exchange) (d []string) {
	var sizes map[string]json.RawMessage
	if err := json.Unmarshal(e.Pages, &sizes); err != nil {
		r.t.Fatal(err)
	}
	for size, recorded := range sizes {
		h := across("x-ms-max-item-count", size)
		if size == "none" {
			h["x-ms-max-item-count"] = ""
		}
		var rows []int
		for next := "first"; next != ""; {
			a := r.do(r.t, e.Method, e.Path, h, e.RequestBody).want(r.t, http.StatusOK)
			if n := len(a.list(r.t, "Documents")); n > 0 { // an empty last page follows a full one
				rows = append(rows, n)
			}
			next = a.header.Get("x-ms-continuation")
			h["x-ms-continuation"] = next
		}
		want := strings.Trim(strings.TrimSuffix(string(recorded), ` in the first"`), `[]"`)
		if got := strings.Trim(strings.ReplaceAll(fmt.Sprint(rows), " ", ","), "[]"); !strings.HasPrefix(got, want) {
			d = append(d, fmt.Sprintf("pages of %s have %s rows instead of %s", size, got, want))
		}
	}
	return d
}

// compareHosted compares what the transcription of 2026 has of a reply.
func (r *replayer) compareHosted(e *exchange, a answer) []string {
	var d []string
	if e.Error != "" {
		text := strings.TrimPrefix(e.Error, strconv.Itoa(e.SubStatus)+" ")
		if m := regexp.MustCompile(`^(SC\d+) (\d+) (\d+) (.*)$`).FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf(`Message: {"errors":[{"severity":"Error","location":{"start":%s,"end":%s},"code":"%s","message":"%s"`,
				m[2], m[3], m[1], m[4])
		}
		if got := messageOf(a.body); !strings.HasPrefix(got, text) {
			d = append(d, fmt.Sprintf("text %.300q instead of %q", got, text))
		}
	}
	if e.Code != "" {
		d = append(d, comparePrefix(`{"code":"`+e.Code+`"`, string(a.body))...)
	}
	if e.Item != "" && !strings.HasPrefix(string(a.body), strings.TrimSuffix(e.Item, "}")+`,"_rid":"`) {
		d = append(d, fmt.Sprintf("item %s instead of %s", a.body, e.Item))
	}
	if e.Documents != "" && !strings.Contains(string(a.body), `"Documents":`+e.Documents+`,"_count"`) {
		d = append(d, fmt.Sprintf("rows %s instead of %s", a.body, e.Documents))
	}
	if e.IDs != nil {
		if ids := column(r.t, a.list(r.t, "Documents"), "id"); ids != strings.Join(e.IDs, " ") {
			d = append(d, fmt.Sprintf("ids %s instead of %s", ids, e.IDs))
		}
	}
	if e.Members != nil {
		if got := membersOf(a.body); !slices.Equal(got, e.Members) {
			d = append(d, fmt.Sprintf("members %s instead of %s", got, e.Members))
		}
	}
	if e.OperationStatus != nil {
		all, _ := a.results(r.t, a.status)
		var got []int
		for _, one := range all {
			got = append(got, one.StatusCode)
		}
		if !slices.Equal(got, e.OperationStatus) {
			d = append(d, fmt.Sprintf("statuses %d instead of %d", got, e.OperationStatus))
		}
	}
	return d
}

// messageOf returns the message of an error, without the frame that most have.
func messageOf(body []byte) string {
	var is struct{ Message string }
	_ = json.Unmarshal(body, &is)
	var frame struct{ Errors []json.RawMessage }
	text, _, _ := strings.Cut(strings.TrimPrefix(is.Message, "Message: "), "\r\nActivityId")
	var own string
	if json.Unmarshal([]byte(text), &frame) != nil || len(frame.Errors) != 1 ||
		json.Unmarshal(frame.Errors[0], &own) != nil {
		return is.Message
	}
	return own
}

// membersOf returns the names of an object's members, in order.
func membersOf(object []byte) (names []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	for depth, isName := 0, false; ; {
		token, err := d.Token()
		if err != nil {
			return names
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			isName = depth == 1
		default:
			if depth == 1 && isName {
				names = append(names, fmt.Sprint(v))
			}
			isName = depth == 1 && !isName
		}
	}
}

// replayed are the files of recordings.
var replayed = []string{"exchanges", "hosted2026"}

// TestReplay replays all recordings. `go test ./cosmosrest -run Replay -v` prints the counts that docs/server.md has.
func TestReplay(t *testing.T) {
	used := make([]bool, len(replayRules))
	count := map[string]int{}
	for _, file := range replayed {
		for _, scenario := range scenarios(readExchanges(t, "testdata/recorded/"+file+".ndjson")) {
			r := newReplayer(t, scenario)
			for _, e := range scenario {
				excused := 0
				differences := r.play(e)
				for _, difference := range differences {
					if i := ruleFor(e, difference); i >= 0 {
						used[i], excused = true, excused+1
						count["reason: "+replayRules[i].why]++
					} else {
						t.Errorf("%s: %s", e.name(), difference)
					}
				}
				switch {
				case len(differences) == 0:
					count[file+": equal"]++
				case excused == len(differences):
					count[file+": different, for listed reasons"]++
				}
			}
		}
	}
	for i, rule := range replayRules {
		if !used[i] {
			t.Errorf("no exchange needs the rule %q %q (%s): remove the rule", rule.exchange, rule.difference, rule.why)
		}
	}
	page, err := os.ReadFile("../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range replayed {
		equal, different := count[file+": equal"], count[file+": different, for listed reasons"]
		row := fmt.Sprintf("| %d | %d | %d |\n", equal+different, equal, different)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/server.md has not the counts of %s: %s", file, row)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%4d %s", count[what], what)
	}
}
