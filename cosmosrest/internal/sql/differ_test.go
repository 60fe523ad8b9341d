package sql_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

var (
	differRuns = flag.Int("differ.runs", 1500, "how many random queries are compared with the obvious evaluator")
	differSeed = flag.Uint64("differ.seed", 1, "seed of the first of them")
)

// pair is a query and the documents that it runs over.
type pair struct {
	q    *query
	docs []document
}

// newPair draws a pair. If no row comes, it helps: by another filter, and by something defined in each row.
func newPair(seed uint64) *pair {
	d := newDraw(seed)
	docs := d.documents()
	p := &pair{d.query(3, true), docs}
	if rows, _, why := p.obvious(); why != "" || len(rows) > 0 {
		return p
	}
	if p.q.where != nil {
		yes, no := &term{op: "literal", text: "true", value: true}, &term{op: "literal", text: "FALSE", value: false}
		p.q.where = pick(d, &term{op: "prefix", text: "NOT", kids: []*term{p.q.where}}, infixed("??", p.q.where, yes),
			&term{op: "choice", kids: []*term{p.q.where, no, yes}})
	}
	if p.q.single != nil {
		p.q.single = &term{op: "array", kids: []*term{p.q.single}}
	}
	return p
}

// obvious are the rows that the obvious evaluator makes; why says what it cannot know.
func (p *pair) obvious() (rows []any, loose bool, why string) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case unclear:
			why = failed.why
		default:
			panic(failed)
		}
	}()
	c := &container{docs: p.docs}
	rows = c.rows(p.q, nil)
	return rows, c.loose, ""
}

// differs says how the engine's rows are others.
func (p *pair) differs() string {
	want, loose, why := p.obvious()
	if why != "" {
		return ""
	}
	got, err := p.engine()
	if err != nil {
		return p.tell("the engine: " + err.Error())
	}
	if !alike(got, want, loose) {
		return p.tell(fmt.Sprintf("the engine: %s\nthe obvious: %s", write(got), write(want)))
	}
	return ""
}

// refused is why the engine does not run the query.
func (p *pair) refused() string {
	if _, err := p.engine(); err != nil {
		return err.Error()
	}
	return ""
}

func (p *pair) tell(what string) string {
	var docs []string
	for _, d := range p.docs {
		docs = append(docs, d.text)
	}
	var params strings.Builder
	for _, a := range p.q.parameters() {
		fmt.Fprintf(&params, "\n%s = %s", a.Name, a.Value)
	}
	return p.q.text() + params.String() + "\nover " + strings.Join(docs, "\n     ") + "\n" + what
}

func write(rows []any) string {
	b, err := json.Marshal(rows)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *pair) bind() (*sql.Bound, error) {
	q, err := sql.Parse(p.q.text())
	if err != nil {
		return nil, err
	}
	return q.Bind(p.q.parameters())
}

// engine are the rows that the engine makes.
func (p *pair) engine() ([]any, error) {
	b, err := p.bind()
	if err != nil {
		return nil, err
	}
	texts, err := rowsOf(b, p.docs)
	if err != nil {
		return nil, err
	}
	return decode(texts)
}

func decode(texts []string) ([]any, error) {
	rows := make([]any, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &rows[i]); err != nil {
			return nil, fmt.Errorf("row %s: %w", text, err)
		}
	}
	return rows, nil
}

// rowsOf runs a query as the server does.
func rowsOf(b *sql.Bound, docs []document) (rows []string, err error) {
	if !b.Streams() {
		found, err := collected(b, docs)
		for _, row := range found {
			rows = append(rows, string(row.JSON))
		}
		return rows, err
	}
	offset, limit := b.Limit()
	for _, d := range docs {
		err = errors.Join(err, b.Rows([]byte(d.text), func(row []byte) error {
			rows = append(rows, string(row))
			return nil
		}))
	}
	rows = rows[min(int(offset), len(rows)):]
	if limit >= 0 {
		rows = rows[:min(int(limit), len(rows))]
	}
	return rows, err
}

func collected(b *sql.Bound, docs []document) ([]sql.Row, error) {
	run := b.NewRun()
	for _, d := range docs {
		if err := run.Add([]byte(d.text)); err != nil {
			return nil, err
		}
	}
	return run.Finish()
}

// alike tells whether two results are the same, in any order if that is loose.
func alike(got, want []any, loose bool) bool {
	if !loose {
		return slices.EqualFunc(got, want, near)
	}
	rest := slices.Clone(want)
	for _, row := range got {
		i := slices.IndexFunc(rest, func(v any) bool { return near(row, v) })
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return len(rest) == 0
}

// near is same, but for numbers that were added up in another order.
func near(a, b any) bool {
	if typeOf(a) != typeOf(b) {
		return false
	}
	switch x := a.(type) {
	case float64:
		y, _ := b.(float64)
		return math.Abs(x-y) <= 1e-12*math.Max(math.Abs(x), math.Abs(y))
	case []any:
		y, _ := b.([]any)
		return slices.EqualFunc(x, y, near)
	case map[string]any:
		y, _ := b.(map[string]any)
		for k, v := range x {
			if w, ok := y[k]; !ok || !near(v, w) {
				return false
			}
		}
		return len(x) == len(y)
	}
	return a == b
}
