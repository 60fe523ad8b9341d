package sql

import (
	"strings"
	"testing"
)

// run returns the rows that a query makes of documents, a line each.
func run(t *testing.T, query string, docs []string, params ...Parameter) (string, error) {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		return "", err
	}
	b, err := q.Bind(params)
	if err != nil {
		return "", err
	}
	var rows []string
	if b.Streams() {
		for _, d := range docs {
			err := b.Rows([]byte(d), func(row []byte) error {
				rows = append(rows, string(row))
				return nil
			})
			if err != nil {
				return "", err
			}
		}
		offset, limit := b.Limit()
		rows = rows[min(int(offset), len(rows)):]
		if limit >= 0 {
			rows = rows[:min(int(limit), len(rows))]
		}
		return strings.Join(rows, "\n"), nil
	}
	r := b.NewRun()
	for _, d := range docs {
		if err := r.Add([]byte(d)); err != nil {
			return "", err
		}
	}
	out, err := r.Finish()
	for _, row := range out {
		rows = append(rows, string(row))
	}
	return strings.Join(rows, "\n"), err
}

func TestPointFilter(t *testing.T) {
	docs := []string{`{"id":"1", "x":"a"}`, `{"id":"2","x":5}`, `{"id":"3"}`}
	got, err := run(t, "SELECT * FROM c WHERE c.x = @p", docs, Parameter{"@p", []byte(`"a"`)})
	if err != nil || got != docs[0] {
		t.Errorf("got %q, %v", got, err)
	}
}
