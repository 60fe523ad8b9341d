package items

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAnInputIsDocumentsInARowOrAnArray(t *testing.T) {
	for _, text := range []string{
		`{"id":"1"}{"id":"2"}`,
		"{\"id\":\"1\"}\n\n {\"id\":\"2\"}\n",
		"\xef\xbb\xbf" + ` [ {"id":"1"} , {"id":"2"} ] `,
	} {
		all, err := Read(strings.NewReader(text))
		if err != nil || len(all) != 2 || string(all[0]) != `{"id":"1"}` || string(all[1]) != `{"id":"2"}` {
			t.Errorf("%q: got %s, %v", text, all, err)
		}
	}
}

func TestAnErrorSaysWhereTheInputIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the input is empty",
		"[]":                               "the input is empty",
		"{\"id\":\"1\"}\n{\"id\" 2}":       "line 2, byte 7: invalid character '2'",
		"[{\"id\":\"1\"},\n\n {\"id\":x}":  "line 3, byte 8: invalid character 'x'",
		"[{\"id\":\"1\"}\n{\"id\":\"2\"}]": "line 2, byte 1: invalid character '{' after a document: want , or ]",
		"[{\"id\":\"1\"},]":                "line 1, byte 13: invalid character ']'",
		"[{\"id\":\"1\"}":                  "line 1, byte 12: the array does not end",
		"[{\"id\":\"1\"}] {}":              "line 1, byte 14: there is more after the end of the array",
		"{\"id\":\"1\"":                    "line 1, byte 10: the document does not end",
		"{} [1]":                           "line 1, byte 4: the document is no object",
		"[{},null]":                        "line 1, byte 5: the document is no object",
	} {
		all, err := Read(strings.NewReader(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %s, %v, want %s", text, all, err, want)
		}
	}
}

func TestMuchInputIsForImport(t *testing.T) {
	for _, text := range []string{
		strings.Repeat(`{"id":"1"}`, maxDocuments+1),
		`{"id":"` + strings.Repeat("x", maxInput) + `"}`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "changefeed import") {
			t.Errorf("%d bytes: got %v", len(text), err)
		}
	}
}

func TestAParameterIsJSONOrText(t *testing.T) {
	for text, want := range map[string]string{
		"n=5": `@n 5`, "@n=5": `@n 5`, `n="5"`: `@n "5"`, "city=Oslo": `@city "Oslo"`, "x=": `@x ""`,
		"x=a=b": `@x "a=b"`, `x=["a",null]`: `@x ["a",null]`, `x=a"b`: `@x "a\"b"`,
	} {
		p, err := ParseParameter(text)
		if got := p.Name + " " + string(p.Value); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "n", "=5", "@=5", "a b=5"} {
		if p, err := ParseParameter(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}

func TestAPlanIsExplained(t *testing.T) {
	plan := `{"queryInfo":{"distinctType":"Ordered","top":5,"offset":0,"limit":2,"orderBy":["Descending"],
		"orderByExpressions":["c.n"],"groupByExpressions":["c.city"],"groupByAliasToAggregateType":{"x":"Count","city":null},
		"rewrittenQuery":"SELECT c\nFROM c"}}`
	const want = "ORDER BY c.n Descending; GROUP BY c.city; aggregate Count; DISTINCT ordered; TOP 5; OFFSET 0; LIMIT 2; " +
		"for each partition SELECT c FROM c"
	if got := strings.Join(describePlan([]byte(plan)), "; "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, none := range []string{"", "{}", `{"queryInfo":{"distinctType":"None"}}`} {
		if got := describePlan([]byte(none)); len(got) > 0 {
			t.Errorf("%q: got %q, want nothing", none, got)
		}
	}
}

func TestOnlyWholeDocumentsLoseTheirSystemProperties(t *testing.T) {
	whole := json.RawMessage(`{"id":"1","_rid":"a","_self":"b","_etag":"c","_attachments":"d","_ts":5,"n":{"_ts":1}}`)
	if got := string(WithoutSystem(whole)); got != `{"id":"1","n":{"_ts":1}}` {
		t.Errorf("a document: got %s", got)
	}
	for _, row := range []string{`{"id":"1","_ts":5}`, `5`, `[1]`} {
		if got := string(WithoutSystem(json.RawMessage(row))); got != row {
			t.Errorf("%s: got %s", row, got)
		}
	}
}

func TestTheNumberOfDocumentsMayBeUnknown(t *testing.T) {
	if n := countIn("functions=0;documentsCount=7;collectionSize=1"); n == nil || *n != 7 {
		t.Errorf("got %v, want 7", n)
	}
	for _, text := range []string{"", "documentsCount=", "documents=7;"} {
		if n := countIn(text); n != nil {
			t.Errorf("%q: got %d, want nothing", text, *n)
		}
	}
}
