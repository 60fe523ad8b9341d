package cosmosrest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The refusals in testdata/recorded/errors.ndjson, line by line. For each line a request gets a refusal of the same
// kind here, and status, sub-status, code and the first sentence are compared.

// refusal is a line of the file. SubStatus is nil if it was not recorded.
type refusal struct {
	Status        int
	SubStatus     *int
	Code, Message string
	Source        string
}

// refusalCase is what leads to the refusal of a line, and which differences to it are accepted.
type refusalCase struct {
	message string // the beginning of the line's message
	provoke func(t *testing.T, w *world) answer
	differs string // a part of each difference; empty if there is none
	why     string
}

// refusalCases are in the order of the file.
var refusalCases = []refusalCase{
	{"The provided cross partition query", func(t *testing.T, w *world) answer {
		return w.do(t, "POST", docs, across(), `{"query":"SELECT VALUE COUNT(1) FROM c"}`)
	}, "", ""},
	{"Cross partition query is required", func(t *testing.T, w *world) answer {
		return w.do(t, "POST", docs, across("x-ms-documentdb-query-enablecrosspartition", ""),
			`{"query":"SELECT * FROM c"}`)
	}, "", ""},
	{"Message: {\"Errors\":[\"The partition key supplied", func(t *testing.T, w *world) answer {
		return w.do(t, "POST", docs, nil, `{"id":"2","pk":"p"}`)
	}, "", ""},
	{"Message: {\"Errors\":[\"Resource Not Found. Learn more", missingRefusal, "", ""},
	{"Message: {\"Errors\":[\"Resource Not Found\"]", missingRefusal, "", ""},
	{"The read session is not available", staleRefusal, "", ""},
	{
		"Message: {\"Errors\":[\"The read\\/write session", staleRefusal,
		"The read session is not available", "it is the second sentence here",
	},
	{"Message: {\"Errors\":[\"Resource with specified id or name", func(t *testing.T, w *world) answer {
		return w.do(t, "POST", "/dbs", nil, `{"id":"db"}`)
	}, "id, name, or unique index", "the words of 2018 are the second sentence here"},
	{"Entity with the specified id already exists", func(t *testing.T, w *world) answer {
		return w.do(t, "POST", docs, under("p"), `{"id":"1","pk":"p"}`)
	}, "", ""},
	{"Operation cannot be performed", func(t *testing.T, w *world) answer {
		return w.do(t, "DELETE", docs+"/1", under("p", "If-Match", `"other"`), "")
	}, "", ""},
	{"Message: {\"Errors\":[\"One of the specified pre-condition", otherVersionRefusal, "", ""},
	{
		"[\"One of the specified pre-condition", otherVersionRefusal,
		"sub-status 0 instead of 1110", "only clients in direct mode get this sub-status",
	},
	{"[\"Request rate is large", func(t *testing.T, _ *world) answer {
		w, _ := newContainer(t, Options{Throughput: 10})
		for range 1000 {
			if a := w.do(t, "GET", docs, nil, ""); a.status != http.StatusOK {
				return a
			}
		}
		t.Fatal("the budget is not used up after 1,000 requests")
		return answer{}
	}, `code "TooManyRequests" instead of "429"`, "the code is the one of a hosted account of 2026"},
	{
		"PartitionKeyRange with id '0'", func(t *testing.T, w *world) answer {
			w.do(t, "POST", "/dbs/db/colls/c/partitions", nil, `{"operation":"split","id":"0"}`).want(t, http.StatusOK)
			return w.do(t, "GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", "0"), "")
		},
		"in collection 'c'", "the container is named here; the resolver of that client did not know it",
	},
	{
		"Message: {\"Errors\":[\"The requested resource is no longer", nil, "",
		"a replica has moved, and only clients in direct mode ask replicas",
	},
}

// missingRefusal asks for a container that does not exist.
func missingRefusal(t *testing.T, w *world) answer {
	return w.do(t, "GET", "/dbs/db/colls/none", nil, "")
}

// staleRefusal reads with a session that is ahead.
func staleRefusal(t *testing.T, w *world) answer {
	return w.do(t, "GET", docs+"/1", under("p", "x-ms-session-token", "0:-1#99"), "")
}

// otherVersionRefusal deletes a container of another version.
func otherVersionRefusal(t *testing.T, w *world) answer {
	return w.do(t, "DELETE", "/dbs/db/colls/c", map[string]string{"If-Match": `"other"`}, "")
}

func TestRefusalsAreThoseOfTheService(t *testing.T) {
	f, err := os.Open("testdata/recorded/errors.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	n, compared, equal := 0, 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		var was refusal
		if err := json.Unmarshal(lines.Bytes(), &was); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		if n >= len(refusalCases) || !strings.HasPrefix(was.Message, refusalCases[n].message) {
			t.Fatalf("line %d has no case: %.100s", n+1, was.Message)
		}
		c := &refusalCases[n]
		if c.provoke == nil {
			t.Logf("line %d is not compared: %s", n+1, c.why)
			continue
		}
		compared++
		w, _ := newContainer(t, Options{})
		w.do(t, "POST", docs, under("p"), `{"id":"1","pk":"p"}`).want(t, http.StatusCreated)
		differences := was.differences(c.provoke(t, w))
		if len(differences) == 0 {
			equal++
		}
		for _, d := range differences {
			if c.differs == "" || !strings.Contains(d, c.differs) {
				t.Errorf("line %d: %s", n+1, d)
			}
		}
		if c.differs != "" && len(differences) == 0 {
			t.Errorf("line %d does not differ: remove the reason %q", n+1, c.why)
		}
	}
	if n != len(refusalCases) {
		t.Errorf("%d cases for %d lines", len(refusalCases), n)
	}
	page, err := os.ReadFile("../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	counts := fmt.Sprintf("Of %d recorded refusals, %d are compared, and %d are equal", n, compared, equal)
	if !strings.Contains(strings.ReplaceAll(string(page), "\n", " "), counts) {
		t.Errorf("docs/server.md has not the counts: %s", counts)
	}
}

// differences compares a refusal with ours.
func (r *refusal) differences(a answer) (d []string) {
	note := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	if a.status != r.Status {
		note("status %d instead of %d: %s", a.status, r.Status, a.body)
	}
	if sub, _ := strconv.Atoi(a.header.Get("x-ms-substatus")); r.SubStatus != nil && sub != *r.SubStatus {
		note("sub-status %d instead of %d", sub, *r.SubStatus)
	}
	var is struct{ Code string }
	_ = json.Unmarshal(a.body, &is)
	if is.Code != r.Code {
		note("code %q instead of %q", is.Code, r.Code)
	}
	was := strings.NewReplacer(`Message: {"Errors":["`, "", `["`, "", `\/`, "/").Replace(r.Message)
	if want, got := firstSentence(was), firstSentence(messageOf(a.body)); got != want {
		note("sentence %q instead of %q", got, want)
	}
	return d
}

// firstSentence returns the first sentence of a message without a frame.
func firstSentence(message string) string {
	for _, end := range []string{"\r\n", `"]`, `"...`, ". ", "., ", ": it is", ": there is"} {
		message, _, _ = strings.Cut(message, end)
	}
	return strings.TrimRight(message, ".")
}
