package report

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// place is a result in tests.
type place struct {
	ID   string   `json:"id" about:"of the place"`
	City *string  `json:"city" about:"the city"`
	Tags []string `json:"tags"`
	In   struct {
		Country string `json:"country"`
	} `json:"in"`
}

func (place) ReportedAs() string { return "place" }

var placeKind = Kind{"place", "A place.", place{}}

// written returns the rows of two places in a form.
func written(t *testing.T, form Form, fields ...string) string {
	t.Helper()
	var b strings.Builder
	r := New(form, &b)
	r.Fields = fields
	rows := r.Rows()
	one := place{ID: "1", City: new("Köln, <Rhein>"), Tags: []string{"a", "b"}}
	one.In.Country = "DE"
	if err := errors.Join(rows.Add(one), rows.Add(place{ID: "2"}), rows.Flush()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRowsHaveTheFormOfTheFlag(t *testing.T) {
	for _, tt := range []struct {
		form   Form
		fields []string
		want   string
	}{
		{JSON, nil, `{"kind":"place","schema":1,"id":"1","city":"Köln, <Rhein>","tags":["a","b"],"in":{"country":"DE"}}
{"kind":"place","schema":1,"id":"2","city":null,"tags":null,"in":{"country":""}}
`},
		{JSON, []string{"in.country", "city"}, `{"kind":"place","schema":1,"in.country":"DE","city":"Köln, <Rhein>"}
{"kind":"place","schema":1,"in.country":"","city":null}
`},
		{YAML, nil, `---
kind: place
schema: 1
id: "1"
city: "Köln, <Rhein>"
tags:
    - a
    - b
in:
    country: DE
---
kind: place
schema: 1
id: "2"
city: null
tags: null
in:
    country: ""
`},
		{CSV, nil, `kind,id,city,tags,in
place,1,"Köln, <Rhein>","[""a"",""b""]","{""country"":""DE""}"
place,2,,,"{""country"":""""}"
`},
		{CSV, []string{"city", "in.country"}, "city,in.country\n\"Köln, <Rhein>\",DE\n,\n"},
		{Table, []string{"id", "city"}, "  id  city\n  1   Köln, <Rhein>\n  2   -\n"},
	} {
		if got := written(t, tt.form, tt.fields...); got != tt.want {
			t.Errorf("%s %q: got\n%s\nwant\n%s", tt.form, tt.fields, got, tt.want)
		}
	}
}

// Documents of users have no kind, and may be anything.
func TestDocumentsAreWrittenAsTheyAre(t *testing.T) {
	documents := []string{`{"a.b": 1,  "a": {"b": 2, "c": null}}`, `5`, `"x"`, `[1]`}
	for _, tt := range []struct {
		form   Form
		fields []string
		want   string
	}{
		{JSON, nil, strings.Join(documents, "\n") + "\n"},
		{CSV, []string{"a.b", "a.c", "value"}, "a.b,a.c,value\n1,,\n,,5\n,,x\n,,[1]\n"},
		{CSV, nil, "a.b,a,value\n1,\"{\"\"b\"\": 2, \"\"c\"\": null}\",\n,,5\n,,x\n,,[1]\n"},
	} {
		var b strings.Builder
		r := New(tt.form, &b)
		r.Fields = tt.fields
		rows := r.Rows()
		for _, d := range documents {
			if err := rows.AddDocument(json.RawMessage(d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Flush(); err != nil || b.String() != tt.want {
			t.Errorf("%s %q: got %v\n%s\nwant\n%s", tt.form, tt.fields, err, b.String(), tt.want)
		}
	}
}

// The heading of a long CSV file is written before its last rows are known. A member that comes later is never
// dropped.
func TestALateMemberOfACSVFileIsAnError(t *testing.T) {
	var b strings.Builder
	rows := New(CSV, &b).Rows()
	for range page {
		if err := rows.AddDocument(json.RawMessage(`{"id":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.AddDocument(json.RawMessage(`{"id":2}`)); err != nil {
		t.Error(err)
	}
	err := rows.AddDocument(json.RawMessage(`{"id":3,"late":true}`))
	if err == nil || !strings.Contains(err.Error(), `row 1002 has the member "late"`) ||
		!strings.Contains(err.Error(), "--fields") {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(b.String(), "\n"); n != page+2 {
		t.Errorf("got %d lines, want %d", n, page+2)
	}
}

// A table of more rows than a page has its heading again.
func TestALongTableHasItsHeadingAgain(t *testing.T) {
	var b strings.Builder
	r := New(Table, &b)
	r.Fields = []string{"id"}
	rows := r.Rows()
	for range page + 1 {
		if err := rows.AddDocument(json.RawMessage(`{"id":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Flush(); err != nil || strings.Count(b.String(), "id") != 2 ||
		strings.Count(b.String(), "1") != page+1 {
		t.Errorf("%v, %d headings", err, strings.Count(b.String(), "id"))
	}
}

// A result without rows is empty for programs that read lines, and a heading for those that read CSV.
func TestNoRowsAreNoLines(t *testing.T) {
	for form, want := range map[Form]string{JSON: "", YAML: "", CSV: "id\n", Table: "  id\n"} {
		var b strings.Builder
		r := New(form, &b)
		r.Fields = []string{"id"}
		if err := r.Rows().Flush(); err != nil || b.String() != want {
			t.Errorf("%s: got %v, %q, want %q", form, err, b.String(), want)
		}
	}
}

// A field that no document has may be a mistake, such as one of case. It is no error, because documents differ.
func TestAFieldThatNoDocumentHasIsTold(t *testing.T) {
	for _, form := range []Form{JSON, YAML, CSV, Table} {
		var said strings.Builder
		r := New(form, io.Discard)
		r.Err = &said
		r.Fields = []string{"id", "ID", "in.city", "in.town"}
		rows := r.Rows()
		for _, d := range []string{`{"id":1}`, `{"id":2,"in":{"city":null}}`} {
			if err := rows.AddDocument(json.RawMessage(d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Flush(); err != nil || !strings.Contains(said.String(),
			"--fields has ID,in.town, and no row has") {
			t.Errorf("%s: got %v and %q", form, err, said.String())
		}
	}
	// Without rows nobody knows, and without fields there is nothing to write.
	for _, fields := range [][]string{{"id"}, nil} {
		var b strings.Builder
		r := New(CSV, &b)
		r.Fields = fields
		if err := r.Rows().Flush(); err != nil || b.String() != strings.Join(append(fields, ""), "\n") {
			t.Errorf("%q: got %v, %q", fields, err, b.String())
		}
	}
}

func TestFieldsThatNoRowHasAreRefused(t *testing.T) {
	for _, tt := range []struct {
		kinds  []Kind
		fields []string
		want   string
	}{
		{nil, []string{"anything"}, ""},
		{[]Kind{placeKind}, []string{"id", "in.country", "kind"}, ""},
		{[]Kind{placeKind}, []string{"id", "town"}, "--fields is town: want some of id, city, tags, in, kind"},
		{nil, []string{"id", ""}, "--fields has an empty name: want names separated by commas, such as id,city"},
	} {
		r := New(JSON, io.Discard)
		r.Kinds, r.Fields = tt.kinds, tt.fields
		err := r.Check()
		if _, wrong := errors.AsType[usage.Error](err); wrong != (tt.want != "") || wrong && err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.fields, err, tt.want)
		}
	}
}

// A result for people is written by its command; with fields, or for programs, it is not.
func TestPeopleGetTheirOwnForm(t *testing.T) {
	text := func(w io.Writer) error {
		_, err := io.WriteString(w, "in words\n")
		return err
	}
	for form, want := range map[Form]string{
		Text: "in words\n", Table: "in words\n", JSON: `{"kind":"notice","schema":1,"text":"x"}` + "\n",
	} {
		var b strings.Builder
		if err := New(form, &b).Object(notice{"x"}, text); err != nil || b.String() != want {
			t.Errorf("%s: got %v, %q", form, err, b.String())
		}
	}
}

func TestANoticeHasTheFormOfTheResults(t *testing.T) {
	for _, tt := range []struct {
		form  Form
		quiet bool
		want  string
	}{
		{Text, false, "changefeed x: 2 left\n"},
		{JSON, false, `{"kind":"notice","schema":1,"text":"2 left"}` + "\n"},
		{Text, true, ""},
		{JSON, true, ""},
	} {
		var b strings.Builder
		r := Report{Form: tt.form, Quiet: tt.quiet, Command: "changefeed x", Err: &b}
		if r.Notice("%d left", 2); b.String() != tt.want {
			t.Errorf("%s, quiet %v: got %q, want %q", tt.form, tt.quiet, b.String(), tt.want)
		}
	}
}

// broken is an output without a reader.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRowsThatAreNotWrittenAreAnError(t *testing.T) {
	for _, form := range []Form{JSON, YAML, CSV, Table} {
		r := New(form, broken{})
		r.Fields = []string{"id"}
		rows := r.Rows()
		if err := errors.Join(rows.Add(place{ID: "1"}), rows.Flush()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: got %v, want %v", form, err, io.ErrClosedPipe)
		}
	}
}

// everything has a member of each type that a result may have.
type everything struct {
	place
	Text  string            `json:"text,omitempty" about:"a text"`
	At    time.Time         `json:"at"`
	Any   json.RawMessage   `json:"any"`
	Some  *int64            `json:"some"`
	Ratio float64           `json:"ratio"`
	Yes   bool              `json:"yes"`
	Named map[string]string `json:"named"`
	Never string            `json:"-"`
}

func (everything) ReportedAs() string { return "everything" }

func TestTheSchemaDescribesEachType(t *testing.T) {
	text, err := SchemaOf([]Kind{{"everything", "All.", everything{}}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Defs map[string]struct {
			Description string
			Required    []string
			Properties  map[string]any
			Additional  *bool `json:"additionalProperties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	all := got.Defs["everything"]
	if all.Description != "All." || all.Additional == nil || *all.Additional ||
		strings.Join(all.Required, " ") != "kind schema id city tags in at any some ratio yes named" {
		t.Errorf("got %+v", all)
	}
	for name, want := range map[string]string{
		"id":   `{"description":"of the place","type":"string"}`,
		"city": `{"description":"the city","type":["string","null"]}`,
		"tags": `{"items":{"type":"string"},"type":"array"}`, "at": `{"format":"date-time","type":"string"}`,
		"any": `{}`, "some": `{"type":["integer","null"]}`, "ratio": `{"type":"number"}`, "yes": `{"type":"boolean"}`,
		"named": `{"additionalProperties":{"type":"string"},"type":"object"}`,
		"text":  `{"description":"a text","type":"string"}`,
		"kind":  `{"const":"everything"}`, "schema": `{"const":1}`,
		"in": `{"additionalProperties":false,"properties":{"country":{"type":"string"}},"required":["country"],"type":"object"}`,
	} {
		if got, err := json.Marshal(all.Properties[name]); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
	if _, there := all.Properties["Never"]; there || len(all.Properties) != 13 {
		t.Errorf("%d members: %v", len(all.Properties), all.Properties)
	}
}

// Readers of YAML 1.1 and 1.2 disagree about plain texts and numbers, and JSON has texts that YAML writes otherwise.
func TestYAMLIsReadAsTheSameValues(t *testing.T) {
	const document = `{"a":"yes","no":"1:30","b":"=","c":"\ud83d\ude00","d":"\/\u007f\u0085","e":"a: b","f":1e3,"g":1E-2,` +
		`"h":-0.5,"i":[],"j":{},"k":null,"l":"","m":" x ","n":"tr\nue","o":true,"p":1.5e300,"q":"Köln","r":"2026-01-31"}`
	long := `{"` + strings.Repeat("x", 1100) + `":1}`
	for _, text := range []string{document, long, `"no"`, `[1,"2",[3]]`, `5`, `null`} {
		got, err := toYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var read, want any
		if err := errors.Join(yaml.Unmarshal(got, &read), json.Unmarshal([]byte(text), &want)); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		a, err := json.Marshal(read)
		b, werr := json.Marshal(want)
		if err != nil || werr != nil || string(a) != string(b) {
			t.Errorf("%s\nread as %s\nwant    %s (%v, %v)", got, a, b, err, werr)
		}
	}
	got, err := toYAML([]byte(document))
	for _, want := range []string{`a: "yes"`, `"no": "1:30"`, `f: 1.0e+3`, `g: 1.0e-2`, `q: Köln`, `r: "2026-01-31"`} {
		if err != nil || !strings.Contains("\n"+string(got), "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s (%v)", want, got, err)
		}
	}
	// YAML allows a member once.
	if got, err := toYAML([]byte(`{"a":1,"b":2,"a":3}`)); err != nil || string(got) != "a: 3\nb: 2\n" {
		t.Errorf("got %s, %v", got, err)
	}
}

// A document may have line breaks, and is one line nevertheless. A row may be empty, and is a row nevertheless.
func TestARowIsALine(t *testing.T) {
	for form, want := range map[Form]string{JSON: `{"a":null}` + "\n", CSV: "a\n\"\"\n"} {
		var b strings.Builder
		rows := New(form, &b).Rows()
		err := errors.Join(rows.AddDocument(json.RawMessage("{\r\n \"a\": null\n}")), rows.Flush())
		if err != nil || b.String() != want {
			t.Errorf("%s: got %q, %v, want %q", form, b.String(), err, want)
		}
	}
}

// A summary beside the user's documents has the form that the user asks for, and the default is for people.
func TestASummaryBesideTheDocumentsHasTheFormOfTheFlag(t *testing.T) {
	for _, tt := range []struct {
		form      Form
		isDefault bool
		want      string
	}{
		{Text, false, "for people\n"},
		{JSON, true, "for people\n"},
		{JSON, false, `{"kind":"notice","schema":1,"text":"one"}` + "\n"},
		{YAML, false, "for people\n"}, // a notice: only summaries are YAML
	} {
		var b strings.Builder
		r := &Report{Form: tt.form, Default: tt.isDefault, Err: &b}
		people := func(w io.Writer) error { _, err := io.WriteString(w, "for people\n"); return err }
		if err := r.Aside(notice{"one"}, people); err != nil || b.String() != tt.want {
			t.Errorf("%s, default %v: got %q, %v, want %q", tt.form, tt.isDefault, b.String(), err, tt.want)
		}
	}
	var b strings.Builder
	r := &Report{Form: YAML, Err: &b}
	err := r.Aside(Failure{Code: "failed"}, func(io.Writer) error { return errors.New("for people") })
	if err != nil || !strings.HasPrefix(b.String(), "---\nkind: error\n") {
		t.Errorf("got %q, %v, want a document of YAML", b.String(), err)
	}
}

// An empty text of this type is null, so that programs need not ask whether the member is there.
func TestATextThatIsNotKnownIsNull(t *testing.T) {
	for text, want := range map[Known]string{"": `null`, "a <b>": `"a <b>"`} {
		if got, err := text.MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", string(text), got, err, want)
		}
	}
}
